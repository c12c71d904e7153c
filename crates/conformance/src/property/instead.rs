//! What is done instead of something for which there is nothing yet, so that most sequences get somewhere.

use statehold_core::Status;
use statehold_core::model::{Task, TaskId};

use super::names::{group, source};
use super::ops::{Act, New, Str, Which};
use super::resolve::Resolver;

impl Resolver<'_> {
    /// Whether there is no task of the wanted status.
    pub(crate) fn lacks(&self, which: Which) -> bool {
        match which {
            Which::At(status, _) => self.model.statuses().iter().all(|(_, is)| *is != status),
            Which::First(_) => self.model.nominees().is_empty(),
            Which::Slot(_) => false,
        }
    }

    /// The nth lock that is held.
    pub(crate) fn held(&self, n: u8) -> Option<String> {
        let held = self.model.lock_list("", self.now);
        held.get(usize::from(n) % held.len().max(1)).map(|lock| lock.key.clone())
    }

    /// What is done instead, if there is nothing yet to do it with.
    pub(crate) fn instead(&self, act: &Act) -> Act {
        let pending = |n| Which::At(Status::Pending, n);
        match *act {
            Act::Renew { task, .. }
            | Act::Complete { task, .. }
            | Act::Fail { task, .. }
            | Act::Release { task, .. }
            | Act::Suspend { task, .. }
            | Act::Evict { task }
                if self.lacks(task) =>
            {
                self.instead(&Act::Start {
                    task: pending(task.number()),
                    owner: task.number(),
                    lease: Some(30),
                })
            }
            Act::Promote { task } if self.lacks(task) => {
                self.instead(&Act::Park { task: pending(task.number()), rank: None })
            }
            Act::Purge { task } | Act::Retry { task, .. } if self.lacks(task) => {
                self.instead(&Act::Cancel { task: pending(task.number()), force: false, children: false })
            }
            Act::Start { task, .. }
            | Act::Signal { task, .. }
            | Act::Cancel { task, .. }
            | Act::Park { task, .. }
            | Act::Amend { task, .. }
                if self.lacks(task) =>
            {
                let key = matches!(task, Which::First(_)).then_some(0);
                Act::Create(New { exclusive_key: key, ..New::plain(task.number()) })
            }
            Act::Ack { group: n, source: from, .. } | Act::Nack { group: n, source: from, .. }
                if !self.seen.has_out(&group(n), &source(from)) =>
            {
                Act::Append { stream: Str::Room(0), events: 2, head: None }
            }
            Act::RenewLock { lock, .. } | Act::ReleaseLock { lock, .. } if self.held(lock).is_none() => {
                Act::Acquire { lock, owner: lock, ttl: 60 }
            }
            _ => act.clone(),
        }
    }

    /// Whether the task is gone and another one still names it. What a new task of this id would be to the
    /// other one is not said.
    pub(crate) fn is_orphaned(&self, id: TaskId) -> bool {
        let tasks = self.model.statuses().into_iter().filter_map(|(id, _)| self.model.task(id));
        let named = |task: Task| task.parent == Some(id) || task.depends_on.contains(&id);
        self.model.task(id).is_none() && tasks.into_iter().any(named)
    }
}
