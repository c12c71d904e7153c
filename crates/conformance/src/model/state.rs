//! What there is in a namespace, and the questions that rules ask about it. Everything that can be counted
//! is counted when asked.

use std::collections::{BTreeMap, BTreeSet};

use statehold_core::command::{Reply, TaskCreate};
use statehold_core::model::{Document, Entry, Event, Position, StreamName, Task, TaskId, Token};
use statehold_core::row::{
    AnswerKey, Cursor, DeliveryKey, DocumentKey, GroupKey, Holder, RequestHash, Signal,
};
use statehold_core::{Error, Result, Seconds, Status, Timestamp};

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) tasks: BTreeMap<TaskId, Record>,
    /// Who is first in line for a key. It depends on what happened before, so it cannot be computed.
    pub(super) nominees: BTreeMap<String, TaskId>,
    pub(super) queues: BTreeMap<String, Queue>,
    pub(super) streams: BTreeMap<StreamName, Stream>,
    /// Every time that something of a category was trimmed, the highest position that was.
    pub(super) trims: BTreeMap<String, Vec<Position>>,
    pub(super) unknown_marks: BTreeSet<String>,
    pub(super) groups: BTreeMap<GroupKey, Group>,
    pub(super) deliveries: BTreeMap<DeliveryKey, Delivery>,
    pub(super) documents: BTreeMap<DocumentKey, Document>,
    pub(super) floors: BTreeMap<String, u64>,
    pub(super) entries: BTreeMap<String, Entry>,
    pub(super) locks: BTreeMap<String, LockState>,
    pub(super) answers: BTreeMap<AnswerKey, Answer>,
}

/// A task and what its caller does not see.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) task: Task,
    /// What two creates must have in common to be the same.
    pub(super) request: TaskCreate,
    pub(super) last_token: Token,
    /// The length of the lease as given at the start.
    pub(super) lease_seconds: Option<Seconds>,
    pub(super) claim_key: Option<String>,
    pub(super) signals: Vec<Signal>,
    /// It is pending and nobody has noticed yet that it is due.
    pub(super) later: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    /// What `queue.set` said last, if it ever did.
    pub(super) set: Option<bool>,
    pub(super) polls: BTreeMap<String, Timestamp>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Stream {
    pub(super) last: u64,
    pub(super) oldest: u64,
    pub(super) events: Vec<Event>,
}

/// How far a group is.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// None until a read fixes it at the oldest event.
    pub(super) cursor: Option<Cursor>,
    /// How often its category had been trimmed when it last read.
    pub(super) trims_seen: usize,
    /// The last token of any of its deliveries.
    pub(super) token: Token,
}

#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) stream: StreamName,
    pub(super) seq: u64,
    pub(super) consumer: String,
    pub(super) times: u32,
    pub(super) token: Token,
    pub(super) out: bool,
    pub(super) visible_at: Timestamp,
    pub(super) read_key: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct LockState {
    pub(super) token: Token,
    pub(super) holder: Option<Holder>,
    pub(super) forget_at: Timestamp,
}

#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) request: RequestHash,
    pub(super) replies: Vec<Reply>,
    pub(super) expires_at: Timestamp,
}

impl Record {
    /// Pending, due and not expired. Once noticed as due, it stays so when the clock steps back.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        let due = self.task.run_at <= now || !self.later;
        self.task.status == Status::Pending && due && !self.is_expired(now)
    }

    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        self.task.expires_at.is_some_and(|at| at <= now)
    }

    /// When the attempt has run too long.
    pub(super) fn attempt_deadline(&self) -> Option<Timestamp> {
        let lease = self.task.lease.as_ref()?;
        self.task.timeout_seconds.map(|timeout| lease.started_at + timeout)
    }

    /// When the lease is over, or was.
    pub(super) fn lease_end(&self) -> Option<Timestamp> {
        let expires_at = self.task.lease.as_ref()?.expires_at;
        expires_at.into_iter().chain(self.attempt_deadline()).min()
    }

    pub(super) fn is_lease_over(&self, now: Timestamp) -> bool {
        self.lease_end().is_some_and(|end| end <= now)
    }

    pub(super) fn claim_order(&self) -> (i16, Timestamp, TaskId) {
        (self.task.priority, self.task.run_at, self.task.id)
    }

    pub(super) fn is_open(&self) -> bool {
        !self.task.status.is_terminal()
    }

    pub(super) fn has_key(&self, key: &str) -> bool {
        self.task.exclusive_key.as_deref() == Some(key)
    }

    /// Whether the end of `id` failed it.
    pub(super) fn failed_by(&self) -> Option<TaskId> {
        let error = self.task.error.as_ref().filter(|_| self.task.status == Status::Failed)?;
        let details = error.details.as_ref().filter(|_| error.code.as_deref() == Some("dependency"))?;
        let details: serde_json::Value = details.to().ok()?;
        details.get("task")?.as_str()?.parse().ok()
    }
}

impl State {
    pub(super) fn record(&self, id: TaskId) -> Result<&Record> {
        self.tasks.get(&id).ok_or_else(|| Error::not_found("task", id))
    }

    pub(super) fn status(&self, id: TaskId) -> Option<Status> {
        self.tasks.get(&id).map(|record| record.task.status)
    }

    pub(super) fn children(&self, id: TaskId) -> impl Iterator<Item = &Record> {
        self.tasks.values().filter(move |record| record.task.parent == Some(id))
    }

    pub(super) fn open_children(&self, id: TaskId) -> usize {
        self.children(id).filter(|record| record.is_open()).count()
    }

    pub(super) fn descendants(&self, id: TaskId) -> BTreeSet<TaskId> {
        let mut found = BTreeSet::new();
        let mut next = vec![id];
        while let Some(id) = next.pop() {
            let new: Vec<_> = self.children(id).map(|child| child.task.id).collect();
            next.extend(new.into_iter().filter(|child| found.insert(*child)));
        }
        found
    }

    /// The task and its parents, as far as they are there.
    pub(super) fn lineage(&self, id: TaskId) -> Vec<TaskId> {
        let mut found = Vec::new();
        let mut next = Some(id);
        while let Some(record) = next.and_then(|id| self.tasks.get(&id)) {
            found.push(record.task.id);
            next = record.task.parent;
        }
        found
    }

    pub(super) fn dependents(&self, id: TaskId) -> impl Iterator<Item = &Record> {
        self.tasks.values().filter(move |record| record.task.depends_on.contains(&id))
    }

    /// The first dependency that failed or was cancelled.
    pub(super) fn failed_dependency(&self, depends_on: &[TaskId]) -> Option<TaskId> {
        let failed = |id: &TaskId| matches!(self.status(*id), Some(Status::Failed | Status::Cancelled));
        depends_on.iter().copied().find(failed)
    }

    /// Whether all dependencies are completed; one that was purged is not waited for.
    pub(super) fn is_unblocked(&self, depends_on: &[TaskId]) -> bool {
        depends_on.iter().all(|id| matches!(self.status(*id), None | Some(Status::Completed)))
    }

    pub(super) fn is_paused(&self, queue: &str) -> bool {
        self.queues.get(queue).and_then(|queue| queue.set).unwrap_or(false)
    }
}
