//! Renewals of leases, on a thread of their own: work that keeps every thread busy must not cost it its lease.

use std::sync::Arc;
use std::time::{Duration, Instant};

use statehold_core::{Error, Result};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::Lease;
use crate::job::{Stop, Stopper};

/// The thread that renews. It ends when this is dropped.
pub(crate) struct Renewals(UnboundedSender<Kept>);

/// A lease that is being renewed.
struct Kept {
    lease: Arc<Lease>,
    stop: Stopper,
    end: CancellationToken,
}

impl Renewals {
    pub(crate) fn start() -> Result<Self> {
        let trouble = |e| Error::unavailable("no thread can be started for renewals").caused_by(e);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(trouble)?;
        let (keep, mut kept) = unbounded_channel::<Kept>();
        let renew_all = async move {
            while let Some(Kept { lease, stop, end }) = kept.recv().await {
                tokio::spawn(end.run_until_cancelled_owned(renew(lease, stop)));
            }
        };
        std::thread::Builder::new()
            .name("statehold-renew".into())
            .spawn(move || runtime.block_on(renew_all))
            .map_err(trouble)?;
        Ok(Self(keep))
    }

    /// Renews a lease until what it answers is dropped, and says when the work on it shall stop.
    pub(crate) fn keep(&self, lease: &Arc<Lease>, stop: &Stopper) -> DropGuard {
        let end = CancellationToken::new();
        let kept = Kept { lease: Arc::clone(lease), stop: stop.clone(), end: end.clone() };
        if self.0.send(kept).is_err() {
            // Nobody renews any more: the lease will be over.
            stop.say(Stop::LeaseOver);
        }
        end.drop_guard()
    }
}

/// Renews at a third of the lease, until it is lost.
async fn renew(lease: Arc<Lease>, stop: Stopper) {
    let (Some(length), Some(mut until)) = (lease.length(), lease.until()) else { return };
    let mut pause = length / 3;
    loop {
        let next = Instant::now() + pause;
        tokio::time::sleep_until(next.min(until).into()).await;
        let renewed = tokio::time::timeout_at(until.into(), lease.renew()).await;
        pause = length / 3;
        match renewed {
            Ok(Ok(renewed)) => {
                if renewed.cancel_requested {
                    stop.say(Stop::CancelRequested);
                }
            }
            Ok(Err(error)) if error.is_fenced() => return stop.say(lost(&lease, Stop::Fenced)),
            Ok(Err(_)) | Err(_) => pause = (length / 20).max(Duration::from_millis(10)),
        }
        until = lease.until().unwrap_or(until);
        if Instant::now() >= until {
            return stop.say(lost(&lease, Stop::LeaseOver));
        }
    }
}

/// Why a lease is lost: if the attempt took too long, that is why.
fn lost(lease: &Lease, otherwise: Stop) -> Stop {
    let timed_out = lease.out_of_time().is_some_and(|end| Instant::now() >= end);
    if timed_out { Stop::TimedOut } else { otherwise }
}
