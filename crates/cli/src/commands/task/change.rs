//! Changing tasks from outside: `signal`, `cancel`, `evict`, `retry`, `promote`, `park`, `amend`, `purge`.

use std::collections::BTreeMap;

use clap::Args;
use statehold::{Result, Statehold, TaskId, Timestamp};
use statehold_core::command::{TaskAmend, TaskCancel, TaskPark, TaskRetry};

use super::lease::tell;
use crate::args::{self, Body, maybe};
use crate::show::Show;
use crate::trouble::Exit;

/// The arguments of `statehold task signal`.
#[derive(Args, Debug)]
pub(crate) struct Signal {
    /// Which task
    #[arg(value_parser = args::task_id)]
    id: TaskId,
    /// The name of the signal
    name: String,
    /// What it carries: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    data: Option<Body>,
}

impl Signal {
    pub(super) async fn run(&self, hold: &Statehold, show: &Show) -> Result<Exit> {
        let data = maybe(self.data.as_ref(), "--data")?;
        tell(show, hold.tasks().signal(self.id, &self.name, data).await?)
    }
}

/// The arguments of `statehold task cancel`.
#[derive(Args, Debug)]
pub(crate) struct Cancel {
    /// Which task
    #[arg(value_parser = args::task_id)]
    id: TaskId,
    /// Does not wait for the owner of a running task: whatever it still writes is refused
    #[arg(long)]
    force: bool,
    /// Everything that came of it too
    #[arg(long)]
    children: bool,
}

impl Cancel {
    pub(super) async fn run(&self, hold: &Statehold, show: &Show) -> Result<Exit> {
        let Self { id, force, children } = *self;
        tell(show, hold.run(TaskCancel { id, force, children }).await?)
    }
}

/// The arguments of `statehold task evict`.
#[derive(Args, Debug)]
pub(crate) struct Evict {
    /// Which task
    #[arg(value_parser = args::task_id)]
    id: TaskId,
}

impl Evict {
    pub(super) async fn run(&self, hold: &Statehold, show: &Show) -> Result<Exit> {
        tell(show, hold.tasks().evict(self.id).await?)
    }
}

/// The arguments of `statehold task retry`.
#[derive(Args, Debug)]
pub(crate) struct Retry {
    /// Which task
    #[arg(value_parser = args::task_id)]
    id: TaskId,
    /// Also the tasks that failed because this one did
    #[arg(long)]
    with_dependents: bool,
}

impl Retry {
    pub(super) async fn run(&self, hold: &Statehold, show: &Show) -> Result<Exit> {
        let Self { id, with_dependents } = *self;
        tell(show, hold.run(TaskRetry { id, with_dependents }).await?)
    }
}

/// The arguments of `statehold task promote`.
#[derive(Args, Debug)]
pub(crate) struct Promote {
    /// Which task
    #[arg(value_parser = args::task_id)]
    id: TaskId,
}

impl Promote {
    pub(super) async fn run(&self, hold: &Statehold, show: &Show) -> Result<Exit> {
        tell(show, hold.tasks().promote(self.id).await?)
    }
}

/// The arguments of `statehold task park`.
#[derive(Args, Debug)]
pub(crate) struct Park {
    /// Which task
    #[arg(value_parser = args::task_id)]
    id: TaskId,
    /// Its place in the backlog, lower first; unchanged if left out
    #[arg(long, allow_negative_numbers = true)]
    rank: Option<i64>,
}

impl Park {
    pub(super) async fn run(&self, hold: &Statehold, show: &Show) -> Result<Exit> {
        let Self { id, rank } = *self;
        tell(show, hold.run(TaskPark { id, rank }).await?)
    }
}

/// The arguments of `statehold task amend`.
#[derive(Args, Debug)]
pub(crate) struct Amend {
    /// Which task
    #[arg(value_parser = args::task_id)]
    id: TaskId,
    /// Only if the task is at this revision
    #[arg(long)]
    revision: Option<u64>,
    /// Members to set, or to remove with null: JSON, @FILE, or -
    #[arg(long, value_name = "JSON")]
    metadata: Option<Body>,
    /// A label to set; can be said several times
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = args::label)]
    labels: Vec<(String, String)>,
    /// A label to remove; can be said several times
    #[arg(long = "remove-label", value_name = "KEY")]
    removed: Vec<String>,
    /// Lower goes first
    #[arg(short, long, allow_negative_numbers = true)]
    priority: Option<i16>,
    /// Its place in the backlog, lower first
    #[arg(long, allow_negative_numbers = true)]
    rank: Option<i64>,
    /// Not claimable before: a time, or +5m from now
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    run_at: Option<Timestamp>,
    /// Fails if it has not started by then: a time, or +5m from now
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    expires_at: Option<Timestamp>,
}

impl Amend {
    pub(super) async fn run(&self, hold: &Statehold, show: &Show) -> Result<Exit> {
        let mut labels: BTreeMap<_, _> = self.removed.iter().map(|key| (key.clone(), None)).collect();
        labels.extend(self.labels.iter().map(|(key, value)| (key.clone(), Some(value.clone()))));
        let amend = TaskAmend {
            id: self.id,
            revision: self.revision,
            metadata: maybe(self.metadata.as_ref(), "--metadata")?,
            labels,
            priority: self.priority,
            rank: self.rank,
            run_at: self.run_at,
            expires_at: self.expires_at,
        };
        tell(show, hold.tasks().update(amend).await?)
    }
}

/// The arguments of `statehold task purge`.
#[derive(Args, Debug)]
pub(crate) struct Purge {
    /// Which task
    #[arg(value_parser = args::task_id)]
    id: TaskId,
}

impl Purge {
    pub(super) async fn run(&self, hold: &Statehold, show: &Show) -> Result<Exit> {
        hold.tasks().purge(self.id).await?;
        show.answer(&serde_json::json!({ "purged": self.id }), || format!("task {} is gone", self.id))?;
        Ok(Exit::Success)
    }
}
