//! What the transitions of a task have in common: every change of a status goes through here, with its
//! event, its counters, and what it puts on the agenda for others.

use std::sync::Arc;

use serde::Serialize;
use serde_json::json;

use super::derived;
use super::exclusive;
use super::lookup::waits_for_children;
use super::tx::{Planned, Tx, data};
use crate::clock::{Seconds, Timestamp};
use crate::error::{Error, ErrorKind};
use crate::json::Json;
use crate::model::{Lease, OnTimeout, ResumedBy, StreamName, TaskError, TaskId, Token, WaitFor};
use crate::row::{Chore, TaskRow, Turn};
use crate::status::Status;

/// The data of `task.created`. What most tasks go through is written without a detour by `json!`.
#[derive(Serialize)]
pub(super) struct New<'a> {
    pub(super) kind: &'a str,
    pub(super) queue: &'a str,
    pub(super) status: Status,
}

/// The data of `task.started` and `task.completed`.
#[derive(Serialize)]
struct Attempt<'a> {
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
}

/// The data of `task.failed`. Not by `json!`, which would turn the user's numbers into floating ones.
#[derive(Serialize)]
pub(super) struct Failed<'a> {
    pub(super) error: Option<&'a TaskError>,
}

/// The data of `task.retrying`.
#[derive(Serialize)]
pub(super) struct Retrying<'a> {
    pub(super) error: Option<&'a TaskError>,
    pub(super) run_at: Option<Timestamp>,
}

/// A task that must exist, to be changed and put back.
pub(super) fn load(tx: &mut Tx<'_>, id: TaskId) -> Planned<TaskRow> {
    match tx.get::<TaskRow>(&id)? {
        Some(row) => Ok(Arc::unwrap_or_clone(row)),
        None => Err(Error::not_found("task", id).into()),
    }
}

/// The error of a step that the status table does not have.
pub(super) fn not_allowed(row: &TaskRow, to: Status, why: &str) -> Error {
    let from = row.task.status;
    let allowed = from.next().to_vec();
    let message = format!("task `{}` is {from}{why}", row.task.id);
    Error::new(ErrorKind::InvalidTransition { from, to, allowed }, message).about(row.task.id)
}

/// Writes a lifecycle event and counts the revision.
pub(super) fn note(tx: &mut Tx<'_>, row: &mut TaskRow, kind: &str, data: Option<Json>) {
    let seq = row.next_event(tx.now);
    tx.append(StreamName::of_task(row.task.id), seq, kind, data);
}

/// Undoes what the current status keeps, before another one.
fn leave(tx: &mut Tx<'_>, row: &mut TaskRow) -> Planned<()> {
    match row.task.status {
        Status::Running => {
            row.task.lease = None;
            row.lease_seconds = None;
            row.claim_key = None;
            exclusive::free(tx, row)?;
        }
        Status::Pending => {
            exclusive::step_back(tx, row)?;
            row.turn = Turn::Off;
        }
        Status::Waiting => row.task.waiting_for = None,
        Status::Blocked => row.open_dependencies.clear(),
        Status::Backlog | Status::Completed | Status::Failed | Status::Cancelled => {}
    }
    Ok(())
}

/// Moves a task to a status that the table allows.
fn enter(tx: &mut Tx<'_>, row: &mut TaskRow, status: Status) -> Planned<()> {
    debug_assert!(row.task.status.allows(status), "{} to {status}", row.task.status);
    leave(tx, row)?;
    row.task.status = status;
    Ok(())
}

/// Gives a pending task its turn: later, in line for its key, or ready.
pub(super) fn set_turn(tx: &mut Tx<'_>, row: &mut TaskRow) -> Planned<()> {
    if row.task.run_at > tx.now {
        exclusive::step_back(tx, row)?;
        row.turn = Turn::Later;
    } else if row.task.exclusive_key.is_none() {
        row.turn = Turn::Ready;
    } else if row.turn != Turn::Ready {
        row.turn = Turn::InLine;
        tx.agenda.keys.extend(row.task.exclusive_key.clone());
    }
    Ok(())
}

/// Makes a task pending from `run_at` on.
pub(super) fn make_pending(tx: &mut Tx<'_>, row: &mut TaskRow, run_at: Timestamp) -> Planned<()> {
    enter(tx, row, Status::Pending)?;
    row.task.run_at = run_at;
    set_turn(tx, row)
}

/// Makes a task wait for dependencies.
pub(super) fn block(tx: &mut Tx<'_>, row: &mut TaskRow, on: Vec<TaskId>) -> Planned<()> {
    enter(tx, row, Status::Blocked)?;
    row.open_dependencies = on;
    Ok(())
}

/// Parks a task.
pub(super) fn park(tx: &mut Tx<'_>, row: &mut TaskRow) -> Planned<()> {
    enter(tx, row, Status::Backlog)
}

/// Who starts a task, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Starter<'a> {
    /// Who.
    pub owner: &'a str,
    /// How long the lease is; without end if none.
    pub lease_seconds: Option<Seconds>,
    /// The key of the claim that starts it.
    pub claim_key: Option<&'a str>,
}

/// Leases a pending task.
pub(super) fn start(tx: &mut Tx<'_>, row: &mut TaskRow, starter: &Starter<'_>) -> Planned<()> {
    exclusive::hold(tx, row)?;
    let seq = row.start(starter, tx.now);
    let about = Attempt { attempt: row.task.attempt, owner: Some(starter.owner) };
    tx.append(StreamName::of_task(row.task.id), seq, "task.started", data(&about));
    Ok(())
}

impl TaskRow {
    /// What a start makes of a ready task that has no exclusive key; answers the number of its `task.started`. For stores
    /// that start tasks by themselves and note only who started them, and when.
    pub fn start(&mut self, starter: &Starter<'_>, now: Timestamp) -> u64 {
        self.turn = Turn::Off;
        self.task.status = Status::Running;
        self.task.attempt += 1;
        self.task.started_at = Some(now);
        self.task.progress = None;
        self.last_token = Token::next(self.last_token, now);
        self.lease_seconds = starter.lease_seconds;
        self.claim_key = starter.claim_key.map(str::to_owned);
        self.task.lease = Some(Lease {
            owner: starter.owner.to_owned(),
            token: self.last_token,
            started_at: now,
            expires_at: None,
            heartbeat_at: now,
        });
        self.extend_lease(starter.lease_seconds, now);
        self.next_event(now)
    }

    /// Lets a lease end `length` from now, but not after the attempt's timeout.
    pub(super) fn extend_lease(&mut self, length: Option<Seconds>, now: Timestamp) {
        let deadline = self.attempt_deadline().unwrap_or(Timestamp::MAX);
        if let Some(lease) = &mut self.task.lease {
            lease.expires_at = length.map(|length| (now + length).min(deadline));
            lease.heartbeat_at = now;
        }
    }

    /// Counts the revision, and answers the number of the event that tells of it.
    fn next_event(&mut self, now: Timestamp) -> u64 {
        self.task.revision += 1;
        self.task.updated_at = now;
        self.head.next(now)
    }
}

/// Ends a task and puts on the agenda whoever waits for that.
fn end(tx: &mut Tx<'_>, row: &mut TaskRow, status: Status) -> Planned<()> {
    enter(tx, row, status)?;
    row.task.finished_at = Some(tx.now);
    row.task.resumed_by = None;
    exclusive::leave(tx, row)?;
    if let Some(parent) = row.task.parent {
        count_child(tx, parent, |open| open.saturating_sub(1))?;
    }
    tx.agenda.chores.insert(Chore::Dependents(row.task.id), None);
    Ok(())
}

/// Counts the open children of a task anew.
pub(super) fn count_child(tx: &mut Tx<'_>, parent: TaskId, count: impl FnOnce(u32) -> u32) -> Planned<()> {
    let Some(row) = tx.get::<TaskRow>(&parent)? else { return Ok(()) };
    let open_children = count(row.open_children);
    if waits_for_children(&row) {
        tx.agenda.parents.insert(parent);
    }
    tx.put(TaskRow { open_children, ..TaskRow::clone(&row) });
    Ok(())
}

/// Notes what the end of a task will need.
pub(super) fn want_end(tx: &mut Tx<'_>, row: &TaskRow) {
    exclusive::want_of(tx, row);
    if let Some(parent) = &row.task.parent {
        tx.want::<TaskRow>(parent);
    }
    derived::want_dependents(tx, row.task.id);
}

pub(super) fn complete(tx: &mut Tx<'_>, row: &mut TaskRow, output: Option<Json>) -> Planned<()> {
    end(tx, row, Status::Completed)?;
    row.task.output = output;
    row.task.error = None;
    let about = Attempt { attempt: row.task.attempt, owner: None };
    note(tx, row, "task.completed", data(&about));
    Ok(())
}

pub(super) fn fail(tx: &mut Tx<'_>, row: &mut TaskRow, error: TaskError) -> Planned<()> {
    end(tx, row, Status::Failed)?;
    note(tx, row, "task.failed", data(&Failed { error: Some(&error) }));
    row.task.error = Some(error);
    Ok(())
}

pub(super) fn cancel(tx: &mut Tx<'_>, row: &mut TaskRow) -> Planned<()> {
    end(tx, row, Status::Cancelled)?;
    note(tx, row, "task.cancelled", None);
    Ok(())
}

/// Ends an attempt without success: another try, or the end.
pub(super) fn fail_attempt(tx: &mut Tx<'_>, row: &mut TaskRow, error: TaskError, retry: bool) -> Planned<()> {
    row.task.failures += 1;
    if row.task.cancel_requested {
        row.task.error = Some(error);
        return cancel(tx, row);
    }
    if !retry || row.task.failures >= row.task.max_attempts {
        return fail(tx, row, error);
    }
    let delay = row.task.backoff.delay(row.task.failures, row.task.id, row.task.attempt);
    let run_at = tx.now + delay;
    make_pending(tx, row, run_at)?;
    note(tx, row, "task.retrying", data(&Retrying { error: Some(&error), run_at: Some(run_at) }));
    row.task.error = Some(error);
    Ok(())
}

/// The lease ended without a word.
fn lose_lease(tx: &mut Tx<'_>, row: &mut TaskRow) -> Planned<()> {
    row.task.lease_losses += 1;
    let lost = json!({ "owner": row.task.lease.as_ref().map(|lease| &lease.owner) });
    note(tx, row, "task.lease_lost", data(&lost));
    let losses = row.task.lease_losses;
    if row.task.cancel_requested {
        return cancel(tx, row);
    }
    if losses >= row.task.max_lease_losses {
        let error = TaskError::new("lease_lost", format!("its lease was lost {losses} times"));
        return fail(tx, row, error);
    }
    let delay = match losses {
        0 | 1 => Seconds::ZERO,
        _ => row.task.backoff.delay(losses - 1, row.task.id, row.task.attempt),
    };
    let run_at = tx.now + delay;
    make_pending(tx, row, run_at)
}

/// Ends a wait.
pub(super) fn resume(tx: &mut Tx<'_>, row: &mut TaskRow, by: ResumedBy) -> Planned<()> {
    let what = match by {
        ResumedBy::Signal { .. } => "signal",
        ResumedBy::Children(_) => "children",
        ResumedBy::Until(_) => "until",
        ResumedBy::Timeout => "timeout",
    };
    let now = tx.now;
    make_pending(tx, row, now)?;
    row.task.resumed_by = Some(by);
    note(tx, row, "task.resumed", data(&json!({ "by": what })));
    Ok(())
}

/// Gives up the worker. The caller looks whether the wait is over at once.
pub(super) fn wait(tx: &mut Tx<'_>, row: &mut TaskRow, waiting: crate::model::Waiting) -> Planned<()> {
    enter(tx, row, Status::Waiting)?;
    row.task.resumed_by = None;
    let suspended = json!({ "waiting_for": waiting });
    row.task.waiting_for = Some(waiting);
    note(tx, row, "task.suspended", data(&suspended));
    Ok(())
}

/// Does what time brings to a task; false if there is nothing to do.
pub(super) fn pass_time(tx: &mut Tx<'_>, row: &mut TaskRow) -> Planned<bool> {
    let now = tx.now;
    let past = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
    match row.task.status {
        Status::Running if past(row.attempt_deadline()) => {
            let error = TaskError::new("timeout", "the attempt took longer than its timeout");
            fail_attempt(tx, row, error, true)?;
        }
        Status::Running if past(row.lease_expiry()) => lose_lease(tx, row)?,
        Status::Blocked | Status::Pending | Status::Waiting if past(row.task.expires_at) => {
            let error = TaskError::new("expired", "it was not started before it expired");
            fail(tx, row, error)?;
        }
        Status::Waiting => return end_wait(tx, row),
        Status::Pending if row.turn == Turn::Later && row.task.run_at <= now => set_turn(tx, row)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn end_wait(tx: &mut Tx<'_>, row: &mut TaskRow) -> Planned<bool> {
    let Some(waiting) = row.task.waiting_for.clone() else { return Ok(false) };
    let late = waiting.deadline.is_some_and(|deadline| deadline <= tx.now);
    match (waiting.on, waiting.on_timeout) {
        (WaitFor::Until(until), _) if until <= tx.now => resume(tx, row, ResumedBy::Until(until))?,
        (_, OnTimeout::Resume) if late => resume(tx, row, ResumedBy::Timeout)?,
        (_, OnTimeout::Fail) if late => {
            fail(tx, row, TaskError::new("wait_timeout", "what it waited for did not come in time"))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}
