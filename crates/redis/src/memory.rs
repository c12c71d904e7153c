//! What this process wrote or read last in a namespace, with versions. Whoever plans on it needs no load, and the commit
//! checks the versions as always: if others have written meanwhile, everything is forgotten and planned on what is loaded.
//!
//! What a commit writes is remembered when it is sent, not when it is answered, so that the next one can follow at once. If
//! the first comes to nothing, so does the next, since it counts on versions that never were.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use statehold_core::plan::{Effects, Map, Rows};
use statehold_core::row::{PollerKey, PollerRow};

use crate::rows::{Table, Version};
use crate::space::Bytes;

/// About how many bytes of rows are remembered, and how many keys.
const MOST_BYTES: usize = 32 << 20;
const MOST_KEYS: usize = 100_000;

/// How often rows of a kind must be found absent before that is guessed again.
const CAUTION: i32 = 16;

/// The rows of a namespace as this process knows them.
#[derive(Default)]
pub(crate) struct Memory {
    rows: Rows,
    /// Versions by the keys of the store; none where there is no row.
    versions: Map<Bytes, Option<Version>>,
    /// How well it goes to take unknown rows of a kind for absent.
    luck: HashMap<u8, i32>,
    /// Whether it was found that no task depends on another.
    pub(crate) independent: bool,
}

impl Memory {
    /// When someone last asked a queue for work, as far as it is known.
    pub(crate) fn poller(&self, key: &PollerKey) -> Option<&PollerRow> {
        self.rows.known::<PollerRow>(key)?.as_deref()
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
        *self = Self { luck, ..Self::default() };
    }
}
