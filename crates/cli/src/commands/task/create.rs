//! `statehold task create`.

use clap::{Args, ValueEnum};
use statehold::{Result, Seconds, Statehold, TaskCreate, TaskId, Timestamp};
use statehold_core::command::{OnBusy, OnDuplicate};
use statehold_core::model::Backoff;

use crate::args::{self, Body, maybe};
use crate::show::{Show, without_token};
use crate::trouble::Exit;

/// The arguments of `statehold task create`.
#[derive(Args, Debug)]
pub(crate) struct Create {
    /// What kind of work it is; workers choose by it
    kind: String,
    /// Where workers look for it [default: default]
    #[arg(short, long)]
    queue: Option<String>,
    /// What the worker gets: JSON, @FILE, or - for standard input
    #[arg(short, long, value_name = "JSON", allow_negative_numbers = true)]
    input: Option<Body>,
    /// Its id, a UUID; generated if left out
    #[arg(long, value_parser = args::task_id)]
    id: Option<TaskId>,
    /// The conversation it belongs to
    #[arg(long)]
    thread: Option<String>,
    /// Text to find it by; can be said several times
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = args::label)]
    labels: Vec<(String, String)>,
    /// Lower goes first [default: 0]
    #[arg(short, long, allow_negative_numbers = true)]
    priority: Option<i16>,
    /// Makes it once, however often this is run
    #[arg(short = 'k', long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// What to do when the key, child key or id is known with another request
    #[arg(long, value_enum, value_name = "WHAT")]
    on_duplicate: Option<Duplicate>,
    /// Of the tasks with this key one runs at a time
    #[arg(long, value_name = "KEY")]
    exclusive_key: Option<String>,
    /// What to do when another task has the exclusive key
    #[arg(long, value_enum, value_name = "WHAT", requires = "exclusive_key")]
    on_busy: Option<Busy>,
    /// The task that dispatches it
    #[arg(long, value_name = "ID", value_parser = args::task_id)]
    parent: Option<TaskId>,
    /// Its name among the parent's children, each made once
    #[arg(long, value_name = "KEY", requires = "parent")]
    child_key: Option<String>,
    /// What must be completed first; can be said several times
    #[arg(long, value_name = "ID", value_parser = args::task_id)]
    depends_on: Vec<TaskId>,
    /// Not claimable before: a time, or +5m from now
    #[arg(long, value_name = "TIME", value_parser = args::time, conflicts_with = "delay")]
    run_at: Option<Timestamp>,
    /// Not claimable for this long, such as 90s or 5m
    #[arg(long, value_name = "LENGTH", value_parser = args::seconds)]
    delay: Option<Seconds>,
    /// Fails if it has not started by then: a time, or +5m from now
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    expires_at: Option<Timestamp>,
    /// How long an attempt may take, such as 90s or 5m
    #[arg(long, value_name = "LENGTH", value_parser = args::seconds)]
    timeout: Option<Seconds>,
    /// After how many failures it fails for good [default: 3]
    #[arg(long, value_name = "COUNT")]
    max_attempts: Option<u32>,
    /// How long it waits after the first failure; twice as long after each [default: 1s]
    #[arg(long, value_name = "LENGTH", value_parser = args::seconds)]
    backoff: Option<Seconds>,
    /// Parks it in the backlog instead of making it claimable
    #[arg(long)]
    backlog: bool,
    /// Its place in the backlog, lower first [default: 0]
    #[arg(long, allow_negative_numbers = true)]
    rank: Option<i64>,
    /// Free data, an object: JSON, @FILE, or -
    #[arg(long, value_name = "JSON")]
    metadata: Option<Body>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Duplicate {
    /// Refuse it
    Conflict,
    /// Answer the task that is there
    Return,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Busy {
    /// Wait in line
    Enqueue,
    /// Refuse it
    Reject,
}

impl Create {
    /// Makes the task and tells whether it is new.
    pub(super) async fn run(&self, hold: &Statehold, show: &Show) -> Result<Exit> {
        let mut created = hold.tasks().create(self.command()?).await?;
        created.task = without_token(created.task);
        show.answer(&created, || {
            let (task, what) = (&created.task, if created.created { "created" } else { "already there:" });
            format!("{what} {} ({})", task.id, task.status)
        })?;
        Ok(Exit::Success)
    }

    fn command(&self) -> Result<TaskCreate> {
        Ok(TaskCreate {
            id: self.id,
            queue: self.queue.clone(),
            kind: self.kind.clone(),
            input: maybe(self.input.as_ref(), "--input")?,
            metadata: maybe(self.metadata.as_ref(), "--metadata")?,
            labels: args::labels(&self.labels),
            priority: self.priority,
            rank: self.rank,
            thread: self.thread.clone(),
            parent: self.parent,
            child_key: self.child_key.clone(),
            depends_on: self.depends_on.clone(),
            idempotency_key: self.idempotency_key.clone(),
            on_duplicate: self.on_duplicate.map(|on| match on {
                Duplicate::Conflict => OnDuplicate::Conflict,
                Duplicate::Return => OnDuplicate::Return,
            }),
            exclusive_key: self.exclusive_key.clone(),
            on_busy: self.on_busy.map(|on| match on {
                Busy::Enqueue => OnBusy::Enqueue,
                Busy::Reject => OnBusy::Reject,
            }),
            run_at: self.run_at.or_else(|| self.delay.map(|delay| args::now() + delay)),
            expires_at: self.expires_at,
            timeout_seconds: self.timeout,
            max_attempts: self.max_attempts,
            max_lease_losses: None,
            backoff: self.backoff.map(backoff),
            traceparent: None,
            backlog: self.backlog,
        })
    }
}

/// Twice as long each time, up to the usual longest wait, or to this one if it is longer.
fn backoff(initial_seconds: Seconds) -> Backoff {
    let usual = Backoff::default();
    Backoff { initial_seconds, max_seconds: usual.max_seconds.max(initial_seconds), ..usual }
}
