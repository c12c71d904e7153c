//! Rows that this process wrote last, each with the transaction that did. Who needs no others can be decided without
//! asking the server first: it refuses if one of them is not as that transaction left it.

use std::collections::BTreeSet;
use std::mem::take;
use std::sync::Arc;

use statehold_core::Timestamp;
use statehold_core::model::{Document, Entry};
use statehold_core::plan::{Map, Needs, Rows};
use statehold_core::row::{LockRow, PollerKey, PollerRow, Record, StreamRow, TaskRow};

use crate::absent::{Absent, Guesses, Kind};
use crate::rows::{Changes, Table};

/// How many bytes of rows are remembered. Once a half of them is new, those from before are forgotten.
const MOST: usize = 64 << 20;

/// How many of those who ask queues are remembered.
const MOST_POLLERS: usize = 10_000;

/// Rows of a kind, in namespaces by their numbers.
type Remembered<R> = Map<(i64, <R as Record>::Key), Memory<R>>;

/// A row, as a transaction left it.
pub(crate) struct Memory<R> {
    row: Arc<R>,
    version: i32,
    age: u64,
}

/// How rows tell which transaction left them, by what the positions of its events begin with: the lower half of its number.
pub(crate) fn version_of(ord: i64) -> i32 {
    let [a, b, c, d, ..] = ord.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// Rows as this process left them, with the lower half of the number of the transaction.
#[derive(Default)]
pub(crate) struct Known {
    tasks: Remembered<TaskRow>,
    locks: Remembered<LockRow>,
    documents: Remembered<Document>,
    entries: Remembered<Entry>,
    streams: Remembered<StreamRow>,
    /// When it was noted who asks a queue; that only grows.
    pollers: Map<(i64, PollerKey), Timestamp>,
    /// Counts the servers that were connected to: another one may give the same numbers to other transactions.
    server: u64,
    /// Counts how often rows were forgotten.
    age: u64,
    /// How many bytes of rows were learned since and are still known.
    weight: usize,
}

/// Does something with each kind of row that is remembered, in whatever has them in fields of these names.
macro_rules! each_kind {
    ($all:expr, |$kind:ident| $do:expr) => {
        $crate::known::each_kind!($all, |$kind| $do; tasks, locks, documents, entries, streams)
    };
    ($all:expr, |$kind:ident| $do:expr; $($table:ident),*) => {
        $({
            let $kind = &$all.$table;
            $do;
        })*
    };
}
pub(crate) use each_kind;

/// A kind of row that is remembered.
pub(crate) trait Memorable: Table {
    fn remembered(known: &mut Known) -> &mut Remembered<Self>;
    fn wanted(needs: &mut Needs) -> &mut BTreeSet<Self::Key>;
    fn recalled(recalled: &mut Recalled) -> &mut Versions<Self>;
    /// Those that are taken for absent, and which kind of guess that is; none if that is never done.
    fn absent(absent: &mut Absent) -> Option<(Kind, &mut BTreeSet<Self::Key>)>;

    /// Whether it is worth it, and nothing but another transaction changes what it means.
    fn is_lasting(&self) -> bool {
        true
    }
}

macro_rules! memorable {
    ($row:ty, $table:ident, |$absent:ident| $guess:expr $(, |$this:ident| $lasting:expr)?) => {
        impl Memorable for $row {
            fn remembered(known: &mut Known) -> &mut Remembered<Self> {
                &mut known.$table
            }

            fn wanted(needs: &mut Needs) -> &mut BTreeSet<Self::Key> {
                &mut needs.$table
            }

            fn recalled(recalled: &mut Recalled) -> &mut Versions<Self> {
                &mut recalled.$table
            }

            fn absent($absent: &mut Absent) -> Option<(Kind, &mut BTreeSet<Self::Key>)> {
                $guess
            }

            $(fn is_lasting(&self) -> bool {
                let $this = self;
                $lasting
            })?
        }
    };
}

// Who holds a task asks for it again; who claims one reads it anyway.
memorable!(TaskRow, tasks, |_absent| None, |row| row.task.lease.is_some());
// A lock of a session is free when the session is over, and nobody writes that.
memorable!(LockRow, locks, |absent| Some((Kind::Locks, &mut absent.locks)), |row| row
    .holder
    .as_ref()
    .is_none_or(|holder| holder.session.is_none()));
memorable!(Document, documents, |absent| Some((Kind::Documents, &mut absent.documents)));
memorable!(Entry, entries, |absent| Some((Kind::Entries, &mut absent.entries)));
memorable!(StreamRow, streams, |absent| Some((Kind::Streams, &mut absent.streams)));

/// By which transactions rows of a kind were left, as they are remembered.
pub(crate) type Versions<R> = Map<<R as Record>::Key, i32>;

/// The rows that were read from memory, with the transactions that left them so, and those that were taken for absent.
#[derive(Default)]
pub(crate) struct Recalled {
    pub(crate) absent: Absent,
    pub(crate) tasks: Versions<TaskRow>,
    pub(crate) locks: Versions<LockRow>,
    pub(crate) documents: Versions<Document>,
    pub(crate) entries: Versions<Entry>,
    pub(crate) streams: Versions<StreamRow>,
}

impl Recalled {
    /// How many there are, the absent ones apart.
    pub(crate) fn len(&self) -> usize {
        let mut rows = 0;
        each_kind!(self, |kind| rows += kind.len());
        rows
    }
}

impl Known {
    /// Gives a plan what it needs. None, and nothing of it, if something else is needed.
    pub(crate) fn supply(
        &self,
        ns: i64,
        mut needs: Needs,
        guesses: Guesses,
        rows: &mut Rows,
        recalled: &mut Recalled,
    ) -> Option<()> {
        let mut wanted = Needs::default();
        each_kind!(self, |kind| wants(kind, ns, guesses, &mut needs, &mut wanted)?);
        if guesses.include(Kind::Answers) {
            wanted.answers = take(&mut needs.answers);
        }
        if guesses.include(Kind::IdempotencyKeys) {
            wanted.idempotency_keys = take(&mut needs.idempotency_keys);
        }
        if guesses.include(Kind::Documents) {
            wanted.floors = take(&mut needs.floors);
        } else if !wanted.documents.is_empty() {
            // They are asked for in case that documents are not there.
            needs.floors.clear();
        }
        if !needs.is_empty() {
            return None;
        }
        let missing = wanted.documents.iter().any(|key| !self.documents.contains_key(&(ns, key.clone())));
        if !missing && !wanted.documents.is_empty() {
            wanted.floors.clear();
        }
        each_kind!(self, |kind| supply(kind, ns, &mut wanted, rows, recalled));
        recalled.absent.take(wanted, rows);
        Some(())
    }

    /// Which server the rows are from.
    pub(crate) fn server(&self) -> u64 {
        self.server
    }

    /// Forgets everything: this may be another server.
    pub(crate) fn begin_anew(&mut self) {
        *self = Self { server: self.server + 1, ..Self::default() };
    }

    /// Forgets rows that are about to be written.
    pub(crate) fn forget<R: Memorable>(&mut self, ns: i64, changes: &Changes<R>) {
        for key in changes.keys() {
            if let Some(memory) = R::remembered(self).remove(&(ns, key.clone()))
                && memory.age == self.age
            {
                self.weight = self.weight.saturating_sub(memory.row.weight());
            }
        }
    }

    /// Remembers rows as a transaction has left them.
    pub(crate) fn learn<'a, R: Memorable>(
        &mut self,
        ns: i64,
        rows: impl IntoIterator<Item = &'a Arc<R>>,
        version: i32,
    ) {
        for row in rows.into_iter().filter(|row| row.is_lasting()) {
            self.weight += row.weight();
            let memory = Memory { row: Arc::clone(row), version, age: self.age };
            R::remembered(self).insert((ns, row.key()), memory);
        }
        if self.weight > MOST / 2 {
            self.forget_old();
        }
    }

    /// When it was noted that somebody asks a queue.
    pub(crate) fn asked(&self, ns: i64, key: PollerKey) -> Option<Timestamp> {
        self.pollers.get(&(ns, key)).copied()
    }

    /// Remembers who was noted as one who asks.
    pub(crate) fn note_asking<'a>(&mut self, ns: i64, pollers: impl IntoIterator<Item = &'a Arc<PollerRow>>) {
        if self.pollers.len() > MOST_POLLERS {
            self.pollers.clear();
        }
        self.pollers.extend(pollers.into_iter().map(|row| ((ns, row.key()), row.at)));
    }

    /// Forgets rows that were learned before the last time this was done.
    fn forget_old(&mut self) {
        let age = self.age;
        self.tasks.retain(|_, memory| memory.age == age);
        self.locks.retain(|_, memory| memory.age == age);
        self.documents.retain(|_, memory| memory.age == age);
        self.entries.retain(|_, memory| memory.age == age);
        self.streams.retain(|_, memory| memory.age == age);
        (self.age, self.weight) = (age + 1, 0);
    }
}

/// Takes over the keys of a kind, if all of them are known or can be taken for absent.
fn wants<R: Memorable>(
    remembered: &Remembered<R>,
    ns: i64,
    guesses: Guesses,
    needs: &mut Needs,
    wanted: &mut Needs,
) -> Option<()> {
    let keys = take(R::wanted(needs));
    let may_be_absent = R::absent(&mut Absent::default()).is_some_and(|(kind, _)| guesses.include(kind));
    let had = may_be_absent || keys.iter().all(|key| remembered.contains_key(&(ns, key.clone())));
    *R::wanted(wanted) = keys;
    had.then_some(())
}

/// Gives a plan the rows of a kind.
fn supply<R: Memorable>(
    remembered: &Remembered<R>,
    ns: i64,
    wanted: &mut Needs,
    rows: &mut Rows,
    recalled: &mut Recalled,
) {
    for key in take(R::wanted(wanted)) {
        if let Some(memory) = remembered.get(&(ns, key.clone())) {
            R::recalled(recalled).insert(key.clone(), memory.version);
            rows.load(key, Some(Arc::clone(&memory.row)));
        } else if let Some((_, absent)) = R::absent(&mut recalled.absent) {
            absent.insert(key.clone());
            rows.load::<R>(key, None);
        }
    }
}

/// How long it is not relied on what is known after that was wrong, in groups of requests: longer each time.
#[derive(Default)]
pub(crate) struct Caution {
    left: u32,
    next: u32,
}

impl Caution {
    /// The longest, for processes that change the same rows all the time.
    const MOST: u32 = 256;

    /// Whether it is time to rely on it.
    pub(crate) fn dares(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    pub(crate) fn was_right(&mut self) {
        self.next /= 2;
    }

    pub(crate) fn was_wrong(&mut self) {
        self.next = (self.next * 2 + 2).min(Self::MOST);
        self.left = self.next;
    }
}
