//! The keys that commands name.

use crate::command::{Ack, Command};
use crate::model::{Position, Source, StreamName, TaskId};

/// A key that a command names. A batch names each at most once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Name<'a> {
    Task(TaskId),
    Idempotency(&'a str),
    Child(TaskId, &'a str),
    Exclusive(&'a str),
    Stream(StreamName),
    Document(&'a str, &'a str),
    Entry(&'a str),
    Lock(&'a str),
    Queue(&'a str),
    Group(&'a str, &'a Source),
    Delivery(&'a str, &'a Source, &'a Position),
}

impl std::fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Task(id) => write!(f, "task `{id}`"),
            Self::Idempotency(key) => write!(f, "idempotency key `{key}`"),
            Self::Child(_, key) => write!(f, "child key `{key}`"),
            Self::Exclusive(key) => write!(f, "exclusive key `{key}`"),
            Self::Stream(name) => write!(f, "stream `{name}`"),
            Self::Document(kind, name) => write!(f, "document `{kind}/{name}`"),
            Self::Entry(key) => write!(f, "entry `{key}`"),
            Self::Lock(key) => write!(f, "lock `{key}`"),
            Self::Queue(queue) => write!(f, "queue `{queue}`"),
            Self::Group(group, _) => write!(f, "group `{group}`"),
            Self::Delivery(group, _, position) => write!(f, "delivery `{position}` of group `{group}`"),
        }
    }
}

/// The keys that a command names.
pub(crate) fn names(command: &Command) -> Vec<Name<'_>> {
    match command {
        Command::TaskCreate(create) => {
            let mut names: Vec<_> = create.id.map(Name::Task).into_iter().collect();
            names.extend(create.idempotency_key.as_deref().map(Name::Idempotency));
            names.extend(create.exclusive_key.as_deref().map(Name::Exclusive));
            names
                .extend(create.parent.zip(create.child_key.as_deref()).map(|(id, key)| Name::Child(id, key)));
            names
        }
        Command::TaskStart(c) => vec![Name::Task(c.id)],
        Command::TaskRenew(c) => vec![Name::Task(c.id)],
        Command::TaskComplete(c) => vec![Name::Task(c.id)],
        Command::TaskFail(c) => vec![Name::Task(c.id)],
        Command::TaskRelease(c) => vec![Name::Task(c.id)],
        Command::TaskSuspend(c) => vec![Name::Task(c.id)],
        Command::TaskSignal(c) => vec![Name::Task(c.id)],
        Command::TaskCancel(c) => vec![Name::Task(c.id)],
        Command::TaskEvict(c) => vec![Name::Task(c.id)],
        Command::TaskRetry(c) => vec![Name::Task(c.id)],
        Command::TaskPromote(c) => vec![Name::Task(c.id)],
        Command::TaskPark(c) => vec![Name::Task(c.id)],
        Command::TaskAmend(c) => vec![Name::Task(c.id)],
        Command::TaskPurge(c) => vec![Name::Task(c.id), Name::Stream(StreamName::of_task(c.id))],
        Command::QueueSet(c) => vec![Name::Queue(&c.queue)],
        Command::StreamAppend(c) => vec![Name::Stream(c.stream.clone())],
        Command::StreamTrim(c) => vec![Name::Stream(c.stream.clone())],
        Command::StreamPurge(c) => vec![Name::Stream(c.stream.clone())],
        Command::GroupAck(c) => delivery_names(c.deliveries()),
        Command::GroupNack(c) => delivery_names(c.deliveries()),
        Command::GroupSeek(c) => vec![Name::Group(&c.group, &c.source)],
        Command::DocumentPut(c) => vec![Name::Document(&c.kind, &c.name)],
        Command::DocumentDelete(c) => vec![Name::Document(&c.kind, &c.name)],
        Command::EntrySet(c) => vec![Name::Entry(&c.key)],
        Command::EntryTake(c) => vec![Name::Entry(&c.key)],
        Command::EntryDelete(c) => vec![Name::Entry(&c.key)],
        Command::LockAcquire(c) => vec![Name::Lock(&c.key)],
        Command::LockRenew(c) => vec![Name::Lock(&c.key)],
        Command::LockRelease(c) => vec![Name::Lock(&c.key)],
        Command::LockForceRelease(c) => vec![Name::Lock(&c.key)],
    }
}

fn delivery_names(ack: Ack<'_>) -> Vec<Name<'_>> {
    ack.deliveries.iter().map(|d| Name::Delivery(ack.group, ack.source, &d.position)).collect()
}
