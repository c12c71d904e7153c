//! What this process wrote or read last in a namespace, with versions. Whoever plans on it needs no load, and the commit
//! checks the versions as always: if others have written meanwhile, everything is forgotten and planned on what is loaded.
//!
//! What a commit writes is remembered when it is sent, not when it is answered, so that the next one can follow at once. If
//! the first comes to nothing, so does the next, since it counts on versions that never were.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use statehold_core::model::TaskId;
use statehold_core::plan::{Effects, Rows};

use crate::rows::{Table, Version};
use crate::snapshot::read_id;
use crate::space::Bytes;
use crate::tasks;

/// About how many bytes of rows are remembered, and how many keys.
const MOST_BYTES: usize = 8 << 20;
const MOST_KEYS: usize = 50_000;

/// How often ready tasks are reserved before it is counted on again that no other process takes them.
const CROWDED: u32 = 64;

/// How often rows of a kind must be found absent before that is guessed again.
const CAUTION: i32 = 16;

/// The rows of a namespace as this process knows them.
#[derive(Default)]
pub(crate) struct Memory {
    rows: Rows,
    /// Versions by the keys of the store; none where there is no row.
    versions: HashMap<Bytes, Option<Version>>,
    /// How well it goes to take unknown rows of a kind for absent.
    luck: HashMap<u8, i32>,
    /// Whether it was found that no task depends on another.
    pub(crate) independent: bool,
    /// The first ready tasks of queues.
    windows: HashMap<String, Window>,
    /// How often ready tasks are still to be reserved, since other processes claim them too.
    crowded: u32,
}

/// The first ready tasks of a queue, as places in the index.
struct Window {
    places: BTreeSet<Bytes>,
    /// Whether there are no others.
    complete: bool,
}

impl Memory {
    /// Whether to look ahead for ready tasks rather than to reserve them.
    pub(crate) fn looks_ahead(&mut self) -> bool {
        self.crowded = self.crowded.saturating_sub(1);
        self.crowded == 0
    }

    /// Takes in the first ready tasks of a queue.
    pub(crate) fn look_ahead(&mut self, queue: &str, places: BTreeSet<Bytes>, complete: bool) {
        self.windows.insert(queue.to_owned(), Window { places, complete });
    }

    /// The places of the first ready tasks of a queue, if that many are known.
    pub(crate) fn ready(&self, queue: &str, count: usize) -> Option<Vec<(&Bytes, TaskId)>> {
        let window = self.windows.get(queue).filter(|window| window.places.len() >= count)?;
        window
            .places
            .iter()
            .take(count)
            .map(|place| Some((place, read_id(place.last_chunk::<16>()?)?)))
            .collect()
    }

    /// Keeps the first ready tasks of queues up to date with what is written.
    pub(crate) fn move_ready(&mut self, gone: &BTreeSet<Bytes>, put: &BTreeSet<Bytes>) {
        for (queue, window) in &mut self.windows {
            let start = tasks::ready(queue).0;
            let of_queue = |places: &BTreeSet<Bytes>| -> Vec<Bytes> {
                places.range(start.clone()..).take_while(|place| place.starts_with(&start)).cloned().collect()
            };
            for place in of_queue(gone) {
                window.places.remove(&place);
            }
            for place in of_queue(put) {
                if window.complete || window.places.last().is_some_and(|last| place < *last) {
                    window.places.insert(place);
                }
            }
        }
    }

    /// Notes that what was known of ready tasks was wrong.
    pub(crate) fn be_crowded(&mut self) {
        self.crowded = CROWDED;
    }

    /// A row and its version, as far as they are known.
    pub(crate) fn recall<R: Table>(
        &self,
        key: &R::Key,
        name: &Bytes,
    ) -> Option<(Option<Arc<R>>, Option<Version>)> {
        let row = self.rows.known::<R>(key)?;
        self.versions.get(name).map(|version| (row.clone(), *version))
    }

    /// Takes in a row that was loaded.
    pub(crate) fn learn<R: Table>(
        &mut self,
        key: R::Key,
        name: Bytes,
        row: Option<Arc<R>>,
        version: Option<Version>,
    ) {
        self.note_luck(R::LETTER, row.is_none());
        if self.rows.known::<R>(&key).is_none() {
            self.rows.load(key, row);
            self.versions.insert(name, version);
        }
    }

    /// Takes in what a plan leaves.
    pub(crate) fn accept(&mut self, effects: &Effects) {
        self.rows.stored(effects);
    }

    /// Takes in the versions of what plans leave together.
    pub(crate) fn sent<'a>(&mut self, touched: impl Iterator<Item = (&'a Bytes, bool)>, version: Version) {
        for (name, put) in touched {
            self.versions.insert(name.clone(), put.then_some(version));
        }
        if self.rows.weight() > MOST_BYTES || self.versions.len() > MOST_KEYS {
            self.forget();
        }
    }

    /// Whether to take an unknown row of a kind for absent.
    pub(crate) fn guesses_absence(&self, letter: u8) -> bool {
        self.luck.get(&letter).is_none_or(|luck| *luck >= 0)
    }

    /// Notes whether a row of a kind was absent.
    pub(crate) fn note_luck(&mut self, letter: u8, absent: bool) {
        let luck = self.luck.entry(letter).or_default();
        *luck = if absent { (*luck + 1).min(0) } else { -CAUTION };
    }

    /// Forgets all rows, and is careful with kinds that were taken for absent.
    pub(crate) fn forget_after(&mut self, guessed: &BTreeSet<u8>) {
        for letter in guessed {
            self.note_luck(*letter, false);
        }
        self.forget();
    }

    /// Forgets all rows.
    fn forget(&mut self) {
        let luck = std::mem::take(&mut self.luck);
        *self = Self { luck, crowded: self.crowded, ..Self::default() };
    }
}
