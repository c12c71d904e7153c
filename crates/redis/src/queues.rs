//! Queues, who asks them for work, and left-over work.

use std::collections::BTreeMap;

use statehold_core::Timestamp;
use statehold_core::clock::Seconds;
use statehold_core::model::{Poller, QueueInfo};
use statehold_core::query::{POLLER_MEMORY, TaskCounts};
use statehold_core::row::{Chore, ChoreRow, PollerKey, PollerRow, QueueRow};

use crate::connection::{RowKey, read_found};
use crate::counts;
use crate::error::{Result, odd};
use crate::rows::{Table, expiry, read};
use crate::snapshot::Scene;
use crate::space::{Member, Range};
use crate::tasks;

impl Table for QueueRow {
    const LETTER: u8 = b'q';

    fn find(key: &String, member: Member) -> Member {
        member.bytes(key.as_bytes())
    }
}

impl Table for PollerRow {
    const LETTER: u8 = b'p';

    fn find(key: &PollerKey, member: Member) -> Member {
        member.name(&key.queue).bytes(key.owner.as_bytes())
    }

    fn places(&self) -> Vec<Member> {
        vec![expiry::<Self>(&self.key, self.at + POLLER_MEMORY)]
    }
}

impl Table for ChoreRow {
    const LETTER: u8 = b'c';

    fn find(key: &Chore, member: Member) -> Member {
        member.bytes(serde_json::to_string(key).unwrap_or_default().as_bytes())
    }
}

/// Who asked a queue for work.
pub(crate) fn pollers(queue: &str) -> Range {
    Range::of(&Member::new(PollerRow::LETTER).name(queue))
}

fn entry(queues: &mut BTreeMap<String, QueueInfo>, queue: String) -> &mut QueueInfo {
    let info = QueueInfo {
        queue: queue.clone(),
        paused: false,
        counts: BTreeMap::new(),
        claimable: 0,
        oldest_pending_seconds: None,
        per_minute: 0,
        pollers: Vec::new(),
    };
    queues.entry(queue).or_insert(info)
}

/// All queues with their depth.
pub(crate) async fn list(scene: &Scene<'_>, now: Timestamp) -> Result<Vec<QueueInfo>> {
    let (db, space) = (scene.db, scene.space);
    let all = |letter| Range::of(&Member::new(letter));
    let minute_ago = tasks::finished().time(now - Seconds::new(60));
    let ended = all(b'F').beyond(&minute_ago);
    let calls = [
        db.range(space, &all(QueueRow::LETTER), usize::MAX >> 1, RowKey::OWN),
        db.range(space, &all(PollerRow::LETTER), usize::MAX >> 1, RowKey::OWN),
        db.range(space, &ended, usize::MAX >> 1, RowKey::None),
    ];
    let [switches, pollers, ended] =
        <[_; 3]>::try_from(db.call_all(&calls).await?).map_err(|_| odd("three answers"))?;
    let mut queues = BTreeMap::new();
    for (queue, depth) in counts::by_queue(scene, None, now).await? {
        let TaskCounts { counts, claimable, oldest_claimable } = depth;
        let info = entry(&mut queues, queue);
        (info.counts, info.claimable) = (counts, claimable);
        info.oldest_pending_seconds = oldest_claimable.map(|oldest| now.since(oldest));
    }
    for stored in read_found(switches)?.rows.into_iter().flatten() {
        let row: QueueRow = read(&stored)?;
        if row.paused {
            entry(&mut queues, row.queue).paused = true;
        }
    }
    for stored in read_found(pollers)?.rows.into_iter().flatten() {
        let row: PollerRow = read(&stored)?;
        if row.at + POLLER_MEMORY > now {
            entry(&mut queues, row.key.queue).pollers.push(Poller { owner: row.key.owner, at: row.at });
        }
    }
    for member in read_found(ended)?.members {
        // Letter, time and id stand before the queue.
        let queue = member.get(25..).map(String::from_utf8_lossy).unwrap_or_default();
        if let Some(info) = queues.get_mut(queue.as_ref()) {
            info.per_minute += 1;
        }
    }
    Ok(queues.into_values().collect())
}
