//! Entries.

use rusqlite::{Result, params};
use statehold_core::Timestamp;
use statehold_core::model::Entry;

use crate::rows::{Cells, More, Table};
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

/// The first entries after a key that begin with a prefix and have not expired.
pub(crate) fn list(
    db: Db<'_, '_>,
    ns: i64,
    prefix: &str,
    after: &str,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    db.each(sql!("entry_list"), params![ns, after, prefix], |cells| {
        let entry = read(cells)?;
        if !entry.key.starts_with(prefix) {
            return Ok(More::Enough);
        }
        if entry.expires_at > now {
            entries.push(entry);
        }
        Ok(if entries.len() == limit { More::Enough } else { More::Please })
    })?;
    Ok(entries)
}
