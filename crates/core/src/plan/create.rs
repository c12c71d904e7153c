//! Creating tasks: what is known already, who they belong to, and where they stand.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::derived::dependency_error;
use super::exclusive;
use super::lifecycle::{self, Failed, New, note};
use super::lookup::{Child, Idempotency};
use super::tasks::{Dependencies, dependencies};
use super::tx::{Planned, Tx, data};
use crate::batch::Prepared;
use crate::command::{Created, OnBusy, OnDuplicate, TaskCreate};
use crate::error::Error;
use crate::limits::FAMILY_DEPTH;
use crate::model::{Task, TaskId, Token};
use crate::row::{Head, QueueRow, RequestHash, TaskRow, Turn};
use crate::status::Status;

/// What earlier commands of the batch will have done, as far as guards must know.
#[derive(Default)]
pub(super) struct Family {
    created: HashMap<TaskId, Kin>,
    pub(super) started_keys: HashSet<String>,
}

/// A task's place in its family.
#[derive(Clone, Copy)]
struct Kin {
    parent: Option<TaskId>,
    depth: u16,
}

fn id_of(create: &TaskCreate) -> TaskId {
    create.id.unwrap_or_default()
}

fn queue_of(create: &TaskCreate) -> String {
    create.queue.clone().unwrap_or_else(|| "default".to_owned())
}

/// Notes everything that a create looks at, so that it is loaded in one go.
fn want_all(tx: &mut Tx<'_>, batch: &Prepared, create: &TaskCreate, family: &Family) {
    if let Some(key) = &create.idempotency_key {
        tx.want_look(Idempotency(key.clone()));
    }
    if let Some((parent, key)) = create.parent.zip(create.child_key.clone()) {
        tx.want_look(Child { parent, key });
    }
    if !batch.is_generated(id_of(create)) {
        tx.want::<TaskRow>(&id_of(create));
    }
    for id in create.depends_on.iter().chain(&create.parent) {
        if !family.created.contains_key(id) {
            tx.want::<TaskRow>(id);
        }
    }
    if let Some(key) = &create.exclusive_key {
        exclusive::want(tx, key);
        tx.want::<QueueRow>(&queue_of(create));
    }
}

/// The task that the create's idempotency key, child key or id already has, with that key.
fn known(tx: &mut Tx<'_>, batch: &Prepared, create: &TaskCreate) -> Planned<Option<(String, Arc<TaskRow>)>> {
    let mut found = None;
    if let Some(key) = &create.idempotency_key {
        found = tx.look(&Idempotency(key.clone()))?.map(|id| (key.clone(), id));
    }
    if let (None, Some((parent, key))) = (&found, create.parent.zip(create.child_key.clone())) {
        found = tx.look(&Child { parent, key: key.clone() })?.map(|id| (key, id));
    }
    if found.is_none() && !batch.is_generated(id_of(create)) {
        found = Some((id_of(create).to_string(), id_of(create)));
    }
    match found {
        Some((key, id)) => Ok(tx.get::<TaskRow>(&id)?.map(|row| (key, row))),
        None => Ok(None),
    }
}

pub(super) fn judge(
    tx: &mut Tx<'_>,
    batch: &Prepared,
    create: &TaskCreate,
    family: &mut Family,
) -> Planned<()> {
    want_all(tx, batch, create, family);
    if let Some((key, row)) = known(tx, batch, create)? {
        return judge_known(batch, create, key, &row);
    }
    let depth = judge_parent(tx, create, family)?;
    judge_dependencies(tx, create, family)?;
    if let (Some(key), Some(OnBusy::Reject)) = (&create.exclusive_key, create.on_busy) {
        exclusive::judge_idle(tx, key)?;
    }
    family.created.insert(id_of(create), Kin { parent: create.parent, depth });
    Ok(())
}

fn judge_known(batch: &Prepared, create: &TaskCreate, key: String, row: &TaskRow) -> Planned<()> {
    let same =
        row.request == RequestHash::UNKNOWN || Some(row.request) == batch.create_request(id_of(create));
    if same || create.on_duplicate == Some(OnDuplicate::Return) {
        return Ok(());
    }
    let message = format!("`{key}` was used for another request, which made task `{}`", row.task.id);
    Err(Error::conflict(key, message).into())
}

fn judge_parent(tx: &mut Tx<'_>, create: &TaskCreate, family: &Family) -> Planned<u16> {
    let Some(parent) = create.parent else { return Ok(0) };
    let depth = match family.created.get(&parent) {
        Some(kin) => kin.depth,
        None => match tx.get::<TaskRow>(&parent)? {
            None => return Err(Error::not_found("parent task", parent).into()),
            Some(row) if row.task.status.is_terminal() => {
                let message = format!("parent task `{parent}` is {} already", row.task.status);
                return Err(Error::conflict(parent, message).hint("create it without a parent").into());
            }
            Some(row) => row.depth,
        },
    };
    if depth >= FAMILY_DEPTH {
        let message = format!("task `{parent}` is {depth} levels deep; {FAMILY_DEPTH} are allowed");
        return Err(Error::invalid("parent", message).into());
    }
    Ok(depth + 1)
}

fn judge_dependencies(tx: &mut Tx<'_>, create: &TaskCreate, family: &Family) -> Planned<()> {
    for id in &create.depends_on {
        if !family.created.contains_key(id) && tx.get::<TaskRow>(id)?.is_none() {
            return Err(Error::not_found("dependency", id).into());
        }
    }
    if create.depends_on.is_empty() {
        return Ok(());
    }
    let mut ancestor = create.parent;
    while let Some(id) = ancestor {
        if create.depends_on.contains(&id) {
            let message = format!("`{id}` is an ancestor of the task, which would wait for itself");
            return Err(Error::invalid("depends_on", message).into());
        }
        ancestor = match family.created.get(&id) {
            Some(kin) => kin.parent,
            None => tx.get::<TaskRow>(&id)?.and_then(|row| row.task.parent),
        };
    }
    Ok(())
}

pub(super) fn create(tx: &mut Tx<'_>, batch: &Prepared, create: &TaskCreate) -> Planned<Created> {
    if let Some((_, row)) = known(tx, batch, create)? {
        return Ok(Created { task: row.task.clone(), created: false });
    }
    let parent = match &create.parent {
        Some(parent) => tx.get::<TaskRow>(parent)?,
        None => None,
    };
    let Dependencies { open, failed } = dependencies(tx, &create.depends_on)?;
    let mut row = new_row(tx, batch, create, parent.as_deref());
    row.task.status = match failed {
        _ if create.backlog => Status::Backlog,
        Some(_) => Status::Failed,
        None if !open.is_empty() => Status::Blocked,
        None => Status::Pending,
    };
    let about = data(&New { kind: &row.task.kind, queue: &row.task.queue, status: row.task.status });
    note(tx, &mut row, "task.created", about);
    match row.task.status {
        Status::Failed => born_failed(tx, &mut row, failed),
        Status::Blocked => row.open_dependencies = open,
        _ => {}
    }
    if let Some(parent) = parent {
        tx.put(TaskRow { children: parent.children + 1, ..TaskRow::clone(&parent) });
    }
    if !row.task.status.is_terminal() {
        exclusive::join(tx, &row)?;
        if let Some(parent) = create.parent {
            lifecycle::count_child(tx, parent, |open| open + 1)?;
        }
    }
    if row.task.status == Status::Pending {
        lifecycle::set_turn(tx, &mut row)?;
    }
    let task = row.task.clone();
    tx.put(row);
    Ok(Created { task, created: true })
}

fn born_failed(tx: &mut Tx<'_>, row: &mut TaskRow, failed: Option<(TaskId, Status)>) {
    let error = failed.map(|(of, status)| dependency_error(of, status));
    row.failed_by = failed.map(|(of, _)| of);
    row.task.finished_at = Some(tx.now);
    note(tx, row, "task.failed", data(&Failed { error: error.as_ref() }));
    row.task.error = error;
}

fn new_row(tx: &Tx<'_>, batch: &Prepared, create: &TaskCreate, parent: Option<&TaskRow>) -> TaskRow {
    TaskRow {
        task: new_task(tx, create, parent),
        request: batch.create_request(id_of(create)).unwrap_or(RequestHash::UNKNOWN),
        last_token: Token::default(),
        head: Head::default(),
        turn: Turn::Off,
        open_dependencies: Vec::new(),
        failed_by: None,
        children: 0,
        open_children: 0,
        depth: parent.map_or(0, |parent| parent.depth + 1),
        lease_seconds: None,
        claim_key: None,
    }
}

fn new_task(tx: &Tx<'_>, create: &TaskCreate, parent: Option<&TaskRow>) -> Task {
    Task {
        id: id_of(create),
        queue: queue_of(create),
        kind: create.kind.clone(),
        status: Status::Pending,
        priority: create.priority.unwrap_or(0),
        rank: create.rank.unwrap_or(0),
        input: create.input.clone(),
        output: None,
        error: None,
        metadata: create.metadata.clone(),
        labels: create.labels.clone(),
        thread: create.thread.clone(),
        parent: create.parent,
        root: parent.map_or(id_of(create), |parent| parent.task.root),
        child_key: create.child_key.clone(),
        depends_on: create.depends_on.clone(),
        idempotency_key: create.idempotency_key.clone(),
        exclusive_key: create.exclusive_key.clone(),
        run_at: create.run_at.unwrap_or(tx.now),
        expires_at: create.expires_at,
        timeout_seconds: create.timeout_seconds,
        attempt: 0,
        failures: 0,
        lease_losses: 0,
        max_attempts: create.max_attempts.unwrap_or(3),
        max_lease_losses: create.max_lease_losses.unwrap_or(10),
        backoff: create.backoff.unwrap_or_default(),
        progress: None,
        waiting_for: None,
        resumed_by: None,
        cancel_requested: false,
        traceparent: create.traceparent.clone(),
        revision: 0,
        lease: None,
        created_at: tx.now,
        updated_at: tx.now,
        started_at: None,
        finished_at: None,
    }
}
