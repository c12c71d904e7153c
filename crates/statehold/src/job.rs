//! What a handler is given: a lease, and the word when to stop.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::{Lease, Task};

/// What a handler is given: a lease, and the word when to stop.
#[derive(Clone, Debug)]
pub struct Job {
    pub(crate) lease: Arc<Lease>,
    pub(crate) stop: Stopper,
}

/// Why a handler shall stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Someone asked for the end of the task. Failing or releasing it ends it; completing it still counts.
    CancelRequested,
    /// The task was taken away: what is still written is refused.
    Fenced,
    /// The lease could not be renewed in time, so that another may have the task by now.
    LeaseOver,
    /// The attempt took longer than the task allows.
    TimedOut,
    /// The worker is being shut down, and its grace period is over.
    ShuttingDown,
}

impl Stop {
    /// Whether the lease is gone, so that nothing can be written any more.
    pub fn is_lost(self) -> bool {
        matches!(self, Self::Fenced | Self::LeaseOver | Self::TimedOut)
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CancelRequested => "it shall be cancelled",
            Self::Fenced => "it was taken away",
            Self::LeaseOver => "its lease could not be renewed in time",
            Self::TimedOut => "the attempt took longer than the task allows",
            Self::ShuttingDown => "the worker is being shut down",
        })
    }
}

impl Job {
    /// The task as it was when it was taken.
    pub fn task(&self) -> &Task {
        self.lease.task()
    }

    /// The lease: what it writes is refused once it is lost.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Comes when the handler shall stop.
    pub async fn stopped(&self) -> Stop {
        self.stop.word.cancelled().await;
        self.stop.why().unwrap_or(Stop::ShuttingDown)
    }

    /// Whether, and why, the handler shall stop.
    pub fn stop(&self) -> Option<Stop> {
        self.stop.why()
    }
}

/// Tells a handler to stop, once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stopper {
    pub(crate) word: CancellationToken,
    why: Arc<Mutex<Option<Stop>>>,
}

impl Stopper {
    /// Says why to stop. A lost lease overrules what was said before.
    pub(crate) fn say(&self, why: Stop) {
        let mut said = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none_or(|before| !before.is_lost() && why.is_lost()) {
            *said = Some(why);
        }
        self.word.cancel();
    }

    pub(crate) fn why(&self) -> Option<Stop> {
        *self.why.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
