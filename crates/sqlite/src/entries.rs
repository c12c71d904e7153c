//! Entries.

use rusqlite::{Result, params};
use statehold_core::Timestamp;
use statehold_core::model::Entry;

use crate::rows::{Cells, Keys, Table};
use crate::statements::{Db, sql};

pub(crate) fn read(cells: &mut Cells<'_, '_>) -> Result<Entry> {
    Ok(Entry { key: cells.text()?, set_at: cells.time()?, expires_at: cells.time()?, value: cells.json()? })
}

/// The minute of a time.
pub(crate) fn minute(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(60_000_000)
}

impl Table for Entry {
    fn get(db: Db<'_, '_>, ns: i64, key: &String) -> Result<Option<Self>> {
        db.first(sql!("entry_get"), params![ns, key], read)
    }

    fn put(&self, db: Db<'_, '_>, ns: i64, before: Option<&Self>) -> Result<()> {
        let (set_at, expires_at, value) =
            (self.set_at.as_micros(), self.expires_at.as_micros(), self.value.as_str());
        let minute = minute(self.expires_at);
        let params = params![ns, self.key, set_at, expires_at, value, minute];
        if before.is_some_and(|before| self::minute(before.expires_at) == minute) {
            db.run(sql!("entry_update"), &params[..5]).map(drop)
        } else {
            db.run(sql!("entry_put"), params).map(drop)
        }
    }

    fn delete(&self, db: Db<'_, '_>, ns: i64) -> Result<()> {
        db.run(sql!("entry_delete"), params![ns, self.key]).map(drop)
    }
}

/// Some entries by their keys; none for those that have expired.
pub(crate) fn list(db: Db<'_, '_>, ns: i64, keys: Keys<'_>, now: Timestamp) -> Result<Vec<Entry>> {
    db.keyed(sql!("entry_list"), ns, keys, |cells| {
        let entry = read(cells)?;
        Ok((entry.key.clone(), Some(entry).filter(|entry| entry.expires_at > now)))
    })
}
