//! Tasks: their rows, the sets that plans ask for, and lists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rusqlite::{Params, Result, params};
use statehold_core::model::{Lease, QueueInfo, Task, TaskId, Token};
use statehold_core::plan::{Found, Place, Rows, TaskSelect, TaskSet};
use statehold_core::query::{TaskCounts, TaskList, TaskOrder, TaskPlace};
use statehold_core::row::{Change, ExclusiveRow, Head, SignalsRow, TaskRow, Turn};
use statehold_core::{Status, Timestamp};
use uuid::Uuid;

use crate::queues;
use crate::rows::{Cells, More, Table, id, length, micros, text, value};
use crate::statements::{Db, Sql, sql};

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
    cells.skip();
    let (owner, token) = (cells.maybe_text()?, Token(cells.get()?));
    let (lease_started_at, lease_expires_at, heartbeat_at) =
        (cells.maybe_time()?, cells.maybe_time()?, cells.maybe_time()?);
    let lease = owner.map(|owner| Lease {
        owner,
        token,
        started_at: lease_started_at.unwrap_or_default(),
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
            micros(row.timer()),
            lease.map(|lease| lease.owner.as_str()),
            row.last_token.0,
            lease.map(|lease| lease.started_at.as_micros()),
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

/// Writes the columns that a step of a task changes; `finished_at` only where it is about that.
fn write_step(row: &TaskRow, db: Db<'_, '_>, ns: i64, ends: bool) -> Result<usize> {
    let task = &row.task;
    let lease = task.lease.as_ref();
    let (key, status, turn) = (id(task.id), task.status.as_str(), turn_name(row.turn));
    let (run_at, updated_at, started_at) =
        (task.run_at.as_micros(), task.updated_at.as_micros(), micros(task.started_at));
    let owner = lease.map(|lease| lease.owner.as_str());
    let lease_started_at = lease.map(|lease| lease.started_at.as_micros());
    let heartbeat_at = lease.map(|lease| lease.heartbeat_at.as_micros());
    let (timer, lease_expires_at) = (micros(row.timer()), micros(row.lease_expiry()));
    let (lease_length, failed_by) = (length(row.lease_seconds), row.failed_by.map(id));
    let (oldest_at, finished_at) = (micros(row.head.oldest_at), micros(task.finished_at));
    let open_dependencies = value(&row.open_dependencies);
    let (waiting_for, resumed_by, error) =
        (value(&task.waiting_for), value(&task.resumed_by), value(&task.error));
    let (progress, output) = (text(task.progress.as_ref()), text(task.output.as_ref()));
    let params = params![
        ns,
        key,
        status,
        turn,
        run_at,
        task.revision,
        task.attempt,
        task.failures,
        task.lease_losses,
        updated_at,
        started_at,
        task.cancel_requested,
        timer,
        owner,
        row.last_token.0,
        lease_started_at,
        lease_expires_at,
        heartbeat_at,
        lease_length,
        row.claim_key,
        row.children,
        row.open_children,
        failed_by,
        row.head.last,
        row.head.oldest,
        oldest_at,
        open_dependencies,
        waiting_for,
        resumed_by,
        error,
        progress,
        output,
        finished_at,
    ];
    if ends {
        db.run(sql!("task_end"), params)
    } else {
        db.run(sql!("task_move"), &params[..params.len() - 1])
    }
}

/// Whether two versions of a task differ in nothing but what its steps change.
fn same_but_for_steps(one: &TaskRow, two: &TaskRow) -> bool {
    let (a, b) = (&one.task, &two.task);
    a.queue == b.queue
        && a.kind == b.kind
        && a.priority == b.priority
        && a.rank == b.rank
        && a.max_attempts == b.max_attempts
        && a.max_lease_losses == b.max_lease_losses
        && a.created_at == b.created_at
        && a.expires_at == b.expires_at
        && a.timeout_seconds == b.timeout_seconds
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
        && a.metadata == b.metadata
        && a.input == b.input
        && one.depth == two.depth
        && one.request == two.request
}

/// Whether two versions of a task differ in nothing but what a renewal changes, given that they differ in
/// nothing but steps: every step but a renewal appends an event.
fn same_but_for_renewal(one: &TaskRow, two: &TaskRow) -> bool {
    one.head == two.head
        && one.task.revision == two.task.revision
        && one.turn == two.turn
        && one.timer() == two.timer()
        && one.children == two.children
        && one.open_children == two.open_children
        && one.claim_key == two.claim_key
        && one.lease_seconds == two.lease_seconds
        && one.open_dependencies == two.open_dependencies
        && one.failed_by == two.failed_by
}

impl Table for TaskRow {
    fn get(db: Db<'_, '_>, ns: i64, key: &TaskId) -> Result<Option<Self>> {
        db.first(sql!("task_get"), params![ns, id(*key)], read)
    }

    fn put(&self, db: Db<'_, '_>, ns: i64, before: Option<&Self>) -> Result<()> {
        let task = &self.task;
        match before {
            None => {
                write(self, db, ns, sql!("task_insert"))?;
                for dependency in &task.depends_on {
                    db.run(sql!("dependency_insert"), params![ns, id(*dependency), id(task.id)])?;
                }
            }
            Some(before) if !same_but_for_steps(before, self) => {
                write(self, db, ns, sql!("task_update"))?;
                debug_assert_eq!(before.task.depends_on, task.depends_on, "dependencies are given once");
            }
            Some(before) if same_but_for_renewal(before, self) => {
                let heartbeat_at = task.lease.as_ref().map(|lease| lease.heartbeat_at.as_micros());
                let (expiry, progress) = (micros(self.lease_expiry()), text(task.progress.as_ref()));
                db.run(sql!("task_renew"), params![ns, id(task.id), heartbeat_at, expiry, progress])?;
            }
            Some(before) => {
                let ends = before.task.finished_at != task.finished_at;
                write_step(self, db, ns, ends)?;
            }
        }
        Ok(())
    }

    fn delete(&self, db: Db<'_, '_>, ns: i64) -> Result<()> {
        for dependency in &self.task.depends_on {
            db.run(sql!("dependency_delete"), params![ns, id(*dependency), id(self.task.id)])?;
        }
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
pub(crate) struct Counts(BTreeMap<(String, Status), i64>);

impl Counts {
    pub(crate) fn note(&mut self, changes: &[Change<TaskRow>]) {
        for change in changes {
            let place = |row: &Arc<TaskRow>| (row.task.queue.clone(), row.task.status);
            let (before, after) = (change.before.as_ref().map(place), change.after.as_ref().map(place));
            if before != after {
                before.into_iter().for_each(|place| *self.0.entry(place).or_default() -= 1);
                after.into_iter().for_each(|place| *self.0.entry(place).or_default() += 1);
            }
        }
    }

    pub(crate) fn store(&mut self, db: Db<'_, '_>, ns: i64) -> Result<()> {
        for ((queue, status), by) in std::mem::take(&mut self.0) {
            if by != 0 {
                db.run(sql!("count_add"), params![ns, queue, status.as_str(), by])?;
            }
        }
        Ok(())
    }
}

/// So many pending tasks are found sooner among all tasks than by gathering them.
const MANY: i64 = 10_000;

/// Gathers the first tasks of a set, from ranges that are each in the set's order.
struct Gather<'a, 'c> {
    db: Db<'a, 'c>,
    select: &'a TaskSelect,
    now: Timestamp,
    /// How many to take of each range.
    most: usize,
    found: BTreeMap<Place, Arc<TaskRow>>,
}

impl Gather<'_, '_> {
    fn range(&mut self, sql: Sql, params: impl Params) -> Result<()> {
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
}

/// Answers a set of tasks and loads its rows.
pub(crate) fn select(
    db: Db<'_, '_>,
    ns: i64,
    select: TaskSelect,
    rows: &mut Rows,
    now: Timestamp,
) -> Result<()> {
    // One more tells whether these are all. Of what is ready nobody asks that, and claims are many.
    let most = select.limit + usize::from(!matches!(select.set, TaskSet::Ready { .. }));
    let mut gather = Gather { db, select: &select, now, most, found: BTreeMap::new() };
    let at = now.as_micros();
    let after = |after: &Option<TaskId>| after.map(id).unwrap_or(super::rows::id(TaskId(Uuid::nil())));
    let all = |sql| db.all(sql, [ns], |cells| cells.text());
    match &select.set {
        TaskSet::Ready { queues } => {
            for queue in queues {
                gather.range(sql!("tasks_ready"), params![ns, queue])?;
            }
        }
        TaskSet::Due { queues } => {
            for queue in queues.clone().map_or_else(|| all(sql!("queues_with_timers")), Ok)? {
                gather.range(sql!("tasks_due"), params![ns, queue, at])?;
            }
        }
        TaskSet::LeaseOver { queues } => {
            for queue in queues.clone().map_or_else(|| all(sql!("queues_with_leases")), Ok)? {
                gather.range(sql!("tasks_lease_over"), params![ns, queue, at])?;
            }
        }
        TaskSet::Upcoming { queues } => {
            for queue in queues {
                gather.range(sql!("tasks_next_timer"), params![ns, queue, at])?;
                gather.range(sql!("tasks_next_lease"), params![ns, queue, at])?;
            }
        }
        TaskSet::Claimed { owner, key } => gather.range(sql!("tasks_claimed"), params![ns, owner, key])?,
        TaskSet::Dependents { of, after: beyond } | TaskSet::FailedBy { of, after: beyond } => {
            gather.range(sql!("tasks_dependents"), params![ns, id(*of), after(beyond)])?;
        }
        TaskSet::LiveDependents { of } => {
            gather.range(sql!("tasks_dependents"), params![ns, id(*of), after(&None)])?;
        }
        TaskSet::Children { of, after: beyond } => {
            gather.range(sql!("tasks_children"), params![ns, id(*of), after(beyond)])?;
        }
        TaskSet::Contenders { key, .. } => gather.range(sql!("tasks_contenders"), params![ns, key])?,
        TaskSet::Keyed { queue, after: beyond } => {
            gather.range(sql!("tasks_keyed"), params![ns, queue, after(beyond)])?;
        }
        TaskSet::Retired { rules, after: beyond } => {
            let latest = rules.iter().map(|(_, before)| before.as_micros()).max();
            let (from, beyond) =
                beyond.map_or((i64::MIN, None), |at| (at.finished_at.as_micros(), Some(at.id)));
            gather.range(sql!("tasks_finished"), params![ns, from, after(&beyond), latest])?;
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

/// Tasks by their ids.
pub(crate) fn get(db: Db<'_, '_>, ns: i64, ids: &[TaskId]) -> Result<Vec<Option<Task>>> {
    ids.iter().map(|id| Ok(TaskRow::get(db, ns, id)?.map(|row| row.task))).collect()
}

/// A page of tasks, with one more to tell that there is a next one.
pub(crate) fn list(db: Db<'_, '_>, ns: i64, list: &TaskList, after: Option<TaskPlace>) -> Result<Vec<Task>> {
    let mut page = Listing { list, after, tasks: BTreeMap::new() };
    if let Some(key) = &list.idempotency_key {
        page.gather(db, sql!("task_list_idempotency_key"), params![ns, key])?;
    } else if let Some(parent) = list.parent {
        page.gather(db, sql!("task_list_parent"), params![ns, id(parent)])?;
    } else if let Some(root) = list.root {
        page.gather(db, sql!("task_list_root"), params![ns, id(root)])?;
    } else if let Some(thread) = &list.thread {
        page.gather(db, sql!("task_list_thread"), params![ns, thread])?;
    } else if let Some(key) = &list.exclusive_key {
        page.gather(db, sql!("task_list_exclusive_key"), params![ns, key])?;
    } else {
        page.scan(db, ns)?;
    }
    let tasks = page.tasks.into_values();
    Ok(if list.descending { tasks.rev().collect() } else { tasks.collect() })
}

/// The tasks of a page, as far as they are found.
struct Listing<'a> {
    list: &'a TaskList,
    after: Option<TaskPlace>,
    tasks: BTreeMap<TaskPlace, Task>,
}

impl Listing<'_> {
    fn wants(&self, place: TaskPlace) -> bool {
        let beyond = |after: TaskPlace| if self.list.descending { place < after } else { place > after };
        self.after.is_none_or(beyond)
    }

    fn is_full(&self) -> bool {
        self.tasks.len() > self.list.limit as usize
    }

    /// Takes the first of whatever comes, in no order.
    fn gather(&mut self, db: Db<'_, '_>, sql: Sql, params: impl Params) -> Result<()> {
        db.each(sql, params, |cells| {
            let task = read(cells)?.task;
            let place = self.list.place_of(&task);
            if self.list.matches(&task) && self.wants(place) {
                if self.is_full() {
                    self.tasks.insert(place, task);
                    if self.list.descending {
                        self.tasks.pop_first()
                    } else {
                        self.tasks.pop_last()
                    };
                } else {
                    self.tasks.insert(place, task);
                }
            }
            Ok(More::Please)
        })
    }

    /// Takes tasks that have not ended by the indexes of what they are at; false if those are too many for that.
    fn gather_open(&mut self, db: Db<'_, '_>, ns: i64) -> Result<bool> {
        let leased = self.list.owner.is_some()
            || self.list.heartbeat_from.is_some()
            || self.list.heartbeat_before.is_some();
        let asked = if leased { &[Status::Running][..] } else { &self.list.status };
        if asked.is_empty() || asked.iter().any(|status| status.is_terminal()) {
            return Ok(false);
        }
        let asked = |status| asked.contains(&status);
        let mut statements = Vec::new();
        if asked(Status::Pending) {
            let pending = db.first(sql!("count_pending"), [ns], |cells| cells.get::<i64>())?;
            if pending.unwrap_or_default() > MANY {
                return Ok(false);
            }
            statements.extend([sql!("task_list_ready"), sql!("task_list_later"), sql!("task_list_in_line")]);
        }
        if asked(Status::Running) {
            statements.push(sql!("task_list_running"));
        }
        if asked(Status::Backlog) || asked(Status::Blocked) || asked(Status::Waiting) {
            statements.push(sql!("task_list_parked"));
        }
        for statement in statements {
            self.gather(db, statement, [ns])?;
        }
        Ok(true)
    }

    /// Takes what comes in the order of creation, until the page is full.
    fn scan(&mut self, db: Db<'_, '_>, ns: i64) -> Result<()> {
        if self.gather_open(db, ns)? {
            return Ok(());
        }
        let ended_badly = |status: &Status| matches!(status, Status::Failed | Status::Cancelled);
        let badly = !self.list.status.is_empty() && self.list.status.iter().all(ended_badly);
        let sql = match (self.list.descending, badly) {
            (false, true) => sql!("task_list_ended_badly"),
            (true, true) => sql!("task_list_ended_badly_desc"),
            (false, false) => sql!("task_list_created"),
            (true, false) => sql!("task_list_created_desc"),
        };
        let first = if self.list.descending {
            (i64::MAX, 0, TaskId(Uuid::max()))
        } else {
            (i64::MIN, 0, TaskId(Uuid::nil()))
        };
        if self.list.order != TaskOrder::Created {
            return self.gather(db, sql, params![ns, first.0, id(first.2)]);
        }
        let (created_at, _, after) = self.after.unwrap_or(self.bound().unwrap_or(first));
        db.each(sql, params![ns, created_at, id(after)], |cells| {
            let task = read(cells)?.task;
            if self.is_past(&task) {
                return Ok(More::Enough);
            }
            if self.list.matches(&task) {
                self.tasks.insert(self.list.place_of(&task), task);
            }
            Ok(if self.is_full() { More::Enough } else { More::Please })
        })
    }

    /// Where a list begins that asks for a time of creation.
    fn bound(&self) -> Option<TaskPlace> {
        if self.list.descending {
            self.list.created_before.map(|before| (before.as_micros(), 0, TaskId(Uuid::nil())))
        } else {
            let from = self.list.created_from.map(|from| from.as_micros().saturating_sub(1));
            from.map(|from| (from, 0, TaskId(Uuid::max())))
        }
    }

    /// Whether no later task can have the time of creation that was asked for.
    fn is_past(&self, task: &Task) -> bool {
        if self.list.descending {
            self.list.created_from.is_some_and(|from| task.created_at < from)
        } else {
            self.list.created_before.is_some_and(|before| task.created_at >= before)
        }
    }
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
