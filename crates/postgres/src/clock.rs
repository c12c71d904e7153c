//! The server's clock, as far as it is known here between two looks at it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use statehold_core::{Clock, Timestamp};

/// The clock that a store goes by. Clones share what was heard of the server's.
#[derive(Clone)]
pub(crate) struct ServerClock {
    clock: Clock,
    /// How far the server's was ahead of this machine's, in microseconds.
    ahead: Arc<AtomicI64>,
}

impl ServerClock {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, ahead: Arc::default() }
    }

    /// What the server's clock shows by now, by what was last heard of it. Good enough to look for what has come due;
    /// whoever decides goes by what is heard.
    pub(crate) fn guess(&self) -> Timestamp {
        let ahead = if self.clock.is_manual() { 0 } else { self.ahead.load(Ordering::Relaxed) };
        Timestamp::from_micros(self.clock.now().as_micros().saturating_add(ahead))
    }

    /// The time to decide by when the server's clock shows this.
    pub(crate) fn hear(&self, stored: Timestamp) -> Timestamp {
        let now = self.clock.from_store(stored);
        let ahead = now.as_micros().saturating_sub(self.clock.now().as_micros());
        self.ahead.store(ahead, Ordering::Relaxed);
        now
    }
}
