//! Commands on one task that exists: the guard of each, and its own effect.

use serde_json::{Map, Value, json};
use statehold_core::command::{
    Command, Renewed, TaskAmend, TaskCancel, TaskComplete, TaskFail, TaskPark, TaskRenew, TaskStart,
    TaskSuspend,
};
use statehold_core::error::ErrorKind;
use statehold_core::limits;
use statehold_core::model::{Task, TaskId, Token, WaitFor, Waiting};
use statehold_core::row::Signal;
use statehold_core::{Error, Json, Result, Status, Timestamp};

use super::commit::{Commit, json_of};
use super::state::{Record, State};

impl State {
    /// The guard of a command on a task, on the state before the batch.
    pub(super) fn judge_task(&self, command: &Command, now: Timestamp) -> Result<()> {
        let Some(id) = task_of(command) else { return Ok(()) };
        let record = self.record(id)?;
        let open = record.is_open();
        match command {
            Command::TaskStart(_) => self.judge_start(record, now),
            Command::TaskRenew(TaskRenew { token, .. }) => record.judge_lease(*token, now),
            Command::TaskComplete(complete) => judge_complete(record, complete, now),
            Command::TaskFail(fail) => record.judge_lease(fail.token, now),
            Command::TaskRelease(release) => record.judge_lease(release.token, now),
            Command::TaskSuspend(suspend) => record.judge_lease(suspend.token, now),
            Command::TaskSignal(_) => judge_signal(record),
            Command::TaskCancel(_) => record.allow(open, Status::Cancelled),
            Command::TaskEvict(_) => record.allow(record.task.status == Status::Running, Status::Pending),
            Command::TaskRetry(_) => record
                .allow(matches!(record.task.status, Status::Failed | Status::Cancelled), Status::Pending),
            Command::TaskPromote(_) => record.allow(record.task.status == Status::Backlog, Status::Pending),
            Command::TaskPark(_) => {
                record.allow(matches!(record.task.status, Status::Pending | Status::Blocked), Status::Backlog)
            }
            Command::TaskAmend(amend) => judge_amend(record, amend),
            Command::TaskPurge(_) => self.judge_purge(record),
            _ => Ok(()),
        }
    }

    fn judge_start(&self, record: &Record, now: Timestamp) -> Result<()> {
        record.allow(record.is_due(now), Status::Running)?;
        match record.task.exclusive_key.as_deref().and_then(|key| self.holder(key)) {
            Some(holder) => Err(held(Some(holder))),
            None => Ok(()),
        }
    }

    fn judge_purge(&self, record: &Record) -> Result<()> {
        record.allow(!record.is_open(), record.task.status)?;
        let parent = record.task.parent.and_then(|id| self.tasks.get(&id));
        let needed = parent.into_iter().chain(self.dependents(record.task.id)).any(Record::is_open);
        if needed {
            Err(Error::conflict(record.task.id, "its parent or a dependent is open"))
        } else {
            Ok(())
        }
    }
}

/// The task that a command other than a create is about.
fn task_of(command: &Command) -> Option<TaskId> {
    Some(match command {
        Command::TaskStart(c) => c.id,
        Command::TaskRenew(c) => c.id,
        Command::TaskComplete(c) => c.id,
        Command::TaskFail(c) => c.id,
        Command::TaskRelease(c) => c.id,
        Command::TaskSuspend(c) => c.id,
        Command::TaskSignal(c) => c.id,
        Command::TaskCancel(c) => c.id,
        Command::TaskEvict(c) => c.id,
        Command::TaskRetry(c) => c.id,
        Command::TaskPromote(c) => c.id,
        Command::TaskPark(c) => c.id,
        Command::TaskAmend(c) => c.id,
        Command::TaskPurge(c) => c.id,
        _ => return None,
    })
}

/// The error of a key that is held, with its holder if there is one.
pub(super) fn held(holder: Option<&Record>) -> Error {
    let lease = holder.and_then(|holder| holder.task.lease.as_ref());
    let (owner, expires_at) = (lease.map(|l| l.owner.clone()), lease.and_then(|l| l.expires_at));
    Error::new(ErrorKind::Held { owner, expires_at }, "the exclusive key is held")
}

pub(super) fn fenced(lost_at: Option<Timestamp>, owner: Option<&str>) -> Error {
    Error::new(
        ErrorKind::Fenced { lost_at, owner: owner.map(str::to_owned) },
        "the token is not the current one",
    )
}

impl Record {
    fn allow(&self, good: bool, to: Status) -> Result<()> {
        let from = self.task.status;
        let kind = ErrorKind::InvalidTransition { from, to, allowed: from.next().to_vec() };
        if good { Ok(()) } else { Err(Error::new(kind, "the table has no such step")) }
    }

    /// Running, with this token, and the lease is not over.
    pub(super) fn judge_lease(&self, token: Token, now: Timestamp) -> Result<()> {
        match &self.task.lease {
            None => Err(fenced(Some(self.task.updated_at), None)),
            Some(lease) if lease.token != token => Err(fenced(Some(lease.started_at), Some(&lease.owner))),
            Some(_) if self.is_lease_over(now) => Err(fenced(self.lease_end(), None)),
            Some(_) => Ok(()),
        }
    }
}

fn judge_complete(record: &Record, complete: &TaskComplete, now: Timestamp) -> Result<()> {
    let before = record.task.status == Status::Completed && record.last_token == complete.token;
    if before { Ok(()) } else { record.judge_lease(complete.token, now) }
}

fn judge_signal(record: &Record) -> Result<()> {
    record.allow(record.is_open(), Status::Pending)?;
    let full = record.signals.len() >= limits::SIGNALS;
    if full { Err(Error::too_large(record.task.id, "it keeps too many signals")) } else { Ok(()) }
}

fn judge_amend(record: &Record, amend: &TaskAmend) -> Result<()> {
    record.allow(record.is_open(), record.task.status)?;
    if amend.revision.is_some_and(|revision| revision != record.task.revision) {
        let kind = ErrorKind::PreconditionFailed { revision: Some(record.task.revision) };
        return Err(Error::new(kind, "the task is at another revision"));
    }
    let mut task = record.task.clone();
    merge(&mut task, amend);
    let large = task.labels.len() > limits::LABELS || task.metadata.is_some_and(|m| m.size() > limits::BODY);
    if large { Err(Error::too_large(record.task.id, "too much after the merge")) } else { Ok(()) }
}

/// Metadata and labels merged shallowly; null removes.
fn merge(task: &mut Task, amend: &TaskAmend) {
    if let Some(changes) = &amend.metadata {
        let mut members = task.metadata.as_ref().map(members_of).unwrap_or_default();
        for (name, value) in members_of(changes) {
            members.remove(&name);
            if !value.is_null() {
                members.insert(name, value);
            }
        }
        task.metadata = Some(json_of(&Value::Object(members)));
    }
    for (name, value) in &amend.labels {
        task.labels.remove(name);
        task.labels.extend(value.clone().map(|value| (name.clone(), value)));
    }
}

fn members_of(object: &Json) -> Map<String, Value> {
    object.to().expect("metadata is an object")
}

impl Commit {
    /// The effect of a command that answers the task.
    pub(super) fn transition(&mut self, command: &Command) -> Task {
        let id = task_of(command).expect("it is about a task");
        match command {
            Command::TaskStart(TaskStart { owner, lease_seconds, .. }) => {
                self.start(id, owner, *lease_seconds, None);
            }
            Command::TaskComplete(complete) => self.complete(complete),
            Command::TaskFail(TaskFail { error, retry, .. }) => self.try_failed(id, error.clone(), *retry),
            Command::TaskRelease(release) => self.release(id, release.run_at.unwrap_or(self.now)),
            Command::TaskSuspend(suspend) => self.suspend(suspend),
            Command::TaskSignal(signal) => {
                self.signal(id, Signal { name: signal.name.clone(), data: signal.data.clone() });
            }
            Command::TaskCancel(cancel) => self.cancel(cancel),
            Command::TaskEvict(_) => self.evict(id),
            Command::TaskRetry(retry) => {
                self.retry(id);
                self.revived.extend(retry.with_dependents.then_some(id));
            }
            Command::TaskPromote(_) => self.promote(id),
            Command::TaskPark(park) => self.park(park),
            Command::TaskAmend(amend) => self.amend(amend),
            _ => {}
        }
        self.task(id).clone()
    }

    pub(super) fn renew(&mut self, renew: &TaskRenew) -> Renewed {
        let now = self.now;
        let record = self.record(renew.id);
        let deadline = record.attempt_deadline();
        let length = renew.lease_seconds.or(record.lease_seconds);
        let lease = record.task.lease.as_mut().expect("it is leased");
        lease.heartbeat_at = now;
        lease.expires_at = length.and_then(|length| deadline.into_iter().chain([now + length]).min());
        let expires_at = lease.expires_at;
        if renew.progress.is_some() {
            record.task.progress.clone_from(&renew.progress);
        }
        Renewed { expires_at, cancel_requested: record.task.cancel_requested }
    }

    fn complete(&mut self, complete: &TaskComplete) {
        let id = complete.id;
        if self.task(id).status == Status::Completed {
            return;
        }
        let task = self.task(id);
        task.output.clone_from(&complete.output);
        task.error = None;
        let attempt = task.attempt;
        self.end(id, Status::Completed);
        self.note(id, "task.completed", Some(json!({"attempt": attempt})));
    }

    fn release(&mut self, id: TaskId, run_at: Timestamp) {
        if self.task(id).cancel_requested {
            return self.cancel_now(id);
        }
        self.leave(id);
        self.pend(id, run_at);
        self.note(id, "task.released", Some(json!({"run_at": run_at.to_string()})));
    }

    fn suspend(&mut self, suspend: &TaskSuspend) {
        let (id, now) = (suspend.id, self.now);
        if self.task(id).cancel_requested {
            return self.cancel_now(id);
        }
        self.leave(id);
        let deadline = suspend.timeout_seconds.map(|timeout| now + timeout);
        let waiting = Waiting { on: suspend.waiting_for.clone(), deadline, on_timeout: suspend.on_timeout };
        let task = self.task(id);
        task.status = Status::Waiting;
        task.resumed_by = None;
        task.waiting_for = Some(waiting.clone());
        self.note(id, "task.suspended", Some(json!({"waiting_for": waiting})));
        self.resume_if_there(id);
    }

    fn signal(&mut self, id: TaskId, signal: Signal) {
        let name = signal.name.clone();
        self.record(id).signals.push(signal);
        self.tell(id, "task.signalled", Some(json!({"name": name})));
        if self.task(id).waiting_for.as_ref().is_some_and(|waiting| waiting.on == WaitFor::Signal(name)) {
            self.resume_if_there(id);
        }
    }

    fn cancel(&mut self, cancel: &TaskCancel) {
        self.ask_to_stop(cancel.id, cancel.force);
        if cancel.children {
            self.cancelled.insert(cancel.id, cancel.force);
        }
    }

    fn evict(&mut self, id: TaskId) {
        let (owner, now) = (self.owner(id), self.now);
        self.note(id, "task.evicted", Some(json!({"owner": owner})));
        if self.task(id).cancel_requested {
            return self.cancel_now(id);
        }
        self.leave(id);
        self.pend(id, now);
    }

    fn promote(&mut self, id: TaskId) {
        let depends_on = self.task(id).depends_on.clone();
        let run_at = self.task(id).run_at;
        if self.state.is_unblocked(&depends_on) {
            self.pend(id, run_at);
        } else {
            self.task(id).status = Status::Blocked;
        }
        self.note(id, "task.promoted", None);
        if let Some(failed) = self.state.failed_dependency(&depends_on) {
            self.fail_for(id, failed);
        }
    }

    fn park(&mut self, park: &TaskPark) {
        let task = self.task(park.id);
        task.status = Status::Backlog;
        task.rank = park.rank.unwrap_or(task.rank);
        let rank = task.rank;
        self.note(park.id, "task.parked", Some(json!({"rank": rank})));
    }

    fn amend(&mut self, amend: &TaskAmend) {
        let now = self.now;
        let record = self.record(amend.id);
        let task = &mut record.task;
        merge(task, amend);
        task.priority = amend.priority.unwrap_or(task.priority);
        task.rank = amend.rank.unwrap_or(task.rank);
        task.expires_at = amend.expires_at.or(task.expires_at);
        task.run_at = amend.run_at.unwrap_or(task.run_at);
        record.later = task.run_at > now;
        self.note(amend.id, "task.amended", None);
    }

    /// Removes a task with its stream.
    pub(super) fn purge_task(&mut self, id: TaskId) {
        self.remove_task(id);
        self.audit_purge(&[id], false);
    }
}
