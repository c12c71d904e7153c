//! What cases are written with: a fresh namespace on a backend, a clock in the hand, and short ways to ask.

#![allow(clippy::missing_panics_doc, reason = "a helper that panics is a case that fails")]

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use libtest_mimic::{Arguments, Failed, Trial};
use statehold_core::batch::{Batch, Replies};
use statehold_core::call::{Claim, Claimed, GroupRead, Sweep, Swept};
use statehold_core::command::{
    Appended, DeliveryRef, NewEvent, Op, StreamAppend, TaskCancel, TaskComplete, TaskCreate, TaskFail,
    TaskSignal, TaskStart, TaskSuspend,
};
use statehold_core::dump::Record;
use statehold_core::error::Place;
use statehold_core::model::{
    Delivered, Event, OnTimeout, Source, StreamName, Task, TaskError, TaskId, Token, WaitFor,
};
use statehold_core::query::{ReadFrom, StreamRead};
use statehold_core::{Backend, Clock, Error, Json, Result, Status, Timestamp};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A promise: its name and how it is judged.
#[derive(Clone, Copy)]
pub struct Case {
    /// The name of the promise.
    pub name: &'static str,
    /// Panics if the promise is broken.
    pub run: fn(Store) -> BoxFuture<()>,
}

/// Lists the cases of a file. A case that is not listed is dead code, which the build refuses.
#[macro_export]
macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        &[$($crate::Case { name: stringify!($case), run: |store| Box::pin($case(store)) }),*]
    };
}

/// A backend to be judged: a namespace of its own, and the clock it goes by.
#[derive(Clone, Debug)]
pub struct Store {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// Stands still until a case moves it.
    pub clock: Clock,
    /// Nobody else uses it.
    pub namespace: String,
}

pub(crate) type Open = Arc<dyn Fn(Clock) -> BoxFuture<Arc<dyn Backend>> + Send + Sync>;

/// Runs all cases and the property test as tests of the backend that `open` opens; for a test target without a harness.
pub fn run<F, B>(open: impl Fn(Clock) -> F + Send + Sync + 'static) -> ExitCode
where
    F: Future<Output = B> + Send + 'static,
    B: Backend,
{
    run_all(&boxed(open))
}

// What opens a store goes no further than this, so that the rest is compiled once and not for each store.
fn run_all(open: &Open) -> ExitCode {
    let all = Arc::clone(open);
    let property = Trial::test("property::random_requests_agree_with_the_naive_model", move || {
        crate::property::property(&all, crate::property::operations());
        Ok(())
    });
    judge_all(trials(open).into_iter().chain([property]).collect())
}

/// The same without the property test, for a backend whose bookkeeping differs in what the documentation says.
pub fn run_cases<F, B>(open: impl Fn(Clock) -> F + Send + Sync + 'static) -> ExitCode
where
    F: Future<Output = B> + Send + 'static,
    B: Backend,
{
    judge_all(trials(&boxed(open)))
}

fn judge_all(trials: Vec<Trial>) -> ExitCode {
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn boxed<F, B>(open: impl Fn(Clock) -> F + Send + Sync + 'static) -> Open
where
    F: Future<Output = B> + Send + 'static,
    B: Backend,
{
    Arc::new(move |clock| {
        let opening = open(clock);
        Box::pin(async move { Arc::new(opening.await) as Arc<dyn Backend> })
    })
}

fn trials(open: &Open) -> Vec<Trial> {
    let trial = |(file, case): (&str, Case)| {
        let open = Arc::clone(open);
        Trial::test(format!("{file}::{}", case.name), move || judge(case, &open))
    };
    crate::cases::all().into_iter().map(trial).collect()
}

/// How long a case may take. It only keeps a broken store from hanging.
const PATIENCE: Duration = Duration::from_secs(60);

fn judge(case: Case, open: &Open) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async move {
        let clock = Clock::manual(start());
        let namespace = format!("case-{}", TaskId::generate());
        let case = async { (case.run)(Store { backend: open(clock.clone()).await, clock, namespace }).await };
        let judged = tokio::time::timeout(PATIENCE, case).await;
        judged.map_err(|_| Failed::from(format!("it does not end within {PATIENCE:?}")))
    })
}

/// When every case begins.
pub fn start() -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000)
}

impl Store {
    /// The time now.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// An empty batch.
    pub fn batch(&self) -> Batch {
        Batch::new(&self.namespace)
    }

    /// Applies a batch.
    pub async fn apply(&self, batch: Batch) -> Result<Replies> {
        self.backend.apply(batch.prepare()?).await
    }

    /// Applies one command.
    pub async fn run<O: Op>(&self, command: O) -> Result<O::Reply> {
        let (batch, reply) = Batch::of(&self.namespace, command);
        self.apply(batch).await?.take(reply)
    }

    /// Creates a task that must be new.
    pub async fn create(&self, create: TaskCreate) -> Task {
        let created = self.run(create).await.expect("the task is created");
        assert!(created.created, "the task is new");
        created.task
    }

    /// Creates a plain task of kind `k` in queue `q`.
    pub async fn plain(&self) -> Task {
        self.create(plain_create()).await
    }

    /// Creates a plain task that depends on others.
    pub async fn after(&self, depends_on: &[TaskId]) -> Task {
        self.create(TaskCreate { depends_on: depends_on.to_vec(), ..plain_create() }).await
    }

    /// Creates a plain child.
    pub async fn child(&self, parent: TaskId, child_key: &str) -> Task {
        let child_key = Some(child_key.to_owned());
        self.create(TaskCreate { parent: Some(parent), child_key, ..plain_create() }).await
    }

    /// Creates a task and starts it for `owner`.
    pub async fn started(&self, owner: &str) -> (Task, Token) {
        let task = self.plain().await;
        self.start(task.id, owner).await
    }

    /// Starts a task.
    pub async fn start(&self, id: TaskId, owner: &str) -> (Task, Token) {
        let start = TaskStart { id, owner: owner.into(), lease_seconds: Some(30.into()) };
        let task = self.run(start).await.expect("the task starts");
        let token = token_of(&task);
        (task, token)
    }

    /// Completes a task.
    pub async fn complete(&self, id: TaskId, token: Token) -> Result<Task> {
        self.run(TaskComplete { id, token, output: None }).await
    }

    /// Starts a task and completes it.
    pub async fn finish(&self, id: TaskId) -> Task {
        let (_, token) = self.start(id, "finisher").await;
        self.complete(id, token).await.expect("the task completes")
    }

    /// Fails an attempt.
    pub async fn fail(&self, id: TaskId, token: Token) -> Result<Task> {
        self.run(TaskFail { id, token, error: broken(), retry: true }).await
    }

    /// Starts a task and fails it for good.
    pub async fn doom(&self, id: TaskId) -> Task {
        let (_, token) = self.start(id, "breaker").await;
        self.run(TaskFail { id, token, error: broken(), retry: false }).await.expect("the task fails")
    }

    /// Suspends a running task without a deadline.
    pub async fn suspend(&self, id: TaskId, token: Token, waiting_for: WaitFor) -> Task {
        let (timeout_seconds, on_timeout) = (None, OnTimeout::Resume);
        let suspend = TaskSuspend { id, token, waiting_for, timeout_seconds, on_timeout };
        self.run(suspend).await.expect("the task is suspended")
    }

    /// Signals a task without data.
    pub async fn signal(&self, id: TaskId, name: &str) -> Result<Task> {
        self.run(TaskSignal { id, name: name.into(), data: None }).await
    }

    /// Cancels a task, without force and without its children.
    pub async fn cancel(&self, id: TaskId) -> Result<Task> {
        self.run(TaskCancel { id, force: false, children: false }).await
    }

    /// Claims up to `limit` tasks from queue `q`.
    pub async fn claim(&self, owner: &str, limit: u32) -> Claimed {
        let claim = Claim { limit, ..Claim::new(&self.namespace, "q", owner) };
        self.backend.claim(claim).await.expect("the claim is answered")
    }

    /// Sweeps once, with room for all.
    pub async fn sweep(&self) -> Swept {
        self.backend.sweep(Sweep::new(&self.namespace)).await.expect("the sweep is answered")
    }

    /// Reads a task that must exist.
    pub async fn task(&self, id: TaskId) -> Task {
        self.find(id).await.expect("the task exists")
    }

    /// Reads a task.
    pub async fn find(&self, id: TaskId) -> Option<Task> {
        self.backend.task_get(&self.namespace, &[id]).await.expect("the task is read").remove(0)
    }

    /// The status of a task.
    pub async fn status(&self, id: TaskId) -> Status {
        self.task(id).await.status
    }

    /// All events of a stream that are there.
    pub async fn events(&self, stream: &StreamName) -> Vec<Event> {
        let read = StreamRead { stream: stream.clone(), from: ReadFrom::Oldest, limit: 1000 };
        self.backend.stream_read(&self.namespace, &read).await.expect("the stream is read").events
    }

    /// Type and data of a task's lifecycle events, which are as many as its revision says.
    pub async fn log(&self, id: TaskId) -> Vec<(String, Option<Json>)> {
        let events = self.events(&StreamName::of_task(id)).await;
        let own = events.into_iter().filter(|event| event.kind.starts_with("task."));
        let log: Vec<_> = own.map(|event| (event.kind, event.data)).collect();
        assert_eq!(self.task(id).await.revision, log.len() as u64, "the revision counts the events {log:?}");
        log
    }

    /// Runs a command that must be refused and must leave the task as it was.
    pub async fn refuses<O: Op<Reply: Debug>>(&self, id: TaskId, command: O, code: &str) -> Error {
        let stream = StreamName::of_task(id);
        let before = (self.task(id).await, self.events(&stream).await);
        let error = refused(self.run(command).await, code);
        assert_eq!(error.place(), Some(Place::Command(0)), "{error}");
        assert_eq!((self.task(id).await, self.events(&stream).await), before, "a refusal leaves nothing");
        error
    }

    /// Appends events of these types.
    pub async fn append(&self, stream: &str, kinds: &[&str]) -> Appended {
        self.run(appending(stream, kinds)).await.expect("the events are appended")
    }

    /// Reads up to ten events for half a minute, as a consumer of a group.
    pub async fn deliver(&self, group: &str, source: &Source, consumer: &str) -> Vec<Delivered> {
        let read = GroupRead::new(&self.namespace, group, source.clone(), consumer);
        self.backend.group_read(read).await.expect("the group is read").events
    }

    /// Everything in the namespace.
    pub async fn dump(&self) -> Vec<Record> {
        let records = self.backend.dump(&self.namespace).await.expect("the dump begins");
        records.try_collect().await.expect("the dump ends")
    }

    /// The same backend in another namespace.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self { namespace: format!("{}-beside", self.namespace), ..self.clone() }
    }

    /// The types of a task's events.
    pub async fn history(&self, id: TaskId) -> Vec<String> {
        self.events(&StreamName::of_task(id)).await.into_iter().map(|event| event.kind).collect()
    }
}

/// The token of a running task.
pub fn token_of(task: &Task) -> Token {
    task.lease.as_ref().expect("the task is leased").token
}

/// Asks for a task of kind `k` in queue `q`.
pub fn plain_create() -> TaskCreate {
    TaskCreate { queue: Some("q".into()), ..TaskCreate::new("k") }
}

/// Why tasks fail in cases.
pub fn broken() -> TaskError {
    TaskError::new("broken", "it broke")
}

/// Type and data of an event, as [`Store::log`] tells them; null for no data.
pub fn event(kind: &str, data: &serde_json::Value) -> (String, Option<Json>) {
    let data = (!data.is_null()).then(|| Json::of(data).expect("valid JSON"));
    (kind.to_owned(), data)
}

/// The name of a stream from its text.
pub fn stream(name: &str) -> StreamName {
    name.parse().expect("a stream's name")
}

/// A command that appends events of these types.
pub fn appending(name: &str, kinds: &[&str]) -> StreamAppend {
    let events = kinds.iter().map(|kind| NewEvent { kind: (*kind).to_owned(), data: None });
    StreamAppend { stream: stream(name), events: events.collect(), expect_seq: None }
}

/// What a consumer shows to acknowledge a delivery.
pub fn proof(delivered: &Delivered) -> DeliveryRef {
    DeliveryRef { position: delivered.event.position.clone(), delivery_token: delivered.delivery_token }
}

/// Does some work `count` times at once and answers what came out.
pub async fn at_once<F>(count: usize, work: impl Fn(usize) -> F) -> Vec<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let running: Vec<_> = (0..count).map(|index| tokio::spawn(work(index))).collect();
    let mut outputs = Vec::with_capacity(count);
    for work in running {
        outputs.push(work.await.expect("the work goes to its end"));
    }
    outputs
}

/// A JSON value from its text.
pub fn json(text: &str) -> Json {
    Json::parse(text).expect("valid JSON")
}

/// The error of something that must be refused with this code.
pub fn refused<T: Debug>(result: Result<T>, code: &str) -> Error {
    let error = result.expect_err("refused");
    assert_eq!(error.code(), code, "{error}");
    assert!(error.hint_text().is_some(), "every error has a hint: {error}");
    error
}
