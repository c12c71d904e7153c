//! One connection: statements prepared once, and several of them sent in one go.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::try_join_all;
use statehold_core::Error;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Row, Statement};

use crate::config::Config;
use crate::dial::dial;
use crate::error::{Result, Trouble};
use crate::once::OnceName;
use crate::pooled::Pooled;
use crate::shape::{Numbers, Shapes, with_values};
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

/// What a statement is known by: where its text stands, whether it counts the rows that it touches, whether they must be as
/// certain transactions left them, and which columns are values.
pub(crate) type Name = (usize, bool, bool, Numbers);

/// A statement with its parameters.
pub(crate) struct Call {
    pub(crate) sql: &'static str,
    pub(crate) params: Vec<Param>,
    /// Whether it writes rows, and has a column for each of their values.
    writes: bool,
    /// Whether the last parameter is how many rows it must touch.
    counted: bool,
    /// The number of the parameter that says which transaction must have left each row as it is.
    versions: Option<usize>,
    /// The columns that are sent as one value.
    values: Numbers,
}

impl Call {
    pub(crate) fn new(sql: &'static str, params: Vec<Param>) -> Self {
        Self { sql, params, writes: false, counted: false, versions: None, values: Numbers::default() }
    }

    /// A statement that writes the rows whose values are in its columns.
    pub(crate) fn writing(sql: &'static str, params: Vec<Param>) -> Self {
        Self { writes: true, ..Self::new(sql, params) }
    }

    pub(crate) fn bare(sql: &'static str) -> Self {
        Self::new(sql, Vec::new())
    }

    /// The statement, which changes rows of `t` by those of `u`, passes over those that were left by another transaction than
    /// the one that is given for each.
    pub(crate) fn left_by(mut self, versions: Param) -> Self {
        self.params.push(versions);
        self.versions = Some(self.params.len());
        self
    }

    /// The statement fails if it touches another number of rows.
    pub(crate) fn touching(mut self, rows: usize) -> Self {
        self.params.push(param(limit(rows)));
        self.counted = true;
        self
    }

    pub(crate) fn is_counted(&self) -> bool {
        self.counted
    }

    /// Whether it makes rows.
    pub(crate) fn inserts(&self) -> bool {
        self.sql.contains("INSERT INTO")
    }

    /// The text to prepare.
    pub(crate) fn text(&self) -> Cow<'static, str> {
        let (sql, last) = (self.sql, self.params.len());
        if self.counted {
            let sql = self.part();
            return format!("WITH w AS ({sql}\nRETURNING 1) SELECT touched(count(*), ${last}) FROM w").into();
        }
        if self.writes {
            return self.part().into();
        }
        if !sql.contains('{') {
            return sql.into();
        }
        sql.replace("{task}", sql!("task_columns")).replace("{entered}", sql!("entered")).into()
    }

    /// The text of a statement that writes, as a part of another.
    pub(crate) fn part(&self) -> String {
        with_values(&self.with_arrays(), self.values)
    }

    /// The same with an array for each column.
    fn with_arrays(&self) -> Cow<'static, str> {
        match self.versions {
            Some(place) => {
                let version = format!(", unnest(${place}::integer[]) AS version\nOFFSET 0) u");
                format!("{}\nAND t.xmin = u.version", self.sql.replacen("OFFSET 0) u", &version, 1)).into()
            }
            None => self.sql.into(),
        }
    }

    /// Whether it writes one row.
    fn is_lone(&self) -> bool {
        self.params.iter().all(|param| !matches!(param, Param::Column(column, _) if column.len() != 1))
    }

    /// Chooses which columns are sent as one value.
    fn shape(&mut self, shapes: &mut Shapes, lone: bool) {
        let mut same = Numbers::default();
        for (number, param) in (1..).zip(&self.params) {
            if matches!(param, Param::Column(_, true)) {
                same = same.with(number);
            }
        }
        let (place, _, checked, _) = self.name();
        self.values = shapes.choose((place, checked), || self.with_arrays().into_owned(), lone, same);
    }

    /// What it is known by once it is prepared.
    pub(crate) fn name(&self) -> Name {
        (self.sql.as_ptr().addr(), self.counted, self.versions.is_some(), self.values)
    }

    pub(crate) fn params(&self) -> impl Iterator<Item = &(dyn ToSql + Sync)> {
        (1..).zip(&self.params).map(
            |(number, param)| {
                if self.values.has(number) { param.one() } else { param.value() }
            },
        )
    }
}

/// How much longer than the server works on a statement an answer may take.
const ON_THE_WAY: Duration = Duration::from_secs(5);

/// How many combinations of statements stay prepared: each costs the server memory, and there are thousands.
const MOST_ONCE: usize = 128;

/// Settings for statements that find everything by a key or in the order of an index. While tables are young the server knows
/// nothing of their size, and would keep plans that read them whole. Nor are plans made anew for each call, which takes longer
/// than what they are for.
pub(crate) const BY_KEY: &[&str] = &[
    "enable_seqscan = off",
    "enable_hashjoin = off",
    "enable_mergejoin = off",
    "enable_bitmapscan = off",
    "enable_material = off",
    "plan_cache_mode = force_generic_plan",
];

/// One connection.
pub(crate) struct Connection {
    client: Client,
    prepared: Mutex<HashMap<Name, Statement>>,
    /// Several as one.
    once: Mutex<HashMap<OnceName, Statement>>,
    shapes: Mutex<Shapes>,
    /// How long an answer may take; the server itself gives up before.
    patience: Duration,
    /// How it is used when nothing can be kept in its session.
    pooled: Option<Pooled>,
}

/// How many statements are sent in one go; so few are certainly sent in their order.
pub(crate) const AT_ONCE: usize = 24;

/// Connects; what the server says by itself goes to `said`.
pub(crate) async fn connect(
    config: &Config,
    mut said: impl FnMut(AsyncMessage) + Send + 'static,
) -> Result<Connection> {
    let (client, mut connection) = dial(config).await?;
    // It ends when the client is dropped or the connection is lost, which the client then tells.
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
            said(message);
        }
    });
    Connection::of(client, config).await
}

impl Connection {
    /// One that is open already.
    pub(crate) async fn of(client: Client, config: &Config) -> Result<Self> {
        let patience = config.statement_timeout + ON_THE_WAY;
        let pooled = config.pooled.then(Pooled::default);
        let (prepared, once, shapes) = Default::default();
        let connection = Self { client, prepared, once, shapes, patience, pooled };
        connection.set(&config.settings()).await?;
        Ok(connection)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// What comes in time.
    pub(crate) async fn in_time<T>(
        &self,
        answer: impl Future<Output = std::result::Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        match timeout(self.patience, answer).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Trouble::Silence),
        }
    }

    /// Changes settings for all that comes after.
    pub(crate) async fn set(&self, settings: &[impl AsRef<str> + Sync]) -> Result<()> {
        if let Some(pooled) = &self.pooled {
            pooled.set(settings);
            return Ok(());
        }
        let sets: Vec<_> = settings.iter().map(|setting| format!("SET {};", setting.as_ref())).collect();
        self.in_time(self.client.batch_execute(&sets.concat())).await
    }

    /// Lets the server make its plans anew, if it keeps any.
    pub(crate) async fn replan(&self) -> Result<()> {
        match &self.pooled {
            None => self.in_time(self.client.batch_execute("DISCARD PLANS")).await,
            Some(_) => Ok(()),
        }
    }

    /// How many statements it knows.
    pub(crate) fn statements(&self) -> usize {
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner).len();
        prepared + self.once.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(crate) fn is_pooled(&self) -> bool {
        self.pooled.is_some()
    }

    /// Chooses how statements that write are sent.
    pub(crate) fn shape(&self, calls: &mut [Call]) {
        let mut shapes = self.shapes.lock().unwrap_or_else(PoisonError::into_inner);
        // All of them or none, since combinations are prepared.
        let lone = calls.iter().all(Call::is_lone);
        calls.iter_mut().filter(|call| call.writes).for_each(|call| call.shape(&mut shapes, lone));
    }

    pub(crate) fn known_once(&self, name: &OnceName) -> Option<Statement> {
        self.once.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(crate) fn keep_once(&self, name: OnceName, statement: Statement) {
        let mut once = self.once.lock().unwrap_or_else(PoisonError::into_inner);
        if once.len() >= MOST_ONCE {
            once.clear();
        }
        once.insert(name, statement);
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
        let prepared = self.in_time(try_join_all(preparing)).await?;
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner).extend(prepared);
        let found: Option<Vec<_>> = calls.iter().map(|call| self.known(call)).collect();
        found.ok_or_else(|| Error::unavailable("a statement was not prepared").into())
    }

    /// Sends statements in order in one go; answers the rows of each.
    pub(crate) async fn query_all(&self, calls: &[Call]) -> Result<Vec<Vec<Row>>> {
        if let Some(pooled) = &self.pooled {
            return pooled.query_all(self, calls).await;
        }
        let statements = self.prepare(calls).await?;
        let params: Vec<Vec<_>> = calls.iter().map(|call| call.params().collect()).collect();
        let mut answers = Vec::with_capacity(calls.len());
        for (statements, params) in statements.chunks(AT_ONCE).zip(params.chunks(AT_ONCE)) {
            let sent = statements.iter().zip(params).map(|(sql, params)| self.client.query(sql, params));
            answers.append(&mut self.in_time(try_join_all(sent)).await?);
        }
        Ok(answers)
    }

    /// Sends statements in order in one go; answers how many rows each touched.
    pub(crate) async fn run_all(&self, calls: &[Call]) -> Result<Vec<u64>> {
        if let Some(pooled) = &self.pooled {
            return pooled.run_all(self, calls).await;
        }
        let statements = self.prepare(calls).await?;
        let params: Vec<Vec<_>> = calls.iter().map(|call| call.params().collect()).collect();
        let mut counts = Vec::with_capacity(calls.len());
        for (statements, params) in statements.chunks(AT_ONCE).zip(params.chunks(AT_ONCE)) {
            let sent = statements.iter().zip(params).map(|(sql, params)| self.client.execute(sql, params));
            counts.append(&mut self.in_time(try_join_all(sent)).await?);
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
