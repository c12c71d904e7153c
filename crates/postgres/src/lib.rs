//! Statehold on PostgreSQL: many processes on one database, every acknowledged batch durable.
//!
//! The way of a request: [`Postgres::apply`](Backend::apply) hands it to those who write (`inbox`, `writer`), of whom each takes
//! its share of what waits into one transaction (`transaction`): it holds the rows that the plans ask for in one order
//! (`rows`, and a file for each noun), lets the plan of each request decide (`deciding`), writes what they leave with one
//! statement a table, commits, answers all, and wakes who waits (`wakes`). What needs only rows that are `known` is one statement. Reads go past it, on connections of their own (`readers`).
//! Each statement is a file in `sql/`, the schema is in `migrations/`.

mod absent;
mod claims;
mod clock;
mod config;
mod connection;
mod deciding;
mod dial;
mod documents;
mod dump;
mod entries;
mod error;
mod groups;
mod inbox;
mod job;
mod keys;
mod known;
mod lists;
mod locks;
mod migrations;
mod namespaces;
mod once;
mod points;
mod pooled;
mod queues;
mod readers;
mod rows;
mod secret;
mod session;
mod sets;
mod shape;
mod streams;
mod strokes;
mod tasks;
mod tls;
mod transaction;
mod url;
mod values;
mod wakes;
mod writer;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::StreamExt as _;
use statehold_core::backend::{Durability, Health, Migration};
use statehold_core::batch::{Prepared, Replies};
use statehold_core::call::{Claim, Claimed, Deliveries, GroupRead, Sweep, Swept};
use statehold_core::command::Command;
use statehold_core::dump::Record;
use statehold_core::model::{Document, Entry, GroupInfo, Lock, QueueInfo, Source, StreamInfo, Task, TaskId};
use statehold_core::plan::{self, Context, Rows, Step};
use statehold_core::query::{
    CategoryPage, CategoryRead, DocumentList, KeyList, Page, StreamPage, StreamRead, TaskCounts, TaskList,
    Why,
};
use statehold_core::row::{DocumentKey, GroupKey, LockRow, TaskRow};
use statehold_core::session::Session;
use statehold_core::wake::{Topic, Waiter};
use statehold_core::{Backend, Error, Result, Timestamp};
use tokio::sync::oneshot;

use clock::ServerClock;
pub use config::Config;
use connection::{Connection, Hold, connect, sql};
use error::Trouble;
use job::{Claiming, Planned, Sight};
use namespaces::Namespaces;
use points::Points;
use readers::{Keys, Readers, read};
use rows::read_first;
use session::Sessions;
use streams::Withheld;
use transaction::{Scene, Transaction};
use values::{Cells, param};
use wakes::Wakes;
use writer::Writer;

/// A store in a PostgreSQL database. Clones share it; its connections are closed when the last one is dropped.
#[derive(Clone)]
pub struct Postgres(Arc<Inner>);

struct Inner {
    config: Config,
    clock: ServerClock,
    writer: Writer,
    readers: Readers,
    namespaces: Namespaces,
    wakes: Wakes,
    sessions: Sessions,
    tasks: Points<TaskRow>,
    documents: Points<Document>,
    entries: Points<Entry>,
    locks: Points<LockRow>,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("config", &self.0.config).finish_non_exhaustive()
    }
}

impl Postgres {
    /// Connects, makes the schema if it is not there, and brings it up to date.
    // Boxed, so that the store is compiled here and not in every program that opens one.
    pub fn open(config: Config) -> BoxFuture<'static, Result<Self>> {
        Box::pin(async move {
            config.check()?;
            let (_, client) = migrations::run(&config, config.migrate, false).await?;
            let (wakes, namespaces) = (Wakes::start(&config).await, Namespaces::default());
            let clock = ServerClock::new(config.clock.clone());
            let writer =
                Writer::start(config.clone(), client, clock.clone(), namespaces.clone(), wakes.clone());
            let readers = Readers::new(config.clone());
            let sessions = Sessions::default();
            Ok(Self(Arc::new(Inner {
                config,
                clock,
                writer,
                readers,
                namespaces,
                wakes,
                sessions,
                tasks: Points::default(),
                documents: Points::default(),
                entries: Points::default(),
                locks: Points::default(),
            })))
        })
    }

    /// Hands a request to the writer and waits for its answer.
    async fn decide<T: Send + 'static>(
        &self,
        request: Request,
        plan: impl Fn(&Rows, &Sight<'_>) -> Step<T> + Send + 'static,
    ) -> Result<T> {
        let (planned, answer) = request.planned(plan);
        self.0.writer.send(Box::new(planned));
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// The time that readers go by. For them it is only a filter.
    fn now(&self) -> Timestamp {
        self.0.clock.guess()
    }
}

/// Which keys a list asks for, and one more to tell that there is a next page.
fn keys(list: &KeyList) -> Result<Keys> {
    list.check()?;
    let (after, limit) = (list.place()?.unwrap_or_default(), list.limit as usize + 1);
    Ok(Keys { prefix: list.prefix.clone(), after, limit })
}

/// How a request is to be treated.
struct Request {
    namespace: String,
    /// Whether it is for nothing once its caller has gone.
    gives: bool,
    /// Whether it shares its transaction with nobody.
    alone: bool,
    /// Whether its caller can repeat it without knowing what became of it.
    repeatable: bool,
    /// Queues whose switch it sets.
    switches: Vec<String>,
}

impl Request {
    fn shared(namespace: String) -> Self {
        Self { namespace, gives: false, alone: false, repeatable: false, switches: Vec::new() }
    }

    fn alone(namespace: String) -> Self {
        Self { alone: true, ..Self::shared(namespace) }
    }

    fn giving(self) -> Self {
        Self { gives: true, ..self }
    }

    /// The request as a job for the writer, and where its answer comes.
    fn planned<T, P>(self, plan: P) -> (Planned<T, P>, oneshot::Receiver<Result<T>>) {
        let (reply, answer) = oneshot::channel();
        let Self { namespace, gives, alone, repeatable, switches } = self;
        (Planned { namespace, plan, reply, decided: None, gives, alone, repeatable, switches }, answer)
    }
}

impl Postgres {
    /// Asks why a task is not moving, in a transaction that is open.
    async fn why(&self, db: &Connection, namespace: &str, ns: i64, id: TaskId) -> error::Result<Why> {
        let config = &self.0.config;
        let scene = Scene {
            db,
            clock: &self.0.clock,
            schema: &config.schema,
            namespace,
            ns,
            patience: Withheld::Fine,
            bound: None,
            switched: BTreeSet::new(),
            asked: HashMap::new(),
            server: 0,
        };
        let mut reading = Transaction::on(&scene);
        loop {
            let context = Context { now: reading.now, replica: &config.replica };
            match plan::why(id, &reading.rows, &context) {
                Step::Need(needs) => reading.load(needs, Hold::Not).await?,
                Step::Accept(why, _) => return Ok(why),
                Step::Refuse(error) => return Err(error.into()),
            }
        }
    }
}

fn stopped() -> Error {
    Error::unavailable("the task that writes has ended").hint("the store was closed; open it again")
}

/// The queues whose switch a batch sets.
fn switches(batch: &Prepared) -> Vec<String> {
    let queue = |command: &Command| match command {
        Command::QueueSet(set) => Some(set.queue.clone()),
        _ => None,
    };
    batch.batch().commands.iter().filter_map(queue).collect()
}

/// Plans a claim. If others hold what is ready, there may be something at once.
fn plan_claim(claim: &Claim, rows: &Rows, sight: &Sight<'_>) -> Step<Claimed> {
    match plan::claim(claim, rows, &sight.context) {
        Step::Accept(mut claimed, effects) => {
            if claimed.tasks.is_empty() && sight.skipped {
                claimed.next_at = Some(sight.context.now);
            }
            Step::Accept(claimed, effects)
        }
        step => step,
    }
}

#[async_trait]
impl Backend for Postgres {
    async fn apply(&self, batch: Prepared) -> Result<Replies> {
        let namespace = batch.batch().namespace.clone();
        let (repeatable, switches) = (batch.is_repeatable(), switches(&batch));
        let request = Request { repeatable, switches, ..Request::shared(namespace) };
        self.decide(request, move |rows, sight| plan::apply(&batch, rows, &sight.context)).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        claim.check()?;
        let claim = Arc::new(claim);
        let request = Request::shared(claim.namespace.clone()).giving();
        let plan = {
            let claim = Arc::clone(&claim);
            move |rows: &Rows, sight: &Sight<'_>| plan_claim(&claim, rows, sight)
        };
        let (planned, answer) = request.planned(plan);
        self.0.writer.send(Box::new(Claiming { claim, planned }));
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }

    async fn group_read(&self, read: GroupRead) -> Result<Deliveries> {
        read.check()?;
        let request = Request::alone(read.namespace.clone()).giving();
        self.decide(request, move |rows, sight| plan::group_read(&read, rows, &sight.context)).await
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept> {
        sweep.check()?;
        let request = Request { repeatable: true, ..Request::alone(sweep.namespace.clone()) };
        self.decide(request, move |rows, sight| plan::sweep(&sweep, rows, &sight.context)).await
    }

    async fn task_get(&self, namespace: &str, ids: &[TaskId]) -> Result<Vec<Option<Task>>> {
        let rows = self.rows::<TaskRow>(namespace, ids.to_vec()).await?;
        Ok(rows.into_iter().map(|row| row.map(|row| Arc::unwrap_or_clone(row).task)).collect())
    }

    async fn task_list(&self, namespace: &str, list: &TaskList) -> Result<Page<Task>> {
        list.check()?;
        let after = list.place()?;
        let tasks = read!(self, namespace, apart, |db, ns| lists::list(db, ns, list, after))?;
        Ok(Page::of(tasks, list.limit as usize, |task| list.place_of(task)))
    }

    async fn task_count(&self, namespace: &str, queue: Option<&str>) -> Result<TaskCounts> {
        let now = self.now();
        let counts = read!(self, namespace, together, |db, ns| tasks::counts(db, ns, queue, now))?;
        Ok(tasks::total(counts))
    }

    async fn task_why(&self, namespace: &str, id: TaskId) -> Result<Why> {
        read!(self, namespace, together, |db, ns| self.why(db, namespace, ns, id))
    }

    async fn stream_read(&self, namespace: &str, read: &StreamRead) -> Result<StreamPage> {
        read.check()?;
        read!(self, namespace, |db, ns| streams::read(db, ns, read))
    }

    async fn category_read(&self, namespace: &str, read: &CategoryRead) -> Result<CategoryPage> {
        read.check()?;
        read!(self, namespace, |db, ns| streams::read_category(db, ns, read))
    }

    async fn stream_list(&self, namespace: &str, list: &KeyList) -> Result<Page<StreamInfo>> {
        let keys = keys(list)?;
        let streams = read!(self, namespace, |db, ns| streams::list(db, ns, &keys))?;
        Ok(Page::of(streams, list.limit as usize, |stream| stream.stream.to_string()))
    }

    async fn group_info(&self, namespace: &str, group: &str, source: &Source) -> Result<GroupInfo> {
        let key = GroupKey { group: group.to_owned(), source: source.clone() };
        let info = read!(self, namespace, together, |db, ns| groups::info(db, ns, &key))?;
        info.ok_or_else(|| Error::not_found("group", group))
    }

    async fn document_get(&self, namespace: &str, kind: &str, name: &str) -> Result<Option<Document>> {
        let (now, key) = (self.now(), DocumentKey { kind: kind.to_owned(), name: name.to_owned() });
        let document: Option<Document> = self.row(namespace, key).await?;
        Ok(document.filter(|document| document.expires_at.is_none_or(|at| at > now)))
    }

    async fn document_list(&self, namespace: &str, list: &DocumentList) -> Result<Page<Document>> {
        list.check()?;
        let (now, after) = (self.now(), list.place()?);
        let found =
            read!(self, namespace, apart, |db, ns| documents::list(db, ns, list, after.clone(), now))?;
        Ok(Page::of(found, list.limit as usize, |document| document.name.clone()))
    }

    async fn entry_get(&self, namespace: &str, key: &str) -> Result<Option<Entry>> {
        let now = self.now();
        let entry: Option<Entry> = self.row(namespace, key.to_owned()).await?;
        Ok(entry.filter(|entry| entry.expires_at > now))
    }

    async fn entry_list(&self, namespace: &str, list: &KeyList) -> Result<Page<Entry>> {
        let (keys, now) = (keys(list)?, self.now());
        let entries = read!(self, namespace, |db, ns| entries::list(db, ns, &keys, now))?;
        Ok(Page::of(entries, list.limit as usize, |entry| entry.key.clone()))
    }

    async fn lock_get(&self, namespace: &str, key: &str) -> Result<Option<Lock>> {
        let now = self.now();
        let row: Option<LockRow> = self.row(namespace, key.to_owned()).await?;
        Ok(row.and_then(|row| row.held(now)))
    }

    async fn lock_list(&self, namespace: &str, list: &KeyList) -> Result<Page<Lock>> {
        let (keys, now) = (keys(list)?, self.now());
        let locks = read!(self, namespace, |db, ns| locks::list(db, ns, &keys, now))?;
        Ok(Page::of(locks, list.limit as usize, |lock| lock.key.clone()))
    }

    async fn queue_list(&self, namespace: &str) -> Result<Vec<QueueInfo>> {
        let now = self.now();
        read!(self, namespace, together, |db, ns| queues::list(db, ns, now))
    }

    async fn namespaces(&self) -> Result<Vec<String>> {
        read!(self, "", |db, _ns| namespaces::list(db))
    }

    async fn register(&self, namespace: &str, topics: &[Topic]) -> Result<Waiter> {
        Ok(self.0.wakes.hub.register(namespace, topics))
    }

    async fn session(&self) -> Result<Session> {
        self.0.sessions.current(&self.0.config).await
    }

    fn can_lose_answers(&self) -> bool {
        false
    }

    async fn health(&self) -> Result<Health> {
        let schema = &self.0.config.schema;
        let schema_version = read!(self, "", |db, _ns| migrations::version(db.client(), schema))?.version;
        let found = read!(self, "", |db, _ns| db.query(sql!("health"), Vec::new()))?;
        let read = |cells: &mut Cells<'_>| Ok((cells.get()?, cells.number()?));
        let read = read_first(&found, read).map_err(Trouble::into_error)?;
        let (durable, old): (bool, u64) = read.unwrap_or_default();
        let mut notes = Vec::new();
        if old > 0 {
            notes.push(format!("{old} transactions have been open for long; they keep VACUUM from its work"));
        }
        Ok(Health {
            store: self.0.config.to_string(),
            durability: if durable { Durability::Durable } else { Durability::BoundedLoss },
            schema_version,
            push: self.0.wakes.push(),
            notes,
            ephemeral: None,
        })
    }

    async fn migrate(&self, dry_run: bool) -> Result<Migration> {
        migrations::run(&self.0.config, true, dry_run).await.map(|(migration, _)| migration)
    }

    async fn dump(&self, namespace: &str) -> Result<BoxStream<'static, Result<Record>>> {
        read!(self, namespace, together, |db, ns| dump::write(db, ns))?.stream()
    }

    async fn load(&self, namespace: &str, mut records: BoxStream<'static, Result<Record>>) -> Result<u64> {
        let mut spool = dump::Spool::new()?;
        while let Some(record) = records.next().await {
            spool.write(&record?)?;
        }
        let records = spool.records()?;
        let load = async {
            let db = connect(&self.0.config, drop).await?;
            let ns = self.0.namespaces.number(&db, namespace).await?;
            db.run(sql!("begin"), Vec::new()).await?;
            db.query(sql!("hold_namespace"), vec![param(ns)]).await?;
            let count = dump::fill(&db, namespace, records).await?;
            db.run(sql!("commit"), Vec::new()).await?;
            Ok(count)
        };
        let count = load.await.map_err(Trouble::into_error)?;
        self.0.wakes.wake_all();
        Ok(count)
    }
}
