//! Queues: the switch, and who asks for work.

use super::tx::{Planned, Tx};
use crate::clock::Timestamp;
use crate::command::{QueueSet, QueueState};
use crate::query::{POLL_PRECISION, POLLER_MEMORY};
use crate::row::{Chore, PollerKey, PollerRow, QueueRow};

/// Whether a queue gives nothing.
pub(super) fn is_paused(tx: &mut Tx<'_>, queue: &str) -> Planned<bool> {
    Ok(tx.get::<QueueRow>(&queue.to_owned())?.is_some_and(|row| row.paused))
}

pub(super) fn judge_set(tx: &mut Tx<'_>, set: &QueueSet) -> Planned<()> {
    tx.get::<QueueRow>(&set.queue).map(|_| ())
}

pub(super) fn set(tx: &mut Tx<'_>, set: &QueueSet) -> Planned<QueueState> {
    let QueueSet { queue, paused } = set.clone();
    if is_paused(tx, &queue)? != paused {
        tx.agenda.chores.insert(Chore::QueueKeys(queue.clone()), None);
    }
    tx.put(QueueRow { queue: queue.clone(), paused });
    Ok(QueueState { queue, paused })
}

/// Remembers that someone asked a queue for work, unless that is known well enough.
pub(super) fn note_poller(tx: &mut Tx<'_>, queue: &str, owner: &str) -> Planned<()> {
    let key = PollerKey { queue: queue.to_owned(), owner: owner.to_owned() };
    let now = tx.now;
    if !tx.get::<PollerRow>(&key)?.is_some_and(|row| row.is_recent(now)) {
        tx.put(PollerRow { key, at: now });
    }
    Ok(())
}

impl PollerRow {
    /// Whether it is known well enough when they last asked.
    pub fn is_recent(&self, now: Timestamp) -> bool {
        self.at <= now && self.at + POLL_PRECISION > now
    }
}

/// Forgets someone who has not asked for a while.
pub(super) fn forget_poller(tx: &mut Tx<'_>, key: &PollerKey) -> Planned<()> {
    let now = tx.now;
    if tx.get::<PollerRow>(key)?.is_some_and(|row| row.at + POLLER_MEMORY <= now) {
        tx.delete::<PollerRow>(key);
    }
    Ok(())
}
