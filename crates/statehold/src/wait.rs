//! Waiting for something that others do: register, look, sleep, look again.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use statehold_core::wake::{Topic, Waiter};
use statehold_core::{Result, Timestamp};

use crate::Statehold;

/// How long a sleep takes at most: a wake that was lost costs no more than this.
const LONGEST: Duration = Duration::from_secs(5);

/// How long a sleep takes at least, when the store's clock is behind this machine's: it doubles each time.
const SHORTEST: Duration = Duration::from_millis(2);

/// A wait that has begun: what happens after it was made is not missed.
#[derive(Debug)]
pub struct Wait {
    /// None if there is no time to be woken in.
    waiter: Option<Waiter>,
    deadline: Option<Instant>,
    early: u32,
}

impl Wait {
    /// Begins to wait for topics, for a time or forever.
    pub async fn begin(hold: &Statehold, topics: &[Topic], most: Option<Duration>) -> Result<Self> {
        let waiter = match most {
            Some(Duration::ZERO) => None,
            _ => Some(hold.backend().register(hold.namespace(), topics).await?),
        };
        let deadline = most.and_then(|most| Instant::now().checked_add(most));
        Ok(Self { waiter, deadline, early: 0 })
    }

    /// Sleeps until something may have changed, or until a time of the store's. False once the wait is over.
    pub async fn sleep(&mut self, next_at: Option<Timestamp>) -> bool {
        let Some(waiter) = &mut self.waiter else { return false };
        let left = match self.deadline {
            Some(deadline) => match deadline.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() => left,
                _ => return false,
            },
            None => LONGEST,
        };
        let mut length = left.min(LONGEST);
        if let Some(until) = next_at.map(from_now) {
            self.early = if until.is_zero() { self.early + 1 } else { 0 };
            length = length.min(until.max(SHORTEST * 2_u32.pow(self.early.min(9))));
        }
        let _ = tokio::time::timeout(length, waiter.wait()).await;
        true
    }
}

/// How long it is until a time of the store's, as far as this machine's clock can tell.
fn from_now(at: Timestamp) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let at = Duration::from_micros(u64::try_from(at.as_micros()).unwrap_or_default());
    at.saturating_sub(now)
}
