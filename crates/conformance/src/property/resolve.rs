//! Turns symbolic operations into requests, by what was seen and by what the model says is there.

use std::collections::BTreeMap;

use statehold_core::batch::{Batch, BatchKey, Fence, Prepared};
use statehold_core::call::{Claim, GroupRead, Sweep};
use statehold_core::command::{
    Command, DocumentDelete, DocumentPut, EntryDelete, EntrySet, EntryTake, Expect, GroupAck, GroupNack,
    GroupSeek, LockAcquire, LockForceRelease, LockRelease, LockRenew, NewEvent, OnBusy, OnDuplicate,
    QueueSet, SeekTo, StreamAppend, StreamPurge, StreamTrim, TaskAmend, TaskCancel, TaskComplete, TaskCreate,
    TaskEvict, TaskFail, TaskPark, TaskPromote, TaskPurge, TaskRelease, TaskRenew, TaskRetry, TaskSignal,
    TaskStart, TaskSuspend, TrimTo,
};
use statehold_core::model::{
    Backoff, Children, Content, OnTimeout, Source, StreamName, TaskError, TaskId, WaitFor,
};
use statehold_core::policy::{Retention, StreamRetention};
use statehold_core::query::{ReadFrom, StreamRead};
use statehold_core::{Seconds, Status, Timestamp};

use super::names::{document, group, named, owner, queue, source};
use super::ops::{Act, BatchOp, Cut, FenceOp, Head, Keep, Must, New, Op, Str, To, Wait, Which};
use super::seen::Seen;
use crate::harness::json;
use crate::model::Model;

/// What symbols are resolved by.
pub(crate) struct Resolver<'a> {
    pub(crate) seen: &'a mut Seen,
    pub(crate) model: &'a Model,
    pub(crate) now: Timestamp,
    pub(crate) namespace: &'a str,
}

/// A length of time.
fn seconds(length: u64) -> Seconds {
    Seconds::new(length)
}

impl Resolver<'_> {
    pub(crate) fn task(&self, which: Which) -> TaskId {
        let found: Vec<_> = match which {
            Which::At(status, _) => {
                let statuses = self.model.statuses().into_iter();
                statuses.filter(|(_, is)| *is == status).map(|(id, _)| id).collect()
            }
            Which::First(_) => self.model.nominees().into_iter().map(|(_, id)| id).collect(),
            Which::Slot(_) => Vec::new(),
        };
        let n = which.number();
        found.get(usize::from(n) % found.len().max(1)).copied().unwrap_or_else(|| self.seen.slot(n))
    }

    pub(crate) fn stream(&self, stream: Str) -> StreamName {
        match stream {
            Str::Room(n) => named("room", n).parse().expect("a stream"),
            Str::Task(which) => StreamName::of_task(self.task(which)),
            Str::Nobody => "task/nobody".parse().expect("a stream"),
            Str::Dead(n) => format!("dead/{}", group(n)).parse().expect("a stream"),
            Str::Audit => "audit/local".parse().expect("a stream"),
        }
    }

    /// The number of a stream's last event.
    pub(crate) fn head(&self, stream: &StreamName) -> u64 {
        let read = StreamRead { stream: stream.clone(), from: ReadFrom::Last, limit: 1 };
        self.model.stream_read(&read).map_or(0, |page| page.last_seq)
    }

    fn after(&self, offset: i64) -> Timestamp {
        Timestamp::from_micros(self.now.as_micros() + offset * 1_000_000)
    }

    /// The batch, without commands that cannot be together with those before them.
    pub(crate) fn batch(&mut self, op: &BatchOp) -> Option<(Batch, Prepared)> {
        let mut batch = Batch::new(self.namespace);
        batch.actor = op.actor.map(|actor| format!("actor-{actor}"));
        batch.key = op.key.map(|(key, keep)| BatchKey { key: format!("key-{key}"), keep: seconds(keep) });
        batch.fences = op.fences.iter().filter_map(|fence| self.fence(*fence)).collect();
        for act in &op.acts {
            let Some(command) = self.command(&self.instead(act)) else { continue };
            batch.commands.push(command);
            if batch.clone().prepare().is_err() {
                batch.commands.pop();
            }
        }
        let prepared = batch.clone().prepare().ok()?;
        Some((batch, prepared))
    }

    /// A fence, unless there is nothing to hold.
    fn fence(&self, fence: FenceOp) -> Option<Fence> {
        Some(match fence {
            FenceOp::Task(which, _) if self.lacks(which) => return None,
            FenceOp::Task(which, token) => {
                let task = self.task(which);
                Fence::Task { task, token: self.seen.token(task, token) }
            }
            FenceOp::Lock(n, token) => {
                let lock = self.held(n)?;
                Fence::Lock { token: self.seen.lock(&lock, token), lock }
            }
            FenceOp::Delivery { group: n, source: from, .. }
                if !self.seen.has_out(&group(n), &source(from)) =>
            {
                return None;
            }
            FenceOp::Delivery { group: n, source: from, token } => {
                let (group, source) = (group(n), source(from));
                let delivery = self.seen.deliveries(&group, &source, token, 1).remove(0);
                let (position, delivery_token) = (delivery.position, delivery.delivery_token);
                Fence::Delivery { group, source, position, delivery_token }
            }
        })
    }

    fn command(&mut self, act: &Act) -> Option<Command> {
        Some(match act {
            Act::Create(new) => self.create(new).into(),
            Act::CreateAgain { nth, returns } => {
                let on_duplicate = returns.then_some(OnDuplicate::Return);
                let again = self.seen.create(*nth)?;
                let id = again.id.filter(|id| !self.is_orphaned(*id));
                TaskCreate { id, on_duplicate, ..again }.into()
            }
            _ => self
                .leased(act)
                .or_else(|| self.on_task(act))
                .or_else(|| self.on_stream(act))
                .or_else(|| self.on_group(act))
                .or_else(|| self.on_value(act))?,
        })
    }

    fn create(&mut self, new: &New) -> TaskCreate {
        let parent = new.parent.map(|which| self.task(which));
        let mut depends_on: Vec<TaskId> = new.depends_on.iter().map(|which| self.task(*which)).collect();
        depends_on.sort_unstable_by_key(|id| (id.0.as_u128() % 3, *id));
        depends_on.dedup();
        let id = self.seen.new_id(new.slot, new.id, |id| self.model.task(id).is_some());
        depends_on.retain(|dependency| Some(*dependency) != id);
        let parent = parent.filter(|parent| Some(*parent) != id);
        let shape = new.shape;
        TaskCreate {
            id,
            queue: Some(queue(new.queue)),
            input: Some(json(&format!(r#"{{"n":{shape},"e":[]}}"#))),
            metadata: (shape > 0).then(|| json(&format!(r#"{{"m":{shape},"k":"x"}}"#))),
            labels: BTreeMap::from([("shape".to_owned(), shape.to_string())]),
            priority: (shape > 1).then_some(i16::from(shape) - 3),
            rank: (shape > 2).then_some(i64::from(shape)),
            thread: (shape % 2 == 1).then(|| "thread".to_owned()),
            parent,
            child_key: new.child_key.filter(|_| parent.is_some()).map(|n| format!("child-{n}")),
            depends_on,
            idempotency_key: new.idempotency_key.map(|n| format!("once-{n}")),
            on_duplicate: new.returns.then_some(OnDuplicate::Return),
            exclusive_key: new.exclusive_key.map(|n| format!("only-{n}")),
            on_busy: new.rejects.then_some(OnBusy::Reject),
            run_at: new.run_in.map(|offset| self.after(offset)),
            expires_at: new.expires_in.map(|offset| self.after(offset)),
            timeout_seconds: new.timeout.map(seconds),
            max_attempts: new.tries,
            max_lease_losses: new.losses,
            backoff: (shape == 3).then_some(Backoff {
                initial_seconds: seconds(2),
                factor: 3,
                max_seconds: seconds(10),
            }),
            traceparent: None,
            backlog: new.backlog,
            ..TaskCreate::new(format!("kind-{shape}"))
        }
    }

    fn leased(&self, act: &Act) -> Option<Command> {
        let with = |which: Which, token| {
            let id = self.task(which);
            (id, self.seen.token(id, token))
        };
        Some(match *act {
            Act::Renew { task, token, lease, progress } => {
                let (id, token) = with(task, token);
                let progress = progress.then(|| json(r#"{"done":0.5}"#));
                TaskRenew { id, token, lease_seconds: lease.map(seconds), progress }.into()
            }
            Act::Complete { task, token, output } => {
                let (id, token) = with(task, token);
                TaskComplete { id, token, output: output.then(|| json(r#"["out",1]"#)) }.into()
            }
            Act::Fail { task, token, retry } => {
                let (id, token) = with(task, token);
                let error = TaskError { details: Some(json("[1]")), ..TaskError::new("broken", "it broke") };
                TaskFail { id, token, error, retry }.into()
            }
            Act::Release { task, token, run_in } => {
                let (id, token) = with(task, token);
                TaskRelease { id, token, run_at: run_in.map(|offset| self.after(offset)) }.into()
            }
            Act::Suspend { task, token, wait, timeout, fails } => {
                let (id, token) = with(task, token);
                let waiting_for = match wait {
                    Wait::Signal(n) => WaitFor::Signal(format!("signal-{n}")),
                    Wait::Children => WaitFor::Children(Children::All),
                    Wait::Until(offset) => WaitFor::Until(self.after(offset)),
                };
                let on_timeout = if fails { OnTimeout::Fail } else { OnTimeout::Resume };
                TaskSuspend { id, token, waiting_for, timeout_seconds: timeout.map(seconds), on_timeout }
                    .into()
            }
            _ => return None,
        })
    }

    fn on_task(&self, act: &Act) -> Option<Command> {
        Some(match *act {
            Act::Start { task, owner: n, lease } => {
                TaskStart { id: self.task(task), owner: owner(n), lease_seconds: lease.map(seconds) }.into()
            }
            Act::Signal { task, name } => {
                let data = (name == 0).then(|| json(&format!(r#"{{"at":"{}"}}"#, self.now)));
                TaskSignal { id: self.task(task), name: format!("signal-{name}"), data }.into()
            }
            Act::Cancel { task, force, children } => {
                TaskCancel { id: self.task(task), force, children }.into()
            }
            Act::Evict { task } => TaskEvict { id: self.task(task) }.into(),
            Act::Retry { task, deep } => TaskRetry { id: self.task(task), with_dependents: deep }.into(),
            Act::Promote { task } => TaskPromote { id: self.task(task) }.into(),
            Act::Park { task, rank } => TaskPark { id: self.task(task), rank }.into(),
            Act::Amend { task, revision, shape, run_in, expires_in } => {
                let id = self.task(task);
                let current = self.model.task(id).map_or(0, |task| task.revision);
                TaskAmend {
                    id,
                    revision: revision.map(|plus| current + plus),
                    metadata: (shape > 0).then(|| json(r#"{"m":null,"new":{"deep":[]}}"#)),
                    labels: BTreeMap::from([
                        ("shape".to_owned(), (shape != 1).then(|| shape.to_string())),
                        ("amended".to_owned(), Some("yes".to_owned())),
                    ]),
                    priority: (shape > 1).then_some(i16::from(shape) - 4),
                    rank: (shape > 2).then_some(-1),
                    run_at: run_in.map(|offset| self.after(offset)),
                    expires_at: expires_in.map(|offset| self.after(offset)),
                }
                .into()
            }
            Act::Purge { task } => TaskPurge { id: self.task(task) }.into(),
            Act::Pause { queue: n, paused } => QueueSet { queue: queue(n), paused }.into(),
            _ => return None,
        })
    }

    fn on_stream(&self, act: &Act) -> Option<Command> {
        Some(match *act {
            Act::Append { stream, events, head } => {
                let stream = self.stream(stream);
                let event = |n: u8| NewEvent {
                    kind: format!("said-{n}"),
                    data: (n > 0).then(|| json(&format!(r#"{{"n":{n}}}"#))),
                };
                let expect_seq = head.map(|head| match head {
                    Head::Right => self.head(&stream),
                    Head::Wrong => self.head(&stream) + 1,
                });
                StreamAppend { stream, events: (0..events).map(event).collect(), expect_seq }.into()
            }
            Act::Trim { stream, to } => {
                let stream = self.stream(stream);
                let to = match to {
                    Cut::Length(length) => TrimTo::Length(length),
                    Cut::Age(age) => TrimTo::AgeSeconds(seconds(age)),
                    Cut::Behind(count) => TrimTo::After(self.head(&stream).saturating_sub(count)),
                };
                StreamTrim { stream, to }.into()
            }
            Act::PurgeStream { stream } => StreamPurge { stream: self.stream(stream) }.into(),
            _ => return None,
        })
    }

    fn on_group(&self, act: &Act) -> Option<Command> {
        Some(match *act {
            Act::Ack { group: n, source: from, token, count } => {
                let (group, source) = (group(n), source(from));
                let deliveries = self.seen.deliveries(&group, &source, token, count);
                GroupAck { group, source, deliveries }.into()
            }
            Act::Nack { group: n, source: from, token, count, delay } => {
                let (group, source) = (group(n), source(from));
                let deliveries = self.seen.deliveries(&group, &source, token, count);
                GroupNack { group, source, deliveries, delay_seconds: delay.map(seconds) }.into()
            }
            Act::Seek { group: n, source: from, to } => {
                let source = source(from);
                let to = self.seek(&source, to);
                GroupSeek { group: group(n), source, to }.into()
            }
            _ => return None,
        })
    }

    fn seek(&self, source: &Source, to: To) -> SeekTo {
        let n = match to {
            To::Oldest => return SeekTo::Oldest,
            To::Latest => return SeekTo::Latest,
            To::Start => None,
            To::Nth(n) => Some(u64::from(n)),
        };
        match source {
            Source::Stream(stream) => SeekTo::After(n.map_or(0, |n| n % (self.head(stream) + 1)).to_string()),
            Source::Category(category) => {
                let positions = self.seen.positions(category);
                let nth = n.and_then(|n| positions.get(usize::try_from(n).ok()? % positions.len().max(1)));
                SeekTo::After(nth.cloned().unwrap_or_default().0)
            }
        }
    }

    fn on_value(&self, act: &Act) -> Option<Command> {
        let ttl = |ttl: &u64| seconds(*ttl);
        Some(match act {
            Act::Put { document: n, must, ttl, binary } => self.put(*n, *must, *ttl, *binary).into(),
            Act::Delete { document: n, must } => {
                let (kind, name) = document(*n);
                let expect = self.expect(*n, *must);
                DocumentDelete { kind: kind.into(), name: name.into(), expect }.into()
            }
            Act::SetEntry { entry, ttl: length, if_absent } => {
                let value = json(&format!(r#"{{"set":"{}"}}"#, self.now));
                let (ttl_seconds, if_absent) = (ttl(length), *if_absent);
                EntrySet { ttl_seconds, if_absent, ..EntrySet::new(named("entry", *entry), value) }.into()
            }
            Act::TakeEntry { entry } => EntryTake { key: named("entry", *entry) }.into(),
            Act::DeleteEntry { entry } => EntryDelete { key: named("entry", *entry) }.into(),
            Act::Acquire { lock, owner: n, ttl: length } => {
                LockAcquire { ttl_seconds: ttl(length), ..LockAcquire::new(named("lock", *lock), owner(*n)) }
                    .into()
            }
            Act::RenewLock { lock, token, ttl: length } => {
                let key = self.held(*lock).unwrap_or_else(|| named("lock", *lock));
                LockRenew { token: self.seen.lock(&key, *token), key, ttl_seconds: ttl(length) }.into()
            }
            Act::ReleaseLock { lock, token } => {
                let key = if *lock == 0 { named("lock", 0) } else { self.held(*lock)? };
                LockRelease { token: self.seen.lock(&key, *token), key }.into()
            }
            Act::ForceRelease { lock } => LockForceRelease { key: named("lock", *lock) }.into(),
            _ => return None,
        })
    }

    fn put(&self, n: u8, must: Must, ttl: Option<u64>, binary: bool) -> DocumentPut {
        let (kind, name) = document(n);
        let put = if binary {
            let content = Content { content_type: "text/plain".into(), data: b"\x00\xff".as_slice().into() };
            DocumentPut::binary(kind, name, content)
        } else {
            DocumentPut::json(kind, name, json(&format!(r#"{{"put":"{}"}}"#, self.now)))
        };
        DocumentPut {
            expect: self.expect(n, must),
            labels: BTreeMap::from([("binary".to_owned(), binary.to_string())]),
            schema_version: binary.then_some(2),
            ttl_seconds: ttl.map(seconds),
            ..put
        }
    }

    fn expect(&self, n: u8, must: Must) -> Expect {
        let (kind, name) = document(n);
        let revision = self.model.document(kind, name, self.now).map_or(0, |document| document.revision);
        match must {
            Must::Any => Expect::Any,
            Must::Absent => Expect::Absent,
            Must::At(0) if revision == 0 => Expect::Absent,
            Must::At(plus) => Expect::Revision(revision + plus),
        }
    }
}

/// A claim.
pub(crate) fn claim(namespace: &str, op: &Op) -> Option<Claim> {
    let Op::Claim { queues, owner: n, limit, lease, key } = op else { return None };
    Some(Claim {
        queues: queues.iter().map(|n| queue(*n)).collect(),
        limit: *limit,
        lease_seconds: lease.map(seconds),
        key: key.map(|key| format!("claim-{key}")),
        ..Claim::new(namespace, "", owner(*n))
    })
}

/// A read for a group.
pub(crate) fn read(namespace: &str, op: &Op) -> Option<GroupRead> {
    let Op::Read { group: n, source: from, consumer, limit, visibility, most, key } = op else { return None };
    Some(GroupRead {
        limit: *limit,
        visibility_seconds: seconds(*visibility),
        max_deliveries: *most,
        key: key.map(|key| format!("read-{key}")),
        ..GroupRead::new(namespace, group(*n), source(*from), format!("consumer-{consumer}"))
    })
}

/// A sweep.
pub(crate) fn sweep(namespace: &str, limit: u32, keep: Option<Keep>) -> Sweep {
    let mut retention = Retention::forever();
    if let Some(keep) = keep {
        let statuses = [Status::Completed, Status::Failed, Status::Cancelled];
        let tasks = statuses.into_iter().zip(keep.tasks);
        retention.tasks = tasks.filter_map(|(status, keep)| Some((status, seconds(keep?)))).collect();
        let rooms = StreamRetention { max_length: keep.rooms, max_age_seconds: None };
        let audit = StreamRetention { max_length: None, max_age_seconds: keep.audit.map(seconds) };
        retention.streams = BTreeMap::from([("room".to_owned(), rooms), ("audit".to_owned(), audit)]);
    }
    Sweep { limit, retention, ..Sweep::new(namespace) }
}
