//! What `work` says while it works: a line for each beginning and end, for people on stderr, for programs on stdout.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use statehold::{Status, Task, TaskError, TaskId};

use crate::show::plain;

/// What happened to a task.
#[derive(Debug)]
pub(super) enum News {
    /// The program was started.
    Started,
    /// The task is completed.
    Completed,
    /// The program failed.
    Failed(TaskError),
    /// The task went back for a while.
    Released(Duration),
    /// The task is no longer this worker's: why, and where it stands.
    Lost(String, Option<String>),
}

/// Who says it.
#[derive(Debug)]
pub(super) struct Tell {
    json: bool,
    since: Mutex<HashMap<TaskId, Instant>>,
}

impl Tell {
    pub(super) fn new(json: bool) -> Self {
        Self { json, since: Mutex::default() }
    }

    /// Tells what happened to a task; after that it is as the store has it.
    pub(super) fn news(&self, task: &Task, news: &News) {
        let took = self.took(task.id, news);
        if self.json {
            let mut line = json!({ "task": task.id, "kind": task.kind, "attempt": task.attempt });
            if let (Value::Object(line), Value::Object(more)) = (&mut line, fields(task, news)) {
                line.extend(more);
                line.extend(took.map(|took| ("seconds".to_owned(), json!(took.as_secs_f64()))));
            }
            let _ = writeln!(std::io::stdout(), "{line}");
        } else {
            let took = took.map(|took| format!(" in {:.1} s", took.as_secs_f64())).unwrap_or_default();
            self.note(&format!("{} {}", task.id, words(task, news, &took)));
        }
    }

    /// Tells something that is about no task.
    pub(super) fn note(&self, text: &str) {
        if !self.json {
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }

    /// How long the attempt took, once it has ended.
    fn took(&self, task: TaskId, news: &News) -> Option<Duration> {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(news, News::Started) {
            since.insert(task, Instant::now());
            return None;
        }
        since.remove(&task).map(|since| since.elapsed())
    }
}

fn words(task: &Task, news: &News, took: &str) -> String {
    match news {
        News::Started => format!("started: {}, attempt {}", plain(&task.kind), task.attempt),
        News::Completed => format!("completed{took}"),
        News::Failed(error) => {
            let next = match task.status {
                Status::Pending => " (it will be tried again)",
                Status::Cancelled => " (it is cancelled)",
                _ => "",
            };
            format!("failed{took}: {}{next}", plain(&error.message))
        }
        News::Released(after) if after.is_zero() => format!("given back{took}"),
        News::Released(after) => format!("given back{took}, for {:.1} s", after.as_secs_f64()),
        News::Lost(why, status) => {
            let status = status.as_ref().map(|status| format!(" (it is {status} now)")).unwrap_or_default();
            format!("let go{took}: {}{status}", plain(why))
        }
    }
}

fn fields(task: &Task, news: &News) -> Value {
    match news {
        News::Started => json!({ "event": "started" }),
        News::Completed => json!({ "event": "completed" }),
        News::Failed(error) => json!({ "event": "failed", "error": error, "status": task.status }),
        News::Released(after) => json!({ "event": "released", "delay_seconds": after.as_secs_f64() }),
        News::Lost(why, status) => json!({ "event": "lost", "why": why, "status": status }),
    }
}
