//! Claims: asking queues for work.

use std::collections::BTreeSet;

use statehold_core::Timestamp;
use statehold_core::call::{Claim, Claimed};
use statehold_core::model::{Task, TaskId};

use super::commit::Commit;
use super::state::Record;

/// How much of what time brings a claim handles first.
const BOUND: usize = 100;

impl Commit {
    pub(super) fn claim(&mut self, claim: &Claim) -> Claimed {
        let held = self.still_held(claim);
        if !held.is_empty() {
            return Claimed { tasks: held, next_at: None };
        }
        for queue in &claim.queues {
            let polls = &mut self.state.queues.entry(queue.clone()).or_default().polls;
            polls.insert(claim.owner.clone(), self.now);
        }
        let asked: BTreeSet<_> = claim.queues.iter().filter(|queue| !self.state.is_paused(queue)).collect();
        let queues = |queue: &str| asked.iter().any(|asked| *asked == queue);
        self.sweep_tasks(BOUND, queues, Record::timer);
        self.sweep_tasks(BOUND, queues, Record::lease_expiry);
        self.derive();
        let mut tasks = Vec::new();
        for id in self.ready(queues).into_iter().take(claim.limit as usize) {
            self.start(id, &claim.owner, claim.lease_seconds, claim.key.as_deref());
            tasks.push(self.task(id).clone());
        }
        self.derive();
        let next_at = if tasks.is_empty() { self.next_at(queues) } else { None };
        Claimed { tasks, next_at }
    }

    /// What an earlier claim of the same owner with the same key still holds.
    fn still_held(&self, claim: &Claim) -> Vec<Task> {
        let own = |record: &&Record| {
            let owner = record.task.lease.as_ref().map(|lease| &lease.owner);
            claim.key.is_some()
                && record.claim_key == claim.key
                && owner == Some(&claim.owner)
                && !record.is_lease_over(self.now)
        };
        let mut held: Vec<_> = self.state.tasks.values().filter(own).collect();
        held.sort_by_key(|record| record.claim_order());
        held.into_iter().map(|record| record.task.clone()).collect()
    }

    fn ready(&self, queues: impl Fn(&str) -> bool) -> Vec<TaskId> {
        let ready = |record: &&Record| {
            record.is_due(self.now) && queues(&record.task.queue) && self.state.is_first(record)
        };
        let mut ready: Vec<_> = self.state.tasks.values().filter(ready).map(Record::claim_order).collect();
        ready.sort_unstable();
        ready.into_iter().map(|(_, _, id)| id).collect()
    }

    /// When something becomes due by itself.
    fn next_at(&self, queues: impl Fn(&str) -> bool) -> Option<Timestamp> {
        let asked = self.state.tasks.values().filter(|record| queues(&record.task.queue));
        let next = |record: &Record| record.timer().into_iter().chain(record.lease_expiry()).min();
        asked.filter_map(next).filter(|at| *at > self.now).min()
    }
}
