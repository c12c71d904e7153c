//! Rivals on `SQLite`: each with a file of its own beside ours, with the same settings.

mod limit;
mod log;
mod naive;
mod rows;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use statehold_core::{Error, Result};

use crate::rival::{Answer, Job, Rival, Trace};
use crate::store::{Rivals, beside};
use limit::Limit;
use naive::Naive;
use rows::{Cached, Clock};

/// What every connection is set to; ours has the same.
const PRAGMAS: &str = include_str!("../../sql/sqlite/pragmas.sql");
const SCHEMA: &str = include_str!("../../sql/sqlite/schema.sql");

/// How long a connection waits for another one's transaction.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn rivals(store: &Path) -> Result<Rivals> {
    let limit = Limit::open(File::create(beside(store, "limit"))?)?;
    let naive = Naive::open(File::create(beside(store, "naive"))?)?;
    Ok(Rivals { limit: Arc::new(Rival::new(limit)), naive: Arc::new(Rival::new(naive)) })
}

/// A rival's file, gone when this goes. Connections must go first.
struct File(PathBuf);

impl File {
    fn create(path: PathBuf) -> Result<Self> {
        let file = Self(path);
        file.remove();
        file.connect()?.execute_batch(SCHEMA).map_err(broken)?;
        Ok(file)
    }

    fn connect(&self) -> Result<Connection> {
        let connection = Connection::open(&self.0).map_err(broken)?;
        connection.busy_timeout(PATIENCE).map_err(broken)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(broken)?;
        connection.execute_batch(PRAGMAS).map_err(broken)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(connection)
    }

    fn remove(&self) {
        for suffix in ["", "-wal", "-shm"] {
            let mut path = self.0.clone().into_os_string();
            path.push(suffix);
            // What is not there need not be removed, and what cannot be is found when it is opened.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.remove();
    }
}

fn broken(error: rusqlite::Error) -> Error {
    Error::unavailable(format!("a rival's file cannot be used: {error}")).caused_by(error)
}

/// Does many jobs in one transaction.
fn fill(connection: &Connection, jobs: &[Job]) -> rusqlite::Result<Vec<Answer>> {
    let mut cached = Cached::new(connection);
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let answers: rusqlite::Result<Vec<_>> =
        jobs.iter().map(|job| rows::perform(&mut cached, job, Clock::now())).collect();
    connection.execute_batch(if answers.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    answers
}

fn mark(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT coalesce(max(rowid), 0) FROM tasks", [], |row| row.get(0))
}

fn trace(connection: &Connection, trace: &Trace) -> rusqlite::Result<u64> {
    let count: i64 = match trace {
        Trace::Tasks { queue, status, mark } => {
            let sql = include_str!("../../sql/sqlite/tasks_count.sql");
            connection.query_row(sql, (mark, queue.as_ref(), status), |row| row.get(0))
        }
        Trace::Events(prefix) => {
            let sql = include_str!("../../sql/sqlite/events_count.sql");
            connection.query_row(sql, (prefix,), |row| row.get(0))
        }
        Trace::Updates(prefix) => {
            let sql = include_str!("../../sql/sqlite/updates_count.sql");
            connection.query_row(sql, (prefix,), |row| row.get(0))
        }
    }?;
    Ok(count.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::Contender;
    use crate::ops::Op;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn both_rivals_do_every_operation_and_leave_their_traces() {
        let store = std::env::temp_dir().join(format!("statehold-bench-{}.db", std::process::id()));
        let rivals = rivals(&store).expect("the rivals open");
        for contender in [&rivals.limit, &rivals.naive] {
            for op in Op::ALL {
                every_call_leaves_a_trace(contender.as_ref(), op).await;
            }
        }
        drop(rivals);
        assert!(!beside(&store, "limit").exists() && !beside(&store, "naive").exists());
    }

    async fn every_call_leaves_a_trace(contender: &dyn Contender, op: Op) {
        let slice = contender.prepare(op, 2, 10).await.expect("it is prepared");
        let mut receipts = Vec::new();
        for number in 0..6 {
            receipts.push(slice.call(usize::from(number % 2 == 0), number).await.expect("it is done"));
        }
        assert!(slice.traces().await.expect("it is counted").is_none_or(|traces| traces == 6), "{op}");
        receipts.sort_unstable();
        receipts.dedup();
        assert!(!op.has_unique_receipts() || receipts.len() == 6, "{op}");
    }
}
