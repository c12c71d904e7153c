//! One attempt: the program runs, is watched and, if need be, stopped.

use std::convert::Infallible;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use command_fds::{CommandFdExt as _, FdMapping};
use rustix::process::Signal;
use statehold::worker::{Job, Stop, Stopping};
use statehold::{Error, Json};
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::time::timeout;

use super::pipes::{self, Output, Tail, TooLarge};
use super::{Recipe, env};
use crate::process::Program;

/// The pipe of events, as the program sees it.
const EVENTS: i32 = 3;

/// How long what a program has left behind may hold its pipes open before it is killed.
const LINGER: Duration = Duration::from_secs(1);

/// How long a killed process takes to be gone, and its last words to be seen.
const SETTLING: Duration = Duration::from_millis(100);

/// How long it then takes at most until what is in the pipes is read and written. Only a process that has left the group
/// can still fill them.
const LAST_READS: Duration = Duration::from_secs(10);

/// How much longer than `kill_after` an attempt can take to end once it was told to.
pub(super) const TO_THE_END: Duration =
    LINGER.saturating_add(LAST_READS).saturating_add(Duration::from_secs(1));

/// How an attempt ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    /// Why it was stopped, if it did not end by itself.
    pub(super) cut: Option<Cut>,
    /// What it printed.
    pub(super) output: Result<Option<Json>, TooLarge>,
    /// The last of what it said on stderr.
    pub(super) stderr: String,
}

/// Why a program was stopped.
#[derive(Clone, Debug)]
pub(super) enum Cut {
    /// The worker told it to.
    Told(Stop),
    /// It prints more than an output can hold.
    OutputTooLarge,
    /// Its events cannot be written.
    Events(Error),
    /// What it wrote could not be read to its end.
    Unread,
}

/// The first reason to stop a program.
#[derive(Debug, Default)]
struct Cutter {
    word: Stopping,
    why: Mutex<Option<Cut>>,
}

impl Cutter {
    fn say(&self, why: Cut) {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.word.cancel();
    }

    fn why(&self) -> Option<Cut> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How the pipes of a program come to their end.
#[derive(Debug, Default)]
struct Ends {
    /// They have: all of it was read and written.
    closed: Stopping,
    /// They shall: what is there is read, and nothing more is waited for.
    over: Stopping,
}

/// Runs the program for a task, to its end. An error means that it could not be started.
pub(super) async fn run(recipe: &Recipe, job: &Job) -> io::Result<Ended> {
    let (mut program, events) = start(recipe, job)?;
    let (output, tail, cutter) = (Output::default(), Tail::default(), Cutter::default());
    let pipe_ends = Ends::default();
    let child = program.child();
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
        return Err(io::Error::other("its pipes are missing"));
    };
    // The pipes are served beside the program, for as long as it is watched and no longer.
    let pipes = async {
        let feed = pipes::feed(stdin, job.task().input.as_ref());
        let over = &pipe_ends.over;
        let output = output.read(stdout, over, || cutter.say(Cut::OutputTooLarge));
        let errors = tail.read(stderr, over, job.task().id);
        let events = async {
            if let Err(error) = pipes::events(events, over, job.lease()).await {
                cutter.say(Cut::Events(error));
            }
        };
        // Nobody waits for input that was not read.
        tokio::select! {
            _ = async { tokio::join!(output, errors, events) } => {}
            never = async { feed.await; std::future::pending::<Infallible>().await } => match never {},
        }
        pipe_ends.closed.cancel();
        std::future::pending::<Infallible>().await
    };
    let status = tokio::select! {
        status = watch(&mut program, job, &cutter, &pipe_ends, recipe.kill_after) => status?,
        never = pipes => match never {},
    };
    Ok(Ended { status, cut: cutter.why(), output: output.take(), stderr: tail.text() })
}

/// Waits for the end of a program, or brings it about.
async fn watch(
    program: &mut Program,
    job: &Job,
    cutter: &Cutter,
    pipe_ends: &Ends,
    kill_after: Duration,
) -> io::Result<ExitStatus> {
    tokio::select! {
        biased;
        () = program.ended() => {}
        stop = job.stopped() => {
            cutter.say(Cut::Told(stop));
            program.stop(kill_after).await;
        }
        () = cutter.word.cancelled() => program.stop(kill_after).await,
    }
    if timeout(LINGER, pipe_ends.closed.cancelled()).await.is_err() {
        program.signal(Signal::KILL);
        tokio::time::sleep(SETTLING).await;
        pipe_ends.over.cancel();
        if timeout(LAST_READS, pipe_ends.closed.cancelled()).await.is_err() {
            cutter.say(Cut::Unread);
        }
    }
    program.finish().await
}

/// Starts the program, and answers where its events come from.
fn start(recipe: &Recipe, job: &Job) -> io::Result<(Program, pipe::Receiver)> {
    let (events, for_program) = io::pipe()?;
    let task = job.task();
    let mut command = Command::new(&recipe.program);
    command
        .args(&recipe.arguments)
        .env(env::STORE, &recipe.store)
        .env(env::NAMESPACE, job.lease().hold().namespace())
        .env(env::TASK_ID, task.id.to_string())
        .env(env::TASK_TOKEN, job.lease().token().0.to_string())
        .env(env::TASK_KIND, &task.kind)
        .env(env::TASK_QUEUE, &task.queue)
        .env(env::TASK_ATTEMPT, task.attempt.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // The trace is the task's, and not that of whoever started this process.
    match &task.traceparent {
        Some(trace) => command.env(env::TRACE, trace),
        None => command.env_remove(env::TRACE),
    };
    let mapping = FdMapping { parent_fd: for_program.into(), child_fd: EVENTS };
    command.fd_mappings(vec![mapping]).map_err(io::Error::other)?;
    let events = pipe::Receiver::from_owned_fd(events.into())?;
    Ok((Program::start_group(command)?, events))
}
