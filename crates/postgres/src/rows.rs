//! Rows in tables: reading and writing what plans load and leave, a statement for all rows of a kind. Each noun's
//! file says how its rows look; here is what they have in common.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use statehold_core::plan::{Kept, Rows};
use statehold_core::row::Change;
use tokio_postgres::Row;

use crate::connection::{Call, Hold, Reading};
use crate::error::Result;
use crate::known::Versions;
use crate::values::{Cells, Param, column, param};

/// A kind of row with a table.
pub(crate) trait Table: Kept {
    /// Reads rows by their keys.
    const GET: Reading;
    /// Writes new rows.
    const INSERT: &'static str;
    /// Writes rows that are there.
    const UPDATE: &'static str;
    /// Removes rows.
    const DELETE: &'static str;

    /// Write rows that are there and of which only some columns differ, which are the most frequent changes; those that
    /// write least come first.
    const PARTS: &'static [Part<Self>] = &[];

    /// Writes new rows that have nothing in most columns yet, which most new rows are.
    const INSERT_PLAIN: &'static str = Self::INSERT;

    /// Whether a new row is such a one.
    fn is_plain(&self) -> bool {
        false
    }

    /// The columns of such rows.
    fn plain(rows: &[&Self]) -> Vec<Param> {
        Self::columns(rows)
    }

    /// The columns of keys.
    fn keys(keys: &[&Self::Key]) -> Vec<Param>;
    /// All columns of rows, those of their keys first.
    fn columns(rows: &[&Self]) -> Vec<Param>;
    /// Reads a row, from its first column to its last.
    fn read(cells: &mut Cells<'_>) -> Result<Self>;
}

/// A statement that writes some columns of rows that are there.
pub(crate) struct Part<R> {
    pub(crate) sql: &'static str,
    /// Whether two rows differ in no others.
    pub(crate) is_enough: fn(&R, &R) -> bool,
    /// The columns, those of the keys first.
    pub(crate) columns: fn(&[&R]) -> Vec<Param>,
}

/// All rows that a statement answers.
pub(crate) fn read_all<'r, T>(rows: &'r [Row], read: impl Fn(&mut Cells<'r>) -> Result<T>) -> Result<Vec<T>> {
    rows.iter().map(|row| read(&mut Cells::new(row))).collect()
}

/// The first row that a statement answers.
pub(crate) fn read_first<'r, T>(
    rows: &'r [Row],
    read: impl FnOnce(&mut Cells<'r>) -> Result<T>,
) -> Result<Option<T>> {
    rows.first().map(|row| read(&mut Cells::new(row))).transpose()
}

/// The number of a namespace and the columns after it.
fn within(ns: i64, columns: Vec<Param>) -> Vec<Param> {
    let mut params = vec![param(ns)];
    params.extend(columns);
    params
}

/// Reads rows by their keys.
pub(crate) fn get<R: Table>(ns: i64, keys: &[&R::Key], hold: Hold) -> Call {
    Call::new(R::GET.holding(hold), within(ns, R::keys(keys)))
}

/// What is done with the rows of a statement.
type Then = Box<dyn FnOnce(&[Row], &mut Rows) -> Result<()> + Send>;

/// Statements to send in one go, and what is done with their rows.
#[derive(Default)]
pub(crate) struct Loading {
    pub(crate) calls: Vec<Call>,
    then: Vec<Then>,
}

impl Loading {
    /// Sends a statement and does something with its rows.
    pub(crate) fn add(
        &mut self,
        call: Call,
        then: impl FnOnce(&[Row], &mut Rows) -> Result<()> + Send + 'static,
    ) {
        self.calls.push(call);
        self.then.push(Box::new(then));
    }

    /// Loads rows by their keys; those that are not found are absent.
    pub(crate) fn rows<R: Table>(&mut self, ns: i64, keys: BTreeSet<R::Key>, hold: Hold) {
        if keys.is_empty() {
            return;
        }
        let call = get::<R>(ns, &keys.iter().collect::<Vec<_>>(), hold);
        self.add(call, move |found, rows| {
            load_found::<R>(found, rows)?;
            for key in keys {
                rows.load::<R>(key, None);
            }
            Ok(())
        });
    }

    /// Takes in what the statements answered.
    pub(crate) fn finish(self, answers: &[Vec<Row>], rows: &mut Rows) -> Result<()> {
        self.then.into_iter().zip(answers).try_for_each(|(then, answer)| then(answer, rows))
    }
}

/// Loads rows that a statement answered; answers their keys.
pub(crate) fn load_found<R: Table>(found: &[Row], rows: &mut Rows) -> Result<Vec<R::Key>> {
    let load = |row: R| {
        let key = row.key();
        rows.load(key.clone(), Some(Arc::new(row)));
        key
    };
    Ok(read_all(found, R::read)?.into_iter().map(load).collect())
}

/// What became of the rows of a kind over several plans: as each was stored, and as it is to be.
pub(crate) struct Changes<R: Table>(BTreeMap<R::Key, (Stored<R>, Stored<R>)>);

/// A row that may be missing.
type Stored<R> = Option<Arc<R>>;

impl<R: Table> Default for Changes<R> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<R: Table> Changes<R> {
    /// Adds what one plan changed.
    pub(crate) fn add(&mut self, changes: Vec<Change<R>>) {
        for Change { key, before, after } in changes {
            self.0.entry(key).or_insert((before, None)).1 = after;
        }
    }

    /// Forgets what happened to some rows.
    pub(crate) fn forget(&mut self, gone: impl Fn(&R::Key) -> bool) {
        self.0.retain(|key, _| !gone(key));
    }

    /// Says that some rows are no longer stored.
    pub(crate) fn unstore(&mut self, gone: impl Fn(&R::Key) -> bool) {
        self.0.iter_mut().filter(|(key, _)| gone(key)).for_each(|(_, (before, _))| *before = None);
    }

    /// How many rows change.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The keys of rows that change.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &R::Key> {
        self.0.keys()
    }

    /// Rows that were there, as they were and as they are to be.
    pub(crate) fn both(&self) -> impl Iterator<Item = (&R, Option<&R>)> {
        self.0.values().filter_map(|(before, after)| Some((before.as_deref()?, after.as_deref())))
    }

    /// Rows as they are to be.
    pub(crate) fn left(&self) -> impl Iterator<Item = &Arc<R>> {
        self.0.values().filter_map(|(_, after)| after.as_ref())
    }

    /// How many rows that were there change.
    pub(crate) fn changed(&self) -> usize {
        self.0.values().filter(|(before, after)| before.is_some() && before != after).count()
    }

    /// Whether rows with these keys are new.
    pub(crate) fn make(&self, keys: &BTreeSet<R::Key>) -> bool {
        keys.iter()
            .all(|key| self.0.get(key).is_some_and(|(before, after)| before.is_none() && after.is_some()))
    }

    /// Rows that are new.
    pub(crate) fn new_rows(&self) -> Vec<&R> {
        let new = self.0.values().filter(|(before, _)| before.is_none());
        new.filter_map(|(_, after)| after.as_deref()).collect()
    }

    /// The keys of rows that go.
    pub(crate) fn gone(&self) -> Vec<&R::Key> {
        let gone = self.0.iter().filter(|(_, (before, after))| before.is_some() && after.is_none());
        gone.map(|(key, _)| key).collect()
    }

    /// The statements that write them. Rows that are not held are as the transactions left them that are given for them, or
    /// the statements fail.
    pub(crate) fn write<'a>(&'a self, ns: i64, versions: Option<&Versions<R>>, writing: &mut Writing) {
        let change = |sql, columns, keys: Vec<R::Key>| {
            let call = Call::writing(sql, within(ns, columns));
            let left_by = |versions: &Versions<R>| column(&keys, |key| versions.get(key).copied());
            let call = if let Some(versions) = versions { call.left_by(left_by(versions)) } else { call };
            call.touching(keys.len())
        };
        let gone = self.gone();
        if !gone.is_empty() {
            let keys = gone.iter().map(|key| (*key).clone()).collect();
            writing.calls.push(change(R::DELETE, R::keys(&gone), keys));
        }
        let changed = self.0.values().filter_map(|(before, after)| before.as_deref().zip(after.as_deref()));
        let mut changed: Vec<_> = changed.filter(|(before, after)| before != after).collect();
        let after =
            |changed: Vec<(_, &'a R)>| -> Vec<_> { changed.into_iter().map(|(_, row)| row).collect() };
        let keys = |rows: &[&R]| -> Vec<R::Key> { rows.iter().map(|row| row.key()).collect() };
        for part in R::PARTS {
            let (fit, others) =
                changed.into_iter().partition::<Vec<_>, _>(|(before, after)| (part.is_enough)(before, after));
            changed = others;
            if !fit.is_empty() {
                let rows = after(fit);
                writing.calls.push(change(part.sql, (part.columns)(&rows), keys(&rows)));
            }
        }
        if !changed.is_empty() {
            let rows = after(changed);
            writing.calls.push(change(R::UPDATE, R::columns(&rows), keys(&rows)));
        }
        let (plain, new): (Vec<_>, Vec<_>) = self.new_rows().into_iter().partition(|row| row.is_plain());
        if !plain.is_empty() {
            writing.insert(R::INSERT_PLAIN, within(ns, R::plain(&plain)));
        }
        if !new.is_empty() {
            writing.insert(R::INSERT, within(ns, R::columns(&new)));
        }
    }
}

/// Statements that write.
#[derive(Default)]
pub(crate) struct Writing {
    pub(crate) calls: Vec<Call>,
}

impl Writing {
    /// A statement that makes rows: all of them, or it fails.
    pub(crate) fn insert(&mut self, sql: &'static str, params: Vec<Param>) {
        self.calls.push(Call::writing(sql, params));
    }

    /// A statement that may touch any number of rows.
    pub(crate) fn any(&mut self, sql: &'static str, params: Vec<Param>) {
        self.calls.push(Call::new(sql, params));
    }
}
