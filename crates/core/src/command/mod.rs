//! Everything that can be changed, as plain data. Each command is a type, named after its wire
//! name (`task.create` is [`TaskCreate`]), and knows the type of its reply. Here is what can be
//! asked; what it does is in [`crate::plan`].

mod documents;
mod entries;
mod groups;
mod locks;
mod queues;
mod streams;
mod tasks;
mod wire;

pub use documents::{DocumentDelete, DocumentPut, DocumentRevision, Existed, Expect};
pub use entries::{EntryDelete, EntryExpiry, EntrySet, EntryTake, TakenEntry};
pub use groups::{Ack, DeliveryRef, GroupAck, GroupNack, GroupSeek, SeekTo};
pub use locks::{
    LockAcquire, LockAcquired, LockForceRelease, LockFreed, LockRelease, LockRenew, LockRenewed,
};
pub use queues::{QueueSet, QueueState};
pub use streams::{Appended, NewEvent, StreamAppend, StreamPurge, StreamTrim, TrimTo, Trimmed};
pub use tasks::{
    Created, OnBusy, OnDuplicate, Renewed, TaskAmend, TaskCancel, TaskComplete, TaskCreate, TaskEvict,
    TaskFail, TaskPark, TaskPromote, TaskPurge, TaskRelease, TaskRenew, TaskRetry, TaskSignal, TaskStart,
    TaskSuspend,
};

pub use wire::Fields;

pub(crate) use groups::check_group;
pub(crate) use tasks::default_lease;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::{Error, Result};
use crate::limits::Check;
use crate::model::Task;

/// A command with its reply type.
pub trait Op: Into<Command> {
    /// What it answers.
    type Reply: FromReply;
    /// The wire name.
    const NAME: &'static str;
}

/// Takes a typed reply out of the enum that batches carry.
pub trait FromReply: Sized {
    /// The reply, if it is of this type.
    fn from_reply(reply: Reply) -> Option<Self>;
}

/// The reply of a command that has nothing to tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Done {}

macro_rules! commands {
    ($($name:ident = $op:literal => $reply:ident;)*) => {
        /// Any command.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "each variant is the command of its name")]
        #[allow(clippy::large_enum_variant, reason = "the largest is the most common; a box would cost it an allocation")]
        pub enum Command { $($name($name),)* }

        $(
            impl Op for $name {
                type Reply = $reply;
                const NAME: &'static str = $op;
            }
            impl From<$name> for Command {
                fn from(command: $name) -> Self { Self::$name(command) }
            }
        )*

        impl Command {
            /// The wire names of all commands.
            pub const NAMES: &'static [&'static str] = &[$($op),*];

            /// The wire name.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$name(_) => $op,)* }
            }

            /// Notes all that is wrong with it.
            pub fn check(&self, check: &mut Check) {
                match self { $(Self::$name(command) => command.check(check),)* }
            }

            /// Reads the fields of the command called `op`.
            fn read(op: &str, fields: &Fields) -> Result<Self> {
                match op {
                    $($op => fields.read().map(Self::$name),)*
                    _ => Err(Error::invalid("op", format!("there is no command `{op}`"))
                        .hint(format!("the commands are {}", Self::NAMES.join(", ")))),
                }
            }

            /// Reads a reply that was written for this command.
            pub fn read_reply(&self, text: &str) -> Result<Reply> {
                match self {
                    $(Self::$name(_) => serde_json::from_str::<$reply>(text).map(Reply::$reply),)*
                }
                .map_err(|e| Error::corrupt(format!("a stored reply of {}: {e}", self.name())))
            }
        }

        impl Serialize for Command {
            fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                #[derive(Serialize)]
                struct Tagged<'a, T> {
                    op: &'static str,
                    #[serde(flatten)]
                    command: &'a T,
                }
                match self {
                    $(Self::$name(command) => Tagged { op: $op, command }.serialize(serializer),)*
                }
            }
        }
    };
}

macro_rules! replies {
    ($($reply:ident),*) => {
        /// Any reply. Outside this crate typed handles take its place.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(untagged)]
        #[allow(missing_docs, reason = "each variant is the reply of its name")]
        pub enum Reply { $($reply($reply),)* }

        $(impl FromReply for $reply {
            fn from_reply(reply: Reply) -> Option<Self> {
                match reply { Reply::$reply(reply) => Some(reply), _ => None }
            }
        })*
    };
}

commands! {
    TaskCreate = "task.create" => Created;
    TaskStart = "task.start" => Task;
    TaskRenew = "task.renew" => Renewed;
    TaskComplete = "task.complete" => Task;
    TaskFail = "task.fail" => Task;
    TaskRelease = "task.release" => Task;
    TaskSuspend = "task.suspend" => Task;
    TaskSignal = "task.signal" => Task;
    TaskCancel = "task.cancel" => Task;
    TaskEvict = "task.evict" => Task;
    TaskRetry = "task.retry" => Task;
    TaskPromote = "task.promote" => Task;
    TaskPark = "task.park" => Task;
    TaskAmend = "task.amend" => Task;
    TaskPurge = "task.purge" => Done;
    QueueSet = "queue.set" => QueueState;
    StreamAppend = "stream.append" => Appended;
    StreamTrim = "stream.trim" => Trimmed;
    StreamPurge = "stream.purge" => Trimmed;
    GroupAck = "group.ack" => Done;
    GroupNack = "group.nack" => Done;
    GroupSeek = "group.seek" => Done;
    DocumentPut = "document.put" => DocumentRevision;
    DocumentDelete = "document.delete" => Existed;
    EntrySet = "entry.set" => EntryExpiry;
    EntryTake = "entry.take" => TakenEntry;
    EntryDelete = "entry.delete" => Existed;
    LockAcquire = "lock.acquire" => LockAcquired;
    LockRenew = "lock.renew" => LockRenewed;
    LockRelease = "lock.release" => Done;
    LockForceRelease = "lock.force_release" => LockFreed;
}

replies! {
    Created, Task, Renewed, Done, QueueState, Appended, Trimmed, DocumentRevision, Existed, EntryExpiry,
    TakenEntry, LockAcquired, LockRenewed, LockFreed
}

impl Command {
    /// Reads one command, `{"op": "task.complete", …}`. Unknown fields and names are refused.
    ///
    /// ```
    /// use statehold_core::command::Command;
    ///
    /// let command = Command::from_json(r#"{"op": "entry.take", "key": "result/7"}"#).unwrap();
    /// assert_eq!(command.name(), "entry.take");
    /// let error = Command::from_json(r#"{"op": "entry.take", "kee": "result/7"}"#).unwrap_err();
    /// assert!(error.message().contains("unknown field `kee`"));
    /// ```
    pub fn from_json(text: &str) -> Result<Self> {
        let mut fields = Fields::parse(text)?;
        let op: String = fields.take("op")?.ok_or_else(|| Error::invalid("op", "is missing"))?;
        Self::read(&op, &fields)
    }
}

impl<'de> Deserialize<'de> for Command {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::from_json(raw.get()).map_err(|e| serde::de::Error::custom(e.message()))
    }
}
