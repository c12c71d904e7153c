//! Tasks: made, claimed, looked at, waited for, and changed from outside.

use std::time::{Duration, Instant};

use statehold_core::call::{Claim, Claimed};
use statehold_core::command::{
    Created, TaskAmend, TaskCancel, TaskCreate, TaskEvict, TaskPark, TaskPromote, TaskPurge, TaskRetry,
    TaskSignal, TaskStart,
};
use statehold_core::model::{Task, TaskId, Token};
use statehold_core::query::{Page, TaskCounts, TaskList, Why};
use statehold_core::wake::Topic;
use statehold_core::{Error, ErrorKind, Json, Result, Seconds, Timestamp};

use crate::hold::Tries;
use crate::wait::Wait;
use crate::{Lease, Statehold, taken};

/// Tasks of a namespace.
#[derive(Clone, Copy, Debug)]
pub struct Tasks<'a> {
    pub(crate) hold: &'a Statehold,
}

impl Tasks<'_> {
    /// Makes a task, or answers the one that its key has made before.
    pub async fn create(self, task: TaskCreate) -> Result<Created> {
        self.hold.run(task).await
    }

    /// A task by its id.
    pub async fn get(self, id: TaskId) -> Result<Option<Task>> {
        Ok(self.get_many(&[id]).await?.pop().flatten())
    }

    /// Several tasks, in the order of their ids here.
    pub async fn get_many(self, ids: &[TaskId]) -> Result<Vec<Option<Task>>> {
        self.hold.backend().task_get(self.hold.namespace(), ids).await
    }

    /// A page of tasks.
    pub async fn list(self, list: &TaskList) -> Result<Page<Task>> {
        self.hold.backend().task_list(self.hold.namespace(), list).await
    }

    /// How many tasks there are by status, of a queue or of all.
    pub async fn count(self, queue: Option<&str>) -> Result<TaskCounts> {
        self.hold.backend().task_count(self.hold.namespace(), queue).await
    }

    /// Why a task is not moving.
    pub async fn why(self, id: TaskId) -> Result<Why> {
        self.hold.backend().task_why(self.hold.namespace(), id).await
    }

    /// Takes up to `limit` tasks of some queues, for 30 seconds that the leases can renew. Answers at once, with
    /// nothing if nothing is ready.
    ///
    /// If the future is dropped, what it took goes back.
    pub async fn claim(self, queues: &[&str], owner: &str, limit: u32) -> Result<Vec<Lease>> {
        Ok(self.claim_now(self.claim_of(queues, owner, limit)).await?.0)
    }

    /// The same, but waits until there is something, at most for `most`.
    pub async fn claim_wait(
        self,
        queues: &[&str],
        owner: &str,
        limit: u32,
        most: Duration,
    ) -> Result<Vec<Lease>> {
        self.claim_with(self.claim_of(queues, owner, limit), Some(most)).await
    }

    /// Claims with everything that a claim can say; waits at most for `most`, not at all if that is nothing.
    pub async fn claim_with(self, claim: Claim, most: Option<Duration>) -> Result<Vec<Lease>> {
        let topics: Vec<_> = claim.queues.iter().cloned().map(Topic::Queue).collect();
        let mut wait = Wait::begin(self.hold, &topics, Some(most.unwrap_or_default())).await?;
        loop {
            let (leases, next_at) = self.claim_now(claim.clone()).await?;
            if !leases.is_empty() || !wait.sleep(next_at).await {
                return Ok(leases);
            }
        }
    }

    fn claim_of(self, queues: &[&str], owner: &str, limit: u32) -> Claim {
        let mut claim = Claim::new(self.hold.namespace(), "", owner);
        claim.queues = queues.iter().map(|&queue| queue.to_owned()).collect();
        claim.limit = limit;
        claim
    }

    /// Claims once, with everything that a claim can say. An empty answer says when something becomes due.
    ///
    /// If the future is dropped, what it took goes back.
    pub async fn claim_now(self, mut claim: Claim) -> Result<(Vec<Lease>, Option<Timestamp>)> {
        let hold = self.hold.clone();
        claim.namespace = hold.namespace().to_owned();
        if claim.key.is_none() && hold.backend().can_lose_answers() {
            claim.key = Some(format!("retry/{}", TaskId::generate()));
        }
        let claiming = async move {
            let asked = Instant::now();
            let Claimed { tasks, next_at } = claim_surely(&hold, claim).await?;
            let lease = |task| Lease::new(&hold, task, asked);
            Ok((tasks.into_iter().filter_map(lease).collect::<Vec<_>>(), next_at))
        };
        taken::take(claiming, |(leases, _)| give_back(leases)).await
    }

    /// Starts a named task, as a claim would.
    ///
    /// If the future is dropped, the task goes back.
    pub async fn start(self, id: TaskId, owner: &str, lease: Option<Seconds>) -> Result<Lease> {
        let hold = self.hold.clone();
        let start = TaskStart { id, owner: owner.to_owned(), lease_seconds: lease };
        let starting = async move {
            let asked = Instant::now();
            let task = hold.run(start).await?;
            Lease::new(&hold, task, asked).ok_or_else(|| Error::conflict(id, "the task is no longer leased"))
        };
        taken::take(starting, |lease| give_back(vec![lease])).await
    }

    /// Takes up a lease that was given elsewhere, such as to the parent of this process, and renews it: how much was
    /// left of it cannot be known here.
    pub async fn resume(self, id: TaskId, token: Token) -> Result<Lease> {
        let asked = Instant::now();
        let task = self.get(id).await?.ok_or_else(|| Error::not_found("task", id))?;
        let lease = Lease::new(self.hold, task, asked).filter(|lease| lease.token() == token);
        let lease = lease.ok_or_else(|| {
            let message = format!("task `{id}` is not leased with this token");
            Error::new(ErrorKind::Fenced { lost_at: None, owner: None }, message).about(id)
        })?;
        lease.renew().await?;
        Ok(lease)
    }

    /// Gives a task a signal: it is kept until the task waits for it.
    pub async fn signal(self, id: TaskId, name: &str, data: Option<Json>) -> Result<Task> {
        self.hold.run(TaskSignal { id, name: name.to_owned(), data }).await
    }

    /// Asks for the end of a task; one that runs is told at its next renewal.
    pub async fn cancel(self, id: TaskId) -> Result<Task> {
        self.hold.run(TaskCancel { id, force: false, children: false }).await
    }

    /// Hands a running task to another owner.
    pub async fn evict(self, id: TaskId) -> Result<Task> {
        self.hold.run(TaskEvict { id }).await
    }

    /// Opens a failed or cancelled task again.
    pub async fn retry(self, id: TaskId) -> Result<Task> {
        self.hold.run(TaskRetry { id, with_dependents: false }).await
    }

    /// Takes a task out of the backlog.
    pub async fn promote(self, id: TaskId) -> Result<Task> {
        self.hold.run(TaskPromote { id }).await
    }

    /// Puts a task into the backlog.
    pub async fn park(self, id: TaskId) -> Result<Task> {
        self.hold.run(TaskPark { id, rank: None }).await
    }

    /// Changes metadata, labels, priority and times.
    pub async fn update(self, amend: TaskAmend) -> Result<Task> {
        self.hold.run(amend).await
    }

    /// Removes an ended task with its events.
    pub async fn purge(self, id: TaskId) -> Result<()> {
        self.hold.run(TaskPurge { id }).await.map(drop)
    }

    /// Waits until a task has ended, at most for `most`; then answers it as it is.
    pub async fn wait(self, id: TaskId, most: Option<Duration>) -> Result<Task> {
        self.wait_until(id, most, |task| task.status.is_terminal()).await
    }

    /// Waits until something is true of a task, at most for `most`; then answers it as it is.
    pub async fn wait_until(
        self,
        id: TaskId,
        most: Option<Duration>,
        is: impl Fn(&Task) -> bool,
    ) -> Result<Task> {
        let mut wait = Wait::begin(self.hold, &[Topic::Task(id)], most).await?;
        loop {
            let task = self.get(id).await?.ok_or_else(|| Error::not_found("task", id))?;
            if is(&task) || !wait.sleep(None).await {
                return Ok(task);
            }
        }
    }
}

/// Gives up leases that nobody wants.
pub(crate) async fn give_back(leases: Vec<Lease>) {
    for lease in leases {
        // If that fails, the lease ends by itself.
        let _ = lease.release().await;
    }
}

/// Claims, and repeats it if the answer was lost: its key makes it answer what it gave.
async fn claim_surely(hold: &Statehold, claim: Claim) -> Result<Claimed> {
    let mut tries = Tries::of(claim.key.is_some());
    loop {
        match hold.backend().claim(claim.clone()).await {
            Ok(claimed) => return Ok(claimed),
            Err(error) => tries.pause(error).await?,
        }
    }
}
