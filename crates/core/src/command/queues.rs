//! Commands on queues.

use serde::{Deserialize, Serialize};

use crate::limits::Check;

/// Pauses a queue or lets it go on.
///
/// # Behavior
/// - Claims get nothing from a paused queue; what runs goes on running.
/// - A paused queue's tasks are no longer first in line for their exclusive keys: the next one in another
///   queue is. When the queue goes on, they stand in line again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct QueueSet {
    /// Which queue.
    pub queue: String,
    /// Whether it gives nothing.
    pub paused: bool,
}

/// The reply of `queue.set`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueState {
    /// Which queue.
    pub queue: String,
    /// Whether it gives nothing.
    pub paused: bool,
}

impl QueueSet {
    pub(super) fn check(&self, check: &mut Check) {
        check.name("queue", &self.queue);
    }
}
