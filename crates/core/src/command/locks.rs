//! Commands on locks.

use serde::{Deserialize, Serialize};

use crate::clock::{Seconds, Timestamp};
use crate::limits::Check;
use crate::model::{Lock, Token};
use crate::session::SessionId;

fn minute() -> Seconds {
    Seconds::new(60)
}

/// Takes a lock if it is free.
///
/// # Behavior
/// - A lock that is held and not expired is `held`, also for its own holder.
/// - The reply carries a token that is larger than every one before for this key.
/// - With a `session`, the lock is free as soon as that session of the holder's process ends, if it was not free before:
///   the next token is larger, and the holder is `fenced`. It is never part of what is sent to a server, since the
///   session would be the server's.
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
    /// The session of this process that it ends with; see [`Backend::session`](crate::Backend::session).
    #[serde(skip)]
    pub session: Option<SessionId>,
}

impl LockAcquire {
    /// A lock for a minute.
    pub fn new(key: impl Into<String>, owner: impl Into<String>) -> Self {
        Self { key: key.into(), owner: owner.into(), ttl_seconds: minute(), session: None }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_never_sent_and_never_taken_from_others() {
        let acquire = LockAcquire { session: Some(SessionId(7)), ..LockAcquire::new("k", "me") };
        let sent = serde_json::to_string(&acquire).expect("it is written");
        let read: LockAcquire = serde_json::from_str(&sent).expect("it is read");
        assert_eq!(read, LockAcquire::new("k", "me"));
        assert!(serde_json::from_str::<LockAcquire>(r#"{"key":"k","owner":"me","session":7}"#).is_err());
    }
}
