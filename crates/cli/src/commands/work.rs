//! `statehold work`: any program as a worker.

mod attempt;
mod lines;
mod pipes;
mod tell;
mod verdict;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use statehold::worker::{Failure, Job, Outcome, Stopping, Worker};
use statehold::{Error, Result, Seconds, Statehold, Store};

use crate::args;
use crate::process::{self, Signals};
use crate::trouble::Exit;
use tell::{News, Tell};
use verdict::Verdict;

/// What a program finds in its environment.
mod env {
    pub(super) use crate::settings::env::{NAMESPACE, STORE};
    /// Which task it works on.
    pub(super) const TASK_ID: &str = "STATEHOLD_TASK_ID";
    /// What proves that it does.
    pub(super) const TASK_TOKEN: &str = "STATEHOLD_TASK_TOKEN";
    /// The kind of the task.
    pub(super) const TASK_KIND: &str = "STATEHOLD_TASK_KIND";
    /// The queue of the task.
    pub(super) const TASK_QUEUE: &str = "STATEHOLD_TASK_QUEUE";
    /// How often the task was started.
    pub(super) const TASK_ATTEMPT: &str = "STATEHOLD_TASK_ATTEMPT";
    /// The trace that the task is part of, by the name that other tools know it by.
    pub(super) const TRACE: &str = "TRACEPARENT";
}

/// How long a task is left to others when its program cannot be started here.
const CANNOT_START: Duration = Duration::from_secs(5);

/// What a program is given and how it is judged, for the help.
const HELP: &str = "\
The program:
  stdin   the task's input as JSON
  stdout  the task's output: JSON, or else text; more than 1 MiB fails the task
  stderr  passed on, each line with the task's id; its end is kept if the program fails
  fd 3    lines of JSON {\"type\": …, \"data\": …} become events of the task; others, events `log`

  It finds STATEHOLD_STORE, STATEHOLD_NAMESPACE, STATEHOLD_TASK_ID, STATEHOLD_TASK_TOKEN,
  STATEHOLD_TASK_KIND, STATEHOLD_TASK_QUEUE and STATEHOLD_TASK_ATTEMPT in its environment, so
  that statehold commands inside it are about its task.

How it ends:
  0            the task is completed
  65           it fails for good (EX_DATAERR); so it does with the codes of --permanent
  75           it goes back for --delay, which counts for nothing (EX_TEMPFAIL)
  other codes  it fails, and is tried again while tries are left; so it does if a signal kills
               the program

  When the task is cancelled, evicted or out of time, or its lease is lost, the program gets
  SIGTERM, and SIGKILL after --kill-after. That goes to its whole process group, as does a
  SIGKILL to what it leaves behind when it ends. A process that has left the group, as by setsid,
  is out of reach: nobody waits for it, and what it writes with the task's token is refused.

  SIGTERM and SIGINT end work: nothing more is claimed, and programs may go on for --grace. A
  second one ends it at once.

Examples:
  statehold work --queue mail -- ./send-mail
  statehold work --queue video --concurrency 4 --lease 1m -- sh -c 'jq -r .url | xargs curl -fsS'
  statehold work --until-empty -- python3 answer.py";

/// The arguments of `statehold work`.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub(crate) struct Work {
    /// Take tasks of this queue; can be said several times
    #[arg(long, value_name = "QUEUE", default_value = "default")]
    queue: Vec<String>,
    /// Take only tasks of this kind, and leave others to other workers; can be said several times
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// How many programs run at once
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    concurrency: u32,
    /// How long it takes until another takes over when this worker dies
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = args::seconds)]
    lease: Seconds,
    /// How long programs may go on when the worker is told to end
    #[arg(long, value_name = "TIME", default_value = "45s", value_parser = args::seconds)]
    grace: Seconds,
    /// How long after SIGTERM a program is killed
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = args::seconds)]
    kill_after: Seconds,
    /// How long a task goes back for when the program exits with 75
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = args::seconds)]
    delay: Seconds,
    /// An exit code after which another try makes no sense, as 65 does; can be said several times
    #[arg(long, value_name = "CODE", value_parser = clap::value_parser!(i32).range(1..=255))]
    permanent: Vec<i32>,
    /// The name that tasks see as their owner [default: machine, process and a random part]
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// End when there is nothing to take
    #[arg(long)]
    until_empty: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

/// How tasks are worked on.
struct Recipe {
    program: PathBuf,
    arguments: Vec<String>,
    store: String,
    kill_after: Duration,
    delay: Duration,
    permanent: Vec<i32>,
}

/// Works until it is told to stop, or until nothing is left to do.
pub(crate) async fn run(hold: &Statehold, work: &Work, store: &str, json: bool) -> Result<Exit> {
    let handler = Handler {
        recipe: recipe(work, store)?,
        tell: Tell::new(json),
        stopping: Stopping::new(),
        trouble: Mutex::default(),
    };
    let handler = Arc::new(handler);
    let mut signals = Signals::listen()?;
    let working = worker(hold, work, &handler).run(handler.stopping.clone());
    tokio::pin!(working);
    let mut told = 0;
    loop {
        tokio::select! {
            done = &mut working => {
                done?;
                let trouble = handler.trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
                return trouble.map_or(Ok(Exit::Success), Err);
            }
            _ = signals.next() => {
                told += 1;
                if told > 1 {
                    // Programs that still run are killed as their futures are dropped.
                    handler.tell.note("ended at once; the tasks of programs that ran go to others when their leases end");
                    return Ok(Exit::Failure);
                }
                handler.stopping.cancel();
                handler.tell.note(&format!("ending: programs may go on for {} s; once more ends at once", work.grace));
            }
        }
    }
}

/// Everything about the program that can be known before anything is claimed.
fn recipe(work: &Work, store: &str) -> Result<Recipe> {
    let (program, arguments) = work.command.split_first().ok_or_else(|| Error::invalid("", "no program"))?;
    let program = process::find(program)?;
    Ok(Recipe {
        program,
        arguments: arguments.to_vec(),
        store: store_url(store)?,
        kill_after: work.kill_after.into(),
        delay: work.delay.into(),
        permanent: work.permanent.clone(),
    })
}

/// The store as a program finds it, wherever that goes. It may have a secret in it.
fn store_url(url: &str) -> Result<String> {
    match Store::parse(url)? {
        Store::Memory => {
            let message = "nobody else can put tasks into `memory:`, so there is nothing to work on";
            Err(Error::invalid("store", message)
                .hint("give a store that is shared, as in --store sqlite:state.db"))
        }
        Store::Sqlite(config) => {
            let path = std::path::absolute(&config.path)
                .map_err(|e| Error::unavailable("the current folder is gone").caused_by(e))?;
            Ok(format!("sqlite:{}", path.display()))
        }
        Store::Postgres(_) | Store::Redis(_) | Store::Http { .. } => Ok(url.to_owned()),
        Store::Split { .. } => {
            let both = url.strip_prefix("split:").and_then(|both| both.rsplit_once('|'));
            let (durable, ephemeral) = both.unwrap_or_default();
            Ok(format!("split:{}|{ephemeral}", store_url(durable)?))
        }
    }
}

fn worker(hold: &Statehold, work: &Work, handler: &Arc<Handler>) -> Worker {
    let mut worker = Worker::new(hold)
        .concurrency(work.concurrency)
        .lease(work.lease.into())
        .grace(work.grace.into())
        .last_words(Duration::from(work.kill_after) + attempt::TO_THE_END);
    for queue in &work.queue {
        worker = worker.queue(queue);
    }
    if let Some(owner) = &work.owner {
        worker = worker.owner(owner);
    }
    if work.until_empty {
        worker = worker.until_empty();
    }
    let handle = |handler: &Arc<Handler>| {
        let handler = Arc::clone(handler);
        move |job| Arc::clone(&handler).handle(job)
    };
    if work.kind.is_empty() {
        return worker.handle_any(handle(handler));
    }
    work.kind.iter().fold(worker, |worker, kind| worker.handle(kind, handle(handler)))
}

/// What all attempts share.
struct Handler {
    recipe: Recipe,
    tell: Tell,
    stopping: Stopping,
    /// Why the worker ends, if not because it was told to.
    trouble: Mutex<Option<Error>>,
}

impl Handler {
    /// One task, from the start of its program to what that means.
    async fn handle(self: Arc<Self>, job: Job) -> Result<Outcome, Failure> {
        self.tell.news(job.task(), &News::Started);
        match attempt::run(&self.recipe, &job).await {
            Ok(ended) => Ok(Verdict::of(ended, &self.recipe).settle(&job, &self.tell).await),
            Err(e) => {
                // That is nothing the task can do for, and the next one would fare no better.
                let message = format!("`{}` cannot be started: {e}", self.recipe.program.display());
                let trouble =
                    Error::unavailable(message).hint("a script needs a first line such as #!/bin/sh");
                self.trouble.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(trouble);
                self.stopping.cancel();
                self.tell.news(job.task(), &News::Released(CANNOT_START));
                Ok(Outcome::Release(CANNOT_START))
            }
        }
    }
}
