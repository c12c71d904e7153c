//! Entries: values for a time.

use statehold_core::command::{EntryExpiry, EntrySet, Existed, TakenEntry};
use statehold_core::model::Entry;
use statehold_core::{Error, Result, Timestamp};

use super::commit::Commit;
use super::state::State;
use super::time::count;

impl State {
    /// A value that has not expired.
    pub(super) fn entry(&self, key: &str, now: Timestamp) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| entry.expires_at > now)
    }

    pub(super) fn judge_set(&self, set: &EntrySet, now: Timestamp) -> Result<()> {
        let taken = set.if_absent && self.entry(&set.key, now).is_some();
        if taken { Err(Error::conflict(&set.key, "there is a value")) } else { Ok(()) }
    }
}

impl Commit {
    pub(super) fn set_entry(&mut self, set: &EntrySet) -> EntryExpiry {
        let expires_at = self.now + set.ttl_seconds;
        let (key, value) = (set.key.clone(), set.value.clone());
        self.state.entries.insert(key.clone(), Entry { key, value, set_at: self.now, expires_at });
        EntryExpiry { expires_at }
    }

    pub(super) fn take_entry(&mut self, key: &str) -> TakenEntry {
        let entry = self.state.entry(key, self.now).cloned();
        self.state.entries.remove(key);
        TakenEntry { entry }
    }

    pub(super) fn delete_entry(&mut self, key: &str) -> Existed {
        Existed { existed: self.take_entry(key).entry.is_some() }
    }

    pub(super) fn sweep_entries(&mut self, limit: usize) -> (u32, bool) {
        let over = self.state.entries.values().filter(|entry| entry.expires_at <= self.now);
        let over: Vec<_> = over.map(|entry| entry.key.clone()).collect();
        over.iter().take(limit).for_each(|key| drop(self.state.entries.remove(key)));
        (count(over.len().min(limit)), over.len() > limit)
    }
}
