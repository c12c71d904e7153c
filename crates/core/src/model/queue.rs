//! Queues: the unit of routing. A queue exists as soon as a task or a claim names it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::{Seconds, Timestamp};
use crate::status::Status;

/// Someone who asked a queue for work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Poller {
    /// Who.
    pub owner: String,
    /// When last, to about ten seconds.
    pub at: Timestamp,
}

/// A queue with its depth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueInfo {
    /// Its name.
    pub queue: String,
    /// A paused queue gives nothing to claims.
    pub paused: bool,
    /// How many tasks are in each status; statuses without any are left out.
    pub counts: BTreeMap<Status, u64>,
    /// How many could be claimed now, were the queue not paused.
    pub claimable: u64,
    /// How long the longest-waiting claimable task has waited.
    pub oldest_pending_seconds: Option<Seconds>,
    /// How many tasks ended in the last minute.
    pub per_minute: u64,
    /// Who asked for work in the last five minutes.
    pub pollers: Vec<Poller>,
}
