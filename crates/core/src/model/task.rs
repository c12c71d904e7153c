//! Tasks: durable units of work with a validated status, a lease and a fencing token.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Token;
use crate::clock::{Seconds, Timestamp};
use crate::json::Json;
use crate::status::Status;

/// The id of a task: a UUID, version 7 unless the caller chose another.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub Uuid);

impl TaskId {
    /// A new id. It needs this machine's clock and randomness, so plans never call it.
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for TaskId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        text.parse().map(Self)
    }
}

/// Text to text, for filters.
pub type Labels = BTreeMap<String, String>;

/// A task as a caller sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// Where workers look for it.
    pub queue: String,
    /// What kind of work it is; workers choose their handler by it.
    pub kind: String,
    /// Where it stands.
    pub status: Status,
    /// Lower goes first.
    pub priority: i16,
    /// Hand order in a backlog, lower first.
    pub rank: i64,
    /// What the worker gets.
    #[serde(default, deserialize_with = "super::given", skip_serializing_if = "Option::is_none")]
    pub input: Option<Json>,
    /// What the worker gave.
    #[serde(default, deserialize_with = "super::given", skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    /// Why the last try did not succeed.
    pub error: Option<TaskError>,
    /// Free data, merged shallowly by amend.
    pub metadata: Option<Json>,
    /// Filterable text.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, String>))]
    pub labels: Labels,
    /// The conversation it belongs to.
    pub thread: Option<String>,
    /// The task that dispatched it.
    pub parent: Option<TaskId>,
    /// The top of its family; itself when it has no parent.
    pub root: TaskId,
    /// Its name among its parent's children.
    pub child_key: Option<String>,
    /// What must be completed first.
    pub depends_on: Vec<TaskId>,
    /// Makes creating it safe to repeat.
    pub idempotency_key: Option<String>,
    /// At most one task of a key runs at a time.
    pub exclusive_key: Option<String>,
    /// Not claimable before.
    pub run_at: Timestamp,
    /// Fails if it has not started by then.
    pub expires_at: Option<Timestamp>,
    /// Bounds one attempt, however often its lease is renewed.
    pub timeout_seconds: Option<Seconds>,
    /// How often it was started.
    pub attempt: u32,
    /// Failed and timed-out attempts since the last explicit retry.
    pub failures: u32,
    /// Lost leases since the last explicit retry.
    pub lease_losses: u32,
    /// `failures` at which it fails for good.
    pub max_attempts: u32,
    /// `lease_losses` at which it fails for good.
    pub max_lease_losses: u32,
    /// How long it waits after a failure.
    pub backoff: Backoff,
    /// What the worker last told about how far it is.
    #[serde(default, deserialize_with = "super::given", skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// What a waiting task waits for.
    pub waiting_for: Option<Waiting>,
    /// What ended its last wait; kept until the next suspend or the end.
    pub resumed_by: Option<ResumedBy>,
    /// Someone asked the running task to stop.
    pub cancel_requested: bool,
    /// The trace that the request came with.
    pub traceparent: Option<String>,
    /// Grows with every change but renewals.
    pub revision: u64,
    /// Who has it, while running.
    pub lease: Option<Lease>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When `revision` last grew.
    pub updated_at: Timestamp,
    /// When it was last started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

/// What a worker says about how far it is.
pub type Progress = Json;

/// Why a task did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskError {
    /// For people.
    pub message: String,
    /// For programs. Statehold itself uses `timeout`, `lease_lost`, `expired`, `dependency` and
    /// `wait_timeout`.
    #[serde(default)]
    pub code: Option<String>,
    /// Anything else.
    #[serde(default, deserialize_with = "super::given", skip_serializing_if = "Option::is_none")]
    pub details: Option<Json>,
}

impl TaskError {
    /// An error with a code.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { message: message.into(), code: Some(code.to_owned()), details: None }
    }
}

/// Who has a running task, and until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lease {
    /// Who.
    pub owner: String,
    /// The proof, for the owner's writes; left out for others.
    #[serde(default, skip_serializing_if = "Token::is_hidden")]
    pub token: Token,
    /// When this attempt began.
    pub started_at: Timestamp,
    /// Until when; without end for controllers that watch by other means.
    pub expires_at: Option<Timestamp>,
    /// When it was last renewed.
    pub heartbeat_at: Timestamp,
}

/// How long a task waits before its next try: `initial · factorⁿ`, at most `max`, ±10 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Backoff {
    /// After the first failure.
    pub initial_seconds: Seconds,
    /// How much longer each time.
    pub factor: u32,
    /// The longest.
    pub max_seconds: Seconds,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial_seconds: Seconds::new(1), factor: 2, max_seconds: Seconds::new(100) }
    }
}

impl Backoff {
    /// The wait before try `n + 1` after `n` failures, with a jitter that depends on nothing but
    /// the task and the attempt, so that every replica plans the same.
    pub fn delay(&self, failures: u32, id: TaskId, attempt: u32) -> Seconds {
        let doublings = failures.saturating_sub(1).min(64);
        let plain = (0..doublings).fold(self.initial_seconds.as_micros(), |wait, _| {
            wait.saturating_mul(u64::from(self.factor)).min(self.max_seconds.as_micros())
        });
        let plain = plain.min(self.max_seconds.as_micros());
        let mut hasher = blake3::Hasher::new();
        hasher.update(id.0.as_bytes()).update(&attempt.to_le_bytes());
        let spread = u64::from(hasher.finalize().as_bytes()[0]) * 200 / 255;
        Seconds::from_micros(plain / 1000 * (900 + spread))
    }
}

/// What a suspended task waits for, and what happens if it does not come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Waiting {
    /// The awaited.
    #[serde(rename = "for")]
    pub on: WaitFor,
    /// When waiting ends without it.
    pub deadline: Option<Timestamp>,
    /// What happens at the deadline.
    pub on_timeout: OnTimeout,
}

/// Something a task can wait for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// A signal with this name.
    Signal(String),
    /// The children of the task.
    Children(Children),
    /// A time.
    Until(Timestamp),
}

/// Which children are awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Children {
    /// Every one.
    All,
}

/// What happens to a waiting task at its deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// It goes on, resumed by the timeout.
    #[default]
    Resume,
    /// It fails.
    Fail,
}

/// What ended a wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ResumedByWire", into = "ResumedByWire")]
pub enum ResumedBy {
    /// A signal: `{"signal": name, "data"}`.
    Signal {
        /// Its name.
        name: String,
        /// What it carried.
        data: Option<Json>,
    },
    /// Children ended: `{"children": "all"}`.
    Children(Children),
    /// The time came: `{"until": time}`.
    Until(Timestamp),
    /// The deadline passed: `{"timeout": true}`.
    Timeout,
}

/// How [`ResumedBy`] is written. An untagged enum would have to buffer, and lose numbers.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ResumedByWire {
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<String>,
    #[serde(deserialize_with = "super::given", skip_serializing_if = "Option::is_none")]
    data: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    children: Option<Children>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<bool>,
}

impl From<ResumedBy> for ResumedByWire {
    fn from(by: ResumedBy) -> Self {
        let wire = Self::default();
        match by {
            ResumedBy::Signal { name, data } => Self { signal: Some(name), data, ..wire },
            ResumedBy::Children(children) => Self { children: Some(children), ..wire },
            ResumedBy::Until(until) => Self { until: Some(until), ..wire },
            ResumedBy::Timeout => Self { timeout: Some(true), ..wire },
        }
    }
}

impl TryFrom<ResumedByWire> for ResumedBy {
    type Error = &'static str;

    fn try_from(wire: ResumedByWire) -> Result<Self, Self::Error> {
        match wire {
            ResumedByWire { signal: Some(name), data, .. } => Ok(Self::Signal { name, data }),
            ResumedByWire { children: Some(children), .. } => Ok(Self::Children(children)),
            ResumedByWire { until: Some(until), .. } => Ok(Self::Until(until)),
            ResumedByWire { timeout: Some(true), .. } => Ok(Self::Timeout),
            _ => Err("expected one of signal, children, until, timeout"),
        }
    }
}
