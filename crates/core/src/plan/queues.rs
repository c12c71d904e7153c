//! Queues: the switch, and who asks for work.

use std::sync::Arc;

use super::tx::{Planned, Tx};
use crate::clock::Seconds;
use crate::command::{QueueSet, QueueState};
use crate::model::Poller;
use crate::query::POLLER_MEMORY;
use crate::row::{Chore, QueueRow};

/// How exactly it is known when someone last asked.
const POLL_PRECISION: Seconds = Seconds::new(10);
/// How many pollers a queue remembers.
const MAX_POLLERS: usize = 100;

fn row(tx: &mut Tx<'_>, queue: &str) -> Planned<QueueRow> {
    let row = tx.get::<QueueRow>(&queue.to_owned())?;
    Ok(row.map_or_else(
        || QueueRow { queue: queue.to_owned(), paused: false, pollers: Vec::new() },
        Arc::unwrap_or_clone,
    ))
}

/// Whether a queue gives nothing.
pub(super) fn is_paused(tx: &mut Tx<'_>, queue: &str) -> Planned<bool> {
    Ok(tx.get::<QueueRow>(&queue.to_owned())?.is_some_and(|row| row.paused))
}

pub(super) fn judge_set(tx: &mut Tx<'_>, set: &QueueSet) -> Planned<()> {
    tx.get::<QueueRow>(&set.queue).map(|_| ())
}

pub(super) fn set(tx: &mut Tx<'_>, set: &QueueSet) -> Planned<QueueState> {
    let row = row(tx, &set.queue)?;
    if row.paused != set.paused {
        tx.agenda.chores.insert(Chore::QueueKeys(set.queue.clone()), None);
    }
    tx.put(QueueRow { paused: set.paused, ..row });
    Ok(QueueState { queue: set.queue.clone(), paused: set.paused })
}

/// Remembers that someone asked a queue for work, unless that is known well enough.
pub(super) fn note_poller(tx: &mut Tx<'_>, queue: &str, owner: &str) -> Planned<()> {
    let now = tx.now;
    let mut row = row(tx, queue)?;
    let known = row
        .pollers
        .iter()
        .any(|poller| poller.owner == owner && poller.at <= now && poller.at + POLL_PRECISION > now);
    if known {
        return Ok(());
    }
    row.pollers.retain(|poller| poller.owner != owner && poller.at + POLLER_MEMORY > now);
    if row.pollers.len() >= MAX_POLLERS {
        let oldest =
            row.pollers.iter().enumerate().min_by_key(|(_, poller)| poller.at).map(|(index, _)| index);
        oldest.map(|index| row.pollers.remove(index));
    }
    row.pollers.push(Poller { owner: owner.to_owned(), at: now });
    row.pollers.sort_by(|one, two| one.owner.cmp(&two.owner));
    tx.put(row);
    Ok(())
}
