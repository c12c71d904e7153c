//! Commands on locks.

use serde::{Deserialize, Serialize};

use crate::clock::{Seconds, Timestamp};
use crate::limits::Check;
use crate::model::{Lock, Token};

fn minute() -> Seconds {
    Seconds::new(60)
}

/// Takes a lock if it is free.
///
/// # Behavior
/// - A lock that is held and not expired is `held`, also for its own holder.
/// - The reply carries a token that is larger than every one before for this key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LockAcquire {
    /// What to lock.
    pub key: String,
    /// For whom.
    pub owner: String,
    /// How long it is held unless renewed; a minute if left out.
    #[serde(default = "minute")]
    pub ttl_seconds: Seconds,
}

impl LockAcquire {
    /// A lock for a minute.
    pub fn new(key: impl Into<String>, owner: impl Into<String>) -> Self {
        Self { key: key.into(), owner: owner.into(), ttl_seconds: minute() }
    }

    pub(super) fn check(&self, check: &mut Check) {
        check.name("key", &self.key);
        check.name("owner", &self.owner);
        check.length("ttl_seconds", Some(self.ttl_seconds));
    }
}

/// The reply of `lock.acquire`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LockAcquired {
    /// The proof.
    pub token: Token,
    /// Until when it is held.
    pub expires_at: Timestamp,
}

/// Keeps a lock.
///
/// # Behavior
/// - Another token, or a lock that is over, is `fenced`.
/// - It is held until now + `ttl_seconds`, a minute if left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LockRenew {
    /// Which lock.
    pub key: String,
    /// The holder's proof.
    pub token: Token,
    /// How long from now.
    #[serde(default = "minute")]
    pub ttl_seconds: Seconds,
}

/// The reply of `lock.renew`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LockRenewed {
    /// Until when it is held.
    pub expires_at: Timestamp,
}

impl LockRenew {
    pub(super) fn check(&self, check: &mut Check) {
        check.name("key", &self.key);
        check.length("ttl_seconds", Some(self.ttl_seconds));
    }
}

/// Frees a lock.
///
/// # Behavior
/// - A lock that someone else took since, or that this token never held, is `fenced`. One that expired or
///   was freed and that nobody took since is released gladly, so releasing twice is no error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LockRelease {
    /// Which lock.
    pub key: String,
    /// The holder's proof.
    pub token: Token,
}

impl LockRelease {
    pub(super) fn check(&self, check: &mut Check) {
        check.name("key", &self.key);
    }
}

/// Frees a lock whoever holds it.
///
/// # Behavior
/// - The reply tells who held it, if anyone did. The holder is fenced. The act is written to the audit
///   stream, also when nobody held it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LockForceRelease {
    /// Which lock.
    pub key: String,
}

/// The reply of `lock.force_release`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LockFreed {
    /// Who held it.
    pub previous: Option<Lock>,
}

impl LockForceRelease {
    pub(super) fn check(&self, check: &mut Check) {
        check.name("key", &self.key);
    }
}
