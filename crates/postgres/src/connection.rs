//! One connection: statements prepared once, and several of them sent in one go.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::try_join_all;
use statehold_core::Error;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, NoTls, Row, Statement};

use crate::config::Config;
use crate::error::{Result, Trouble};
use crate::values::{Param, limit, param};

/// The text of a statement in `sql/`.
macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!("../sql/", $name, ".sql"))
    };
}
pub(crate) use sql;

/// A statement that reads rows, in the ways of holding them.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) plain: &'static str,
    pub(crate) wait: &'static str,
    pub(crate) now: &'static str,
}

/// A statement in `sql/` that reads the rows of `t`.
macro_rules! reading {
    ($name:literal) => {
        crate::connection::Reading {
            plain: include_str!(concat!("../sql/", $name, ".sql")),
            wait: concat!(include_str!(concat!("../sql/", $name, ".sql")), "FOR UPDATE OF t"),
            now: concat!(include_str!(concat!("../sql/", $name, ".sql")), "FOR UPDATE OF t NOWAIT"),
        }
    };
}
pub(crate) use reading;

/// How rows are held that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Not at all.
    Not,
    /// Until the end of the transaction, as soon as they can be had.
    Wait,
    /// The same, but only if they can be had at once.
    Now,
}

impl Reading {
    pub(crate) fn holding(self, hold: Hold) -> &'static str {
        match hold {
            Hold::Not => self.plain,
            Hold::Wait => self.wait,
            Hold::Now => self.now,
        }
    }
}

/// A statement with its parameters.
pub(crate) struct Call {
    pub(crate) sql: &'static str,
    pub(crate) params: Vec<Param>,
    /// Whether the last parameter is how many rows it must touch.
    counted: bool,
}

impl Call {
    pub(crate) fn new(sql: &'static str, params: Vec<Param>) -> Self {
        Self { sql, params, counted: false }
    }

    pub(crate) fn bare(sql: &'static str) -> Self {
        Self::new(sql, Vec::new())
    }

    /// The statement fails if it touches another number of rows.
    pub(crate) fn touching(mut self, rows: usize) -> Self {
        self.params.push(param(limit(rows)));
        self.counted = true;
        self
    }

    /// The text to prepare.
    fn text(&self) -> Cow<'static, str> {
        if !self.counted {
            return Cow::Borrowed(self.sql);
        }
        let (sql, last) = (self.sql, self.params.len());
        Cow::Owned(format!("WITH w AS ({sql}\nRETURNING 1) SELECT touched(count(*), ${last}) FROM w"))
    }

    /// What it is known by once it is prepared.
    fn name(&self) -> (&'static str, bool) {
        (self.sql, self.counted)
    }

    fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.params.iter().map(|param| &**param as &(dyn ToSql + Sync)).collect()
    }
}

/// How long an answer may take; the server itself gives up before.
const ANSWER: Duration = Duration::from_secs(30);

/// What comes in time.
async fn in_time<T>(
    answer: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
) -> Result<T> {
    match timeout(ANSWER, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Trouble::Silence),
    }
}

/// One connection.
pub(crate) struct Connection {
    client: Client,
    prepared: Mutex<HashMap<(&'static str, bool), Statement>>,
}

/// How many statements are sent in one go; so few are certainly sent in their order.
const AT_ONCE: usize = 24;

/// What every connection is told when it begins.
const SETTINGS: &str = "SET synchronous_commit = on; SET lock_timeout = '10s'; SET statement_timeout = '25s'; \
    SET idle_in_transaction_session_timeout = '60s'; SET plan_cache_mode = auto; SET timezone = 'UTC'";

/// Connects; what the server says by itself goes to `said`.
pub(crate) async fn connect(
    config: &Config,
    mut said: impl FnMut(AsyncMessage) + Send + 'static,
) -> Result<Connection> {
    let (client, mut connection) = config.server.connect(NoTls).await?;
    // It ends when the client is dropped or the connection is lost, which the client then tells.
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            said(message);
        }
    });
    client.batch_execute(&format!("SET search_path = {}; {SETTINGS}", config.schema)).await?;
    Ok(Connection { client, prepared: Mutex::default() })
}

impl Connection {
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Runs statements without parameters, as they are.
    pub(crate) async fn batch(&self, sql: &str) -> Result<()> {
        Ok(self.client.batch_execute(sql).await?)
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn into_client(self) -> Client {
        self.client
    }

    fn known(&self, call: &Call) -> Option<Statement> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner).get(&call.name()).cloned()
    }

    /// Statements, each prepared once. All are there before the first is sent, so that they are sent in order.
    async fn prepare(&self, calls: &[Call]) -> Result<Vec<Statement>> {
        let missing: HashMap<_, _> = calls
            .iter()
            .filter(|call| self.known(call).is_none())
            .map(|call| (call.name(), call.text()))
            .collect();
        let preparing =
            missing.into_iter().map(async |(name, text)| Ok((name, self.client.prepare(&text).await?)));
        let prepared = in_time(try_join_all(preparing)).await?;
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner).extend(prepared);
        let found: Option<Vec<_>> = calls.iter().map(|call| self.known(call)).collect();
        found.ok_or_else(|| Error::unavailable("a statement was not prepared").into())
    }

    /// Sends statements in order in one go; answers the rows of each.
    pub(crate) async fn query_all(&self, calls: &[Call]) -> Result<Vec<Vec<Row>>> {
        let statements = self.prepare(calls).await?;
        let params: Vec<_> = calls.iter().map(Call::params).collect();
        let mut answers = Vec::with_capacity(calls.len());
        for (statements, params) in statements.chunks(AT_ONCE).zip(params.chunks(AT_ONCE)) {
            let sent = statements.iter().zip(params).map(|(sql, params)| self.client.query(sql, params));
            answers.append(&mut in_time(try_join_all(sent)).await?);
        }
        Ok(answers)
    }

    /// Sends statements in order in one go; answers how many rows each touched.
    pub(crate) async fn run_all(&self, calls: &[Call]) -> Result<Vec<u64>> {
        let statements = self.prepare(calls).await?;
        let params: Vec<_> = calls.iter().map(Call::params).collect();
        let mut counts = Vec::with_capacity(calls.len());
        for (statements, params) in statements.chunks(AT_ONCE).zip(params.chunks(AT_ONCE)) {
            let sent = statements.iter().zip(params).map(|(sql, params)| self.client.execute(sql, params));
            counts.append(&mut in_time(try_join_all(sent)).await?);
        }
        Ok(counts)
    }

    /// The rows of one statement.
    pub(crate) async fn query(&self, sql: &'static str, params: Vec<Param>) -> Result<Vec<Row>> {
        let mut rows = self.query_all(&[Call::new(sql, params)]).await?;
        Ok(rows.pop().unwrap_or_default())
    }

    /// Runs one statement.
    pub(crate) async fn run(&self, sql: &'static str, params: Vec<Param>) -> Result<u64> {
        let counts = self.run_all(&[Call::new(sql, params)]).await?;
        Ok(counts.first().copied().unwrap_or_default())
    }
}
