//! What a plan asks for that is not a row by its key: bounded sets, unique keys, parts of streams. Each
//! set says by itself which rows are in it and in which order, so that a store's index and the changes of
//! the same commit can be put together.

use std::hash::Hash;
use std::sync::Arc;

use crate::call::RetentionCursor;
use crate::clock::Timestamp;
use crate::model::{Event, Position, Source, StreamName, TaskId, WaitFor};
use crate::policy::StreamRetention;
use crate::row::{
    AnswerKey, Chore, Cursor, DeliveryKey, DeliveryRow, DocumentKey, GroupKey, PollerKey, TaskRow, Trims,
    Turn,
};
use crate::status::Status;

/// Something a plan asks a store.
pub trait Lookup: Clone + Eq + Ord + Hash + 'static {
    /// What the store answers.
    type Answer: Clone + std::fmt::Debug + 'static;
}

/// The task with an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Idempotency(pub String);

impl Lookup for Idempotency {
    type Answer = Option<TaskId>;
}

/// The child of a task with a child key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Child {
    /// Whose child.
    pub parent: TaskId,
    /// Which.
    pub key: String,
}

impl Lookup for Child {
    type Answer = Option<TaskId>;
}

/// The first keys of a set, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<K> {
    /// As many as were asked for, or more, unless these are all.
    pub keys: Vec<K>,
    /// Whether these are all.
    pub complete: bool,
}

impl<K> Found<K> {
    /// The first `limit` of `keys`, which may be more to tell that there are more.
    pub fn first(mut keys: Vec<K>, limit: usize) -> Self {
        let complete = keys.len() <= limit;
        keys.truncate(limit);
        Self { keys, complete }
    }
}

/// The place of a task in a set: two numbers, then the id.
pub type Place = (i64, i64, TaskId);

/// A set of tasks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskSet {
    /// Ready and not expired, by claim order.
    Ready {
        /// In one of these queues.
        queues: Arc<[String]>,
    },
    /// With a timer that has come, by timer.
    Due {
        /// In one of these queues, or any.
        queues: Option<Arc<[String]>>,
    },
    /// With a lease that is over, by its end.
    LeaseOver {
        /// In one of these queues, or any.
        queues: Option<Arc<[String]>>,
    },
    /// With something to come by itself, by that time.
    Upcoming {
        /// In one of these queues.
        queues: Arc<[String]>,
    },
    /// Leased by a claim with a key.
    Claimed {
        /// To whom.
        owner: String,
        /// The claim's key.
        key: String,
    },
    /// Blocked on a task, by id.
    Dependents {
        /// Which task.
        of: TaskId,
        /// After this one.
        after: Option<TaskId>,
    },
    /// Not terminal, and named a task as a dependency.
    LiveDependents {
        /// Which task.
        of: TaskId,
    },
    /// Failed because a task did, by id.
    FailedBy {
        /// Which task.
        of: TaskId,
        /// After this one.
        after: Option<TaskId>,
    },
    /// Children, ended or not, by id.
    Children {
        /// Whose.
        of: TaskId,
        /// After this one.
        after: Option<TaskId>,
    },
    /// In line for an exclusive key and not expired, by claim order.
    Contenders {
        /// The key.
        key: String,
        /// Not in these queues.
        skip: Vec<String>,
    },
    /// Pending and due in a queue, with an exclusive key, by id.
    Keyed {
        /// Which queue.
        queue: String,
        /// After this one.
        after: Option<TaskId>,
    },
    /// Ended no later than a time that depends on the status, by their end.
    Retired {
        /// Status and time.
        rules: Vec<(Status, Timestamp)>,
        /// After this one.
        after: Option<RetentionCursor>,
    },
}

impl TaskSet {
    /// Whether a task is in the set at `now`.
    pub fn contains(&self, row: &TaskRow, now: Timestamp) -> bool {
        let task = &row.task;
        let beyond = |after: &Option<TaskId>| after.is_none_or(|after| task.id > after);
        let within = |queues: &Option<Arc<[String]>>| queues.as_ref().is_none_or(|q| q.contains(&task.queue));
        let fresh = task.expires_at.is_none_or(|at| at > now);
        match self {
            Self::Ready { queues } => row.turn == Turn::Ready && queues.contains(&task.queue) && fresh,
            Self::Due { queues } => row.timer().is_some_and(|at| at <= now) && within(queues),
            Self::LeaseOver { queues } => row.lease_expiry().is_some_and(|at| at <= now) && within(queues),
            Self::Upcoming { queues } => {
                row.alarm().is_some_and(|at| at > now) && queues.contains(&task.queue)
            }
            Self::Claimed { owner, key } => {
                row.claim_key.as_ref() == Some(key)
                    && task.lease.as_ref().is_some_and(|lease| lease.owner == *owner)
            }
            Self::Dependents { of, after } => {
                task.status == Status::Blocked && row.open_dependencies.contains(of) && beyond(after)
            }
            Self::LiveDependents { of } => !task.status.is_terminal() && task.depends_on.contains(of),
            Self::FailedBy { of, after } => row.failed_by == Some(*of) && beyond(after),
            Self::Children { of, after } => task.parent == Some(*of) && beyond(after),
            Self::Contenders { key, skip } => {
                row.turn == Turn::InLine
                    && task.exclusive_key.as_ref() == Some(key)
                    && !skip.contains(&task.queue)
                    && fresh
            }
            Self::Keyed { queue, after } => {
                matches!(row.turn, Turn::InLine | Turn::Ready)
                    && task.exclusive_key.is_some()
                    && task.queue == *queue
                    && beyond(after)
            }
            Self::Retired { rules, after } => task.finished_at.is_some_and(|finished_at| {
                let old =
                    rules.iter().any(|(status, before)| task.status == *status && finished_at <= *before);
                old && after.is_none_or(|after| RetentionCursor { finished_at, id: task.id } > after)
            }),
        }
    }

    /// Whether it is empty while no task depends on another.
    pub fn is_of_dependencies(&self) -> bool {
        matches!(self, Self::Dependents { .. } | Self::LiveDependents { .. } | Self::FailedBy { .. })
    }

    /// The place of a task in the set.
    pub fn place(&self, row: &TaskRow) -> Place {
        let id = row.task.id;
        let at = |time: Option<Timestamp>| (time.map_or(0, Timestamp::as_micros), 0, id);
        match self {
            Self::Ready { .. } | Self::Contenders { .. } | Self::Claimed { .. } => {
                (i64::from(row.task.priority), row.task.run_at.as_micros(), id)
            }
            Self::Due { .. } => at(row.timer()),
            Self::LeaseOver { .. } => at(row.lease_expiry()),
            Self::Upcoming { .. } => at(row.alarm()),
            Self::Retired { .. } => at(row.task.finished_at),
            Self::Dependents { .. }
            | Self::LiveDependents { .. }
            | Self::FailedBy { .. }
            | Self::Children { .. }
            | Self::Keyed { .. } => (0, 0, id),
        }
    }
}

/// The first tasks of a set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskSelect {
    /// Which set.
    pub set: TaskSet,
    /// How many at most.
    pub limit: usize,
}

impl Lookup for TaskSelect {
    type Answer = Found<TaskId>;
}

/// A set of deliveries of a group, by the time that they are visible.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeliverySet {
    /// Visible again.
    Visible(GroupKey),
    /// Out from a consumer's read with a key.
    Read {
        /// Which group.
        group: GroupKey,
        /// Whose.
        consumer: String,
        /// The read's key.
        key: String,
    },
    /// Not visible yet.
    Hidden(GroupKey),
}

impl DeliverySet {
    /// The group that it is about.
    pub fn group(&self) -> &GroupKey {
        match self {
            Self::Visible(group) | Self::Hidden(group) | Self::Read { group, .. } => group,
        }
    }

    /// Whether a delivery of the group is in the set at `now`.
    pub fn contains(&self, row: &DeliveryRow, now: Timestamp) -> bool {
        row.key.group == *self.group()
            && match self {
                Self::Visible(_) => row.visible_at <= now,
                Self::Hidden(_) => row.visible_at > now,
                Self::Read { consumer, key, .. } => {
                    row.out
                        && row.visible_at > now
                        && row.consumer == *consumer
                        && row.read_key.as_ref() == Some(key)
                }
            }
    }

    /// The place of a delivery in any of the sets.
    pub fn place(row: &DeliveryRow) -> (Timestamp, Position) {
        (row.visible_at, row.key.position.clone())
    }
}

/// The first deliveries of a set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliverySelect {
    /// Which set.
    pub set: DeliverySet,
    /// How many at most.
    pub limit: usize,
}

impl Lookup for DeliverySelect {
    type Answer = Found<DeliveryKey>;
}

/// Where a stream would be cut.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cut {
    /// Which stream.
    pub stream: StreamName,
    /// How.
    pub at: CutAt,
}

/// How a stream would be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CutAt {
    /// After this number.
    Seq(u64),
    /// Before the first event that is not older than this.
    Time(Timestamp),
}

/// Where a cut falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutPoint {
    /// The number of the last event before it; 0 if there is none.
    pub up_to: u64,
    /// When the first event after it was written, if there is one.
    pub oldest_at: Option<Timestamp>,
}

impl Lookup for Cut {
    type Answer = CutPoint;
}

/// Events that a group has not read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unread {
    /// What it reads.
    pub source: Source,
    /// After this cursor, or from the oldest event.
    pub after: Option<Cursor>,
    /// How many at most.
    pub limit: usize,
}

/// Committed events after a cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadEvents {
    /// In the order of the source.
    pub events: Vec<Arc<Event>>,
    /// The oldest number of a stream that can be read after; 0 for a category.
    pub oldest: u64,
    /// What was trimmed away from a category, read at the same instant as the events; empty for a stream.
    pub trims: Trims,
}

impl Lookup for Unread {
    type Answer = UnreadEvents;
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventAt {
    /// Of which stream.
    pub stream: StreamName,
    /// Which.
    pub seq: u64,
}

impl Lookup for EventAt {
    type Answer = Option<Arc<Event>>;
}

/// The position of the last event of a category, or the highest that was trimmed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Latest(pub String);

impl Lookup for Latest {
    type Answer = Position;
}

/// When a queue was last asked for work.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Polled(pub String);

impl Lookup for Polled {
    type Answer = Option<Timestamp>;
}

/// Streams of a category that hold more than they may, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Overgrown {
    /// Which category.
    pub category: String,
    /// What they may hold.
    pub keep: StreamRetention,
    /// How many at most.
    pub limit: usize,
}

impl Lookup for Overgrown {
    type Answer = Vec<StreamName>;
}

/// What has expired or is left over, up to so many of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expired {
    /// How many at most.
    pub limit: usize,
}

/// Keys of what has expired or is left over; their rows are to be loaded too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpiredKeys {
    /// Expired documents.
    pub documents: Vec<DocumentKey>,
    /// Expired entries.
    pub entries: Vec<String>,
    /// Locks to forget.
    pub locks: Vec<String>,
    /// Answers to forget.
    pub answers: Vec<AnswerKey>,
    /// Pollers that have not asked for a while.
    pub pollers: Vec<PollerKey>,
    /// Left-over derived work.
    pub chores: Vec<Chore>,
}

impl Lookup for Expired {
    type Answer = ExpiredKeys;
}

/// Whether a task waits for its children.
pub(super) fn waits_for_children(row: &TaskRow) -> bool {
    let waiting = row.task.waiting_for.as_ref();
    row.task.status == Status::Waiting
        && waiting.is_some_and(|waiting| matches!(waiting.on, WaitFor::Children(_)))
}
