//! The steps that tasks take, by command, by time or by what others do. Each step writes its event.

use serde_json::json;
use statehold_core::model::{Children, Lease, ResumedBy, StreamName, TaskError, TaskId, Token, WaitFor};
use statehold_core::{Seconds, Status, Timestamp};

use super::commit::{Commit, json_of};

impl Commit {
    /// Pending from `run_at` on.
    pub(super) fn pend(&mut self, id: TaskId, run_at: Timestamp) {
        let later = run_at > self.now;
        let record = self.record(id);
        record.task.status = Status::Pending;
        record.task.run_at = run_at;
        record.later = later;
    }

    /// Out of running.
    pub(super) fn leave(&mut self, id: TaskId) {
        let record = self.record(id);
        record.task.lease = None;
        record.claim_key = None;
        record.lease_seconds = None;
    }

    pub(super) fn end(&mut self, id: TaskId, status: Status) {
        let now = self.now;
        self.leave(id);
        let task = self.task(id);
        task.status = status;
        task.finished_at = Some(now);
        task.waiting_for = None;
        task.resumed_by = None;
        self.ended.insert(id);
    }

    pub(super) fn owner(&mut self, id: TaskId) -> String {
        self.task(id).lease.as_ref().expect("it is leased").owner.clone()
    }

    pub(super) fn start(
        &mut self,
        id: TaskId,
        owner: &str,
        length: Option<Seconds>,
        claim_key: Option<&str>,
    ) {
        let now = self.now;
        let record = self.record(id);
        record.last_token = Token::next(record.last_token, now);
        record.lease_seconds = length;
        record.claim_key = claim_key.map(str::to_owned);
        let deadline = record.task.timeout_seconds.map(|timeout| now + timeout);
        let expires_at = length.and_then(|length| deadline.into_iter().chain([now + length]).min());
        let (owner, token) = (owner.to_owned(), record.last_token);
        let task = &mut record.task;
        let data = json!({"owner": owner, "attempt": task.attempt + 1});
        task.lease = Some(Lease { owner, token, started_at: now, expires_at, heartbeat_at: now });
        task.status = Status::Running;
        task.attempt += 1;
        task.started_at = Some(now);
        task.progress = None;
        self.note(id, "task.started", Some(data));
    }

    pub(super) fn cancel_now(&mut self, id: TaskId) {
        self.end(id, Status::Cancelled);
        self.note(id, "task.cancelled", None);
    }

    pub(super) fn fail_now(&mut self, id: TaskId, error: TaskError) {
        let data = json!({"error": error});
        self.task(id).error = Some(error);
        self.end(id, Status::Failed);
        self.note(id, "task.failed", Some(data));
    }

    /// Fails because of a dependency.
    pub(super) fn fail_for(&mut self, id: TaskId, dependency: TaskId) {
        let details = json_of(&json!({"task": dependency.to_string()}));
        let error = TaskError {
            details: Some(details),
            ..TaskError::new("dependency", "a dependency did not complete")
        };
        self.fail_now(id, error);
    }

    /// An attempt ended without success.
    pub(super) fn try_failed(&mut self, id: TaskId, error: TaskError, retry: bool) {
        let now = self.now;
        let task = self.task(id);
        task.failures += 1;
        task.error = Some(error.clone());
        if task.cancel_requested {
            return self.cancel_now(id);
        }
        if !retry || task.failures >= task.max_attempts {
            return self.fail_now(id, error);
        }
        let run_at = now + task.backoff.delay(task.failures, id, task.attempt);
        self.leave(id);
        self.pend(id, run_at);
        self.note(id, "task.retrying", Some(json!({"error": error, "run_at": run_at.to_string()})));
    }

    pub(super) fn lose_lease(&mut self, id: TaskId) {
        let (owner, now) = (self.owner(id), self.now);
        self.note(id, "task.lease_lost", Some(json!({"owner": owner})));
        let task = self.task(id);
        task.lease_losses += 1;
        if task.cancel_requested {
            return self.cancel_now(id);
        }
        if task.lease_losses >= task.max_lease_losses {
            return self.fail_now(id, TaskError::new("lease_lost", "its lease was lost too often"));
        }
        let again = task.lease_losses - 1;
        let delay = if again == 0 { Seconds::ZERO } else { task.backoff.delay(again, id, task.attempt) };
        self.leave(id);
        self.pend(id, now + delay);
    }

    pub(super) fn ask_to_stop(&mut self, id: TaskId, force: bool) {
        let task = self.task(id);
        if task.status != Status::Running || force {
            return self.cancel_now(id);
        }
        task.cancel_requested = true;
        self.note(id, "task.cancel_requested", None);
    }

    /// Opens a failed or cancelled task again.
    pub(super) fn retry(&mut self, id: TaskId) {
        let now = self.now;
        let task = self.task(id);
        let error = task.error.take();
        task.failures = 0;
        task.lease_losses = 0;
        task.output = None;
        task.progress = None;
        task.finished_at = None;
        task.cancel_requested = false;
        task.expires_at = task.expires_at.filter(|at| *at > now);
        let depends_on = task.depends_on.clone();
        self.pend(id, now);
        let unblocked = self.state.is_unblocked(&depends_on);
        if !unblocked {
            self.task(id).status = Status::Blocked;
        }
        let run_at = unblocked.then(|| now.to_string());
        self.note(id, "task.retrying", Some(json!({"error": error, "run_at": run_at})));
    }

    pub(super) fn resume(&mut self, id: TaskId, by: ResumedBy) {
        let now = self.now;
        let name = match by {
            ResumedBy::Signal { .. } => "signal",
            ResumedBy::Children(_) => "children",
            ResumedBy::Until(_) => "until",
            ResumedBy::Timeout => "timeout",
        };
        let task = self.task(id);
        task.waiting_for = None;
        task.resumed_by = Some(by);
        self.pend(id, now);
        self.note(id, "task.resumed", Some(json!({"by": name})));
    }

    /// Resumes a waiting task if what it waits for is there.
    pub(super) fn resume_if_there(&mut self, id: TaskId) -> bool {
        let there = self.awaited(id);
        let is_there = there.is_some();
        if let Some(by) = there {
            self.resume(id, by);
        }
        is_there
    }

    fn awaited(&mut self, id: TaskId) -> Option<ResumedBy> {
        match self.task(id).waiting_for.as_ref()?.on.clone() {
            WaitFor::Signal(name) => {
                let kept = &mut self.record(id).signals;
                let oldest = kept.iter().position(|signal| signal.name == name)?;
                Some(ResumedBy::Signal { name, data: kept.remove(oldest).data })
            }
            WaitFor::Children(Children::All) => {
                (self.state.open_children(id) == 0).then_some(ResumedBy::Children(Children::All))
            }
            WaitFor::Until(until) => (until <= self.now).then_some(ResumedBy::Until(until)),
        }
    }

    /// Removes a task with its stream.
    pub(super) fn remove_task(&mut self, id: TaskId) {
        self.state.tasks.remove(&id);
        self.ended.insert(id);
        let stream = StreamName::of_task(id);
        let last = self.state.streams.get(&stream).map_or(0, |stream| stream.last);
        self.trim_to(&stream, last);
        self.state.streams.remove(&stream);
    }
}
