//! Why a task is not moving.

use super::lookup::Polled;
use super::tx::{Planned, Tx};
use super::{lifecycle, queues, tasks};
use crate::model::{Task, TaskId, WaitFor};
use crate::query::{POLLER_MEMORY, Reason, ReasonCode, Why};
use crate::row::{ExclusiveRow, QueueRow, TaskRow, Turn};
use crate::status::Status;

fn reason(code: ReasonCode, message: impl Into<String>) -> Reason {
    Reason { code, message: message.into(), tasks: Vec::new(), at: None }
}

pub(super) fn why(tx: &mut Tx<'_>, id: TaskId) -> Planned<Why> {
    let row = lifecycle::load(tx, id)?;
    let task = &row.task;
    let reasons = match task.status {
        Status::Completed | Status::Failed | Status::Cancelled => {
            vec![reason(
                ReasonCode::Terminal,
                format!("it is {} and will not move again by itself", task.status),
            )]
        }
        Status::Backlog => {
            vec![reason(ReasonCode::Parked, "it is parked in the backlog until someone promotes it")]
        }
        Status::Blocked => vec![blocked(tx, &row)?],
        Status::Waiting => vec![waiting(&row)],
        Status::Running => vec![running(tx, &row)],
        Status::Pending => pending(tx, &row)?,
    };
    Ok(Why { status: task.status, reasons })
}

fn blocked(tx: &mut Tx<'_>, row: &TaskRow) -> Planned<Reason> {
    let tasks::Dependencies { open, failed } = tasks::dependencies(tx, &row.task.depends_on)?;
    let names: Vec<_> = open.iter().map(ToString::to_string).collect();
    let retry =
        failed.map(|(id, status)| format!("; `{id}` is {status} and must be retried")).unwrap_or_default();
    let message = format!("it depends on tasks that are not completed: {}{retry}", names.join(", "));
    Ok(Reason { tasks: open, ..reason(ReasonCode::Blocked, message) })
}

fn waiting(row: &TaskRow) -> Reason {
    let Some(waiting) = &row.task.waiting_for else { return reason(ReasonCode::Waiting, "it waits") };
    let (what, at) = match &waiting.on {
        WaitFor::Signal(name) => (format!("a signal `{name}`"), waiting.deadline),
        WaitFor::Children(_) => {
            (format!("its children, {} of them open", row.open_children), waiting.deadline)
        }
        WaitFor::Until(until) => (until.to_string(), Some(*until)),
    };
    let deadline = waiting.deadline.map(|deadline| format!(", until {deadline} at most")).unwrap_or_default();
    Reason { at, ..reason(ReasonCode::Waiting, format!("it waits for {what}{deadline}")) }
}

fn running(tx: &Tx<'_>, row: &TaskRow) -> Reason {
    let Some(lease) = &row.task.lease else { return reason(ReasonCode::NoProgress, "it is running") };
    match row.lease_end() {
        Some(end) if end <= tx.now => {
            let message = format!(
                "the lease of `{}` was over at {end}; the next claim or sweep takes it back",
                lease.owner
            );
            Reason { at: Some(end), ..reason(ReasonCode::LeaseOver, message) }
        }
        _ => {
            let stop = if row.task.cancel_requested { "; it was asked to stop" } else { "" };
            let message = format!(
                "`{}` has had it since {} and was last heard of at {}{stop}",
                lease.owner, lease.started_at, lease.heartbeat_at
            );
            Reason { at: Some(lease.heartbeat_at), ..reason(ReasonCode::NoProgress, message) }
        }
    }
}

fn pending(tx: &mut Tx<'_>, row: &TaskRow) -> Planned<Vec<Reason>> {
    let task = &row.task;
    tx.want::<QueueRow>(&task.queue);
    tx.want_look(Polled(task.queue.clone()));
    let mut reasons = Vec::new();
    reasons.extend(not_due(tx, task));
    reasons.extend(key_held(tx, row)?);
    if queues::is_paused(tx, &task.queue)? {
        reasons.push(reason(ReasonCode::QueuePaused, format!("queue `{}` is paused", task.queue)));
    }
    let polled = tx.look(&Polled(task.queue.clone()))?;
    if polled.is_none_or(|at| at + POLLER_MEMORY <= tx.now) {
        let message = format!("nobody asked queue `{}` for work in the last five minutes", task.queue);
        reasons.push(reason(ReasonCode::NobodyPolls, message));
    }
    if reasons.is_empty() {
        reasons.push(reason(ReasonCode::Ready, "nothing holds it; a claim takes it in its turn"));
    }
    Ok(reasons)
}

fn not_due(tx: &Tx<'_>, task: &Task) -> Option<Reason> {
    if task.run_at <= tx.now {
        return None;
    }
    let tried = task.failures > 0 || task.lease_losses > 0;
    let (code, why) = if tried {
        (
            ReasonCode::BackingOff,
            format!("it waits after {} failures and {} lost leases", task.failures, task.lease_losses),
        )
    } else {
        (ReasonCode::Future, "it is not due".to_owned())
    };
    Some(Reason { at: Some(task.run_at), ..reason(code, format!("{why} until {}", task.run_at)) })
}

fn key_held(tx: &mut Tx<'_>, row: &TaskRow) -> Planned<Option<Reason>> {
    let Some(key) = row.task.exclusive_key.as_ref().filter(|_| row.turn != Turn::Ready) else {
        return Ok(None);
    };
    let Some(exclusive) = tx.get::<ExclusiveRow>(key)? else { return Ok(None) };
    Ok(match (exclusive.holder, exclusive.nominee) {
        (Some(holder), _) => {
            let message = format!("task `{holder}` is running with exclusive key `{key}`");
            Some(Reason { tasks: vec![holder], ..reason(ReasonCode::KeyHeld, message) })
        }
        (None, Some(first)) if first != row.task.id => {
            let message = format!("task `{first}` is before it in line for exclusive key `{key}`");
            Some(Reason { tasks: vec![first], ..reason(ReasonCode::KeyHeld, message) })
        }
        _ => None,
    })
}
