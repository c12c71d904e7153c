//! Locks: one holder at a time, each with a token larger than all before.

use std::sync::Arc;

use super::fences::{fenced, held_lock, lost_to};
use super::streams;
use super::tx::{Planned, Tx};
use crate::clock::{Seconds, Timestamp};
use crate::command::{
    Done, LockAcquire, LockAcquired, LockForceRelease, LockFreed, LockRelease, LockRenew, LockRenewed,
};
use crate::error::{Error, ErrorKind};
use crate::model::{Lock, Token};
use crate::row::{Holder, LockRow};

/// How long the row of a free lock stays, so that tokens keep growing.
const MEMORY: Seconds = Seconds::new(86_400);

impl LockRow {
    /// The lock as a caller sees it, if it is held and has not expired.
    pub fn held(&self, now: Timestamp) -> Option<Lock> {
        let holder = self.holder.as_ref().filter(|holder| holder.expires_at > now)?;
        Some(Lock {
            key: self.key.clone(),
            owner: holder.owner.clone(),
            token: self.token,
            acquired_at: holder.acquired_at,
            expires_at: holder.expires_at,
        })
    }
}

/// A lock's row, unless it is to be forgotten: a store may have removed it by itself.
fn remembered(tx: &mut Tx<'_>, key: &String) -> Planned<Option<Arc<LockRow>>> {
    let now = tx.now;
    Ok(tx.get::<LockRow>(key)?.filter(|row| row.forget_at > now))
}

pub(super) fn judge_acquire(tx: &mut Tx<'_>, acquire: &LockAcquire) -> Planned<()> {
    let now = tx.now;
    let Some(lock) = remembered(tx, &acquire.key)?.and_then(|row| row.held(now)) else { return Ok(()) };
    let message = format!("lock `{}` is held by `{}` until {}", lock.key, lock.owner, lock.expires_at);
    let kind = ErrorKind::Held { owner: Some(lock.owner), expires_at: Some(lock.expires_at) };
    Err(Error::new(kind, message).about(lock.key).into())
}

pub(super) fn acquire(tx: &mut Tx<'_>, acquire: &LockAcquire) -> Planned<LockAcquired> {
    let last = remembered(tx, &acquire.key)?.map_or(Token::default(), |row| row.token);
    let token = Token::next(last, tx.now);
    let expires_at = tx.now + acquire.ttl_seconds;
    let holder =
        Holder { owner: acquire.owner.clone(), acquired_at: tx.now, expires_at, session: acquire.session };
    let forget_at = expires_at + MEMORY;
    tx.put(LockRow { key: acquire.key.clone(), token, holder: Some(holder), forget_at });
    Ok(LockAcquired { token, expires_at })
}

pub(super) fn judge_renew(tx: &mut Tx<'_>, renew: &LockRenew) -> Planned<()> {
    let row = remembered(tx, &renew.key)?;
    Ok(held_lock(row.as_deref(), &renew.key, renew.token, tx.now)?)
}

pub(super) fn renew(tx: &mut Tx<'_>, renew: &LockRenew) -> Planned<LockRenewed> {
    let expires_at = tx.now + renew.ttl_seconds;
    if let Some(row) = remembered(tx, &renew.key)? {
        let holder = row.holder.clone().map(|holder| Holder { expires_at, ..holder });
        tx.put(LockRow { holder, forget_at: expires_at + MEMORY, ..LockRow::clone(&row) });
    }
    Ok(LockRenewed { expires_at })
}

pub(super) fn judge_release(tx: &mut Tx<'_>, release: &LockRelease) -> Planned<()> {
    match remembered(tx, &release.key)? {
        Some(row) if row.token == release.token => Ok(()),
        Some(row) => {
            let (at, owner) = row.holder.as_ref().map_or((None, None), |holder| lost_to(holder, tx.now));
            Err(fenced("lock", row.key.clone(), at, owner).into())
        }
        None => Err(fenced("lock", release.key.clone(), None, None).into()),
    }
}

pub(super) fn release(tx: &mut Tx<'_>, release: &LockRelease) -> Planned<Done> {
    free(tx, &release.key)?;
    Ok(Done {})
}

fn free(tx: &mut Tx<'_>, key: &String) -> Planned<()> {
    if let Some(row) = remembered(tx, key)?.filter(|row| row.holder.is_some()) {
        tx.put(LockRow { holder: None, ..LockRow::clone(&row) });
    }
    Ok(())
}

pub(super) fn judge_force_release(tx: &mut Tx<'_>, release: &LockForceRelease) -> Planned<()> {
    streams::want_audit(tx);
    tx.get::<LockRow>(&release.key).map(|_| ())
}

pub(super) fn force_release(tx: &mut Tx<'_>, release: &LockForceRelease) -> Planned<LockFreed> {
    let now = tx.now;
    let previous = remembered(tx, &release.key)?.and_then(|row| row.held(now));
    free(tx, &release.key)?;
    let owner = previous.as_ref().map(|lock| &lock.owner);
    streams::audit(tx, "lock.force_released", &serde_json::json!({ "key": release.key, "owner": owner }))?;
    Ok(LockFreed { previous })
}

/// Removes the row of a lock that has been free long enough.
pub(super) fn forget(tx: &mut Tx<'_>, key: &String) -> Planned<bool> {
    let now = tx.now;
    let forgotten = tx.get::<LockRow>(key)?.is_some_and(|row| row.forget_at <= now);
    if forgotten {
        tx.delete::<LockRow>(key);
    }
    Ok(forgotten)
}
