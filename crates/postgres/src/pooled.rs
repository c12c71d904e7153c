//! A connection behind a pooler that gives each transaction any session of the server, as `PgBouncer` does in its
//! transaction mode. Nothing can be kept in a session, neither settings nor statements: every transaction begins with
//! its settings, statements have no names, and what comes alone is a transaction too.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::try_join_all;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use crate::connection::{AT_ONCE, Call, Connection, Name, sql};
use crate::error::Result;

/// The statements that begin a transaction, and those that end one.
const BEGINNINGS: [&str; 2] = [sql!("begin"), sql!("begin_read")];
const ENDS: [&str; 2] = [sql!("commit"), sql!("rollback")];

/// What is remembered of a connection, outside of its session.
#[derive(Default)]
pub(crate) struct Pooled {
    settings: Mutex<String>,
    /// The types of the parameters of each statement, as the server told them.
    types: Mutex<HashMap<Name, Arc<[Type]>>>,
    /// Whether a transaction is open that someone else ends.
    open: AtomicBool,
}

/// A statement with the types of its parameters.
type Typed<'a> = (Cow<'static, str>, Vec<(&'a (dyn ToSql + Sync), Type)>);

impl Pooled {
    /// Settings for all transactions to come.
    pub(crate) fn set(&self, settings: &[impl AsRef<str>]) {
        let mut all = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        for setting in settings {
            all.extend(["; SET LOCAL ", setting.as_ref()]);
        }
    }

    /// Sends statements in order in one go; answers the rows of each.
    pub(crate) async fn query_all(&self, db: &Connection, calls: &[Call]) -> Result<Vec<Vec<Row>>> {
        let began = self.enter(db, calls).await?;
        let sent = self.query_rest(db, &calls[began..]).await;
        self.leave(db, calls, sent.is_ok()).await?;
        let mut answers = vec![Vec::new(); began];
        answers.append(&mut sent?);
        Ok(answers)
    }

    /// Sends statements in order in one go; answers how many rows each touched.
    pub(crate) async fn run_all(&self, db: &Connection, calls: &[Call]) -> Result<Vec<u64>> {
        let began = self.enter(db, calls).await?;
        let sent = self.run_rest(db, &calls[began..]).await;
        self.leave(db, calls, sent.is_ok()).await?;
        let mut counts = vec![0; began];
        counts.append(&mut sent?);
        Ok(counts)
    }

    /// Begins a transaction unless one is open; answers how many of the calls that was.
    async fn enter(&self, db: &Connection, calls: &[Call]) -> Result<usize> {
        let asked = calls.first().map(|call| call.sql).filter(|sql| BEGINNINGS.contains(sql));
        if asked.is_none() && self.open.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let begin = format!("{}{settings}", asked.unwrap_or(sql!("begin")));
        db.in_time(db.client().batch_execute(&begin)).await?;
        self.open.store(asked.is_some(), Ordering::Relaxed);
        Ok(usize::from(asked.is_some()))
    }

    /// Ends what was only begun for these calls.
    async fn leave(&self, db: &Connection, calls: &[Call], good: bool) -> Result<()> {
        let ended = calls.last().is_some_and(|call| ENDS.contains(&call.sql));
        if !self.open.load(Ordering::Relaxed) && !ended {
            let end = if good { sql!("commit") } else { sql!("rollback") };
            return db.in_time(db.client().batch_execute(end)).await;
        }
        self.open.fetch_and(!ended, Ordering::Relaxed);
        Ok(())
    }

    async fn query_rest(&self, db: &Connection, calls: &[Call]) -> Result<Vec<Vec<Row>>> {
        let (typed, mut answers) = (self.typed(db, calls).await?, Vec::with_capacity(calls.len()));
        for typed in typed.chunks(AT_ONCE) {
            let sent = typed.iter().map(|(sql, params)| db.client().query_typed(sql, params));
            answers.append(&mut db.in_time(try_join_all(sent)).await?);
        }
        Ok(answers)
    }

    async fn run_rest(&self, db: &Connection, calls: &[Call]) -> Result<Vec<u64>> {
        let (typed, mut counts) = (self.typed(db, calls).await?, Vec::with_capacity(calls.len()));
        for typed in typed.chunks(AT_ONCE) {
            let sent = typed.iter().map(|(sql, params)| db.client().execute_typed(sql, params));
            counts.append(&mut db.in_time(try_join_all(sent)).await?);
        }
        Ok(counts)
    }

    async fn typed<'a>(&self, db: &Connection, calls: &'a [Call]) -> Result<Vec<Typed<'a>>> {
        let mut all = Vec::with_capacity(calls.len());
        for call in calls {
            let types = self.types(db, call).await?;
            all.push((call.text(), call.params().zip(types.iter().cloned()).collect()));
        }
        Ok(all)
    }

    /// The types of a statement's parameters. The server is asked once, within a transaction: what is prepared for that
    /// is gone from its session before anyone else has it.
    async fn types(&self, db: &Connection, call: &Call) -> Result<Arc<[Type]>> {
        let known = self.types.lock().unwrap_or_else(PoisonError::into_inner).get(&call.name()).cloned();
        if let Some(types) = known {
            return Ok(types);
        }
        let statement = db.in_time(db.client().prepare(&call.text())).await?;
        let types: Arc<[Type]> = statement.params().into();
        self.types.lock().unwrap_or_else(PoisonError::into_inner).insert(call.name(), Arc::clone(&types));
        Ok(types)
    }
}
