//! Workers: handlers by kind, with everything around them that a worker needs: claiming, renewing, cancelling, timing
//! out, failing, draining.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_core::future::BoxFuture;
use statehold_core::call::Claim;
use statehold_core::model::TaskError;
use statehold_core::wake::Topic;
use statehold_core::{Error, Json, Result, Seconds};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::job::Stopper;
pub use crate::job::{Job, Stop};
use crate::renewal::Renewals;
use crate::tasks::give_back;
use crate::wait::Wait;
use crate::{Lease, Statehold, Task};

/// How long a task of a kind that has no handler is left to others.
const UNKNOWN_KIND: Duration = Duration::from_secs(30);

/// How long a handler that was told to stop has to do so, unless said otherwise.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How long it is waited for the end of one that was aborted.
const ABORTING: Duration = Duration::from_millis(100);

/// How long a claim waits at a time.
const CLAIM_WAIT: Duration = Duration::from_secs(30);

/// How long a worker waits after a claim that failed.
const AFTER_TROUBLE: Duration = Duration::from_secs(1);

/// How a handler ends well.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The task is done, with this output.
    Complete(Option<Json>),
    /// The task goes back, to be claimed after a while; it counts for nothing.
    Release(Duration),
    /// The handler has seen to the task itself: completed, suspended or released it.
    Settled,
}

/// How a handler ends badly.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// What went wrong.
    pub error: TaskError,
    /// Whether another try may fare better.
    pub retry: bool,
}

impl Failure {
    /// Something that another try may not meet.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { error: TaskError::new(code, message), retry: true }
    }

    /// Something that every try would meet.
    pub fn permanent(code: &str, message: impl Into<String>) -> Self {
        Self { retry: false, ..Self::new(code, message) }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let retry = !error.is_invalid();
        Self { retry, ..Self::new(error.code(), error.to_string()) }
    }
}

type Running = Pin<Box<dyn Future<Output = Result<Outcome, Failure>> + Send>>;
type Handler = Arc<dyn Fn(Job) -> Running + Send + Sync>;

/// What a worker did until it was stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many tasks it took.
    pub claimed: u64,
    /// How many of them its handlers completed or settled themselves.
    pub completed: u64,
    /// How many failed, by an error, a panic or a timeout.
    pub failed: u64,
    /// How many went back.
    pub released: u64,
    /// How many were lost to others, or cancelled.
    pub lost: u64,
}

impl Report {
    fn add(&mut self, end: End) {
        *match end {
            End::Completed => &mut self.completed,
            End::Failed => &mut self.failed,
            End::Released => &mut self.released,
            End::Lost => &mut self.lost,
        } += 1;
    }
}

#[derive(Clone, Copy, Debug)]
enum End {
    Completed,
    Failed,
    Released,
    Lost,
}

/// Takes tasks of queues and gives them to handlers, until it is stopped.
///
/// ```
/// # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
/// use statehold::worker::{Outcome, Stopping, Worker};
/// use statehold::{Json, Statehold, TaskCreate};
///
/// let hold = Statehold::open("memory:").await?;
/// let task = hold.tasks().create(TaskCreate::new("double").input(Json::of(&21)?)).await?.task;
///
/// let stopping = Stopping::new();
/// let worker = Worker::new(&hold).handle("double", async |job| {
///     let number: u64 = job.task().input.as_ref().map_or(Ok(0), |input| input.to())?;
///     Ok(Outcome::Complete(Some(Json::of(&(2 * number))?)))
/// });
/// let running = tokio::spawn(worker.run(stopping.clone()));
///
/// let task = hold.tasks().wait(task.id, None).await?;
/// assert_eq!(task.output, Some(Json::of(&42)?));
/// stopping.cancel();
/// assert_eq!(running.await.unwrap()?.completed, 1);
/// # Ok::<(), statehold::Error>(())
/// # }).unwrap();
/// ```
pub struct Worker {
    hold: Statehold,
    queues: Vec<String>,
    owner: String,
    concurrency: u32,
    lease: Duration,
    grace: Duration,
    last_words: Duration,
    handlers: HashMap<String, Handler>,
    any: Option<Handler>,
    once: bool,
}

/// Tells a worker, or a supervisor, to stop.
pub use tokio_util::sync::CancellationToken as Stopping;

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<_> = self.handlers.keys().collect();
        f.debug_struct("Worker").field("queues", &self.queues).field("kinds", &kinds).finish_non_exhaustive()
    }
}

impl Worker {
    /// A worker of the queue `default`, for one task at a time.
    pub fn new(hold: &Statehold) -> Self {
        Self {
            hold: hold.clone(),
            queues: Vec::new(),
            owner: crate::owner::default_owner(),
            concurrency: 1,
            lease: Duration::from_secs(30),
            grace: Duration::from_secs(45),
            last_words: LAST_WORDS,
            handlers: HashMap::new(),
            any: None,
            once: false,
        }
    }

    /// Takes tasks of this queue; of several, when it is said several times.
    #[must_use]
    pub fn queue(mut self, queue: &str) -> Self {
        self.queues.push(queue.to_owned());
        self
    }

    /// The name that tasks see as their owner; machine, process and a random part unless said otherwise.
    #[must_use]
    pub fn owner(mut self, owner: &str) -> Self {
        owner.clone_into(&mut self.owner);
        self
    }

    /// How many tasks it works on at once.
    #[must_use]
    pub fn concurrency(mut self, concurrency: u32) -> Self {
        self.concurrency = concurrency.max(1);
        self
    }

    /// How long it takes at most until another takes over when this process dies: 30 seconds unless said otherwise.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long handlers may go on after the worker was told to stop, before they are told to stop too: 45 seconds
    /// unless said otherwise.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How long a handler that was told to stop has to do so, before it is ended at its next await: 5 seconds unless
    /// said otherwise.
    #[must_use]
    pub fn last_words(mut self, last_words: Duration) -> Self {
        self.last_words = last_words;
        self
    }

    /// Stops by itself when there is nothing to take.
    #[must_use]
    pub fn until_empty(mut self) -> Self {
        self.once = true;
        self
    }

    /// What is done with tasks of a kind.
    #[must_use]
    pub fn handle<F, R>(mut self, kind: &str, handler: F) -> Self
    where
        F: Fn(Job) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Outcome, Failure>> + Send + 'static,
    {
        self.handlers.insert(kind.to_owned(), Arc::new(move |job| Box::pin(handler(job))));
        self
    }

    /// What is done with tasks of all other kinds, which are otherwise left to other workers.
    #[must_use]
    pub fn handle_any<F, R>(mut self, handler: F) -> Self
    where
        F: Fn(Job) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Outcome, Failure>> + Send + 'static,
    {
        self.any = Some(Arc::new(move |job| Box::pin(handler(job))));
        self
    }

    /// Works until it is told to stop; then lets its handlers come to their end.
    ///
    /// A store that does not answer is asked again; an error that will not go away, such as a name that is not one, is
    /// answered at once.
    // Boxed, so that it is compiled here and not in every program that calls it.
    pub fn run(mut self, stopping: Stopping) -> BoxFuture<'static, Result<Report>> {
        Box::pin(async move {
            if self.queues.is_empty() {
                self.queues.push("default".to_owned());
            }
            let renewals = Renewals::start()?;
            let mut report = Report::default();
            let mut jobs = JoinSet::new();
            let told_to_end = CancellationToken::new();
            let claimed = self.claim_all(&stopping, &renewals, &told_to_end, &mut jobs, &mut report).await;
            let grace = tokio::time::sleep(self.grace);
            tokio::pin!(grace);
            loop {
                tokio::select! {
                    end = jobs.join_next() => match end {
                        Some(end) => report.add(end.unwrap_or(End::Failed)),
                        None => break,
                    },
                    () = &mut grace, if !told_to_end.is_cancelled() => told_to_end.cancel(),
                }
            }
            claimed.map(|()| report)
        })
    }

    /// Takes tasks as there is room for them, until it is told to stop.
    async fn claim_all(
        &self,
        stopping: &Stopping,
        renewals: &Renewals,
        told_to_end: &CancellationToken,
        jobs: &mut JoinSet<End>,
        report: &mut Report,
    ) -> Result<()> {
        while !stopping.is_cancelled() {
            while let Some(end) = jobs.try_join_next() {
                report.add(end.unwrap_or(End::Failed));
            }
            let running = u32::try_from(jobs.len()).unwrap_or(u32::MAX);
            let room = self.concurrency.saturating_sub(running);
            if room == 0 {
                one_end(jobs, report, stopping).await;
                continue;
            }
            match self.take(room, stopping).await {
                Ok(leases) if stopping.is_cancelled() => give_back(leases).await,
                Ok(leases) if leases.is_empty() && self.once && jobs.is_empty() => break,
                Ok(leases) if leases.is_empty() && self.once => one_end(jobs, report, stopping).await,
                Ok(leases) => {
                    for lease in leases {
                        report.claimed += 1;
                        jobs.spawn(self.work(lease, renewals, told_to_end));
                    }
                }
                Err(error) if error.is_retryable() => {
                    tokio::select! {
                        () = tokio::time::sleep(AFTER_TROUBLE) => {}
                        () = stopping.cancelled() => {}
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes up to `room` tasks; waits for a while if there are none. A claim that is on its way is waited for also
    /// when the worker is told to stop, so that nothing is taken behind its back.
    async fn take(&self, room: u32, stopping: &Stopping) -> Result<Vec<Lease>> {
        let topics: Vec<_> = self.queues.iter().cloned().map(Topic::Queue).collect();
        let mut wait = Wait::begin(&self.hold, &topics, Some(CLAIM_WAIT)).await?;
        loop {
            let (leases, next_at) = self.hold.tasks().claim_now(self.claim(room)).await?;
            if !leases.is_empty() || self.once {
                return Ok(leases);
            }
            let go_on = stopping.run_until_cancelled(wait.sleep(next_at)).await;
            if go_on != Some(true) {
                return Ok(leases);
            }
        }
    }

    fn claim(&self, limit: u32) -> Claim {
        let mut claim = Claim::new(self.hold.namespace(), "", &self.owner);
        claim.queues.clone_from(&self.queues);
        claim.limit = limit;
        claim.lease_seconds = Some(Seconds::from(self.lease));
        claim
    }

    /// One task from its claim to its end.
    fn work(
        &self,
        lease: Lease,
        renewals: &Renewals,
        told_to_end: &CancellationToken,
    ) -> impl Future<Output = End> + Send + use<> {
        let lease = Arc::new(lease);
        let handler = self.handlers.get(&lease.task().kind).or(self.any.as_ref()).cloned();
        let stop = Stopper::default();
        let renewal = renewals.keep(&lease, &stop);
        let (job, told_to_end, last_words) = (Job { lease, stop }, told_to_end.clone(), self.last_words);
        async move {
            let lease = Arc::clone(&job.lease);
            let Some(handler) = handler else {
                return released(&lease.release_until(Some(lease.later(UNKNOWN_KIND))).await);
            };
            let ended = watch(handler, job, &told_to_end, last_words).await;
            let end = settle(&lease, ended).await;
            drop(renewal);
            end
        }
    }
}

/// Waits for the end of a task, unless the worker is told to stop.
async fn one_end(jobs: &mut JoinSet<End>, report: &mut Report, stopping: &Stopping) {
    if let Some(Some(end)) = stopping.run_until_cancelled(jobs.join_next()).await {
        report.add(end.unwrap_or(End::Failed));
    }
}

/// Runs a handler on a task of its own, so that neither its panic nor its slowness harms others.
async fn watch(handler: Handler, job: Job, told_to_end: &CancellationToken, last_words: Duration) -> Ended {
    let stop = job.stop.clone();
    let out_of_time = job.lease.out_of_time();
    // The handler's own call is part of it: that may panic too.
    let mut running = AbortOnDropHandle::new(tokio::spawn(async move { handler(job).await }));
    let stopped = async {
        tokio::select! {
            () = stop.word.cancelled() => {}
            () = told_to_end.cancelled() => stop.say(Stop::ShuttingDown),
            () = sleep_until(out_of_time) => stop.say(Stop::TimedOut),
        }
        tokio::time::sleep(last_words).await;
    };
    let ended = tokio::select! {
        ended = &mut running => ended,
        () = stopped => {
            running.abort();
            // One that keeps its thread busy cannot be ended. It is left alone: its lease is gone.
            match tokio::time::timeout(ABORTING, &mut running).await {
                Ok(Ok(ended)) => Ok(ended),
                _ => return Ended { how: None, stop: stop.why() },
            }
        }
    };
    let how = ended.unwrap_or_else(|join| Err(Failure::new("panic", panic_message(join))));
    Ended { how: Some(how), stop: stop.why() }
}

/// How a handler ended, if it did, and whether it was told to stop.
struct Ended {
    how: Option<Result<Outcome, Failure>>,
    stop: Option<Stop>,
}

async fn sleep_until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end.into()).await,
        None => std::future::pending().await,
    }
}

/// Writes how a handler ended.
async fn settle(lease: &Lease, ended: Ended) -> End {
    match (ended.how, ended.stop) {
        (Some(Ok(Outcome::Settled)), _) => End::Completed,
        // The store sees to an attempt that took too long; it counts as a failure there.
        (_, Some(Stop::TimedOut)) => End::Failed,
        (_, Some(stop)) if stop.is_lost() => End::Lost,
        (Some(Ok(Outcome::Complete(output))), _) => match lease.complete(output).await {
            Ok(_) => End::Completed,
            Err(error) if error.is_fenced() => End::Lost,
            // What cannot be written, such as an output that is too large, is the handler's failure.
            Err(error) => failed(&lease.fail(Failure::from(error).error, false).await),
        },
        (Some(Ok(Outcome::Release(after))), _) => {
            released(&lease.release_until(Some(lease.later(after))).await)
        }
        (Some(Err(_)) | None, Some(Stop::ShuttingDown)) => released(&lease.release().await),
        (Some(Err(failure)), _) => failed(&lease.fail(failure.error, failure.retry).await),
        (None, _) => {
            failed(&lease.fail(TaskError::new("cancelled", "it did not stop when told to"), true).await)
        }
    }
}

fn failed(written: &Result<Task>) -> End {
    if written.is_ok() { End::Failed } else { End::Lost }
}

fn released(written: &Result<Task>) -> End {
    if written.is_ok() { End::Released } else { End::Lost }
}

fn panic_message(join: tokio::task::JoinError) -> String {
    let Ok(panic) = join.try_into_panic() else { return "the handler was aborted".into() };
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "the handler panicked".into())
}
