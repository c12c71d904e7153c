//! `statehold task`: durable units of work, their leases, and why they are not moving.

mod change;
mod create;
mod lease;
mod list;
mod show;

use clap::Subcommand;
use statehold::{Error, Result, Statehold, Task as Row, TaskId};

use crate::show::Show;
use crate::trouble::Exit;

/// What can be done with tasks.
#[derive(Subcommand, Debug)]
pub(crate) enum Task {
    /// Makes a task
    ///
    /// With --idempotency-key, --id, or --parent and --child-key it is made once, however often this is run: then
    /// the answer is `already there`.
    #[command(after_help = "\
Examples:
  statehold task create answer --queue chat --input '{\"question\": \"why\"}'
  statehold task create answer --idempotency-key webhook-7 --thread 42
  echo '{\"from\": \"stdin\"}' | statehold task create import --input - --delay 5m")]
    Create(Box<create::Create>),
    /// Lists tasks
    #[command(after_help = "\
Examples:
  statehold task list --status running,waiting
  statehold task list --queue chat --label team=a --descending
  statehold task list --all -o json")]
    List(Box<list::List>),
    /// Shows everything about a task
    #[command(after_help = "\
Examples:
  statehold task show $ID
  statehold task show $ID --events 100")]
    Show(show::ShowTask),
    /// Follows the events of a task until it ends
    ///
    /// Exits with 0 when the task is completed, with 7 when it failed or was cancelled.
    #[command(after_help = "\
Examples:
  statehold task watch $ID
  statehold task watch $ID -o json")]
    Watch(show::Watch),
    /// Waits until a task has ended
    ///
    /// Exits with 0 when it is completed, with 7 when it failed or was cancelled, with 6 when it did not end in time.
    #[command(after_help = "\
Examples:
  statehold task wait $ID
  statehold task wait $ID --timeout 5m -o json")]
    Wait(show::Wait),
    /// Tells why a task is not moving, and what can be done
    #[command(after_help = "\
Examples:
  statehold task why $ID
  statehold task why $ID -o json")]
    Why(show::Why),
    /// Takes tasks that are ready, each with a lease
    ///
    /// Whoever has the token can renew, complete, fail and release the task, from any process. Exits with 6 when
    /// nothing is ready.
    #[command(after_help = "\
Examples:
  statehold task claim
  statehold task claim --queue chat --queue mail --limit 5 --lease 2m
  statehold task claim --queue chat --wait 30s -o json")]
    Claim(lease::Claim),
    /// Starts one task by its id, as a claim would
    #[command(after_help = "\
Examples:
  statehold task start $ID
  statehold task start $ID --owner me --lease 10m")]
    Start(lease::Start),
    /// Keeps a lease, and tells whether the task shall stop
    #[command(after_help = "\
Examples:
  statehold task renew $ID --token $TOKEN
  statehold task renew $ID --token $TOKEN --lease 5m --progress '{\"done\": 3}'")]
    Renew(lease::Renew),
    /// Ends a leased task well
    #[command(after_help = "\
Examples:
  statehold task complete $ID --token $TOKEN
  statehold task complete $ID --token $TOKEN --result '{\"answer\": 42}'")]
    Complete(lease::Complete),
    /// Says that the work on a leased task failed
    ///
    /// While tries are left, the task comes again after a while.
    #[command(after_help = "\
Examples:
  statehold task fail $ID --token $TOKEN --error 'the model did not answer'
  statehold task fail $ID --token $TOKEN --error 'no such page' --code not_found --no-retry")]
    Fail(lease::Fail),
    /// Gives a leased task back; it counts for nothing
    #[command(after_help = "\
Examples:
  statehold task release $ID --token $TOKEN
  statehold task release $ID --token $TOKEN --run-at +10m")]
    Release(lease::Release),
    /// Lets go of a leased task until a signal, its children or a time
    #[command(after_help = "\
Examples:
  statehold task suspend $ID --token $TOKEN --signal approved --timeout 1d
  statehold task suspend $ID --token $TOKEN --children
  statehold task suspend $ID --token $TOKEN --until +1h")]
    Suspend(lease::Suspend),
    /// Gives a task a signal, which is kept until the task waits for it
    #[command(after_help = "\
Examples:
  statehold task signal $ID approved
  statehold task signal $ID approved --data '{\"by\": \"me\"}'")]
    Signal(change::Signal),
    /// Asks a task to end; one that runs is told at its next renewal
    #[command(after_help = "\
Examples:
  statehold task cancel $ID
  statehold task cancel $ID --force --children")]
    Cancel(change::Cancel),
    /// Takes a running task from its owner, for another
    #[command(after_help = "\
Examples:
  statehold task evict $ID")]
    Evict(change::Evict),
    /// Opens a failed or cancelled task again
    #[command(after_help = "\
Examples:
  statehold task retry $ID
  statehold task retry $ID --with-dependents")]
    Retry(change::Retry),
    /// Takes a task out of the backlog
    #[command(after_help = "\
Examples:
  statehold task promote $ID")]
    Promote(change::Promote),
    /// Puts a pending or blocked task into the backlog
    #[command(after_help = "\
Examples:
  statehold task park $ID --rank 10")]
    Park(change::Park),
    /// Changes what a task carries: metadata, labels, priority, times
    #[command(after_help = "\
Examples:
  statehold task amend $ID --priority -5 --label team=a --remove-label old
  statehold task amend $ID --metadata '{\"note\": null, \"seen\": true}'")]
    Amend(change::Amend),
    /// Removes a task that has ended, with its events, for good
    #[command(after_help = "\
Examples:
  statehold task purge $ID")]
    Purge(change::Purge),
}

/// Does it.
pub(crate) async fn run(hold: &Statehold, task: &Task, show: &Show) -> Result<Exit> {
    match task {
        Task::Create(args) => args.run(hold, show).await,
        Task::List(args) => args.run(hold, show).await,
        Task::Show(args) => args.run(hold, show).await,
        Task::Watch(args) => args.run(hold, show).await,
        Task::Wait(args) => args.run(hold, show).await,
        Task::Why(args) => args.run(hold, show).await,
        Task::Claim(args) => args.run(hold, show).await,
        Task::Start(args) => args.run(hold, show).await,
        Task::Renew(args) => args.run(hold, show).await,
        Task::Complete(args) => args.run(hold, show).await,
        Task::Fail(args) => args.run(hold, show).await,
        Task::Release(args) => args.run(hold, show).await,
        Task::Suspend(args) => args.run(hold, show).await,
        Task::Signal(args) => args.run(hold, show).await,
        Task::Cancel(args) => args.run(hold, show).await,
        Task::Evict(args) => args.run(hold, show).await,
        Task::Retry(args) => args.run(hold, show).await,
        Task::Promote(args) => args.run(hold, show).await,
        Task::Park(args) => args.run(hold, show).await,
        Task::Amend(args) => args.run(hold, show).await,
        Task::Purge(args) => args.run(hold, show).await,
    }
}

/// A task that must be there.
async fn get(hold: &Statehold, id: TaskId) -> Result<Row> {
    let found = hold.tasks().get(id).await?;
    found.ok_or_else(|| {
        Error::not_found("task", id).hint("statehold task list shows the tasks of a namespace")
    })
}
