//! What this process wrote or read last in a namespace, with versions. Whoever plans on it needs no load, and the commit
//! checks the versions as always: if others have written meanwhile, everything is forgotten and planned on what is loaded.
//!
//! What a commit writes is remembered when it is sent, not when it is answered, so that the next one can follow at once. If
//! the first comes to nothing, so does the next, since it counts on versions that never were.
//!
//! There are two generations: when the young one is full it is the old one from then on, and what was in that is forgotten. So
//! what was written last is always remembered.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use statehold_core::plan::{Effects, Map, Rows};
use statehold_core::row::{PollerKey, PollerRow};

use crate::rows::{Table, Version};
use crate::space::Bytes;

/// About how many bytes of rows all namespaces together remember in a generation, and how many keys.
const MOST_BYTES: usize = 32 << 20;
const MOST_KEYS: usize = 100_000;

/// How often rows of a kind must be found absent before that is guessed again.
const CAUTION: i32 = 16;

/// The rows of a namespace as this process knows them.
#[derive(Default)]
pub(crate) struct Memory {
    young: Generation,
    old: Generation,
    /// How well it goes to take unknown rows of a kind for absent.
    luck: HashMap<u8, i32>,
    /// Whether it was found that no task depends on another.
    pub(crate) independent: bool,
    /// The store and every namespace that it remembers something of have this.
    all: Arc<()>,
}

/// Rows that were written or read in some span of time.
#[derive(Default)]
struct Generation {
    rows: Rows,
    /// Versions by the keys of the store; none where there is no row. Those of rows that are not worth remembering are here too.
    versions: Map<Bytes, Option<Version>>,
}

impl Generation {
    fn recall<R: Table>(&self, key: &R::Key, name: &Bytes) -> Option<Known<R>> {
        let row = self.rows.known::<R>(key)?;
        self.versions.get(name).map(|version| (row.clone(), *version))
    }
}

/// A row and its version, or that there is none.
type Known<R> = (Option<Arc<R>>, Option<Version>);

impl Memory {
    /// Nothing yet, of one of the namespaces that share what there is room for.
    pub(crate) fn new(all: &Arc<()>) -> Self {
        Self { all: Arc::clone(all), ..Self::default() }
    }

    /// How many namespaces share what there is room for.
    fn sharers(&self) -> usize {
        (Arc::strong_count(&self.all) - 1).max(1)
    }

    /// When someone last asked a queue for work, as far as it is known.
    pub(crate) fn poller<'a>(&'a self, key: &PollerKey) -> Option<&'a PollerRow> {
        let known = |of: &'a Generation| of.rows.known::<PollerRow>(key);
        known(&self.young).or_else(|| known(&self.old))?.as_deref()
    }

    /// A row and its version, as far as they are known.
    pub(crate) fn recall<R: Table>(&self, key: &R::Key, name: &Bytes) -> Option<Known<R>> {
        // What the old one knows of a row that the young one has seen is outdated.
        let of = if self.young.versions.contains_key(name) { &self.young } else { &self.old };
        of.recall(key, name)
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
        if self.recall::<R>(&key, &name).is_none() {
            self.young.rows.load(key, row);
            self.young.versions.insert(name, version);
        }
    }

    /// Takes in what a plan leaves.
    pub(crate) fn accept(&mut self, effects: &Effects) {
        self.young.rows.stored(effects);
    }

    /// Takes in the versions of what plans leave together.
    pub(crate) fn sent<'a>(&mut self, touched: impl Iterator<Item = (&'a Bytes, bool)>, version: Version) {
        for (name, put) in touched {
            self.young.versions.insert(name.clone(), put.then_some(version));
        }
        let sharers = self.sharers();
        if self.young.rows.weight() > MOST_BYTES / sharers || self.young.versions.len() > MOST_KEYS / sharers
        {
            self.old = std::mem::take(&mut self.young);
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
        let (luck, all) = (std::mem::take(&mut self.luck), Arc::clone(&self.all));
        *self = Self { luck, all, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use statehold_core::Timestamp;
    use statehold_core::model::Entry;
    use statehold_core::row::Change;

    use super::*;

    /// Writes entries, of which each has the number of the write as its time.
    fn write(memory: &mut Memory, time: i64, keys: impl Iterator<Item = usize>) {
        let (mut effects, mut names) = (Effects::default(), Vec::new());
        for key in keys {
            let key = key.to_string();
            let (value, set_at) = (statehold_core::Json::null(), Timestamp::from_micros(time));
            let row = Entry { key: key.clone(), value, set_at, expires_at: set_at };
            names.push(key.clone().into_bytes());
            effects.entries.push(Change { key, before: None, after: Some(row.into()) });
        }
        memory.accept(&effects);
        memory.sent(names.iter().map(|name| (name, true)), [u8::try_from(time).expect("few"); 16]);
    }

    /// When an entry was written last, as far as it is known.
    fn time(memory: &Memory, key: usize) -> Option<i64> {
        let key = key.to_string();
        let (row, version) = memory.recall::<Entry>(&key, &key.clone().into_bytes())?;
        let time = row.expect("it was written").set_at.as_micros();
        assert_eq!(version, Some([u8::try_from(time).expect("few"); 16]), "the version is that of the row");
        Some(time)
    }

    #[test]
    fn namespaces_share_what_there_is_room_for() {
        let all = Arc::default();
        let mut memories = [Memory::new(&all), Memory::new(&all)];
        for memory in &mut memories {
            write(memory, 1, 0..=MOST_KEYS / 2);
            write(memory, 2, MOST_KEYS..=MOST_KEYS + MOST_KEYS / 2);
        }
        let [one, other] = memories;
        assert_eq!((time(&one, 0), time(&one, MOST_KEYS)), (None, Some(2)));
        drop(other);
        let mut one = one;
        write(&mut one, 3, 0..=MOST_KEYS / 2);
        write(&mut one, 4, 2 * MOST_KEYS..2 * MOST_KEYS + 9);
        assert_eq!(time(&one, 0), Some(3), "alone it has room for all");
    }

    #[test]
    fn what_was_written_last_is_remembered_and_what_is_older_goes_in_time() {
        let mut memory = Memory::default();
        write(&mut memory, 1, 0..MOST_KEYS);
        write(&mut memory, 2, MOST_KEYS..MOST_KEYS + 9);
        assert_eq!(time(&memory, 0), Some(1));
        write(&mut memory, 3, 0..1);
        assert_eq!((time(&memory, 0), time(&memory, 1)), (Some(3), Some(1)), "not as it was before");
        write(&mut memory, 4, 2 * MOST_KEYS..3 * MOST_KEYS);
        assert_eq!((time(&memory, 0), time(&memory, 1)), (Some(3), None));
        assert_eq!(time(&memory, 2 * MOST_KEYS), Some(4));
        memory.forget_after(&BTreeSet::new());
        assert_eq!(time(&memory, 2 * MOST_KEYS), None);
    }
}
