//! Two stores as one: what must last on a durable one, what is short-lived on a fast one.
//!
//! Entries under `result/` and `heartbeat/` and streams of the category `live` are on the ephemeral store, everything
//! else on the durable one. Whatever needs a decision that lasts is settled on the durable store, where an entry is moved
//! first if it is on the other. While the ephemeral store is away, entries are written to and read from the durable one.

mod dump;
mod entries;
mod link;
mod parts;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::future::try_join_all;
use futures_util::{StreamExt as _, TryStreamExt as _};
use statehold_core::backend::{Ephemeral, Health, Migration};
use statehold_core::batch::{Prepared, Replies};
use statehold_core::call::{Claim, Claimed, Deliveries, GroupRead, Sweep, Swept};
use statehold_core::command::{Command, EntryDelete, EntryTake, Reply, TakenEntry};
use statehold_core::dump::Record;
use statehold_core::model::{Document, Entry, GroupInfo, Lock, QueueInfo, Source, StreamInfo, Task, TaskId};
use statehold_core::query::{
    CategoryPage, CategoryRead, DocumentList, KeyList, Page, ReadFrom, StreamPage, StreamRead, TaskCounts,
    TaskList, Why, write_cursor,
};
use statehold_core::session::Session;
use statehold_core::wake::{Topic, Waiter};
use statehold_core::{Backend, Batch, Clock, Error, ErrorKind, Result, Timestamp};

pub use self::link::Opener;
pub use self::parts::Parts;

use self::link::Link;
use self::parts::Side;

/// Two stores as one. Clones share them.
#[derive(Clone, Debug)]
pub struct Split {
    durable: Arc<dyn Backend>,
    ephemeral: Arc<Link>,
    parts: Arc<Parts>,
    clock: Clock,
}

impl Split {
    /// A durable store, and one for what is short-lived, which may be away.
    pub fn open(durable: Arc<dyn Backend>, ephemeral: Opener) -> BoxFuture<'static, Result<Self>> {
        Box::pin(async move {
            let (ephemeral, parts) = (Link::open(ephemeral).await?, Arc::default());
            Ok(Self { durable, ephemeral, parts, clock: Clock::real() })
        })
    }

    /// Two stores that are open already.
    pub async fn on(durable: Arc<dyn Backend>, ephemeral: Arc<dyn Backend>) -> Result<Self> {
        let open: Opener = Box::new(move || Box::pin(std::future::ready(Ok(Arc::clone(&ephemeral)))));
        Self::open(durable, open).await
    }

    /// Says which part of the state is short-lived.
    #[must_use]
    pub fn with_parts(self, parts: Parts) -> Self {
        Self { parts: Arc::new(parts), ..self }
    }

    /// Goes by another clock, for the time that is left to an entry that is moved.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Sets entries on the ephemeral store; none if it is away. What the durable store has of them, which is rare, would
    /// come to light again if it lasted longer: it is removed.
    async fn set(&self, batch: &Prepared) -> Result<Option<Replies>> {
        let (namespace, first) = (&batch.batch().namespace, batch.clone());
        let keys = batch.batch().commands.iter().filter_map(entry_key);
        let old = try_join_all(keys.map(|key| self.durable.entry_get(namespace, key)));
        let (replies, old) = tokio::join!(self.ephemeral.ask(async |store| store.apply(first).await), old);
        let (Some(replies), old) = (replies?, old?) else { return Ok(None) };
        for ((command, reply), old) in batch.batch().commands.iter().zip(&replies.replies).zip(old) {
            if let (Command::EntrySet(set), Reply::EntryExpiry(expiry), Some(_)) = (command, reply, old) {
                let at = expiry.expires_at - set.ttl_seconds;
                entries::forget(&*self.durable, namespace, &set.key, at).await.map_err(half_done)?;
            }
        }
        Ok(Some(replies))
    }

    /// Settles a batch on the durable store, to the end even if its caller goes away.
    async fn settle(&self, batch: Prepared) -> Result<Replies> {
        let short = |command: &Command| entry_key(command).is_some_and(|key| self.parts.has_entry(key));
        if !batch.batch().commands.iter().any(short) {
            return self.durable.apply(batch).await;
        }
        let split = self.clone();
        let settling = tokio::spawn(async move { split.settle_entries(batch).await });
        settling.await.unwrap_or_else(|_| {
            Err(Error::unavailable("the store was closed while the request was under way"))
        })
    }

    /// The same for a batch with short-lived entries.
    async fn settle_entries(&self, batch: Prepared) -> Result<Replies> {
        let namespace = &batch.batch().namespace;
        let judged = batch.batch().commands.iter().filter_map(judged_key);
        for key in judged.filter(|key| self.parts.has_entry(key)) {
            self.bring_home(namespace, key).await?;
        }
        let replies = self.durable.apply(batch.clone()).await?;
        for (command, reply) in batch.batch().commands.iter().zip(&replies.replies) {
            if entry_key(command).is_some_and(|key| self.parts.has_entry(key)) {
                self.outdate(namespace, command, reply).await.map_err(half_done)?;
            }
        }
        Ok(replies)
    }

    /// Moves an entry to the durable store, so that it is decided on there. Of several who try, one gets it.
    async fn bring_home(&self, namespace: &str, key: &str) -> Result<()> {
        let take = EntryTake { key: key.to_owned() };
        let taking = self.ephemeral.ask(async |store| entries::run(&*store, namespace, take).await);
        let Some(entry) = taking.await?.and_then(|taken| taken.entry) else { return Ok(()) };
        let kept = entries::keep(&*self.durable, namespace, &entry, &self.clock).await;
        if kept.is_err() {
            self.ephemeral.ask(async |store| entries::put_back(&*store, namespace, entry).await).await?;
        }
        kept
    }

    /// Sees to it that what the ephemeral store has of an entry does not come to light again, now that the durable one
    /// has decided. What was judged was moved before, unless that store is away; a take that got nothing decided nothing.
    async fn outdate(&self, namespace: &str, command: &Command, reply: &Reply) -> Result<()> {
        let away = self.ephemeral.away().is_some();
        let (key, until) = match (command, reply) {
            (Command::EntrySet(set), Reply::EntryExpiry(expiry)) => {
                (&set.key, expiry.expires_at - set.ttl_seconds)
            }
            (Command::EntryTake(take), Reply::TakenEntry(TakenEntry { entry: Some(entry) })) if away => {
                (&take.key, entry.set_at)
            }
            (Command::EntryDelete(delete), _) if away => (&delete.key, Timestamp::MAX),
            _ => return Ok(()),
        };
        loop {
            let forgetting =
                self.ephemeral.ask(async |store| entries::forget(&*store, namespace, key, until).await);
            if forgetting.await?.is_some() || self.ephemeral.void(namespace, key, until) {
                return Ok(());
            }
        }
    }

    /// Applies a batch about short-lived streams. Fences are judged on the store that has what they are about.
    async fn apply_live(&self, batch: Prepared) -> Result<Replies> {
        let (own, others): (Vec<_>, Vec<_>) =
            batch.batch().fences.iter().cloned().partition(|fence| self.parts.has_fence(fence));
        if others.is_empty() {
            return self.ephemeral.need(async |store| store.apply(batch).await).await;
        }
        let nothing = EntryDelete { key: TaskId::generate().to_string() };
        let mut judge = Batch::of(&batch.batch().namespace, nothing).0;
        judge.fences = others;
        self.durable.apply(judge.prepare()?).await?;
        let batch = Batch { fences: own, ..batch.batch().clone() }.prepare()?;
        self.ephemeral.need(async |store| store.apply(batch).await).await
    }

    /// What the ephemeral store has in a namespace; nothing while it is away.
    async fn short_lived(&self, namespace: &str) -> Result<Vec<Record>> {
        let dumping = self.ephemeral.ask(async |store| store.dump(namespace).await?.try_collect().await);
        Ok(dumping.await?.unwrap_or_default())
    }

    /// Whether a record of the ephemeral store is one of the namespace's, rather than the store's own.
    fn is_shown(&self, record: &Record) -> bool {
        matches!(record, Record::Entry(entry) if self.parts.has_entry(&entry.key))
            || self.parts.has_record(record)
    }
}

/// What was asked for is done, and what follows from it on the other store is not: repeating it as if nothing had happened
/// would do it twice.
fn half_done(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unavailable => Error::new(ErrorKind::Timeout, error.message().to_owned()).caused_by(error),
        _ => error,
    }
}

/// The entry that a command is about.
fn entry_key(command: &Command) -> Option<&str> {
    match command {
        Command::EntrySet(set) => Some(&set.key),
        command => judged_key(command),
    }
}

/// The entry whose value or absence a command depends on.
fn judged_key(command: &Command) -> Option<&str> {
    match command {
        Command::EntrySet(set) if set.if_absent => Some(&set.key),
        Command::EntryTake(take) => Some(&take.key),
        Command::EntryDelete(delete) => Some(&delete.key),
        _ => None,
    }
}

#[async_trait]
impl Backend for Split {
    async fn apply(&self, batch: Prepared) -> Result<Replies> {
        match self.parts.side(batch.batch())? {
            Side::Durable => self.settle(batch).await,
            Side::Ephemeral => self.apply_live(batch).await,
            Side::Either => match self.set(&batch).await? {
                Some(replies) => Ok(replies),
                None => self.settle(batch).await,
            },
        }
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.durable.claim(claim).await
    }

    async fn group_read(&self, read: GroupRead) -> Result<Deliveries> {
        if self.parts.has_category(read.source.category()) {
            return self.ephemeral.need(async |store| store.group_read(read).await).await;
        }
        self.durable.group_read(read).await
    }

    async fn sweep(&self, sweep: Sweep) -> Result<Swept> {
        let mut swept = self.durable.sweep(sweep.clone()).await?;
        if let Some(other) = self.ephemeral.ask(async |store| store.sweep(sweep).await).await? {
            swept.add(&other);
            swept.more |= other.more;
        }
        Ok(swept)
    }

    async fn task_get(&self, namespace: &str, ids: &[TaskId]) -> Result<Vec<Option<Task>>> {
        self.durable.task_get(namespace, ids).await
    }

    async fn task_list(&self, namespace: &str, list: &TaskList) -> Result<Page<Task>> {
        self.durable.task_list(namespace, list).await
    }

    async fn task_count(&self, namespace: &str, queue: Option<&str>) -> Result<TaskCounts> {
        self.durable.task_count(namespace, queue).await
    }

    async fn task_why(&self, namespace: &str, id: TaskId) -> Result<Why> {
        self.durable.task_why(namespace, id).await
    }

    async fn stream_read(&self, namespace: &str, read: &StreamRead) -> Result<StreamPage> {
        if !self.parts.has_category(read.stream.category()) {
            return self.durable.stream_read(namespace, read).await;
        }
        let page = self.ephemeral.need(async |store| store.stream_read(namespace, read).await).await?;
        match read.from {
            // The store has lost its memory since the cursor was given: the stream has begun anew.
            ReadFrom::After(seq) if seq > page.last_seq => {
                Err(Error::compacted(&read.stream.to_string(), &page.oldest))
            }
            _ => Ok(page),
        }
    }

    async fn category_read(&self, namespace: &str, read: &CategoryRead) -> Result<CategoryPage> {
        if self.parts.has_category(&read.category) {
            return self.ephemeral.need(async |store| store.category_read(namespace, read).await).await;
        }
        self.durable.category_read(namespace, read).await
    }

    async fn stream_list(&self, namespace: &str, list: &KeyList) -> Result<Page<StreamInfo>> {
        let durable = self.durable.stream_list(namespace, list).await?;
        let listing = self.ephemeral.ask(async |store| store.stream_list(namespace, list).await);
        let Some(ephemeral) = listing.await? else { return Ok(durable) };
        let more = durable.next_cursor.is_some() || ephemeral.next_cursor.is_some();
        let live = |info: &StreamInfo| self.parts.has_category(info.stream.category());
        let mut items: Vec<_> = durable.items.into_iter().filter(|info| !live(info)).collect();
        items.extend(ephemeral.items.into_iter().filter(live));
        items.sort_by(|a, b| a.stream.cmp(&b.stream));
        let more = more || items.len() > list.limit as usize;
        items.truncate(list.limit as usize);
        let next_cursor = items.last().filter(|_| more).map(|last| write_cursor(&last.stream.to_string()));
        Ok(Page { items, next_cursor })
    }

    async fn group_info(&self, namespace: &str, group: &str, source: &Source) -> Result<GroupInfo> {
        if self.parts.has_category(source.category()) {
            let asking = self.ephemeral.need(async |store| store.group_info(namespace, group, source).await);
            return asking.await;
        }
        self.durable.group_info(namespace, group, source).await
    }

    async fn document_get(&self, namespace: &str, kind: &str, name: &str) -> Result<Option<Document>> {
        self.durable.document_get(namespace, kind, name).await
    }

    async fn document_list(&self, namespace: &str, list: &DocumentList) -> Result<Page<Document>> {
        self.durable.document_list(namespace, list).await
    }

    async fn entry_get(&self, namespace: &str, key: &str) -> Result<Option<Entry>> {
        if !self.parts.has_entry(key) {
            return self.durable.entry_get(namespace, key).await;
        }
        let reading = self.ephemeral.ask(async |store| store.entry_get(namespace, key).await);
        let (durable, ephemeral) = tokio::join!(self.durable.entry_get(namespace, key), reading);
        Ok(entries::newer(durable?, ephemeral?.flatten()))
    }

    async fn entry_list(&self, namespace: &str, list: &KeyList) -> Result<Page<Entry>> {
        let durable = self.durable.entry_list(namespace, list).await?;
        if !self.parts.has_entries_under(&list.prefix) {
            return Ok(durable);
        }
        let listing = self.ephemeral.ask(async |store| store.entry_list(namespace, list).await);
        Ok(match listing.await? {
            Some(ephemeral) => entries::merge(list, durable, ephemeral),
            None => durable,
        })
    }

    async fn lock_get(&self, namespace: &str, key: &str) -> Result<Option<Lock>> {
        self.durable.lock_get(namespace, key).await
    }

    async fn lock_list(&self, namespace: &str, list: &KeyList) -> Result<Page<Lock>> {
        self.durable.lock_list(namespace, list).await
    }

    async fn queue_list(&self, namespace: &str) -> Result<Vec<QueueInfo>> {
        self.durable.queue_list(namespace).await
    }

    async fn namespaces(&self) -> Result<Vec<String>> {
        let mut names: BTreeSet<_> = self.durable.namespaces().await?.into_iter().collect();
        names.extend(self.ephemeral.ask(async |store| store.namespaces().await).await?.into_iter().flatten());
        Ok(names.into_iter().collect())
    }

    /// Everyone listens on both sides.
    async fn register(&self, namespace: &str, topics: &[Topic]) -> Result<Waiter> {
        let waiter = self.durable.register(namespace, topics).await?;
        Ok(match self.ephemeral.opened() {
            Some(store) => waiter.and(store.register(namespace, topics).await?),
            None => waiter,
        })
    }

    async fn session(&self) -> Result<Session> {
        self.durable.session().await
    }

    fn can_lose_answers(&self) -> bool {
        self.durable.can_lose_answers()
            || self.ephemeral.opened().is_none_or(|store| store.can_lose_answers())
    }

    async fn health(&self) -> Result<Health> {
        let mut health = self.durable.health().await?;
        let asked = self.ephemeral.ask(async |store| store.health().await).await?;
        let away = self.ephemeral.away();
        if let Some(why) = &away {
            health.notes.push(format!(
                "degraded: the store of short-lived state is away ({why}); results and heartbeats are kept on the \
                 durable store, live streams are unavailable"
            ));
        }
        let store = asked.map_or_else(String::new, |health| health.store);
        health.ephemeral = Some(Ephemeral { store, away, fallbacks: self.ephemeral.fallbacks() });
        Ok(health)
    }

    async fn migrate(&self, dry_run: bool) -> Result<Migration> {
        let migration = self.durable.migrate(dry_run).await?;
        self.ephemeral.ask(async |store| store.migrate(dry_run).await).await?;
        Ok(migration)
    }

    /// What is short-lived is not of the same instant, and is missing while its store is away.
    async fn dump(&self, namespace: &str) -> Result<BoxStream<'static, Result<Record>>> {
        let mut short = self.short_lived(namespace).await?;
        short.retain(|record| self.is_shown(record));
        let durable = self.durable.dump(namespace).await?;
        let parts = Arc::clone(&self.parts);
        let durable = durable.try_filter(move |record| std::future::ready(!parts.has_record(record)));
        Ok(dump::merge(durable.boxed(), short))
    }

    /// Entries go to the durable store, streams to the one that they are read from.
    async fn load(&self, namespace: &str, records: BoxStream<'static, Result<Record>>) -> Result<u64> {
        if !self.short_lived(namespace).await?.is_empty() {
            let message = format!("namespace `{namespace}` is not empty");
            return Err(Error::conflict(namespace, message).hint("load into a namespace with nothing in it"));
        }
        let (parts, live) = (Arc::clone(&self.parts), Arc::<Mutex<Vec<_>>>::default());
        let aside = Arc::clone(&live);
        let durable = records.try_filter(move |record| {
            let short = parts.has_record(record);
            if short {
                aside.lock().unwrap_or_else(PoisonError::into_inner).push(record.clone());
            }
            std::future::ready(!short)
        });
        let count = self.durable.load(namespace, durable.boxed()).await?;
        let live = std::mem::take(&mut *live.lock().unwrap_or_else(PoisonError::into_inner));
        if live.is_empty() {
            return Ok(count);
        }
        let live = futures_util::stream::iter(live).map(Ok).boxed();
        let loading = self.ephemeral.need(async |store| store.load(namespace, live).await);
        Ok(count + loading.await?)
    }
}
