//! Queues, who asks them for work, and left-over work.

use std::collections::BTreeMap;

use statehold_core::Timestamp;
use statehold_core::model::{Poller, QueueInfo};
use statehold_core::query::POLLER_MEMORY;
use statehold_core::row::{Chore, ChoreRow, PollerKey, PollerRow, QueueRow};

use crate::connection::{Call, Connection, Reading, reading, sql};
use crate::error::Result;
use crate::rows::{Table, read_all};
use crate::tasks;
use crate::values::{At, Cells, Param, column, id, param};

impl Table for QueueRow {
    const GET: Reading = reading!("queue_get");
    const INSERT: &'static str = sql!("queue_insert");
    const UPDATE: &'static str = sql!("queue_update");
    const DELETE: &'static str = sql!("queue_delete");

    fn keys(keys: &[&String]) -> Vec<Param> {
        vec![column(keys, |key| (*key).clone())]
    }

    fn columns(rows: &[&Self]) -> Vec<Param> {
        vec![column(rows, |row| row.queue.clone()), column(rows, |row| row.paused)]
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        Ok(Self { queue: cells.text()?, paused: cells.get()? })
    }
}

impl Table for PollerRow {
    const GET: Reading = reading!("poller_get");
    const INSERT: &'static str = sql!("poller_insert");
    const UPDATE: &'static str = sql!("poller_update");
    const DELETE: &'static str = sql!("poller_delete");

    fn keys(keys: &[&PollerKey]) -> Vec<Param> {
        vec![column(keys, |key| key.queue.clone()), column(keys, |key| key.owner.clone())]
    }

    fn columns(rows: &[&Self]) -> Vec<Param> {
        vec![
            column(rows, |row| row.key.queue.clone()),
            column(rows, |row| row.key.owner.clone()),
            column(rows, |row| At(row.at)),
        ]
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        Ok(Self { key: PollerKey { queue: cells.text()?, owner: cells.text()? }, at: cells.time()? })
    }
}

/// The text of a chore.
pub(crate) fn chore_text(chore: &Chore) -> String {
    serde_json::to_string(chore).unwrap_or_default()
}

struct ChoreText(Chore);

impl std::str::FromStr for ChoreText {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        serde_json::from_str(text).map(Self)
    }
}

impl Table for ChoreRow {
    const GET: Reading = reading!("chore_get");
    const INSERT: &'static str = sql!("chore_insert");
    const UPDATE: &'static str = sql!("chore_update");
    const DELETE: &'static str = sql!("chore_delete");

    fn keys(keys: &[&Chore]) -> Vec<Param> {
        vec![column(keys, |key| chore_text(key))]
    }

    fn columns(rows: &[&Self]) -> Vec<Param> {
        vec![column(rows, |row| chore_text(&row.chore)), column(rows, |row| id(row.after))]
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        let chore: ChoreText = cells.parse()?;
        Ok(Self { chore: chore.0, after: cells.maybe_id()? })
    }
}

/// The entry of a queue in a list that is being made.
pub(crate) fn entry(queues: &mut BTreeMap<String, QueueInfo>, queue: String) -> &mut QueueInfo {
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
pub(crate) async fn list(db: &Connection, ns: i64, now: Timestamp) -> Result<Vec<QueueInfo>> {
    let mut queues = BTreeMap::new();
    let recent = At(now - POLLER_MEMORY);
    let calls = [
        Call::new(sql!("queues_paused"), vec![param(ns)]),
        Call::new(sql!("pollers_list"), vec![param(ns), param(recent)]),
    ];
    let answers = db.query_all(&calls).await?;
    for queue in read_all(&answers[0], Cells::text)? {
        entry(&mut queues, queue).paused = true;
    }
    for row in read_all(&answers[1], PollerRow::read)? {
        entry(&mut queues, row.key.queue).pollers.push(Poller { owner: row.key.owner, at: row.at });
    }
    tasks::queue_depths(db, ns, &mut queues, now).await?;
    Ok(queues.into_values().collect())
}
