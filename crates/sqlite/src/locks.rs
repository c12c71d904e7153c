//! Locks.

use rusqlite::{Result, params};
use statehold_core::Timestamp;
use statehold_core::model::{Lock, Token};
use statehold_core::row::{Holder, LockRow};

use crate::rows::{Cells, Keys, Table};
use crate::statements::{Db, sql};

pub(crate) fn read(cells: &mut Cells<'_, '_>) -> Result<LockRow> {
    let (key, token, owner) = (cells.text()?, Token(cells.get()?), cells.maybe_text()?);
    let (acquired_at, expires_at) = (cells.maybe_time()?, cells.maybe_time()?);
    let holder = owner.map(|owner| Holder {
        owner,
        acquired_at: acquired_at.unwrap_or_default(),
        expires_at: expires_at.unwrap_or_default(),
        session: None,
    });
    Ok(LockRow { key, token, holder, forget_at: cells.time()? })
}

/// The hour of a time.
pub(crate) fn hour(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(3_600_000_000)
}

impl Table for LockRow {
    fn get(db: Db<'_, '_>, ns: i64, key: &String) -> Result<Option<Self>> {
        db.first(sql!("lock_get"), params![ns, key], read)
    }

    fn put(&self, db: Db<'_, '_>, ns: i64, before: Option<&Self>) -> Result<()> {
        let holder = self.holder.as_ref();
        let hour = hour(self.forget_at);
        let (owner, acquired_at, expires_at, forget_at) = (
            holder.map(|holder| holder.owner.as_str()),
            holder.map(|holder| holder.acquired_at.as_micros()),
            holder.map(|holder| holder.expires_at.as_micros()),
            self.forget_at.as_micros(),
        );
        let params = params![ns, self.key, self.token.0, owner, acquired_at, expires_at, forget_at, hour];
        if before.is_some_and(|before| self::hour(before.forget_at) == hour) {
            db.run(sql!("lock_update"), &params[..7]).map(drop)
        } else {
            db.run(sql!("lock_put"), params).map(drop)
        }
    }

    fn delete(&self, db: Db<'_, '_>, ns: i64) -> Result<()> {
        db.run(sql!("lock_delete"), params![ns, self.key]).map(drop)
    }
}

/// Some locks by their keys, if they are held.
pub(crate) fn list(db: Db<'_, '_>, ns: i64, keys: Keys<'_>, now: Timestamp) -> Result<Vec<Lock>> {
    db.keyed(sql!("lock_list"), ns, keys, |cells| {
        let row = read(cells)?;
        let held = row.held(now);
        Ok((row.key, held))
    })
}
