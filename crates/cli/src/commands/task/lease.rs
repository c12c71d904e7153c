//! Working on tasks by hand: `claim`, `start`, `renew`, `complete`, `fail`, `release`, `suspend`.

use clap::Args;
use statehold::{
    Lease, Result, Seconds, Statehold, Status, Task, TaskError, TaskId, Timestamp, Token, WaitFor,
};
use statehold_core::command::{TaskComplete, TaskFail, TaskRelease, TaskRenew, TaskSuspend};
use statehold_core::model::{Children, OnTimeout};

use crate::args::{self, Body, maybe};
use crate::settings::env;
use crate::show::{self, Field, Show, Table};
use crate::trouble::{Exit, too_late};

/// The arguments of `statehold task claim`.
#[derive(Args, Debug)]
pub(crate) struct Claim {
    /// From which queue; can be said several times
    #[arg(short, long = "queue", value_name = "QUEUE", default_value = "default")]
    queues: Vec<String>,
    /// For whom
    #[arg(long, default_value = "cli")]
    owner: String,
    /// How many at most
    #[arg(long, value_name = "COUNT", default_value = "1")]
    limit: u32,
    /// How long the leases are, such as 90s or 5m
    #[arg(long, value_name = "LENGTH", default_value = "30s", value_parser = args::seconds)]
    lease: Seconds,
    /// Waits this long for something to be ready; not at all if left out
    #[arg(long, value_name = "LENGTH", value_parser = args::seconds)]
    wait: Option<Seconds>,
}

impl Claim {
    pub(super) async fn run(&self, hold: &Statehold, show: &Show) -> Result<Exit> {
        let mut claim = statehold_core::call::Claim::new(hold.namespace(), "", &self.owner);
        claim.queues.clone_from(&self.queues);
        claim.limit = self.limit;
        claim.lease_seconds = Some(self.lease);
        let leases = hold.tasks().claim_with(claim, self.wait.map(Into::into)).await?;
        if leases.is_empty() {
            let queues = self.queues.join("`, `");
            return Err(too_late(
                format!("nothing is ready in `{queues}`"),
                "statehold queue list shows what is there; --wait 30s waits for something",
            ));
        }
        let tasks: Vec<_> = leases.iter().map(Lease::task).cloned().collect();
        show.list(&tasks, leased)?;
        Ok(Exit::Success)
    }
}

/// Tasks with what their owner needs to go on.
fn leased(tasks: &[Task]) -> Table {
    let mut table = Table::new(&["ID", "TOKEN", "KIND", "ATTEMPT", "LEASE ENDS", "INPUT"]);
    for task in tasks {
        let lease = task.lease.as_ref();
        let ends = lease.and_then(|lease| lease.expires_at).map_or("never".to_owned(), show::relative);
        table.row([
            task.id.into(),
            Field::from(lease.map_or(0, |lease| lease.token.0)),
            (&task.kind).into(),
            task.attempt.into(),
            ends.into(),
            task.input.as_ref().map(show::compact).unwrap_or_default().into(),
        ]);
    }
    table
}

/// The arguments of `statehold task start`.
#[derive(Args, Debug)]
pub(crate) struct Start {
    /// Which task
    #[arg(value_parser = args::task_id)]
    id: TaskId,
    /// For whom
    #[arg(long, default_value = "cli")]
    owner: String,
    /// How long the lease is, such as 90s or 5m
    #[arg(long, value_name = "LENGTH", default_value = "30s", value_parser = args::seconds)]
    lease: Seconds,
}

impl Start {
    pub(super) async fn run(&self, hold: &Statehold, show: &Show) -> Result<Exit> {
        let lease = hold.tasks().start(self.id, &self.owner, Some(self.lease)).await?;
        show.list(std::slice::from_ref(lease.task()), leased)?;
        Ok(Exit::Success)
    }
}

/// A task and the proof that one holds it.
#[derive(Args, Debug)]
pub(crate) struct Held {
    /// Which task
    #[arg(value_parser = args::task_id, env = env::TASK_ID, hide_env_values = true)]
    id: TaskId,
    /// The token that claim or start gave
    #[arg(long, value_parser = args::token, env = env::TASK_TOKEN, hide_env_values = true)]
    token: Token,
}

/// Tells where a task is now.
pub(super) fn tell(show: &Show, task: Task) -> Result<Exit> {
    let task = show::without_token(task);
    show.answer(&task, || moved(&task))?;
    Ok(Exit::Success)
}

/// Where a task is now, in a sentence.
pub(super) fn moved(task: &Task) -> String {
    let more = match task.status {
        Status::Pending if task.run_at > args::now() => format!(", due {}", show::relative(task.run_at)),
        Status::Running if task.cancel_requested => ", asked to stop".to_owned(),
        Status::Failed => task.error.as_ref().map(|error| format!(": {}", error.message)).unwrap_or_default(),
        _ => String::new(),
    };
    let style = show::status_style(task.status);
    format!("task {} is {style}{}{style:#}{}", task.id, task.status, show::plain(&more))
}

/// The arguments of `statehold task renew`.
#[derive(Args, Debug)]
pub(crate) struct Renew {
    #[command(flatten)]
    held: Held,
    /// How long the lease is from now, such as 90s or 5m; as at its start if left out
    #[arg(long, value_name = "LENGTH", value_parser = args::seconds)]
    lease: Option<Seconds>,
    /// How far the work is: JSON, @FILE, or -
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    progress: Option<Body>,
}

impl Renew {
    pub(super) async fn run(&self, hold: &Statehold, show: &Show) -> Result<Exit> {
        let Held { id, token } = self.held;
        let progress = maybe(self.progress.as_ref(), "--progress")?;
        let renewed = hold.run(TaskRenew { id, token, lease_seconds: self.lease, progress }).await?;
        show.answer(&renewed, || {
            let ends =
                renewed.expires_at.map_or("has no end".to_owned(), |at| format!("ends {}", show::time(at)));
            let stop = if renewed.cancel_requested { "; the task shall stop" } else { "" };
            format!("the lease of {id} {ends}{stop}")
        })?;
        Ok(Exit::Success)
    }
}

/// The arguments of `statehold task complete`.
#[derive(Args, Debug)]
pub(crate) struct Complete {
    #[command(flatten)]
    held: Held,
    /// What came out: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    result: Option<Body>,
}

impl Complete {
    pub(super) async fn run(&self, hold: &Statehold, show: &Show) -> Result<Exit> {
        let Held { id, token } = self.held;
        let output = maybe(self.result.as_ref(), "--result")?;
        tell(show, hold.run(TaskComplete { id, token, output }).await?)
    }
}

/// The arguments of `statehold task fail`.
#[derive(Args, Debug)]
pub(crate) struct Fail {
    #[command(flatten)]
    held: Held,
    /// What went wrong, for people
    #[arg(long, value_name = "TEXT")]
    error: String,
    /// What went wrong, for programs
    #[arg(long)]
    code: Option<String>,
    /// Anything else about it: JSON, @FILE, or -
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    details: Option<Body>,
    /// Fails for good, whatever tries are left
    #[arg(long)]
    no_retry: bool,
}

impl Fail {
    pub(super) async fn run(&self, hold: &Statehold, show: &Show) -> Result<Exit> {
        let Held { id, token } = self.held;
        let details = maybe(self.details.as_ref(), "--details")?;
        let error = TaskError { message: self.error.clone(), code: self.code.clone(), details };
        tell(show, hold.run(TaskFail { id, token, error, retry: !self.no_retry }).await?)
    }
}

/// The arguments of `statehold task release`.
#[derive(Args, Debug)]
pub(crate) struct Release {
    #[command(flatten)]
    held: Held,
    /// Not claimable before: a time, or +5m from now
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    run_at: Option<Timestamp>,
}

impl Release {
    pub(super) async fn run(&self, hold: &Statehold, show: &Show) -> Result<Exit> {
        let Held { id, token } = self.held;
        tell(show, hold.run(TaskRelease { id, token, run_at: self.run_at }).await?)
    }
}

/// The arguments of `statehold task suspend`.
#[derive(Args, Debug)]
pub(crate) struct Suspend {
    #[command(flatten)]
    held: Held,
    #[command(flatten)]
    until: Awaited,
    /// How long at most, such as 90s or 5m
    #[arg(long, value_name = "LENGTH", value_parser = args::seconds)]
    timeout: Option<Seconds>,
    /// Fails if the timeout passes, instead of going on
    #[arg(long, requires = "timeout")]
    or_fail: bool,
}

/// What a task waits for.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Awaited {
    /// Until a signal of this name comes
    #[arg(long, value_name = "NAME")]
    signal: Option<String>,
    /// Until all its children have ended
    #[arg(long)]
    children: bool,
    /// Until a time, or for +5m
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    until: Option<Timestamp>,
}

impl Suspend {
    pub(super) async fn run(&self, hold: &Statehold, show: &Show) -> Result<Exit> {
        let Held { id, token } = self.held;
        let waiting_for = match (&self.until.signal, self.until.until) {
            (Some(name), _) => WaitFor::Signal(name.clone()),
            (None, Some(until)) => WaitFor::Until(until),
            (None, None) => WaitFor::Children(Children::All),
        };
        let on_timeout = if self.or_fail { OnTimeout::Fail } else { OnTimeout::Resume };
        let suspend = TaskSuspend { id, token, waiting_for, timeout_seconds: self.timeout, on_timeout };
        tell(show, hold.run(suspend).await?)
    }
}
