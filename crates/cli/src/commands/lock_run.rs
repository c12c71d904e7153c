//! `statehold lock run`: a program under a lock, as flock does it, for many machines.

use std::io::IsTerminal as _;
use std::process::ExitStatus;
use std::time::Duration;

use clap::Args;
use rustix::process::Signal;
use statehold::{Error, ErrorKind, LockGuard, Result, Seconds, Statehold};
use statehold_core::command::LockAcquire;
use tokio::process::Command;

use crate::args;
use crate::process::{self, Program, Signals};
use crate::trouble::{Exit, tell};

/// Which lock a program runs under.
const LOCK_KEY: &str = "STATEHOLD_LOCK_KEY";
/// What proves that the lock is held.
const LOCK_TOKEN: &str = "STATEHOLD_LOCK_TOKEN";

/// How long after SIGTERM a program is killed whose lock is lost.
const KILL_AFTER: Duration = Duration::from_secs(5);

/// What happens in all cases, for the help.
const HELP: &str = "\
The lock is renewed while the program runs and released when it ends. The exit code is the
program's, or 128 and the number of the signal that ended it. If the lock is lost, by force or
because the store could not be reached, the program is stopped and the exit code is 5. If this
process is killed, the lock ends by its time to live; what the program still writes with
STATEHOLD_LOCK_KEY and STATEHOLD_LOCK_TOKEN, which it finds in its environment, is then refused.

Examples:
  statehold lock run deploy -- ./deploy.sh
  statehold lock run nightly --no-wait -- ./backup     # ends with 4 if another machine is at it
  statehold lock run index --wait 5m --ttl 30s -- ./reindex";

/// The arguments of `statehold lock run`.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub(crate) struct LockRun {
    /// What to lock
    key: String,
    /// How long to wait for the lock at most [default: as long as it takes]
    #[arg(long, value_name = "TIME", value_parser = args::seconds, conflicts_with = "no_wait")]
    wait: Option<Seconds>,
    /// Do not wait for the lock
    #[arg(long)]
    no_wait: bool,
    /// How long the lock outlives this process at most
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = args::seconds)]
    ttl: Seconds,
    /// The exit code when another has the lock
    #[arg(long, value_name = "CODE", default_value = "4")]
    conflict_exit_code: u8,
    /// The name that others see as the holder [default: machine, process and a random part]
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

/// How it went.
enum Ran {
    Ended(ExitStatus),
    LockLost,
}

/// Runs the program under the lock, and ends as that ended.
pub(crate) async fn run(hold: &Statehold, lock: &LockRun, json: bool) -> Result<Exit> {
    let (program, arguments) = lock.command.split_first().ok_or_else(|| Error::invalid("", "no program"))?;
    let mut command = Command::new(process::find(program)?);
    command.args(arguments);
    let guard = match acquire(hold, lock).await {
        Err(error) if matches!(error.kind(), ErrorKind::Held { .. }) => {
            tell(&error, json);
            return Ok(Exit::Code(lock.conflict_exit_code));
        }
        guard => guard?,
    };
    command.env(LOCK_KEY, guard.key()).env(LOCK_TOKEN, guard.token().0.to_string());
    let ran = watch(command, &guard).await;
    let lost = matches!(ran, Ok(Ran::LockLost));
    // If that fails, the lock ends by itself.
    let released = if lost { Ok(()) } else { guard.release().await };
    match ran? {
        Ran::Ended(status) => {
            if let Err(error) = released.as_ref() {
                tell(error, json);
            }
            Ok(Exit::Code(process::exit_code(status)))
        }
        Ran::LockLost => Err(Error::new(
            ErrorKind::Fenced { lost_at: None, owner: None },
            format!("lock `{}` was lost, so the program was stopped", lock.key),
        )
        .about(&lock.key)
        .hint("another may have it by now; a longer --ttl survives longer troubles with the store")),
    }
}

async fn acquire(hold: &Statehold, lock: &LockRun) -> Result<LockGuard> {
    let owner = lock.owner.clone().unwrap_or_else(statehold::default_owner);
    let acquire = LockAcquire { ttl_seconds: lock.ttl, ..LockAcquire::new(&lock.key, owner) };
    let most = match lock.wait {
        _ if lock.no_wait => None,
        Some(wait) => Some(wait.into()),
        None => Some(Duration::MAX),
    };
    hold.locks().acquire_with(acquire, most).await
}

/// Runs the program until it ends or the lock is lost. Signals that this process gets are the program's.
async fn watch(command: Command, guard: &LockGuard) -> Result<Ran> {
    let mut signals = Signals::listen()?;
    let at_terminal = std::io::stdin().is_terminal();
    // At a terminal it stays in this group, or it could not read from it; there SIGINT comes to both of us.
    let started = if at_terminal { Program::start(command) } else { Program::start_group(command) };
    let mut program =
        started.map_err(|e| Error::unavailable("the program cannot be started").caused_by(e))?;
    let lost = loop {
        tokio::select! {
            biased;
            () = program.ended() => break false,
            () = guard.lost() => {
                program.stop(KILL_AFTER).await;
                break true;
            }
            signal = signals.next() => if !(at_terminal && signal == Signal::INT) {
                program.signal(signal);
            },
        }
    };
    let trouble = |e| Error::unavailable("how the program ended cannot be known").caused_by(e);
    if lost {
        // What it left behind must not go on without the lock either.
        program.finish().await.map_err(trouble)?;
        return Ok(Ran::LockLost);
    }
    program.leave().await.map(Ran::Ended).map_err(trouble)
}
