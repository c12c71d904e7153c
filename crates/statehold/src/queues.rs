//! Queues: how full they are, who asks them for work, and pausing.

use statehold_core::Result;
use statehold_core::command::{QueueSet, QueueState};
use statehold_core::model::QueueInfo;

use crate::Statehold;

/// Queues of a namespace.
#[derive(Clone, Copy, Debug)]
pub struct Queues<'a> {
    pub(crate) hold: &'a Statehold,
}

impl Queues<'_> {
    /// All queues that have tasks, are paused, or were asked for work.
    pub async fn list(self) -> Result<Vec<QueueInfo>> {
        self.hold.backend().queue_list(self.hold.namespace()).await
    }

    /// Stops giving out tasks of a queue; what runs goes on.
    pub async fn pause(self, queue: &str) -> Result<QueueState> {
        self.hold.run(QueueSet { queue: queue.to_owned(), paused: true }).await
    }

    /// Gives out tasks of a queue again.
    pub async fn resume(self, queue: &str) -> Result<QueueState> {
        self.hold.run(QueueSet { queue: queue.to_owned(), paused: false }).await
    }
}
