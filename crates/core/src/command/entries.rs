//! Commands on entries.

use serde::{Deserialize, Serialize};

use crate::clock::{Seconds, Timestamp};
use crate::json::Json;
use crate::limits::{self, Check};
use crate::model::Entry;

/// Sets a value for a time.
///
/// # Behavior
/// - With `if_absent`, a value that has not expired is `conflict`.
/// - The value is there until now + `ttl_seconds`, an hour if left out; it replaces what was there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EntrySet {
    /// Its key.
    pub key: String,
    /// The value.
    pub value: Json,
    /// How long it stays.
    #[serde(default = "hour")]
    pub ttl_seconds: Seconds,
    /// Only if nothing is there.
    #[serde(default)]
    pub if_absent: bool,
}

fn hour() -> Seconds {
    Seconds::new(3600)
}

impl EntrySet {
    /// A value for an hour.
    pub fn new(key: impl Into<String>, value: Json) -> Self {
        Self { key: key.into(), value, ttl_seconds: hour(), if_absent: false }
    }

    pub(super) fn check(&self, check: &mut Check) {
        check.name("key", &self.key);
        check.body("value", Some(&self.value), limits::BODY);
        check.length("ttl_seconds", Some(self.ttl_seconds));
    }
}

/// The reply of `entry.set`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EntryExpiry {
    /// When it goes.
    pub expires_at: Timestamp,
}

/// Reads a value and removes it.
///
/// # Behavior
/// - At most one taker gets the value; an expired one is not there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EntryTake {
    /// Its key.
    pub key: String,
}

/// The reply of `entry.take`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TakenEntry {
    /// What was there.
    pub entry: Option<Entry>,
}

/// Removes a value.
///
/// # Behavior
/// - The reply tells whether it was there; an expired one was not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EntryDelete {
    /// Its key.
    pub key: String,
}

impl EntryTake {
    pub(super) fn check(&self, check: &mut Check) {
        check.name("key", &self.key);
    }
}

impl EntryDelete {
    pub(super) fn check(&self, check: &mut Check) {
        check.name("key", &self.key);
    }
}
