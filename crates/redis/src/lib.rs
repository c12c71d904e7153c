//! Statehold on Redis: sub-millisecond state, as durable as the server is configured to be.
//!
//! The way of a request: [`Redis::apply`](Backend::apply) puts it into the lane of its namespace (`writer`), which takes
//! all that waits there, loads the rows that the plans ask for in one go (`snapshot`, `search`, `lookups`), unless they are
//! remembered (`memory`), lets the plan of each request decide, and writes what they leave by one function on the server
//! (`commit`, `lua/commit.lua`), which first checks that everything they read is still so. If it is not, it begins anew.
//! Claims have lanes of their own, and are decided by a function (`claims`, `lua/claim.lua`). Reads go past the lanes. How
//! keys and the index look is in `space`.

mod claims;
mod commit;
mod compact;
mod config;
mod connection;
mod counts;
mod documents;
mod dump;
mod durability;
mod entries;
mod error;
mod groups;
mod keys;
mod lanes;
mod lines;
mod lists;
mod locks;
mod lookups;
mod memory;
mod namespaces;
mod queues;
mod rows;
mod search;
mod snapshot;
mod space;
mod starts;
mod streams;
mod strokes;
mod tasks;
mod wakes;
mod wire;
mod writer;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::{StreamExt as _, stream};
use statehold_core::backend::{Health, Migration};
use statehold_core::batch::{Prepared, Replies};
use statehold_core::call::{Claim, Claimed, Deliveries, GroupRead, Sweep, Swept};
use statehold_core::dump::Record;
use statehold_core::model::{Document, Entry, GroupInfo, Lock, QueueInfo, Source, StreamInfo, Task, TaskId};
use statehold_core::plan::{self, Context, Needs, Ready, Rows, Step};
use statehold_core::query::{
    CategoryPage, CategoryRead, DocumentList, KeyList, Page, StreamPage, StreamRead, TaskCounts, TaskList,
    Why,
};
use statehold_core::row::{DocumentKey, GroupKey, LockRow, TaskRow};
use statehold_core::session::Session;
use statehold_core::wake::{Topic, Waiter};
use statehold_core::{Backend, Error, Result, Timestamp};
use tokio::sync::oneshot;

use claims::Said;
pub use config::Config;
use connection::{Connection, read_bytes};
use error::{Trouble, odd, unknown};
use namespaces::Registry;
use rows::{Table, tail};
use snapshot::{Scene, Snapshot, Terms};
use space::{Bytes, Space};
use strokes::Strokes;
use wakes::Wakes;
use writer::{Desk, Planned, Sight, Writer};

/// The version of how rows and the index are kept.
const SCHEMA: u32 = 1;

/// How often what is due is handled before a claim that takes the next tasks, while more comes due meanwhile.
const PREPARED: u32 = 3;

/// A store on a Redis server. Clones share it; its connections are closed when the last one is dropped.
#[derive(Clone)]
pub struct Redis(Arc<Inner>);

struct Inner {
    config: Config,
    writer: Writer,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("config", &self.0.config).finish_non_exhaustive()
    }
}

impl Redis {
    /// Connects, and gives the server the functions that the store needs.
    ///
    /// A server that removes keys when its memory is full is refused, unless the store is
    /// [`ephemeral`](Config::ephemeral).
    // Boxed, so that the store is compiled here and not in every program that opens one.
    pub fn open(config: Config) -> BoxFuture<'static, Result<Self>> {
        Box::pin(async move {
            config.check()?;
            let db = Connection::open(&config).await.map_err(Trouble::into_error)?;
            durability::check(&db, &config).await?;
            let me = TaskId::generate().to_string();
            let wakes = Wakes::start(&config, db.clone(), me.clone()).await;
            let (clock, replica) = (config.clock.clone(), config.replica.clone());
            let (prefix, registry) = (config.prefix.clone(), Registry::new(config.prefix.clone()));
            let writer = Writer::new(Desk {
                db,
                clock,
                replica,
                prefix,
                me,
                wakes,
                registry,
                strokes: Strokes::new(),
                dependent: Mutex::default(),
                memories: Mutex::default(),
                remembered: Arc::default(),
            });
            Ok(Self(Arc::new(Inner { config, writer })))
        })
    }

    /// Puts a request into its lane and waits for its answer.
    async fn decide<T: Send + 'static>(
        &self,
        namespace: &str,
        manner: Manner,
        plan: impl Fn(&Rows, &Sight<'_>) -> Step<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let Manner { gives, alone, repeatable } = manner;
        let job = Planned { plan, reply, decided: None, gives, alone, repeatable };
        let answer = self.0.writer.wait(namespace, Box::new(job), answer).await;
        answer.unwrap_or_else(|| Err(stopped()))
    }

    /// Does what comes before a claim takes anything: notes who asks, and handles what is due.
    async fn prepare_claim(&self, claim: &Arc<Claim>) -> Result<Ready> {
        let manner = Manner { gives: true, alone: false, repeatable: claim.key.is_some() };
        let (claim, namespace) = (Arc::clone(claim), &claim.namespace);
        let plan = move |rows: &Rows, sight: &Sight<'_>| plan::prepare_claim(&claim, rows, &sight.context);
        self.decide(namespace, manner, plan).await
    }

    /// Plans a claim that is more than plain starts.
    async fn plan_claim(&self, claim: Arc<Claim>, ready: Option<Ready>) -> Result<Claimed> {
        let (namespace, repeatable) = (claim.namespace.clone(), claim.key.is_some());
        let manner = Manner { gives: true, alone: false, repeatable };
        self.decide(&namespace, manner, move |rows, sight| plan_claim(&claim, ready, rows, sight)).await
    }

    fn space(&self, namespace: &str) -> Space {
        Space::new(&self.0.config.prefix, namespace)
    }

    fn scene<'a>(&'a self, space: &'a Space) -> Scene<'a> {
        Scene { db: self.db(), space }
    }

    fn db(&self) -> &Connection {
        &self.0.writer.desk().db
    }

    /// About the time of the store. What has expired is only filtered by it: whoever decides asks the server.
    fn now(&self) -> Timestamp {
        self.0.config.clock.from_store(self.db().about_now())
    }

    /// Rows by their keys.
    async fn rows<R: Table>(
        &self,
        namespace: &str,
        keys: impl Iterator<Item = R::Key>,
    ) -> Result<Vec<Option<R>>> {
        let space = self.space(namespace);
        let names: Vec<_> = keys.map(|key| space.key(&tail::<R>(&key))).collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let read = async {
            let mut call = redis::cmd("MGET");
            call.arg(&names);
            let stored: Vec<Option<Bytes>> =
                redis::from_redis_value(self.db().call(&call).await?).map_err(|_| odd("rows"))?;
            stored
                .iter()
                .map(|stored| stored.as_deref().map(rows::read).transpose())
                .collect::<error::Result<_>>()
        };
        read.await.map_err(Trouble::into_error)
    }

    /// One row by its key.
    async fn row<R: Table>(&self, namespace: &str, key: R::Key) -> Result<Option<R>> {
        let space = self.space(namespace);
        let read = async {
            let mut call = redis::cmd("GET");
            call.arg(space.key(&tail::<R>(&key)));
            read_bytes(self.db().call(&call).await?)?.map(|stored| rows::read(&stored)).transpose()
        };
        read.await.map_err(Trouble::into_error)
    }

    /// Plans something that changes nothing.
    async fn why(&self, namespace: &str, id: TaskId) -> error::Result<Why> {
        let (space, config) = (self.space(namespace), &self.0.config);
        let terms =
            Terms { clock: &config.clock, me: "", asked: HashMap::new(), independent: false, memory: None };
        let mut snapshot = Snapshot::new(self.scene(&space), &terms);
        let mut needs = Needs::default();
        needs.tasks.insert(id);
        snapshot.load(needs).await?;
        loop {
            let context = Context { now: snapshot.now, replica: &config.replica };
            match plan::why(id, &snapshot.rows, &context) {
                Step::Need(needs) => snapshot.load(needs).await?,
                Step::Accept(why, _) => return Ok(why),
                Step::Refuse(error) => return Err(error.into()),
            }
        }
    }

    /// Writes a dump into an empty namespace.
    async fn fill(&self, namespace: &str, records: Vec<Record>) -> Result<()> {
        let (space, config, desk) = (self.space(namespace), &self.0.config, self.0.writer.desk());
        let terms =
            Terms { clock: &config.clock, me: "", asked: HashMap::new(), independent: false, memory: None };
        let (mut snapshot, version) = (Snapshot::new(self.scene(&space), &terms), desk.strokes.version());
        let prepare = async {
            snapshot.load(Needs::default()).await?;
            snapshot.seen.ranges.push(dump::nothing());
            desk.registry.enter(self.db(), namespace).await?;
            dump::fill(&space, version, records)
        };
        let writing = prepare.await.map_err(Trouble::into_error)?;
        let stroke = desk.strokes.stroke(self.db(), &space, namespace, version);
        let call = commit::call(&snapshot, &writing, &desk.wakes.message_to_all(), Some(&stroke));
        let Some(call) = call else { return Ok(()) };
        match commit::send(self.db(), &desk.wakes, &space, &call, Some(stroke)).await {
            Ok(_) => Ok(()),
            Err(Trouble::Again) => Err(dump::not_empty(namespace)),
            Err(trouble) if trouble.is_lost() => Err(unknown(trouble)),
            Err(trouble) => Err(trouble.into_error()),
        }
    }
}

/// How a request is to be treated.
#[derive(Clone, Copy, Default)]
struct Manner {
    /// Whether it is for nothing once its caller has gone.
    gives: bool,
    /// Whether it is written with nobody else's.
    alone: bool,
    /// Whether its caller can repeat it although it may have been done.
    repeatable: bool,
}

fn stopped() -> Error {
    Error::unavailable("the store was closed while the request was under way").hint("open the store again")
}

/// Plans a claim. If others are about to take what is ready, there may be something at once.
fn plan_claim(claim: &Claim, ready: Option<Ready>, rows: &Rows, sight: &Sight<'_>) -> Step<Claimed> {
    match plan::claim_prepared(claim, ready, rows, &sight.context) {
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
impl Backend for Redis {
    async fn apply(&self, batch: Prepared) -> Result<Replies> {
        let namespace = batch.batch().namespace.clone();
        let manner = Manner { repeatable: batch.is_repeatable(), ..Manner::default() };
        let plan = move |rows: &Rows, sight: &Sight<'_>| plan::apply(&batch, rows, &sight.context);
        self.decide(&namespace, manner, plan).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        claim.check()?;
        let claim = Arc::new(claim);
        let (now, memory) = (self.now(), self.0.writer.desk().memory(&claim.namespace));
        let noted = claims::is_noted(&memory.lock().unwrap_or_else(PoisonError::into_inner), &claim, now);
        if !starts::is_exact(now) {
            return self.plan_claim(claim, None).await;
        }
        let mut ready = None;
        if !noted {
            ready = Some(self.prepare_claim(&claim).await?);
        }
        for _ in 0..PREPARED {
            match self.0.writer.claim(Arc::clone(&claim), ready).await.ok_or_else(stopped)?? {
                Said::Claimed(claimed) => return Ok(claimed),
                Said::Due => ready = Some(self.prepare_claim(&claim).await?),
                Said::Plan => break,
            }
        }
        self.plan_claim(claim, ready).await
    }

    async fn group_read(&self, read: GroupRead) -> Result<Deliveries> {
        read.check()?;
        let (namespace, repeatable) = (read.namespace.clone(), read.key.is_some());
        let manner = Manner { gives: true, alone: true, repeatable };
        let plan = move |rows: &Rows, sight: &Sight<'_>| plan::group_read(&read, rows, &sight.context);
        self.decide(&namespace, manner, plan).await
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept> {
        sweep.check()?;
        let (namespace, manner) =
            (sweep.namespace.clone(), Manner { gives: false, alone: true, repeatable: true });
        let plan = move |rows: &Rows, sight: &Sight<'_>| plan::sweep(&sweep, rows, &sight.context);
        self.decide(&namespace, manner, plan).await
    }

    async fn task_get(&self, namespace: &str, ids: &[TaskId]) -> Result<Vec<Option<Task>>> {
        let rows = self.rows::<TaskRow>(namespace, ids.iter().copied()).await?;
        Ok(rows.into_iter().map(|row| row.map(|row| row.task)).collect())
    }

    async fn task_list(&self, namespace: &str, list: &TaskList) -> Result<Page<Task>> {
        list.check()?;
        let (after, space) = (list.place()?, self.space(namespace));
        let tasks = lists::tasks(&self.scene(&space), list, after).await.map_err(Trouble::into_error)?;
        Ok(Page::of(tasks, list.limit as usize, |task| list.place_of(task)))
    }

    async fn task_count(&self, namespace: &str, queue: Option<&str>) -> Result<TaskCounts> {
        let (now, space) = (self.now(), self.space(namespace));
        let counts = counts::by_queue(&self.scene(&space), queue, now).await.map_err(Trouble::into_error)?;
        Ok(counts::total(counts))
    }

    async fn task_why(&self, namespace: &str, id: TaskId) -> Result<Why> {
        self.why(namespace, id).await.map_err(Trouble::into_error)
    }

    async fn stream_read(&self, namespace: &str, read: &StreamRead) -> Result<StreamPage> {
        read.check()?;
        let space = self.space(namespace);
        streams::read_stream(&self.scene(&space), read).await.map_err(Trouble::into_error)
    }

    async fn category_read(&self, namespace: &str, read: &CategoryRead) -> Result<CategoryPage> {
        read.check()?;
        let space = self.space(namespace);
        streams::read_category(&self.scene(&space), read).await.map_err(Trouble::into_error)
    }

    async fn stream_list(&self, namespace: &str, list: &KeyList) -> Result<Page<StreamInfo>> {
        list.check()?;
        let (after, space) = (list.place()?, self.space(namespace));
        let streams = streams::list(&self.scene(&space), list, after).await.map_err(Trouble::into_error)?;
        Ok(Page::of(streams, list.limit as usize, |stream| stream.stream.to_string()))
    }

    async fn group_info(&self, namespace: &str, group: &str, source: &Source) -> Result<GroupInfo> {
        let key = GroupKey { group: group.to_owned(), source: source.clone() };
        let space = self.space(namespace);
        let info = groups::info(&self.scene(&space), &key).await.map_err(Trouble::into_error)?;
        info.ok_or_else(|| Error::not_found("group", group))
    }

    async fn document_get(&self, namespace: &str, kind: &str, name: &str) -> Result<Option<Document>> {
        let key = DocumentKey { kind: kind.to_owned(), name: name.to_owned() };
        let (now, document) = (self.now(), self.row::<Document>(namespace, key).await?);
        Ok(document.filter(|document| document.expires_at.is_none_or(|at| at > now)))
    }

    async fn document_list(&self, namespace: &str, list: &DocumentList) -> Result<Page<Document>> {
        list.check()?;
        let (now, after, space) = (self.now(), list.place()?, self.space(namespace));
        let found =
            documents::list(&self.scene(&space), list, after, now).await.map_err(Trouble::into_error)?;
        Ok(Page::of(found, list.limit as usize, |document| document.name.clone()))
    }

    async fn entry_get(&self, namespace: &str, key: &str) -> Result<Option<Entry>> {
        let (now, entry) = (self.now(), self.row::<Entry>(namespace, key.to_owned()).await?);
        Ok(entry.filter(|entry| entry.expires_at > now))
    }

    async fn entry_list(&self, namespace: &str, list: &KeyList) -> Result<Page<Entry>> {
        list.check()?;
        let (now, after, space) = (self.now(), list.place()?, self.space(namespace));
        let live = |entry: &Entry| entry.expires_at > now;
        let found =
            lists::by_key(&self.scene(&space), list, after, live).await.map_err(Trouble::into_error)?;
        Ok(Page::of(found, list.limit as usize, |entry| entry.key.clone()))
    }

    async fn lock_get(&self, namespace: &str, key: &str) -> Result<Option<Lock>> {
        let (now, row) = (self.now(), self.row::<LockRow>(namespace, key.to_owned()).await?);
        Ok(row.and_then(|row| row.held(now)))
    }

    async fn lock_list(&self, namespace: &str, list: &KeyList) -> Result<Page<Lock>> {
        list.check()?;
        let (now, after, space) = (self.now(), list.place()?, self.space(namespace));
        let held = |row: &LockRow| row.held(now).is_some();
        let found =
            lists::by_key(&self.scene(&space), list, after, held).await.map_err(Trouble::into_error)?;
        let locks = found.iter().filter_map(|row| row.held(now)).collect();
        Ok(Page::of(locks, list.limit as usize, |lock| lock.key.clone()))
    }

    async fn queue_list(&self, namespace: &str) -> Result<Vec<QueueInfo>> {
        let (now, space) = (self.now(), self.space(namespace));
        queues::list(&self.scene(&space), now).await.map_err(Trouble::into_error)
    }

    async fn namespaces(&self) -> Result<Vec<String>> {
        self.0.writer.desk().registry.list(self.db()).await.map_err(Trouble::into_error)
    }

    async fn register(&self, namespace: &str, topics: &[Topic]) -> Result<Waiter> {
        Ok(self.0.writer.desk().wakes.hub.register(namespace, topics))
    }

    async fn session(&self) -> Result<Session> {
        Err(Session::none("Redis"))
    }

    fn can_lose_answers(&self) -> bool {
        false
    }

    async fn health(&self) -> Result<Health> {
        let kept = durability::read(self.db()).await.map_err(Trouble::into_error)?;
        Ok(Health {
            store: self.0.config.to_string(),
            durability: kept.durability(),
            schema_version: SCHEMA,
            push: self.0.writer.desk().wakes.push(),
            notes: kept.notes(),
            ephemeral: None,
        })
    }

    async fn migrate(&self, _dry_run: bool) -> Result<Migration> {
        Ok(Migration { from: SCHEMA, to: SCHEMA, steps: Vec::new() })
    }

    async fn dump(&self, namespace: &str) -> Result<BoxStream<'static, Result<Record>>> {
        let space = self.space(namespace);
        let records = dump::write(&self.scene(&space)).await.map_err(Trouble::into_error)?;
        Ok(stream::iter(records.into_iter().map(Ok)).boxed())
    }

    async fn load(&self, namespace: &str, records: BoxStream<'static, Result<Record>>) -> Result<u64> {
        let records = dump::gather(records).await?;
        let count = records.len() as u64;
        self.fill(namespace, records).await?;
        self.0.writer.desk().wakes.hub.wake_all();
        Ok(count)
    }
}
