//! Batches: several commands that happen together or not at all, with typed handles to their
//! replies. A batch is checked once, by [`Batch::prepare`], before any backend sees it.

use std::collections::HashSet;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::clock::Seconds;
use crate::command::{Command, FromReply, Op, Reply};
use crate::error::{Error, Place, Result};
use crate::limits::{self, Check};
use crate::model::{Position, Source, TaskId, Token};
use crate::names::{Name, names};
use crate::plan::Map;
use crate::row::RequestHash;

/// Commands that happen together or not at all.
///
/// ```
/// use statehold_core::batch::Batch;
/// use statehold_core::command::{EntrySet, TaskCreate};
/// use statehold_core::Json;
///
/// let mut batch = Batch::new("default");
/// let created = batch.add(TaskCreate::new("send"));
/// let set = batch.add(EntrySet::new("result/7", Json::null()));
/// // let mut replies = backend.apply(batch.prepare()?).await?;
/// // let task = replies.take(created)?.task;
/// # let _ = (created, set);
/// assert!(batch.prepare().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Batch {
    /// Where it happens.
    #[serde(skip)]
    pub namespace: String,
    /// Who asks: recorded in events, and the scope of the key.
    #[serde(skip)]
    pub actor: Option<String>,
    /// Makes the batch safe to repeat.
    #[serde(skip)]
    pub key: Option<BatchKey>,
    /// The trace that the request came with: given to the tasks that it creates, unless they name one. It does not
    /// count for whether two requests are the same.
    #[serde(skip)]
    pub traceparent: Option<String>,
    /// What the caller must still hold.
    pub fences: Vec<Fence>,
    /// What to do.
    pub commands: Vec<Command>,
}

/// How long keys of the library's own are remembered.
const RETRIES: Seconds = Seconds::new(900);

/// A key that makes a batch safe to repeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchKey {
    /// The key, in the scope of the batch's actor.
    pub key: String,
    /// How long it is remembered.
    pub keep: Seconds,
}

impl BatchKey {
    /// A key that is remembered for 24 hours.
    pub fn new(key: impl Into<String>) -> Self {
        Self { key: key.into(), keep: Seconds::new(86_400) }
    }

    /// A key of the library's own, for its own retries, that is remembered for 15 minutes.
    pub fn for_retry() -> Self {
        Self { key: format!("retry/{}", TaskId::generate()), keep: RETRIES }
    }

    /// Whether it is such a key: nobody else knows it.
    pub fn is_for_retry(&self) -> bool {
        self.keep == RETRIES && self.key.starts_with("retry/")
    }
}

/// Something the caller must still hold for its batch to happen.
///
/// # Behavior
/// - A task's fence holds while the task is running with this token and its lease is not over.
/// - A lock's fence holds while the lock is held with this token and has not expired.
/// - A delivery's fence holds while the delivery is out with this token and its visibility has not run out.
/// - The first that does not hold refuses the whole batch as `fenced`, also when there is no such task,
///   lock or delivery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged, try_from = "FenceWire")]
pub enum Fence {
    /// A leased task.
    Task {
        /// Which task.
        task: TaskId,
        /// The proof.
        token: Token,
    },
    /// A held lock.
    Lock {
        /// Which lock.
        lock: String,
        /// The proof.
        token: Token,
    },
    /// An event delivered to a group's consumer.
    Delivery {
        /// Which group.
        group: String,
        /// What it reads.
        source: Source,
        /// Which event.
        position: Position,
        /// The proof.
        delivery_token: Token,
    },
}

/// How a [`Fence`] is read, so that a wrong field is named.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FenceWire {
    task: Option<TaskId>,
    lock: Option<String>,
    token: Option<Token>,
    group: Option<String>,
    source: Option<Source>,
    position: Option<Position>,
    delivery_token: Option<Token>,
}

impl TryFrom<FenceWire> for Fence {
    type Error = &'static str;

    fn try_from(wire: FenceWire) -> std::result::Result<Self, Self::Error> {
        match (wire.task, wire.lock, wire.group) {
            (Some(task), None, None) => {
                Ok(Self::Task { task, token: wire.token.ok_or("a fence on a task needs a token")? })
            }
            (None, Some(lock), None) => {
                Ok(Self::Lock { lock, token: wire.token.ok_or("a fence on a lock needs a token")? })
            }
            (None, None, Some(group)) => match (wire.source, wire.position, wire.delivery_token) {
                (Some(source), Some(position), Some(delivery_token)) => {
                    Ok(Self::Delivery { group, source, position, delivery_token })
                }
                _ => Err("a fence on a delivery needs source, position and delivery_token"),
            },
            _ => Err("a fence names exactly one of task, lock and group"),
        }
    }
}

/// Where a typed reply will be found.
#[derive(Debug)]
pub struct Handle<R> {
    index: usize,
    reply: PhantomData<fn() -> R>,
}

impl<R> Clone for Handle<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Handle<R> {}

impl Batch {
    /// An empty batch.
    pub fn new(namespace: impl Into<String>) -> Self {
        let (fences, commands) = (Vec::new(), Vec::new());
        Self { namespace: namespace.into(), actor: None, key: None, traceparent: None, fences, commands }
    }

    /// A batch of one command.
    pub fn of<O: Op>(namespace: impl Into<String>, command: O) -> (Self, Handle<O::Reply>) {
        let mut batch = Self::new(namespace);
        let handle = batch.add(command);
        (batch, handle)
    }

    /// Adds a command; the handle takes its reply.
    pub fn add<O: Op>(&mut self, command: O) -> Handle<O::Reply> {
        self.commands.push(command.into());
        Handle { index: self.commands.len() - 1, reply: PhantomData }
    }

    /// Says what the caller must still hold.
    #[must_use]
    pub fn fence(mut self, fence: Fence) -> Self {
        self.fences.push(fence);
        self
    }

    /// Makes it safe to repeat for 24 hours.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(BatchKey::new(key));
        self
    }

    /// Says who asks.
    #[must_use]
    pub fn actor(mut self, actor: impl Into<String>) -> Self {
        self.actor = Some(actor.into());
        self
    }

    /// Reads `{"key", "fences", "commands"}`. Unknown fields are refused; a problem carries the index of
    /// its command.
    pub fn from_json(namespace: impl Into<String>, text: &str) -> Result<Self> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Wire {
            key: Option<String>,
            #[serde(default)]
            fences: Vec<Fence>,
            commands: Vec<Box<RawValue>>,
        }
        if text.len() > 2 * limits::BATCH {
            return Err(Error::too_large("batch", format!("is {} bytes long", text.len())));
        }
        if !text.trim_start().starts_with('{') {
            return Err(Error::invalid("", "must be a JSON object with `commands`"));
        }
        let mut reader = serde_json::Deserializer::from_str(text);
        let wire: Wire = serde_path_to_error::deserialize(&mut reader)
            .map_err(|e| Error::invalid(e.path().to_string().trim_matches('.'), e.inner().to_string()))?;
        reader.end().map_err(|e| Error::invalid("", e.to_string()))?;
        let mut batch = Self::new(namespace);
        batch.key = wire.key.map(BatchKey::new);
        batch.fences = wire.fences;
        for (index, command) in wire.commands.iter().enumerate() {
            let command = Command::from_json(command.get()).map_err(|e| in_command(e, index))?;
            batch.commands.push(command);
        }
        Ok(batch)
    }

    /// Checks everything that can be checked without a store, and fills in ids. Nothing else accepts a
    /// batch.
    pub fn prepare(mut self) -> Result<Prepared> {
        self.check()?;
        let request = self.key.as_ref().map(|_| RequestHash::of(&self));
        let mut creates = Map::default();
        for command in &mut self.commands {
            if let Command::TaskCreate(create) = command {
                let generated = create.id.is_none();
                let id = *create.id.get_or_insert_with(TaskId::generate);
                create.traceparent = create.traceparent.take().or_else(|| self.traceparent.clone());
                creates.insert(id, Made { request: create.request(), generated });
            }
        }
        Ok(Prepared::new(self, request, creates))
    }

    /// Reads the replies that were written for it, a JSON array. Only the commands tell their types.
    pub fn read_replies(&self, text: &str) -> Result<Vec<Reply>> {
        let texts: Vec<Box<RawValue>> =
            serde_json::from_str(text).map_err(|e| Error::corrupt(format!("the replies of a batch: {e}")))?;
        self.commands.iter().zip(&texts).map(|(command, text)| command.read_reply(text.get())).collect()
    }

    fn check(&self) -> Result<()> {
        let mut check = Check::default();
        check.name("namespace", &self.namespace);
        check.maybe_name("actor", self.actor.as_ref());
        check.maybe_name("key", self.key.as_ref().map(|key| &key.key));
        check.maybe_name("traceparent", self.traceparent.as_ref());
        check.length("key", self.key.as_ref().map(|key| key.keep));
        check.count("commands", self.commands.len(), 1, limits::COMMANDS);
        check.count("fences", self.fences.len(), 0, limits::FEW);
        let mut bytes = check.bytes();
        check.finish()?;
        for (index, command) in self.commands.iter().enumerate() {
            let mut check = Check::default();
            command.check(&mut check);
            bytes += check.bytes();
            check.finish().map_err(|e| in_command(e, index))?;
        }
        if bytes > limits::BATCH {
            let message = format!("the batch has {bytes} bytes; at most {} are allowed", limits::BATCH);
            return Err(Error::too_large("batch", message));
        }
        self.check_names()
    }

    fn check_names(&self) -> Result<()> {
        let mut seen = HashSet::new();
        for (index, command) in self.commands.iter().enumerate() {
            for name in names(command) {
                if seen.contains(&name) {
                    let message = format!("the batch names {name} twice");
                    return Err(in_command(Error::invalid("", message), index)
                        .hint("split the batch: each key may appear once in it"));
                }
                seen.insert(name);
            }
        }
        let sought = |group: &str, source: &Source| seen.contains(&Name::Group(group, source));
        for (index, command) in self.commands.iter().enumerate() {
            let acked = match command {
                Command::GroupAck(ack) => sought(&ack.group, &ack.source),
                Command::GroupNack(nack) => sought(&nack.group, &nack.source),
                _ => false,
            };
            if acked {
                return Err(in_command(
                    Error::invalid("group", "is moved by a seek in the same batch"),
                    index,
                ));
            }
        }
        Ok(())
    }
}

fn in_command(error: Error, index: usize) -> Error {
    error.under(&format!("commands[{index}]")).at(Place::Command(index))
}

/// A checked batch, ready for a backend. Clones share it.
///
/// It can be written for another process of the same trust that applies it there. It is checked again when it
/// is read; that generated ids are new is believed, so it is not how callers send batches.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "PreparedWire", into = "PreparedWire")]
pub struct Prepared {
    batch: Arc<Batch>,
    request: Option<RequestHash>,
    creates: Arc<Map<TaskId, Made>>,
    /// Whether it may have been applied before.
    again: bool,
}

/// What is known of a create before it is planned.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Made {
    /// Worked out where the caller is rather than where everyone waits.
    request: RequestHash,
    /// Whether its id was made here.
    generated: bool,
}

/// How [`Prepared`] is written: with what a [`Batch`] leaves out.
#[derive(Serialize, Deserialize)]
struct PreparedWire {
    namespace: String,
    actor: Option<String>,
    key: Option<BatchKey>,
    fences: Vec<Fence>,
    commands: Vec<Command>,
    request: Option<RequestHash>,
    generated: HashSet<TaskId>,
}

impl From<Prepared> for PreparedWire {
    fn from(prepared: Prepared) -> Self {
        let generated = prepared.creates.keys().copied().filter(|id| prepared.is_generated(*id)).collect();
        let Prepared { batch, request, .. } = prepared;
        let Batch { namespace, actor, key, traceparent: _, fences, commands } = Arc::unwrap_or_clone(batch);
        Self { namespace, actor, key, fences, commands, request, generated }
    }
}

impl TryFrom<PreparedWire> for Prepared {
    type Error = Error;

    fn try_from(wire: PreparedWire) -> Result<Self> {
        let PreparedWire { namespace, actor, key, fences, commands, request, generated } = wire;
        let mut batch = Batch { namespace, actor, key, traceparent: None, fences, commands };
        batch.check()?;
        let made = |command: &mut Command| match command {
            Command::TaskCreate(create) => create
                .id
                .map(|id| (id, Made { request: create.request(), generated: generated.contains(&id) })),
            _ => None,
        };
        let creates = batch.commands.iter_mut().filter_map(made).collect();
        Ok(Self::new(batch, request, creates))
    }
}

impl Prepared {
    fn new(batch: Batch, request: Option<RequestHash>, creates: Map<TaskId, Made>) -> Self {
        Self { batch: Arc::new(batch), request, creates: Arc::new(creates), again: false }
    }

    /// The hash of the request that creates a task.
    pub fn create_request(&self, id: TaskId) -> Option<RequestHash> {
        self.creates.get(&id).map(|made| made.request)
    }

    /// The batch, with an id in every create.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// The same batch for another try after an unknown outcome: ids made for the first try may exist now.
    #[must_use]
    pub fn again(mut self) -> Self {
        self.again = true;
        self
    }

    /// The same batch with a key that only its maker knows, so that it can be repeated after an unknown outcome.
    #[must_use]
    pub fn keyed(mut self, key: BatchKey) -> Self {
        Arc::make_mut(&mut self.batch).key = Some(key);
        self.request = Some(RequestHash::of(&*self.batch));
        self
    }

    /// The hash of what the caller sent, if the batch has a key.
    pub fn request(&self) -> Option<&RequestHash> {
        self.request.as_ref()
    }

    /// Whether the id was made for this try, so that no task can have it.
    pub fn is_generated(&self, id: TaskId) -> bool {
        !self.again && self.creates.get(&id).is_some_and(|made| made.generated)
    }

    /// Whether repeating it is safe by itself, so that its key need not be stored: only creates with a key
    /// or an id of the caller's, completions, renewals and lock releases, without fences.
    pub fn repeats_by_nature(&self) -> bool {
        self.batch.fences.is_empty() && self.batch.commands.iter().all(|command| self.is_natural(command))
    }

    /// Whether it can be repeated after an unknown outcome: it has a key, or needs none.
    pub fn is_repeatable(&self) -> bool {
        self.batch.key.is_some() || self.clone().again().repeats_by_nature()
    }

    fn is_natural(&self, command: &Command) -> bool {
        match command {
            Command::TaskCreate(create) => {
                create.idempotency_key.is_some()
                    || create.child_key.is_some()
                    || create.id.is_some_and(|id| !self.is_generated(id))
            }
            Command::TaskComplete(_)
            | Command::TaskRenew(_)
            | Command::LockRenew(_)
            | Command::LockRelease(_) => true,
            _ => false,
        }
    }
}

/// What a batch answered, one reply for each command.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replies {
    /// In the order of the commands.
    pub replies: Vec<Reply>,
    /// Whether they are the stored answer of an earlier batch with the same key.
    #[serde(skip)]
    pub replayed: bool,
}

impl Replies {
    /// The reply of one command. A handle of another batch is `invalid`.
    pub fn take<R: FromReply>(&mut self, handle: Handle<R>) -> Result<R> {
        let reply = self
            .replies
            .get_mut(handle.index)
            .map(|reply| std::mem::replace(reply, Reply::Done(crate::command::Done {})));
        reply.and_then(R::from_reply).ok_or_else(|| {
            Error::invalid("", "the handle is not of this batch, or its reply was taken before")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{EntryTake, StreamAppend, TaskCreate};
    use crate::model::StreamName;

    fn refused(text: &str) -> Error {
        match Batch::from_json("default", text).and_then(Batch::prepare) {
            Ok(batch) => panic!("accepted {:?}", batch.batch()),
            Err(error) => error,
        }
    }

    #[test]
    fn bad_input_is_refused_with_its_place_and_a_hint() {
        let deep = "[".repeat(5000) + &"]".repeat(5000);
        let long = "k".repeat(257);
        let cases = [
            (
                r#"{"commands": [{"op": "entry.take", "key": ""}]}"#.into(),
                "commands[0].key: must not be empty",
            ),
            (format!(r#"{{"commands": [{{"op": "entry.take", "key": "{long}"}}]}}"#), "257 bytes"),
            (r#"{"commands": [{"op": "entry.take", "key": "k", "x": 1}]}"#.into(), "unknown field `x`"),
            (r#"{"commands": [], "x": 1}"#.into(), "unknown field `x`"),
            (r#"{"commands": []}"#.into(), "0 items"),
            (r#"{"commands": [{"op": "entry.grab"}]}"#.into(), "no command `entry.grab`"),
            (r#"{"commands": [{"key": "k"}]}"#.into(), "op: is missing"),
            (
                r#"{"commands": [{"op": "task.create", "kind": "k", "idempotency_key": ""}]}"#.into(),
                "idempotency_key: must not be empty",
            ),
            (r#"{"commands": [{"op": "entry.set", "key": "k", "value": "\u0000"}]}"#.into(), "\\u0000"),
            (
                format!(r#"{{"commands": [{{"op": "entry.set", "key": "k", "value": {deep}}}]}}"#),
                "deeper than 128",
            ),
            (
                r#"{"commands": [{"op": "entry.take", "key": "k"}, {"op": "entry.delete", "key": "k"}]}"#
                    .into(),
                "names entry `k` twice",
            ),
        ];
        for (text, expected) in cases {
            let error = refused(&text);
            assert!(error.is_invalid(), "{text}: {error}");
            assert!(error.message().contains(expected), "{expected} not in {error}");
            assert!(error.hint_text().is_some(), "{error}");
        }
    }

    #[test]
    fn oversize_bodies_are_too_large() {
        let body = "x".repeat(limits::BODY);
        let error =
            refused(&format!(r#"{{"commands": [{{"op": "entry.set", "key": "k", "value": "{body}"}}]}}"#));
        assert_eq!(error.code(), "too_large");
        assert_eq!(error.place(), Some(Place::Command(0)));
    }

    #[test]
    fn commands_survive_being_written_and_read() {
        let text = r#"{"op":"task.create","kind":"k","input":{"n":12345678901234567890.5,"e":[]}}"#;
        let command = Command::from_json(text);
        let written = command.as_ref().map(|c| serde_json::to_string(c).unwrap_or_default());
        assert_eq!(written, Ok(text.to_owned()));
    }

    #[test]
    fn a_prepared_batch_survives_being_written_and_read() {
        let mut batch = Batch::new("default").actor("me").key("k");
        let _ = batch.add(TaskCreate::new("k"));
        let own = TaskId::generate();
        let _ = batch.add(TaskCreate { id: Some(own), ..TaskCreate::new("k") });
        let Ok(prepared) = batch.prepare() else { panic!("a good batch") };
        let text = serde_json::to_string(&prepared).unwrap_or_default();
        let Ok(read) = serde_json::from_str::<Prepared>(&text) else { panic!("cannot be read: {text}") };
        assert_eq!((read.batch(), read.request()), (prepared.batch(), prepared.request()));
        assert_eq!(read.creates, prepared.creates);
        let generated = |made: &&Made| made.generated;
        assert!(!read.is_generated(own) && read.creates.values().filter(generated).count() == 1);
        let long = text.replace(r#""key":"k""#, &format!(r#""key":"{}""#, "k".repeat(257)));
        assert!(serde_json::from_str::<Prepared>(&long).is_err(), "it is checked again");
    }

    #[test]
    fn a_trace_goes_to_the_tasks_that_name_none_and_is_no_part_of_the_request() {
        let prepared = |trace: Option<&str>| {
            let mut batch = Batch::new("default").key("k");
            batch.traceparent = trace.map(str::to_owned);
            let _ = batch.add(TaskCreate::new("k"));
            let _ = batch.add(TaskCreate { traceparent: Some("own".into()), ..TaskCreate::new("k") });
            batch.prepare()
        };
        let (Ok(with), Ok(without)) = (prepared(Some("trace")), prepared(None)) else {
            panic!("good batches")
        };
        assert_eq!(with.request(), without.request());
        let traces = with.batch().commands.iter().map(|command| match command {
            Command::TaskCreate(create) => create.traceparent.clone(),
            _ => None,
        });
        assert_eq!(traces.collect::<Vec<_>>(), [Some("trace".to_owned()), Some("own".to_owned())]);
    }

    #[test]
    fn handles_give_typed_replies_once() {
        let mut batch = Batch::new("default");
        let _ = batch.add(TaskCreate::new("k"));
        let taken = batch.add(EntryTake { key: "k".into() });
        let wrong = Batch::of(
            "default",
            StreamAppend { stream: StreamName::trusted("a", "b"), events: vec![], expect_seq: None },
        )
        .1;
        let reply = crate::command::TakenEntry { entry: None };
        let done = Reply::Done(crate::command::Done {});
        let mut replies = Replies { replies: vec![done, Reply::TakenEntry(reply.clone())], replayed: false };
        assert_eq!(replies.take(taken), Ok(reply));
        assert!(replies.take(taken).is_err());
        assert!(replies.take(wrong).is_err());
    }
}
