//! `statehold queue`: how full queues are, who asks them for work, pausing.

use clap::Subcommand;
use statehold::{Result, Statehold, Status};
use statehold_core::command::QueueState;
use statehold_core::model::QueueInfo;

use crate::show::{Show, Table};
use crate::trouble::Exit;

/// What can be done with queues.
#[derive(Subcommand, Debug)]
pub(crate) enum Queue {
    /// Lists queues: how full they are and who asks them for work
    #[command(after_help = "\
Examples:
  statehold queue list
  statehold queue list -o json")]
    List,
    /// Stops giving out tasks of a queue; what runs goes on
    #[command(after_help = "\
Examples:
  statehold queue pause chat")]
    Pause {
        /// Which queue
        queue: String,
    },
    /// Gives out tasks of a queue again
    #[command(after_help = "\
Examples:
  statehold queue resume chat")]
    Resume {
        /// Which queue
        queue: String,
    },
}

/// Does it.
pub(crate) async fn run(hold: &Statehold, queue: &Queue, show: &Show) -> Result<Exit> {
    match queue {
        Queue::List => list(hold, show).await?,
        Queue::Pause { queue } => tell(show, &hold.queues().pause(queue).await?)?,
        Queue::Resume { queue } => tell(show, &hold.queues().resume(queue).await?)?,
    }
    Ok(Exit::Success)
}

fn tell(show: &Show, state: &QueueState) -> Result<()> {
    let how = if state.paused { "is paused" } else { "gives out tasks" };
    show.answer(state, || format!("queue {} {how}", state.queue))
}

async fn list(hold: &Statehold, show: &Show) -> Result<()> {
    let queues = hold.queues().list().await?;
    if queues.is_empty() {
        show.note("nothing found");
        return Ok(());
    }
    show.list(&queues, table)
}

fn table(queues: &[QueueInfo]) -> Table {
    let heads =
        ["QUEUE", "STATE", "READY", "PENDING", "RUNNING", "WAITING", "BLOCKED", "BACKLOG", "COMPLETED"];
    let more = ["FAILED", "CANCELLED", "OLDEST", "PER MINUTE", "ASKED BY"];
    let mut table = Table::new(&[&heads[..], &more[..]].concat());
    for queue in queues {
        let count = |status| queue.counts.get(&status).copied().unwrap_or_default().into();
        table.row([
            (&queue.queue).into(),
            if queue.paused { "paused" } else { "open" }.into(),
            queue.claimable.into(),
            count(Status::Pending),
            count(Status::Running),
            count(Status::Waiting),
            count(Status::Blocked),
            count(Status::Backlog),
            count(Status::Completed),
            count(Status::Failed),
            count(Status::Cancelled),
            queue
                .oldest_pending_seconds
                .map(|age| format!("{}s", age.as_micros() / 1_000_000))
                .unwrap_or_default()
                .into(),
            queue.per_minute.into(),
            queue.pollers.len().into(),
        ]);
    }
    table
}
