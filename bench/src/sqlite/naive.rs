//! The naive way: a pool of connections, and for each call a thread that may block, with one statement or one
//! transaction.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use rusqlite::Connection;
use statehold_core::{Error, Result};
use tokio::sync::Semaphore;

use super::rows::{self, Cached, Clock};
use super::{File, broken, fill, mark, trace};
use crate::rival::{Answer, Engine, Job, Query, Trace};

/// How many connections there are.
const CONNECTIONS: usize = 16;

/// What a careful engineer writes first.
pub(super) struct Naive {
    pool: Arc<Pool>,
    /// Removed after the connections are closed.
    _file: File,
}

struct Pool {
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

impl Naive {
    pub(super) fn open(file: File) -> Result<Self> {
        let idle: Result<_> = (0..CONNECTIONS).map(|_| file.connect()).collect();
        let permits = Arc::new(Semaphore::new(CONNECTIONS));
        let pool = Pool { idle: Mutex::new(idle?), permits };
        Ok(Self { pool: Arc::new(pool), _file: file })
    }

    /// Runs something with a connection of the pool on a thread that may block.
    async fn with<T: Send + 'static>(
        &self,
        run: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let gone = |_| Error::unavailable("the naive pool is closed");
        let permit = Arc::clone(&self.pool.permits).acquire_owned().await.map_err(gone)?;
        let pool = Arc::clone(&self.pool);
        let ran = tokio::task::spawn_blocking(move || {
            let taken = pool.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = taken.ok_or_else(|| Error::unavailable("the naive pool is empty"))?;
            let answer = run(&connection).map_err(broken);
            pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            drop(permit);
            answer
        });
        ran.await.map_err(|e| Error::unavailable("a naive call did not end").caused_by(e))?
    }
}

#[async_trait]
impl Engine for Naive {
    async fn write(&self, job: Job) -> Result<Answer> {
        self.with(move |connection| {
            let mut cached = Cached::new(connection);
            if rows::is_one_statement(&job) {
                return rows::perform(&mut cached, &job, Clock::now());
            }
            connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            let answer = rows::perform(&mut cached, &job, Clock::now());
            let end = if answer.is_ok() { "COMMIT" } else { "ROLLBACK" };
            connection.prepare_cached(end)?.execute([])?;
            answer
        })
        .await
    }

    async fn read(&self, query: Query) -> Result<usize> {
        self.with(move |connection| rows::read(connection, &query)).await
    }

    async fn fill(&self, jobs: Vec<Job>) -> Result<Vec<Answer>> {
        self.with(move |connection| if jobs.is_empty() { Ok(Vec::new()) } else { fill(connection, &jobs) })
            .await
    }

    async fn mark(&self) -> Result<i64> {
        self.with(mark).await
    }

    async fn trace(&self, what: Trace) -> Result<u64> {
        self.with(move |connection| trace(connection, &what)).await
    }
}
