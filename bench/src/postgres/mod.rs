//! Rivals on PostgreSQL: each in a schema of its own beside ours, with the same settings.

mod batch;
mod db;
mod limit;
mod naive;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use statehold_core::{Error, Result};
use statehold_postgres::Config;
use uuid::Uuid;

use crate::ops::LONG_SECONDS;
use crate::rival::{Answer, Job, Rival, Trace};
use crate::store::Rivals;
use db::{Db, Sql, broken};
use limit::Limit;
use naive::Naive;

const SCHEMA: &str = include_str!("../../sql/postgres/schema.sql");
const INDEXES: &str = include_str!("../../sql/postgres/indexes.sql");

/// How many jobs are done at once before a slice.
const BULK: usize = 1000;

/// The hash of a request, as long as ours.
const REQUEST: &[u8] = &[7; 32];

pub(crate) async fn rivals(store: &Config, indexes: bool) -> Result<Rivals> {
    let limit = Limit::open(Schema::create(store, "limit", indexes).await?).await?;
    let naive = Naive::open(Schema::create(store, "naive", indexes).await?).await?;
    Ok(Rivals { limit: Arc::new(Rival::new(limit)), naive: Arc::new(Rival::new(naive)) })
}

/// A rival's schema, gone when this goes.
struct Schema(Config);

impl Schema {
    /// Makes it anew: what a run left that was killed goes.
    async fn create(store: &Config, rival: &str, indexes: bool) -> Result<Self> {
        let name = format!("{}_bench_{rival}", store.schema);
        let schema = Self(store.clone().with_schema(&name));
        let indexes = if indexes { INDEXES } else { "" };
        let made = format!("DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}; {SCHEMA}; {indexes}");
        schema.0.client().await?.batch_execute(&made).await.map_err(broken)?;
        Ok(schema)
    }

    /// A connection set like ours, and then some.
    async fn connect(&self, settings: &str) -> Result<Db> {
        let client = self.0.client().await?;
        client.batch_execute(settings).await.map_err(broken)?;
        Db::new(client).await
    }

    fn remove(&self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Error::unavailable("no runtime").caused_by(e))?;
        runtime.block_on(async {
            let remove = format!("DROP SCHEMA {} CASCADE", self.0.schema);
            self.0.client().await?.batch_execute(&remove).await.map_err(broken)
        })
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        // On a thread of its own, since this one may belong to a runtime. What stays is removed by the next run.
        std::thread::scope(|scope| drop(scope.spawn(|| self.remove()).join()));
    }
}

/// Microseconds since 1970.
#[derive(Clone, Copy, Debug)]
struct Clock(i64);

impl Clock {
    fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn micros(self) -> i64 {
        self.0
    }

    /// The minute in which what is taken now is over.
    fn last_minute(self) -> i64 {
        (self.0 / 1_000_000 + i64::try_from(LONG_SECONDS).unwrap_or(0)) / 60
    }
}

/// Does many jobs, many at once.
async fn fill(db: &Db, jobs: &[Job]) -> Result<Vec<Answer>> {
    let mut answers = Vec::with_capacity(jobs.len());
    for jobs in jobs.chunks(BULK) {
        answers.append(&mut batch::perform(db, jobs).await.map_err(broken)?);
    }
    Ok(answers)
}

/// Ids begin with the time.
fn mark() -> i64 {
    Clock::now().micros() / 1000
}

async fn trace(db: &Db, trace: &Trace) -> Result<u64> {
    let found = match trace {
        Trace::Tasks { queue, status, mark } => {
            let first = Uuid::from_u128(u128::from(mark.unsigned_abs()) << 80);
            db.first(Sql::TasksCount, &[&first, &&**queue, status]).await
        }
        Trace::Events(prefix) => db.first(Sql::EventsCount, &[prefix]).await,
        Trace::Updates(prefix) => db.first(Sql::UpdatesCount, &[prefix]).await,
    };
    let count: Option<i64> = found.map_err(broken)?.map(|row| row.get(0));
    Ok(count.unwrap_or_default().unsigned_abs())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use statehold_conformance::postgres::Server;
    use statehold_postgres::Postgres;

    use super::*;
    use crate::ops::Op;
    use crate::rival::tests::every_call_leaves_a_trace;
    use crate::{Options, Store};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn both_rivals_do_every_operation_and_leave_their_traces() {
        let server = Server::start();
        let store = Config::from_url(&server.url()).expect("a good URL");
        let rivals = rivals(&store, false).await.expect("the rivals open");
        assert_eq!(schemas(&store).await, ["statehold_bench_limit", "statehold_bench_naive"]);
        for contender in [&rivals.limit, &rivals.naive] {
            for op in Op::ALL {
                every_call_leaves_a_trace(contender.as_ref(), op).await;
            }
        }
        drop(rivals);
        assert!(schemas(&store).await.is_empty());
    }

    async fn schemas(store: &Config) -> Vec<String> {
        let found = "SELECT nspname FROM pg_namespace WHERE nspname LIKE '%bench%' ORDER BY nspname";
        let client = store.client().await.expect("it connects");
        let rows = client.query(found, &[]).await.expect("it is read");
        rows.iter().map(|row| row.get(0)).collect()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn ours_is_measured_beside_them_with_rows_present() {
        let server = Server::start();
        let config = Config::from_url(&server.url()).expect("a good URL");
        let backend = Arc::new(Postgres::open(config.clone()).await.expect("the store opens"));
        let options = Options {
            ops: vec![Op::TaskClaim, Op::EntryGet],
            concurrency: vec![4],
            rounds: 1,
            slice: Duration::from_millis(50),
            present: 100,
            indexes: true,
        };
        let store = Store::Postgres(Box::new(config));
        let report = crate::run(backend, &store, &options, |_| {}).await.expect("it is measured");
        for row in &report.results {
            assert!(row.ratio_limit.is_some() && row.ratio_naive.is_some(), "{row:?}");
        }
    }
}
