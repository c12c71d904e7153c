//! The supervisor: one of many, by a lock, sees to what has run out of time, in all namespaces.

use std::collections::HashMap;
use std::time::Duration;

use futures_core::future::BoxFuture;
use statehold_core::call::{RetentionCursor, Sweep, Swept};
use statehold_core::command::LockAcquire;
use statehold_core::policy::Retention;
use statehold_core::{Result, Seconds};

use crate::worker::Stopping;
use crate::{LockGuard, Statehold};

/// The lock of the one who supervises, in the namespace of its [`Statehold`].
pub const LEADER: &str = "statehold/supervisor";

/// How long it takes until another takes over.
const LEADERSHIP: Seconds = Seconds::new(15);

/// How many sweeps a namespace gets before the next one's turn.
const SWEEPS: u32 = 100;

/// Sweeps all namespaces, as long as it is the leader.
#[derive(Debug)]
pub struct Supervisor {
    hold: Statehold,
    every: Duration,
    retention: Retention,
}

impl Supervisor {
    /// A supervisor that looks every second and keeps everything that has ended.
    pub fn new(hold: &Statehold) -> Self {
        Self { hold: hold.clone(), every: Duration::from_secs(1), retention: Retention::forever() }
    }

    /// How often it looks.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// How long what has ended is kept.
    #[must_use]
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Supervises until it is told to stop. While another does, it waits for its turn; while the store does not
    /// answer, it tries again.
    pub fn run(self, stopping: Stopping) -> BoxFuture<'static, Result<Swept>> {
        Box::pin(async move {
            let mut all = Swept::default();
            let mut cursors = HashMap::new();
            while !stopping.is_cancelled() {
                let leader = tokio::select! {
                    leader = self.lead() => leader,
                    () = stopping.cancelled() => break,
                };
                match leader {
                    Ok(guard) => {
                        self.supervise(&guard, &stopping, &mut cursors, &mut all).await?;
                        let _ = guard.release().await;
                    }
                    Err(error) if error.is_retryable() || error.code() == "held" => {
                        pause(self.every, &stopping).await;
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(all)
        })
    }

    async fn lead(&self) -> Result<LockGuard> {
        let owner = crate::owner::default_owner();
        let acquire = LockAcquire { ttl_seconds: LEADERSHIP, ..LockAcquire::new(LEADER, owner) };
        self.hold.locks().acquire_with(acquire, Some(Duration::from_secs(60))).await
    }

    /// Sweeps until the leadership is lost or it is told to stop.
    async fn supervise(
        &self,
        guard: &LockGuard,
        stopping: &Stopping,
        cursors: &mut HashMap<String, Option<RetentionCursor>>,
        all: &mut Swept,
    ) -> Result<()> {
        while !stopping.is_cancelled() && !guard.is_lost() {
            match self.sweep_all(cursors).await {
                Ok(swept) => all.add(&swept),
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error),
            }
            pause(self.every, stopping).await;
        }
        Ok(())
    }

    /// Sweeps every namespace once, until nothing is left to do or it has had its share.
    async fn sweep_all(&self, cursors: &mut HashMap<String, Option<RetentionCursor>>) -> Result<Swept> {
        let mut all = Swept::default();
        for namespace in self.hold.backend().namespaces().await? {
            let cursor = cursors.entry(namespace.clone()).or_default();
            for _ in 0..SWEEPS {
                let mut sweep = Sweep::new(&namespace);
                sweep.retention = self.retention.clone();
                sweep.retention_after = *cursor;
                let swept = self.hold.backend().sweep(sweep).await?;
                *cursor = swept.retention_after;
                all.add(&swept);
                if !swept.more {
                    break;
                }
            }
        }
        Ok(all)
    }
}

async fn pause(length: Duration, stopping: &Stopping) {
    tokio::select! {
        () = tokio::time::sleep(length) => {}
        () = stopping.cancelled() => {}
    }
}
