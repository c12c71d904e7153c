//! Queues, who asks them for work, and left-over work.

use std::collections::BTreeMap;

use rusqlite::{Result, params};
use statehold_core::model::{Poller, QueueInfo};
use statehold_core::query::POLLER_MEMORY;
use statehold_core::row::{Chore, ChoreRow, PollerKey, PollerRow, QueueRow};
use statehold_core::{Seconds, Timestamp};

use crate::rows::{Cells, More, Table, id};
use crate::statements::{Db, sql};

pub(crate) fn read_queue(cells: &mut Cells<'_, '_>) -> Result<QueueRow> {
    Ok(QueueRow { queue: cells.text()?, paused: cells.get()? })
}

impl Table for QueueRow {
    fn get(db: Db<'_, '_>, ns: i64, key: &String) -> Result<Option<Self>> {
        db.first(sql!("queue_get"), params![ns, key], read_queue)
    }

    fn put(&self, db: Db<'_, '_>, ns: i64, _: Option<&Self>) -> Result<()> {
        db.run(sql!("queue_put"), params![ns, self.queue, self.paused]).map(drop)
    }

    fn delete(&self, db: Db<'_, '_>, ns: i64) -> Result<()> {
        db.run(sql!("queue_delete"), params![ns, self.queue]).map(drop)
    }
}

pub(crate) fn read_poller(cells: &mut Cells<'_, '_>) -> Result<PollerRow> {
    Ok(PollerRow { key: PollerKey { queue: cells.text()?, owner: cells.text()? }, at: cells.time()? })
}

impl Table for PollerRow {
    fn get(db: Db<'_, '_>, ns: i64, key: &PollerKey) -> Result<Option<Self>> {
        db.first(sql!("poller_get"), params![ns, key.queue, key.owner], read_poller)
    }

    fn put(&self, db: Db<'_, '_>, ns: i64, _: Option<&Self>) -> Result<()> {
        let params = params![ns, self.key.queue, self.key.owner, self.at.as_micros()];
        db.run(sql!("poller_put"), params).map(drop)
    }

    fn delete(&self, db: Db<'_, '_>, ns: i64) -> Result<()> {
        db.run(sql!("poller_delete"), params![ns, self.key.queue, self.key.owner]).map(drop)
    }
}

fn chore_text(chore: &Chore) -> String {
    serde_json::to_string(chore).unwrap_or_default()
}

pub(crate) fn read_chore(cells: &mut Cells<'_, '_>) -> Result<ChoreRow> {
    let chore: ChoreText = cells.parse()?;
    Ok(ChoreRow { chore: chore.0, after: cells.maybe_id()? })
}

struct ChoreText(Chore);

impl std::str::FromStr for ChoreText {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        serde_json::from_str(text).map(Self)
    }
}

impl Table for ChoreRow {
    fn get(db: Db<'_, '_>, ns: i64, key: &Chore) -> Result<Option<Self>> {
        db.first(sql!("chore_get"), params![ns, chore_text(key)], read_chore)
    }

    fn put(&self, db: Db<'_, '_>, ns: i64, _: Option<&Self>) -> Result<()> {
        db.run(sql!("chore_put"), params![ns, chore_text(&self.chore), self.after.map(id)]).map(drop)
    }

    fn delete(&self, db: Db<'_, '_>, ns: i64) -> Result<()> {
        db.run(sql!("chore_delete"), params![ns, chore_text(&self.chore)]).map(drop)
    }
}

/// Left-over work, in its order.
pub(crate) fn chores(db: Db<'_, '_>, ns: i64) -> Result<Vec<ChoreRow>> {
    let mut chores = db.all(sql!("chores_list"), [ns], read_chore)?;
    chores.sort_by(|one, two| one.chore.cmp(&two.chore));
    Ok(chores)
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
pub(crate) fn list(db: Db<'_, '_>, ns: i64, now: Timestamp) -> Result<Vec<QueueInfo>> {
    let mut queues = BTreeMap::new();
    db.each(sql!("queues_paused"), [ns], |cells| {
        entry(&mut queues, cells.text()?).paused = true;
        Ok(More::Please)
    })?;
    db.each(sql!("pollers_list"), params![ns, (now - POLLER_MEMORY).as_micros()], |cells| {
        let row = read_poller(cells)?;
        entry(&mut queues, row.key.queue).pollers.push(Poller { owner: row.key.owner, at: row.at });
        Ok(More::Please)
    })?;
    crate::tasks::queue_depths(db, ns, &mut queues, now, now - Seconds::new(60))?;
    Ok(queues.into_values().collect())
}
