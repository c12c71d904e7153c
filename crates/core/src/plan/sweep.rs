//! Sweeps: what time brings, a bounded part at a time.

use std::sync::Arc;

use serde_json::json;

use super::lookup::{Expired, Overgrown, TaskSet};
use super::tx::{Planned, Tx};
use super::{derived, documents, entries, lifecycle, locks, queues, streams, tasks};
use crate::call::{RetentionCursor, Sweep, Swept};
use crate::command::TrimTo;
use crate::row::{AnswerRow, ChoreRow, TaskRow};

/// What time brought to tasks.
#[derive(Default)]
pub(super) struct Passed {
    timers: u32,
    leases: u32,
    /// Whether the bound was reached.
    pub(super) more: bool,
}

fn time_sets(queues: Option<&Arc<[String]>>) -> [TaskSet; 2] {
    [TaskSet::Due { queues: queues.cloned() }, TaskSet::LeaseOver { queues: queues.cloned() }]
}

/// Notes what [`pass_times`] looks at.
pub(super) fn want_times(tx: &mut Tx<'_>, queues: Option<&Arc<[String]>>, limit: usize) {
    for set in time_sets(queues) {
        tx.want_set(set, limit);
    }
}

/// Does what time brings to up to `limit` timers and as many leases.
pub(super) fn pass_times(tx: &mut Tx<'_>, queues: Option<&Arc<[String]>>, limit: usize) -> Planned<Passed> {
    let mut passed = Passed::default();
    let [timers, leases] = time_sets(queues);
    passed.timers = pass(tx, &timers, limit, &mut passed.more)?;
    passed.leases = pass(tx, &leases, limit, &mut passed.more)?;
    Ok(passed)
}

fn pass(tx: &mut Tx<'_>, set: &TaskSet, limit: usize, more: &mut bool) -> Planned<u32> {
    let found = tx.find(set, limit)?;
    *more |= !found.complete;
    let rows: Vec<_> = found.keys.iter().map(|row| row.task.id).collect();
    found.keys.iter().for_each(|row| lifecycle::want_end(tx, row));
    tx.all_loaded()?;
    let mut count = 0;
    for id in rows {
        // What time brought to one task may have changed the next.
        let Some(row) = tx.get::<TaskRow>(&id)?.filter(|row| set.contains(row, tx.now)) else { continue };
        let mut row = Arc::unwrap_or_clone(row);
        if tx.attempt(|tx| lifecycle::pass_time(tx, &mut row))? == Some(true) {
            tx.put(row);
            count += 1;
        }
    }
    Ok(count)
}

pub(super) fn sweep(tx: &mut Tx<'_>, sweep: &Sweep) -> Planned<Swept> {
    let limit = sweep.limit as usize;
    want_times(tx, None, limit);
    tx.want_look(Expired { limit });
    let passed = pass_times(tx, None, limit)?;
    let mut swept =
        Swept { timers: passed.timers, leases: passed.leases, more: passed.more, ..Swept::default() };
    expire(tx, limit, &mut swept)?;
    derived::settle(tx)?;
    retire(tx, sweep, &mut swept)?;
    derived::settle(tx)?;
    trim_streams(tx, sweep, &mut swept)?;
    Ok(swept)
}

/// Removes what has expired and takes up what was left over.
fn expire(tx: &mut Tx<'_>, limit: usize, swept: &mut Swept) -> Planned<()> {
    let expired = tx.look(&Expired { limit })?;
    for key in &expired.documents {
        swept.documents += u32::from(documents::expire(tx, key)?);
    }
    for key in &expired.entries {
        swept.entries += u32::from(entries::expire(tx, key)?);
    }
    for key in &expired.locks {
        swept.locks += u32::from(locks::forget(tx, key)?);
    }
    for key in &expired.answers {
        let now = tx.now;
        if tx.get::<AnswerRow>(key)?.is_some_and(|row| row.expires_at <= now) {
            tx.delete::<AnswerRow>(key);
            swept.answers += 1;
        }
    }
    for key in &expired.pollers {
        queues::forget_poller(tx, key)?;
    }
    for chore in &expired.chores {
        if let Some(row) = tx.get::<ChoreRow>(chore)? {
            tx.delete::<ChoreRow>(chore);
            tx.agenda.chores.insert(row.chore.clone(), row.after);
            swept.chores += 1;
        }
    }
    let counts = [expired.documents.len(), expired.entries.len(), expired.locks.len(), expired.answers.len()];
    swept.more |= swept.chores > 0 || counts.into_iter().any(|count| count >= limit);
    Ok(())
}

/// Purges tasks that ended long enough ago and that nobody needs.
fn retire(tx: &mut Tx<'_>, sweep: &Sweep, swept: &mut Swept) -> Planned<()> {
    if sweep.retention.tasks.is_empty() {
        return Ok(());
    }
    let rules = sweep.retention.tasks.iter().map(|(status, keep)| (*status, tx.now - *keep)).collect();
    let set = TaskSet::Retired { rules, after: sweep.retention_after };
    let found = tx.find(&set, sweep.limit as usize)?;
    found.keys.iter().for_each(|row| tasks::want_purge(tx, row.task.id, row.task.parent));
    tx.all_loaded()?;
    let mut purged = Vec::new();
    for row in &found.keys {
        if tasks::needed_by(tx, row)?.is_none() {
            tasks::erase(tx, row)?;
            purged.push(row.task.id);
        }
    }
    if !found.complete {
        swept.more = true;
        let last = found.keys.last();
        swept.retention_after = last.and_then(|row| {
            row.task.finished_at.map(|finished_at| RetentionCursor { finished_at, id: row.task.id })
        });
    }
    swept.purged = u32::try_from(purged.len()).unwrap_or(u32::MAX);
    if purged.is_empty() {
        return Ok(());
    }
    streams::audit(tx, "task.purged", &json!({ "tasks": purged, "retention": true }))
}

/// Trims streams that hold more than they may.
fn trim_streams(tx: &mut Tx<'_>, sweep: &Sweep, swept: &mut Swept) -> Planned<()> {
    let limit = sweep.limit as usize;
    for (category, keep) in &sweep.retention.streams {
        let overgrown = tx.look(&Overgrown { category: category.clone(), keep: *keep, limit })?;
        swept.more |= overgrown.len() >= limit;
        let rules = [keep.max_length.map(TrimTo::Length), keep.max_age_seconds.map(TrimTo::AgeSeconds)];
        let rules: Vec<_> = rules.into_iter().flatten().collect();
        for (stream, to) in overgrown.iter().flat_map(|stream| rules.iter().map(move |to| (stream, *to))) {
            tx.attempt(|tx| streams::judge_trim(tx, stream, Some(to)))?;
        }
        tx.all_loaded()?;
        for stream in &overgrown {
            for to in &rules {
                streams::trim(tx, stream, *to)?;
            }
            swept.trimmed += 1;
        }
    }
    Ok(())
}
