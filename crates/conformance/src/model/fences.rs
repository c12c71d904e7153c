//! What a batch must pass before anything of it happens: fences in order, then guards in the order of the
//! commands, all on the state before the batch.

use std::collections::BTreeSet;

use statehold_core::batch::{Batch, Fence};
use statehold_core::command::Command;
use statehold_core::error::Place;
use statehold_core::model::StreamName;
use statehold_core::{Error, Result, Timestamp};

use super::commit::Commit;
use super::state::State;
use super::tasks::fenced;

impl State {
    pub(super) fn judge(&self, batch: &Batch, now: Timestamp) -> Result<()> {
        for (index, fence) in batch.fences.iter().enumerate() {
            self.judge_fence(fence, now).map_err(|error| error.at(Place::Fence(index)))?;
        }
        let mut view = self.clone();
        let mut started = BTreeSet::new();
        for (index, command) in batch.commands.iter().enumerate() {
            self.judge_command(&view, command, now)
                .and_then(|()| self.judge_started(command, &mut started))
                .map_err(|error| error.at(Place::Command(index)))?;
            if let Command::TaskCreate(create) = command {
                let audit = StreamName::new("audit", "nobody").expect("a name");
                let mut commit = Commit::new(view, audit, None, now);
                commit.create(create);
                view = commit.state;
            }
        }
        Ok(())
    }

    fn judge_fence(&self, fence: &Fence, now: Timestamp) -> Result<()> {
        match fence {
            Fence::Task { task, token } => match self.tasks.get(task) {
                Some(record) => record.judge_lease(*token, now),
                None => Err(fenced(None, None)),
            },
            Fence::Lock { lock, token } => self.judge_lock(lock, *token, now),
            Fence::Delivery { group, source, position, delivery_token } => {
                let delivery = self.judge_delivery(group, source, position, *delivery_token)?;
                if delivery.visible_at > now { Ok(()) } else { Err(fenced(None, None)) }
            }
        }
    }

    fn judge_command(&self, view: &Self, command: &Command, now: Timestamp) -> Result<()> {
        match command {
            Command::TaskCreate(create) => self.judge_create(view, create),
            Command::StreamAppend(append) => self.judge_append(append),
            Command::StreamTrim(trim) => self.judge_stream(&trim.stream),
            Command::StreamPurge(purge) => self.judge_stream(&purge.stream),
            Command::GroupAck(ack) => self.judge_ack(ack.deliveries()),
            Command::GroupNack(nack) => self.judge_ack(nack.deliveries()),
            Command::DocumentPut(put) => self.judge_document(&put.kind, &put.name, put.expect, now),
            Command::DocumentDelete(delete) => {
                self.judge_document(&delete.kind, &delete.name, delete.expect, now)
            }
            Command::EntrySet(set) => self.judge_set(set, now),
            Command::LockAcquire(acquire) => self.judge_acquire(&acquire.key, now),
            Command::LockRenew(renew) => self.judge_renew(&renew.key, renew.token, now),
            Command::LockRelease(release) => self.judge_release(&release.key, release.token, now),
            _ => self.judge_task(command, now),
        }
    }

    /// Two starts of the same exclusive key cannot both be.
    fn judge_started(&self, command: &Command, started: &mut BTreeSet<String>) -> Result<()> {
        let Command::TaskStart(start) = command else { return Ok(()) };
        match self.record(start.id)?.task.exclusive_key.clone() {
            Some(key) if !started.insert(key.clone()) => {
                Err(Error::invalid("id", "its exclusive key is started twice"))
            }
            _ => Ok(()),
        }
    }
}
