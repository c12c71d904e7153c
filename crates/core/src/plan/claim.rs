//! Claims: what is due first, then the first ready tasks.

use std::sync::Arc;

use super::lifecycle::{self, Starter};
use super::lookup::TaskSet;
use super::tx::{Planned, Tx};
use super::{derived, queues, sweep};
use crate::call::{Claim, Claimed};
use crate::clock::Timestamp;
use crate::model::Task;
use crate::row::{PollerKey, PollerRow, QueueRow};

/// How many timers and how many leases a claim handles before it takes.
const BOUND: usize = 100;

/// Decides a claim; `ready` is what was done before, if anything.
pub(super) fn claim(tx: &mut Tx<'_>, claim: &Claim, ready: Option<Ready>) -> Planned<Claimed> {
    let queues = unique(&claim.queues);
    want_all(tx, claim, &queues);
    if let Some(tasks) = held_before(tx, claim)? {
        return Ok(Claimed { tasks, next_at: None });
    }
    let open = note(tx, claim, queues)?;
    if open.is_empty() {
        return Ok(Claimed::default());
    }
    let more = match ready.filter(|ready| ready.at == tx.now) {
        Some(ready) => ready.more,
        None => pass_times(tx, &open)?,
    };
    let tasks = take(tx, claim, &open)?;
    let next_at = match tasks.is_empty() {
        true if more => Some(tx.now),
        true => upcoming(tx, &open)?,
        false => None,
    };
    Ok(Claimed { tasks, next_at })
}

/// What was done before a claim takes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Up to when what is due was handled.
    pub at: Timestamp,
    /// Whether there was more of it than is handled at once.
    pub more: bool,
}

/// Does what comes before a claim takes anything: who asks is noted, and what is due is handled.
pub(super) fn prepare(tx: &mut Tx<'_>, claim: &Claim) -> Planned<Ready> {
    let queues = unique(&claim.queues);
    want_switches(tx, claim, &queues);
    sweep::want_times(tx, Some(&queues), BOUND);
    let mut ready = Ready { at: tx.now, more: false };
    if held_before(tx, claim)?.is_some() {
        return Ok(ready);
    }
    let open = note(tx, claim, queues)?;
    if !open.is_empty() {
        ready.more = pass_times(tx, &open)?;
    }
    Ok(ready)
}

/// Handles what is due in these queues; answers whether there is more of it than is handled at once.
fn pass_times(tx: &mut Tx<'_>, open: &Arc<[String]>) -> Planned<bool> {
    let passed = sweep::pass_times(tx, Some(open), BOUND)?;
    derived::settle(tx)?;
    Ok(passed.more)
}

/// Notes who asks these queues for work; answers those that are not paused.
fn note(tx: &mut Tx<'_>, claim: &Claim, queues: Arc<[String]>) -> Planned<Arc<[String]>> {
    let mut paused = Vec::new();
    for queue in &*queues {
        queues::note_poller(tx, queue, &claim.owner)?;
        if queues::is_paused(tx, queue)? {
            paused.push(queue);
        }
    }
    if paused.is_empty() {
        return Ok(queues);
    }
    Ok(queues.iter().filter(|queue| !paused.contains(queue)).cloned().collect())
}

fn unique(queues: &[String]) -> Arc<[String]> {
    let mut queues = queues.to_vec();
    queues.sort();
    queues.dedup();
    queues.into()
}

/// Notes what a claim looks at when no queue is paused.
fn want_all(tx: &mut Tx<'_>, claim: &Claim, queues: &Arc<[String]>) {
    want_switches(tx, claim, queues);
    sweep::want_times(tx, Some(queues), BOUND);
    tx.want_set(TaskSet::Ready { queues: Arc::clone(queues) }, claim.limit as usize);
}

fn want_switches(tx: &mut Tx<'_>, claim: &Claim, queues: &Arc<[String]>) {
    for queue in &**queues {
        tx.want::<QueueRow>(queue);
        tx.want::<PollerRow>(&PollerKey { queue: queue.clone(), owner: claim.owner.clone() });
    }
}

/// What an earlier claim with the same key still holds.
fn held_before(tx: &mut Tx<'_>, claim: &Claim) -> Planned<Option<Vec<Task>>> {
    let Some(key) = &claim.key else { return Ok(None) };
    let set = TaskSet::Claimed { owner: claim.owner.clone(), key: key.clone() };
    let now = tx.now;
    let held = tx.find(&set, crate::limits::LIST)?.keys.into_iter();
    let held = held.filter(|row| row.lease_end().is_none_or(|end| end > now));
    let tasks: Vec<_> = held.map(|row| row.task.clone()).collect();
    Ok(if tasks.is_empty() { None } else { Some(tasks) })
}

fn take(tx: &mut Tx<'_>, claim: &Claim, open: &Arc<[String]>) -> Planned<Vec<Task>> {
    let set = TaskSet::Ready { queues: Arc::clone(open) };
    let ready = tx.find(&set, claim.limit as usize)?.keys;
    let starter =
        Starter { owner: &claim.owner, lease_seconds: claim.lease_seconds, claim_key: claim.key.as_deref() };
    let mut tasks = Vec::with_capacity(ready.len());
    for row in ready {
        let mut row = Arc::unwrap_or_clone(row);
        lifecycle::start(tx, &mut row, &starter)?;
        tasks.push(row.task.clone());
        tx.put(row);
    }
    Ok(tasks)
}

/// When something in these queues happens by itself.
fn upcoming(tx: &mut Tx<'_>, open: &Arc<[String]>) -> Planned<Option<Timestamp>> {
    let set = TaskSet::Upcoming { queues: Arc::clone(open) };
    Ok(tx.find(&set, 1)?.keys.first().and_then(|row| row.alarm()))
}
