//! Rows of which nothing is known here are taken for absent, where that went well before. Who counts on it makes them, so that
//! the server sees whether it was right; it looks first, since a row that is there after all is no error.

use std::collections::BTreeSet;

use statehold_core::model::StreamName;
use statehold_core::plan::{Idempotency, Needs, Rows};
use statehold_core::row::{AnswerKey, AnswerRow, DocumentKey, FloorRow};

use crate::known::Caution;
use crate::transaction::Scene;
use crate::values::{Param, column, param};

/// A kind of row that is taken for absent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Answers,
    IdempotencyKeys,
    Locks,
    Documents,
    Entries,
    Streams,
}

const KINDS: [Kind; 6] =
    [Kind::Answers, Kind::IdempotencyKeys, Kind::Locks, Kind::Documents, Kind::Entries, Kind::Streams];

/// Which kinds are taken for absent.
#[derive(Clone, Copy, Default)]
pub(crate) struct Guesses([bool; KINDS.len()]);

impl Guesses {
    pub(crate) fn include(self, kind: Kind) -> bool {
        self.0[kind as usize]
    }
}

/// How well it went, for each kind.
#[derive(Default)]
pub(crate) struct Luck([Caution; KINDS.len()]);

impl Luck {
    /// Which kinds to take for absent this time.
    pub(crate) fn guesses(&mut self) -> Guesses {
        Guesses(std::array::from_fn(|kind| self.0[kind].dares()))
    }

    /// Notes how it went.
    pub(crate) fn note(&mut self, absent: &Absent, right: bool) {
        for kind in KINDS.into_iter().filter(|kind| absent.has(*kind)) {
            let luck = &mut self.0[kind as usize];
            if right { luck.was_right() } else { luck.was_wrong() }
        }
    }
}

/// The keys of rows that were taken for absent.
#[derive(Default)]
pub(crate) struct Absent {
    pub(crate) answers: BTreeSet<AnswerKey>,
    pub(crate) idempotency_keys: BTreeSet<Idempotency>,
    pub(crate) locks: BTreeSet<String>,
    pub(crate) documents: BTreeSet<DocumentKey>,
    /// Nobody makes these: they are asked for where documents are.
    pub(crate) floors: BTreeSet<String>,
    pub(crate) entries: BTreeSet<String>,
    pub(crate) streams: BTreeSet<StreamName>,
}

impl Absent {
    fn has(&self, kind: Kind) -> bool {
        match kind {
            Kind::Answers => !self.answers.is_empty(),
            Kind::IdempotencyKeys => !self.idempotency_keys.is_empty(),
            Kind::Locks => !self.locks.is_empty(),
            Kind::Documents => !self.documents.is_empty() || !self.floors.is_empty(),
            Kind::Entries => !self.entries.is_empty(),
            Kind::Streams => !self.streams.is_empty(),
        }
    }

    /// Takes in rows of the kinds that are not remembered.
    pub(crate) fn take(&mut self, wanted: Needs, rows: &mut Rows) {
        for key in wanted.answers {
            rows.load::<AnswerRow>(key.clone(), None);
            self.answers.insert(key);
        }
        for key in wanted.idempotency_keys {
            rows.answer(key.clone(), None);
            self.idempotency_keys.insert(key);
        }
        for kind in wanted.floors {
            rows.load::<FloorRow>(kind.clone(), None);
            self.floors.insert(kind);
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        !KINDS.into_iter().any(|kind| self.has(kind))
    }

    /// What `are_absent` is asked, beside the namespace.
    pub(crate) fn params(&self, scene: &Scene<'_>) -> Vec<Param> {
        fn keys<K>(keys: &BTreeSet<K>) -> Vec<&K> {
            keys.iter().collect()
        }
        let numbers: BTreeSet<_> = self.documents.iter().map(|key| scene.document_key(key)).collect();
        vec![
            column(&keys(&self.answers), |key| key.actor.clone()),
            column(&keys(&self.answers), |key| key.key.clone()),
            column(&keys(&self.idempotency_keys), |key| key.0.clone()),
            column(&keys(&self.locks), |key| (*key).clone()),
            param(numbers.into_iter().collect::<Vec<_>>()),
            column(&keys(&self.documents), |key| key.kind.clone()),
            column(&keys(&self.documents), |key| key.name.clone()),
            column(&keys(&self.floors), |kind| (*kind).clone()),
            column(&keys(&self.entries), |key| (*key).clone()),
            column(&keys(&self.streams), ToString::to_string),
        ]
    }
}
