//! Tasks: where they are found, the sets that plans ask for, counts and depths.

use std::collections::BTreeMap;
use std::sync::Arc;

use statehold_core::model::TaskId;
use statehold_core::plan::TaskSet;
use statehold_core::query::TaskCounts;
use statehold_core::row::{ExclusiveRow, SignalsRow, TaskRow, Turn};
use statehold_core::{Status, Timestamp};

use crate::connection::RowKey;
use crate::error::Result;
use crate::rows::Table;
use crate::space::{Bytes, Member, Range};
use crate::starts;

impl Table for TaskRow {
    const LETTER: u8 = b't';

    fn find(key: &TaskId, member: Member) -> Member {
        member.id(*key)
    }

    fn places(&self) -> Vec<Member> {
        let task = &self.task;
        let id = task.id;
        let in_turn = |member: Member| member.priority(task.priority).time(task.run_at).id(id);
        let mut places = vec![created(task.status.is_terminal()).time(task.created_at).id(id)];
        if self.turn == Turn::Ready {
            places.push(in_turn(ready(&task.queue)));
        }
        if let (Turn::Ready | Turn::InLine, Some(key)) = (self.turn, &task.exclusive_key) {
            places.push(keyed(&task.queue).id(id));
            places.push(in_turn(contending(key)));
        }
        places.extend(self.timer().map(|at| timer(&task.queue).time(at).id(id)));
        places.extend(self.lease_expiry().map(|at| lease(&task.queue).time(at).id(id)));
        if let (Some(key), Some(lease)) = (&self.claim_key, &task.lease) {
            places.push(claimed(&lease.owner, key).id(id));
        }
        places.extend(task.depends_on.iter().map(|on| dependent(*on).id(id)));
        places.extend(task.parent.map(|parent| child(parent).id(id)));
        places.extend(task.finished_at.map(|at| finished().time(at).id(id).bytes(task.queue.as_bytes())));
        places
    }

    fn write(&self, stored: &mut Bytes) -> Result<()> {
        starts::write(self, stored)
    }

    fn read(body: &[u8]) -> Result<Self> {
        starts::read(body)
    }

    fn alarms(&self) -> Vec<Timestamp> {
        [self.timer(), self.lease_end(), self.task.expires_at].into_iter().flatten().collect()
    }
}

impl Table for SignalsRow {
    const LETTER: u8 = b's';

    fn find(key: &TaskId, member: Member) -> Member {
        member.id(*key)
    }
}

impl Table for ExclusiveRow {
    const LETTER: u8 = b'x';

    fn find(key: &String, member: Member) -> Member {
        member.bytes(key.as_bytes())
    }
}

/// The keys of a task that no other has, each a key of the store with the task's id.
pub(crate) fn unique_keys(row: &TaskRow) -> Vec<Bytes> {
    let task = &row.task;
    let own = task.idempotency_key.as_ref().map(|key| idempotency(key));
    let child = task.parent.zip(task.child_key.as_ref()).map(|(parent, key)| child_key(parent, key));
    own.into_iter().chain(child).collect()
}

/// The key that leads to the task with an idempotency key.
pub(crate) fn idempotency(key: &str) -> Bytes {
    Member::new(b'i').bytes(key.as_bytes()).0
}

/// The key that leads to the child with a child key.
pub(crate) fn child_key(parent: TaskId, key: &str) -> Bytes {
    Member::new(b'u').id(parent).bytes(key.as_bytes()).0
}

/// Tasks by the time that they were created; those that have ended are apart.
pub(crate) fn created(ended: bool) -> Member {
    Member::new(b'B').bytes(&[u8::from(ended)])
}

/// Ready tasks of a queue, in their turn.
pub(crate) fn ready(queue: &str) -> Member {
    Member::new(b'R').name(queue)
}

/// Tasks of a queue whose timer is set.
pub(crate) fn timer(queue: &str) -> Member {
    Member::new(b'T').name(queue)
}

/// Children of a task.
pub(crate) fn child(parent: TaskId) -> Member {
    Member::new(b'C').id(parent)
}

/// Tasks that have ended, by their end; the queue stands after the id.
pub(crate) fn finished() -> Member {
    Member::new(b'F')
}

/// How a member that [`finished`] begins leads to its row.
const FINISHED_ROW: RowKey = RowKey::Of { letter: "t", first: 10, last: 25, rest: 1 << 30 };

fn keyed(queue: &str) -> Member {
    Member::new(b'J').name(queue)
}

fn contending(key: &str) -> Member {
    Member::new(b'X').name(key)
}

fn lease(queue: &str) -> Member {
    Member::new(b'L').name(queue)
}

fn claimed(owner: &str, key: &str) -> Member {
    Member::new(b'A').name(owner).name(key)
}

fn dependent(on: TaskId) -> Member {
    Member::new(b'D').id(on)
}

/// All tasks that depend on another.
pub(crate) fn all_dependents() -> Range {
    Range::of(&Member::new(b'D'))
}

/// Where the tasks of a set are found.
pub(crate) struct Places {
    pub(crate) ranges: Vec<Range>,
    pub(crate) row: RowKey,
    /// Whether a plan counts on it that nothing comes into the set before the commit.
    pub(crate) exact: bool,
}

/// Where the tasks of a set are found; `all` are the queues that have tasks.
pub(crate) fn places(set: &TaskSet, now: Timestamp, all: &[String]) -> Places {
    let of = |queues: &[String], range: &dyn Fn(&String) -> Range| queues.iter().map(range).collect();
    let some = |queues: &Option<Arc<[String]>>| queues.clone().unwrap_or_else(|| all.into());
    let due = |prefix: Member| Range::of(&prefix.clone()).up_to(&prefix.time(now));
    let coming = |prefix: Member| Range::of(&prefix.clone()).beyond(&prefix.time(now));
    let after = |prefix: Member, after: &Option<TaskId>| match after {
        Some(id) => Range::of(&prefix.clone()).beyond(&prefix.id(*id)),
        None => Range::of(&prefix),
    };
    let (ranges, exact) = match set {
        TaskSet::Ready { queues } => (of(queues, &|queue| Range::of(&ready(queue))), false),
        TaskSet::Due { queues } => (of(&some(queues), &|queue| due(timer(queue))), false),
        TaskSet::LeaseOver { queues } => (of(&some(queues), &|queue| due(lease(queue))), false),
        TaskSet::Upcoming { queues } => {
            let mut ranges: Vec<_> = of(queues, &|queue| coming(timer(queue)));
            ranges.extend(queues.iter().map(|queue| coming(lease(queue))));
            (ranges, false)
        }
        TaskSet::Claimed { owner, key } => (vec![Range::of(&claimed(owner, key))], true),
        TaskSet::Dependents { of, after: last } | TaskSet::FailedBy { of, after: last } => {
            (vec![after(dependent(*of), last)], true)
        }
        TaskSet::LiveDependents { of } => (vec![Range::of(&dependent(*of))], true),
        TaskSet::Children { of, after: last } => (vec![after(child(*of), last)], true),
        TaskSet::Contenders { key, .. } => (vec![Range::of(&contending(key))], true),
        TaskSet::Keyed { queue, after: last } => (vec![after(keyed(queue), last)], true),
        TaskSet::Retired { rules, after } => (vec![retired(rules, *after)], false),
    };
    let row = if matches!(set, TaskSet::Retired { .. }) { FINISHED_ROW } else { RowKey::TASK };
    Places { ranges, row, exact }
}

fn retired(rules: &[(Status, Timestamp)], after: Option<statehold_core::call::RetentionCursor>) -> Range {
    let last = rules.iter().map(|(_, before)| *before).max().unwrap_or(Timestamp::from_micros(i64::MIN));
    let range = Range::of(&finished()).up_to(&finished().time(last));
    match after {
        Some(after) => range.beyond(&finished().time(after.finished_at).id(after.id)),
        None => range,
    }
}

/// The field of the counts for a queue and a status.
pub(crate) fn count_field(row: &TaskRow) -> Bytes {
    [row.task.queue.as_bytes(), b"\0", row.task.status.as_str().as_bytes()].concat()
}

/// Reads counts by queue.
pub(crate) fn read_counts(fields: Vec<(Bytes, u64)>) -> BTreeMap<String, TaskCounts> {
    let mut queues: BTreeMap<String, TaskCounts> = BTreeMap::new();
    for (field, count) in fields {
        let text = String::from_utf8_lossy(&field);
        let Some((queue, status)) = text.split_once('\0') else { continue };
        if let Ok(status) = status.parse::<Status>() {
            queues.entry(queue.to_owned()).or_default().counts.insert(status, count);
        }
    }
    queues
}
