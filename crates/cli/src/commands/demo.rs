//! `statehold demo`: a small fleet in processes of its own, some of which come to grief, and the proof that nothing was
//! lost and nothing happened twice.

mod fleet;
mod parts;
mod story;
mod summary;

use std::time::Duration;

use clap::{Args, ValueEnum};
use statehold::{Error, Result, Statehold, TaskId};

use crate::process::Signals;
use crate::trouble::{Exit, tell};
use fleet::Fleet;
use story::Story;

/// How long the whole of it may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The arguments of `statehold demo`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  statehold demo
  statehold demo --store sqlite:state.db --tasks 50")]
pub(crate) struct Demo {
    /// Where: a store of yours, in a new namespace that stays there, to look at [default: a file that is removed]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// How many webhooks arrive, each of them twice
    #[arg(long, value_name = "NUMBER", default_value = "12", value_parser = clap::value_parser!(u32).range(3..=500))]
    tasks: u32,
    /// No pauses for reading along
    #[arg(long)]
    fast: bool,
    /// What this process plays in it
    #[arg(long, hide = true, requires_all = ["space", "called"])]
    part: Option<Part>,
    /// In which namespace
    #[arg(long, hide = true)]
    space: Option<String>,
    /// Under which name
    #[arg(long, hide = true)]
    called: Option<String>,
}

/// What a process of the fleet plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Takes webhooks in.
    Receiver,
    /// Works on tasks.
    Worker,
}

impl Demo {
    /// How long leases are: as long as it takes to see that something is wrong.
    fn lease(&self) -> Duration {
        Duration::from_secs(if self.fast { 1 } else { 2 })
    }

    /// How long a plain task takes.
    fn work(&self) -> Duration {
        Duration::from_millis(if self.fast { 50 } else { 400 })
    }

    /// How long it waits for people to read along.
    fn pause(&self) -> Duration {
        Duration::from_millis(if self.fast { 0 } else { 900 })
    }
}

/// Tells the story, checks it, and answers whether all of it held.
pub(crate) async fn run(demo: &Demo) -> Exit {
    let done = match demo.part {
        Some(part) => parts::play(demo, part).await.map(|()| Exit::Success),
        None => stage(demo).await,
    };
    done.unwrap_or_else(|error| tell(&error, false))
}

/// Sets the stage, and clears it in every case: the fleet's processes are killed as they are dropped.
async fn stage(demo: &Demo) -> Result<Exit> {
    let mut signals = Signals::listen()?;
    let folder = tempfile::Builder::new().prefix("statehold-demo-").tempdir();
    let folder = folder.map_err(|e| Error::unavailable("no temporary folder can be made").caused_by(e))?;
    let store = demo.store.clone();
    let store = store.unwrap_or_else(|| format!("sqlite:{}", folder.path().join("demo.db").display()));
    if store == "memory:" {
        let message = "the demo runs in several processes, which cannot share `memory:`";
        return Err(
            Error::invalid("store", message).hint("leave --store out, or give a file as in sqlite:demo.db")
        );
    }
    let random = TaskId::generate().to_string();
    let space = format!("demo-{}", random.rsplit('-').next().unwrap_or_default());
    let hold = Statehold::open(&store).await?.at(&space);
    let fleet = Fleet::new(demo, &store, &space)?;
    story::say(&format!("Several processes share one store, {store}, and not all of them live to the end."));
    tokio::select! {
        told = tokio::time::timeout(LIMIT, Story::new(demo, &hold, fleet).tell()) => {
            let told = told.map_err(|_| Error::unavailable(format!("it did not come to its end in {LIMIT:?}")))?;
            if demo.store.is_some() {
                story::say(&format!("It is all in namespace {space} of {store}."));
            }
            Ok(if told? { Exit::Success } else { Exit::Failure })
        }
        _ = signals.next() => {
            story::say("\nStopped; every process of it is ended.");
            Ok(Exit::Failure)
        }
    }
}
