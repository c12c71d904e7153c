//! What the end of an attempt means for its task, and how it is written and told.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use statehold::worker::{Job, Outcome, Stop};
use statehold::{Error, Json, Result, Task, TaskError};
use statehold_core::limits;

use super::Recipe;
use super::attempt::{Cut, Ended};
use super::tell::{News, Tell};
use crate::process::signal_name;

/// The exit code of a program that says that its input is no good, whoever tries: `EX_DATAERR`.
const BAD_DATA: i32 = 65;
/// The exit code of a program that asks to be tried later: `EX_TEMPFAIL`.
const TRY_LATER: i32 = 75;

/// What is said of a program that has ended but whose pipes still flow.
const UNREAD: &str = "the program ended, but what it wrote could not be read to its end: a process that it left behind \
    still writes, or the store is too slow";

/// What an attempt means for its task.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It is done.
    Complete(Option<Json>),
    /// It failed; with true, another try may fare better.
    Fail(TaskError, bool),
    /// It goes back, for a while.
    Release(Duration),
    /// Nothing can be written any more, or nothing needs to be.
    Lost(String),
}

impl Verdict {
    /// Judges how a program ended.
    pub(super) fn of(ended: Ended, recipe: &Recipe) -> Self {
        let Ended { status, cut, output, stderr } = ended;
        let failed = |code: &str, message: String| TaskError {
            details: details(status, &stderr),
            ..TaskError::new(code, message)
        };
        match cut {
            // A program that was told to stop may say that all is well when it is not, so its code does not count.
            Some(Cut::Told(Stop::CancelRequested)) => Self::Fail(
                failed("cancelled", "the program was stopped: it shall be cancelled".into()),
                false,
            ),
            Some(Cut::Told(Stop::ShuttingDown)) => Self::Release(Duration::ZERO),
            Some(Cut::Told(stop)) => Self::Lost(stop.to_string()),
            Some(Cut::Events(error)) if error.is_fenced() => Self::Lost(Stop::Fenced.to_string()),
            Some(Cut::Events(error)) => Self::Fail(
                failed(error.code(), format!("an event could not be written: {}", error.message())),
                true,
            ),
            Some(Cut::OutputTooLarge) => Self::Fail(failed("output_too_large", too_large()), false),
            Some(Cut::Unread) => Self::Fail(failed("unread", UNREAD.into()), true),
            None => match (status.code(), output) {
                (Some(0), Ok(output)) => Self::Complete(output),
                (Some(0), Err(_)) => Self::Fail(failed("output_too_large", too_large()), false),
                (Some(TRY_LATER), _) => Self::Release(recipe.delay),
                (Some(code), _) => {
                    let retry = code != BAD_DATA && !recipe.permanent.contains(&code);
                    Self::Fail(
                        failed("exit", said(&format!("the program exited with code {code}"), &stderr)),
                        retry,
                    )
                }
                (None, _) => {
                    let signal = signal_name(status.signal().unwrap_or_default());
                    Self::Fail(
                        failed("signal", said(&format!("the program was killed by {signal}"), &stderr)),
                        true,
                    )
                }
            },
        }
    }

    /// Writes it, tells how that went, and answers what is left for the worker to do.
    pub(super) async fn settle(self, job: &Job, tell: &Tell) -> Outcome {
        let (written, news): (Result<Task>, _) = match self {
            Self::Complete(output) => (job.lease().complete(output).await, News::Completed),
            Self::Fail(error, retry) => (job.lease().fail(error.clone(), retry).await, News::Failed(error)),
            Self::Release(after) => {
                tell.news(job.task(), &News::Released(after));
                return Outcome::Release(after);
            }
            Self::Lost(why) => {
                tell.news(job.task(), &News::Lost(why, status_now(job).await));
                return Outcome::Settled;
            }
        };
        match written {
            Ok(task) => tell.news(&task, &news),
            Err(error) => {
                let why = if error.is_fenced() { Stop::Fenced.to_string() } else { trouble(&error) };
                tell.news(job.task(), &News::Lost(why, status_now(job).await));
            }
        }
        Outcome::Settled
    }
}

fn too_large() -> String {
    format!("the program printed more than {} bytes, the most that an output can have", limits::BODY)
}

fn trouble(error: &Error) -> String {
    format!("its end could not be written: {}", error.message())
}

/// Where the task stands, as far as the store can tell.
async fn status_now(job: &Job) -> Option<String> {
    let task = job.lease().hold().tasks().get(job.task().id).await.ok()??;
    Some(task.status.to_string())
}

/// A message with the last line that the program said about it.
fn said(what: &str, stderr: &str) -> String {
    match stderr.lines().map(str::trim).rfind(|line| !line.is_empty()) {
        Some(line) => format!("{what}: {line}"),
        None => what.to_owned(),
    }
}

fn details(status: ExitStatus, stderr: &str) -> Option<Json> {
    let signal = status.signal().map(signal_name);
    Json::of(&serde_json::json!({ "exit_code": status.code(), "signal": signal, "stderr": stderr })).ok()
}
