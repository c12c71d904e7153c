//! Tasks: their rows, what stands beside them, and how many there are.

use std::collections::{BTreeMap, BTreeSet};

use statehold_core::model::{Lease, QueueInfo, Task, TaskId, Token};
use statehold_core::query::TaskCounts;
use statehold_core::row::{ExclusiveRow, Head, SignalsRow, TaskRow, Turn};
use statehold_core::{Seconds, Timestamp};

use crate::connection::{Call, Connection, Reading, reading, sql};
use crate::error::Result;
use crate::queues;
use crate::rows::{Changes, Part, Table, Writing};
use crate::values::{At, Cells, Param, at, column, count, id, ids, json, length, param, value};

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

/// The minute of a time.
pub(crate) fn minute(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(60_000_000)
}

impl Table for TaskRow {
    const GET: Reading = reading!("task_get");
    const INSERT: &'static str = sql!("task_insert");
    const UPDATE: &'static str = sql!("task_update");
    const DELETE: &'static str = sql!("task_delete");
    const PARTS: &'static [Part<Self>] = &[
        Part { sql: sql!("task_step"), is_enough: is_a_step, columns: step_columns },
        Part { sql: sql!("task_live"), is_enough: is_alive, columns: life_columns },
    ];

    const INSERT_PLAIN: &'static str = sql!("task_insert_plain");

    /// Alone in the world, and nothing has happened to it but that it was made.
    fn is_plain(&self) -> bool {
        let task = &self.task;
        let lone = task.parent.is_none() && task.root == task.id && task.child_key.is_none();
        let free = task.exclusive_key.is_none() && task.depends_on.is_empty();
        let fresh =
            (task.revision, task.attempt, task.failures, task.lease_losses, self.children) == (1, 0, 0, 0, 0);
        let made =
            task.created_at == task.updated_at && task.started_at.is_none() && task.finished_at.is_none();
        let head = Head { last: 1, oldest: 0, oldest_at: Some(task.created_at) };
        let idle = task.lease.is_none() && self.last_token == Token(0) && self.lease_seconds.is_none();
        let calm = task.waiting_for.is_none() && task.resumed_by.is_none() && !task.cancel_requested;
        let empty = task.error.is_none() && task.progress.is_none() && task.output.is_none();
        let own =
            self.failed_by.is_none() && self.claim_key.is_none() && self.depth == 0 && self.head == head;
        lone && free && fresh && made && idle && calm && empty && own
    }

    fn plain(rows: &[&Self]) -> Vec<Param> {
        vec![
            column(rows, |row| row.task.id.0),
            column(rows, |row| row.task.queue.clone()),
            column(rows, |row| row.task.kind.clone()),
            column(rows, |row| row.task.status.as_str()),
            column(rows, |row| turn_name(row.turn)),
            column(rows, |row| row.task.priority),
            column(rows, |row| At(row.task.run_at)),
            column(rows, |row| row.task.rank),
            column(rows, |row| i64::from(row.task.max_attempts)),
            column(rows, |row| i64::from(row.task.max_lease_losses)),
            column(rows, |row| At(row.task.created_at)),
            column(rows, |row| at(row.task.expires_at)),
            column(rows, |row| length(row.task.timeout_seconds)),
            column(rows, |row| row.task.thread.clone()),
            column(rows, |row| row.task.idempotency_key.clone()),
            column(rows, |row| row.request.as_bytes().to_vec()),
            column(rows, |row| value(&row.task.labels)),
            column(rows, |row| value(&row.task.backoff)),
            column(rows, |row| row.task.traceparent.clone()),
            column(rows, |row| json(row.task.metadata.as_ref())),
            column(rows, |row| json(row.task.input.as_ref())),
            column(rows, |row| at(row.timer())),
        ]
    }

    fn keys(keys: &[&TaskId]) -> Vec<Param> {
        vec![column(keys, |id| id.0)]
    }

    fn columns(rows: &[&Self]) -> Vec<Param> {
        let mut columns = own_columns(rows);
        columns.extend(lease_columns(rows));
        columns.extend(family_columns(rows));
        columns.extend(body_columns(rows));
        columns
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        let id = cells.id()?;
        let (queue, kind, status) = (cells.text()?, cells.text()?, cells.parse()?);
        let turn = read_turn(cells.get()?);
        let (priority, run_at, rank, revision) = (cells.get()?, cells.time()?, cells.get()?, cells.number()?);
        let (attempt, failures, lease_losses) = (cells.number()?, cells.number()?, cells.number()?);
        let (max_attempts, max_lease_losses) = (cells.number()?, cells.number()?);
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
        let (thread, parent, root) = (cells.maybe_text()?, cells.maybe_id()?, cells.id()?);
        let (child_key, idempotency_key, exclusive_key) =
            (cells.maybe_text()?, cells.maybe_text()?, cells.maybe_text()?);
        let (depth, children, open_children) = (cells.number()?, cells.number()?, cells.number()?);
        let failed_by = cells.maybe_id()?;
        let head = Head { last: cells.number()?, oldest: cells.number()?, oldest_at: cells.maybe_time()? };
        let request = cells.request()?;
        let (depends_on, open_dependencies) = (cells.ids()?, cells.ids()?);
        let (labels, backoff) = (cells.value()?, cells.value()?);
        let (waiting_for, resumed_by) = (cells.maybe_value()?, cells.maybe_value()?);
        let (traceparent, error) = (cells.maybe_text()?, cells.maybe_value()?);
        let (metadata, progress) = (cells.maybe_json()?, cells.maybe_json()?);
        let (input, output) = (cells.maybe_json()?, cells.maybe_json()?);
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
        Ok(Self {
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
}

impl Changes<TaskRow> {
    /// The tasks that end, or are no longer ended.
    pub(crate) fn ended(&self) -> Vec<TaskId> {
        let ended = |row: &TaskRow| row.task.status.is_terminal();
        self.both()
            .filter(|(before, after)| ended(before) || after.is_none_or(ended))
            .map(|(row, _)| row.task.id)
            .collect()
    }
}

/// Whether two tasks agree in all that does not change while they live.
fn was_made_alike(one: &Task, other: &Task) -> bool {
    fn made(task: &Task) -> impl PartialEq {
        let names = (&task.queue, &task.kind, task.priority, task.rank, &task.labels, &task.backoff);
        let bounds = (task.max_attempts, task.max_lease_losses, task.expires_at, task.timeout_seconds);
        let family = (&task.thread, task.parent, task.root, &task.child_key, &task.depends_on);
        let keys = (&task.idempotency_key, &task.exclusive_key, &task.traceparent);
        (names, bounds, family, keys, &task.metadata, &task.input)
    }
    made(one) == made(other)
}

/// What changes when a task is claimed, kept, given back or completed.
fn step_columns(rows: &[&TaskRow]) -> Vec<Param> {
    let mut columns = vec![
        column(rows, |row| row.task.id.0),
        column(rows, |row| row.task.status.as_str()),
        column(rows, |row| turn_name(row.turn)),
        column(rows, |row| count(row.task.revision)),
        column(rows, |row| i64::from(row.task.attempt)),
        column(rows, |row| At(row.task.updated_at)),
        column(rows, |row| at(row.task.started_at)),
        column(rows, |row| at(row.task.finished_at)),
    ];
    columns.extend(lease_columns(rows));
    columns.extend([
        column(rows, |row| count(row.head.last)),
        column(rows, |row| json(row.task.output.as_ref())),
        column(rows, |row| row.lease_expiry().map(minute)),
    ]);
    columns
}

/// Whether two tasks differ in nothing else.
fn is_a_step(before: &TaskRow, after: &TaskRow) -> bool {
    fn rest(row: &TaskRow) -> impl PartialEq {
        let task = &row.task;
        let counts = (task.failures, task.lease_losses, row.children, row.open_children);
        let times = (task.run_at, row.timer(), row.head.oldest, row.head.oldest_at);
        let waiting = (&task.waiting_for, &task.resumed_by, task.cancel_requested);
        (counts, times, waiting, &task.error, &task.progress)
    }
    rest(before) == rest(after) && is_alive(before, after)
}

/// Whether two tasks differ in nothing but what changes in the life of a task.
fn is_alive(before: &TaskRow, after: &TaskRow) -> bool {
    was_made_alike(&before.task, &after.task)
        && (before.depth, before.failed_by, &before.open_dependencies)
            == (after.depth, after.failed_by, &after.open_dependencies)
}

/// What changes in the life of a task.
fn life_columns(rows: &[&TaskRow]) -> Vec<Param> {
    let mut columns = vec![
        column(rows, |row| row.task.id.0),
        column(rows, |row| row.task.status.as_str()),
        column(rows, |row| turn_name(row.turn)),
        column(rows, |row| At(row.task.run_at)),
        column(rows, |row| count(row.task.revision)),
        column(rows, |row| i64::from(row.task.attempt)),
        column(rows, |row| i64::from(row.task.failures)),
        column(rows, |row| i64::from(row.task.lease_losses)),
        column(rows, |row| At(row.task.updated_at)),
        column(rows, |row| at(row.task.started_at)),
        column(rows, |row| at(row.task.finished_at)),
        column(rows, |row| row.task.cancel_requested),
    ];
    columns.extend(lease_columns(rows));
    columns.extend([
        column(rows, |row| i64::from(row.children)),
        column(rows, |row| i64::from(row.open_children)),
        column(rows, |row| count(row.head.last)),
        column(rows, |row| count(row.head.oldest)),
        column(rows, |row| at(row.head.oldest_at)),
        column(rows, |row| row.task.waiting_for.as_ref().map(value)),
        column(rows, |row| row.task.resumed_by.as_ref().map(value)),
        column(rows, |row| row.task.error.as_ref().map(value)),
        column(rows, |row| json(row.task.progress.as_ref())),
        column(rows, |row| json(row.task.output.as_ref())),
        column(rows, |row| at(row.timer())),
        column(rows, |row| row.lease_expiry().map(minute)),
    ]);
    columns
}

fn own_columns(rows: &[&TaskRow]) -> Vec<Param> {
    vec![
        column(rows, |row| row.task.id.0),
        column(rows, |row| row.task.queue.clone()),
        column(rows, |row| row.task.kind.clone()),
        column(rows, |row| row.task.status.as_str()),
        column(rows, |row| turn_name(row.turn)),
        column(rows, |row| row.task.priority),
        column(rows, |row| At(row.task.run_at)),
        column(rows, |row| row.task.rank),
        column(rows, |row| count(row.task.revision)),
        column(rows, |row| i64::from(row.task.attempt)),
        column(rows, |row| i64::from(row.task.failures)),
        column(rows, |row| i64::from(row.task.lease_losses)),
        column(rows, |row| i64::from(row.task.max_attempts)),
        column(rows, |row| i64::from(row.task.max_lease_losses)),
        column(rows, |row| At(row.task.created_at)),
        column(rows, |row| At(row.task.updated_at)),
        column(rows, |row| at(row.task.started_at)),
        column(rows, |row| at(row.task.finished_at)),
        column(rows, |row| at(row.task.expires_at)),
        column(rows, |row| length(row.task.timeout_seconds)),
        column(rows, |row| row.task.cancel_requested),
    ]
}

fn lease_columns(rows: &[&TaskRow]) -> Vec<Param> {
    vec![
        column(rows, |row| row.task.lease.as_ref().map(|lease| lease.owner.clone())),
        column(rows, |row| row.last_token.0),
        column(rows, |row| at(row.lease_expiry())),
        column(rows, |row| row.task.lease.as_ref().map(|lease| At(lease.heartbeat_at))),
        column(rows, |row| length(row.lease_seconds)),
        column(rows, |row| row.claim_key.clone()),
    ]
}

fn family_columns(rows: &[&TaskRow]) -> Vec<Param> {
    vec![
        column(rows, |row| row.task.thread.clone()),
        column(rows, |row| id(row.task.parent)),
        column(rows, |row| row.task.root.0),
        column(rows, |row| row.task.child_key.clone()),
        column(rows, |row| row.task.idempotency_key.clone()),
        column(rows, |row| row.task.exclusive_key.clone()),
        column(rows, |row| i64::from(row.depth)),
        column(rows, |row| i64::from(row.children)),
        column(rows, |row| i64::from(row.open_children)),
        column(rows, |row| id(row.failed_by)),
        column(rows, |row| count(row.head.last)),
        column(rows, |row| count(row.head.oldest)),
        column(rows, |row| at(row.head.oldest_at)),
        column(rows, |row| row.request.as_bytes().to_vec()),
        column(rows, |row| ids(&row.task.depends_on)),
        column(rows, |row| ids(&row.open_dependencies)),
    ]
}

fn body_columns(rows: &[&TaskRow]) -> Vec<Param> {
    vec![
        column(rows, |row| value(&row.task.labels)),
        column(rows, |row| value(&row.task.backoff)),
        column(rows, |row| row.task.waiting_for.as_ref().map(value)),
        column(rows, |row| row.task.resumed_by.as_ref().map(value)),
        column(rows, |row| row.task.traceparent.clone()),
        column(rows, |row| row.task.error.as_ref().map(value)),
        column(rows, |row| json(row.task.metadata.as_ref())),
        column(rows, |row| json(row.task.progress.as_ref())),
        column(rows, |row| json(row.task.input.as_ref())),
        column(rows, |row| json(row.task.output.as_ref())),
        column(rows, |row| at(row.timer())),
        column(rows, |row| row.lease_expiry().map(minute)),
    ]
}

impl Table for SignalsRow {
    const GET: Reading = reading!("signals_get");
    const INSERT: &'static str = sql!("signals_insert");
    const UPDATE: &'static str = sql!("signals_update");
    const DELETE: &'static str = sql!("signals_delete");

    fn keys(keys: &[&TaskId]) -> Vec<Param> {
        vec![column(keys, |id| id.0)]
    }

    fn columns(rows: &[&Self]) -> Vec<Param> {
        vec![column(rows, |row| row.task.0), column(rows, |row| value(&row.kept))]
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        Ok(Self { task: cells.id()?, kept: cells.value()? })
    }
}

impl Table for ExclusiveRow {
    const GET: Reading = reading!("exclusive_get");
    const INSERT: &'static str = sql!("exclusive_insert");
    const UPDATE: &'static str = sql!("exclusive_update");
    const DELETE: &'static str = sql!("exclusive_delete");

    fn keys(keys: &[&String]) -> Vec<Param> {
        vec![column(keys, |key| (*key).clone())]
    }

    fn columns(rows: &[&Self]) -> Vec<Param> {
        vec![
            column(rows, |row| row.key.clone()),
            column(rows, |row| i64::from(row.open)),
            column(rows, |row| id(row.holder)),
            column(rows, |row| id(row.nominee)),
        ]
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        Ok(Self {
            key: cells.text()?,
            open: cells.number()?,
            holder: cells.maybe_id()?,
            nominee: cells.maybe_id()?,
        })
    }
}

/// How many tasks there are in a queue, or in all.
pub(crate) async fn counts(
    db: &Connection,
    ns: i64,
    queue: Option<&str>,
    now: Timestamp,
) -> Result<BTreeMap<String, TaskCounts>> {
    let queue = queue.map(str::to_owned);
    let asked = [
        Call::new(sql!("counts"), vec![param(ns), param(queue.clone())]),
        Call::new(sql!("count_claimable"), vec![param(ns), param(queue), param(At(now))]),
    ];
    let answers = db.query_all(&asked).await?;
    let mut queues: BTreeMap<String, TaskCounts> = BTreeMap::new();
    for row in &answers[0] {
        let mut cells = Cells::new(row);
        let counts = &mut queues.entry(cells.text()?).or_default().counts;
        counts.insert(cells.parse()?, cells.number()?);
    }
    for row in &answers[1] {
        let mut cells = Cells::new(row);
        let counts = queues.entry(cells.text()?).or_default();
        (counts.claimable, counts.oldest_claimable) = (cells.number()?, cells.maybe_time()?);
    }
    Ok(queues)
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

/// Fills in the depth of queues.
pub(crate) async fn queue_depths(
    db: &Connection,
    ns: i64,
    listed: &mut BTreeMap<String, QueueInfo>,
    now: Timestamp,
) -> Result<()> {
    for (name, counts) in counts(db, ns, None, now).await? {
        let queue = queues::entry(listed, name);
        queue.counts = counts.counts;
        queue.claimable = counts.claimable;
        queue.oldest_pending_seconds = counts.oldest_claimable.map(|oldest| now.since(oldest));
    }
    let minute_ago = now - Seconds::new(60);
    for row in db.query(sql!("count_ended_since"), vec![param(ns), param(At(minute_ago))]).await? {
        let mut cells = Cells::new(&row);
        let queue = queues::entry(listed, cells.text()?);
        queue.per_minute = cells.number()?;
    }
    Ok(())
}

/// What stands beside tasks in tables of its own: who depends on whom, and in which order they were created.
pub(crate) fn write_beside(tasks: &Changes<TaskRow>, ns: i64, writing: &mut Writing) {
    let gone = tasks.gone();
    if !gone.is_empty() {
        // Their places in the order of creation go with them, by a trigger.
        writing.any(sql!("dependency_delete"), vec![param(ns), column(&gone, |id| id.0)]);
    }
    insert_beside(&tasks.new_rows(), ns, writing);
}

/// The same for tasks that are new.
pub(crate) fn insert_beside(tasks: &[&TaskRow], ns: i64, writing: &mut Writing) {
    let pairs = tasks.iter().flat_map(|row| row.task.depends_on.iter().map(|of| (of.0, row.task.id.0)));
    let pairs: Vec<_> = pairs.collect::<BTreeSet<_>>().into_iter().collect();
    if !pairs.is_empty() {
        let params = vec![param(ns), column(&pairs, |pair| pair.0), column(&pairs, |pair| pair.1)];
        writing.insert(sql!("dependency_insert"), params);
    }
    if !tasks.is_empty() {
        let created = column(tasks, |row| At(row.task.created_at));
        writing.insert(sql!("task_age_insert"), vec![param(ns), created, column(tasks, |row| row.task.id.0)]);
    }
}
