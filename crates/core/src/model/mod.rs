//! The five primitives as plain data: what a caller reads. How a store keeps them, with the
//! bookkeeping that callers never see, is in [`crate::row`].

mod document;
mod entry;
mod group;
mod lock;
mod queue;
mod stream;
mod task;

pub use document::{Content, Document};
pub use entry::Entry;
pub use group::{Delivered, GroupInfo, Pending, Source};
pub use lock::Lock;
pub use queue::{Poller, QueueInfo};
pub use stream::{AUDIT_CATEGORY, DEAD_CATEGORY, Event, Position, StreamInfo, StreamName, TASK_CATEGORY};
pub use task::{
    Backoff, Children, Labels, Lease, OnTimeout, Progress, ResumedBy, Task, TaskError, TaskId, WaitFor,
    Waiting,
};

use serde::{Deserialize, Deserializer, Serialize};

use crate::json::Json;

/// Reads a body that may be left out. One that is there and null is a value, which an `Option` would take for
/// a body that is not there.
pub(crate) fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

/// A fencing token: proof of being the current holder. It only grows and never repeats.
///
/// A token is a secret of its holder, so it does not show in `{:?}`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub i64);

impl Token {
    /// In place of a token that the reader is not to know. No store gives it out.
    pub const HIDDEN: Self = Self(0);

    /// Whether it stands for a token that the reader is not to know; then it is not written either.
    pub fn is_hidden(&self) -> bool {
        *self == Self::HIDDEN
    }

    /// The token after `last`, given at `now`: larger than `last`, and larger than anything given
    /// before `now` even if the store has lost its tail.
    #[must_use]
    pub fn next(last: Self, now: crate::clock::Timestamp) -> Self {
        Self(last.0.saturating_add(1).max(now.as_micros()))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}
