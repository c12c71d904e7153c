//! The status of a task and the table of what may follow what. The table is data; every change
//! of a status is looked up here and nowhere else.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Parked, ordered by rank, not claimable.
    Backlog,
    /// Waits for its dependencies.
    Blocked,
    /// Claimable from `run_at` on.
    Pending,
    /// Leased to one owner.
    Running,
    /// Gave up its worker until a signal, its children or a time.
    Waiting,
    /// Done. Terminal and immutable.
    Completed,
    /// Ended without success. Terminal; an explicit retry opens it again.
    Failed,
    /// Ended by request. Terminal; an explicit retry opens it again.
    Cancelled,
}

use Status::{Backlog, Blocked, Cancelled, Completed, Failed, Pending, Running, Waiting};

/// What may follow each status.
///
/// ```
/// use statehold_core::status::{Status, TRANSITIONS};
///
/// assert!(Status::Running.allows(Status::Completed));
/// assert!(!Status::Completed.allows(Status::Pending));
/// assert_eq!(TRANSITIONS.len(), Status::ALL.len());
/// ```
pub const TRANSITIONS: [(Status, &[Status]); 8] = [
    (Backlog, &[Pending, Blocked, Cancelled]),
    (Blocked, &[Pending, Backlog, Failed, Cancelled]),
    (Pending, &[Running, Backlog, Failed, Cancelled]),
    (Running, &[Completed, Failed, Pending, Waiting, Cancelled]),
    (Waiting, &[Pending, Failed, Cancelled]),
    (Completed, &[]),
    (Failed, &[Pending, Blocked]),
    (Cancelled, &[Pending, Blocked]),
];

impl Status {
    /// Every status, in the order of the table.
    pub const ALL: [Self; 8] = [Backlog, Blocked, Pending, Running, Waiting, Completed, Failed, Cancelled];

    /// What may come next.
    pub fn next(self) -> &'static [Self] {
        TRANSITIONS.iter().find(|(from, _)| *from == self).map_or(&[], |(_, next)| next)
    }

    /// Whether the table has a way from this status to `next`.
    pub fn allows(self, next: Self) -> bool {
        self.next().contains(&next)
    }

    /// Whether the task has ended: completed, failed or cancelled.
    pub fn is_terminal(self) -> bool {
        matches!(self, Completed | Failed | Cancelled)
    }

    /// The wire name.
    pub fn as_str(self) -> &'static str {
        match self {
            Backlog => "backlog",
            Blocked => "blocked",
            Pending => "pending",
            Running => "running",
            Waiting => "waiting",
            Completed => "completed",
            Failed => "failed",
            Cancelled => "cancelled",
        }
    }
}

impl std::str::FromStr for Status {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|status| status.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is not a status"))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
