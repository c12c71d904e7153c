//! The server's clock, as far as it is known here between two looks at it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use statehold_core::{Clock, Timestamp};

/// The clock that a store goes by. Clones share what was heard of the server's.
#[derive(Clone)]
pub(crate) struct ServerClock {
    clock: Clock,
    heard: Arc<Heard>,
}

/// What was heard of the server's clock, in microseconds.
#[derive(Default)]
struct Heard {
    /// How far it was ahead of this machine's.
    ahead: AtomicI64,
    /// What it showed last.
    last: AtomicI64,
}

impl ServerClock {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, heard: Arc::default() }
    }

    /// What the server's clock shows by now, by what was last heard of it. Good enough to look for what has come due;
    /// whoever decides goes by what is heard.
    pub(crate) fn guess(&self) -> Timestamp {
        let ahead = if self.clock.is_manual() { 0 } else { self.heard.ahead.load(Ordering::Relaxed) };
        Timestamp::from_micros(self.clock.now().as_micros().saturating_add(ahead))
    }

    /// The time to decide by when the server's clock shows this.
    pub(crate) fn hear(&self, stored: Timestamp) -> Timestamp {
        let now = self.clock.from_store(stored);
        let ahead = now.as_micros().saturating_sub(self.clock.now().as_micros());
        self.heard.ahead.store(ahead, Ordering::Relaxed);
        self.heard.last.store(stored.as_micros(), Ordering::Relaxed);
        now
    }

    /// What to decide by before anything is heard, and what the server's clock must then show, or nearly so. It is never
    /// before what was heard, so that what one process does has its times in order.
    pub(crate) fn foresee(&self) -> (Timestamp, Option<Timestamp>) {
        if self.clock.is_manual() {
            return (self.clock.now(), None);
        }
        let moved = self.clock.from_store(Timestamp::from_micros(0)).as_micros();
        let shown = self.guess().as_micros().saturating_sub(moved);
        let shown = Timestamp::from_micros(shown.max(self.heard.last.load(Ordering::Relaxed)));
        (self.clock.from_store(shown), Some(shown))
    }
}
