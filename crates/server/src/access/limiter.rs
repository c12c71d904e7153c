//! How many requests a caller may send: a bucket for each, which fills by itself.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// How many callers are remembered; beyond that all begin anew.
const CALLERS: usize = 10_000;

/// Counts the requests of each caller.
#[derive(Debug)]
pub(crate) struct Limiter {
    /// How many a second; no limit if none.
    rate: Option<f64>,
    buckets: Mutex<HashMap<String, (f64, Instant)>>,
}

impl Limiter {
    /// Lets through `rate` requests a second from each caller, and as many at once.
    pub(crate) fn new(rate: Option<u32>) -> Self {
        Self { rate: rate.map(f64::from), buckets: Mutex::default() }
    }

    /// Whether one more request of this caller goes through.
    pub(crate) fn admits(&self, caller: &str) -> bool {
        let Some(rate) = self.rate else { return true };
        let now = Instant::now();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= CALLERS {
            buckets.clear();
        }
        let (left, at) = buckets.entry(caller.to_owned()).or_insert((rate, now));
        *left = (*left + now.duration_since(*at).as_secs_f64() * rate).min(rate);
        *at = now;
        let admits = *left >= 1.0;
        if admits {
            *left -= 1.0;
        }
        admits
    }
}
