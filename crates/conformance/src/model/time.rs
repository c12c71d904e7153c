//! What time brings: ended leases, due times, expiries, retention. Time alone changes nothing; a sweep does.

use statehold_core::call::{Sweep, Swept};
use statehold_core::model::{OnTimeout, ResumedBy, StreamName, TaskError, TaskId, WaitFor};
use statehold_core::policy::Retention;
use statehold_core::{Status, Timestamp};

use super::commit::Commit;
use super::state::{Record, State};

impl Record {
    /// When something happens to it by itself, the end of its lease apart.
    pub(super) fn timer(&self) -> Option<Timestamp> {
        let task = &self.task;
        match task.status {
            Status::Running => self.attempt_deadline(),
            Status::Pending => task.expires_at.into_iter().chain(self.later.then_some(task.run_at)).min(),
            Status::Waiting => task.expires_at.into_iter().chain(self.wait_ends()).min(),
            Status::Blocked => task.expires_at,
            _ => None,
        }
    }

    fn wait_ends(&self) -> Option<Timestamp> {
        let waiting = self.task.waiting_for.as_ref()?;
        let until = if let WaitFor::Until(until) = waiting.on { Some(until) } else { None };
        until.into_iter().chain(waiting.deadline).min()
    }

    pub(super) fn lease_expiry(&self) -> Option<Timestamp> {
        self.task.lease.as_ref().and_then(|lease| lease.expires_at)
    }
}

impl State {
    /// The tasks whose time has come, in the order of time, then id.
    pub(super) fn over(
        &self,
        now: Timestamp,
        queues: impl Fn(&str) -> bool,
        time: impl Fn(&Record) -> Option<Timestamp>,
    ) -> Vec<TaskId> {
        let records = self.tasks.values().filter(|record| queues(&record.task.queue));
        let mut over: Vec<_> = records.filter_map(|record| Some((time(record)?, record.task.id))).collect();
        over.retain(|(at, _)| *at <= now);
        over.sort_unstable();
        over.into_iter().map(|(_, id)| id).collect()
    }
}

impl Commit {
    /// Judges one task by the clock. Answers whether something happened.
    fn judge_time(&mut self, id: TaskId) -> bool {
        let now = self.now;
        let record = self.record(id);
        let expired = record.is_expired(now);
        match record.task.status {
            Status::Running if record.attempt_deadline().is_some_and(|at| at <= now) => {
                self.try_failed(id, TaskError::new("timeout", "the attempt took too long"), true);
                true
            }
            Status::Running if record.is_lease_over(now) => {
                self.lose_lease(id);
                true
            }
            Status::Blocked | Status::Pending | Status::Waiting if expired => {
                self.fail_now(id, TaskError::new("expired", "it did not start in time"));
                true
            }
            Status::Waiting => self.judge_wait(id),
            Status::Pending if record.later && record.task.run_at <= now => {
                record.later = false;
                let key = record.task.exclusive_key.clone();
                self.keys.extend(key);
                true
            }
            _ => false,
        }
    }

    fn judge_wait(&mut self, id: TaskId) -> bool {
        // That its children ended in the same sweep follows only once all are judged.
        let waiting_for = self.task(id).waiting_for.as_ref();
        let for_children = waiting_for.is_some_and(|w| matches!(w.on, WaitFor::Children(_)));
        if !for_children && self.resume_if_there(id) {
            return true;
        }
        let now = self.now;
        let waiting = self.task(id).waiting_for.clone().filter(|w| w.deadline.is_some_and(|at| at <= now));
        match waiting.map(|waiting| waiting.on_timeout) {
            Some(OnTimeout::Resume) => self.resume(id, ResumedBy::Timeout),
            Some(OnTimeout::Fail) => {
                self.fail_now(id, TaskError::new("wait_timeout", "what it waited for did not come"));
            }
            None => return false,
        }
        true
    }

    pub(super) fn sweep(&mut self, sweep: &Sweep) -> Swept {
        let mut swept = Swept::default();
        let limit = sweep.limit as usize;
        (swept.timers, swept.more) = self.sweep_tasks(limit, |_| true, Record::timer);
        let (leases, more) = self.sweep_tasks(limit, |_| true, Record::lease_expiry);
        self.derive();
        swept.leases = leases;
        swept.more |= more;
        for (count, sweep) in [
            (&mut swept.documents, Self::sweep_documents as fn(&mut Self, usize) -> (u32, bool)),
            (&mut swept.entries, Self::sweep_entries),
            (&mut swept.locks, Self::sweep_locks),
            (&mut swept.answers, Self::sweep_answers),
        ] {
            let (removed, more) = sweep(self, limit);
            *count = removed;
            swept.more |= more;
        }
        swept.purged = self.retain_tasks(&sweep.retention);
        self.derive();
        swept.trimmed = self.retain_streams(&sweep.retention);
        swept
    }

    /// Judges up to `limit` tasks whose time has come; answers how many, and whether there are more.
    pub(super) fn sweep_tasks(
        &mut self,
        limit: usize,
        queues: impl Fn(&str) -> bool,
        time: impl Fn(&Record) -> Option<Timestamp>,
    ) -> (u32, bool) {
        let over = self.state.over(self.now, queues, time);
        let handled = over.iter().take(limit).filter(|id| self.judge_time(**id)).count();
        (count(handled), over.len() > limit)
    }

    fn sweep_answers(&mut self, limit: usize) -> (u32, bool) {
        let now = self.now;
        let over = self.state.answers.iter().filter(|(_, answer)| answer.expires_at <= now);
        let over: Vec<_> = over.map(|(key, _)| key.clone()).collect();
        over.iter().take(limit).for_each(|key| drop(self.state.answers.remove(key)));
        (count(over.len().min(limit)), over.len() > limit)
    }

    fn retain_tasks(&mut self, retention: &Retention) -> u32 {
        let mut old: Vec<_> =
            self.state.tasks.values().filter(|record| self.may_go(record, retention)).collect();
        old.sort_by_key(|record| (record.task.finished_at, record.task.id));
        let old: Vec<_> = old.into_iter().map(|record| record.task.id).collect();
        for id in &old {
            self.remove_task(*id);
        }
        if !old.is_empty() {
            self.audit_purge(&old, true);
        }
        count(old.len())
    }

    fn may_go(&self, record: &Record, retention: &Retention) -> bool {
        let keep = retention.tasks.get(&record.task.status);
        let old = keep.zip(record.task.finished_at).is_some_and(|(keep, at)| at + *keep <= self.now);
        let parent = record.task.parent.and_then(|id| self.state.tasks.get(&id));
        old && !parent.into_iter().chain(self.state.dependents(record.task.id)).any(Record::is_open)
    }

    fn retain_streams(&mut self, retention: &Retention) -> u32 {
        let names: Vec<StreamName> = self.state.streams.keys().cloned().collect();
        let trimmed = names.into_iter().filter(|name| {
            let keep = retention.streams.get(name.category()).copied().unwrap_or_default();
            let by_length = keep.max_length.map(|length| self.state.cut_by_length(name, length));
            let by_age = keep.max_age_seconds.map(|age| self.state.cut_by_age(name, self.now - age));
            let before = self.state.streams[name].oldest;
            let cut = by_length.into_iter().chain(by_age).max().unwrap_or(0);
            self.trim_to(name, cut);
            cut > before
        });
        count(trimmed.count())
    }
}

/// A number for [`Swept`].
pub(super) fn count(number: usize) -> u32 {
    u32::try_from(number).expect("a small number")
}
