//! Entries: values with a time to live.

use std::time::Duration;

use statehold_core::command::{EntryDelete, EntrySet, EntryTake};
use statehold_core::model::Entry;
use statehold_core::query::{KeyList, Page};
use statehold_core::wake::Topic;
use statehold_core::{Json, Result, Timestamp};

use crate::Statehold;
use crate::wait::Wait;

/// Entries of a namespace.
#[derive(Clone, Copy, Debug)]
pub struct Entries<'a> {
    pub(crate) hold: &'a Statehold,
}

impl Entries<'_> {
    /// Sets a value for a time, and answers when it ends.
    pub async fn set(self, key: &str, value: Json, ttl: Duration) -> Result<Timestamp> {
        let set = EntrySet { ttl_seconds: ttl.into(), ..EntrySet::new(key, value) };
        self.set_with(set).await
    }

    /// The same with everything that can be said, such as that nothing may be there.
    pub async fn set_with(self, set: EntrySet) -> Result<Timestamp> {
        Ok(self.hold.run(set).await?.expires_at)
    }

    /// A value that is not over.
    pub async fn get(self, key: &str) -> Result<Option<Entry>> {
        self.hold.backend().entry_get(self.hold.namespace(), key).await
    }

    /// Takes a value away; of many takers one gets it.
    pub async fn take(self, key: &str) -> Result<Option<Entry>> {
        Ok(self.hold.run(EntryTake { key: key.to_owned() }).await?.entry)
    }

    /// Removes a value, and answers whether there was one.
    pub async fn delete(self, key: &str) -> Result<bool> {
        Ok(self.hold.run(EntryDelete { key: key.to_owned() }).await?.existed)
    }

    /// A page of entries by prefix.
    pub async fn list(self, list: &KeyList) -> Result<Page<Entry>> {
        self.hold.backend().entry_list(self.hold.namespace(), list).await
    }

    /// Waits for a value, at most for `most`.
    pub async fn wait(self, key: &str, most: Option<Duration>) -> Result<Option<Entry>> {
        let mut wait = Wait::begin(self.hold, &[Topic::Entry(key.to_owned())], most).await?;
        loop {
            let entry = self.get(key).await?;
            if entry.is_some() || !wait.sleep(None).await {
                return Ok(entry);
            }
        }
    }
}
