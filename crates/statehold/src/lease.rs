//! A lease: the right to work on one task, until it ends or is lost. Everything done with it is fenced by itself: once
//! it is lost, all of it is refused.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use statehold_core::batch::{Fence, Handle, Replies};
use statehold_core::command::{
    Appended, Created, DocumentPut, DocumentRevision, NewEvent, Op, Renewed, StreamAppend, TaskComplete,
    TaskCreate, TaskFail, TaskRelease, TaskRenew, TaskSuspend,
};
use statehold_core::model::{OnTimeout, StreamName, Task, TaskError, TaskId, Token, WaitFor};
use statehold_core::{Batch, Json, Result, Seconds, Timestamp};

use crate::Statehold;

/// The right to work on a task.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use statehold::{Json, Statehold, TaskCreate};
///
/// let hold = Statehold::open("memory:").await?;
/// hold.tasks().create(TaskCreate::new("answer")).await?;
///
/// let lease = hold.tasks().claim(&["default"], "worker-1", 1).await?.remove(0);
/// lease.dispatch(TaskCreate::new("look-up").child_key("sources")).await?;
/// let mut settle = lease.settle();
/// settle.put("answer", "42", Json::of("because")?);
/// settle.complete(None).await?;
///
/// assert!(lease.renew().await.unwrap_err().is_fenced());
/// # Ok::<(), statehold::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Lease {
    hold: Statehold,
    task: Task,
    token: Token,
    length: Option<Duration>,
    /// When it was asked for.
    asked: Instant,
    /// Until when the attempt may take, however often the lease is renewed; forever if none.
    out_of_time: Option<Instant>,
    /// Until when it surely holds, by this process's own clock; forever if none.
    until: Mutex<Option<Instant>>,
}

impl Lease {
    /// The lease of a task that was asked for at an instant.
    pub(crate) fn new(hold: &Statehold, task: Task, asked: Instant) -> Option<Self> {
        let lease = task.lease.as_ref()?;
        let token = lease.token;
        let length = lease.expires_at.map(|end| Duration::from(end.since(lease.heartbeat_at)));
        let spent = Duration::from(lease.heartbeat_at.since(lease.started_at));
        let out_of_time = task.timeout_seconds.map(|all| asked + Duration::from(all).saturating_sub(spent));
        let until = Mutex::new(earlier(length.map(|length| asked + length), out_of_time));
        Some(Self { hold: hold.clone(), token, length, asked, out_of_time, until, task })
    }

    /// The task as it was when it was taken.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// Its id.
    pub fn id(&self) -> TaskId {
        self.task.id
    }

    /// What proves the lease. A secret of its holder.
    pub fn token(&self) -> Token {
        self.token
    }

    /// How long it lasts from each renewal; forever if none.
    pub fn length(&self) -> Option<Duration> {
        self.length
    }

    /// Until when it surely holds, by this process's own clock; forever if none.
    pub fn until(&self) -> Option<Instant> {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until when the attempt may take, however often it is renewed; forever if none.
    pub(crate) fn out_of_time(&self) -> Option<Instant> {
        self.out_of_time
    }

    /// A time of the store's, some while from now: the claim told what time it was there.
    pub(crate) fn later(&self, after: Duration) -> Timestamp {
        let there = self.task.lease.as_ref().map(|lease| lease.heartbeat_at).unwrap_or_default();
        there + Seconds::from(self.asked.elapsed() + after)
    }

    /// What makes a batch of one's own depend on this lease.
    pub fn fence(&self) -> Fence {
        Fence::Task { task: self.id(), token: self.token }
    }

    /// The store and namespace of the task.
    pub fn hold(&self) -> &Statehold {
        &self.hold
    }

    /// Extends it by its length, and tells whether the task shall be cancelled.
    pub async fn renew(&self) -> Result<Renewed> {
        self.report(None).await
    }

    /// The same, and says how far the work is.
    pub async fn report(&self, progress: Option<Json>) -> Result<Renewed> {
        let asked = Instant::now();
        let lease_seconds = self.length.map(Seconds::from);
        let renew = TaskRenew { id: self.id(), token: self.token, lease_seconds, progress };
        let renewed = self.hold.run(renew).await?;
        let until = earlier(self.length.map(|length| asked + length), self.out_of_time);
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
        Ok(renewed)
    }

    /// Ends the task well.
    pub async fn complete(&self, output: Option<Json>) -> Result<Task> {
        self.hold.run(TaskComplete { id: self.id(), token: self.token, output }).await
    }

    /// Says that the work failed. While tries are left, and with `retry`, the task comes again after a while.
    pub async fn fail(&self, error: TaskError, retry: bool) -> Result<Task> {
        self.hold.run(TaskFail { id: self.id(), token: self.token, error, retry }).await
    }

    /// Gives the task back; it counts for nothing.
    pub async fn release(&self) -> Result<Task> {
        self.release_until(None).await
    }

    /// Gives the task back, to be claimed not before a time.
    pub async fn release_until(&self, run_at: Option<Timestamp>) -> Result<Task> {
        self.hold.run(TaskRelease { id: self.id(), token: self.token, run_at }).await
    }

    /// Lets go of the task until a signal, its children or a time; whoever claims it then finds what woke it in
    /// `resumed_by`.
    pub async fn suspend(&self, waiting_for: WaitFor) -> Result<Task> {
        self.suspend_for(waiting_for, None, OnTimeout::default()).await
    }

    /// The same, at most for a time.
    pub async fn suspend_for(
        &self,
        waiting_for: WaitFor,
        most: Option<Seconds>,
        on_timeout: OnTimeout,
    ) -> Result<Task> {
        let (id, token) = (self.id(), self.token);
        self.hold.run(TaskSuspend { id, token, waiting_for, timeout_seconds: most, on_timeout }).await
    }

    /// Appends events to the task's own stream.
    pub async fn append(&self, events: Vec<NewEvent>) -> Result<Appended> {
        self.append_to(StreamName::of_task(self.id()), events).await
    }

    /// Appends events to any stream.
    pub async fn append_to(&self, stream: StreamName, events: Vec<NewEvent>) -> Result<Appended> {
        self.run(StreamAppend { stream, events, expect_seq: None }).await
    }

    /// Makes a child of the task. With a `child_key` it is made once, however often the task is tried.
    pub async fn dispatch(&self, mut child: TaskCreate) -> Result<Created> {
        child.parent = Some(self.id());
        self.run(child).await
    }

    /// Applies any command, if the lease still holds.
    pub async fn run<O: Op>(&self, command: O) -> Result<O::Reply> {
        let mut settle = self.settle();
        let handle = settle.add(command);
        settle.commit().await?.take(handle)
    }

    /// Gathers what shall happen together, or not at all.
    pub fn settle(&self) -> Settle<'_> {
        Settle { lease: self, batch: self.hold.batch() }
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

/// What shall happen together if the lease still holds: events, documents, children, and the end of the task.
#[derive(Debug)]
pub struct Settle<'l> {
    lease: &'l Lease,
    batch: Batch,
}

impl Settle<'_> {
    /// Adds any command; its reply is in what [`commit`](Self::commit) answers.
    pub fn add<O: Op>(&mut self, command: O) -> Handle<O::Reply> {
        self.batch.add(command)
    }

    /// Writes a document.
    pub fn put(&mut self, kind: &str, name: &str, body: Json) -> Handle<DocumentRevision> {
        self.add(DocumentPut::json(kind, name, body))
    }

    /// Appends events to a stream.
    pub fn append(&mut self, stream: StreamName, events: Vec<NewEvent>) -> Handle<Appended> {
        self.add(StreamAppend { stream, events, expect_seq: None })
    }

    /// Makes a child of the task.
    pub fn dispatch(&mut self, mut child: TaskCreate) -> Handle<Created> {
        child.parent = Some(self.lease.id());
        self.add(child)
    }

    /// Depends on something more than the lease, such as a lock.
    pub fn fence(&mut self, fence: Fence) {
        self.batch.fences.push(fence);
    }

    /// Does it and ends the task well.
    pub async fn complete(mut self, output: Option<Json>) -> Result<Task> {
        let (id, token) = (self.lease.id(), self.lease.token);
        let done = self.add(TaskComplete { id, token, output });
        self.commit().await?.take(done)
    }

    /// Does it and says that the work failed.
    pub async fn fail(mut self, error: TaskError, retry: bool) -> Result<Task> {
        let (id, token) = (self.lease.id(), self.lease.token);
        let failed = self.add(TaskFail { id, token, error, retry });
        self.commit().await?.take(failed)
    }

    /// Does it and lets go of the task until something comes.
    pub async fn suspend(mut self, waiting_for: WaitFor) -> Result<Task> {
        let (id, token) = (self.lease.id(), self.lease.token);
        let suspend =
            TaskSuspend { id, token, waiting_for, timeout_seconds: None, on_timeout: OnTimeout::default() };
        let suspended = self.add(suspend);
        self.commit().await?.take(suspended)
    }

    /// Does it, and goes on working.
    pub async fn commit(self) -> Result<Replies> {
        let Self { lease, batch } = self;
        lease.hold.apply(batch.fence(lease.fence())).await
    }
}
