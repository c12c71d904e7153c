//! What cases are written with: a fresh namespace on a backend, a clock in the hand, and short ways to ask.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use statehold_core::batch::{Batch, Replies};
use statehold_core::call::{Claim, Claimed, Sweep, Swept};
use statehold_core::command::{Op, TaskComplete, TaskCreate, TaskStart};
use statehold_core::model::{Event, StreamName, Task, TaskId, Token};
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

/// Runs all cases as tests of the backend that `open` opens; for a test target without a harness.
pub fn run<F, B>(open: impl Fn(Clock) -> F + Send + Sync + 'static) -> ExitCode
where
    F: Future<Output = B> + Send + 'static,
    B: Backend,
{
    let open = Arc::new(move |clock| -> BoxFuture<Arc<dyn Backend>> {
        let opening = open(clock);
        Box::pin(async move { Arc::new(opening.await) as Arc<dyn Backend> })
    });
    let trials = crate::cases::all().into_iter().map(|(file, case)| {
        let open = Arc::clone(&open);
        Trial::test(format!("{file}::{}", case.name), move || judge(case, move |clock| open(clock)))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

fn judge(case: Case, open: impl FnOnce(Clock) -> BoxFuture<Arc<dyn Backend>>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async move {
        let clock = Clock::manual(start());
        let namespace = format!("case-{}", TaskId::generate());
        (case.run)(Store { backend: open(clock.clone()).await, clock, namespace }).await;
    });
    Ok(())
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
        self.create(TaskCreate { queue: Some("q".into()), ..TaskCreate::new("k") }).await
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

    /// The types of a task's events.
    pub async fn history(&self, id: TaskId) -> Vec<String> {
        self.events(&StreamName::of_task(id)).await.into_iter().map(|event| event.kind).collect()
    }
}

/// The token of a running task.
pub fn token_of(task: &Task) -> Token {
    task.lease.as_ref().expect("the task is leased").token
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
