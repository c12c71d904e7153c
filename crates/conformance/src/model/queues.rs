//! Queues: paused or not.

use statehold_core::Status;
use statehold_core::command::{QueueSet, QueueState};

use super::commit::Commit;

impl Commit {
    pub(super) fn set_queue(&mut self, set: &QueueSet) -> QueueState {
        let before = self.state.is_paused(&set.queue);
        self.state.queues.entry(set.queue.clone()).or_default().set = Some(set.paused);
        if before != set.paused {
            let own = self.state.tasks.values().filter(|record| record.task.queue == set.queue);
            let in_line = own.filter(|record| record.task.status == Status::Pending && !record.later);
            self.keys.extend(in_line.filter_map(|record| record.task.exclusive_key.clone()));
        }
        QueueState { queue: set.queue.clone(), paused: set.paused }
    }
}
