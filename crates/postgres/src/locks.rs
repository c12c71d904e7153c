//! Locks.

use statehold_core::Timestamp;
use statehold_core::model::{Lock, Token};
use statehold_core::row::{Holder, LockRow};
use statehold_core::session::SessionId;

use crate::connection::{Connection, Reading, reading, sql};
use crate::error::Result;
use crate::readers::Keys;
use crate::rows::{Table, read_all};
use crate::values::{At, Cells, Param, column, param};

/// The hour of a time.
pub(crate) fn hour(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(3_600_000_000)
}

impl Table for LockRow {
    const GET: Reading = reading!("lock_get");
    const INSERT: &'static str = sql!("lock_insert");
    const UPDATE: &'static str = sql!("lock_update");
    const DELETE: &'static str = sql!("lock_delete");

    fn keys(keys: &[&String]) -> Vec<Param> {
        vec![column(keys, |key| (*key).clone())]
    }

    fn columns(rows: &[&Self]) -> Vec<Param> {
        vec![
            column(rows, |row| row.key.clone()),
            column(rows, |row| row.token.0),
            column(rows, |row| row.holder.as_ref().map(|holder| holder.owner.clone())),
            column(rows, |row| row.holder.as_ref().map(|holder| At(holder.acquired_at))),
            column(rows, |row| row.holder.as_ref().map(|holder| At(holder.expires_at))),
            column(rows, |row| {
                row.holder.as_ref().and_then(|holder| holder.session).map(|session| session.0)
            }),
            column(rows, |row| At(row.forget_at)),
            column(rows, |row| hour(row.forget_at)),
        ]
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        let (key, token, owner) = (cells.text()?, Token(cells.get()?), cells.maybe_text()?);
        let (acquired_at, expires_at) = (cells.maybe_time()?, cells.maybe_time()?);
        let session: Option<i64> = cells.get()?;
        let holder = owner.map(|owner| Holder {
            owner,
            acquired_at: acquired_at.unwrap_or_default(),
            expires_at: expires_at.unwrap_or_default(),
            session: session.map(SessionId),
        });
        Ok(Self { key, token, holder, forget_at: cells.time()? })
    }
}

/// Some locks by their keys that are held.
pub(crate) async fn list(db: &Connection, ns: i64, keys: &Keys, now: Timestamp) -> Result<Vec<Lock>> {
    let mut params = keys.params(ns);
    params.push(param(At(now)));
    let found = read_all(&db.query(sql!("lock_list"), params).await?, LockRow::read)?;
    Ok(found.into_iter().filter_map(|row| row.held(now)).collect())
}
