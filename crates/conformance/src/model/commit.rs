//! One commit in the making: the state as it will be, and what follows from it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use statehold_core::command::{Command, Created, Done, Reply};
use statehold_core::model::{Event, Position, StreamName, Task, TaskId};
use statehold_core::{Json, Timestamp};

use super::state::{Record, State};

#[derive(Debug)]
pub(super) struct Commit {
    pub(super) state: State,
    pub(super) now: Timestamp,
    pub(super) audit: StreamName,
    actor: Option<String>,
    /// Tasks that ended or are gone, whose dependents and parents are to be judged.
    pub(super) ended: BTreeSet<TaskId>,
    /// Tasks that were cancelled with their children, and whether by force.
    pub(super) cancelled: BTreeMap<TaskId, bool>,
    /// Tasks that were retried with their dependents.
    pub(super) revived: BTreeSet<TaskId>,
    /// Exclusive keys of tasks that changed.
    pub(super) keys: BTreeSet<String>,
}

impl Commit {
    pub(super) fn new(state: State, audit: StreamName, actor: Option<String>, now: Timestamp) -> Self {
        let (ended, cancelled) = (BTreeSet::new(), BTreeMap::new());
        Self { state, now, audit, actor, ended, cancelled, revived: BTreeSet::new(), keys: BTreeSet::new() }
    }

    /// The effects of commands that were judged: appends to tasks' streams first, then the rest in order.
    pub(super) fn run(&mut self, commands: &[Command]) -> Vec<Reply> {
        let (first, rest): (Vec<_>, Vec<_>) =
            (0..commands.len()).partition(|index| is_append_to_task(&commands[*index]));
        let order = first.into_iter().chain(rest);
        let mut replies: Vec<_> = order.map(|index| (index, self.effect(&commands[index]))).collect();
        replies.sort_by_key(|(index, _)| *index);
        replies.into_iter().map(|(_, reply)| reply).collect()
    }

    fn effect(&mut self, command: &Command) -> Reply {
        match command {
            Command::TaskCreate(create) => Reply::Created(self.create(create)),
            Command::TaskRenew(renew) => Reply::Renewed(self.renew(renew)),
            Command::TaskPurge(purge) => self.done(|commit| commit.purge_task(purge.id)),
            Command::QueueSet(set) => Reply::QueueState(self.set_queue(set)),
            Command::StreamAppend(append) => Reply::Appended(self.append_all(append)),
            Command::StreamTrim(trim) => Reply::Trimmed(self.trim(trim)),
            Command::StreamPurge(purge) => Reply::Trimmed(self.purge_stream(&purge.stream)),
            Command::GroupAck(ack) => self.done(|commit| commit.ack(ack)),
            Command::GroupNack(nack) => self.done(|commit| commit.nack(nack)),
            Command::GroupSeek(seek) => self.done(|commit| commit.seek(seek)),
            Command::DocumentPut(put) => Reply::DocumentRevision(self.put(put)),
            Command::DocumentDelete(delete) => Reply::Existed(self.delete_document(delete)),
            Command::EntrySet(set) => Reply::EntryExpiry(self.set_entry(set)),
            Command::EntryTake(take) => Reply::TakenEntry(self.take_entry(&take.key)),
            Command::EntryDelete(delete) => Reply::Existed(self.delete_entry(&delete.key)),
            Command::LockAcquire(acquire) => Reply::LockAcquired(self.acquire(acquire)),
            Command::LockRenew(renew) => Reply::LockRenewed(self.renew_lock(renew)),
            Command::LockRelease(release) => self.done(|commit| commit.release_lock(&release.key)),
            Command::LockForceRelease(release) => Reply::LockFreed(self.force_release(&release.key)),
            _ => Reply::Task(self.transition(command)),
        }
    }

    fn done(&mut self, effect: impl FnOnce(&mut Self)) -> Reply {
        effect(self);
        Reply::Done(Done {})
    }

    /// A task that a guard found.
    pub(super) fn record(&mut self, id: TaskId) -> &mut Record {
        self.state.tasks.get_mut(&id).expect("the task was judged")
    }

    pub(super) fn task(&mut self, id: TaskId) -> &mut Task {
        &mut self.record(id).task
    }

    pub(super) fn known(&mut self, id: TaskId) -> Created {
        Created { task: self.task(id).clone(), created: false }
    }

    /// A change of where a task stands: whose turn it is for its exclusive key is judged again.
    pub(super) fn note(&mut self, id: TaskId, kind: &str, data: Option<Value>) {
        let key = self.task(id).exclusive_key.clone();
        self.keys.extend(key);
        self.tell(id, kind, data);
    }

    /// A change that the caller can see: one event, one revision more.
    pub(super) fn tell(&mut self, id: TaskId, kind: &str, data: Option<Value>) {
        let now = self.now;
        let task = self.task(id);
        task.revision += 1;
        task.updated_at = now;
        self.append(&StreamName::of_task(id), kind, data.map(|data| json_of(&data)));
    }

    /// An administrative act.
    pub(super) fn audit(&mut self, kind: &str, data: &Value) {
        self.append(&self.audit.clone(), kind, Some(json_of(data)));
    }

    pub(super) fn append(&mut self, stream: &StreamName, kind: &str, data: Option<Json>) {
        let (at, actor) = (self.now, self.actor.clone());
        let known = self.state.streams.entry(stream.clone()).or_default();
        known.last += 1;
        let (seq, position) = (known.last, Position::default());
        let (stream, kind) = (stream.clone(), kind.to_owned());
        known.events.push(Event { stream, seq, position, kind, data, at, actor });
    }

    pub(super) fn audit_purge(&mut self, tasks: &[TaskId], retention: bool) {
        let ids: Vec<_> = tasks.iter().map(TaskId::to_string).collect();
        self.audit("task.purged", &json!({"tasks": ids, "retention": retention}));
    }
}

fn is_append_to_task(command: &Command) -> bool {
    matches!(command, Command::StreamAppend(append) if append.stream.task().is_some())
}

/// JSON that the model puts together.
pub(super) fn json_of(value: &Value) -> Json {
    Json::of(value).expect("a value can be written")
}
