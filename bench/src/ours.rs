//! Ours: the library, called as its users call it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use statehold::{Lease, Statehold};
use statehold_core::batch::Fence;
use statehold_core::call::Claim;
use statehold_core::command::{
    self, DocumentPut, EntrySet, Expect, LockAcquire, LockRelease, NewEvent, StreamAppend, TaskComplete,
    TaskCreate,
};
use statehold_core::model::{StreamName, TaskId, Token};
use statehold_core::query::{KeyList, ReadFrom, StreamRead};
use statehold_core::{Backend, Error, Json, Result, Seconds, Status};

use crate::contender::{Contender, Receipt, Slice};
use crate::ops::{Bodies, KEYS, LONG_SECONDS, MESSAGES, OWN, Op, STREAMS, THREADS, scatter};

/// How many commands a batch has when a slice is prepared.
const BULK: u64 = 500;

/// The library on a backend.
pub(crate) struct Ours {
    store: Arc<Library>,
    slices: AtomicU64,
    /// The read operations whose rows are there.
    filled: Mutex<HashSet<Op>>,
}

impl Ours {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        let namespace = format!("bench-{}", TaskId::generate());
        let store = Library { hold: Statehold::on(backend).at(&namespace), bodies: JsonBodies::new() };
        Self { store: Arc::new(store), slices: AtomicU64::new(0), filled: Mutex::default() }
    }

    /// Puts so many tasks (half of them finished, a quarter future, a quarter ready in other queues), events and
    /// documents there.
    pub(crate) async fn fill(&self, count: u64, progress: &(impl Fn(&str) + Sync)) -> Result<()> {
        const PART: u64 = 20_000;
        let store = &self.store;
        let later = statehold_core::Clock::real().now() + Seconds::new(86_400);
        let task = |number: u64| {
            let queue = Some(format!("present-{}", number % 100));
            let run_at = (number % 4 == 1).then_some(later);
            TaskCreate { queue, run_at, input: Some(store.bodies.input.clone()), ..TaskCreate::new("answer") }
        };
        for first in (0..count).step_by(usize::try_from(PART).unwrap_or(1)) {
            let part = PART.min(count - first);
            let created = store.run_all(part, |number| task(first + number)).await?;
            let finished: Vec<_> = created.iter().step_by(2).map(|created| created.task.id).collect();
            let cancel = |number: u64| command::TaskCancel {
                id: finished[usize::try_from(number).unwrap_or_default()],
                force: false,
                children: false,
            };
            store.run_all(finished.len() as u64, cancel).await?;
            let name = |number: u64| format!("present-{}", first + number);
            let document = |number| DocumentPut::json("present", name(number), store.bodies.input.clone());
            store.run_all(part, document).await?;
            progress(&format!("{} of {count} tasks, events and documents are there", first + part));
        }
        Ok(())
    }

    /// Whether the rows of a read operation must be made, which is once.
    fn must_fill(&self, op: Op) -> bool {
        self.filled.lock().unwrap_or_else(PoisonError::into_inner).insert(op)
    }
}

#[async_trait]
impl Contender for Ours {
    async fn prepare(&self, op: Op, callers: usize, calls: u64) -> Result<Box<dyn Slice>> {
        let number = self.slices.fetch_add(1, Ordering::Relaxed);
        let mut slice = OursSlice::new(Arc::clone(&self.store), op, number, callers);
        match op {
            Op::TaskClaim => slice.create(calls).await?,
            Op::TaskComplete => slice.lease(calls).await?,
            Op::BatchSettle => {
                slice.lease(calls).await?;
                slice.lock(calls).await?;
            }
            Op::DocumentUpdate => slice.put_documents(callers).await?,
            Op::EntryGet if self.must_fill(op) => self.store.fill_entries().await?,
            Op::MessagesLast50 if self.must_fill(op) => self.store.fill_threads().await?,
            Op::CheckpointGet if self.must_fill(op) => self.store.fill_checkpoints().await?,
            _ => {}
        }
        Ok(Box::new(slice))
    }
}

/// The bodies as the library takes them; a caller has its JSON before it calls.
struct JsonBodies {
    input: Json,
    output: Json,
    event: Json,
    entry: Json,
    document: Json,
    checkpoint: Json,
}

impl JsonBodies {
    fn new() -> Self {
        let bodies = Bodies::new();
        Self {
            input: Json::stored(&bodies.input),
            output: Json::stored(&bodies.output),
            event: Json::stored(&bodies.event),
            entry: Json::stored(&bodies.entry),
            document: Json::stored(&bodies.document),
            checkpoint: Json::stored(&bodies.checkpoint),
        }
    }
}

struct Library {
    hold: Statehold,
    bodies: JsonBodies,
}

impl Library {
    async fn run<O: command::Op>(&self, command: O) -> Result<O::Reply> {
        self.hold.run(command).await
    }

    /// Applies `calls` commands, many in a batch, and answers their replies.
    async fn run_all<O: command::Op>(&self, calls: u64, command: impl Fn(u64) -> O) -> Result<Vec<O::Reply>> {
        let mut all = Vec::new();
        for first in (0..calls).step_by(usize::try_from(BULK).unwrap_or(1)) {
            let mut batch = self.hold.batch();
            let numbers = first..calls.min(first + BULK);
            let handles: Vec<_> = numbers.map(|number| batch.add(command(number))).collect();
            let mut replies = self.hold.apply(batch).await?;
            for handle in handles {
                all.push(replies.take(handle)?);
            }
        }
        Ok(all)
    }

    async fn claim(&self, queue: &str, owner: &str, limit: u32) -> Result<Vec<Lease>> {
        let claim = Claim::new(self.hold.namespace(), queue, owner);
        let claim = Claim { limit, lease_seconds: Some(Seconds::new(LONG_SECONDS)), ..claim };
        Ok(self.hold.tasks().claim_now(claim).await?.0)
    }

    fn event(&self) -> NewEvent {
        NewEvent { kind: "message".into(), data: Some(self.bodies.event.clone()) }
    }

    fn checkpoint(&self, name: String) -> DocumentPut {
        DocumentPut::json("checkpoint", name, self.bodies.checkpoint.clone())
    }

    fn entry(&self, key: u64) -> EntrySet {
        let ttl_seconds = Seconds::new(LONG_SECONDS);
        EntrySet { ttl_seconds, ..EntrySet::new(format!("result/{key}"), self.bodies.entry.clone()) }
    }

    async fn fill_entries(&self) -> Result<()> {
        self.run_all(KEYS, |key| self.entry(key)).await.map(drop)
    }

    async fn fill_checkpoints(&self) -> Result<()> {
        self.run_all(KEYS, |key| self.checkpoint(format!("stored/{key}"))).await.map(drop)
    }

    async fn fill_threads(&self) -> Result<()> {
        for thread in 0..THREADS {
            let events = (0..MESSAGES).map(|_| self.event()).collect();
            let stream = StreamName::new("thread", thread)?;
            self.run(StreamAppend { stream, events, expect_seq: None }).await?;
        }
        Ok(())
    }
}

struct OursSlice {
    store: Arc<Library>,
    op: Op,
    /// The slice's number, in the name of everything that it writes.
    number: u64,
    queue: String,
    owners: Vec<String>,
    /// Tasks to complete.
    leased: Vec<(TaskId, Token)>,
    /// The tokens of locks to release.
    locked: Vec<Token>,
    /// For each caller, the revisions of its documents.
    revisions: Vec<Mutex<Vec<u64>>>,
}

impl OursSlice {
    fn new(store: Arc<Library>, op: Op, number: u64, callers: usize) -> Self {
        let owners = (0..callers).map(|caller| format!("worker-{caller}")).collect();
        let queue = format!("queue-{number}");
        let (leased, locked, revisions) = (Vec::new(), Vec::new(), Vec::new());
        Self { store, op, number, queue, owners, leased, locked, revisions }
    }

    fn task(&self) -> TaskCreate {
        let (queue, input) = (Some(self.queue.clone()), Some(self.store.bodies.input.clone()));
        TaskCreate { queue, input, ..TaskCreate::new("answer") }
    }

    async fn create(&mut self, calls: u64) -> Result<()> {
        self.store.run_all(calls, |_| self.task()).await.map(drop)
    }

    async fn lease(&mut self, calls: u64) -> Result<()> {
        self.create(calls).await?;
        while (self.leased.len() as u64) < calls {
            let tasks = self.store.claim(&self.queue, "worker", 1000).await?;
            if tasks.is_empty() {
                return Err(lost("a ready task"));
            }
            self.leased.extend(tasks.iter().map(|lease| (lease.id(), lease.token())));
        }
        Ok(())
    }

    fn lock_name(&self, number: u64) -> String {
        format!("lock/{}/{number}", self.number)
    }

    async fn lock(&mut self, calls: u64) -> Result<()> {
        let acquire = |number| self.acquire(self.lock_name(number), "worker".into());
        let locked = self.store.run_all(calls, acquire).await?;
        self.locked = locked.into_iter().map(|lock| lock.token).collect();
        Ok(())
    }

    #[expect(clippy::unused_self, reason = "reads like the other commands of a slice")]
    fn acquire(&self, key: String, owner: String) -> LockAcquire {
        LockAcquire { ttl_seconds: Seconds::new(LONG_SECONDS), ..LockAcquire::new(key, owner) }
    }

    fn document_name(&self, caller: usize, place: u64) -> String {
        format!("{}/{caller}/{place}", self.number)
    }

    async fn put_documents(&mut self, callers: usize) -> Result<()> {
        for caller in 0..callers {
            let put = |place| {
                let (name, body) = (self.document_name(caller, place), self.store.bodies.document.clone());
                DocumentPut::json("session", name, body)
            };
            let puts = self.store.run_all(OWN, put).await?;
            self.revisions.push(Mutex::new(puts.into_iter().map(|put| put.revision).collect()));
        }
        Ok(())
    }

    fn stream(&self, place: u64) -> Result<StreamName> {
        StreamName::new("thread", format_args!("{}-{place}", self.number))
    }

    async fn cycle(&self, caller: usize) -> Result<Receipt> {
        self.store.run(self.task()).await?;
        let (id, token) = self.claim(caller).await?;
        self.complete(id, token).await
    }

    async fn claim(&self, caller: usize) -> Result<(TaskId, Token)> {
        let tasks = self.store.claim(&self.queue, &self.owners[caller], 1).await?;
        tasks.first().map(|lease| (lease.id(), lease.token())).ok_or_else(|| lost("a ready task"))
    }

    async fn complete(&self, id: TaskId, token: Token) -> Result<Receipt> {
        let output = Some(self.store.bodies.output.clone());
        self.store.run(TaskComplete { id, token, output }).await?;
        Ok(receipt(id))
    }

    async fn append(&self, place: u64) -> Result<Receipt> {
        let (stream, events) = (self.stream(place)?, vec![self.store.event()]);
        let appended = self.store.run(StreamAppend { stream, events, expect_seq: None }).await?;
        Ok(Receipt(appended.last_seq.into()))
    }

    async fn lock_cycle(&self, caller: usize, number: u64) -> Result<Receipt> {
        let key = format!("lock/{caller}/{}", number % OWN);
        let acquired = self.store.run(self.acquire(key.clone(), self.owners[caller].clone())).await?;
        self.store.run(LockRelease { key, token: acquired.token }).await?;
        Ok(Receipt::default())
    }

    async fn update(&self, caller: usize, number: u64) -> Result<Receipt> {
        let place = number % OWN;
        let at = usize::try_from(place).unwrap_or_default();
        let revision = self.revisions(caller)[at];
        let name = self.document_name(caller, place);
        let put = DocumentPut::json("session", name, self.store.bodies.document.clone());
        let put = DocumentPut { expect: Expect::Revision(revision), ..put };
        let revision = self.store.run(put).await?.revision;
        self.revisions(caller)[at] = revision;
        Ok(Receipt::default())
    }

    fn revisions(&self, caller: usize) -> std::sync::MutexGuard<'_, Vec<u64>> {
        self.revisions[caller].lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn last_messages(&self, thread: u64) -> Result<Receipt> {
        let read = StreamRead { stream: StreamName::new("thread", thread)?, from: ReadFrom::Last, limit: 50 };
        let page = self.store.hold.backend().stream_read(self.store.hold.namespace(), &read).await?;
        if page.events.len() == 50 { Ok(Receipt::default()) } else { Err(lost("a message")) }
    }

    async fn settle(&self, caller: usize, number: u64) -> Result<Receipt> {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let (id, task_token) = *self.leased.get(at).ok_or_else(|| lost("a leased task"))?;
        let token = *self.locked.get(at).ok_or_else(|| lost("a lock"))?;
        let bodies = &self.store.bodies;
        let mut batch = self.store.hold.batch().fence(Fence::Task { task: id, token: task_token });
        let (stream, events) = (self.stream(caller as u64)?, vec![self.store.event()]);
        batch.add(StreamAppend { stream, events, expect_seq: None });
        batch.add(DocumentPut::json("session", self.document_name(caller, 0), bodies.document.clone()));
        batch.add(LockRelease { key: self.lock_name(number), token });
        batch.add(TaskComplete { id, token: task_token, output: Some(bodies.output.clone()) });
        self.store.hold.apply(batch).await?;
        Ok(receipt(id))
    }

    async fn tasks(&self, status: Status) -> Result<u64> {
        let counts =
            self.store.hold.backend().task_count(self.store.hold.namespace(), Some(&self.queue)).await?;
        Ok(counts.counts.get(&status).copied().unwrap_or(0))
    }

    /// How many events were appended to the streams of this slice.
    async fn appended(&self) -> Result<u64> {
        let prefix = format!("thread/{}-", self.number);
        let list = KeyList { prefix, limit: 1000, cursor: None };
        let page = self.store.hold.backend().stream_list(self.store.hold.namespace(), &list).await?;
        Ok(page.items.iter().map(|stream| stream.last_seq).sum())
    }

    /// How often the documents of this slice were replaced.
    async fn updated(&self) -> Result<u64> {
        let mut updates = 0;
        for caller in 0..self.owners.len() {
            for place in 0..OWN {
                let name = self.document_name(caller, place);
                let document = self
                    .store
                    .hold
                    .backend()
                    .document_get(self.store.hold.namespace(), "session", &name)
                    .await?;
                updates += document.map_or(0, |document| document.revision.saturating_sub(1));
            }
        }
        Ok(updates)
    }
}

#[async_trait]
impl Slice for OursSlice {
    async fn call(&self, caller: usize, number: u64) -> Result<Receipt> {
        let store = &*self.store;
        match self.op {
            Op::TaskCreate => Ok(receipt(store.run(self.task()).await?.task.id)),
            Op::TaskClaim => Ok(receipt(self.claim(caller).await?.0)),
            Op::TaskComplete => {
                let leased = self.leased.get(usize::try_from(number).unwrap_or(usize::MAX));
                let (id, token) = *leased.ok_or_else(|| lost("a leased task"))?;
                self.complete(id, token).await
            }
            Op::TaskCycle => self.cycle(caller).await,
            Op::LockCycle => self.lock_cycle(caller, number).await,
            Op::StreamAppend => self.append(scatter(caller, number, STREAMS)).await,
            Op::StreamAppendHot => self.append(0).await,
            Op::EntrySet => {
                store.run(store.entry(scatter(caller, number, KEYS))).await?;
                Ok(Receipt::default())
            }
            Op::EntryGet => {
                let key = format!("result/{}", scatter(caller, number, KEYS));
                let entry = store.hold.backend().entry_get(store.hold.namespace(), &key).await?;
                entry.map(|_| Receipt::default()).ok_or_else(|| lost("an entry"))
            }
            Op::MessagesLast50 => self.last_messages(scatter(caller, number, THREADS)).await,
            Op::DocumentUpdate => self.update(caller, number).await,
            Op::CheckpointPut => {
                store.run(store.checkpoint(format!("{}/{caller}/{number}", self.number))).await?;
                Ok(Receipt::default())
            }
            Op::CheckpointGet => {
                let name = format!("stored/{}", scatter(caller, number, KEYS));
                let found =
                    store.hold.backend().document_get(store.hold.namespace(), "checkpoint", &name).await?;
                found.map(|_| Receipt::default()).ok_or_else(|| lost("a checkpoint"))
            }
            Op::BatchSettle => self.settle(caller, number).await,
        }
    }

    async fn traces(&self) -> Result<Option<u64>> {
        match self.op {
            Op::TaskCreate => self.tasks(Status::Pending).await.map(Some),
            Op::TaskClaim => self.tasks(Status::Running).await.map(Some),
            Op::TaskComplete | Op::TaskCycle => self.tasks(Status::Completed).await.map(Some),
            Op::BatchSettle => {
                let completed = self.tasks(Status::Completed).await?;
                Ok(Some(completed.min(self.appended().await?)))
            }
            Op::StreamAppend | Op::StreamAppendHot => self.appended().await.map(Some),
            Op::DocumentUpdate => self.updated().await.map(Some),
            _ => Ok(None),
        }
    }
}

fn receipt(id: TaskId) -> Receipt {
    Receipt(id.0.as_u128())
}

/// Something that was prepared is not there.
pub(crate) fn lost(what: &str) -> Error {
    Error::corrupt(format!("{what} that was prepared is not there"))
}

#[cfg(test)]
mod tests {
    use statehold_core::Clock;
    use statehold_core::memory::Memory;

    use super::*;

    #[tokio::test]
    async fn every_operation_leaves_its_traces() {
        let ours = Ours::new(Arc::new(Memory::new(Clock::real())));
        for op in Op::ALL {
            let slice = ours.prepare(op, 2, 10).await.expect("it is prepared");
            for number in 0..6 {
                slice.call(usize::from(number % 2 == 0), number).await.expect("it is done");
            }
            assert!(slice.traces().await.expect("it is counted").is_none_or(|traces| traces == 6), "{op}");
        }
    }
}
