//! Rivals: what ours is set against, written by hand. What an operation asks of a store is here once; how it is done
//! is an [`Engine`]'s, two for each kind of store.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use statehold_core::{Error, Result};
use uuid::Uuid;

use crate::contender::{Contender, Receipt, Slice};
use crate::ops::{Bodies, KEYS, MESSAGES, OWN, Op, STREAMS, THREADS, scatter};
use crate::ours::lost;

/// One technique on one kind of store.
#[async_trait]
pub(crate) trait Engine: Send + Sync + 'static {
    /// Does a job durably.
    async fn write(&self, job: Job) -> Result<Answer>;

    /// Reads something and answers how many rows it had.
    async fn read(&self, query: Query) -> Result<usize>;

    /// Does many jobs at once. Not timed.
    async fn fill(&self, jobs: Vec<Job>) -> Result<Vec<Answer>>;

    /// Where the store's tasks end now, for [`Trace::Tasks`].
    async fn mark(&self) -> Result<i64>;

    /// Counts what a slice left.
    async fn trace(&self, trace: Trace) -> Result<u64>;
}

/// A change, of as many rows as ours makes for the same operation.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    /// Inserts a task and its event.
    TaskCreate { queue: Arc<str>, task: TaskName, input: Arc<str> },
    /// Starts the first ready task and writes its event.
    TaskClaim { queue: Arc<str>, owner: Arc<str> },
    /// Ends a task and writes its event.
    TaskComplete(Completion),
    /// Moves the head of a stream and writes an event.
    StreamAppend { stream: Arc<str>, data: Arc<str> },
    /// Inserts or replaces an entry.
    EntrySet { key: Arc<str>, value: Arc<str> },
    /// Takes a lock that is free.
    LockAcquire { key: Arc<str>, owner: Arc<str> },
    /// Frees a lock.
    LockRelease { key: Arc<str>, token: i64 },
    /// Inserts or replaces a document.
    DocumentPut { kind: &'static str, name: Arc<str>, body: Arc<str> },
    /// Replaces a document with this revision.
    DocumentUpdate { name: Arc<str>, revision: i64, body: Arc<str> },
    /// All of these, or none of them.
    Together(Box<[Job]>),
}

/// The end of a task.
#[derive(Clone, Debug)]
pub(crate) struct Completion {
    /// Which task.
    pub(crate) task: TaskName,
    /// The proof.
    pub(crate) token: i64,
    /// What came out.
    pub(crate) output: Arc<str>,
}

/// What a job answers.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// Nothing more than that it is done.
    Done,
    /// The number of an event, the token of a lock, the revision of a document.
    Number(i64),
    /// A started task.
    Task(Started),
    /// What a claim answers when nothing is ready, and a guarded change when its guard does not hold.
    Refused,
}

/// A started task.
#[derive(Clone, Debug)]
pub(crate) struct Started {
    /// Which task.
    pub(crate) task: TaskName,
    /// The proof.
    pub(crate) token: i64,
    /// What the worker gets.
    pub(crate) input: Option<String>,
}

/// Something to read.
#[derive(Clone, Debug)]
pub(crate) enum Query {
    /// An entry.
    Entry(Arc<str>),
    /// The last 50 events of a stream.
    Messages(Arc<str>),
    /// A checkpoint.
    Checkpoint(Arc<str>),
}

/// What a slice left.
#[derive(Clone, Debug)]
pub(crate) enum Trace {
    /// Tasks of a queue in a status, created after a mark.
    Tasks {
        /// Which queue.
        queue: Arc<str>,
        /// Which status.
        status: &'static str,
        /// Where to begin.
        mark: i64,
    },
    /// Events in streams whose names begin with this.
    Events(String),
    /// Replacements of documents whose names begin with this.
    Updates(String),
}

/// The name of a task's stream, `task/<id>`, which has its id in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskName([u8; 41]);

impl TaskName {
    fn generate() -> Self {
        Self::of(Uuid::now_v7())
    }

    /// The name of the task with this id.
    pub(crate) fn of(id: Uuid) -> Self {
        let mut name = *b"task/000000000000000000000000000000000000";
        id.hyphenated().encode_lower(&mut name[5..]);
        Self(name)
    }

    /// The name of the task with this id; none if the text is no id.
    pub(crate) fn parse(id: &str) -> Option<Self> {
        let mut name = *b"task/000000000000000000000000000000000000";
        (id.len() == 36).then(|| name[5..].copy_from_slice(id.as_bytes()))?;
        Some(Self(name))
    }

    /// The name of the stream.
    pub(crate) fn stream(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The id.
    pub(crate) fn id(&self) -> &str {
        self.stream().get(5..).unwrap_or_default()
    }

    /// The id as stores with a type for it take it; a text that is none is no task's.
    pub(crate) fn uuid(&self) -> Uuid {
        Uuid::try_parse(self.id()).unwrap_or_default()
    }

    fn receipt(&self) -> Receipt {
        Receipt(self.uuid().as_u128())
    }
}

/// An engine as a contender.
pub(crate) struct Rival<E> {
    engine: Arc<E>,
    bodies: Bodies,
    slices: AtomicU64,
    /// The read operations whose rows are there.
    filled: Mutex<HashSet<Op>>,
}

impl<E: Engine> Rival<E> {
    pub(crate) fn new(engine: E) -> Self {
        let (slices, filled) = (AtomicU64::new(0), Mutex::default());
        Self { engine: Arc::new(engine), bodies: Bodies::new(), slices, filled }
    }

    /// What a slice needs before it begins.
    fn stock(&self, slice: &RivalSlice<E>, callers: usize, calls: u64) -> Vec<Job> {
        let worker: Arc<str> = "worker".into();
        let creates = (0..calls).map(|_| slice.create());
        let claims = (0..calls).map(|_| Job::TaskClaim { queue: slice.queue.clone(), owner: worker.clone() });
        let locks = (0..calls).map(|n| Job::LockAcquire { key: slice.lock_name(n), owner: worker.clone() });
        match slice.op {
            Op::TaskClaim => creates.collect(),
            Op::TaskComplete => creates.chain(claims).collect(),
            Op::BatchSettle => creates.chain(claims).chain(locks).collect(),
            Op::DocumentUpdate => (0..callers)
                .flat_map(|caller| slice.documents[caller].iter())
                .map(|name| Job::DocumentPut {
                    kind: "session",
                    name: name.clone(),
                    body: self.bodies.document.clone(),
                })
                .collect(),
            Op::EntryGet | Op::MessagesLast50 | Op::CheckpointGet => self.readable(slice),
            _ => Vec::new(),
        }
    }

    /// The rows of a read operation, the first time.
    fn readable(&self, slice: &RivalSlice<E>) -> Vec<Job> {
        if !self.filled.lock().unwrap_or_else(PoisonError::into_inner).insert(slice.op) {
            return Vec::new();
        }
        let bodies = &self.bodies;
        let names = slice.names.iter().cloned();
        match slice.op {
            Op::EntryGet => names.map(|key| Job::EntrySet { key, value: bodies.entry.clone() }).collect(),
            Op::MessagesLast50 => names
                .flat_map(|stream| (0..MESSAGES).map(move |_| stream.clone()))
                .map(|stream| Job::StreamAppend { stream, data: bodies.event.clone() })
                .collect(),
            _ => names
                .map(|name| Job::DocumentPut { kind: "checkpoint", name, body: bodies.checkpoint.clone() })
                .collect(),
        }
    }
}

#[async_trait]
impl<E: Engine> Contender for Rival<E> {
    async fn prepare(&self, op: Op, callers: usize, calls: u64) -> Result<Box<dyn Slice>> {
        let number = self.slices.fetch_add(1, Ordering::Relaxed);
        let mark = self.engine.mark().await?;
        let mut slice = RivalSlice {
            engine: Arc::clone(&self.engine),
            bodies: self.bodies.clone(),
            op,
            number,
            mark,
            queue: format!("queue-{number}").into(),
            owners: (0..callers).map(|caller| format!("worker-{caller}").into()).collect(),
            names: names(op, number, callers),
            documents: (0..callers).map(|caller| own_names(&format!("{number}/{caller}"))).collect(),
            locks: (0..callers).map(|caller| own_names(&format!("lock/{caller}"))).collect(),
            revisions: (0..callers).map(|_| Mutex::new(vec![1; usize::try_from(OWN).unwrap_or(0)])).collect(),
            leased: Vec::new(),
            locked: Vec::new(),
        };
        for answer in self.engine.fill(self.stock(&slice, callers, calls)).await? {
            match answer {
                Answer::Task(started) => slice.leased.push((started.task, started.token)),
                Answer::Number(token) if op == Op::BatchSettle => slice.locked.push(token),
                Answer::Refused => return Err(lost("a row")),
                Answer::Number(_) | Answer::Done => {}
            }
        }
        Ok(Box::new(slice))
    }
}

/// What the calls of a slice choose from.
fn names(op: Op, number: u64, callers: usize) -> Vec<Arc<str>> {
    let all = |count: u64, name: &dyn Fn(u64) -> String| (0..count).map(|n| name(n).into()).collect();
    match op {
        Op::StreamAppend => all(STREAMS, &|n| format!("thread/{number}-{n}")),
        Op::StreamAppendHot => all(1, &|n| format!("thread/{number}-{n}")),
        Op::BatchSettle => all(callers as u64, &|n| format!("thread/{number}-{n}")),
        Op::EntrySet | Op::EntryGet => all(KEYS, &|n| format!("result/{n}")),
        Op::MessagesLast50 => all(THREADS, &|n| format!("thread/{n}")),
        Op::CheckpointGet => all(KEYS, &|n| format!("stored/{n}")),
        _ => Vec::new(),
    }
}

fn own_names(prefix: &str) -> Vec<Arc<str>> {
    (0..OWN).map(|place| format!("{prefix}/{place}").into()).collect()
}

struct RivalSlice<E> {
    engine: Arc<E>,
    bodies: Bodies,
    op: Op,
    /// The slice's number, in the name of everything that it writes.
    number: u64,
    mark: i64,
    queue: Arc<str>,
    owners: Vec<Arc<str>>,
    /// The keys or streams that all callers use.
    names: Vec<Arc<str>>,
    /// For each caller, the names, locks and revisions that it has to itself.
    documents: Vec<Vec<Arc<str>>>,
    locks: Vec<Vec<Arc<str>>>,
    revisions: Vec<Mutex<Vec<i64>>>,
    /// Tasks to complete.
    leased: Vec<(TaskName, i64)>,
    /// The tokens of locks to release.
    locked: Vec<i64>,
}

impl<E: Engine> RivalSlice<E> {
    fn create(&self) -> Job {
        let (queue, input) = (self.queue.clone(), self.bodies.input.clone());
        Job::TaskCreate { queue, task: TaskName::generate(), input }
    }

    fn lock_name(&self, number: u64) -> Arc<str> {
        format!("lock/{}/{number}", self.number).into()
    }

    /// One of the shared names.
    fn name(&self, caller: usize, number: u64) -> Result<Arc<str>> {
        let place = scatter(caller, number, self.names.len().max(1) as u64);
        let name = usize::try_from(place).ok().and_then(|place| self.names.get(place));
        name.cloned().ok_or_else(|| lost("a name"))
    }

    async fn write(&self, job: Job) -> Result<Answer> {
        match self.engine.write(job).await? {
            Answer::Refused => Err(Error::corrupt("a change that nothing stands against was refused")),
            answer => Ok(answer),
        }
    }

    /// Another claim may hold what this one sees, while what came later is not seen yet: then it looks again.
    async fn claim(&self, caller: usize) -> Result<Started> {
        const TRIES: usize = 100;
        for _ in 0..TRIES {
            let (queue, owner) = (self.queue.clone(), self.owners[caller].clone());
            match self.engine.write(Job::TaskClaim { queue, owner }).await? {
                Answer::Task(started) if started.input.is_some() => return Ok(started),
                Answer::Refused => {}
                _ => break,
            }
        }
        Err(lost("a ready task"))
    }

    async fn complete(&self, task: TaskName, token: i64) -> Result<Receipt> {
        let output = self.bodies.output.clone();
        self.write(Job::TaskComplete(Completion { task, token, output })).await?;
        Ok(task.receipt())
    }

    async fn number(&self, job: Job) -> Result<i64> {
        match self.write(job).await? {
            Answer::Number(number) => Ok(number),
            _ => Err(lost("a number")),
        }
    }

    async fn lock_cycle(&self, caller: usize, number: u64) -> Result<Receipt> {
        let key = &self.locks[caller][own(number)];
        let (key, owner) = (key.clone(), self.owners[caller].clone());
        let token = self.number(Job::LockAcquire { key: key.clone(), owner }).await?;
        self.write(Job::LockRelease { key, token }).await?;
        Ok(Receipt::default())
    }

    async fn update(&self, caller: usize, number: u64) -> Result<Receipt> {
        let place = own(number);
        let known = &self.revisions[caller];
        let revision = known.lock().unwrap_or_else(PoisonError::into_inner)[place];
        let (name, body) = (self.documents[caller][place].clone(), self.bodies.document.clone());
        let revision = self.number(Job::DocumentUpdate { name, revision, body }).await?;
        known.lock().unwrap_or_else(PoisonError::into_inner)[place] = revision;
        Ok(Receipt::default())
    }

    async fn settle(&self, caller: usize, number: u64) -> Result<Receipt> {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let (task, token) = *self.leased.get(at).ok_or_else(|| lost("a leased task"))?;
        let lock_token = *self.locked.get(at).ok_or_else(|| lost("a lock"))?;
        let bodies = &self.bodies;
        let job = Job::Together(Box::new([
            Job::StreamAppend { stream: self.names[caller].clone(), data: bodies.event.clone() },
            Job::DocumentPut {
                kind: "session",
                name: self.documents[caller][0].clone(),
                body: bodies.document.clone(),
            },
            Job::LockRelease { key: self.lock_name(number), token: lock_token },
            Job::TaskComplete(Completion { task, token, output: bodies.output.clone() }),
        ]));
        self.write(job).await?;
        Ok(task.receipt())
    }

    async fn read(&self, query: Query, rows: usize) -> Result<Receipt> {
        if self.engine.read(query).await? == rows { Ok(Receipt::default()) } else { Err(lost("a row")) }
    }

    async fn tasks(&self, status: &'static str) -> Result<u64> {
        self.engine.trace(Trace::Tasks { queue: self.queue.clone(), status, mark: self.mark }).await
    }

    async fn appended(&self) -> Result<u64> {
        self.engine.trace(Trace::Events(format!("thread/{}-", self.number))).await
    }
}

/// The place of a call among what its caller has to itself.
fn own(number: u64) -> usize {
    usize::try_from(number % OWN).unwrap_or_default()
}

#[async_trait]
impl<E: Engine> Slice for RivalSlice<E> {
    async fn call(&self, caller: usize, number: u64) -> Result<Receipt> {
        let bodies = &self.bodies;
        match self.op {
            Op::TaskCreate => {
                let task = TaskName::generate();
                let (queue, input) = (self.queue.clone(), bodies.input.clone());
                self.write(Job::TaskCreate { queue, task, input }).await?;
                Ok(task.receipt())
            }
            Op::TaskClaim => Ok(self.claim(caller).await?.task.receipt()),
            Op::TaskComplete => {
                let leased = self.leased.get(usize::try_from(number).unwrap_or(usize::MAX));
                let (task, token) = *leased.ok_or_else(|| lost("a leased task"))?;
                self.complete(task, token).await
            }
            Op::TaskCycle => {
                self.write(self.create()).await?;
                let started = self.claim(caller).await?;
                self.complete(started.task, started.token).await
            }
            Op::LockCycle => self.lock_cycle(caller, number).await,
            Op::StreamAppend | Op::StreamAppendHot => {
                let (stream, data) = (self.name(caller, number)?, bodies.event.clone());
                let seq = self.number(Job::StreamAppend { stream, data }).await?;
                Ok(Receipt(seq.unsigned_abs().into()))
            }
            Op::EntrySet => {
                let (key, value) = (self.name(caller, number)?, bodies.entry.clone());
                self.write(Job::EntrySet { key, value }).await?;
                Ok(Receipt::default())
            }
            Op::EntryGet => self.read(Query::Entry(self.name(caller, number)?), 1).await,
            Op::MessagesLast50 => self.read(Query::Messages(self.name(caller, number)?), 50).await,
            Op::DocumentUpdate => self.update(caller, number).await,
            Op::CheckpointPut => {
                let name = format!("{}/{caller}/{number}", self.number).into();
                let body = bodies.checkpoint.clone();
                self.write(Job::DocumentPut { kind: "checkpoint", name, body }).await?;
                Ok(Receipt::default())
            }
            Op::CheckpointGet => self.read(Query::Checkpoint(self.name(caller, number)?), 1).await,
            Op::BatchSettle => self.settle(caller, number).await,
        }
    }

    async fn traces(&self) -> Result<Option<u64>> {
        match self.op {
            Op::TaskCreate => self.tasks("pending").await.map(Some),
            Op::TaskClaim => self.tasks("running").await.map(Some),
            Op::TaskComplete | Op::TaskCycle => self.tasks("completed").await.map(Some),
            Op::BatchSettle => Ok(Some(self.tasks("completed").await?.min(self.appended().await?))),
            Op::StreamAppend | Op::StreamAppendHot => self.appended().await.map(Some),
            Op::DocumentUpdate => {
                self.engine.trace(Trace::Updates(format!("{}/", self.number))).await.map(Some)
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const CALLERS: usize = 8;
    const CALLS: u64 = 12;

    /// All callers at once, so that their calls go together.
    pub(crate) async fn every_call_leaves_a_trace(contender: &dyn Contender, op: Op) {
        let all = CALLERS as u64 * CALLS;
        let slice = contender.prepare(op, CALLERS, all).await.expect("it is prepared");
        let slice: Arc<dyn Slice> = slice.into();
        let callers: Vec<_> =
            (0..CALLERS).map(|caller| tokio::spawn(call(Arc::clone(&slice), caller))).collect();
        let mut receipts = Vec::new();
        for caller in callers {
            receipts.extend(caller.await.expect("a caller ends"));
        }
        let traces = slice.traces().await.expect("it is counted");
        assert!(traces.is_none_or(|traces| traces == all), "{op}: {traces:?} of {all}");
        receipts.sort_unstable();
        receipts.dedup();
        assert!(!op.has_unique_receipts() || receipts.len() as u64 == all, "{op}");
    }

    async fn call(slice: Arc<dyn Slice>, caller: usize) -> Vec<crate::Receipt> {
        let mut receipts = Vec::new();
        for number in 0..CALLS {
            let number = number * CALLERS as u64 + caller as u64;
            receipts.push(slice.call(caller, number).await.expect("it is done"));
        }
        receipts
    }
}
