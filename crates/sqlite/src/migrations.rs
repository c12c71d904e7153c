//! The schema, step by step. Each step runs in a transaction of its own that looks first what is there, so that
//! processes that start at once do not meet.

use rusqlite::{Connection, OptionalExtension as _, params};
use statehold_core::backend::Migration;
use statehold_core::{Error, Result, Timestamp};

use crate::{error, open};

/// The steps, in order; the version of the schema is how many there are.
const STEPS: &[(&str, &str)] = &[("initial", include_str!("../migrations/0001_initial.sql"))];

const VERSIONS: &str = "CREATE TABLE IF NOT EXISTS schema_versions (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    -- Microseconds since 1970.
    applied_at INTEGER NOT NULL
) STRICT";

/// The version that this release knows.
pub(crate) fn latest() -> u32 {
    u32::try_from(STEPS.len()).unwrap_or(u32::MAX)
}

/// The version that a file has; 0 if it is empty.
pub(crate) fn version(connection: &Connection) -> rusqlite::Result<u32> {
    let named = "SELECT 1 FROM sqlite_schema WHERE name = 'schema_versions'";
    if connection.query_row(named, [], |_| Ok(())).optional()?.is_none() {
        return Ok(0);
    }
    let highest = "SELECT coalesce(max(version), 0) FROM schema_versions";
    connection.query_row(highest, [], |row| row.get(0))
}

/// Refuses a file of a later release.
pub(crate) fn check_known(connection: &Connection) -> Result<()> {
    let (found, latest) = (version(connection).map_err(error::from)?, latest());
    if found <= latest {
        return Ok(());
    }
    let message = format!("the database has schema version {found}; this release knows {latest}");
    Err(Error::unsupported(message)
        .hint("run the release that wrote it, or a later one; nothing was changed"))
}

/// Brings a file up to date.
pub(crate) fn run(connection: &Connection, allowed: bool, now: Timestamp) -> Result<Migration> {
    run_steps(connection, STEPS, allowed, now)
}

fn run_steps(
    connection: &Connection,
    steps: &[(&str, &str)],
    allowed: bool,
    now: Timestamp,
) -> Result<Migration> {
    let from = version(connection).map_err(error::from)?;
    if from > 0 && (from as usize) < steps.len() && !allowed {
        let message = format!("the database has schema version {from}; this release needs {}", steps.len());
        return Err(Error::unsupported(message).hint("run `statehold migrate`"));
    }
    let mut done = Vec::new();
    for (number, (name, sql)) in (1..).zip(steps) {
        if number > from && step(connection, number, name, sql, now).map_err(error::from)? {
            done.push((*name).to_owned());
        }
    }
    let to = version(connection).map_err(error::from)?;
    Ok(Migration { from, to, steps: done })
}

/// Takes one step, unless another process has; true if it was this one.
fn step(
    connection: &Connection,
    number: u32,
    name: &str,
    sql: &str,
    now: Timestamp,
) -> rusqlite::Result<bool> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let taken = (|| {
        if version(connection)? >= number {
            return Ok(false);
        }
        connection.execute_batch(VERSIONS)?;
        connection.execute_batch(sql)?;
        let note = "INSERT INTO schema_versions (version, name, applied_at) VALUES (?1, ?2, ?3)";
        connection.execute(note, params![number, name, now.as_micros()])?;
        open::mark(connection)?;
        Ok(true)
    })();
    match taken {
        Ok(taken) => connection.execute_batch("COMMIT").map(|()| taken),
        Err(problem) => {
            let _ = connection.execute_batch("ROLLBACK");
            Err(problem)
        }
    }
}
