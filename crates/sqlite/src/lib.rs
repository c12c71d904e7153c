//! Statehold on SQLite: one file, nothing to install, every acknowledged batch durable.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("state.db");
//! use statehold_core::command::TaskCreate;
//! use statehold_core::{Backend, Batch};
//! use statehold_sqlite::{Config, Sqlite};
//!
//! let store = Sqlite::open(Config::new(&path)).await?;
//! let (batch, created) = Batch::of("default", TaskCreate::new("send"));
//! let task = store.apply(batch.prepare()?).await?.take(created)?.task;
//! drop(store);
//!
//! let store = Sqlite::open(Config::new(&path)).await?;
//! assert_eq!(store.task_get("default", &[task.id]).await?[0].as_ref(), Some(&task));
//! # Ok::<(), statehold_core::Error>(())
//! # }).unwrap();
//! ```
//!
//! The way of a request: [`Sqlite::apply`](Backend::apply) hands it to the one thread that writes (`writer`), which
//! takes everything that waits into one transaction, lets the plan of each decide, loads and stores rows (`rows`, and
//! a file for each noun), commits, answers all, and wakes who waits (`wakes`). Reads go past it, on connections of
//! their own (`readers`). Each statement is a file in `sql/`, the schema is in `migrations/`.

#![allow(
    clippy::redundant_closure_for_method_calls,
    reason = "a method of `Cells` cannot be named where a closure for any row is wanted"
)]

mod config;
mod documents;
mod dump;
mod entries;
mod error;
mod groups;
mod keys;
mod lists;
mod locks;
mod log;
mod migrations;
mod open;
mod places;
mod queues;
mod readers;
mod rows;
mod statements;
mod streams;
mod tasks;
mod transaction;
mod wakes;
mod writer;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use futures_util::StreamExt as _;
use statehold_core::backend::{Durability, Health, Migration};
use statehold_core::batch::{Prepared, Replies};
use statehold_core::call::{Claim, Claimed, Deliveries, GroupRead, Sweep, Swept};
use statehold_core::dump::Record;
use statehold_core::model::{Document, Entry, GroupInfo, Lock, QueueInfo, Source, StreamInfo, Task, TaskId};
use statehold_core::plan::{self, Context, Rows, Step};
use statehold_core::query::{
    CategoryPage, CategoryRead, DocumentList, KeyList, Page, StreamPage, StreamRead, TaskCounts, TaskList,
    Why,
};
use statehold_core::row::{DocumentKey, LockRow};
use statehold_core::session::Session;
use statehold_core::wake::{Topic, Waiter};
use statehold_core::{Backend, Clock, Error, Result};
use tokio::sync::oneshot;

pub use config::Config;
use documents::Short;
use log::Log;
pub use open::Examination;
use readers::Readers;
use rows::{Keys, Table};
use statements::{Db, sql};
use wakes::Wakes;
use writer::{Planned, Writer};

/// Bodies and pages up to this size are read where they are asked for, larger ones on a thread that may block.
const SHORT_BODY: usize = 64 * 1024;
const SHORT_PAGE: u32 = 64;

/// A store in a SQLite file. Clones share it; the file is closed when the last one is dropped.
#[derive(Clone)]
pub struct Sqlite(Arc<Inner>);

// The order is that of closing: the writer's connection last, so that it takes the log over into the file.
struct Inner {
    short: Readers,
    long: Readers,
    writer: Writer,
    wakes: Wakes,
    clock: Clock,
    path: PathBuf,
    /// The numbers of namespaces; a namespace keeps its number for good.
    namespaces: RwLock<HashMap<String, i64>>,
    notes: Vec<String>,
    _presence: open::Presence,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.wakes.leave();
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.0.path).finish_non_exhaustive()
    }
}

impl Sqlite {
    /// Opens a file, makes it if it is not there, and brings its schema up to date.
    pub async fn open(config: Config) -> Result<Self> {
        on_a_thread(move || Self::open_now(&config)).await
    }

    /// Examines a file for damage, without changing it; it may be open elsewhere.
    pub async fn examine(path: impl Into<PathBuf>) -> Result<Examination> {
        let path = path.into();
        on_a_thread(move || open::examine(&path)).await
    }

    fn open_now(config: &Config) -> Result<Self> {
        let opened = open::open(config)?;
        let wakes = Wakes::join(&config.path);
        let (mut connection, clock, replica) = (opened.writer, config.clock.clone(), config.replica.clone());
        let log = Log::start(&mut connection, opened.helper)?;
        let writer = Writer::start(connection, log, clock, replica, wakes.clone())?;
        Ok(Self(Arc::new(Inner {
            short: Readers::new(opened.short),
            long: Readers::new(opened.long),
            writer,
            wakes,
            clock: config.clock.clone(),
            path: config.path.clone(),
            namespaces: RwLock::default(),
            notes: opened.notes,
            _presence: opened.presence,
        })))
    }

    /// Hands a request to the writer and waits for its answer.
    async fn decide<T: Send + 'static>(
        &self,
        namespace: String,
        gives: bool,
        plan: impl Fn(&Rows, &Context<'_>) -> Step<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.0.writer.send(Box::new(Planned { namespace, plan, reply, decided: None, gives }));
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// A short read of a namespace, here and now.
    fn read<T>(
        &self,
        namespace: &str,
        read: impl FnOnce(Db<'_, '_>, i64) -> rusqlite::Result<T>,
    ) -> Result<T> {
        self.0.short.read(|db| read(db, self.0.number(db, namespace)?)).map_err(error::from)
    }

    /// A long read of a namespace, of one state, on a thread that may block.
    async fn read_long<T: Send + 'static>(
        &self,
        namespace: &str,
        read: impl FnOnce(Db<'_, '_>, i64) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (inner, namespace) = (Arc::clone(&self.0), namespace.to_owned());
        on_a_thread(move || {
            let read = inner.long.snapshot(|db| read(db, inner.number(db, &namespace)?));
            read.map_err(error::from)
        })
        .await
    }

    /// A page of what `read` gives in the order of its keys.
    async fn page<T: Send + 'static>(
        &self,
        namespace: &str,
        list: &KeyList,
        key: impl Fn(&T) -> String,
        read: impl FnOnce(Db<'_, '_>, i64, Keys<'_>) -> rusqlite::Result<Vec<T>> + Send + 'static,
    ) -> Result<Page<T>> {
        list.check()?;
        let (after, prefix, limit) =
            (list.place()?.unwrap_or_default(), list.prefix.clone(), list.limit as usize);
        let read =
            move |db: Db<'_, '_>, ns| read(db, ns, Keys { prefix: &prefix, after: &after, limit: limit + 1 });
        let items = self.read_long(namespace, read).await?;
        Ok(Page::of(items, limit, key))
    }
}

impl Inner {
    /// The number of a namespace; 0, which none has, if it is not known.
    fn number(&self, db: Db<'_, '_>, namespace: &str) -> rusqlite::Result<i64> {
        let known = self.namespaces.read().unwrap_or_else(PoisonError::into_inner).get(namespace).copied();
        if let Some(number) = known {
            return Ok(number);
        }
        let Some((number, ..)) = db.namespace(namespace)? else { return Ok(0) };
        let mut known = self.namespaces.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(namespace.to_owned(), number);
        Ok(number)
    }
}

async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(Error::unavailable(format!("a thread of the store ended early: {e}"))))
}

fn stopped() -> Error {
    Error::unavailable("the thread that writes has ended")
        .hint("restart this process and report what it printed")
}

#[async_trait]
impl Backend for Sqlite {
    async fn apply(&self, batch: Prepared) -> Result<Replies> {
        let namespace = batch.batch().namespace.clone();
        self.decide(namespace, false, move |rows, context| plan::apply(&batch, rows, context)).await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        claim.check()?;
        let namespace = claim.namespace.clone();
        self.decide(namespace, true, move |rows, context| plan::claim(&claim, rows, context)).await
    }

    async fn group_read(&self, read: GroupRead) -> Result<Deliveries> {
        read.check()?;
        let namespace = read.namespace.clone();
        self.decide(namespace, true, move |rows, context| plan::group_read(&read, rows, context)).await
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept> {
        sweep.check()?;
        let namespace = sweep.namespace.clone();
        self.decide(namespace, false, move |rows, context| plan::sweep(&sweep, rows, context)).await
    }

    async fn task_get(&self, namespace: &str, ids: &[TaskId]) -> Result<Vec<Option<Task>>> {
        if ids.len() <= SHORT_PAGE as usize {
            return self.read(namespace, |db, ns| tasks::get(db, ns, ids));
        }
        let ids = ids.to_vec();
        self.read_long(namespace, move |db, ns| tasks::get(db, ns, &ids)).await
    }

    async fn task_list(&self, namespace: &str, list: &TaskList) -> Result<Page<Task>> {
        list.check()?;
        let (after, asked) = (list.place()?, list.clone());
        let tasks = self.read_long(namespace, move |db, ns| lists::list(db, ns, &asked, after)).await?;
        Ok(Page::of(tasks, list.limit as usize, |task| list.place_of(task)))
    }

    async fn task_count(&self, namespace: &str, queue: Option<&str>) -> Result<TaskCounts> {
        let (now, queue) = (self.0.clock.now(), queue.map(str::to_owned));
        self.read_long(namespace, move |db, ns| tasks::count(db, ns, queue.as_deref(), now)).await
    }

    async fn task_why(&self, namespace: &str, id: TaskId) -> Result<Why> {
        let why = move |rows: &Rows, context: &Context<'_>| plan::why(id, rows, context);
        self.decide(namespace.to_owned(), true, why).await
    }

    async fn stream_read(&self, namespace: &str, read: &StreamRead) -> Result<StreamPage> {
        read.check()?;
        if read.limit <= SHORT_PAGE {
            let read = self.0.short.snapshot(|db| streams::read(db, self.0.number(db, namespace)?, read));
            return read.map_err(error::from)?;
        }
        let read = read.clone();
        self.read_long(namespace, move |db, ns| streams::read(db, ns, &read)).await?
    }

    async fn category_read(&self, namespace: &str, read: &CategoryRead) -> Result<CategoryPage> {
        read.check()?;
        let read = read.clone();
        self.read_long(namespace, move |db, ns| streams::read_category(db, ns, &read)).await?
    }

    async fn stream_list(&self, namespace: &str, list: &KeyList) -> Result<Page<StreamInfo>> {
        self.page(namespace, list, |stream| stream.stream.to_string(), streams::list).await
    }

    async fn group_info(&self, namespace: &str, group: &str, source: &Source) -> Result<GroupInfo> {
        let (name, source) = (group.to_owned(), source.clone());
        let info = self.read_long(namespace, move |db, ns| groups::info(db, ns, &name, &source)).await?;
        info.ok_or_else(|| Error::not_found("group", group))
    }

    async fn document_get(&self, namespace: &str, kind: &str, name: &str) -> Result<Option<Document>> {
        let now = self.0.clock.now();
        let short = self.read(namespace, |db, ns| documents::get_short(db, ns, kind, name, SHORT_BODY))?;
        let document = match short {
            None => None,
            Some(Short::Whole(document)) => Some(*document),
            Some(Short::TooLong) => {
                let key = DocumentKey { kind: kind.to_owned(), name: name.to_owned() };
                self.read_long(namespace, move |db, ns| Document::get(db, ns, &key)).await?
            }
        };
        Ok(document.filter(|document| document.expires_at.is_none_or(|at| at > now)))
    }

    async fn document_list(&self, namespace: &str, list: &DocumentList) -> Result<Page<Document>> {
        list.check()?;
        let (now, after, asked) = (self.0.clock.now(), list.place()?, list.clone());
        let read = move |db: Db<'_, '_>, ns| documents::list(db, ns, &asked, after.as_deref(), now);
        let found = self.read_long(namespace, read).await?;
        Ok(Page::of(found, list.limit as usize, |document| document.name.clone()))
    }

    async fn entry_get(&self, namespace: &str, key: &str) -> Result<Option<Entry>> {
        let now = self.0.clock.now();
        let entry = self.read(namespace, |db, ns| Entry::get(db, ns, &key.to_owned()))?;
        Ok(entry.filter(|entry| entry.expires_at > now))
    }

    async fn entry_list(&self, namespace: &str, list: &KeyList) -> Result<Page<Entry>> {
        let now = self.0.clock.now();
        let read = move |db: Db<'_, '_>, ns, keys: Keys<'_>| entries::list(db, ns, keys, now);
        self.page(namespace, list, |entry| entry.key.clone(), read).await
    }

    async fn lock_get(&self, namespace: &str, key: &str) -> Result<Option<Lock>> {
        let now = self.0.clock.now();
        let row = self.read(namespace, |db, ns| LockRow::get(db, ns, &key.to_owned()))?;
        Ok(row.and_then(|row| row.held(now)))
    }

    async fn lock_list(&self, namespace: &str, list: &KeyList) -> Result<Page<Lock>> {
        let now = self.0.clock.now();
        let read = move |db: Db<'_, '_>, ns, keys: Keys<'_>| locks::list(db, ns, keys, now);
        self.page(namespace, list, |lock| lock.key.clone(), read).await
    }

    async fn queue_list(&self, namespace: &str) -> Result<Vec<QueueInfo>> {
        let now = self.0.clock.now();
        self.read_long(namespace, move |db, ns| queues::list(db, ns, now)).await
    }

    async fn namespaces(&self) -> Result<Vec<String>> {
        self.read_long("", |db, _| db.all(sql!("namespaces_list"), [], |cells| cells.text())).await
    }

    async fn register(&self, namespace: &str, topics: &[Topic]) -> Result<Waiter> {
        Ok(self.0.wakes.hub.register(namespace, topics))
    }

    async fn session(&self) -> Result<Session> {
        Err(Session::none("SQLite"))
    }

    fn can_lose_answers(&self) -> bool {
        false
    }

    async fn health(&self) -> Result<Health> {
        let inner = Arc::clone(&self.0);
        let version = on_a_thread(move || {
            inner.long.read(|db| migrations::version(db.connection())).map_err(error::from)
        });
        Ok(Health {
            store: format!("sqlite:{}", self.0.path.display()),
            durability: Durability::Durable,
            schema_version: version.await?,
            push: self.0.wakes.push(),
            notes: self.0.notes.clone(),
            ephemeral: None,
        })
    }

    async fn migrate(&self, _dry_run: bool) -> Result<Migration> {
        // What is open has been brought up to date already.
        let version = self.health().await?.schema_version;
        Ok(Migration { from: version, to: version.max(migrations::latest()), steps: Vec::new() })
    }

    async fn dump(&self, namespace: &str) -> Result<BoxStream<'static, Result<Record>>> {
        let mut spool = dump::Spool::beside(&self.0.path)?;
        let name = namespace.to_owned();
        let spooled = self.read_long(namespace, move |db, ns| {
            let origin = db.namespace(&name)?.unwrap_or_default().2;
            let mut records = spool.writer();
            dump::write(db, ns, origin, &mut |record| records.write(&record))?;
            Ok(records.finish().map(|()| spool))
        });
        dump::stream(spooled.await??)
    }

    async fn load(&self, namespace: &str, mut records: BoxStream<'static, Result<Record>>) -> Result<u64> {
        let mut spool = dump::Spool::beside(&self.0.path)?;
        let mut writer = spool.writer();
        while let Some(record) = records.next().await {
            writer.write(&record?)?;
        }
        writer.finish()?;
        let (reply, answer) = oneshot::channel();
        let load = dump::Load { namespace: namespace.to_owned(), records: spool, reply, decided: None };
        self.0.writer.send(Box::new(load));
        let loaded = answer.await.unwrap_or_else(|_| Err(stopped()))?;
        self.0.wakes.wake_all();
        Ok(loaded)
    }
}
