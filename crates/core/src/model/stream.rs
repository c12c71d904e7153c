//! Streams: append-only logs with a gapless sequence.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::TaskId;
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::json::Json;
use crate::limits;

/// The category whose streams belong to tasks.
pub const TASK_CATEGORY: &str = "task";
/// The category of dead letters.
pub const DEAD_CATEGORY: &str = "dead";
/// The category of administrative acts.
pub const AUDIT_CATEGORY: &str = "audit";

/// The name of a stream, `category/id`.
///
/// ```
/// use statehold_core::model::StreamName;
///
/// let name: StreamName = "thread/42".parse().unwrap();
/// assert_eq!((name.category(), name.id()), ("thread", "42"));
/// assert!("thread".parse::<StreamName>().is_err());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StreamName(Arc<str>);

impl StreamName {
    /// The stream `category/id`.
    pub fn new(category: &str, id: impl fmt::Display) -> Result<Self> {
        format!("{category}/{id}").parse()
    }

    /// The stream of a task's events.
    pub fn of_task(id: TaskId) -> Self {
        Self::trusted(TASK_CATEGORY, id.0.hyphenated().encode_lower(&mut Uuid::encode_buffer()))
    }

    /// For names that this crate puts together from checked parts.
    pub(crate) fn trusted(category: &str, id: &str) -> Self {
        Self([category, "/", id].concat().into())
    }

    /// For stores that read back a name which was checked when it came: it is not checked again.
    pub fn stored(name: &str) -> Self {
        Self(name.into())
    }

    /// The part before the first slash.
    pub fn category(&self) -> &str {
        self.0.split_once('/').map_or("", |(category, _)| category)
    }

    /// The part after the first slash.
    pub fn id(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, id)| id)
    }

    /// The task whose stream this is.
    pub fn task(&self) -> Option<TaskId> {
        let id = (self.category() == TASK_CATEGORY).then(|| self.id().parse().ok())?;
        id.filter(|id| Self::of_task(*id) == *self)
    }

    /// The whole name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for StreamName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::try_from(text.to_owned()).map_err(|problem| Error::invalid("stream", problem))
    }
}

impl TryFrom<String> for StreamName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        limits::name(&text)?;
        match text.split_once('/') {
            Some((category, id)) if !category.is_empty() && !id.is_empty() => Ok(Self(text.into())),
            _ => Err(format!("`{text}` is not of the form category/id")),
        }
    }
}

impl From<StreamName> for String {
    fn from(name: StreamName) -> Self {
        name.0.as_ref().to_owned()
    }
}

/// Where an event stands in its category: hexadecimal text, opaque to callers, whose bytes compare in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Position(pub String);

impl Position {
    /// A position from a number, for stores that count.
    pub fn from_number(number: u64) -> Self {
        // Every event that is read has one, and formatting would take longer than reading it.
        let digit = |at: u32| char::from(b"0123456789abcdef"[(number >> (60 - 4 * at) & 15) as usize]);
        Self((0..16).map(digit).collect())
    }

    /// Whether it can be one that a store gave; the empty one stands before everything.
    pub fn is_plausible(&self) -> bool {
        self.0.len() <= limits::NAME && self.0.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    }

    /// The number at its front: the one that [`from_number`](Self::from_number) was given, or of another
    /// store's longer position one whose successor sorts after it.
    pub fn number(&self) -> Option<u64> {
        u64::from_str_radix(self.0.get(..16)?, 16).ok()
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One event of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    /// Its stream.
    pub stream: StreamName,
    /// 1, 2, 3… in its stream, with no gap.
    pub seq: u64,
    /// Its place in the category.
    pub position: Position,
    /// What happened.
    #[serde(rename = "type")]
    pub kind: String,
    /// The rest.
    #[serde(default, deserialize_with = "super::given", skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
    /// When it was written.
    pub at: Timestamp,
    /// Who wrote it.
    pub actor: Option<String>,
}

/// A stream in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StreamInfo {
    /// Its name.
    pub stream: StreamName,
    /// The sequence number of its last event.
    pub last_seq: u64,
    /// The oldest cursor that can be read after; 0 unless it was trimmed.
    pub oldest: u64,
}
