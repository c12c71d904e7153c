//! Exclusive keys: who holds one, and who is first in line.

use statehold_core::model::TaskId;
use statehold_core::{Status, Timestamp};

use super::commit::Commit;
use super::state::{Record, State};

impl State {
    /// The running task that has the key.
    pub(super) fn holder(&self, key: &str) -> Option<&Record> {
        self.tasks.values().find(|record| record.has_key(key) && record.task.status == Status::Running)
    }

    /// Who may be first in line, in claim order: those that were noticed as due.
    pub(super) fn line(&self, key: &str, now: Timestamp) -> Vec<TaskId> {
        let waits = |record: &&Record| {
            let due = record.is_due(now) && !record.later;
            record.has_key(key) && due && !self.is_paused(&record.task.queue)
        };
        let mut line: Vec<_> = self.tasks.values().filter(waits).map(Record::claim_order).collect();
        line.sort_unstable();
        line.into_iter().map(|(_, _, id)| id).collect()
    }

    /// Whether a claim could take it now, were its queue not paused. Who is not first in line for its
    /// exclusive key cannot be taken, and nobody is whose queue is paused.
    pub(super) fn is_claimable(&self, record: &Record, now: Timestamp) -> bool {
        record.is_due(now) && self.is_first(record)
    }

    /// Whether it has no exclusive key, or is first in line for it.
    pub(super) fn is_first(&self, record: &Record) -> bool {
        let key = record.task.exclusive_key.as_ref();
        key.is_none_or(|key| self.nominees.get(key) == Some(&record.task.id))
    }
}

impl Commit {
    /// Chooses who is first in line for a key that nobody holds, unless whoever is may stay.
    pub(super) fn settle(&mut self, key: &str) {
        let line = self.state.line(key, self.now);
        let kept = self.state.nominees.remove(key).filter(|id| line.contains(id));
        if self.state.holder(key).is_some() {
            return;
        }
        if let Some(first) = kept.or(line.first().copied()) {
            self.state.nominees.insert(key.to_owned(), first);
        }
    }
}
