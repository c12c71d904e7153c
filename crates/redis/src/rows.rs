//! Rows in keys: the row as JSON, then a version. Each kind says where in the index it is found; here is what they have in
//! common, and what became of rows over several plans.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use statehold_core::plan::Kept;
use statehold_core::row::Change;
use statehold_core::{Error, Timestamp};

use crate::error::Result;
use crate::space::{Bytes, Member};

/// How long a version is.
pub(crate) const VERSION: usize = 16;

/// What tells a stored row from every other that was ever stored: who wrote it, and the number of the commit.
pub(crate) type Version = [u8; VERSION];

/// Places in the order of expiry are this far apart, in microseconds, so that whoever renews something often need not move
/// it.
const EXPIRY_STEP: i64 = 16_000_000;

/// A kind of row.
pub(crate) trait Table: Kept + Serialize + DeserializeOwned {
    /// The letter of its keys.
    const LETTER: u8;

    /// What finds a row, after the letter.
    fn find(key: &Self::Key, member: Member) -> Member;

    /// Where it is found in the index, beside its own key.
    fn places(&self) -> Vec<Member> {
        Vec::new()
    }

    /// Writes it as it is stored, before its version.
    fn write(&self, stored: &mut Bytes) -> Result<()> {
        serde_json::to_writer(stored, self)
            .map_err(|e| Error::corrupt(format!("a row cannot be written: {e}")).into())
    }

    /// Reads what [`write`](Self::write) wrote.
    fn read(body: &[u8]) -> Result<Self> {
        serde_json::from_slice(body)
            .map_err(|e| Error::corrupt(format!("a row cannot be read: {e}")).caused_by(e).into())
    }

    /// When it changes by itself: what was decided before holds only until then.
    fn alarms(&self) -> Vec<Timestamp> {
        Vec::new()
    }

    /// When the server may remove it by itself.
    fn gone_at(&self) -> Option<Timestamp> {
        None
    }
}

/// The key of a row, without the tag. It is a member of the index too.
pub(crate) fn tail<R: Table>(key: &R::Key) -> Bytes {
    R::find(key, Member::new(R::LETTER)).0
}

/// Where a row is found in the order of expiry.
pub(crate) fn expiry<R: Table>(key: &R::Key, at: Timestamp) -> Member {
    let step = Timestamp::from_micros(at.as_micros().div_euclid(EXPIRY_STEP).saturating_mul(EXPIRY_STEP));
    R::find(key, Member::new(b'Z').bytes(&[R::LETTER]).time(step))
}

/// The version of a stored row.
pub(crate) fn version(stored: Option<&[u8]>) -> Option<Version> {
    stored.and_then(|stored| stored.last_chunk().copied())
}

/// What is stored before the version.
pub(crate) fn body(stored: &[u8]) -> &[u8] {
    stored.split_last_chunk::<VERSION>().map_or(&[], |(body, _)| body)
}

/// Reads a stored row.
pub(crate) fn read<R: Table>(stored: &[u8]) -> Result<R> {
    R::read(body(stored))
}

/// What became of the rows of a kind over several plans: as each was stored, and as it is to be.
pub(crate) struct Changes<R: Table>(BTreeMap<R::Key, (Stored<R>, Stored<R>)>);

/// A row that may be missing.
type Stored<R> = Option<Arc<R>>;

impl<R: Table> Default for Changes<R> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<R: Table> Changes<R> {
    /// Adds what one plan changed.
    pub(crate) fn add(&mut self, changes: Vec<Change<R>>) {
        for Change { key, before, after } in changes {
            self.0.entry(key).or_insert((before, None)).1 = after;
        }
    }

    /// Forgets what happened to some rows, which are removed by other means.
    pub(crate) fn forget(&mut self, gone: impl Fn(&R::Key) -> bool) {
        self.0.retain(|key, _| !gone(key));
    }

    /// Says that some rows are no longer stored.
    pub(crate) fn unstore(&mut self, gone: impl Fn(&R::Key) -> bool) {
        self.0.iter_mut().filter(|(key, _)| gone(key)).for_each(|(_, (before, _))| *before = None);
    }

    /// Each row as it was and as it is to be, if that differs.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&R::Key, Option<&R>, Option<&R>)> {
        let each = self.0.iter().map(|(key, (before, after))| (key, before.as_deref(), after.as_deref()));
        each.filter(|(_, before, after)| before != after)
    }
}
