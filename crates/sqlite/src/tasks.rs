//! Tasks: their rows, and how many there are.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Result, params};
use statehold_core::model::{Lease, QueueInfo, Task, TaskId, Token};
use statehold_core::plan::Map;
use statehold_core::query::TaskCounts;
use statehold_core::row::{Change, ExclusiveRow, Head, SignalsRow, TaskRow, Turn};
use statehold_core::{Status, Timestamp};

use crate::rows::{Cells, More, Table, id, length, micros, text, value};
use crate::statements::{Db, Sql, sql};
use crate::{places, queues};

fn turn_name(turn: Turn) -> &'static str {
    match turn {
        Turn::Off => "off",
        Turn::Later => "later",
        Turn::InLine => "in_line",
        Turn::Ready => "ready",
    }
}

fn read_turn(name: &str) -> Turn {
    match name {
        "later" => Turn::Later,
        "in_line" => Turn::InLine,
        "ready" => Turn::Ready,
        _ => Turn::Off,
    }
}

/// Reads a row of `tasks`, all columns in their order.
pub(crate) fn read(cells: &mut Cells<'_, '_>) -> Result<TaskRow> {
    cells.skip();
    let id = cells.id()?;
    let (queue, kind, status) = (cells.text()?, cells.text()?, cells.parse()?);
    let turn = read_turn(cells.str()?);
    let (priority, run_at, rank, revision) = (cells.get()?, cells.time()?, cells.get()?, cells.get()?);
    let (attempt, failures, lease_losses) = (cells.get()?, cells.get()?, cells.get()?);
    let (max_attempts, max_lease_losses) = (cells.get()?, cells.get()?);
    let (created_at, updated_at) = (cells.time()?, cells.time()?);
    let (started_at, finished_at, expires_at) =
        (cells.maybe_time()?, cells.maybe_time()?, cells.maybe_time()?);
    let (timeout_seconds, cancel_requested) = (cells.maybe_length()?, cells.get()?);
    let (owner, token) = (cells.maybe_text()?, Token(cells.get()?));
    let (lease_expires_at, heartbeat_at) = (cells.maybe_time()?, cells.maybe_time()?);
    let lease = owner.map(|owner| Lease {
        owner,
        token,
        started_at: started_at.unwrap_or_default(),
        expires_at: lease_expires_at,
        heartbeat_at: heartbeat_at.unwrap_or_default(),
    });
    let (lease_seconds, claim_key) = (cells.maybe_length()?, cells.maybe_text()?);
    let (thread, parent, root) = (cells.maybe_text()?, cells.maybe_id()?, cells.maybe_id()?);
    let (child_key, idempotency_key, exclusive_key) =
        (cells.maybe_text()?, cells.maybe_text()?, cells.maybe_text()?);
    let (depth, children, open_children) = (cells.get()?, cells.get()?, cells.get()?);
    let failed_by = cells.maybe_id()?;
    let head = Head { last: cells.get()?, oldest: cells.get()?, oldest_at: cells.maybe_time()? };
    let request = cells.request()?;
    let (depends_on, open_dependencies) = (cells.value()?, cells.value()?);
    let (labels, backoff) = (cells.value()?, cells.value()?);
    let (waiting_for, resumed_by) = (cells.value()?, cells.value()?);
    let (traceparent, error) = (cells.maybe_text()?, cells.value()?);
    let (metadata, progress) = (cells.maybe_json()?, cells.maybe_json()?);
    let (input, output) = (cells.maybe_json()?, cells.maybe_json()?);
    let root = root.unwrap_or(id);
    let task = Task {
        id,
        queue,
        kind,
        status,
        priority,
        rank,
        input,
        output,
        error,
        metadata,
        labels,
        thread,
        parent,
        root,
        child_key,
        depends_on,
        idempotency_key,
        exclusive_key,
        run_at,
        expires_at,
        timeout_seconds,
        attempt,
        failures,
        lease_losses,
        max_attempts,
        max_lease_losses,
        backoff,
        progress,
        waiting_for,
        resumed_by,
        cancel_requested,
        traceparent,
        revision,
        lease,
        created_at,
        updated_at,
        started_at,
        finished_at,
    };
    Ok(TaskRow {
        task,
        request,
        last_token: token,
        head,
        turn,
        open_dependencies,
        failed_by,
        children,
        open_children,
        depth,
        lease_seconds,
        claim_key,
    })
}

/// Writes all columns of a task, by a statement that inserts or updates.
fn write(row: &TaskRow, db: Db<'_, '_>, ns: i64, sql: Sql) -> Result<usize> {
    let task = &row.task;
    let lease = task.lease.as_ref();
    db.run(
        sql,
        params![
            ns,
            id(task.id),
            task.queue,
            task.kind,
            task.status.as_str(),
            turn_name(row.turn),
            task.priority,
            task.run_at.as_micros(),
            task.rank,
            task.revision,
            task.attempt,
            task.failures,
            task.lease_losses,
            task.max_attempts,
            task.max_lease_losses,
            task.created_at.as_micros(),
            task.updated_at.as_micros(),
            micros(task.started_at),
            micros(task.finished_at),
            micros(task.expires_at),
            length(task.timeout_seconds),
            task.cancel_requested,
            lease.map(|lease| lease.owner.as_str()),
            row.last_token.0,
            micros(row.lease_expiry()),
            lease.map(|lease| lease.heartbeat_at.as_micros()),
            length(row.lease_seconds),
            row.claim_key,
            task.thread,
            task.parent.map(id),
            Some(task.root).filter(|root| *root != task.id).map(id),
            task.child_key,
            task.idempotency_key,
            task.exclusive_key,
            row.depth,
            row.children,
            row.open_children,
            row.failed_by.map(id),
            row.head.last,
            row.head.oldest,
            micros(row.head.oldest_at),
            row.request.as_bytes(),
            value(&task.depends_on),
            value(&row.open_dependencies),
            value(&task.labels),
            value(&task.backoff),
            value(&task.waiting_for),
            value(&task.resumed_by),
            task.traceparent,
            value(&task.error),
            text(task.metadata.as_ref()),
            text(task.progress.as_ref()),
            text(task.input.as_ref()),
            text(task.output.as_ref()),
        ],
    )
}

/// Whether a new task has nothing but what every task has, and an input.
fn is_plain(row: &TaskRow) -> bool {
    let task = &row.task;
    task.status == Status::Pending
        && row.turn == Turn::Ready
        && task.lease.is_none()
        && task.started_at.is_none()
        && task.expires_at.is_none()
        && task.timeout_seconds.is_none()
        && !task.cancel_requested
        && task.thread.is_none()
        && task.parent.is_none()
        && task.root == task.id
        && task.child_key.is_none()
        && task.idempotency_key.is_none()
        && task.exclusive_key.is_none()
        && row.depth == 0
        && row.children == 0
        && row.failed_by.is_none()
        && task.depends_on.is_empty()
        && task.labels.is_empty()
        && value(&task.backoff).is_none()
        && task.waiting_for.is_none()
        && task.resumed_by.is_none()
        && task.traceparent.is_none()
        && task.error.is_none()
        && task.metadata.is_none()
        && task.progress.is_none()
        && task.output.is_none()
        && row.claim_key.is_none()
        && row.lease_seconds.is_none()
}

/// Writes such a task.
fn write_plain(row: &TaskRow, db: Db<'_, '_>, ns: i64) -> Result<usize> {
    let task = &row.task;
    db.run(
        sql!("task_insert_plain"),
        params![
            ns,
            id(task.id),
            task.queue,
            task.kind,
            task.priority,
            task.run_at.as_micros(),
            task.rank,
            task.revision,
            task.attempt,
            task.failures,
            task.lease_losses,
            task.max_attempts,
            task.max_lease_losses,
            task.created_at.as_micros(),
            task.updated_at.as_micros(),
            row.last_token.0,
            row.head.last,
            row.head.oldest,
            micros(row.head.oldest_at),
            row.request.as_bytes(),
            text(task.input.as_ref()),
        ],
    )
}

/// Does something with the row of a task where it lies as far as known; if it is not there, by the task's id.
fn by_row<T>(
    db: Db<'_, '_>,
    task: TaskId,
    act: impl Fn(Option<i64>) -> Result<Option<T>>,
) -> Result<Option<T>> {
    if let Some(row) = db.row_of(task)
        && let Some(done) = act(Some(row))?
    {
        return Ok(Some(done));
    }
    act(None)
}

/// Changes the row of a task, by a statement that says how many rows it changed.
fn change(db: Db<'_, '_>, task: TaskId, act: impl Fn(Option<i64>) -> Result<usize>) -> Result<()> {
    by_row(db, task, |at| Ok(Some(act(at)?).filter(|changed| *changed > 0))).map(drop)
}

/// Writes the columns that a plain start or release changes.
fn write_step(row: &TaskRow, db: Db<'_, '_>, ns: i64, at: Option<i64>) -> Result<usize> {
    let task = &row.task;
    let lease = task.lease.as_ref();
    db.run(
        sql!("task_step"),
        params![
            ns,
            id(task.id),
            task.status.as_str(),
            turn_name(row.turn),
            task.revision,
            task.attempt,
            task.updated_at.as_micros(),
            micros(task.started_at),
            lease.map(|lease| lease.owner.as_str()),
            row.last_token.0,
            micros(row.lease_expiry()),
            lease.map(|lease| lease.heartbeat_at.as_micros()),
            length(row.lease_seconds),
            row.claim_key,
            row.head.last,
            micros(row.head.oldest_at),
            at,
        ],
    )
}

/// Writes the columns that a plain completion changes.
fn write_end(row: &TaskRow, db: Db<'_, '_>, ns: i64, at: Option<i64>) -> Result<usize> {
    let task = &row.task;
    let lease = task.lease.as_ref();
    db.run(
        sql!("task_end"),
        params![
            ns,
            id(task.id),
            task.status.as_str(),
            task.revision,
            task.updated_at.as_micros(),
            micros(task.finished_at),
            lease.map(|lease| lease.owner.as_str()),
            micros(row.lease_expiry()),
            lease.map(|lease| lease.heartbeat_at.as_micros()),
            length(row.lease_seconds),
            row.claim_key,
            row.head.last,
            micros(row.head.oldest_at),
            text(task.output.as_ref()),
            at,
        ],
    )
}

/// Whether two versions of a task that differ in a plain step may be as before a start or release and after it.
fn starts(one: &TaskRow, two: &TaskRow) -> bool {
    one.task.finished_at == two.task.finished_at && one.task.output == two.task.output
}

/// Whether two versions of a task that differ in a plain step may be as before a completion and after it.
fn ends(one: &TaskRow, two: &TaskRow) -> bool {
    one.turn == two.turn
        && one.task.attempt == two.task.attempt
        && one.task.started_at == two.task.started_at
        && one.last_token == two.last_token
}

/// Whether two versions of a task differ in nothing but what a plain step changes: a start, a completion, a release.
fn same_but_for_step(one: &TaskRow, two: &TaskRow) -> bool {
    let (a, b) = (&one.task, &two.task);
    a.queue == b.queue
        && a.kind == b.kind
        && a.priority == b.priority
        && a.rank == b.rank
        && a.run_at == b.run_at
        && a.failures == b.failures
        && a.lease_losses == b.lease_losses
        && a.max_attempts == b.max_attempts
        && a.max_lease_losses == b.max_lease_losses
        && a.created_at == b.created_at
        && a.expires_at == b.expires_at
        && a.timeout_seconds == b.timeout_seconds
        && a.cancel_requested == b.cancel_requested
        && a.thread == b.thread
        && a.parent == b.parent
        && a.root == b.root
        && a.child_key == b.child_key
        && a.idempotency_key == b.idempotency_key
        && a.exclusive_key == b.exclusive_key
        && a.depends_on == b.depends_on
        && a.labels == b.labels
        && a.backoff == b.backoff
        && a.traceparent == b.traceparent
        && a.waiting_for == b.waiting_for
        && a.resumed_by == b.resumed_by
        && a.error == b.error
        && a.metadata == b.metadata
        && a.progress == b.progress
        && a.input == b.input
        && one.open_dependencies == two.open_dependencies
        && one.failed_by == two.failed_by
        && one.children == two.children
        && one.open_children == two.open_children
        && one.depth == two.depth
        && one.head.oldest == two.head.oldest
        && one.request == two.request
}

/// Whether two versions of a task differ in nothing but what a renewal changes, its progress apart: with every other
/// step the revision grows or the task's turn comes.
fn same_but_for_renewal(one: &TaskRow, two: &TaskRow) -> bool {
    let leased = |row: &TaskRow| row.task.lease.as_ref().map(|lease| (lease.token, lease.started_at));
    one.head == two.head
        && one.task.revision == two.task.revision
        && one.turn == two.turn
        && leased(one).is_some()
        && leased(one) == leased(two)
        && one.claim_key == two.claim_key
        && one.lease_seconds == two.lease_seconds
        && one.children == two.children
        && one.open_children == two.open_children
        && one.task.cancel_requested == two.task.cancel_requested
}

impl Table for TaskRow {
    fn get(db: Db<'_, '_>, ns: i64, key: &TaskId) -> Result<Option<Self>> {
        by_row(db, *key, |at| {
            db.first(sql!("task_get"), params![ns, id(*key), at], |cells| {
                let row = read(cells)?;
                if at.is_none() {
                    db.note_row(*key, cells.get()?);
                }
                Ok(row)
            })
        })
    }

    fn put(&self, db: Db<'_, '_>, ns: i64, before: Option<&Self>) -> Result<()> {
        let task = &self.task;
        match before {
            None => {
                if is_plain(self) {
                    write_plain(self, db, ns)?;
                } else {
                    write(self, db, ns, sql!("task_insert"))?;
                }
                db.note_row(task.id, db.connection().last_insert_rowid());
            }
            Some(before) if same_but_for_renewal(before, self) => {
                let heartbeat_at = task.lease.as_ref().map(|lease| lease.heartbeat_at.as_micros());
                let (expiry, progress) = (micros(self.lease_expiry()), text(task.progress.as_ref()));
                change(db, task.id, |at| {
                    db.run(sql!("task_renew"), params![ns, id(task.id), heartbeat_at, expiry, progress, at])
                })?;
            }
            Some(before) if starts(before, self) && same_but_for_step(before, self) => {
                change(db, task.id, |at| write_step(self, db, ns, at))?;
            }
            Some(before) if ends(before, self) && same_but_for_step(before, self) => {
                change(db, task.id, |at| write_end(self, db, ns, at))?;
            }
            Some(_) => {
                write(self, db, ns, sql!("task_update"))?;
            }
        }
        places::change(db, ns, before, Some(self))
    }

    fn delete(&self, db: Db<'_, '_>, ns: i64) -> Result<()> {
        places::change(db, ns, Some(self), None)?;
        db.run(sql!("task_delete"), params![ns, id(self.task.id)]).map(drop)
    }
}

impl Table for SignalsRow {
    fn get(db: Db<'_, '_>, ns: i64, key: &TaskId) -> Result<Option<Self>> {
        db.first(sql!("signals_get"), params![ns, id(*key)], read_signals)
    }

    fn put(&self, db: Db<'_, '_>, ns: i64, _: Option<&Self>) -> Result<()> {
        let kept = value(&self.kept).unwrap_or_else(|| "[]".to_owned());
        db.run(sql!("signals_put"), params![ns, id(self.task), kept]).map(drop)
    }

    fn delete(&self, db: Db<'_, '_>, ns: i64) -> Result<()> {
        db.run(sql!("signals_delete"), params![ns, id(self.task)]).map(drop)
    }
}

pub(crate) fn read_signals(cells: &mut Cells<'_, '_>) -> Result<SignalsRow> {
    Ok(SignalsRow { task: cells.id()?, kept: cells.value()? })
}

impl Table for ExclusiveRow {
    fn get(db: Db<'_, '_>, ns: i64, key: &String) -> Result<Option<Self>> {
        db.first(sql!("exclusive_get"), params![ns, key], read_exclusive)
    }

    fn put(&self, db: Db<'_, '_>, ns: i64, _: Option<&Self>) -> Result<()> {
        let (holder, nominee) = (self.holder.map(id), self.nominee.map(id));
        db.run(sql!("exclusive_put"), params![ns, self.key, self.open, holder, nominee]).map(drop)
    }

    fn delete(&self, db: Db<'_, '_>, ns: i64) -> Result<()> {
        db.run(sql!("exclusive_delete"), params![ns, self.key]).map(drop)
    }
}

pub(crate) fn read_exclusive(cells: &mut Cells<'_, '_>) -> Result<ExclusiveRow> {
    Ok(ExclusiveRow {
        key: cells.text()?,
        open: cells.get()?,
        holder: cells.maybe_id()?,
        nominee: cells.maybe_id()?,
    })
}

/// Changes of how many tasks of each status a queue has, gathered over a transaction.
#[derive(Default)]
pub(crate) struct Counts(Map<String, BTreeMap<Status, i64>>);

impl Counts {
    pub(crate) fn note(&mut self, changes: &[Change<TaskRow>]) {
        for change in changes {
            self.add(change.before.as_deref(), -1);
            self.add(change.after.as_deref(), 1);
        }
    }

    fn add(&mut self, row: Option<&TaskRow>, by: i64) {
        let Some(task) = row.map(|row| &row.task) else { return };
        let counts = match self.0.get_mut(&task.queue) {
            Some(counts) => counts,
            None => self.0.entry(task.queue.clone()).or_default(),
        };
        *counts.entry(task.status).or_default() += by;
    }

    pub(crate) fn store(&mut self, db: Db<'_, '_>, ns: i64) -> Result<()> {
        for (queue, counts) in self.0.drain() {
            for (status, by) in counts.into_iter().filter(|(_, by)| *by != 0) {
                db.run(sql!("count_add"), params![ns, queue, status.as_str(), by])?;
            }
        }
        Ok(())
    }
}

/// Tasks by their ids.
pub(crate) fn get(db: Db<'_, '_>, ns: i64, ids: &[TaskId]) -> Result<Vec<Option<Task>>> {
    ids.iter().map(|id| Ok(TaskRow::get(db, ns, id)?.map(|row| row.task))).collect()
}

/// How many tasks there are in a queue, or in all.
pub(crate) fn count(db: Db<'_, '_>, ns: i64, queue: Option<&str>, now: Timestamp) -> Result<TaskCounts> {
    let mut counts = TaskCounts::default();
    let mut queues = BTreeSet::new();
    db.each(sql!("counts_list"), [ns], |cells| {
        let (name, status, tasks) = (cells.str()?, cells.parse()?, cells.get::<u64>()?);
        if queue.is_none_or(|queue| queue == name) {
            *counts.counts.entry(status).or_default() += tasks;
            queues.insert(name.to_owned());
        }
        Ok(More::Please)
    })?;
    for queue in queues {
        let (claimable, oldest) = claimable(db, ns, &queue, now)?;
        counts.claimable += claimable;
        counts.oldest_claimable = counts.oldest_claimable.into_iter().chain(oldest).min();
    }
    Ok(counts)
}

fn claimable(db: Db<'_, '_>, ns: i64, queue: &str, now: Timestamp) -> Result<(u64, Option<Timestamp>)> {
    let read = |cells: &mut Cells<'_, '_>| Ok((cells.get()?, cells.maybe_time()?));
    Ok(db.first(sql!("count_claimable"), params![ns, queue, now.as_micros()], read)?.unwrap_or_default())
}

/// Fills in the depth of queues.
pub(crate) fn queue_depths(
    db: Db<'_, '_>,
    ns: i64,
    listed: &mut BTreeMap<String, QueueInfo>,
    now: Timestamp,
    minute_ago: Timestamp,
) -> Result<()> {
    db.each(sql!("counts_list"), [ns], |cells| {
        let (name, status, tasks) = (cells.text()?, cells.parse()?, cells.get()?);
        queues::entry(listed, name).counts.insert(status, tasks);
        Ok(More::Please)
    })?;
    db.each(sql!("count_ended_since"), params![ns, minute_ago.as_micros()], |cells| {
        let (name, ended) = (cells.text()?, cells.get()?);
        queues::entry(listed, name).per_minute = ended;
        Ok(More::Please)
    })?;
    for (name, queue) in listed {
        let (claimable, oldest) = claimable(db, ns, name, now)?;
        queue.claimable = claimable;
        queue.oldest_pending_seconds = oldest.map(|oldest| now.since(oldest));
    }
    Ok(())
}
