//! Locks: held by one owner at a time, by guards that renew themselves.

use std::sync::Arc;
use std::time::Duration;

use statehold_core::batch::Fence;
use statehold_core::command::{LockAcquire, LockAcquired, LockForceRelease, LockRelease, LockRenew};
use statehold_core::model::{Lock, Token};
use statehold_core::query::{KeyList, Page};
use statehold_core::session::Session;
use statehold_core::wake::Topic;
use statehold_core::{Error, ErrorKind, Result, Seconds, Timestamp};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::Statehold;
use crate::wait::Wait;

/// Locks of a namespace.
#[derive(Clone, Copy, Debug)]
pub struct Locks<'a> {
    pub(crate) hold: &'a Statehold,
}

/// How often who waits for a lock of a session looks: nobody tells when a process dies.
const LOOK: Duration = Duration::from_secs(1);

impl<'a> Locks<'a> {
    /// Locks that are free as soon as this process is gone, on a store that has sessions, as PostgreSQL does.
    pub fn of_session(self) -> SessionLocks<'a> {
        SessionLocks { locks: self }
    }

    /// Takes a lock for a minute that the guard renews, or answers none if someone has it.
    pub async fn try_acquire(self, key: &str, owner: &str) -> Result<Option<LockGuard>> {
        none_if_held(self.acquire_with(LockAcquire::new(key, owner), None).await)
    }

    /// Takes a lock as soon as it is free, at most after `most`; then it is refused as `held`.
    pub async fn acquire(self, key: &str, owner: &str, most: Duration) -> Result<LockGuard> {
        self.acquire_with(LockAcquire::new(key, owner), Some(most)).await
    }

    /// The same with a time to live of one's own. Whoever is first to ask when it is free gets it.
    ///
    /// If the future is dropped, the lock is not kept.
    pub async fn acquire_with(self, acquire: LockAcquire, most: Option<Duration>) -> Result<LockGuard> {
        self.wait_for(acquire, most, false).await
    }

    async fn wait_for(
        self,
        acquire: LockAcquire,
        most: Option<Duration>,
        of_session: bool,
    ) -> Result<LockGuard> {
        let topic = Topic::Lock(acquire.key.clone());
        let mut wait = Wait::begin(self.hold, &[topic], Some(most.unwrap_or_default())).await?;
        loop {
            let session = if of_session { Some(self.hold.backend().session().await?) } else { None };
            let held = match self.take(acquire.clone(), session).await {
                Ok(guard) => return Ok(guard),
                Err(error) => error,
            };
            let ErrorKind::Held { expires_at, .. } = held.kind() else { return Err(held) };
            // Nobody is woken when a lock runs out, so that is slept for.
            let slept = wait.sleep(*expires_at);
            let more = if of_session { timeout(LOOK, slept).await.unwrap_or(true) } else { slept.await };
            if !more {
                return Err(held);
            }
        }
    }

    async fn take(self, mut acquire: LockAcquire, session: Option<Session>) -> Result<LockGuard> {
        acquire.session = session.as_ref().map(Session::id);
        let hold = self.hold.clone();
        let (reply, answer) = oneshot::channel();
        tokio::spawn(async move {
            let asked = Instant::now();
            let taken = hold.run(acquire.clone()).await;
            // A guard that nobody waits for gives the lock back as it is dropped.
            let _ = reply.send(taken.map(|taken| LockGuard::new(hold, acquire, session, &taken, asked)));
        });
        answer.await.unwrap_or_else(|_| Err(Error::unavailable("the runtime is being shut down")))
    }

    /// Takes a lock without a guard: who has the token renews and releases it, in any process. None if someone has it.
    pub async fn try_lock(self, key: &str, owner: &str) -> Result<Option<Token>> {
        let taken = none_if_held(self.hold.run(LockAcquire::new(key, owner)).await)?;
        Ok(taken.map(|taken| taken.token))
    }

    /// Extends a lock by its token.
    pub async fn renew(self, key: &str, token: Token, ttl: Seconds) -> Result<Timestamp> {
        let renew = LockRenew { key: key.to_owned(), token, ttl_seconds: ttl };
        Ok(self.hold.run(renew).await?.expires_at)
    }

    /// Releases a lock by its token.
    pub async fn release(self, key: &str, token: Token) -> Result<()> {
        self.hold.run(LockRelease { key: key.to_owned(), token }).await.map(drop)
    }

    /// Frees a lock whoever has it, and answers who had it. For operators; it is audited.
    pub async fn force_release(self, key: &str) -> Result<Option<Lock>> {
        Ok(self.hold.run(LockForceRelease { key: key.to_owned() }).await?.previous)
    }

    /// A lock that is held.
    pub async fn get(self, key: &str) -> Result<Option<Lock>> {
        self.hold.backend().lock_get(self.hold.namespace(), key).await
    }

    /// A page of locks that are held.
    pub async fn list(self, list: &KeyList) -> Result<Page<Lock>> {
        self.hold.backend().lock_list(self.hold.namespace(), list).await
    }
}

/// Locks that end with this process, made by [`Locks::of_session`]. If the process dies, or loses the connection that is
/// its session, the lock is free at once for whoever asks, with a larger token, and the guard of a process that lives is
/// told that it lost the lock. Only PostgreSQL has sessions; elsewhere, and through a server or a pooler, it is
/// `unsupported`.
#[derive(Clone, Copy, Debug)]
pub struct SessionLocks<'a> {
    locks: Locks<'a>,
}

impl SessionLocks<'_> {
    /// Takes a lock that the guard renews, or answers none if someone has it.
    pub async fn try_acquire(self, key: &str, owner: &str) -> Result<Option<LockGuard>> {
        none_if_held(self.acquire_with(LockAcquire::new(key, owner), None).await)
    }

    /// Takes a lock as soon as it is free, at most after `most`; then it is refused as `held`.
    pub async fn acquire(self, key: &str, owner: &str, most: Duration) -> Result<LockGuard> {
        self.acquire_with(LockAcquire::new(key, owner), Some(most)).await
    }

    /// The same with a time to live of one's own: so long after its last renewal a lock is free in any case.
    pub async fn acquire_with(self, acquire: LockAcquire, most: Option<Duration>) -> Result<LockGuard> {
        self.locks.wait_for(acquire, most, true).await
    }
}

/// None for a lock that someone has.
fn none_if_held<T>(taken: Result<T>) -> Result<Option<T>> {
    match taken {
        Ok(taken) => Ok(Some(taken)),
        Err(error) if matches!(error.kind(), ErrorKind::Held { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A lock that is held and renewed, until it is released or dropped.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use statehold::{DocumentPut, Json, Statehold};
///
/// let hold = Statehold::open("memory:").await?;
/// let guard = hold.locks().try_acquire("project/1", "me").await?.unwrap();
/// assert!(hold.locks().try_acquire("project/1", "you").await?.is_none());
///
/// // What is written with its fence is refused if the lock was lost meanwhile.
/// let mut batch = hold.batch().fence(guard.fence());
/// batch.add(DocumentPut::json("project", "1", Json::of("mine")?));
/// hold.apply(batch).await?;
///
/// guard.release().await?;
/// assert!(hold.locks().try_acquire("project/1", "you").await?.is_some());
/// # Ok::<(), statehold::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct LockGuard {
    held: Arc<Held>,
    /// Ends the renewals.
    end: CancellationToken,
    released: bool,
}

#[derive(Debug)]
struct Held {
    hold: Statehold,
    key: String,
    token: Token,
    ttl: Seconds,
    lost: CancellationToken,
}

impl LockGuard {
    fn new(
        hold: Statehold,
        acquire: LockAcquire,
        session: Option<Session>,
        taken: &LockAcquired,
        asked: Instant,
    ) -> Self {
        let LockAcquire { key, ttl_seconds: ttl, .. } = acquire;
        let own = Arc::new(Held { hold, key, token: taken.token, ttl, lost: CancellationToken::new() });
        let end = CancellationToken::new();
        tokio::spawn(end.clone().run_until_cancelled_owned(keep(Arc::clone(&own), session, asked)));
        Self { held: own, end, released: false }
    }

    /// What it locks.
    pub fn key(&self) -> &str {
        &self.held.key
    }

    /// What proves that it is held.
    pub fn token(&self) -> Token {
        self.held.token
    }

    /// What makes a batch depend on the lock.
    pub fn fence(&self) -> Fence {
        Fence::Lock { lock: self.held.key.clone(), token: self.held.token }
    }

    /// Comes when the lock is lost: it was taken away, or could not be renewed in time.
    pub async fn lost(&self) {
        self.held.lost.cancelled().await;
    }

    /// Whether it is lost.
    pub fn is_lost(&self) -> bool {
        self.held.lost.is_cancelled()
    }

    /// Frees the lock.
    pub async fn release(mut self) -> Result<()> {
        self.end.cancel();
        let released = self.held.release().await;
        // Not before: if this future is dropped on its way, the drop of the guard sees to it.
        self.released = true;
        released
    }
}

impl Held {
    async fn release(&self) -> Result<()> {
        self.hold.locks().release(&self.key, self.token).await
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.end.cancel();
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && !self.released
            && !self.is_lost()
        {
            let held = Arc::clone(&self.held);
            // If that fails, the lock ends by itself.
            runtime.spawn(async move { held.release().await });
        }
    }
}

/// Keeps a lock until it is lost: it cannot be renewed, or its session has ended.
async fn keep(held: Arc<Held>, session: Option<Session>, renewed: Instant) {
    let ended = async {
        match session {
            Some(session) => session.ended().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = renew(&held, renewed) => {}
        () = ended => {}
    }
    held.lost.cancel();
}

/// Renews a lock at a third of its time, until that comes to nothing.
async fn renew(held: &Held, mut renewed: Instant) {
    let ttl = Duration::from(held.ttl);
    loop {
        let until = renewed + ttl;
        // After a renewal that failed, the next one is not far.
        tokio::time::sleep_until((renewed + ttl / 3).max(Instant::now() + ttl / 20)).await;
        let asked = Instant::now();
        let renewal = held.hold.locks().renew(&held.key, held.token, held.ttl);
        match tokio::time::timeout_at(until, renewal).await {
            Ok(Ok(_)) => renewed = asked,
            Ok(Err(error)) if error.is_fenced() => break,
            Ok(Err(_)) | Err(_) if Instant::now() >= until => break,
            Ok(Err(_)) | Err(_) => {}
        }
    }
}
