//! Rows in tables: reading and writing what plans load and leave. Each noun's file says how its rows look;
//! here is what they have in common.

use std::sync::Arc;

use rusqlite::types::{FromSqlError, ToSqlOutput, Type, ValueRef};
use rusqlite::{Params, Result, Row, ToSql};
use serde::Serialize;
use serde::de::DeserializeOwned;
use statehold_core::model::TaskId;
use statehold_core::plan::{Kept, Rows};
use statehold_core::row::{Change, RequestHash};
use statehold_core::{Json, Seconds, Timestamp};

use crate::statements::{Db, Sql, sql};
use crate::streams::Origin;

impl Db<'_, '_> {
    /// Runs a statement that answers nothing.
    pub(crate) fn run(self, sql: Sql, params: impl Params) -> Result<usize> {
        self.statement(sql)?.execute(params)
    }

    /// The first row that a statement answers.
    pub(crate) fn first<T>(
        self,
        sql: Sql,
        params: impl Params,
        read: impl FnOnce(&mut Cells<'_, '_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut statement = self.statement(sql)?;
        let mut rows = statement.query(params)?;
        rows.next()?.map(|row| read(&mut Cells::new(row))).transpose()
    }

    /// Reads rows until there are no more or `each` has had enough.
    pub(crate) fn each(
        self,
        sql: Sql,
        params: impl Params,
        mut each: impl FnMut(&mut Cells<'_, '_>) -> Result<More>,
    ) -> Result<()> {
        let mut statement = self.statement(sql)?;
        let mut rows = statement.query(params)?;
        while let Some(row) = rows.next()? {
            if each(&mut Cells::new(row))? == More::Enough {
                break;
            }
        }
        Ok(())
    }

    /// All rows that a statement answers.
    pub(crate) fn all<T>(
        self,
        sql: Sql,
        params: impl Params,
        mut read: impl FnMut(&mut Cells<'_, '_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut all = Vec::new();
        self.each(sql, params, |cells| {
            all.push(read(cells)?);
            Ok(More::Please)
        })?;
        Ok(all)
    }

    /// The first rows by their keys. What is read of each is its key, and what is to be listed of it, if anything.
    pub(crate) fn keyed<T>(
        self,
        sql: Sql,
        ns: i64,
        keys: Keys<'_>,
        mut read: impl FnMut(&mut Cells<'_, '_>) -> Result<(String, Option<T>)>,
    ) -> Result<Vec<T>> {
        let mut listed = Vec::new();
        self.each(sql, rusqlite::params![ns, keys.after, keys.prefix], |cells| {
            let (key, row) = read(cells)?;
            if !key.starts_with(keys.prefix) {
                return Ok(More::Enough);
            }
            listed.extend(row);
            Ok(if listed.len() == keys.limit { More::Enough } else { More::Please })
        })?;
        Ok(listed)
    }

    /// The number of a namespace, that of its last position, and where its positions begin.
    pub(crate) fn namespace(self, name: &str) -> Result<Option<(i64, u64, Origin)>> {
        self.first(sql!("namespace_get"), [name], |cells| {
            let (ns, position) = (cells.get()?, cells.get()?);
            Ok((ns, position, Origin { loaded: cells.get()?, ahead: cells.get()? }))
        })
    }
}

/// Whether to go on reading.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum More {
    Please,
    Enough,
}

/// The columns of a row, read from left to right.
pub(crate) struct Cells<'r, 's> {
    row: &'r Row<'s>,
    next: usize,
}

impl<'r, 's> Cells<'r, 's> {
    pub(crate) fn new(row: &'r Row<'s>) -> Self {
        Self { row, next: 0 }
    }

    fn cell(&mut self) -> Result<ValueRef<'r>> {
        let cell = self.row.get_ref(self.next)?;
        self.next += 1;
        Ok(cell)
    }

    /// Passes over a column.
    pub(crate) fn skip(&mut self) {
        self.next += 1;
    }

    /// A number or a flag, or one that may be missing.
    pub(crate) fn get<T: rusqlite::types::FromSql>(&mut self) -> Result<T> {
        let value = self.row.get(self.next);
        self.next += 1;
        value
    }

    fn wrong(&self, problem: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> rusqlite::Error {
        rusqlite::Error::FromSqlConversionFailure(self.next - 1, Type::Text, problem.into())
    }

    /// A text that may be missing.
    pub(crate) fn maybe_str(&mut self) -> Result<Option<&'r str>> {
        let cell = self.cell()?;
        cell.as_str_or_null().map_err(|problem| self.wrong(problem))
    }

    /// A text.
    pub(crate) fn str(&mut self) -> Result<&'r str> {
        self.maybe_str()?.ok_or_else(|| self.wrong(FromSqlError::InvalidType))
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        self.str().map(str::to_owned)
    }

    pub(crate) fn maybe_text(&mut self) -> Result<Option<String>> {
        Ok(self.maybe_str()?.map(str::to_owned))
    }

    /// A text that a type is read from.
    pub(crate) fn parse<T: std::str::FromStr>(&mut self) -> Result<T>
    where
        T::Err: std::fmt::Display,
    {
        let text = self.str()?;
        text.parse().map_err(|problem: T::Err| self.wrong(problem.to_string()))
    }

    pub(crate) fn id(&mut self) -> Result<TaskId> {
        self.parse()
    }

    pub(crate) fn maybe_id(&mut self) -> Result<Option<TaskId>> {
        let text = self.maybe_str()?;
        text.map(|text| text.parse().map_err(|problem| self.wrong(problem))).transpose()
    }

    pub(crate) fn time(&mut self) -> Result<Timestamp> {
        self.get().map(Timestamp::from_micros)
    }

    pub(crate) fn maybe_time(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.get::<Option<i64>>()?.map(Timestamp::from_micros))
    }

    pub(crate) fn maybe_length(&mut self) -> Result<Option<Seconds>> {
        Ok(self.get::<Option<u64>>()?.map(Seconds::from_micros))
    }

    /// A user's JSON.
    pub(crate) fn json(&mut self) -> Result<Json> {
        self.str().map(Json::stored)
    }

    pub(crate) fn maybe_json(&mut self) -> Result<Option<Json>> {
        Ok(self.maybe_str()?.map(Json::stored))
    }

    /// A value that is kept as JSON; its default where nothing is kept.
    pub(crate) fn value<T: DeserializeOwned + Default>(&mut self) -> Result<T> {
        match self.maybe_str()? {
            Some(text) => serde_json::from_str(text).map_err(|problem| self.wrong(problem)),
            None => Ok(T::default()),
        }
    }

    pub(crate) fn blob(&mut self) -> Result<Option<&'r [u8]>> {
        let cell = self.cell()?;
        cell.as_blob_or_null().map_err(|problem| self.wrong(problem))
    }

    pub(crate) fn request(&mut self) -> Result<RequestHash> {
        let hash = self.blob()?.and_then(|bytes| bytes.try_into().ok()).map(RequestHash::from_bytes);
        hash.ok_or_else(|| self.wrong(FromSqlError::InvalidType))
    }
}

/// An id as text, without an allocation.
pub(crate) struct IdText([u8; 36]);

/// The text of an id.
pub(crate) fn id(id: TaskId) -> IdText {
    let mut text = [0; 36];
    id.0.hyphenated().encode_lower(&mut text);
    IdText(text)
}

impl ToSql for IdText {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(&self.0)))
    }
}

pub(crate) fn micros(at: Option<Timestamp>) -> Option<i64> {
    at.map(Timestamp::as_micros)
}

pub(crate) fn length(length: Option<Seconds>) -> Option<u64> {
    length.map(Seconds::as_micros)
}

pub(crate) fn text(json: Option<&Json>) -> Option<&str> {
    json.map(Json::as_str)
}

/// A value as JSON, unless it is the default.
pub(crate) fn value<T: Serialize + Default + PartialEq>(value: &T) -> Option<String> {
    if *value == T::default() { None } else { serde_json::to_string(value).ok() }
}

/// Which keys are listed: the first ones after a key, that begin with a prefix.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'k> {
    pub(crate) prefix: &'k str,
    pub(crate) after: &'k str,
    pub(crate) limit: usize,
}

/// A kind of row with a table.
pub(crate) trait Table: Kept {
    /// Reads a row by its key.
    fn get(db: Db<'_, '_>, ns: i64, key: &Self::Key) -> Result<Option<Self>>;
    /// Writes a row, of which `before` is what the table has.
    fn put(&self, db: Db<'_, '_>, ns: i64, before: Option<&Self>) -> Result<()>;
    /// Removes a row.
    fn delete(&self, db: Db<'_, '_>, ns: i64) -> Result<()>;
}

/// Loads rows by their keys.
pub(crate) fn load<R: Table>(
    db: Db<'_, '_>,
    ns: i64,
    keys: impl IntoIterator<Item = R::Key>,
    rows: &mut Rows,
) -> Result<()> {
    for key in keys {
        let row = R::get(db, ns, &key)?.map(Arc::new);
        rows.load(key, row);
    }
    Ok(())
}

/// Stores changed rows.
pub(crate) fn store<R: Table>(db: Db<'_, '_>, ns: i64, changes: &[Change<R>]) -> Result<()> {
    for change in changes {
        match (&change.before, &change.after) {
            (before, Some(after)) => after.put(db, ns, before.as_deref())?,
            (Some(before), None) => before.delete(db, ns)?,
            (None, None) => {}
        }
    }
    Ok(())
}
