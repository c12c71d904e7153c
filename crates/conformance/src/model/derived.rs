//! What follows from a commit's own effects: descendants, dependents, waiting parents, freed keys.

use statehold_core::Status;
use statehold_core::model::{TaskId, WaitFor};

use super::commit::Commit;

impl Commit {
    /// Everything that follows, in the order of ids.
    pub(super) fn derive(&mut self) {
        self.judge_ended();
        for (id, force) in std::mem::take(&mut self.cancelled) {
            self.cancel_descendants(id, force);
        }
        for id in std::mem::take(&mut self.revived) {
            self.revive_dependents(id);
        }
        self.judge_ended();
        for key in std::mem::take(&mut self.keys) {
            self.settle(&key);
        }
    }

    fn judge_ended(&mut self) {
        while let Some(id) = self.ended.pop_first() {
            self.judge_dependents(id);
            self.judge_waiting_parent(id);
        }
    }

    fn cancel_descendants(&mut self, id: TaskId, force: bool) {
        for descendant in self.state.descendants(id) {
            if self.record(descendant).is_open() {
                self.ask_to_stop(descendant, force);
            }
        }
    }

    /// Opens every task again that failed because this one did, and so on.
    fn revive_dependents(&mut self, id: TaskId) {
        let failed = self.state.tasks.values().filter(|record| record.failed_by() == Some(id));
        let failed: Vec<_> = failed.map(|record| record.task.id).collect();
        for dependent in failed {
            self.retry(dependent);
            self.revive_dependents(dependent);
        }
    }

    fn judge_dependents(&mut self, id: TaskId) {
        let blocked = self.state.dependents(id).filter(|record| record.task.status == Status::Blocked);
        let blocked: Vec<_> = blocked.map(|record| record.task.id).collect();
        let good = matches!(self.state.status(id), None | Some(Status::Completed));
        for dependent in blocked {
            let task = self.task(dependent);
            let (depends_on, run_at) = (task.depends_on.clone(), task.run_at);
            if !good {
                self.fail_for(dependent, id);
            } else if self.state.is_unblocked(&depends_on) {
                self.pend(dependent, run_at);
                self.note(dependent, "task.unblocked", None);
            }
        }
    }

    fn judge_waiting_parent(&mut self, id: TaskId) {
        let ended = self.state.tasks.get(&id);
        let Some(parent) = ended.and_then(|ended| self.state.tasks.get(&ended.task.parent?)) else { return };
        let waits = parent.task.waiting_for.as_ref().is_some_and(|w| matches!(w.on, WaitFor::Children(_)));
        let parent = parent.task.id;
        if waits {
            self.resume_if_there(parent);
        }
    }
}
