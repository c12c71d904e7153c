//! Looking at one task: `show`, `watch`, `wait`, `why`.

use std::iter;
use std::pin::pin;

use clap::Args;
use futures_util::StreamExt as _;
use statehold::{From, Result, Seconds, Statehold, Status, StreamName, Task, TaskId, WaitFor};
use statehold_core::query::{ReadFrom, Reason, ReasonCode};

use super::get;
use crate::args;
use crate::show::{self, BOLD, Card, FAINT, Show};
use crate::trouble::{Exit, too_late};

/// The arguments of `statehold task show`.
#[derive(Args, Debug)]
pub(crate) struct ShowTask {
    /// Which task
    #[arg(value_parser = args::task_id)]
    id: TaskId,
    /// Also shows the token of its lease, which lets anyone act as its owner (JSON says 0 otherwise)
    #[arg(long)]
    token: bool,
    /// How many of its last events to show
    #[arg(long, value_name = "COUNT", default_value = "10", value_parser = clap::value_parser!(u32).range(0..=1000))]
    events: u32,
}

impl ShowTask {
    pub(super) async fn run(&self, hold: &Statehold, show: &Show) -> Result<Exit> {
        let task = get(hold, self.id).await?;
        let token = task.lease.as_ref().filter(|_| self.token).map(|lease| lease.token);
        let task = if self.token { task } else { show::without_token(task) };
        if show.is_json() {
            show.json(&task)?;
            return Ok(Exit::Success);
        }
        let mut card = card(&task);
        card.maybe("token", token.map(|token| token.0));
        show.line(card)?;
        if self.events > 0 {
            let events = hold.streams().last(&StreamName::of_task(self.id), self.events).await?;
            show.line(format_args!("\n{FAINT}last events{FAINT:#}"))?;
            events.iter().try_for_each(|event| show.line(show::event(event, false)))?;
        }
        Ok(Exit::Success)
    }
}

/// Everything about a task that is worth a line.
fn card(task: &Task) -> Card {
    let mut card = Card::default();
    let style = show::status_style(task.status);
    let stop = if task.cancel_requested && !task.status.is_terminal() { ", asked to stop" } else { "" };
    card.add("task", task.id);
    card.add("status", format_args!("{style}{}{style:#}{stop}", task.status));
    card.add("kind", show::plain(&task.kind));
    card.add("queue", show::plain(&task.queue));
    card.add("tries", tries(task));
    if let Some(lease) = &task.lease {
        let ends = lease.expires_at.map_or("has no end".to_owned(), |at| format!("ends {}", show::time(at)));
        let heard = show::relative(lease.heartbeat_at);
        card.add("lease", format_args!("{}, {ends}, last heard of {heard}", show::plain(&lease.owner)));
    }
    card.maybe("waits for", task.waiting_for.as_ref().map(|waiting| waits_for(&waiting.on)));
    card.maybe("priority", Some(task.priority).filter(|priority| *priority != 0));
    card.maybe("rank", Some(task.rank).filter(|rank| *rank != 0));
    card.maybe("thread", task.thread.as_ref());
    card.maybe("labels", Some(show::labels(&task.labels)).filter(|labels| !labels.is_empty()));
    card.maybe("key", task.idempotency_key.as_ref());
    card.maybe("exclusive", task.exclusive_key.as_ref());
    card.maybe("parent", task.parent);
    card.maybe("child key", task.child_key.as_ref());
    for dependency in &task.depends_on {
        card.add("depends on", dependency);
    }
    card.add("created", show::time(task.created_at));
    if task.run_at > task.created_at && !task.status.is_terminal() {
        card.add("runs from", show::time(task.run_at));
    }
    card.maybe("expires", task.expires_at.filter(|_| !task.status.is_terminal()).map(show::time));
    card.maybe("timeout", task.timeout_seconds.map(|length| format!("{length}s an attempt")));
    card.maybe("started", task.started_at.map(show::time));
    card.maybe("finished", task.finished_at.map(show::time));
    card.maybe(
        "error",
        task.error.as_ref().map(|error| match &error.code {
            Some(code) => format!("{code}: {}", error.message),
            None => error.message.clone(),
        }),
    );
    card.json("details", task.error.as_ref().and_then(|error| error.details.as_ref()));
    card.json("metadata", task.metadata.as_ref());
    card.json("input", task.input.as_ref());
    card.json("progress", task.progress.as_ref());
    card.json("output", task.output.as_ref());
    card
}

fn tries(task: &Task) -> String {
    format!(
        "{} started, {} of {} failed, {} of {} lost",
        task.attempt, task.failures, task.max_attempts, task.lease_losses, task.max_lease_losses
    )
}

fn waits_for(what: &WaitFor) -> String {
    match what {
        WaitFor::Signal(name) => format!("a signal `{name}`"),
        WaitFor::Children(_) => "its children".to_owned(),
        WaitFor::Until(at) => show::time(*at),
    }
}

/// The arguments of `statehold task watch`.
#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// Which task
    #[arg(value_parser = args::task_id)]
    id: TaskId,
}

impl Watch {
    pub(super) async fn run(&self, hold: &Statehold, show: &Show) -> Result<Exit> {
        let stream = StreamName::of_task(self.id);
        let mut task = get(hold, self.id).await?;
        let page = hold.streams().read(&stream, ReadFrom::Last, 1).await?;
        let (mut seen, mut last) = (page.oldest, page.last_seq);
        let mut events = pin!(hold.streams().subscribe(&stream, From::Oldest));
        loop {
            if show.is_closed() || task.status.is_terminal() && seen >= last {
                break;
            }
            let Some(event) = events.next().await.transpose()? else { break };
            show.answer(&event, || show::event(&event, false))?;
            seen = event.seq;
            if matches!(event.kind.as_str(), "task.completed" | "task.failed" | "task.cancelled") {
                task = get(hold, self.id).await?;
                last = hold.streams().read(&stream, ReadFrom::Last, 1).await?.last_seq;
            }
        }
        Ok(how_it_ended(&task))
    }
}

fn how_it_ended(task: &Task) -> Exit {
    if matches!(task.status, Status::Failed | Status::Cancelled) { Exit::TaskFailed } else { Exit::Success }
}

/// The arguments of `statehold task wait`.
#[derive(Args, Debug)]
pub(crate) struct Wait {
    /// Which task
    #[arg(value_parser = args::task_id)]
    id: TaskId,
    /// How long at most, such as 90s or 5m; forever if left out
    #[arg(long, value_name = "LENGTH", value_parser = args::seconds)]
    timeout: Option<Seconds>,
}

impl Wait {
    pub(super) async fn run(&self, hold: &Statehold, show: &Show) -> Result<Exit> {
        get(hold, self.id).await?;
        let task = hold.tasks().wait(self.id, self.timeout.map(Into::into)).await?;
        if !task.status.is_terminal() {
            let message = format!("task `{}` has not ended: it is {}", task.id, task.status);
            return Err(too_late(message, format!("statehold task why {} tells what holds it", task.id)));
        }
        let task = show::without_token(task);
        show.answer(&task, || super::lease::moved(&task))?;
        Ok(how_it_ended(&task))
    }
}

/// The arguments of `statehold task why`.
#[derive(Args, Debug)]
pub(crate) struct Why {
    /// Which task
    #[arg(value_parser = args::task_id)]
    id: TaskId,
}

impl Why {
    pub(super) async fn run(&self, hold: &Statehold, show: &Show) -> Result<Exit> {
        let task = get(hold, self.id).await?;
        let why = hold.tasks().why(self.id).await?;
        show.answer(&why, || {
            let style = show::status_style(why.status);
            let status = format!("task {} is {style}{}{style:#}", self.id, why.status);
            let reasons = why.reasons.iter().map(|reason| in_words(&task, reason));
            iter::once(status).chain(reasons).collect::<Vec<_>>().join("\n\n")
        })?;
        Ok(Exit::Success)
    }
}

/// A reason with its code and what can be done about it.
fn in_words(task: &Task, reason: &Reason) -> String {
    let at = reason.at.map(|at| format!(" ({})", show::relative(at))).unwrap_or_default();
    let (code, message) = (code(reason.code), show::plain(&reason.message));
    let advice = advice(task, reason).into_iter().map(|advice| format!("\n  {FAINT}{advice}{FAINT:#}"));
    format!("{BOLD}{code}{BOLD:#}  {message}{at}{}", advice.collect::<String>())
}

/// The code as it is written in JSON.
fn code(code: ReasonCode) -> String {
    serde_json::to_string(&code).unwrap_or_default().trim_matches('"').to_owned()
}

/// What a person can do about a reason.
fn advice(task: &Task, reason: &Reason) -> Vec<String> {
    let (id, queue) = (task.id, show::quoted(&task.queue));
    let work = format!("statehold work --queue {queue} -- PROGRAM   works on it");
    let about =
        |verb: &str| reason.tasks.iter().map(|other| format!("statehold task {verb} {other}")).collect();
    match reason.code {
        ReasonCode::Ready | ReasonCode::NobodyPolls => vec![work],
        ReasonCode::Future | ReasonCode::BackingOff => {
            vec![format!("statehold task amend {id} --run-at +0s   makes it due now")]
        }
        ReasonCode::QueuePaused => vec![format!("statehold queue resume {queue}   lets it go on")],
        ReasonCode::KeyHeld => about("show"),
        ReasonCode::Blocked => about("why"),
        ReasonCode::Waiting => waiting_advice(task),
        ReasonCode::Parked => vec![format!("statehold task promote {id}   makes it claimable")],
        ReasonCode::LeaseOver => vec!["statehold sweep   takes it back".to_owned()],
        ReasonCode::NoProgress => vec![
            format!("statehold task watch {id}   shows what it does"),
            format!("statehold task evict {id}   hands it to another"),
        ],
        ReasonCode::Terminal if task.status == Status::Completed => Vec::new(),
        ReasonCode::Terminal => vec![format!("statehold task retry {id}   opens it again")],
    }
}

fn waiting_advice(task: &Task) -> Vec<String> {
    match task.waiting_for.as_ref().map(|waiting| &waiting.on) {
        Some(WaitFor::Signal(name)) => {
            vec![format!("statehold task signal {} {}   wakes it", task.id, show::quoted(name))]
        }
        Some(WaitFor::Children(_)) => {
            vec![format!("statehold task list --parent {}   shows its children", task.id)]
        }
        _ => Vec::new(),
    }
}
