//! Entries.

use statehold_core::Timestamp;
use statehold_core::model::Entry;

use crate::connection::{Connection, Reading, reading, sql};
use crate::error::Result;
use crate::readers::Keys;
use crate::rows::{Table, read_all};
use crate::tasks::minute;
use crate::values::{At, Cells, Param, Text, column, param};

impl Table for Entry {
    const GET: Reading = reading!("entry_get");
    const INSERT: &'static str = sql!("entry_insert");
    const UPDATE: &'static str = sql!("entry_update");
    const DELETE: &'static str = sql!("entry_delete");

    fn keys(keys: &[&String]) -> Vec<Param> {
        vec![column(keys, |key| (*key).clone())]
    }

    fn columns(rows: &[&Self]) -> Vec<Param> {
        vec![
            column(rows, |row| row.key.clone()),
            column(rows, |row| At(row.set_at)),
            column(rows, |row| At(row.expires_at)),
            column(rows, |row| Text(row.value.as_str().to_owned())),
            column(rows, |row| minute(row.expires_at)),
        ]
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        Ok(Self {
            key: cells.text()?,
            set_at: cells.time()?,
            expires_at: cells.time()?,
            value: cells.json()?,
        })
    }
}

/// Some entries by their keys that have not expired.
pub(crate) async fn list(db: &Connection, ns: i64, keys: &Keys, now: Timestamp) -> Result<Vec<Entry>> {
    let mut params = keys.params(ns);
    params.push(param(At(now)));
    read_all(&db.query(sql!("entry_list"), params).await?, Entry::read)
}
