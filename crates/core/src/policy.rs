//! How long things stay: times to live by type and state, and what retention may remove.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::Seconds;
use crate::limits::Check;
use crate::model::TASK_CATEGORY;
use crate::status::Status;

/// Times to live by type and state.
///
/// ```
/// use statehold_core::policy::TtlPolicy;
///
/// let policy = TtlPolicy::default();
/// assert_eq!(policy.ttl("correlation", Some("failed")).unwrap().to_string(), "604800");
/// assert_eq!(policy.ttl("correlation", Some("collecting")).unwrap().to_string(), "86400");
/// assert_eq!(policy.ttl("something", None), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TtlPolicy {
    types: BTreeMap<String, TtlRule>,
}

/// The times to live of one type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TtlRule {
    /// In a state that is not listed; forever if left out.
    #[serde(default)]
    pub default_seconds: Option<Seconds>,
    /// By state.
    #[serde(default)]
    pub states: BTreeMap<String, Seconds>,
}

impl TtlPolicy {
    /// A policy without rules: everything stays.
    pub fn forever() -> Self {
        Self { types: BTreeMap::new() }
    }

    /// The same policy with another rule for a type.
    #[must_use]
    pub fn with(mut self, kind: impl Into<String>, rule: TtlRule) -> Self {
        self.types.insert(kind.into(), rule);
        self
    }

    /// How long a thing of this type lives in this state; none for forever. A change of state asks again.
    pub fn ttl(&self, kind: &str, state: Option<&str>) -> Option<Seconds> {
        let rule = self.types.get(kind)?;
        state.and_then(|state| rule.states.get(state).copied()).or(rule.default_seconds)
    }
}

impl Default for TtlPolicy {
    fn default() -> Self {
        let rule = |default: u64, states: &[(&str, u64)]| TtlRule {
            default_seconds: Some(Seconds::new(default)),
            states: states.iter().map(|(state, ttl)| ((*state).to_owned(), Seconds::new(*ttl))).collect(),
        };
        Self::forever()
            .with("result", rule(3600, &[]))
            .with("heartbeat", rule(15, &[]))
            .with("correlation", rule(86_400, &[("completed", 3600), ("failed", 604_800)]))
            .with("ephemeral_correlation", rule(300, &[("completed", 60), ("failed", 600)]))
            .with("workflow", rule(180, &[]))
            .with("counter", rule(3600, &[]))
            .with("metrics", rule(604_800, &[("aggregated", 2_592_000)]))
            .with("lock", rule(60, &[("long_running", 300)]))
    }
}

/// What a sweep may remove although nobody asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retention {
    /// How long after their end tasks stay, by terminal status; a missing one stays.
    pub tasks: BTreeMap<Status, Seconds>,
    /// What of their events streams keep, by category. Category `task` goes with its tasks.
    pub streams: BTreeMap<String, StreamRetention>,
}

/// What of its events a stream keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StreamRetention {
    /// At most this many.
    pub max_length: Option<u64>,
    /// None older than this.
    pub max_age_seconds: Option<Seconds>,
}

impl Retention {
    /// Removes nothing.
    pub fn forever() -> Self {
        Self { tasks: BTreeMap::new(), streams: BTreeMap::new() }
    }

    pub(crate) fn check(&self, check: &mut Check) {
        for (status, keep) in &self.tasks {
            check.that(status.is_terminal(), "retention.tasks", || {
                format!("`{status}` is not a terminal status")
            });
            check.length("retention.tasks", Some(*keep));
        }
        for (category, keep) in &self.streams {
            check.name("retention.streams", category);
            let own = category != TASK_CATEGORY;
            check.that(own, "retention.streams", || "the streams of tasks go with their tasks".into());
            check.length("retention.streams.max_age_seconds", keep.max_age_seconds);
        }
    }
}

/// Completed tasks stay a week, failed and cancelled ones 30 days, audit 30 days, live output an hour.
impl Default for Retention {
    fn default() -> Self {
        let days = |days: u64| Seconds::new(days * 86_400);
        let aged = |age| StreamRetention { max_length: None, max_age_seconds: Some(age) };
        Self {
            tasks: [(Status::Completed, days(7)), (Status::Failed, days(30)), (Status::Cancelled, days(30))]
                .into(),
            streams: [
                ("audit".to_owned(), aged(days(30))),
                ("compliance".to_owned(), aged(days(365))),
                ("live".to_owned(), aged(Seconds::new(3600))),
            ]
            .into(),
        }
    }
}
