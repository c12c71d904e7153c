//! How many tasks there are, and how many of them could be claimed.

use std::collections::BTreeMap;

use statehold_core::Timestamp;
use statehold_core::query::TaskCounts;
use statehold_core::row::{TaskRow, Turn};

use crate::connection::{RowKey, read_found};
use crate::error::{Result, odd};
use crate::rows::read;
use crate::snapshot::Scene;
use crate::space::Range;
use crate::tasks;

/// How many tasks there are by queue, or in one queue.
pub(crate) async fn by_queue(
    scene: &Scene<'_>,
    queue: Option<&str>,
    now: Timestamp,
) -> Result<BTreeMap<String, TaskCounts>> {
    let mut call = redis::cmd("HGETALL");
    call.arg(scene.space.counts());
    let fields = redis::from_redis_value(scene.db.call(&call).await?).map_err(|_| odd("counts"))?;
    let mut queues = tasks::read_counts(fields);
    queues.retain(|name, _| queue.is_none_or(|queue| name == queue));
    for (name, counts) in &mut queues {
        claimable(scene, name, counts, now).await?;
    }
    Ok(queues)
}

/// Counts what could be claimed. Everything that is ready can, except what has expired; and what is due and has not been
/// looked at yet. Both have a timer that has come, and there are few of those.
async fn claimable(scene: &Scene<'_>, queue: &str, counts: &mut TaskCounts, now: Timestamp) -> Result<()> {
    let (db, space) = (scene.db, scene.space);
    let ready = Range::of(&tasks::ready(queue));
    let mut count = redis::cmd("ZLEXCOUNT");
    count.arg(space.index()).arg(&ready.min).arg(&ready.max);
    let due = Range::of(&tasks::timer(queue)).up_to(&tasks::timer(queue).time(now));
    let calls = [count, db.range(space, &due, usize::MAX >> 1, RowKey::TASK)];
    let [count, due] = <[_; 2]>::try_from(db.call_all(&calls).await?).map_err(|_| odd("two answers"))?;
    let ready: u64 = redis::from_redis_value(count).map_err(|_| odd("a count"))?;
    let (mut expired, mut oldest) = (0, None);
    for stored in read_found(due)?.rows.into_iter().flatten() {
        let row: TaskRow = read(&stored)?;
        let fresh = row.task.expires_at.is_none_or(|at| at > now);
        let is_due = row.turn == Turn::Later && row.task.run_at <= now && row.task.exclusive_key.is_none();
        match row.turn {
            Turn::Ready if !fresh => expired += 1,
            _ if is_due && fresh => {
                counts.claimable += 1;
                oldest = oldest.into_iter().chain([row.task.run_at]).min();
            }
            _ => {}
        }
    }
    counts.claimable += ready.saturating_sub(expired as u64);
    counts.oldest_claimable =
        oldest.into_iter().chain(longest_ready(scene, queue, expired, now).await?).min();
    Ok(())
}

/// Since when the longest-waiting ready task could be claimed. Within a priority they stand in the order of time, so the
/// first of each that has not expired tells.
async fn longest_ready(
    scene: &Scene<'_>,
    queue: &str,
    expired: usize,
    now: Timestamp,
) -> Result<Option<Timestamp>> {
    let mut range = Range::of(&tasks::ready(queue));
    let mut oldest = None;
    loop {
        let call = scene.db.range(scene.space, &range, expired + 1, RowKey::TASK);
        let found = read_found(scene.db.call(&call).await?)?;
        let Some(first) = found.members.first() else { return Ok(oldest) };
        let prefix = tasks::ready(queue);
        let length = prefix.0.len();
        let priority = prefix.bytes(first.get(length..length + 2).unwrap_or_default());
        for stored in found.rows.into_iter().flatten() {
            let row: TaskRow = read(&stored)?;
            if row.task.expires_at.is_none_or(|at| at > now) {
                oldest = oldest.into_iter().chain([row.task.run_at]).min();
                break;
            }
        }
        range = range.beyond(&priority);
    }
}

/// All counts in one.
pub(crate) fn total(queues: BTreeMap<String, TaskCounts>) -> TaskCounts {
    let mut total = TaskCounts::default();
    for counts in queues.into_values() {
        for (status, tasks) in counts.counts {
            *total.counts.entry(status).or_default() += tasks;
        }
        total.claimable += counts.claimable;
        total.oldest_claimable = total.oldest_claimable.into_iter().chain(counts.oldest_claimable).min();
    }
    total
}
