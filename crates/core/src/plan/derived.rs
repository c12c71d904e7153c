//! What follows from a batch for tasks that it did not name: dependents, waiting parents, freed keys,
//! descendants. It never refuses, happens after the commands, and beyond a bound is left to a sweep.

use std::sync::Arc;

use super::lifecycle::{self, cancel, fail};
use super::lookup::{Found, TaskSet, waits_for_children};
use super::tx::{Planned, Tx, data};
use super::{exclusive, tasks};
use crate::json::Json;
use crate::model::{Children, ResumedBy, TaskError, TaskId};
use crate::row::{Chore, ChoreRow, TaskRow};
use crate::status::Status;

/// How many tasks one commit judges beyond those it names.
pub(super) const BUDGET: usize = 256;

/// Judges all that is on the agenda.
pub(super) fn settle(tx: &mut Tx<'_>) -> Planned<()> {
    let mut budget = BUDGET;
    while let Some((chore, after)) = tx.agenda.chores.pop_first() {
        let rest = ChoreRow { chore, after };
        let rest =
            if budget == 0 { Some(rest) } else { tx.attempt(|tx| work(tx, rest, &mut budget))?.flatten() };
        if let Some(rest) = rest {
            tx.want::<ChoreRow>(&rest.chore);
            tx.put(rest);
        }
    }
    while let Some(parent) = tx.agenda.parents.pop_first() {
        tx.attempt(|tx| judge_parent(tx, parent))?;
    }
    while let Some(key) = tx.agenda.keys.pop_first() {
        tx.attempt(|tx| exclusive::judge(tx, &key))?;
    }
    tx.all_loaded()
}

/// Works on a chore as far as the budget reaches; answers what is left of it.
fn work(tx: &mut Tx<'_>, row: ChoreRow, budget: &mut usize) -> Planned<Option<ChoreRow>> {
    let ChoreRow { chore, after } = row;
    let Some(set) = set_of(tx, &chore, after)? else { return Ok(None) };
    let Found { keys, complete } = tx.find(&set, BUDGET)?;
    let ids: Vec<_> = keys.iter().map(|row| row.task.id).collect();
    let now = ids.len().min(*budget);
    *budget -= now;
    for id in &ids[..now] {
        // Judging one task may have changed the next.
        if let Some(row) = tx.get::<TaskRow>(id)?.filter(|row| set.contains(row, tx.now)) {
            tx.attempt(|tx| judge(tx, &chore, Arc::unwrap_or_clone(row)))?;
        }
    }
    let done = complete && now == ids.len();
    let after = ids[..now].last().copied().or(after);
    Ok((!done).then_some(ChoreRow { chore, after }))
}

/// The tasks that a chore judges, if it still makes sense.
fn set_of(tx: &mut Tx<'_>, chore: &Chore, after: Option<TaskId>) -> Planned<Option<TaskSet>> {
    Ok(match chore {
        Chore::Dependents(of) => {
            let open = tx.get::<TaskRow>(of)?.is_some_and(|row| !row.task.status.is_terminal());
            (!open).then_some(TaskSet::Dependents { of: *of, after })
        }
        Chore::CancelChildren { parent, .. } => {
            let asked = |row: &TaskRow| row.task.cancel_requested || row.task.status.is_terminal();
            let spared = |row: &TaskRow| row.children == 0 || !asked(row);
            let none = tx.get::<TaskRow>(parent)?.is_some_and(|row| spared(&row));
            (!none).then_some(TaskSet::Children { of: *parent, after })
        }
        Chore::Revive(of) => {
            let open = |row: &TaskRow| !matches!(row.task.status, Status::Failed | Status::Cancelled);
            let row = tx.get::<TaskRow>(of)?.filter(|row| open(row));
            row.map(|_| TaskSet::FailedBy { of: *of, after })
        }
        Chore::QueueKeys(queue) => Some(TaskSet::Keyed { queue: queue.clone(), after }),
    })
}

/// Judges one task of a chore.
fn judge(tx: &mut Tx<'_>, chore: &Chore, row: TaskRow) -> Planned<()> {
    match chore {
        Chore::Dependents(of) => judge_dependent(tx, *of, row),
        Chore::CancelChildren { force, .. } => cancel_child(tx, row, *force),
        Chore::Revive(_) => {
            let id = row.task.id;
            tasks::reopen(tx, row)?;
            tx.agenda.chores.insert(Chore::Revive(id), None);
            Ok(())
        }
        Chore::QueueKeys(_) => {
            tx.agenda.keys.extend(row.task.exclusive_key);
            Ok(())
        }
    }
}

fn judge_dependent(tx: &mut Tx<'_>, of: TaskId, mut row: TaskRow) -> Planned<()> {
    // What was purged is not waited for.
    let status = tx.get::<TaskRow>(&of)?.map_or(Status::Completed, |dependency| dependency.task.status);
    if status == Status::Completed {
        row.open_dependencies.retain(|open| *open != of);
        if row.open_dependencies.is_empty() {
            let run_at = row.task.run_at;
            lifecycle::make_pending(tx, &mut row, run_at)?;
            lifecycle::note(tx, &mut row, "task.unblocked", None);
        }
    } else {
        fail_dependent(tx, &mut row, of, status)?;
    }
    tx.put(row);
    Ok(())
}

/// Fails a task because a dependency did not succeed.
pub(super) fn fail_dependent(tx: &mut Tx<'_>, row: &mut TaskRow, of: TaskId, status: Status) -> Planned<()> {
    row.failed_by = Some(of);
    fail(tx, row, dependency_error(of, status))
}

/// The error of a task whose dependency did not succeed.
pub(super) fn dependency_error(of: TaskId, status: Status) -> TaskError {
    let details = data(&serde_json::json!({ "task": of }));
    TaskError { details, ..TaskError::new("dependency", format!("dependency `{of}` is {status}")) }
}

/// Cancels a task, or asks its owner to stop.
pub(super) fn cancel_task(tx: &mut Tx<'_>, mut row: TaskRow, force: bool, children: bool) -> Planned<()> {
    if row.task.status == Status::Running && !force {
        row.task.cancel_requested = true;
        lifecycle::note(tx, &mut row, "task.cancel_requested", None::<Json>);
    } else {
        cancel(tx, &mut row)?;
    }
    if children {
        tx.agenda.chores.insert(Chore::CancelChildren { parent: row.task.id, force }, None);
    }
    tx.put(row);
    Ok(())
}

/// Cancels a child if it is open, and goes on below it in any case: a child that has ended may have left
/// open ones.
fn cancel_child(tx: &mut Tx<'_>, row: TaskRow, force: bool) -> Planned<()> {
    if !row.task.status.is_terminal() {
        return cancel_task(tx, row, force, true);
    }
    tx.agenda.chores.insert(Chore::CancelChildren { parent: row.task.id, force }, None);
    Ok(())
}

fn judge_parent(tx: &mut Tx<'_>, parent: TaskId) -> Planned<()> {
    let Some(row) = tx.get::<TaskRow>(&parent)? else { return Ok(()) };
    if row.open_children == 0 && waits_for_children(&row) {
        let mut row = Arc::unwrap_or_clone(row);
        lifecycle::resume(tx, &mut row, ResumedBy::Children(Children::All))?;
        tx.put(row);
    }
    Ok(())
}

/// Notes that the dependents of a task will be judged.
pub(super) fn want_dependents(tx: &mut Tx<'_>, of: TaskId) {
    tx.want_set(TaskSet::Dependents { of, after: None }, BUDGET);
}
