//! Calls beside batches: they choose their own rows.

use serde::{Deserialize, Serialize};

use crate::clock::{Seconds, Timestamp};
use crate::error::Result;
use crate::limits::{self, Check};
use crate::model::{Delivered, Source, Task, TaskId};
use crate::policy::Retention;

/// Asks queues for work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Where.
    #[serde(skip)]
    pub namespace: String,
    /// From which queues.
    pub queues: Vec<String>,
    /// For whom.
    pub owner: String,
    /// How many at most; 1 if left out.
    #[serde(default = "one")]
    pub limit: u32,
    /// How long the leases are: 30 if left out, without end if null.
    #[serde(default = "crate::command::default_lease")]
    pub lease_seconds: Option<Seconds>,
    /// Makes it safe to repeat: what this owner's earlier claim with the key still holds is answered again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

fn one() -> u32 {
    1
}

/// What a claim got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Claimed {
    /// Running tasks, in claim order, each with its lease.
    pub tasks: Vec<Task>,
    /// When nothing was there: when something becomes due by itself.
    pub next_at: Option<Timestamp>,
}

impl Claim {
    /// One task from one queue for 30 seconds.
    pub fn new(namespace: impl Into<String>, queue: impl Into<String>, owner: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            queues: vec![queue.into()],
            owner: owner.into(),
            limit: 1,
            lease_seconds: crate::command::default_lease(),
            key: None,
        }
    }

    /// All that is wrong with it.
    pub fn check(&self) -> Result<()> {
        let mut check = Check::default();
        check.name("namespace", &self.namespace);
        check.count("queues", self.queues.len(), 1, limits::FEW);
        self.queues.iter().for_each(|queue| check.name("queues", queue));
        check.name("owner", &self.owner);
        check_limit(&mut check, self.limit);
        check.length("lease_seconds", self.lease_seconds);
        check.maybe_name("key", self.key.as_ref());
        check.finish()
    }
}

fn check_limit(check: &mut Check, limit: u32) {
    let most = limits::LIST;
    let good = limit >= 1 && limit as usize <= most;
    check.that(good, "limit", || format!("{limit} is not between 1 and {most}"));
}

/// Reads for a consumer of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GroupRead {
    /// Where.
    #[serde(skip)]
    pub namespace: String,
    /// Which group.
    #[serde(skip)]
    pub group: String,
    /// What it reads.
    pub source: Source,
    /// For whom.
    pub consumer: String,
    /// How many at most; 10 if left out.
    #[serde(default = "ten")]
    pub limit: u32,
    /// How long nobody else gets them; 30 if left out.
    #[serde(default = "half_a_minute")]
    pub visibility_seconds: Seconds,
    /// How often one event is delivered before it becomes a dead letter; 5 if left out.
    #[serde(default = "five")]
    pub max_deliveries: u32,
    /// Makes it safe to repeat: what is still out from this consumer's read with the key is answered again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

fn ten() -> u32 {
    10
}

fn five() -> u32 {
    5
}

fn half_a_minute() -> Seconds {
    Seconds::new(30)
}

/// What a group read delivered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Deliveries {
    /// Redelivered ones first, in the order in which they became visible, then unread ones in the order of the
    /// source.
    pub events: Vec<Delivered>,
    /// When nothing was there: when the visibility of a pending delivery runs out.
    pub next_at: Option<Timestamp>,
}

impl GroupRead {
    /// Ten events for half a minute.
    pub fn new(
        namespace: impl Into<String>,
        group: impl Into<String>,
        source: Source,
        consumer: impl Into<String>,
    ) -> Self {
        Self {
            namespace: namespace.into(),
            group: group.into(),
            source,
            consumer: consumer.into(),
            limit: ten(),
            visibility_seconds: half_a_minute(),
            max_deliveries: five(),
            key: None,
        }
    }

    /// All that is wrong with it.
    pub fn check(&self) -> Result<()> {
        let mut check = Check::default();
        check.name("namespace", &self.namespace);
        crate::command::check_group(&mut check, &self.group, &self.source);
        check.name("consumer", &self.consumer);
        check_limit(&mut check, self.limit);
        check.length("visibility_seconds", Some(self.visibility_seconds));
        check.that(self.max_deliveries >= 1, "max_deliveries", || "must be at least 1".into());
        check.maybe_name("key", self.key.as_ref());
        check.finish()
    }
}

/// Does what time brings: ended leases, due times, expiries, left-over derived work, retention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sweep {
    /// Where.
    pub namespace: String,
    /// How much of each kind at most.
    pub limit: u32,
    /// What may go.
    pub retention: Retention,
    /// Where retention goes on, from [`Swept::retention_after`].
    pub retention_after: Option<RetentionCursor>,
}

/// How far retention got: after this task, in the order of `finished_at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RetentionCursor {
    /// When it ended.
    pub finished_at: Timestamp,
    /// Its id.
    pub id: TaskId,
}

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swept {
    /// Leases that had ended.
    pub leases: u32,
    /// Tasks whose time had come: due, timed out, woken or expired.
    pub timers: u32,
    /// Documents that had expired.
    pub documents: u32,
    /// Entries that had expired.
    pub entries: u32,
    /// Locks that were forgotten.
    pub locks: u32,
    /// Stored answers that were forgotten.
    pub answers: u32,
    /// Left-over derived work that was taken up.
    pub chores: u32,
    /// Tasks that retention removed.
    pub purged: u32,
    /// Streams that retention trimmed.
    pub trimmed: u32,
    /// Whether a limit was reached, so that sweeping again at once has something to do.
    pub more: bool,
    /// Where retention goes on next time; none when it got through.
    pub retention_after: Option<RetentionCursor>,
}

impl Swept {
    /// Adds what another sweep did.
    pub fn add(&mut self, other: &Self) {
        self.leases += other.leases;
        self.timers += other.timers;
        self.documents += other.documents;
        self.entries += other.entries;
        self.locks += other.locks;
        self.answers += other.answers;
        self.chores += other.chores;
        self.purged += other.purged;
        self.trimmed += other.trimmed;
    }
}

impl Sweep {
    /// A sweep of up to 100 of each kind, with nothing to retain less than forever.
    pub fn new(namespace: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            limit: 100,
            retention: Retention::forever(),
            retention_after: None,
        }
    }

    /// All that is wrong with it.
    pub fn check(&self) -> Result<()> {
        let mut check = Check::default();
        check.name("namespace", &self.namespace);
        check_limit(&mut check, self.limit);
        self.retention.check(&mut check);
        check.finish()
    }
}
