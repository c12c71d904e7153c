//! `memory:`: maps that run plans. For unit tests and scratch; everything is gone with the process.

mod index;
mod queries;
mod space;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use futures_util::{StreamExt as _, stream};

use crate::backend::{Backend, Durability, Health, Migration, Push};
use crate::batch::{Prepared, Replies};
use crate::call::{Claim, Claimed, Deliveries, GroupRead, Sweep, Swept};
use crate::clock::Clock;
use crate::dump::Record;
use crate::error::{Error, Result};
use crate::model::{Document, Entry, GroupInfo, Lock, QueueInfo, Source, StreamInfo, Task, TaskId};
use crate::plan::{self, Context, Rows, Step};
use crate::query::{
    CategoryPage, CategoryRead, DocumentList, KeyList, Page, StreamPage, StreamRead, TaskCounts, TaskList,
    Why,
};
use crate::session::Session;
use crate::wake::{Hub, Topic, Waiter};
use space::Space;

/// A store in this process's memory. Clones share it.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use statehold_core::command::TaskCreate;
/// use statehold_core::memory::Memory;
/// use statehold_core::{Backend, Batch, Clock};
///
/// let store = Memory::new(Clock::real());
/// let (batch, created) = Batch::of("default", TaskCreate::new("send"));
/// let task = store.apply(batch.prepare()?).await?.take(created)?.task;
/// assert_eq!(task.status.as_str(), "pending");
/// # Ok::<(), statehold_core::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct Memory {
    clock: Clock,
    /// How many requests share a commit at most.
    group: usize,
    spaces: Arc<Mutex<BTreeMap<String, Space>>>,
    hub: Hub,
}

/// The name of the only process in the audit category.
const REPLICA: &str = "local";

impl Memory {
    /// An empty store that goes by `clock`.
    pub fn new(clock: Clock) -> Self {
        Self { clock, ..Self::default() }
    }

    /// The same, but up to `group` batches and claims at the same instant are decided on an overlay before
    /// their effects are stored together, as stores do that commit many callers' batches at once.
    pub fn grouping(clock: Clock, group: usize) -> Self {
        Self { clock, group, ..Self::default() }
    }

    fn spaces(&self) -> MutexGuard<'_, BTreeMap<String, Space>> {
        self.spaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans a request on a namespace, loads what the plan needs, and stores what it leaves.
    fn decide<T>(&self, namespace: &str, plan: impl Fn(&Rows, &Context<'_>) -> Step<T>) -> Result<T> {
        let mut spaces = self.spaces();
        let context = Context { now: self.clock.now(), replica: REPLICA };
        let space = spaces.entry(namespace.to_owned()).or_default();
        let mut rows = space.overlay(context.now);
        let decided = loop {
            match plan(&rows, &context) {
                Step::Need(needs) => space.load(needs, &mut rows, context.now),
                Step::Refuse(error) => break Err(error),
                Step::Accept(answer, effects) => {
                    let marks = effects.marks(namespace);
                    rows.accept(&effects);
                    space.hold(effects);
                    self.hub.wake(marks);
                    break Ok(answer);
                }
            }
        };
        space.settle(rows, self.group);
        if space.is_empty() {
            spaces.remove(namespace);
        }
        decided
    }

    /// The same for a request that reads what only the store knows, so that nothing may be held back.
    fn decide_alone<T>(&self, namespace: &str, plan: impl Fn(&Rows, &Context<'_>) -> Step<T>) -> Result<T> {
        self.ask(namespace, |_| Ok(()))?;
        let decided = self.decide(namespace, plan);
        self.ask(namespace, |_| Ok(()))?;
        decided
    }

    /// Asks a namespace, which may be empty.
    fn ask<T>(&self, namespace: &str, question: impl FnOnce(&Space) -> Result<T>) -> Result<T> {
        let mut spaces = self.spaces();
        match spaces.get_mut(namespace) {
            Some(space) => {
                space.flush();
                question(space)
            }
            None => question(&Space::default()),
        }
    }
}

#[async_trait]
impl Backend for Memory {
    async fn apply(&self, batch: Prepared) -> Result<Replies> {
        self.decide(&batch.batch().namespace, |rows, context| plan::apply(&batch, rows, context))
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        claim.check()?;
        self.decide(&claim.namespace, |rows, context| plan::claim(&claim, rows, context))
    }

    async fn group_read(&self, read: GroupRead) -> Result<Deliveries> {
        read.check()?;
        self.decide_alone(&read.namespace, |rows, context| plan::group_read(&read, rows, context))
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept> {
        sweep.check()?;
        self.decide_alone(&sweep.namespace, |rows, context| plan::sweep(&sweep, rows, context))
    }

    async fn task_get(&self, namespace: &str, ids: &[TaskId]) -> Result<Vec<Option<Task>>> {
        self.ask(namespace, |space| Ok(space.tasks(ids)))
    }

    async fn task_list(&self, namespace: &str, list: &TaskList) -> Result<Page<Task>> {
        list.check()?;
        self.ask(namespace, |space| space.task_list(list))
    }

    async fn task_count(&self, namespace: &str, queue: Option<&str>) -> Result<TaskCounts> {
        let now = self.clock.now();
        self.ask(namespace, |space| Ok(space.task_count(queue, now)))
    }

    async fn task_why(&self, namespace: &str, id: TaskId) -> Result<Why> {
        self.decide_alone(namespace, |rows, context| plan::why(id, rows, context))
    }

    async fn stream_read(&self, namespace: &str, read: &StreamRead) -> Result<StreamPage> {
        read.check()?;
        self.ask(namespace, |space| space.stream_read(read))
    }

    async fn category_read(&self, namespace: &str, read: &CategoryRead) -> Result<CategoryPage> {
        read.check()?;
        self.ask(namespace, |space| space.category_read(read))
    }

    async fn stream_list(&self, namespace: &str, list: &KeyList) -> Result<Page<StreamInfo>> {
        list.check()?;
        self.ask(namespace, |space| space.stream_list(list))
    }

    async fn group_info(&self, namespace: &str, group: &str, source: &Source) -> Result<GroupInfo> {
        self.ask(namespace, |space| space.group_info(group, source))
    }

    async fn document_get(&self, namespace: &str, kind: &str, name: &str) -> Result<Option<Document>> {
        let now = self.clock.now();
        self.ask(namespace, |space| Ok(space.document(kind, name, now)))
    }

    async fn document_list(&self, namespace: &str, list: &DocumentList) -> Result<Page<Document>> {
        list.check()?;
        let now = self.clock.now();
        self.ask(namespace, |space| space.document_list(list, now))
    }

    async fn entry_get(&self, namespace: &str, key: &str) -> Result<Option<Entry>> {
        let now = self.clock.now();
        self.ask(namespace, |space| Ok(space.entry(key, now)))
    }

    async fn entry_list(&self, namespace: &str, list: &KeyList) -> Result<Page<Entry>> {
        list.check()?;
        let now = self.clock.now();
        self.ask(namespace, |space| space.entry_list(list, now))
    }

    async fn lock_get(&self, namespace: &str, key: &str) -> Result<Option<Lock>> {
        let now = self.clock.now();
        self.ask(namespace, |space| Ok(space.lock(key, now)))
    }

    async fn lock_list(&self, namespace: &str, list: &KeyList) -> Result<Page<Lock>> {
        list.check()?;
        let now = self.clock.now();
        self.ask(namespace, |space| space.lock_list(list, now))
    }

    async fn queue_list(&self, namespace: &str) -> Result<Vec<QueueInfo>> {
        let now = self.clock.now();
        self.ask(namespace, |space| Ok(space.queue_list(now)))
    }

    async fn namespaces(&self) -> Result<Vec<String>> {
        Ok(self.spaces().keys().cloned().collect())
    }

    async fn register(&self, namespace: &str, topics: &[Topic]) -> Result<Waiter> {
        Ok(self.hub.register(namespace, topics))
    }

    async fn session(&self) -> Result<Session> {
        Err(Session::none("a store in memory"))
    }

    fn can_lose_answers(&self) -> bool {
        false
    }

    async fn health(&self) -> Result<Health> {
        Ok(Health {
            store: "memory:".into(),
            durability: Durability::None,
            schema_version: 1,
            push: Push::InProcess,
            notes: vec!["everything is gone when this process ends".into()],
            ephemeral: None,
        })
    }

    async fn migrate(&self, _dry_run: bool) -> Result<Migration> {
        Ok(Migration { from: 1, to: 1, steps: Vec::new() })
    }

    async fn dump(&self, namespace: &str) -> Result<BoxStream<'static, Result<Record>>> {
        let records = self.ask(namespace, |space| Ok(space.dump()))?;
        Ok(stream::iter(records.into_iter().map(Ok)).boxed())
    }

    async fn load(&self, namespace: &str, mut records: BoxStream<'static, Result<Record>>) -> Result<u64> {
        let (mut space, mut count) = (Space::default(), 0);
        while let Some(record) = records.next().await {
            space.restore(record?);
            count += 1;
        }
        let mut spaces = self.spaces();
        if spaces.get(namespace).is_some_and(|space| !space.is_empty()) {
            let message = format!("namespace `{namespace}` is not empty");
            return Err(Error::conflict(namespace, message).hint("load into a namespace with nothing in it"));
        }
        if count > 0 {
            spaces.insert(namespace.to_owned(), space);
        }
        drop(spaces);
        self.hub.wake_all();
        Ok(count)
    }
}
