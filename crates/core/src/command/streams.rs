//! Commands on streams.

use serde::{Deserialize, Serialize};

use crate::clock::Seconds;
use crate::json::Json;
use crate::limits::{self, Check};
use crate::model::StreamName;

/// Appends events.
///
/// # Behavior
/// - `seq` goes on from the head by one for each event, in order; the stream exists from its first event.
/// - `expect_seq` that is not the head's is `conflict`.
/// - A stream of category `task` belongs to its task: without one it is `not_found`. In the same batch,
///   appended events come before the task's own lifecycle events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StreamAppend {
    /// Which stream.
    pub stream: StreamName,
    /// What to append.
    pub events: Vec<NewEvent>,
    /// Only if this is the last sequence number; 0 for a stream without events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_seq: Option<u64>,
}

/// An event to append.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewEvent {
    /// What happened.
    #[serde(rename = "type")]
    pub kind: String,
    /// The rest.
    #[serde(default, deserialize_with = "crate::model::given", skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
}

/// The reply of `stream.append`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Appended {
    /// The sequence number of the first event.
    pub first_seq: u64,
    /// The sequence number of the last event.
    pub last_seq: u64,
}

impl NewEvent {
    /// An event without data.
    pub fn new(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), data: None }
    }

    /// The same event with data.
    #[must_use]
    pub fn data(self, data: Json) -> Self {
        Self { data: Some(data), ..self }
    }
}

impl StreamAppend {
    pub(super) fn check(&self, check: &mut Check) {
        check.count("events", self.events.len(), 1, limits::LIST);
        for event in &self.events {
            check.name("events.type", &event.kind);
            check.body("events.data", event.data.as_ref(), limits::EVENT);
        }
    }
}

/// Removes a prefix of a stream.
///
/// # Behavior
/// - A stream that never had an event is `not_found`.
/// - The head stays, so that no `seq` repeats. Nothing is removed when nothing is old enough.
/// - Reading after a cursor before the prefix's end is `compacted`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StreamTrim {
    /// Which stream.
    pub stream: StreamName,
    /// How far.
    pub to: TrimTo,
}

/// How much of a stream to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TrimTo {
    /// The last events, this many.
    Length(u64),
    /// What is not older than this, from the first such event on.
    AgeSeconds(Seconds),
    /// What comes after this sequence number.
    After(u64),
}

/// The reply of `stream.trim` and `stream.purge`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Trimmed {
    /// The oldest cursor that can still be read after: the number of the last removed event.
    pub oldest: u64,
}

impl StreamTrim {
    pub(super) fn check(&self, check: &mut Check) {
        if let TrimTo::AgeSeconds(age) = self.to {
            check.length("to.age_seconds", Some(age));
        }
    }
}

/// Removes all events of a stream, for erasure.
///
/// # Behavior
/// - A stream that never had an event is `not_found`.
/// - The head stays, so that no `seq` repeats. The act is written to the audit stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StreamPurge {
    /// Which stream.
    pub stream: StreamName,
}

impl StreamPurge {
    #[expect(clippy::unused_self, reason = "every command is checked the same way")]
    pub(super) fn check(&self, _: &mut Check) {}
}
