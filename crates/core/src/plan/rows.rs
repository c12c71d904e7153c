//! What a plan reads and writes: loaded rows, what is still missing, and effects. A backend fills [`Rows`]
//! with what [`Needs`] asks for and stores what [`Effects`] say.

use std::collections::BTreeSet;
use std::collections::hash_map::Entry as Place;
use std::sync::Arc;

use super::lookup::{
    Child, Cut, DeliverySelect, EventAt, Expired, Idempotency, Latest, Lookup, Overgrown, Polled, TaskSelect,
    Unread,
};
use crate::model::{Document, Entry, Event, Position, StreamName, TaskId};
use crate::row::{
    AnswerRow, Change, ChoreRow, DeliveryKey, DeliveryRow, ExclusiveRow, FloorRow, GroupKey, GroupRow,
    LockRow, PollerRow, QueueRow, Record, SignalsRow, StreamRow, TaskRow,
};

/// Maps are looked into many times for each request, so they hash quickly; seeds are random, since keys are callers'.
pub type Map<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
type Set<K> = std::collections::HashSet<K, foldhash::fast::RandomState>;

/// About how many bytes it takes to know that there is no row.
const ABSENT: usize = 128;

/// A kind of row that plans read and write.
pub trait Kept: Record {
    /// The loaded rows of this kind.
    fn loaded(rows: &Rows) -> &Map<Self::Key, Option<Arc<Self>>>;
    /// The same, to be filled.
    fn loaded_mut(rows: &mut Rows) -> &mut Map<Self::Key, Option<Arc<Self>>>;
    /// The changes of this kind.
    fn changes(effects: &mut Effects) -> &mut Vec<Change<Self>>;
    /// The missing keys of this kind.
    fn missing(needs: &mut Needs) -> &mut BTreeSet<Self::Key>;
    /// Where the change of each key is among the changes of this kind.
    fn places(places: &mut Places) -> &mut Map<Self::Key, usize>;
}

/// A lookup whose answers a plan reads.
pub trait Asked: Lookup {
    /// The answers that are there.
    fn answers(rows: &Rows) -> &Map<Self, Self::Answer>;
    /// The same, to be filled.
    fn answers_mut(rows: &mut Rows) -> &mut Map<Self, Self::Answer>;
    /// The lookups that are missing.
    fn asked(needs: &mut Needs) -> &mut BTreeSet<Self>;
}

macro_rules! tables {
    (rows { $($table:ident: $row:ty,)* } lookups { $($lookups:ident: $lookup:ty,)* }) => {
        /// Rows of one namespace as far as they were loaded, with the effects of accepted plans laid over
        /// them. A key with `None` is known to be absent.
        #[derive(Clone, Debug, Default)]
        pub struct Rows {
            $($table: Map<<$row as Record>::Key, Option<Arc<$row>>>,)*
            $($lookups: Map<$lookup, <$lookup as Lookup>::Answer>,)*
            /// The tasks and deliveries that accepted plans changed, which the store does not know yet.
            pub(super) changed_tasks: Set<TaskId>,
            pub(super) changed_deliveries: Set<DeliveryKey>,
            pub(super) cleared_groups: Set<GroupKey>,
            weight: usize,
            pub(super) independent: bool,
        }

        /// Rows and lookups that a plan is missing. Load them, each table's keys in order, and plan again.
        ///
        /// A set has an owner, and every plan that brings a task into it reads the owner's row too: dependents
        /// belong to the task they depend on, children to their parent, contenders to the row of their
        /// exclusive key. So a store that holds the rows of a plan (locked, or by version) until its commit
        /// holds its sets as well, if it reads a set after it has the owner. What leaves a set changes its own
        /// row, which was read with the set.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Needs {
            $(#[doc = concat!("Keys of ", stringify!($table), ".")]
            pub $table: BTreeSet<<$row as Record>::Key>,)*
            $(#[doc = concat!("Lookups of ", stringify!($lookups), ".")]
            pub $lookups: BTreeSet<$lookup>,)*
        }

        /// What an accepted plan leaves: at most one change a row, and events in order.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Effects {
            $(#[doc = concat!("Changes of ", stringify!($table), ".")]
            pub $table: Vec<Change<$row>>,)*
            /// Events to append; their sequence numbers are given, their positions are the store's.
            pub events: Vec<Appending>,
            /// Prefixes of streams to remove, after the appends.
            pub trims: Vec<Trim>,
            /// Groups whose deliveries are all to be removed, before the changes of deliveries.
            pub cleared: Vec<GroupKey>,
        }

        $(impl Kept for $row {
            fn loaded(rows: &Rows) -> &Map<Self::Key, Option<Arc<Self>>> { &rows.$table }
            fn loaded_mut(rows: &mut Rows) -> &mut Map<Self::Key, Option<Arc<Self>>> { &mut rows.$table }
            fn changes(effects: &mut Effects) -> &mut Vec<Change<Self>> { &mut effects.$table }
            fn missing(needs: &mut Needs) -> &mut BTreeSet<Self::Key> { &mut needs.$table }
            fn places(places: &mut Places) -> &mut Map<Self::Key, usize> { &mut places.$table }
        })*

        /// Where each key's change is among the effects of a plan at work.
        #[derive(Debug, Default)]
        pub struct Places {
            $($table: Map<<$row as Record>::Key, usize>,)*
        }

        $(impl Asked for $lookup {
            fn answers(rows: &Rows) -> &Map<Self, Self::Answer> { &rows.$lookups }
            fn answers_mut(rows: &mut Rows) -> &mut Map<Self, Self::Answer> { &mut rows.$lookups }
            fn asked(needs: &mut Needs) -> &mut BTreeSet<Self> { &mut needs.$lookups }
        })*

        impl Needs {
            /// Whether nothing is missing.
            pub fn is_empty(&self) -> bool {
                $(self.$table.is_empty())&&* $(&& self.$lookups.is_empty())*
            }

            /// Adds what another plan is missing.
            pub fn merge(&mut self, other: Self) {
                $(gather(&mut self.$table, other.$table);)*
                $(gather(&mut self.$lookups, other.$lookups);)*
            }
        }

        impl Effects {
            /// Whether there is nothing to store.
            pub fn is_empty(&self) -> bool {
                $(self.$table.is_empty())&&* && self.events.is_empty() && self.trims.is_empty() && self.cleared.is_empty()
            }
        }

        impl Effects {
            /// Forgets rows that came and went within the plan.
            pub(super) fn drop_ghosts(&mut self) {
                $(self.$table.retain(|change| change.before.is_some() || change.after.is_some());)*
            }
        }

        impl Rows {
            /// Lays the effects of an accepted plan over the rows, for plans after it in the same commit.
            pub fn accept(&mut self, effects: &Effects) {
                $(for change in &effects.$table {
                    self.$table.insert(change.key.clone(), change.after.clone());
                })*
                self.accept_indexes(effects);
            }

            /// Forgets the answers of lookups: a store that is given effects as they are accepted answers them
            /// anew for each request, while the rows stay known.
            pub fn forget_lookups(&mut self) {
                $(self.$lookups.clear();)*
            }

            /// Takes over the effects of an accepted plan that the store has been given, in a commit that is still
            /// open. Unlike [`accept`](Self::accept), lookups see them in the store.
            pub fn stored(&mut self, effects: &Effects) {
                $(for change in &effects.$table {
                    self.weight += weight(change.after.as_ref());
                    let replaced = self.$table.insert(change.key.clone(), change.after.clone());
                    self.weight -= replaced.map_or(0, |row| weight(row.as_ref()));
                })*
                self.let_go(effects);
                if !effects.cleared.is_empty() {
                    self.weight -= self.deliveries.values().map(|row| weight(row.as_ref())).sum::<usize>();
                    self.deliveries.clear();
                }
            }
        }
    };
}

tables! {
    rows {
        answers: AnswerRow,
        queues: QueueRow,
        pollers: PollerRow,
        tasks: TaskRow,
        signals: SignalsRow,
        exclusives: ExclusiveRow,
        chores: ChoreRow,
        locks: LockRow,
        documents: Document,
        floors: FloorRow,
        entries: Entry,
        groups: GroupRow,
        deliveries: DeliveryRow,
        streams: StreamRow,
    }
    lookups {
        idempotency_keys: Idempotency,
        child_keys: Child,
        task_sets: TaskSelect,
        delivery_sets: DeliverySelect,
        cuts: Cut,
        unread: Unread,
        events_at: EventAt,
        latest: Latest,
        polled: Polled,
        overgrown: Overgrown,
        expired: Expired,
    }
}

/// Most plans are missing few kinds, so most sets are empty.
fn gather<T: Ord>(all: &mut BTreeSet<T>, some: BTreeSet<T>) {
    if all.is_empty() {
        *all = some;
    } else if !some.is_empty() {
        all.extend(some);
    }
}

fn weight<R: Record>(row: Option<&Arc<R>>) -> usize {
    row.map_or(ABSENT, |row| row.weight())
}

impl Needs {
    /// Whether something is asked about streams beyond their rows, for a store that writes these late.
    pub fn reads_streams(&self) -> bool {
        !(self.cuts.is_empty() && self.unread.is_empty() && self.overgrown.is_empty())
    }
}

impl Rows {
    /// Puts a loaded row, or its absence. What an accepted plan has changed stays.
    pub fn load<R: Kept>(&mut self, key: R::Key, row: Option<Arc<R>>) {
        let added = weight(row.as_ref());
        if let Place::Vacant(place) = R::loaded_mut(self).entry(key) {
            place.insert(row);
            self.weight += added;
        }
    }

    /// Says that no stored task depends on another, so that plans need not ask. Most ends of tasks would ask in vain.
    pub fn say_independent(&mut self, independent: bool) {
        self.independent = independent;
    }

    /// A row as far as it is known: loaded, or known to be absent.
    pub fn known<R: Kept>(&self, key: &R::Key) -> Option<&Option<Arc<R>>> {
        R::loaded(self).get(key)
    }

    /// About how many bytes the rows take, for a store that keeps them over several commits.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Puts the answer of a lookup. The rows it found are to be loaded too.
    pub fn answer<L: Asked>(&mut self, lookup: L, answer: L::Answer) {
        L::answers_mut(self).insert(lookup, answer);
    }

    /// Tasks that have ended, or are no more, are hardly asked for again.
    fn let_go(&mut self, effects: &Effects) {
        let ended = |row: &Arc<TaskRow>| row.task.status.is_terminal();
        for change in effects.tasks.iter().filter(|change| change.after.as_ref().is_none_or(ended)) {
            self.forget::<TaskRow>(&change.key);
            self.forget::<SignalsRow>(&change.key);
        }
    }

    fn forget<R: Kept>(&mut self, key: &R::Key) {
        let gone = R::loaded_mut(self).remove(key);
        self.weight -= gone.map_or(0, |row| weight(row.as_ref()));
    }

    fn accept_indexes(&mut self, effects: &Effects) {
        for change in &effects.tasks {
            self.changed_tasks.insert(change.key);
            let gone = change.before.as_ref().filter(|_| change.after.is_none());
            for (row, id) in
                change.after.iter().map(|row| (row, Some(change.key))).chain(gone.map(|row| (row, None)))
            {
                if let Some(key) = &row.task.idempotency_key {
                    self.idempotency_keys.insert(Idempotency(key.clone()), id);
                }
                if let Some((parent, key)) = row.task.parent.zip(row.task.child_key.clone()) {
                    self.child_keys.insert(Child { parent, key }, id);
                }
            }
        }
        for group in &effects.cleared {
            self.changed_deliveries.retain(|key| key.group != *group);
        }
        self.changed_deliveries.extend(effects.deliveries.iter().map(|change| change.key.clone()));
        self.cleared_groups.extend(effects.cleared.iter().cloned());
    }
}

/// An event to append.
#[derive(Clone, Debug, PartialEq)]
pub struct Appending {
    /// Which stream.
    pub stream: StreamName,
    /// Its sequence number.
    pub seq: u64,
    /// What happened.
    pub kind: String,
    /// The rest.
    pub data: Option<crate::Json>,
    /// When.
    pub at: crate::Timestamp,
    /// Who did it.
    pub actor: Option<String>,
}

impl Appending {
    /// The event, once the store has given it a position.
    pub fn at_position(&self, position: Position) -> Event {
        Event {
            stream: self.stream.clone(),
            seq: self.seq,
            position,
            kind: self.kind.clone(),
            data: self.data.clone(),
            at: self.at,
            actor: self.actor.clone(),
        }
    }
}

/// A prefix of a stream to remove. The store remembers the highest position that it removed from the
/// category.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trim {
    /// Which stream.
    pub stream: StreamName,
    /// Its events up to this number.
    pub up_to: u64,
}
