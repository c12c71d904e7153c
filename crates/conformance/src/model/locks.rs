//! Locks: held, freed, and remembered for a day so that tokens grow.

use serde_json::json;
use statehold_core::command::{LockAcquire, LockAcquired, LockFreed, LockRenew, LockRenewed};
use statehold_core::error::ErrorKind;
use statehold_core::model::{Lock, Token};
use statehold_core::row::Holder;
use statehold_core::{Error, Result, Seconds, Timestamp};

use super::commit::Commit;
use super::state::{LockState, State};
use super::tasks::fenced;
use super::time::count;

const DAY: Seconds = Seconds::new(86_400);

impl State {
    /// A lock that is held now.
    pub(super) fn lock(&self, key: &str, now: Timestamp) -> Option<Lock> {
        let state = self.locks.get(key)?;
        let holder = state.holder.clone().filter(|holder| holder.expires_at > now)?;
        let Holder { owner, acquired_at, expires_at, .. } = holder;
        Some(Lock { key: key.to_owned(), owner, token: state.token, acquired_at, expires_at })
    }

    pub(super) fn judge_acquire(&self, key: &str, now: Timestamp) -> Result<()> {
        let Some(lock) = self.lock(key, now) else { return Ok(()) };
        let kind = ErrorKind::Held { owner: Some(lock.owner), expires_at: Some(lock.expires_at) };
        Err(Error::new(kind, "the lock is held"))
    }

    /// Held with this token, and not over.
    pub(super) fn judge_lock(&self, key: &str, token: Token, now: Timestamp) -> Result<()> {
        let state = self.locks.get(key);
        let Some((state, holder)) = state.and_then(|state| Some((state, state.holder.as_ref()?))) else {
            return Err(fenced(None, None));
        };
        if state.token != token {
            let owner = Some(holder.owner.as_str()).filter(|_| holder.expires_at > now);
            return Err(fenced(Some(holder.acquired_at), owner));
        }
        if holder.expires_at <= now { Err(fenced(Some(holder.expires_at), None)) } else { Ok(()) }
    }

    /// Held with this token, not over, and not forgotten.
    pub(super) fn judge_renew(&self, key: &str, token: Token, now: Timestamp) -> Result<()> {
        match self.locks.get(key).filter(|state| state.forget_at > now) {
            Some(_) => self.judge_lock(key, token, now),
            None => Err(fenced(None, None)),
        }
    }

    /// Held last with this token, also if that is over.
    pub(super) fn judge_release(&self, key: &str, token: Token, now: Timestamp) -> Result<()> {
        match self.locks.get(key).filter(|state| state.forget_at > now) {
            Some(state) if state.token == token => Ok(()),
            Some(_) => self.judge_lock(key, token, now),
            None => Err(fenced(None, None)),
        }
    }
}

impl Commit {
    pub(super) fn acquire(&mut self, acquire: &LockAcquire) -> LockAcquired {
        let last = self.state.locks.get(&acquire.key).map_or(Token(0), |state| state.token);
        let token = Token::next(last, self.now);
        let expires_at = self.now + acquire.ttl_seconds;
        let holder = Holder {
            owner: acquire.owner.clone(),
            acquired_at: self.now,
            expires_at,
            session: acquire.session,
        };
        let state = LockState { token, holder: Some(holder), forget_at: expires_at + DAY };
        self.state.locks.insert(acquire.key.clone(), state);
        LockAcquired { token, expires_at }
    }

    pub(super) fn renew_lock(&mut self, renew: &LockRenew) -> LockRenewed {
        let expires_at = self.now + renew.ttl_seconds;
        let state = self.state.locks.get_mut(&renew.key).expect("the lock was judged");
        state.forget_at = expires_at + DAY;
        state.holder.as_mut().expect("the lock is held").expires_at = expires_at;
        LockRenewed { expires_at }
    }

    pub(super) fn release_lock(&mut self, key: &str) {
        let now = self.now;
        let state = self.state.locks.get_mut(key).filter(|state| state.forget_at > now);
        if let Some(state) = state.filter(|state| state.holder.is_some()) {
            state.holder = None;
        }
    }

    pub(super) fn force_release(&mut self, key: &str) -> LockFreed {
        let previous = self.state.lock(key, self.now);
        self.release_lock(key);
        let owner = previous.as_ref().map(|lock| lock.owner.clone());
        self.audit("lock.force_released", &json!({"key": key, "owner": owner}));
        LockFreed { previous }
    }

    pub(super) fn sweep_locks(&mut self, limit: usize) -> (u32, bool) {
        let over = self.state.locks.iter().filter(|(_, state)| state.forget_at <= self.now);
        let over: Vec<_> = over.map(|(key, _)| key.clone()).collect();
        over.iter().take(limit).for_each(|key| drop(self.state.locks.remove(key)));
        (count(over.len().min(limit)), over.len() > limit)
    }
}
