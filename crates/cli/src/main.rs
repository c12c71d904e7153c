//! The `statehold` command.

mod args;
mod commands;
mod process;
mod reference;
mod settings;
mod show;
mod trouble;

use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use statehold::{Result, Statehold};

use commands::bench::{self, Bench};
use commands::config;
use commands::demo::{self, Demo};
use commands::doc::{self, Doc};
use commands::doctor::{self, Doctor};
use commands::dump::{self, Dump, Load};
use commands::entry::{self, Entry};
use commands::group::{self, Group};
use commands::health;
use commands::lock::{self, Lock};
use commands::man::{self, Completions, Man};
use commands::migrate::{self, Migrate};
use commands::queue::{self, Queue};
use commands::result::{self, ResultOf};
use commands::serve::{self, Serve};
use commands::stream::{self, Stream};
use commands::sweep::{self, Sweep};
use commands::task::{self, Task};
use commands::thread::{self, Thread};
use commands::token::{self, Token};
use commands::work::{self, Work};
use settings::Common;
use show::Show;
use trouble::{EXIT_CODES, Exit, tell};

/// Requests are many small pieces of memory that one thread makes and another lets go of; the system's allocator
/// takes a tenth of the writer's time for them. It does without huge pages (`no_thp` in the manifest): whatever little is left
/// in one keeps 2 MB, so a server had 20 MB more, and went on growing for an hour.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The state layer under agent orchestration
///
/// Tasks with leases and fencing tokens, streams, documents, entries and locks, on a store that a URL names:
/// sqlite:statehold.db in the current folder unless --store, the environment or statehold.toml says otherwise.
#[derive(Parser)]
#[command(name = "statehold", version, arg_required_else_help = true, after_long_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Durable units of work: create, claim, complete, watch, ask why
    Task {
        #[command(flatten)]
        common: Common,
        #[command(subcommand)]
        task: Task,
    },
    /// How full queues are, who asks them for work, pausing
    Queue {
        #[command(flatten)]
        common: Common,
        #[command(subcommand)]
        queue: Queue,
    },
    /// Serves a store over HTTP, and supervises it
    ///
    /// Without tokens only this machine may ask. The reference of all routes is at /docs.
    #[command(after_help = "\
Examples:
  statehold serve
  statehold serve --store sqlite:/var/lib/statehold/state.db --listen 127.0.0.1:8080 --log json
  statehold serve --role worker --listen 127.0.0.1:7421")]
    Serve {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        serve: Serve,
    },
    /// Who may ask a server, and for what
    Token {
        #[command(flatten)]
        common: Common,
        #[command(subcommand)]
        token: Token,
    },
    /// Makes any program a worker
    #[command(name = "work")]
    Worker {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        work: Work,
    },
    /// Conversations and their messages
    Thread {
        #[command(flatten)]
        common: Common,
        #[command(subcommand)]
        thread: Thread,
    },
    /// Append-only logs of events
    Stream {
        #[command(flatten)]
        common: Common,
        #[command(subcommand)]
        stream: Stream,
    },
    /// Events handed out, each to one consumer at a time
    Group {
        #[command(flatten)]
        common: Common,
        #[command(subcommand)]
        group: Group,
    },
    /// Documents: bodies with a revision
    Doc {
        #[command(flatten)]
        common: Common,
        #[command(subcommand)]
        doc: Doc,
    },
    /// Values with a time to live
    Entry {
        #[command(flatten)]
        common: Common,
        #[command(subcommand)]
        entry: Entry,
    },
    /// What one who works hands to one who waits
    Result {
        #[command(flatten)]
        common: Common,
        #[command(subcommand)]
        result: ResultOf,
    },
    /// Advisory locks, and programs that run under them
    Lock {
        #[command(flatten)]
        common: Common,
        #[command(subcommand)]
        lock: Lock,
    },
    /// Does what time brings: ended leases, due times, expiries
    ///
    /// Goes on until nothing is left to do, and says what it did. Workers do the most urgent of it by themselves.
    #[command(after_help = "\
Examples:
  statehold sweep
  statehold sweep --all-namespaces --retention -o json")]
    Sweep {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        sweep: Sweep,
    },
    /// Brings the schema of a store up to date
    #[command(after_help = "\
Examples:
  statehold migrate
  statehold migrate --dry-run")]
    Migrate {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        migrate: Migrate,
    },
    /// Writes everything in a namespace as lines of JSON
    ///
    /// Ids, tokens, revisions, numbers and positions are kept, so a dump is as secret as the store.
    #[command(after_help = "\
Examples:
  statehold dump --to backup.jsonl
  statehold dump | gzip > backup.jsonl.gz")]
    Dump {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        dump: Dump,
    },
    /// Fills an empty namespace from a dump: all of it or nothing
    #[command(after_help = "\
Examples:
  statehold load --from backup.jsonl --namespace restored
  statehold dump | statehold load --store sqlite:copy.db")]
    Load {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        load: Load,
    },
    /// Tells how the store is, and what it promises
    #[command(after_help = "\
Examples:
  statehold health
  statehold health -o json")]
    Health {
        #[command(flatten)]
        common: Common,
    },
    /// Tells whether a store is sound
    ///
    /// Examines every page and compares what the rows say of each other; changes nothing unless told to recover.
    #[command(after_help = "\
Examples:
  statehold doctor
  statehold doctor --store sqlite:statehold.db --recover")]
    Doctor {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        doctor: Doctor,
    },
    /// Shows the effective settings, and where they come from
    #[command(after_long_help = config::HELP)]
    Config {
        #[command(flatten)]
        common: Common,
    },
    /// Shows what Statehold is for, with real processes
    Demo(Demo),
    /// Measures a store through Statehold, at its limit, and by hand
    ///
    /// Each operation is done in turns through Statehold (ours), by the best technique known with hard-coded
    /// statements (limit), and as one writes it first (naive). The ratios are what counts; `!` marks those that miss
    /// their target.
    #[command(after_help = "\
Examples:
  statehold bench --store sqlite:bench.db --op task.cycle --rounds 1 --seconds 0.1")]
    Bench(Bench),
    /// Writes the script that completes arguments in a shell
    #[command(after_help = "\
Examples:
  statehold completions bash > statehold.bash")]
    Completions(Completions),
    /// Writes manual pages
    #[command(after_help = "\
Examples:
  statehold man task create > statehold-task-create.1
  statehold man --to man1")]
    Man(Man),
    /// Writes the reference of the command line
    #[command(hide = true)]
    Reference,
}

fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match cli.command {
        // It brings a runtime of its own.
        Command::Bench(args) => bench::run(&args),
        command => run(command, &matches),
    }
}

#[tokio::main]
async fn run(command: Command, matches: &ArgMatches) -> ExitCode {
    match command {
        Command::Task { common, task } => {
            on(&common, async |hold, show| task::run(hold, &task, show).await).await
        }
        Command::Queue { common, queue } => {
            on(&common, async |hold, show| queue::run(hold, &queue, show).await).await
        }
        Command::Serve { common, serve } => {
            on(&common, async |hold, show| serve::run(hold, &serve, show).await).await
        }
        Command::Token { common, token } => {
            on(&common, async |hold, show| token::run(hold, &token, show).await).await
        }
        Command::Worker { common, work } => {
            let run =
                async |hold: &_, show: &Show| work::run(hold, &work, &common.url()?, show.is_json()).await;
            on(&common, run).await
        }
        Command::Thread { common, thread } => {
            on(&common, async |hold, show| thread::run(hold, &thread, show).await).await
        }
        Command::Stream { common, stream } => {
            on(&common, async |hold, show| stream::run(hold, &stream, show).await).await
        }
        Command::Group { common, group } => {
            on(&common, async |hold, show| group::run(hold, &group, show).await).await
        }
        Command::Doc { common, doc } => {
            on(&common, async |hold, show| doc::run(hold, &doc, show).await).await
        }
        Command::Entry { common, entry } => {
            on(&common, async |hold, show| entry::run(hold, &entry, show).await).await
        }
        Command::Result { common, result } => {
            on(&common, async |hold, show| result::run(hold, &result, show).await).await
        }
        Command::Lock { common, lock } => {
            on(&common, async |hold, show| lock::run(hold, &lock, show).await).await
        }
        Command::Sweep { common, sweep } => {
            on(&common, async |hold, show| sweep::run(hold, &sweep, show).await).await
        }
        Command::Dump { common, dump } => {
            on(&common, async |hold, show| dump::dump(hold, &dump, show).await).await
        }
        Command::Load { common, load } => {
            on(&common, async |hold, show| dump::load(hold, &load, show).await).await
        }
        Command::Health { common } => on(&common, async |hold, show| health::run(hold, show).await).await,
        Command::Migrate { common, migrate } => end(migrate::run(&common, &migrate).await, common.is_json()),
        Command::Doctor { common, doctor } => end(doctor::run(&common, &doctor).await, common.is_json()),
        Command::Config { common } => end(configured(&common, matches), common.is_json()),
        Command::Demo(args) => demo::run(&args).await.into(),
        Command::Completions(args) => end(man::completions(Cli::command(), &args, &Show::new(false)), false),
        Command::Man(args) => end(man::man(Cli::command(), &args, &Show::new(false)), false),
        Command::Reference => {
            let page = Show::new(false).line(reference::page(Cli::command()));
            end(page.map(|()| Exit::Success), false)
        }
        Command::Bench(_) => Exit::Success.into(),
    }
}

/// Opens the store, does it, and ends.
async fn on(common: &Common, act: impl AsyncFnOnce(&Statehold, &Show) -> Result<Exit>) -> ExitCode {
    let done = async { act(&common.open().await?, &common.show()).await }.await;
    end(done, common.is_json())
}

fn end(done: Result<Exit>, json: bool) -> ExitCode {
    done.unwrap_or_else(|error| tell(&error, json)).into()
}

fn configured(common: &Common, matches: &ArgMatches) -> Result<Exit> {
    let matches = matches.subcommand_matches("config").unwrap_or(matches);
    config::run(common, matches, &common.show())
}
