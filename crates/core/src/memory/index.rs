//! The index over tasks: one sorted set of places, so that a lookup reads a range of it.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Included};

use crate::clock::Timestamp;
use crate::model::TaskId;
use crate::plan::{Place, TaskSet};
use crate::row::{TaskRow, Turn};
use crate::status::Status;

/// A place where a task is found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Entry {
    Ready(String, Place),
    Keyed(String, TaskId),
    InLine(String, Place),
    Timer(String, Timestamp, TaskId),
    Lease(String, Timestamp, TaskId),
    Claimed(String, String, TaskId),
    Dependency(TaskId, TaskId),
    Child(TaskId, TaskId),
    Finished(Timestamp, TaskId),
    IdempotencyKey(String, TaskId),
    ChildKey(TaskId, String, TaskId),
}

/// Where tasks are found.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: BTreeSet<Entry>,
    queues: BTreeSet<String>,
}

const FIRST: TaskId = TaskId(uuid::Uuid::nil());
const LAST: TaskId = TaskId(uuid::Uuid::max());
const LOW: Place = (i64::MIN, i64::MIN, FIRST);
const HIGH: Place = (i64::MAX, i64::MAX, LAST);
const EARLY: Timestamp = Timestamp::from_micros(i64::MIN);
const LATE: Timestamp = Timestamp::from_micros(i64::MAX);

impl Index {
    /// Moves a task to where it is found now.
    pub(super) fn change(&mut self, before: Option<&TaskRow>, after: Option<&TaskRow>) {
        before.into_iter().flat_map(entries).for_each(|entry| {
            self.entries.remove(&entry);
        });
        if let Some(row) = after {
            self.queues.insert(row.task.queue.clone());
            self.entries.extend(entries(row));
        }
    }

    pub(super) fn by_idempotency_key(&self, key: &str) -> Option<TaskId> {
        let key = key.to_owned();
        self.between(Entry::IdempotencyKey(key.clone(), FIRST), Entry::IdempotencyKey(key, LAST)).next()
    }

    pub(super) fn by_child_key(&self, parent: TaskId, key: &str) -> Option<TaskId> {
        let key = key.to_owned();
        self.between(Entry::ChildKey(parent, key.clone(), FIRST), Entry::ChildKey(parent, key, LAST)).next()
    }

    /// Tasks that may be in a set: all that are, in the set's order within each range.
    pub(super) fn ranges<'a>(
        &'a self,
        set: &TaskSet,
        now: Timestamp,
    ) -> Vec<Box<dyn Iterator<Item = TaskId> + 'a>> {
        match set {
            TaskSet::Ready { queues } => {
                self.each(&**queues, |queue| (Entry::Ready(queue.clone(), LOW), Entry::Ready(queue, HIGH)))
            }
            TaskSet::Due { queues } => self.each(self.queues_of(queues.as_deref()), |queue| {
                (Entry::Timer(queue.clone(), EARLY, FIRST), Entry::Timer(queue, now, LAST))
            }),
            TaskSet::LeaseOver { queues } => self.each(self.queues_of(queues.as_deref()), |queue| {
                (Entry::Lease(queue.clone(), EARLY, FIRST), Entry::Lease(queue, now, LAST))
            }),
            TaskSet::Upcoming { queues } => {
                let mut ranges = self.each(&**queues, |queue| {
                    (Entry::Timer(queue.clone(), now, LAST), Entry::Timer(queue, LATE, LAST))
                });
                ranges.extend(self.each(&**queues, |queue| {
                    (Entry::Lease(queue.clone(), now, LAST), Entry::Lease(queue, LATE, LAST))
                }));
                ranges
            }
            TaskSet::Claimed { owner, key } => {
                let entry = |id| Entry::Claimed(owner.clone(), key.clone(), id);
                self.one(entry(FIRST), entry(LAST))
            }
            TaskSet::Dependents { of, .. }
            | TaskSet::LiveDependents { of }
            | TaskSet::FailedBy { of, .. } => {
                self.one(Entry::Dependency(*of, FIRST), Entry::Dependency(*of, LAST))
            }
            TaskSet::Children { of, .. } => self.one(Entry::Child(*of, FIRST), Entry::Child(*of, LAST)),
            TaskSet::Contenders { key, .. } => {
                self.one(Entry::InLine(key.clone(), LOW), Entry::InLine(key.clone(), HIGH))
            }
            TaskSet::Keyed { queue, .. } => {
                self.one(Entry::Keyed(queue.clone(), FIRST), Entry::Keyed(queue.clone(), LAST))
            }
            TaskSet::Retired { .. } => self.one(Entry::Finished(EARLY, FIRST), Entry::Finished(LATE, LAST)),
        }
    }

    fn queues_of<'a>(&'a self, queues: Option<&'a [String]>) -> Vec<&'a String> {
        queues.map_or_else(|| self.queues.iter().collect(), |queues| queues.iter().collect())
    }

    fn each<'a, 'q>(
        &'a self,
        queues: impl IntoIterator<Item = &'q String>,
        range: impl Fn(String) -> (Entry, Entry),
    ) -> Vec<Box<dyn Iterator<Item = TaskId> + 'a>> {
        let ranges = queues.into_iter().map(|queue| range(queue.clone()));
        ranges.flat_map(|(first, last)| self.one(first, last)).collect()
    }

    fn one(&self, first: Entry, last: Entry) -> Vec<Box<dyn Iterator<Item = TaskId> + '_>> {
        vec![Box::new(self.between(first, last))]
    }

    fn between(&self, first: Entry, last: Entry) -> impl Iterator<Item = TaskId> + '_ {
        let range = if first < last {
            (Included(first), Included(last))
        } else {
            (Excluded(last.clone()), Included(last))
        };
        self.entries.range(range).map(Entry::id)
    }
}

impl Entry {
    fn id(&self) -> TaskId {
        match self {
            Self::Ready(_, (_, _, id))
            | Self::InLine(_, (_, _, id))
            | Self::Keyed(_, id)
            | Self::Timer(_, _, id)
            | Self::Lease(_, _, id)
            | Self::Claimed(_, _, id)
            | Self::Dependency(_, id)
            | Self::Child(_, id)
            | Self::Finished(_, id)
            | Self::IdempotencyKey(_, id)
            | Self::ChildKey(_, _, id) => *id,
        }
    }
}

/// Where a task is found.
fn entries(row: &TaskRow) -> Vec<Entry> {
    let task = &row.task;
    let (id, queue) = (task.id, || task.queue.clone());
    let place = (i64::from(task.priority), task.run_at.as_micros(), id);
    let mut entries = Vec::new();
    if row.turn == Turn::Ready {
        entries.push(Entry::Ready(queue(), place));
    }
    if let (Turn::Ready | Turn::InLine, Some(key)) = (row.turn, &task.exclusive_key) {
        entries.push(Entry::Keyed(queue(), id));
        entries.push(Entry::InLine(key.clone(), place));
    }
    entries.extend(row.timer().map(|at| Entry::Timer(queue(), at, id)));
    entries.extend(row.lease_expiry().map(|at| Entry::Lease(queue(), at, id)));
    if let (Some(key), Some(lease)) = (&row.claim_key, &task.lease) {
        entries.push(Entry::Claimed(lease.owner.clone(), key.clone(), id));
    }
    entries.extend(task.depends_on.iter().map(|on| Entry::Dependency(*on, id)));
    entries.extend(task.parent.map(|parent| Entry::Child(parent, id)));
    entries.extend(task.finished_at.map(|at| Entry::Finished(at, id)));
    entries.extend(task.idempotency_key.clone().map(|key| Entry::IdempotencyKey(key, id)));
    entries.extend(
        task.parent.zip(task.child_key.clone()).map(|(parent, key)| Entry::ChildKey(parent, key, id)),
    );
    debug_assert!(task.status != Status::Running || row.turn == Turn::Off);
    entries
}
