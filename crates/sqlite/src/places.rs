//! Where tasks are found: the places of a task, and the sets that plans ask for.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rusqlite::{Params, Result, params};
use statehold_core::model::TaskId;
use statehold_core::plan::{Found, Place as SetPlace, Rows, TaskSelect, TaskSet};
use statehold_core::row::{Change, TaskRow, Turn};
use statehold_core::{Status, Timestamp};
use uuid::Uuid;

use crate::rows::{More, Table as _, id};
use crate::statements::{Db, Sql, sql};
use crate::tasks::read;

/// A place where a task is found, beside those that the indexes of its table give.
#[derive(PartialEq)]
struct Place {
    by: &'static str,
    key: String,
    first: i64,
    second: i64,
}

/// Moves a task to where it is found now.
pub(crate) fn change(
    db: Db<'_, '_>,
    ns: i64,
    before: Option<&TaskRow>,
    after: Option<&TaskRow>,
) -> Result<()> {
    let Some(task) = after.or(before).map(|row| id(row.task.id)) else { return Ok(()) };
    let (before, after) = (before.map(places).unwrap_or_default(), after.map(places).unwrap_or_default());
    for place in before.iter().filter(|place| !after.contains(place)) {
        let params = params![ns, place.by, place.key, place.first, place.second, task];
        db.run(sql!("place_delete"), params)?;
    }
    for place in after.iter().filter(|place| !before.contains(place)) {
        let params = params![ns, place.by, place.key, place.first, place.second, task];
        db.run(sql!("place_insert"), params)?;
    }
    Ok(())
}

/// Where a task is found; the kinds are told in the schema.
fn places(row: &TaskRow) -> Vec<Place> {
    let task = &row.task;
    let mut places = Vec::new();
    let mut add = |by, key: String, first, second| places.push(Place { by, key, first, second });
    let order = (i64::from(task.priority), task.run_at.as_micros());
    if let Some(at) = row.timer() {
        add("timer", task.queue.clone(), at.as_micros(), 0);
    }
    if let (Some(lease), Some(key)) = (&task.lease, &row.claim_key) {
        add("claim", claim_name(&lease.owner, key), order.0, order.1);
    }
    if let Some(key) = &task.exclusive_key {
        add("exclusive", key.clone(), 0, 0);
        if row.turn == Turn::InLine {
            add("in_line", key.clone(), order.0, order.1);
        }
        if matches!(row.turn, Turn::InLine | Turn::Ready) {
            add("keyed", task.queue.clone(), 0, 0);
        }
    }
    if let Some(key) = &task.idempotency_key {
        add("idempotency", key.clone(), 0, 0);
    }
    if let Some(parent) = task.parent {
        add("child", parent.to_string(), 0, 0);
        add("root", task.root.to_string(), 0, 0);
        if let Some(key) = &task.child_key {
            add("child_key", child_name(parent, key), 0, 0);
        }
    }
    for dependency in &task.depends_on {
        add("dependency", dependency.to_string(), 0, 0);
    }
    if let Some(thread) = &task.thread {
        add("thread", thread.clone(), 0, 0);
    }
    let created_at = task.created_at.as_micros();
    match task.status {
        Status::Backlog | Status::Blocked | Status::Waiting => add("parked", String::new(), created_at, 0),
        Status::Failed | Status::Cancelled => add("ended_badly", String::new(), created_at, 0),
        Status::Pending | Status::Running | Status::Completed => {}
    }
    places
}

fn claim_name(owner: &str, key: &str) -> String {
    format!("{owner}\n{key}")
}

fn child_name(parent: TaskId, key: &str) -> String {
    format!("{parent}/{key}")
}

/// The task with an idempotency key.
pub(crate) fn by_idempotency_key(db: Db<'_, '_>, ns: i64, key: &str) -> Result<Option<TaskId>> {
    db.first(sql!("place_get"), params![ns, "idempotency", key], |cells| cells.id())
}

/// The child of a task with a child key.
pub(crate) fn by_child_key(db: Db<'_, '_>, ns: i64, parent: TaskId, key: &str) -> Result<Option<TaskId>> {
    db.first(sql!("place_get"), params![ns, "child_key", child_name(parent, key)], |cells| cells.id())
}

/// Gathers the first tasks of a set, from ranges that are each in the set's order.
struct Gather<'a, 'c> {
    db: Db<'a, 'c>,
    select: &'a TaskSelect,
    now: Timestamp,
    /// How many to take of each range.
    most: usize,
    found: BTreeMap<SetPlace, Arc<TaskRow>>,
}

impl Gather<'_, '_> {
    /// Takes the first of what a statement gives.
    fn take(&mut self, sql: Sql, params: impl Params) -> Result<()> {
        let mut left = self.most;
        self.db.each(sql, params, |cells| {
            let row = read(cells)?;
            if self.select.set.contains(&row, self.now) {
                self.found.insert(self.select.set.place(&row), Arc::new(row));
                left -= 1;
            }
            Ok(if left == 0 { More::Enough } else { More::Please })
        })
    }

    /// The same of what comes by a time, in which those with the same time have no order: all of these are taken.
    fn take_by_time(
        &mut self,
        sql: Sql,
        params: impl Params,
        time: impl Fn(&TaskRow) -> Option<Timestamp>,
    ) -> Result<()> {
        let (mut left, mut last) = (self.most, None);
        self.db.each(sql, params, |cells| {
            let row = read(cells)?;
            let at = time(&row);
            if left == 0 && at != last {
                return Ok(More::Enough);
            }
            if self.select.set.contains(&row, self.now) {
                self.found.insert(self.select.set.place(&row), Arc::new(row));
                (left, last) = (left.saturating_sub(1), at);
            }
            Ok(More::Please)
        })
    }

    /// Takes the first of the ready tasks of a queue.
    fn ready(&mut self, ns: i64, queue: &str, rows: &mut Rows) -> Result<()> {
        let (db, mut left) = (self.db, self.most);
        db.each(sql!("tasks_ready"), params![ns, queue], |cells| {
            let (id, at) = (cells.id()?, cells.get()?);
            db.note_row(id, at);
            if rows.known::<TaskRow>(&id).is_none() {
                rows.load(id, TaskRow::get(db, ns, &id)?.map(Arc::new));
            }
            let row = rows.known::<TaskRow>(&id).and_then(Option::as_ref);
            if let Some(row) = row.filter(|row| self.select.set.contains(row, self.now)) {
                self.found.insert(self.select.set.place(row), Arc::clone(row));
                left -= 1;
            }
            Ok(if left == 0 { More::Enough } else { More::Please })
        })
    }

    /// Takes the first of what is found by a key, after a place and up to a first number.
    fn by(&mut self, ns: i64, by: &str, key: &str, after: (i64, Option<TaskId>), up_to: i64) -> Result<()> {
        let task = id(after.1.unwrap_or(TaskId(Uuid::nil())));
        // Without a task, what has the same first number is not passed over.
        let second = if after.1.is_some() { 0 } else { i64::MIN };
        self.take(sql!("tasks_found"), params![ns, by, key, after.0, second, task, up_to])
    }

    /// Takes the first whose timer comes in a time, in each of some queues, or in all.
    fn due(&mut self, ns: i64, queues: Option<&Arc<[String]>>, from: i64, up_to: i64) -> Result<()> {
        let all = || self.db.all(sql!("place_keys"), params![ns, "timer"], |cells| cells.text());
        for queue in queues.cloned().map_or_else(|| all().map(Arc::from), Ok)?.iter() {
            self.by(ns, "timer", queue, (from, None), up_to)?;
        }
        Ok(())
    }

    /// Takes the first whose lease is over in a time, in each of some queues, or in all.
    fn leased(&mut self, ns: i64, queues: Option<&Arc<[String]>>, from: i64, up_to: i64) -> Result<()> {
        let all = || self.db.all(sql!("leased_queues"), [ns], |cells| cells.text());
        for queue in queues.cloned().map_or_else(|| all().map(Arc::from), Ok)?.iter() {
            self.take_by_time(sql!("tasks_leased"), params![ns, queue, from, up_to], TaskRow::lease_expiry)?;
        }
        Ok(())
    }
}

/// What is known not to be there, so that it need not be looked for: up to when nothing happens by itself in each queue,
/// and whether tasks have dependencies at all. Most claims find nothing that is due, and most ends nobody who waits.
#[derive(Default)]
pub(crate) struct Absent {
    next: HashMap<String, i64>,
    /// Whether any task depends on another.
    dependencies: Option<bool>,
}

impl Absent {
    /// Whether nothing in these queues is due at a time, so that it need not be looked for.
    fn silent(&mut self, db: Db<'_, '_>, ns: i64, queues: &[String], now: i64) -> Result<bool> {
        for queue in queues {
            let next = match self.next.get(queue) {
                Some(next) if *next > now => *next,
                _ => {
                    let next = |sql| db.first(sql, params![ns, queue], |cells| cells.get::<Option<i64>>());
                    let next = [next(sql!("timer_next"))?, next(sql!("lease_next"))?];
                    let next = next.into_iter().flatten().flatten().min();
                    let next = next.unwrap_or(i64::MAX);
                    self.next.insert(queue.clone(), next);
                    next
                }
            };
            if next <= now {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether no task depends on another.
    pub(crate) fn independent(&mut self, db: Db<'_, '_>, ns: i64) -> Result<bool> {
        if self.dependencies.is_none() {
            let any = db.first(sql!("place_any"), params![ns, "dependency"], |_| Ok(()))?;
            self.dependencies = Some(any.is_some());
        }
        Ok(self.dependencies == Some(false))
    }

    /// Takes note of what changed tasks bring.
    pub(crate) fn note(&mut self, changes: &[Change<TaskRow>]) {
        for row in changes.iter().filter_map(|change| change.after.as_ref()) {
            if !row.task.depends_on.is_empty() {
                self.dependencies = Some(true);
            }
            if let (Some(at), Some(next)) = (row.alarm(), self.next.get_mut(&row.task.queue)) {
                *next = at.as_micros().min(*next);
            }
        }
    }
}

/// Answers a set of tasks and loads its rows.
pub(crate) fn select(
    db: Db<'_, '_>,
    ns: i64,
    select: TaskSelect,
    rows: &mut Rows,
    absent: &mut Absent,
    now: Timestamp,
) -> Result<()> {
    let nothing = match &select.set {
        TaskSet::Due { queues: Some(queues) } | TaskSet::LeaseOver { queues: Some(queues) } => {
            absent.silent(db, ns, queues, now.as_micros())?
        }
        _ => false,
    };
    if nothing {
        rows.answer(select, Found { keys: Vec::new(), complete: true });
        return Ok(());
    }
    // One more tells whether these are all. Of what is ready nobody asks that, and claims are many.
    let most = select.limit + usize::from(!matches!(select.set, TaskSet::Ready { .. }));
    let mut gather = Gather { db, select: &select, now, most, found: BTreeMap::new() };
    let now = now.as_micros();
    let (first, last) = (i64::MIN, i64::MAX);
    match &select.set {
        TaskSet::Ready { queues } => {
            for queue in &**queues {
                gather.ready(ns, queue, rows)?;
            }
        }
        TaskSet::Due { queues } => gather.due(ns, queues.as_ref(), first, now)?,
        TaskSet::LeaseOver { queues } => gather.leased(ns, queues.as_ref(), first, now)?,
        TaskSet::Upcoming { queues } => {
            gather.due(ns, Some(queues), now, last)?;
            gather.leased(ns, Some(queues), now, last)?;
        }
        TaskSet::Claimed { owner, key } => {
            gather.by(ns, "claim", &claim_name(owner, key), (first, None), last)?;
        }
        TaskSet::Dependents { of, after } | TaskSet::FailedBy { of, after } => {
            gather.by(ns, "dependency", &of.to_string(), (0, *after), last)?;
        }
        TaskSet::LiveDependents { of } => gather.by(ns, "dependency", &of.to_string(), (0, None), last)?,
        TaskSet::Children { of, after } => gather.by(ns, "child", &of.to_string(), (0, *after), last)?,
        TaskSet::Contenders { key, .. } => gather.by(ns, "in_line", key, (first, None), last)?,
        TaskSet::Keyed { queue, after } => gather.by(ns, "keyed", queue, (0, *after), last)?,
        TaskSet::Retired { rules, after } => {
            let latest = rules.iter().map(|(_, before)| before.as_micros()).max();
            let after = after.map_or(first, |at| at.finished_at.as_micros());
            let params = params![ns, after, latest.unwrap_or(first)];
            gather.take_by_time(sql!("tasks_finished"), params, |row| row.task.finished_at)?;
        }
    }
    let mut keys = Vec::with_capacity(gather.found.len().min(most));
    for row in gather.found.into_values().take(most) {
        keys.push(row.task.id);
        rows.load(row.task.id, Some(row));
    }
    let complete = keys.len() < most;
    keys.truncate(select.limit);
    rows.answer(select, Found { keys, complete });
    Ok(())
}
