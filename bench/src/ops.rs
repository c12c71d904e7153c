//! What is measured: the operations, and the bodies that they carry.

use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::sync::Arc;

/// One measured operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Creates a task.
    TaskCreate,
    /// Claims one task of many that are ready.
    TaskClaim,
    /// Completes a claimed task.
    TaskComplete,
    /// Creates, claims and completes, one after the other.
    TaskCycle,
    /// Acquires a lock and releases it.
    LockCycle,
    /// Appends an event to one of many streams.
    StreamAppend,
    /// Appends an event to the one stream that all callers use.
    StreamAppendHot,
    /// Sets an entry.
    EntrySet,
    /// Reads an entry.
    EntryGet,
    /// Reads the last 50 messages of a thread.
    MessagesLast50,
    /// Replaces a document of 2 KB if its revision is the expected one.
    DocumentUpdate,
    /// Stores a new checkpoint of 4 KB.
    CheckpointPut,
    /// Reads a checkpoint of 4 KB.
    CheckpointGet,
    /// Completes a task, appends, puts a document and releases a lock, all or nothing.
    BatchSettle,
}

impl Op {
    /// All of them, in the order in which they are measured.
    pub const ALL: [Self; 14] = [
        Self::TaskCreate,
        Self::TaskClaim,
        Self::TaskComplete,
        Self::TaskCycle,
        Self::LockCycle,
        Self::StreamAppend,
        Self::StreamAppendHot,
        Self::EntrySet,
        Self::EntryGet,
        Self::MessagesLast50,
        Self::DocumentUpdate,
        Self::CheckpointPut,
        Self::CheckpointGet,
        Self::BatchSettle,
    ];

    /// Its name, as in `--op`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TaskCreate => "task.create",
            Self::TaskClaim => "task.claim",
            Self::TaskComplete => "task.complete",
            Self::TaskCycle => "task.cycle",
            Self::LockCycle => "lock.cycle",
            Self::StreamAppend => "stream.append",
            Self::StreamAppendHot => "stream.append.hot",
            Self::EntrySet => "entry.set",
            Self::EntryGet => "entry.get",
            Self::MessagesLast50 => "messages.last50",
            Self::DocumentUpdate => "document.update",
            Self::CheckpointPut => "checkpoint.put",
            Self::CheckpointGet => "checkpoint.get",
            Self::BatchSettle => "batch.settle",
        }
    }

    /// Whether each call uses up something that was prepared for it.
    pub const fn uses_stock(self) -> bool {
        matches!(self, Self::TaskClaim | Self::TaskComplete | Self::BatchSettle)
    }

    /// Whether no two calls of a slice may have the same receipt.
    pub const fn has_unique_receipts(self) -> bool {
        matches!(
            self,
            Self::TaskCreate
                | Self::TaskClaim
                | Self::TaskComplete
                | Self::TaskCycle
                | Self::StreamAppendHot
                | Self::BatchSettle
        )
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Op {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|op| op.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|op| op.name()).collect();
            format!("`{text}` is not measured\nhint: choose from {}", names.join(", "))
        })
    }
}

/// How many entries, threads and checkpoints there are to choose from.
pub(crate) const KEYS: u64 = 1000;
/// How many streams `stream.append` writes to.
pub(crate) const STREAMS: u64 = 1000;
/// How many threads `messages.last50` reads.
pub(crate) const THREADS: u64 = 100;
/// How many messages a thread has.
pub(crate) const MESSAGES: u64 = 200;
/// How many documents and locks each caller has to itself.
pub(crate) const OWN: u64 = 16;
/// How long leases, locks and entries last: longer than any run.
pub(crate) const LONG_SECONDS: u64 = 86_400;

/// The bodies, as JSON text.
#[derive(Clone, Debug)]
pub(crate) struct Bodies {
    /// A task's input.
    pub(crate) input: Arc<str>,
    /// A task's output.
    pub(crate) output: Arc<str>,
    /// A message or another event.
    pub(crate) event: Arc<str>,
    /// The value of an entry.
    pub(crate) entry: Arc<str>,
    /// A document of 2 KB.
    pub(crate) document: Arc<str>,
    /// A checkpoint of 4 KB.
    pub(crate) checkpoint: Arc<str>,
}

impl Bodies {
    pub(crate) fn new() -> Self {
        Self {
            input: body(120),
            output: body(60),
            event: body(200),
            entry: body(100),
            document: body(2048),
            checkpoint: body(4096),
        }
    }
}

/// A JSON object of this many bytes, of short members as programs write them.
fn body(bytes: usize) -> Arc<str> {
    let mut text = String::from("{");
    let mut member = 0;
    while text.len() + 60 < bytes {
        let _ = write!(text, r#""field_{member}":"the answer is {}","#, member * 7919 % 1000);
        member += 1;
    }
    let rest = bytes.saturating_sub(text.len() + r#""text":""}"#.len());
    let _ = write!(text, r#""text":"{}"}}"#, "x".repeat(rest));
    text.into()
}

/// Spreads calls over `keys` numbers in an order that no cache likes.
pub(crate) fn scatter(caller: usize, call: u64, keys: u64) -> u64 {
    let mixed = (call ^ ((caller as u64) << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 32) % keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_found_by_its_name() {
        for op in Op::ALL {
            assert_eq!(op.name().parse(), Ok(op));
        }
        assert!("task.destroy".parse::<Op>().is_err());
    }

    #[test]
    fn bodies_are_json_of_the_promised_size() {
        let bodies = Bodies::new();
        for (body, size) in [(&bodies.input, 120), (&bodies.document, 2048), (&bodies.checkpoint, 4096)] {
            assert_eq!(body.len(), size);
            assert!(serde_json::from_str::<serde_json::Value>(body).is_ok(), "{body}");
        }
    }
}
