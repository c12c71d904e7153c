//! A connection with every hard-coded statement prepared, and the values that go over it.

use std::error::Error as StdError;

use futures_util::future::try_join_all;
use statehold_core::{Error, Result};
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};
use tokio_postgres::{Client, Row, Statement};

macro_rules! statements {
    ($($name:ident: $file:literal),* $(,)?) => {
        /// A statement in `sql/postgres`.
        #[derive(Clone, Copy, Debug)]
        pub(super) enum Sql { $($name),* }

        impl Sql {
            const ALL: &[Self] = &[$(Self::$name),*];

            const fn text(self) -> &'static str {
                match self { $(Self::$name => include_str!(concat!("../../sql/postgres/", $file, ".sql"))),* }
            }
        }
    };
}

// Those with many rows have a plural in front.
statements! {
    Begin: "begin",
    Commit: "commit",
    DocumentGet: "document_get",
    DocumentPut: "document_put",
    DocumentUpdate: "document_update",
    DocumentsGet: "documents_get",
    DocumentsPut: "documents_put",
    DocumentsUpdate: "documents_update",
    EntriesGet: "entries_get",
    EntriesSet: "entries_set",
    EntryGet: "entry_get",
    EntrySet: "entry_set",
    EventInsert: "event_insert",
    EventsCount: "events_count",
    EventsLast: "events_last",
    HeadNext: "head_next",
    LockAcquire: "lock_acquire",
    LockRelease: "lock_release",
    LocksAcquire: "locks_acquire",
    LocksRelease: "locks_release",
    Rollback: "rollback",
    StreamsAppend: "streams_append",
    TaskComplete: "task_complete",
    TaskInsert: "task_insert",
    TaskReady: "task_ready",
    TaskStart: "task_start",
    TasksClaim: "tasks_claim",
    TasksComplete: "tasks_complete",
    TasksCount: "tasks_count",
    TasksCreate: "tasks_create",
    UpdatesCount: "updates_count",
}

/// A parameter of a statement.
pub(super) type Param<'a> = &'a (dyn ToSql + Sync);

/// What the driver answers.
pub(super) type Done<T> = std::result::Result<T, tokio_postgres::Error>;

/// A connection.
pub(super) struct Db {
    client: Client,
    statements: Vec<Statement>,
}

impl Db {
    /// Prepares everything.
    pub(super) async fn new(client: Client) -> Result<Self> {
        let prepared = try_join_all(Sql::ALL.iter().map(|sql| client.prepare(sql.text()))).await;
        let statements = prepared.map_err(broken)?;
        Ok(Self { client, statements })
    }

    /// The rows of a statement.
    pub(super) async fn query(&self, sql: Sql, params: &[Param<'_>]) -> Done<Vec<Row>> {
        self.client.query(&self.statements[sql as usize], params).await
    }

    /// The row of a statement that has one at most.
    pub(super) async fn first(&self, sql: Sql, params: &[Param<'_>]) -> Done<Option<Row>> {
        self.client.query_opt(&self.statements[sql as usize], params).await
    }

    /// How many rows a statement touched.
    pub(super) async fn execute(&self, sql: Sql, params: &[Param<'_>]) -> Done<u64> {
        self.client.execute(&self.statements[sql as usize], params).await
    }
}

/// What the driver says, as ours.
pub(super) fn broken(error: tokio_postgres::Error) -> Error {
    let told = error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string);
    Error::unavailable(format!("a rival's schema cannot be used: {told}")).caused_by(error)
}

/// The text of a JSON value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Json<'a>(pub(super) &'a str);

type Problem = Box<dyn StdError + Sync + Send>;

impl ToSql for Json<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> std::result::Result<IsNull, Problem> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    accepts!(JSON);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Json<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> std::result::Result<Self, Problem> {
        Ok(Self(std::str::from_utf8(raw)?))
    }

    accepts!(JSON);
}

/// A time, in the server's microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time(pub(super) i64);

impl<'a> FromSql<'a> for Time {
    fn from_sql(_: &Type, raw: &'a [u8]) -> std::result::Result<Self, Problem> {
        Ok(Self(i64::from_be_bytes(raw.try_into()?)))
    }

    accepts!(TIMESTAMPTZ);
}
