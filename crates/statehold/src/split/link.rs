//! The store of what is short-lived, which may be away: nobody waits for one that does not answer, and it is used again
//! as soon as it does.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use statehold_core::{Backend, Error, ErrorKind, Result, Timestamp};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::entries;

/// Opens the store, again until it opens.
pub type Opener =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Arc<dyn Backend>>> + Send>> + Send + Sync>;

/// How long it may take to answer before it counts as away.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is tried while it is away.
const AGAIN: Duration = Duration::from_millis(200);
/// How many entries are remembered at most that it must forget when it comes back.
const REMEMBERED: usize = 100_000;

/// The store of what is short-lived.
pub(super) struct Link {
    open: Opener,
    state: Mutex<State>,
    /// How many requests did without it.
    fallbacks: AtomicU64,
    /// Where it is waited for: the runtime of whoever finds it away may end before it is back.
    runtime: Handle,
}

#[derive(Default)]
struct State {
    /// None until it was open once.
    store: Option<Arc<dyn Backend>>,
    /// Why it is not used.
    away: Option<String>,
    /// What was written to the durable store while it was away: what it has of that time or before is void.
    void: BTreeMap<(String, String), Timestamp>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("away", &self.away()).finish_non_exhaustive()
    }
}

/// It is away.
struct Missing {
    /// Whether what it was asked for may have been done all the same.
    done: bool,
}

/// Whether an error means that the store is away, rather than that it refuses.
fn means_away(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout)
}

impl Link {
    /// Opens it; if it is away, that is tried again until it is there.
    pub(super) async fn open(open: Opener) -> Result<Arc<Self>> {
        let (state, fallbacks, runtime) = (Mutex::default(), AtomicU64::new(0), Handle::current());
        let link = Arc::new(Self { open, state, fallbacks, runtime });
        match link.try_open().await {
            Err(error) if means_away(&error) => link.lost(error.message()),
            opened => drop(opened?),
        }
        Ok(link)
    }

    async fn try_open(&self) -> Result<Arc<dyn Backend>> {
        let opened = self.lock().store.clone();
        if let Some(store) = opened {
            return Ok(store);
        }
        let store = timeout(PATIENCE, (self.open)()).await.unwrap_or_else(|_| Err(silent()))?;
        self.lock().store = Some(Arc::clone(&store));
        Ok(store)
    }

    /// Asks it; none if it is away.
    pub(super) async fn ask<T, F>(
        self: &Arc<Self>,
        call: impl FnOnce(Arc<dyn Backend>) -> F,
    ) -> Result<Option<T>>
    where
        F: Future<Output = Result<T>>,
    {
        Ok(self.try_to_ask(call).await?.ok())
    }

    async fn try_to_ask<T, F>(
        self: &Arc<Self>,
        call: impl FnOnce(Arc<dyn Backend>) -> F,
    ) -> Result<std::result::Result<T, Missing>>
    where
        F: Future<Output = Result<T>>,
    {
        let missing = match self.here() {
            None => Missing { done: false },
            // It was cut off, and may go on by itself.
            Some(store) => match timeout(PATIENCE, call(store)).await {
                Err(_) => {
                    self.lost("it does not answer");
                    Missing { done: true }
                }
                Ok(Err(error)) if means_away(&error) => {
                    self.lost(error.message());
                    Missing { done: *error.kind() == ErrorKind::Timeout }
                }
                Ok(answer) => return answer.map(Ok),
            },
        };
        self.fallbacks.fetch_add(1, Ordering::Relaxed);
        Ok(Err(missing))
    }

    /// The same for what is nowhere else. Who repeats what changes something must know whether it may have been done.
    pub(super) async fn need<T, F>(self: &Arc<Self>, call: impl FnOnce(Arc<dyn Backend>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.try_to_ask(call).await?.map_err(|Missing { done }| {
            let why = self.away().unwrap_or_default();
            let kind = if done { ErrorKind::Timeout } else { ErrorKind::Unavailable };
            Error::new(kind, format!("the store of live streams is away: {why}")).hint(
                "it goes on by itself when that store is back; append what matters to a task or a thread",
            )
        })
    }

    /// The store, unless it is away.
    fn here(&self) -> Option<Arc<dyn Backend>> {
        let state = self.lock();
        state.store.clone().filter(|_| state.away.is_none())
    }

    /// The store as it was opened, whether or not it is away now.
    pub(super) fn opened(&self) -> Option<Arc<dyn Backend>> {
        self.lock().store.clone()
    }

    /// Why it is not used; none while it is.
    pub(super) fn away(&self) -> Option<String> {
        self.lock().away.clone()
    }

    /// How many requests did without it.
    pub(super) fn fallbacks(&self) -> u64 {
        self.fallbacks.load(Ordering::Relaxed)
    }

    /// Remembers that what it has under a key, of this time or before, is void; false if it is back already.
    pub(super) fn void(&self, namespace: &str, key: &str, at: Timestamp) -> bool {
        let mut state = self.lock();
        if state.away.is_some() && state.void.len() < REMEMBERED {
            state.void.insert((namespace.to_owned(), key.to_owned()), at);
        }
        state.away.is_some()
    }

    /// Does without it until it answers again.
    fn lost(self: &Arc<Self>, why: &str) {
        if self.lock().away.replace(why.to_owned()).is_some() {
            return;
        }
        let link = Arc::downgrade(self);
        self.runtime.spawn(async move {
            loop {
                sleep(AGAIN).await;
                let Some(link) = link.upgrade() else { return };
                match link.come_back().await {
                    Ok(()) => return,
                    Err(error) => link.lock().away = Some(error.message().to_owned()),
                }
            }
        });
    }

    /// Uses it again, once it has forgotten what is void.
    async fn come_back(&self) -> Result<()> {
        let store = self.try_open().await?;
        timeout(PATIENCE, store.health()).await.unwrap_or_else(|_| Err(silent()))?;
        while let Some(((namespace, key), at)) = self.next_void() {
            let forgetting = entries::forget(&*store, &namespace, &key, at);
            timeout(PATIENCE, forgetting).await.unwrap_or_else(|_| Err(silent()))?;
            self.lock().void.remove(&(namespace, key));
        }
        Ok(())
    }

    /// What it must forget next; if there is nothing left, it is used again.
    fn next_void(&self) -> Option<((String, String), Timestamp)> {
        let mut state = self.lock();
        let next = state.void.first_key_value().map(|(place, at)| (place.clone(), *at));
        if next.is_none() {
            state.away = None;
        }
        next
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn silent() -> Error {
    Error::unavailable("it does not answer")
}
