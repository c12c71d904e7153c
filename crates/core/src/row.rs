//! Rows: what a store keeps. A row is what the caller sees plus the bookkeeping that the plan needs.
//! Everything a plan can read or write is one of the types here; events are only ever appended.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::clock::{Seconds, Timestamp};
use crate::error::Result;
use crate::json::Json;
use crate::model::{Document, Entry, Position, Source, StreamName, Task, TaskId, Token};
use crate::session::SessionId;
use crate::status::Status;

/// A kind of row, with the key that finds it within its namespace.
pub trait Record: Clone + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// What finds it. Keys compare as bytes; stores take locks in this order.
    type Key: Clone + Eq + Ord + Hash + fmt::Debug + Send + Sync + 'static;

    /// Its key.
    fn key(&self) -> Self::Key;

    /// About how many bytes it takes in memory.
    fn weight(&self) -> usize;
}

/// The hash of a request in canonical form: equal requests have equal hashes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestHash([u8; 32]);

impl RequestHash {
    /// What a row has that was made without a request, such as by a function in the store.
    pub const UNKNOWN: Self = Self([0; 32]);

    /// The hash of a request.
    pub fn of<T: Serialize>(request: &T) -> Self {
        Self(*blake3::hash(Json::canonical_of(request).as_bytes()).as_bytes())
    }

    /// The bytes, for stores that keep them as such.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The hash that [`as_bytes`](Self::as_bytes) gave.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for RequestHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl Serialize for RequestHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl<'de> Deserialize<'de> for RequestHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let hash = blake3::Hash::from_hex(text).map_err(de::Error::custom)?;
        Ok(Self(*hash.as_bytes()))
    }
}

/// Where a stream ends and where it begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The number of the last event ever appended.
    pub last: u64,
    /// The number of the last event that was trimmed away.
    pub oldest: u64,
    /// When the first event that is still there was written.
    pub oldest_at: Option<Timestamp>,
}

/// A task with its bookkeeping. The head of its stream is here, so that a transition loads one row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRow {
    /// What the caller sees.
    pub task: Task,
    /// The request that created it.
    pub request: RequestHash,
    /// The last token given, also after the lease.
    pub last_token: Token,
    /// The head of `task/<id>`.
    pub head: Head,
    /// Whether it can be claimed.
    pub turn: Turn,
    /// The dependencies that are not completed, as of the last time it was blocked.
    pub open_dependencies: Vec<TaskId>,
    /// The dependency whose end failed it.
    pub failed_by: Option<TaskId>,
    /// How many children it ever had.
    pub children: u32,
    /// How many of them are not terminal.
    pub open_children: u32,
    /// How many levels of parents it has.
    pub depth: u16,
    /// The length of its lease as given at the start.
    pub lease_seconds: Option<Seconds>,
    /// The key of the claim that gave the lease.
    pub claim_key: Option<String>,
}

/// Whether a task can be claimed. Kept, not computed: time alone changes nothing until a plan looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Turn {
    /// It is not pending.
    #[default]
    Off,
    /// It is pending and not due.
    Later,
    /// It is pending and due, but another task has, or is first in line for, its exclusive key.
    InLine,
    /// It is in the ready index.
    Ready,
}

impl TaskRow {
    /// When the lease is over, while running.
    pub fn lease_expiry(&self) -> Option<Timestamp> {
        self.task.lease.as_ref().and_then(|lease| lease.expires_at)
    }

    /// When something happens to it by itself, the end of its lease apart (which moves with every
    /// renewal and so wants no index).
    pub fn timer(&self) -> Option<Timestamp> {
        let task = &self.task;
        let own = match task.status {
            Status::Pending => (self.turn == Turn::Later).then_some(task.run_at),
            Status::Running => return self.attempt_deadline(),
            Status::Waiting => {
                let waiting = task.waiting_for.as_ref();
                let until = waiting.and_then(|waiting| match waiting.on {
                    crate::model::WaitFor::Until(until) => Some(until),
                    _ => None,
                });
                earliest(until, waiting.and_then(|waiting| waiting.deadline))
            }
            Status::Blocked => None,
            Status::Backlog | Status::Completed | Status::Failed | Status::Cancelled => return None,
        };
        earliest(own, task.expires_at)
    }

    /// When the attempt has run too long.
    pub fn attempt_deadline(&self) -> Option<Timestamp> {
        let lease = self.task.lease.as_ref()?;
        self.task.timeout_seconds.map(|timeout| lease.started_at + timeout)
    }

    /// When its owner loses it: at the end of the lease or of the attempt, whichever is first.
    pub fn lease_end(&self) -> Option<Timestamp> {
        earliest(self.lease_expiry(), self.attempt_deadline())
    }

    /// When something happens to it by itself, the end of its lease included.
    pub fn alarm(&self) -> Option<Timestamp> {
        earliest(self.timer(), self.lease_expiry())
    }

    /// The order in which claims take tasks.
    pub fn claim_order(&self) -> (i16, Timestamp, TaskId) {
        (self.task.priority, self.task.run_at, self.task.id)
    }
}

/// The earlier of two instants that may be missing.
pub(crate) fn earliest(one: Option<Timestamp>, two: Option<Timestamp>) -> Option<Timestamp> {
    match (one, two) {
        (Some(one), Some(two)) => Some(one.min(two)),
        (one, two) => one.or(two),
    }
}

/// The signals that a task keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalsRow {
    /// Which task.
    pub task: TaskId,
    /// First in, first out per name.
    pub kept: Vec<Signal>,
}

/// A signal that no suspend has consumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// Its name.
    pub name: String,
    /// What it carries.
    #[serde(default, deserialize_with = "crate::model::given", skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
}

/// Who has an exclusive key. There while any non-terminal task has the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExclusiveRow {
    /// The key.
    pub key: String,
    /// How many non-terminal tasks have it.
    pub open: u32,
    /// The one that runs.
    pub holder: Option<TaskId>,
    /// The one that is ready, while none runs.
    pub nominee: Option<TaskId>,
}

/// The head of a stream that is not a task's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamRow {
    /// Which stream.
    pub stream: StreamName,
    /// Its head.
    pub head: Head,
}

/// What a new document of a kind starts above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FloorRow {
    /// Which kind.
    pub kind: String,
    /// The highest revision that was deleted.
    pub revision: u64,
}

/// A lock, held or remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRow {
    /// What is locked.
    pub key: String,
    /// The last token given.
    pub token: Token,
    /// Who holds it.
    pub holder: Option<Holder>,
    /// When the row may go: 24 hours after the time it was taken for, released or not, so that tokens keep growing.
    /// A release leaves it as it is, and need not touch what finds rows by it.
    pub forget_at: Timestamp,
}

/// Who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Who.
    pub owner: String,
    /// Since when.
    pub acquired_at: Timestamp,
    /// Until when.
    pub expires_at: Timestamp,
    /// The session that it ends with. A store whose session has ended shows the lock as free. It means nothing outside
    /// of the store, so no dump has it.
    #[serde(skip)]
    pub session: Option<SessionId>,
}

/// A queue's switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueRow {
    /// Which queue.
    pub queue: String,
    /// Whether it gives nothing.
    pub paused: bool,
}

/// What finds a poller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PollerKey {
    /// Which queue.
    pub queue: String,
    /// Who asked it for work.
    pub owner: String,
}

/// Someone who asked a queue for work. A row of its own, so that the queue's row, which every claim reads,
/// is not written by every worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollerRow {
    /// Queue and owner.
    pub key: PollerKey,
    /// When last, to about ten seconds.
    pub at: Timestamp,
}

/// A group and what it reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupKey {
    /// The group.
    pub group: String,
    /// What it reads.
    pub source: Source,
}

/// How far a group has read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRow {
    /// Which group.
    pub group: GroupKey,
    /// What the next read starts after; the oldest event there is if none.
    pub cursor: Option<Cursor>,
    /// How often its category had been trimmed when it last read.
    pub trims_seen: u64,
    /// The last token of any of its deliveries, so that none repeats after a seek.
    pub token: Token,
}

/// A place in a stream or a category.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cursor {
    /// After this sequence number of a stream.
    Seq(u64),
    /// After this position of a category.
    Position(Position),
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seq(seq) => seq.fmt(f),
            Self::Position(position) => position.fmt(f),
        }
    }
}

/// What was trimmed away from a category: for each time that something was, the highest position, as long as no
/// later time removed a higher one. Enough to tell a reader whether it missed anything since it last looked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Trims(pub Vec<TrimMark>);

/// One time that something was trimmed away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrimMark {
    /// The how manieth time it was.
    pub number: u64,
    /// The highest position that went.
    pub position: Position,
}

impl Trims {
    /// Notes one more time.
    pub fn add(&mut self, position: Position) {
        let number = self.count() + 1;
        self.0.retain(|mark| mark.position > position);
        self.0.push(TrimMark { number, position });
    }

    /// How often something was trimmed away.
    pub fn count(&self) -> u64 {
        self.0.last().map_or(0, |mark| mark.number)
    }

    /// The oldest position that can be read after whatever was seen before.
    pub fn oldest(&self) -> Position {
        self.0.first().map(|mark| mark.position.clone()).unwrap_or_default()
    }

    /// Whether something after `position` was trimmed away since that had happened `seen` times.
    pub fn missed(&self, position: &Position, seen: u64) -> bool {
        self.0.iter().any(|mark| mark.number > seen && mark.position > *position)
    }
}

/// What finds a delivery.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeliveryKey {
    /// Which group.
    pub group: GroupKey,
    /// Which event.
    pub position: Position,
}

/// An event that a consumer has not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryRow {
    /// Group and event.
    pub key: DeliveryKey,
    /// The event's stream.
    pub stream: StreamName,
    /// The event's sequence number.
    pub seq: u64,
    /// Who got it last.
    pub consumer: String,
    /// How often it was delivered.
    pub delivery: u32,
    /// The last token given.
    pub token: Token,
    /// Whether that token is still good; a nack spends it.
    pub out: bool,
    /// When someone else gets it.
    pub visible_at: Timestamp,
    /// The key of the read that delivered it.
    pub read_key: Option<String>,
}

/// What finds a stored answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AnswerKey {
    /// Who asked; empty for nobody in particular.
    pub actor: String,
    /// The batch's key.
    pub key: String,
}

/// The stored answer of a batch with a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerRow {
    /// Actor and key.
    pub key: AnswerKey,
    /// The request.
    pub request: RequestHash,
    /// The replies, a JSON array.
    pub replies: Json,
    /// When it is forgotten.
    pub expires_at: Timestamp,
}

/// Derived work that was too much for one commit. It says what to judge again, not what to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Chore {
    /// The dependents of a task that ended.
    Dependents(TaskId),
    /// The open children of a task that was cancelled with its children.
    CancelChildren {
        /// Whose children.
        parent: TaskId,
        /// Without waiting for their owners.
        force: bool,
    },
    /// The tasks that failed because of a task that was retried with its dependents.
    Revive(TaskId),
    /// The tasks of a queue that stand in line for exclusive keys, after it was paused or not.
    QueueKeys(String),
}

/// A chore and how far it got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChoreRow {
    /// What to judge.
    pub chore: Chore,
    /// The last task that was judged, in the order of ids.
    pub after: Option<TaskId>,
}

/// What finds a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DocumentKey {
    /// What kind.
    pub kind: String,
    /// Its name within the kind.
    pub name: String,
}

/// About how many bytes a row takes beside its bodies.
const LIGHT: usize = 256;

fn body(json: Option<&Json>) -> usize {
    json.map_or(0, Json::size)
}

macro_rules! records {
    ($($row:ty, $key:ty, |$this:ident| $value:expr, $bodies:expr;)*) => {
        $(impl Record for $row {
            type Key = $key;
            fn key(&self) -> $key { let $this = self; $value }
            fn weight(&self) -> usize { let $this = self; let _ = $this; LIGHT + $bodies }
        })*
    };
}

records! {
    TaskRow, TaskId, |row| row.task.id, {
        let task = &row.task;
        let bodies = [&task.input, &task.output, &task.metadata, &task.progress];
        size_of::<Self>() + bodies.iter().map(|json| body(json.as_ref())).sum::<usize>()
    };
    SignalsRow, TaskId, |row| row.task, row.kept.iter().map(|signal| body(signal.data.as_ref())).sum::<usize>();
    ExclusiveRow, String, |row| row.key.clone(), 0;
    StreamRow, StreamName, |row| row.stream.clone(), 0;
    Document, DocumentKey, |row| DocumentKey { kind: row.kind.clone(), name: row.name.clone() },
        body(row.body.as_ref()) + row.content.as_ref().map_or(0, |content| content.data.len());
    FloorRow, String, |row| row.kind.clone(), 0;
    Entry, String, |row| row.key.clone(), row.value.size();
    LockRow, String, |row| row.key.clone(), 0;
    QueueRow, String, |row| row.queue.clone(), 0;
    PollerRow, PollerKey, |row| row.key.clone(), 0;
    GroupRow, GroupKey, |row| row.group.clone(), 0;
    DeliveryRow, DeliveryKey, |row| row.key.clone(), 0;
    AnswerRow, AnswerKey, |row| row.key.clone(), row.replies.size();
    ChoreRow, Chore, |row| row.chore.clone(), 0;
}

/// A row that changed: what the plan saw and what it leaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Change<R: Record> {
    /// Which row.
    pub key: R::Key,
    /// As it was stored when the plan read it.
    pub before: Option<Arc<R>>,
    /// As it is to be stored, or gone.
    pub after: Option<Arc<R>>,
}
