//! Commands on tasks: their guards and what they do themselves.

use std::collections::BTreeMap;

use serde_json::json;
use serde_json::value::RawValue;

use super::create::Family;
use super::derived::{cancel_task, fail_dependent};
use super::fences::task_lease;
use super::lifecycle::{self, Retrying, Starter, load, not_allowed, note, want_end};
use super::lookup::TaskSet;
use super::tx::{Planned, Tx, data};
use super::{exclusive, streams};
use crate::command::{
    Done, Renewed, TaskAmend, TaskCancel, TaskComplete, TaskEvict, TaskFail, TaskPark, TaskPromote,
    TaskPurge, TaskRelease, TaskRenew, TaskRetry, TaskSignal, TaskStart, TaskSuspend,
};
use crate::error::{Error, ErrorKind};
use crate::json::Json;
use crate::limits;
use crate::model::{Children, ResumedBy, StreamName, Task, TaskId, Token, WaitFor, Waiting};
use crate::row::{Chore, Signal, SignalsRow, TaskRow, Turn};
use crate::status::Status;

/// Puts a changed task back and answers it.
fn answer(tx: &mut Tx<'_>, row: TaskRow) -> Task {
    let task = row.task.clone();
    tx.put(row);
    task
}

/// Refuses unless the task exists and `to` may follow its status.
fn allows(row: &TaskRow, to: Status) -> Result<(), Error> {
    if row.task.status.allows(to) { Ok(()) } else { Err(not_allowed(row, to, "")) }
}

fn not_terminal(row: &TaskRow, to: Status) -> Result<(), Error> {
    if row.task.status.is_terminal() { Err(not_allowed(row, to, "")) } else { Ok(()) }
}

pub(super) fn leased(tx: &mut Tx<'_>, id: TaskId, token: Token) -> Planned<()> {
    let row = load(tx, id)?;
    Ok(task_lease(&row, token, tx.now)?)
}

/// Judges a command of the lease's holder that may end the task.
pub(super) fn judge_settle(tx: &mut Tx<'_>, id: TaskId, token: Token) -> Planned<()> {
    super::derived::want_dependents(tx, id);
    let row = load(tx, id)?;
    want_end(tx, &row);
    Ok(task_lease(&row, token, tx.now)?)
}

pub(super) fn judge_start(tx: &mut Tx<'_>, start: &TaskStart, family: &mut Family) -> Planned<()> {
    let row = load(tx, start.id)?;
    allows(&row, Status::Running)?;
    if row.turn == Turn::Later && row.task.run_at > tx.now {
        let why = format!(" and not due before {}", row.task.run_at);
        return Err(not_allowed(&row, Status::Running, &why).into());
    }
    if row.task.expires_at.is_some_and(|at| at <= tx.now) {
        return Err(not_allowed(&row, Status::Running, " and has expired").into());
    }
    let Some(key) = &row.task.exclusive_key else { return Ok(()) };
    exclusive::judge_free(tx, key)?;
    if !family.started_keys.insert(key.clone()) {
        return Err(
            Error::invalid("id", format!("the batch starts two tasks with exclusive key `{key}`")).into()
        );
    }
    Ok(())
}

pub(super) fn start(tx: &mut Tx<'_>, start: &TaskStart) -> Planned<Task> {
    let mut row = load(tx, start.id)?;
    let starter = Starter { owner: &start.owner, lease_seconds: start.lease_seconds, claim_key: None };
    lifecycle::start(tx, &mut row, &starter)?;
    Ok(answer(tx, row))
}

pub(super) fn renew(tx: &mut Tx<'_>, renew: &TaskRenew) -> Planned<Renewed> {
    let mut row = load(tx, renew.id)?;
    let length = renew.lease_seconds.or(row.lease_seconds);
    row.extend_lease(length, tx.now);
    if renew.progress.is_some() {
        row.task.progress.clone_from(&renew.progress);
    }
    let renewed = Renewed { expires_at: row.lease_expiry(), cancel_requested: row.task.cancel_requested };
    tx.put(row);
    Ok(renewed)
}

/// Whether it was completed before by this holder.
fn completed_before(row: &TaskRow, token: Token) -> bool {
    row.task.status == Status::Completed && row.last_token == token
}

pub(super) fn judge_complete(tx: &mut Tx<'_>, complete: &TaskComplete) -> Planned<()> {
    super::derived::want_dependents(tx, complete.id);
    let row = load(tx, complete.id)?;
    if completed_before(&row, complete.token) {
        return Ok(());
    }
    want_end(tx, &row);
    Ok(task_lease(&row, complete.token, tx.now)?)
}

pub(super) fn complete(tx: &mut Tx<'_>, complete: &TaskComplete) -> Planned<Task> {
    let mut row = load(tx, complete.id)?;
    if completed_before(&row, complete.token) {
        return Ok(row.task);
    }
    lifecycle::complete(tx, &mut row, complete.output.clone())?;
    Ok(answer(tx, row))
}

pub(super) fn fail(tx: &mut Tx<'_>, fail: &TaskFail) -> Planned<Task> {
    let mut row = load(tx, fail.id)?;
    lifecycle::fail_attempt(tx, &mut row, fail.error.clone(), fail.retry)?;
    Ok(answer(tx, row))
}

pub(super) fn release(tx: &mut Tx<'_>, release: &TaskRelease) -> Planned<Task> {
    let mut row = load(tx, release.id)?;
    if row.task.cancel_requested {
        lifecycle::cancel(tx, &mut row)?;
    } else {
        let run_at = release.run_at.unwrap_or(tx.now);
        lifecycle::make_pending(tx, &mut row, run_at)?;
        note(tx, &mut row, "task.released", data(&json!({ "run_at": run_at })));
    }
    Ok(answer(tx, row))
}

pub(super) fn judge_suspend(tx: &mut Tx<'_>, suspend: &TaskSuspend) -> Planned<()> {
    if matches!(suspend.waiting_for, WaitFor::Signal(_)) {
        tx.want::<SignalsRow>(&suspend.id);
    }
    judge_settle(tx, suspend.id, suspend.token)
}

pub(super) fn suspend(tx: &mut Tx<'_>, suspend: &TaskSuspend) -> Planned<Task> {
    let mut row = load(tx, suspend.id)?;
    if row.task.cancel_requested {
        lifecycle::cancel(tx, &mut row)?;
        return Ok(answer(tx, row));
    }
    let waiting = Waiting {
        on: suspend.waiting_for.clone(),
        deadline: suspend.timeout_seconds.map(|timeout| tx.now + timeout),
        on_timeout: suspend.on_timeout,
    };
    lifecycle::wait(tx, &mut row, waiting)?;
    let over = match &suspend.waiting_for {
        WaitFor::Signal(name) => take_signal(tx, suspend.id, name)?,
        WaitFor::Children(_) => (row.open_children == 0).then_some(ResumedBy::Children(Children::All)),
        WaitFor::Until(until) => (*until <= tx.now).then_some(ResumedBy::Until(*until)),
    };
    if let Some(by) = over {
        lifecycle::resume(tx, &mut row, by)?;
    }
    Ok(answer(tx, row))
}

/// Consumes the oldest kept signal of a name.
fn take_signal(tx: &mut Tx<'_>, id: TaskId, name: &str) -> Planned<Option<ResumedBy>> {
    let Some(row) = tx.get::<SignalsRow>(&id)? else { return Ok(None) };
    let Some(index) = row.kept.iter().position(|signal| signal.name == name) else { return Ok(None) };
    let mut kept = row.kept.clone();
    let Signal { name, data } = kept.remove(index);
    put_signals(tx, SignalsRow { task: id, kept });
    Ok(Some(ResumedBy::Signal { name, data }))
}

fn put_signals(tx: &mut Tx<'_>, row: SignalsRow) {
    if row.kept.is_empty() { tx.delete::<SignalsRow>(&row.task) } else { tx.put(row) }
}

pub(super) fn judge_signal(tx: &mut Tx<'_>, signal: &TaskSignal) -> Planned<()> {
    tx.want::<SignalsRow>(&signal.id);
    let row = load(tx, signal.id)?;
    exclusive::want_of(tx, &row);
    not_terminal(&row, Status::Pending)?;
    let kept = tx.get::<SignalsRow>(&signal.id)?.map_or(0, |row| row.kept.len());
    if kept >= limits::SIGNALS {
        let message = format!("task `{}` keeps {kept} signals that nobody has consumed", signal.id);
        return Err(Error::too_large(signal.id, message)
            .hint("suspend the task on the signals it already has")
            .into());
    }
    Ok(())
}

pub(super) fn signal(tx: &mut Tx<'_>, signal: &TaskSignal) -> Planned<Task> {
    let mut row = load(tx, signal.id)?;
    let mut kept = tx.get::<SignalsRow>(&signal.id)?.map(|row| row.kept.clone()).unwrap_or_default();
    kept.push(Signal { name: signal.name.clone(), data: signal.data.clone() });
    put_signals(tx, SignalsRow { task: signal.id, kept });
    note(tx, &mut row, "task.signalled", data(&json!({ "name": signal.name })));
    let awaited = |waiting: &Waiting| waiting.on == WaitFor::Signal(signal.name.clone());
    if row.task.waiting_for.as_ref().is_some_and(awaited)
        && let Some(by) = take_signal(tx, signal.id, &signal.name)?
    {
        lifecycle::resume(tx, &mut row, by)?;
    }
    Ok(answer(tx, row))
}

pub(super) fn judge_cancel(tx: &mut Tx<'_>, cancel: &TaskCancel) -> Planned<()> {
    super::derived::want_dependents(tx, cancel.id);
    if cancel.children {
        let set = TaskSet::Children { of: cancel.id, after: None };
        tx.want_set(set, super::derived::BUDGET);
    }
    let row = load(tx, cancel.id)?;
    want_end(tx, &row);
    Ok(not_terminal(&row, Status::Cancelled)?)
}

pub(super) fn cancel(tx: &mut Tx<'_>, cancel: &TaskCancel) -> Planned<Task> {
    let row = load(tx, cancel.id)?;
    cancel_task(tx, row, cancel.force, cancel.children)?;
    Ok(load(tx, cancel.id)?.task)
}

pub(super) fn judge_evict(tx: &mut Tx<'_>, evict: &TaskEvict) -> Planned<()> {
    let row = load(tx, evict.id)?;
    want_end(tx, &row);
    if row.task.status == Status::Running {
        Ok(())
    } else {
        Err(not_allowed(&row, Status::Pending, "").into())
    }
}

pub(super) fn evict(tx: &mut Tx<'_>, evict: &TaskEvict) -> Planned<Task> {
    let mut row = load(tx, evict.id)?;
    let evicted = json!({ "owner": row.task.lease.as_ref().map(|lease| &lease.owner) });
    note(tx, &mut row, "task.evicted", data(&evicted));
    if row.task.cancel_requested {
        lifecycle::cancel(tx, &mut row)?;
    } else {
        let now = tx.now;
        lifecycle::make_pending(tx, &mut row, now)?;
    }
    Ok(answer(tx, row))
}

pub(super) fn judge_retry(tx: &mut Tx<'_>, retry: &TaskRetry) -> Planned<()> {
    if retry.with_dependents {
        let set = TaskSet::FailedBy { of: retry.id, after: None };
        tx.want_set(set, super::derived::BUDGET);
    }
    let row = load(tx, retry.id)?;
    want_reopen(tx, &row);
    if matches!(row.task.status, Status::Failed | Status::Cancelled) {
        Ok(())
    } else {
        Err(not_allowed(&row, Status::Pending, "").into())
    }
}

fn want_reopen(tx: &mut Tx<'_>, row: &TaskRow) {
    row.task.depends_on.iter().chain(&row.task.parent).for_each(|id| tx.want::<TaskRow>(id));
    exclusive::want_of(tx, row);
}

pub(super) fn retry(tx: &mut Tx<'_>, retry: &TaskRetry) -> Planned<Task> {
    let row = load(tx, retry.id)?;
    if retry.with_dependents {
        tx.agenda.chores.insert(Chore::Revive(retry.id), None);
    }
    reopen(tx, row)
}

/// Opens a failed or cancelled task again.
pub(super) fn reopen(tx: &mut Tx<'_>, mut row: TaskRow) -> Planned<Task> {
    want_reopen(tx, &row);
    let Dependencies { open, .. } = dependencies(tx, &row.task.depends_on)?;
    let now = tx.now;
    let error = row.task.error.take();
    row.failed_by = None;
    row.task.failures = 0;
    row.task.lease_losses = 0;
    row.task.output = None;
    row.task.progress = None;
    row.task.finished_at = None;
    row.task.cancel_requested = false;
    row.task.expires_at = row.task.expires_at.filter(|at| *at > now);
    exclusive::join(tx, &row)?;
    if let Some(parent) = row.task.parent {
        lifecycle::count_child(tx, parent, |open| open + 1)?;
    }
    let run_at = if open.is_empty() {
        lifecycle::make_pending(tx, &mut row, now)?;
        Some(now)
    } else {
        row.task.run_at = now;
        lifecycle::block(tx, &mut row, open)?;
        None
    };
    note(tx, &mut row, "task.retrying", data(&Retrying { error: error.as_ref(), run_at }));
    Ok(answer(tx, row))
}

/// How the dependencies of a task stand.
#[derive(Default)]
pub(super) struct Dependencies {
    /// Those that are not completed. One that was purged is not waited for.
    pub(super) open: Vec<TaskId>,
    /// The first of them that failed or was cancelled.
    pub(super) failed: Option<(TaskId, Status)>,
}

pub(super) fn dependencies(tx: &mut Tx<'_>, ids: &[TaskId]) -> Planned<Dependencies> {
    let mut found = Dependencies::default();
    for id in ids {
        let Some(row) = tx.get::<TaskRow>(id)? else { continue };
        let status = row.task.status;
        if status != Status::Completed {
            found.open.push(*id);
        }
        if matches!(status, Status::Failed | Status::Cancelled) && found.failed.is_none() {
            found.failed = Some((*id, status));
        }
    }
    Ok(found)
}

pub(super) fn judge_promote(tx: &mut Tx<'_>, promote: &TaskPromote) -> Planned<()> {
    let row = load(tx, promote.id)?;
    want_reopen(tx, &row);
    want_end(tx, &row);
    if row.task.status == Status::Backlog {
        Ok(())
    } else {
        Err(not_allowed(&row, Status::Pending, "").into())
    }
}

pub(super) fn promote(tx: &mut Tx<'_>, promote: &TaskPromote) -> Planned<Task> {
    let mut row = load(tx, promote.id)?;
    let Dependencies { open, failed } = dependencies(tx, &row.task.depends_on)?;
    if open.is_empty() {
        let run_at = row.task.run_at;
        lifecycle::make_pending(tx, &mut row, run_at)?;
    } else {
        lifecycle::block(tx, &mut row, open)?;
    }
    note(tx, &mut row, "task.promoted", None);
    if let Some((of, status)) = failed {
        fail_dependent(tx, &mut row, of, status)?;
    }
    Ok(answer(tx, row))
}

pub(super) fn judge_park(tx: &mut Tx<'_>, park: &TaskPark) -> Planned<()> {
    let row = load(tx, park.id)?;
    exclusive::want_of(tx, &row);
    Ok(allows(&row, Status::Backlog)?)
}

pub(super) fn park(tx: &mut Tx<'_>, park: &TaskPark) -> Planned<Task> {
    let mut row = load(tx, park.id)?;
    lifecycle::park(tx, &mut row)?;
    row.task.rank = park.rank.unwrap_or(row.task.rank);
    let parked = json!({ "rank": row.task.rank });
    note(tx, &mut row, "task.parked", data(&parked));
    Ok(answer(tx, row))
}

pub(super) fn judge_amend(tx: &mut Tx<'_>, amend: &TaskAmend) -> Planned<()> {
    let row = load(tx, amend.id)?;
    exclusive::want_of(tx, &row);
    not_terminal(&row, row.task.status)?;
    if amend.revision.is_some_and(|revision| revision != row.task.revision) {
        let revision = Some(row.task.revision);
        let message = format!("task `{}` is at revision {}", amend.id, row.task.revision);
        return Err(Error::new(ErrorKind::PreconditionFailed { revision }, message).about(amend.id).into());
    }
    let amended = amended(&row.task, amend)?;
    let too_many = amended.labels.len() > limits::LABELS;
    if too_many || amended.metadata.as_ref().is_some_and(|metadata| metadata.size() > limits::BODY) {
        let message = format!("labels or metadata of task `{}` would grow too large", amend.id);
        return Err(Error::too_large(amend.id, message).into());
    }
    Ok(())
}

pub(super) fn amend(tx: &mut Tx<'_>, amend: &TaskAmend) -> Planned<Task> {
    let mut row = load(tx, amend.id)?;
    row.task = amended(&row.task, amend)?;
    if row.task.status == Status::Pending {
        lifecycle::set_turn(tx, &mut row)?;
    }
    // A new expiry may change who is first in line for the key.
    tx.agenda.keys.extend(row.task.exclusive_key.clone());
    note(tx, &mut row, "task.amended", None);
    Ok(answer(tx, row))
}

fn amended(task: &Task, amend: &TaskAmend) -> Result<Task, Error> {
    let mut task = task.clone();
    if let Some(patch) = &amend.metadata {
        task.metadata = merged(task.metadata.as_ref(), patch)?;
    }
    for (key, value) in &amend.labels {
        match value {
            Some(value) => task.labels.insert(key.clone(), value.clone()),
            None => task.labels.remove(key),
        };
    }
    task.priority = amend.priority.unwrap_or(task.priority);
    task.rank = amend.rank.unwrap_or(task.rank);
    task.run_at = amend.run_at.unwrap_or(task.run_at);
    task.expires_at = amend.expires_at.or(task.expires_at);
    Ok(task)
}

/// Lays the members of one object over those of another; null removes.
fn merged(base: Option<&Json>, patch: &Json) -> Result<Option<Json>, Error> {
    type Members = BTreeMap<String, Box<RawValue>>;
    let mut members: Members = base.map(Json::to).transpose()?.unwrap_or_default();
    for (key, value) in patch.to::<Members>()? {
        if value.get() == "null" {
            members.remove(&key);
        } else {
            members.insert(key, value);
        }
    }
    Ok(Some(Json::trusted(&members)))
}

/// Notes what a purge will need.
pub(super) fn want_purge(tx: &mut Tx<'_>, id: TaskId, parent: Option<TaskId>) {
    streams::want_audit(tx);
    tx.want::<SignalsRow>(&id);
    if let Some(parent) = &parent {
        tx.want::<TaskRow>(parent);
    }
    tx.want_set(TaskSet::LiveDependents { of: id }, 1);
    super::derived::want_dependents(tx, id);
}

pub(super) fn judge_purge(tx: &mut Tx<'_>, purge: &TaskPurge) -> Planned<()> {
    want_purge(tx, purge.id, None);
    let row = load(tx, purge.id)?;
    if !row.task.status.is_terminal() {
        return Err(not_allowed(&row, row.task.status, "").into());
    }
    match needed_by(tx, &row)? {
        Some(other) => {
            let message = format!("task `{other}` still needs task `{}`", purge.id);
            Err(Error::conflict(purge.id, message)
                .hint("purge it when its parent and dependents have ended")
                .into())
        }
        None => Ok(()),
    }
}

/// A parent or dependent that is not terminal.
pub(super) fn needed_by(tx: &mut Tx<'_>, row: &TaskRow) -> Planned<Option<TaskId>> {
    if let Some(parent) = row.task.parent {
        let open = tx.get::<TaskRow>(&parent)?.is_some_and(|row| !row.task.status.is_terminal());
        if open {
            return Ok(Some(parent));
        }
    }
    let dependents = tx.find(&TaskSet::LiveDependents { of: row.task.id }, 1)?;
    Ok(dependents.keys.first().map(|row| row.task.id))
}

pub(super) fn purge(tx: &mut Tx<'_>, purge: &TaskPurge) -> Planned<Done> {
    let row = load(tx, purge.id)?;
    erase(tx, &row)?;
    streams::audit(tx, "task.purged", &json!({ "tasks": [purge.id], "retention": false }))?;
    Ok(Done {})
}

/// Removes a task with its signals and its stream.
pub(super) fn erase(tx: &mut Tx<'_>, row: &TaskRow) -> Planned<()> {
    let id = row.task.id;
    if tx.get::<SignalsRow>(&id)?.is_some() {
        tx.delete::<SignalsRow>(&id);
    }
    tx.trim(StreamName::of_task(id), row.head.last);
    tx.delete::<TaskRow>(&id);
    // A command before this one may have opened a dependent again.
    tx.agenda.chores.insert(Chore::Dependents(id), None);
    Ok(())
}
