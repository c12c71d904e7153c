//! Results: what an agent hands to a controller, kept for an hour.

use std::time::Duration;

use statehold_core::model::Entry;
use statehold_core::{Json, Result, Timestamp};

use crate::{Entries, Statehold};

/// How long a result is kept.
const KEPT: Duration = Duration::from_secs(3600);

/// Results of a namespace: entries under `result/`.
#[derive(Clone, Copy, Debug)]
pub struct Results<'a> {
    pub(crate) hold: &'a Statehold,
}

impl<'a> Results<'a> {
    /// Hands over a result, kept for an hour.
    pub async fn set(self, key: &str, value: Json) -> Result<Timestamp> {
        self.set_for(key, value, KEPT).await
    }

    /// Hands over a result, kept for a time.
    pub async fn set_for(self, key: &str, value: Json, ttl: Duration) -> Result<Timestamp> {
        self.entries().set(&name(key), value, ttl).await
    }

    /// A result, if it is there and not over.
    pub async fn get(self, key: &str) -> Result<Option<Json>> {
        Ok(self.entries().get(&name(key)).await?.map(value))
    }

    /// Takes a result away; of many takers one gets it.
    pub async fn take(self, key: &str) -> Result<Option<Json>> {
        Ok(self.entries().take(&name(key)).await?.map(value))
    }

    /// Waits for a result, at most for `most`: there is no need to poll.
    pub async fn wait(self, key: &str, most: Option<Duration>) -> Result<Option<Json>> {
        Ok(self.entries().wait(&name(key), most).await?.map(value))
    }

    fn entries(self) -> Entries<'a> {
        self.hold.entries()
    }
}

fn name(key: &str) -> String {
    format!("result/{key}")
}

fn value(entry: Entry) -> Json {
    entry.value
}
