//! What can be asked without changing anything, and what is answered. Filters and orders are
//! defined here once; a store with indexes answers the same by other means.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::clock::{Seconds, Timestamp};
use crate::error::{Error, Result};
use crate::limits::{self, Check};
use crate::model::{Event, Labels, Position, StreamName, Task, TaskId};
use crate::status::Status;

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// Asks for the next page; none on the last.
    pub next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// A page of what `rows` gives, which may be one more than `limit` to tell that there is a next page.
    pub fn of<K: Serialize>(mut rows: Vec<T>, limit: usize, key: impl Fn(&T) -> K) -> Self {
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next_cursor = rows.last().filter(|_| more).map(|last| write_cursor(&key(last)));
        Self { items: rows, next_cursor }
    }
}

/// An opaque cursor that holds the place after which a list goes on.
pub fn write_cursor<K: Serialize>(key: &K) -> String {
    use base64::Engine as _;
    let text = serde_json::to_string(key).unwrap_or_default();
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text)
}

/// The place that a cursor holds; `invalid` if it is not one of this list's.
pub fn read_cursor<K: DeserializeOwned>(cursor: &str) -> Result<K> {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(cursor).ok();
    bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).ok_or_else(|| {
        Error::invalid("cursor", "is not one that this list gave")
            .hint("pass `next_cursor` as it was answered")
    })
}

/// The size of a page unless said otherwise.
pub(crate) fn fifty() -> u32 {
    50
}

fn check_page(check: &mut Check, limit: u32) {
    let most = limits::LIST;
    let good = limit >= 1 && limit as usize <= most;
    check.that(good, "limit", || format!("{limit} is not between 1 and {most}"));
}

/// Which tasks, in which order. Filters that are left out let everything through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TaskList {
    /// In one of these.
    pub status: Vec<Status>,
    /// In this queue.
    pub queue: Option<String>,
    /// Of this kind.
    pub kind: Option<String>,
    /// Of this thread.
    pub thread: Option<String>,
    /// Children of this task.
    pub parent: Option<TaskId>,
    /// In the family of this one.
    pub root: Option<TaskId>,
    /// Leased to this owner.
    pub owner: Option<String>,
    /// With all of these labels.
    pub labels: Labels,
    /// With this key.
    pub idempotency_key: Option<String>,
    /// With this key.
    pub exclusive_key: Option<String>,
    /// Created at or after.
    pub created_from: Option<Timestamp>,
    /// Created before.
    pub created_before: Option<Timestamp>,
    /// Leased, with a heartbeat at or after.
    pub heartbeat_from: Option<Timestamp>,
    /// Leased, with a heartbeat before.
    pub heartbeat_before: Option<Timestamp>,
    /// The order.
    pub order: TaskOrder,
    /// Backwards.
    pub descending: bool,
    /// How many at most; 50 if left out.
    pub limit: u32,
    /// Where the last page ended.
    pub cursor: Option<String>,
}

/// The order of a list of tasks. Ids break ties, so that a cursor never skips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TaskOrder {
    /// By `created_at`.
    #[default]
    Created,
    /// By `rank`, as in a backlog.
    Rank,
    /// As claims take them: priority, then `run_at`.
    Claim,
}

/// The place of a task in a list: two numbers by the order, then the id.
pub type TaskPlace = (i64, i64, TaskId);

impl Default for TaskList {
    fn default() -> Self {
        Self {
            status: Vec::new(),
            queue: None,
            kind: None,
            thread: None,
            parent: None,
            root: None,
            owner: None,
            labels: Labels::new(),
            idempotency_key: None,
            exclusive_key: None,
            created_from: None,
            created_before: None,
            heartbeat_from: None,
            heartbeat_before: None,
            order: TaskOrder::Created,
            descending: false,
            limit: fifty(),
            cursor: None,
        }
    }
}

impl TaskList {
    /// All that is wrong with it.
    pub fn check(&self) -> Result<()> {
        let mut check = Check::default();
        check_page(&mut check, self.limit);
        check.labels(self.labels.iter().map(|(key, value)| (key, Some(value))));
        check.finish()?;
        self.place().map(|_| ())
    }

    /// Where the last page ended.
    pub fn place(&self) -> Result<Option<TaskPlace>> {
        self.cursor.as_deref().map(read_cursor).transpose()
    }

    /// Whether a task is let through by the filters; the cursor does not count.
    pub fn matches(&self, task: &Task) -> bool {
        fn same<T: PartialEq>(wanted: Option<&T>, is: Option<&T>) -> bool {
            wanted.is_none() || wanted == is
        }
        let lease = task.lease.as_ref();
        let heartbeat = lease.map(|lease| lease.heartbeat_at);
        (self.status.is_empty() || self.status.contains(&task.status))
            && same(self.queue.as_ref(), Some(&task.queue))
            && same(self.kind.as_ref(), Some(&task.kind))
            && same(self.thread.as_ref(), task.thread.as_ref())
            && same(self.parent.as_ref(), task.parent.as_ref())
            && same(self.root.as_ref(), Some(&task.root))
            && same(self.owner.as_ref(), lease.map(|lease| &lease.owner))
            && same(self.idempotency_key.as_ref(), task.idempotency_key.as_ref())
            && same(self.exclusive_key.as_ref(), task.exclusive_key.as_ref())
            && self.labels.iter().all(|(key, value)| task.labels.get(key) == Some(value))
            && self.created_from.is_none_or(|from| task.created_at >= from)
            && self.created_before.is_none_or(|before| task.created_at < before)
            && self.heartbeat_from.is_none_or(|from| heartbeat.is_some_and(|at| at >= from))
            && self.heartbeat_before.is_none_or(|before| heartbeat.is_some_and(|at| at < before))
    }

    /// The place of a task in this list's order.
    pub fn place_of(&self, task: &Task) -> TaskPlace {
        match self.order {
            TaskOrder::Created => (task.created_at.as_micros(), 0, task.id),
            TaskOrder::Rank => (task.rank, 0, task.id),
            TaskOrder::Claim => (i64::from(task.priority), task.run_at.as_micros(), task.id),
        }
    }
}

/// How many tasks there are in a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCounts {
    /// By status; statuses without any are left out.
    pub counts: BTreeMap<Status, u64>,
    /// How many could be claimed now, were the queue not paused.
    pub claimable: u64,
    /// Since when the longest-waiting claimable task could have been.
    pub oldest_claimable: Option<Timestamp>,
}

/// Why a task is not moving.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Why {
    /// Where it stands.
    pub status: Status,
    /// All that holds it, or says that nothing does.
    pub reasons: Vec<Reason>,
}

/// One reason why a task is not moving.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reason {
    /// For programs.
    pub code: ReasonCode,
    /// For people.
    pub message: String,
    /// The tasks it is about: what it is blocked on, who has its key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskId>,
    /// The time it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// What kind of reason it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReasonCode {
    /// Nothing holds it; the next claim takes it in its turn.
    Ready,
    /// It is not due yet.
    Future,
    /// It failed or lost its lease and waits for its next try.
    BackingOff,
    /// Its queue is paused.
    QueuePaused,
    /// Another task has, or is first in line for, its exclusive key.
    KeyHeld,
    /// A dependency is not completed.
    Blocked,
    /// It waits for a signal, its children or a time.
    Waiting,
    /// It is parked in the backlog.
    Parked,
    /// Nobody asked its queue for work in the last five minutes.
    NobodyPolls,
    /// Its lease is over and nobody has taken it over yet.
    LeaseOver,
    /// It is running; its owner was heard of, and that is all that is known.
    NoProgress,
    /// It has ended.
    Terminal,
}

/// Where to read a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadFrom {
    /// Forward from the oldest event that is there.
    Oldest,
    /// Forward from the event after this number.
    After(u64),
    /// The events just before this number.
    Before(u64),
    /// The last events.
    Last,
}

/// Reads a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamRead {
    /// Which stream.
    pub stream: StreamName,
    /// Where.
    pub from: ReadFrom,
    /// How many at most.
    pub limit: u32,
}

impl StreamRead {
    /// All that is wrong with it.
    pub fn check(&self) -> Result<()> {
        let mut check = Check::default();
        check_page(&mut check, self.limit);
        check.finish()
    }
}

/// A part of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamPage {
    /// In the order of `seq`, whatever end was asked for.
    pub events: Vec<Event>,
    /// The number of the stream's last event.
    pub last_seq: u64,
    /// The oldest cursor that can be read after.
    pub oldest: u64,
}

/// Where to read a category.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CategoryFrom {
    /// From the oldest event that is there.
    Oldest,
    /// From the event after this cursor: one that a page gave, or the position of an event.
    After(CategoryCursor),
    /// After the newest event: answers no events, and the cursor to tail from.
    Latest,
}

/// Reads all streams of a category.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CategoryRead {
    /// Which category.
    pub category: String,
    /// Where.
    pub from: CategoryFrom,
    /// How many at most.
    pub limit: u32,
}

impl CategoryRead {
    /// All that is wrong with it.
    pub fn check(&self) -> Result<()> {
        let mut check = Check::default();
        check.name("category", &self.category);
        if let CategoryFrom::After(cursor) = &self.from {
            check.that(cursor.position.is_plausible(), "after", || "is not a cursor of a category".into());
        }
        check_page(&mut check, self.limit);
        check.finish()
    }
}

/// A part of a category.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CategoryPage {
    /// In the order of `position`.
    pub events: Vec<Event>,
    /// Reads on from here.
    pub cursor: CategoryCursor,
}

/// A place in a category. Beside the position it holds how often the category had been trimmed when it was
/// given, so that a reader is told of events that were trimmed before it got to them, and of no others.
/// Written `position~trims`; the plain position of an event is a cursor too, and a strict one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct CategoryCursor {
    /// After this position.
    pub position: Position,
    /// How often the category had been trimmed; 0 if that is not known.
    pub trims: u64,
}

impl From<Position> for CategoryCursor {
    fn from(position: Position) -> Self {
        Self { position, trims: 0 }
    }
}

impl From<String> for CategoryCursor {
    fn from(text: String) -> Self {
        let known = text.rsplit_once('~').and_then(|(position, trims)| Some((position, trims.parse().ok()?)));
        match known {
            Some((position, trims)) => Self { position: Position(position.to_owned()), trims },
            None => Position(text).into(),
        }
    }
}

impl From<CategoryCursor> for String {
    fn from(cursor: CategoryCursor) -> Self {
        cursor.to_string()
    }
}

impl std::fmt::Display for CategoryCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.trims {
            0 => self.position.fmt(f),
            trims => write!(f, "{}~{trims}", self.position),
        }
    }
}

/// Lists by a prefix of the key: streams of a category, entries, locks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeyList {
    /// Only keys that begin with this.
    pub prefix: String,
    /// How many at most; 50 if left out.
    pub limit: u32,
    /// Where the last page ended.
    pub cursor: Option<String>,
}

impl Default for KeyList {
    fn default() -> Self {
        Self { prefix: String::new(), limit: fifty(), cursor: None }
    }
}

impl KeyList {
    /// All that is wrong with it.
    pub fn check(&self) -> Result<()> {
        let mut check = Check::default();
        check_page(&mut check, self.limit);
        check.finish()?;
        self.place().map(|_| ())
    }

    /// The last key of the last page.
    pub fn place(&self) -> Result<Option<String>> {
        self.cursor.as_deref().map(read_cursor).transpose()
    }
}

/// Lists documents of a kind by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DocumentList {
    /// Which kind.
    #[serde(skip)]
    pub kind: String,
    /// Only names that begin with this.
    #[serde(default)]
    pub prefix: String,
    /// With all of these labels.
    #[serde(default)]
    pub labels: Labels,
    /// Backwards.
    #[serde(default)]
    pub descending: bool,
    /// How many at most; 50 if left out.
    #[serde(default = "fifty")]
    pub limit: u32,
    /// Where the last page ended.
    #[serde(default)]
    pub cursor: Option<String>,
}

impl DocumentList {
    /// The documents of a kind.
    pub fn new(kind: impl Into<String>) -> Self {
        let (prefix, labels, cursor) = (String::new(), Labels::new(), None);
        Self { kind: kind.into(), prefix, labels, descending: false, limit: fifty(), cursor }
    }

    /// All that is wrong with it.
    pub fn check(&self) -> Result<()> {
        let mut check = Check::default();
        check.name("kind", &self.kind);
        check_page(&mut check, self.limit);
        check.labels(self.labels.iter().map(|(key, value)| (key, Some(value))));
        check.finish()?;
        self.place().map(|_| ())
    }

    /// The last name of the last page.
    pub fn place(&self) -> Result<Option<String>> {
        self.cursor.as_deref().map(read_cursor).transpose()
    }
}

/// How exactly it is known when someone last asked a queue for work.
pub const POLL_PRECISION: Seconds = Seconds::new(10);

/// How long a poller counts as asking for work.
pub const POLLER_MEMORY: Seconds = Seconds::new(300);
