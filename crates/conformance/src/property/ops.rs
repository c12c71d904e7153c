//! Operations as they are generated: symbolic wherever they need an id, a token or a position, so that a
//! shorter sequence still means something.

use std::fmt;

use statehold_core::Status;

use super::questions::Query;

/// One operation of a sequence.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// A batch.
    Batch(BatchOp),
    /// An earlier batch with a key once more, as it was sent.
    Repeat { nth: u8 },
    /// A claim.
    Claim { queues: Vec<u8>, owner: u8, limit: u32, lease: Option<u64>, key: Option<u8> },
    /// A read for a consumer of a group.
    Read { group: u8, source: Src, consumer: u8, limit: u32, visibility: u64, most: u32, key: Option<u8> },
    /// A sweep.
    Sweep { limit: u32, retention: Option<Keep> },
    /// Moves the clock, by microseconds.
    Step(i64),
    /// A question.
    Ask(Query),
}

/// A batch of a few commands.
#[derive(Clone, Debug)]
pub(crate) struct BatchOp {
    pub(crate) actor: Option<u8>,
    /// The key, and for how many seconds it is kept.
    pub(crate) key: Option<(u8, u64)>,
    pub(crate) fences: Vec<FenceOp>,
    pub(crate) acts: Vec<Act>,
}

impl BatchOp {
    /// The batches with one thing less.
    pub(crate) fn smaller(&self) -> Vec<Self> {
        let mut found = Vec::new();
        for index in (0..self.acts.len()).filter(|_| self.acts.len() > 1) {
            let mut acts = self.acts.clone();
            acts.remove(index);
            found.push(Self { acts, ..self.clone() });
        }
        found.extend((!self.fences.is_empty()).then(|| Self { fences: Vec::new(), ..self.clone() }));
        found.extend(self.key.map(|_| Self { key: None, ..self.clone() }));
        found.extend(self.actor.map(|_| Self { actor: None, ..self.clone() }));
        found
    }
}

/// A task.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// The nth of those with a status.
    At(Status, u8),
    /// The one that a slot stands for.
    Slot(u8),
    /// The first in line for the nth exclusive key that somebody waits for.
    First(u8),
}

impl Which {
    /// Its number, for something that is done instead.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::At(_, n) | Self::Slot(n) | Self::First(n) => n,
        }
    }
}

/// A token.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tok {
    /// The last that was given.
    Current,
    /// One that was given before.
    Stale,
    /// One that was never given.
    Wrong,
}

/// A stream.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Str {
    /// One of three.
    Room(u8),
    /// A task's.
    Task(Which),
    /// In the category of tasks, but of none.
    Nobody,
    /// A group's dead letters.
    Dead(u8),
    /// Administrative acts.
    Audit,
}

/// What a group reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Src {
    Room(u8),
    Rooms,
    Tasks,
    Dead,
}

/// Something that the caller must still hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FenceOp {
    Task(Which, Tok),
    Lock(u8, Tok),
    Delivery { group: u8, source: Src, token: Tok },
}

/// What retention may remove.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep {
    /// For how many seconds completed, failed and cancelled tasks stay.
    pub(crate) tasks: [Option<u64>; 3],
    /// How many events rooms keep, and for how many seconds audit events stay.
    pub(crate) rooms: Option<u64>,
    pub(crate) audit: Option<u64>,
}

/// How a create names its task.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NewId {
    /// The id that its slot stands for.
    Same,
    /// The next id of its slot.
    Fresh,
    /// None.
    Generated,
}

/// A task to create.
#[derive(Clone)]
pub(crate) struct New {
    pub(crate) slot: u8,
    pub(crate) id: NewId,
    pub(crate) queue: u8,
    /// What it carries.
    pub(crate) shape: u8,
    pub(crate) parent: Option<Which>,
    pub(crate) child_key: Option<u8>,
    pub(crate) depends_on: Vec<Which>,
    pub(crate) idempotency_key: Option<u8>,
    pub(crate) returns: bool,
    pub(crate) exclusive_key: Option<u8>,
    pub(crate) rejects: bool,
    /// Seconds from now.
    pub(crate) run_in: Option<i64>,
    pub(crate) expires_in: Option<i64>,
    pub(crate) timeout: Option<u64>,
    pub(crate) tries: Option<u32>,
    pub(crate) losses: Option<u32>,
    pub(crate) backlog: bool,
}

impl New {
    /// A task without anything special.
    pub(crate) fn plain(slot: u8) -> Self {
        Self {
            slot,
            id: NewId::Fresh,
            queue: slot,
            shape: 0,
            parent: None,
            child_key: None,
            depends_on: Vec::new(),
            idempotency_key: None,
            returns: false,
            exclusive_key: None,
            rejects: false,
            run_in: None,
            expires_in: None,
            timeout: None,
            tries: None,
            losses: None,
            backlog: false,
        }
    }
}

/// Tells only what is special.
impl fmt::Debug for New {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "New {{ slot: {}, id: {:?}, queue: {}, shape: {}",
            self.slot, self.id, self.queue, self.shape
        )?;
        let special = [
            ("parent", self.parent.map(|which| format!("{which:?}"))),
            ("child_key", self.child_key.map(|key| key.to_string())),
            ("depends_on", (!self.depends_on.is_empty()).then(|| format!("{:?}", self.depends_on))),
            ("idempotency_key", self.idempotency_key.map(|key| key.to_string())),
            ("exclusive_key", self.exclusive_key.map(|key| key.to_string())),
            ("run_in", self.run_in.map(|run_in| run_in.to_string())),
            ("expires_in", self.expires_in.map(|expires_in| expires_in.to_string())),
            ("timeout", self.timeout.map(|timeout| timeout.to_string())),
            ("tries", self.tries.map(|tries| tries.to_string())),
            ("losses", self.losses.map(|losses| losses.to_string())),
            ("returns", self.returns.then(String::new)),
            ("rejects", self.rejects.then(String::new)),
            ("backlog", self.backlog.then(String::new)),
        ];
        for (name, value) in special {
            value.map_or(Ok(()), |value| write!(f, ", {name} {value}"))?;
        }
        f.write_str(" }")
    }
}

/// What a suspend waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    Signal(u8),
    Children,
    /// Seconds from now.
    Until(i64),
}

/// How much of a stream to keep.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    Length(u64),
    Age(u64),
    /// This many before the head.
    Behind(u64),
}

/// What the head of a stream is expected to be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Head {
    Right,
    Wrong,
}

/// Where a group goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To {
    Oldest,
    Latest,
    /// After the nth event that is there.
    Nth(u8),
    /// After nothing at all.
    Start,
}

/// What a document must be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Must {
    Any,
    Absent,
    /// At the current revision, plus this.
    At(u64),
}

/// One command.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Create(New),
    /// The nth last create once more, with the same request.
    CreateAgain {
        nth: u8,
        returns: bool,
    },
    Start {
        task: Which,
        owner: u8,
        lease: Option<u64>,
    },
    Renew {
        task: Which,
        token: Tok,
        lease: Option<u64>,
        progress: bool,
    },
    Complete {
        task: Which,
        token: Tok,
        output: bool,
    },
    Fail {
        task: Which,
        token: Tok,
        retry: bool,
    },
    Release {
        task: Which,
        token: Tok,
        run_in: Option<i64>,
    },
    Suspend {
        task: Which,
        token: Tok,
        wait: Wait,
        timeout: Option<u64>,
        fails: bool,
    },
    Signal {
        task: Which,
        name: u8,
    },
    Cancel {
        task: Which,
        force: bool,
        children: bool,
    },
    Evict {
        task: Which,
    },
    Retry {
        task: Which,
        deep: bool,
    },
    Promote {
        task: Which,
    },
    Park {
        task: Which,
        rank: Option<i64>,
    },
    Amend {
        task: Which,
        revision: Option<u64>,
        shape: u8,
        run_in: Option<i64>,
        expires_in: Option<i64>,
    },
    Purge {
        task: Which,
    },
    Pause {
        queue: u8,
        paused: bool,
    },
    Append {
        stream: Str,
        events: u8,
        head: Option<Head>,
    },
    Trim {
        stream: Str,
        to: Cut,
    },
    PurgeStream {
        stream: Str,
    },
    Ack {
        group: u8,
        source: Src,
        token: Tok,
        count: u8,
    },
    Nack {
        group: u8,
        source: Src,
        token: Tok,
        count: u8,
        delay: Option<u64>,
    },
    Seek {
        group: u8,
        source: Src,
        to: To,
    },
    Put {
        document: u8,
        must: Must,
        ttl: Option<u64>,
        binary: bool,
    },
    Delete {
        document: u8,
        must: Must,
    },
    SetEntry {
        entry: u8,
        ttl: u64,
        if_absent: bool,
    },
    TakeEntry {
        entry: u8,
    },
    DeleteEntry {
        entry: u8,
    },
    Acquire {
        lock: u8,
        owner: u8,
        ttl: u64,
    },
    RenewLock {
        lock: u8,
        token: Tok,
        ttl: u64,
    },
    ReleaseLock {
        lock: u8,
        token: Tok,
    },
    ForceRelease {
        lock: u8,
    },
}
