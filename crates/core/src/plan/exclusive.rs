//! Exclusive keys: at most one running task of a key, and while none runs, one that is ready.

use std::sync::Arc;

use super::lookup::TaskSet;
use super::queues;
use super::tx::{Planned, Tx};
use crate::error::{Error, ErrorKind};
use crate::row::{ExclusiveRow, TaskRow, Turn};

fn load(tx: &mut Tx<'_>, key: &str) -> Planned<ExclusiveRow> {
    let row = tx.get::<ExclusiveRow>(&key.to_owned())?;
    Ok(row.map_or_else(
        || ExclusiveRow { key: key.to_owned(), open: 0, holder: None, nominee: None },
        Arc::unwrap_or_clone,
    ))
}

fn store(tx: &mut Tx<'_>, row: ExclusiveRow) {
    if row.open == 0 { tx.delete::<ExclusiveRow>(&row.key) } else { tx.put(row) }
}

/// Changes the row of a task's key, if it has one, and puts the key on the agenda.
fn change(tx: &mut Tx<'_>, task: &TaskRow, change: impl FnOnce(&mut ExclusiveRow)) -> Planned<()> {
    let Some(key) = &task.task.exclusive_key else { return Ok(()) };
    let mut row = load(tx, key)?;
    change(&mut row);
    store(tx, row);
    tx.agenda.keys.insert(key.clone());
    Ok(())
}

/// A task that is not terminal has the key now.
pub(super) fn join(tx: &mut Tx<'_>, task: &TaskRow) -> Planned<()> {
    change(tx, task, |row| row.open += 1)
}

/// The task has ended.
pub(super) fn leave(tx: &mut Tx<'_>, task: &TaskRow) -> Planned<()> {
    change(tx, task, |row| row.open = row.open.saturating_sub(1))
}

/// The task stops running.
pub(super) fn free(tx: &mut Tx<'_>, task: &TaskRow) -> Planned<()> {
    change(tx, task, |row| row.holder = row.holder.filter(|holder| *holder != task.task.id))
}

/// The task stops being pending and due.
pub(super) fn step_back(tx: &mut Tx<'_>, task: &TaskRow) -> Planned<()> {
    if task.turn != Turn::Ready {
        return Ok(());
    }
    change(tx, task, |row| row.nominee = row.nominee.filter(|nominee| *nominee != task.task.id))
}

/// The task runs. If another one was ready, that one goes back in line.
pub(super) fn hold(tx: &mut Tx<'_>, task: &TaskRow) -> Planned<()> {
    let Some(key) = &task.task.exclusive_key else { return Ok(()) };
    let mut row = load(tx, key)?;
    if let Some(other) = row.nominee.filter(|nominee| *nominee != task.task.id) {
        set_turn(tx, other, Turn::InLine)?;
    }
    row.holder = Some(task.task.id);
    row.nominee = None;
    store(tx, row);
    Ok(())
}

fn set_turn(tx: &mut Tx<'_>, id: crate::model::TaskId, turn: Turn) -> Planned<()> {
    if let Some(row) = tx.get::<TaskRow>(&id)? {
        tx.put(TaskRow { turn, ..TaskRow::clone(&row) });
    }
    Ok(())
}

/// Notes what judging a key will need.
pub(super) fn want(tx: &mut Tx<'_>, key: &String) {
    tx.want::<ExclusiveRow>(key);
    let set = TaskSet::Contenders { key: key.clone(), skip: Vec::new() };
    tx.want_set(set, 1);
}

/// Notes what judging the task's key will need.
pub(super) fn want_of(tx: &mut Tx<'_>, task: &TaskRow) {
    if let Some(key) = &task.task.exclusive_key {
        want(tx, key);
    }
}

/// Refuses if another task runs with the key.
pub(super) fn judge_free(tx: &mut Tx<'_>, key: &String) -> Planned<()> {
    match tx.get::<ExclusiveRow>(key)?.and_then(|row| row.holder) {
        Some(_) => Err(held(tx, key)?.into()),
        None => Ok(()),
    }
}

/// Refuses if any task that is not terminal has the key.
pub(super) fn judge_idle(tx: &mut Tx<'_>, key: &String) -> Planned<()> {
    match tx.get::<ExclusiveRow>(key)? {
        Some(_) => Err(held(tx, key)?.into()),
        None => Ok(()),
    }
}

fn held(tx: &mut Tx<'_>, key: &String) -> Planned<Error> {
    let holder = load(tx, key)?.holder;
    let lease = match holder {
        Some(holder) => tx.get::<TaskRow>(&holder)?.and_then(|row| row.task.lease.clone()),
        None => None,
    };
    let who =
        holder.map_or_else(|| "a waiting task has it".to_owned(), |id| format!("task `{id}` is running"));
    let (owner, expires_at) = lease.map_or((None, None), |lease| (Some(lease.owner), lease.expires_at));
    Ok(Error::new(ErrorKind::Held { owner, expires_at }, format!("exclusive key `{key}` is busy: {who}"))
        .about(key))
}

/// Sees to it that the first in line is ready while nobody runs.
pub(super) fn judge(tx: &mut Tx<'_>, key: &String) -> Planned<()> {
    let Some(row) = tx.get::<ExclusiveRow>(key)? else { return Ok(()) };
    let mut row = Arc::unwrap_or_clone(row);
    if row.holder.is_some() {
        return Ok(());
    }
    if let Some(nominee) = row.nominee {
        if stands(tx, nominee)? {
            return Ok(());
        }
        set_turn(tx, nominee, Turn::InLine)?;
    }
    row.nominee = first_in_line(tx, key)?;
    if let Some(nominee) = row.nominee {
        set_turn(tx, nominee, Turn::Ready)?;
    }
    store(tx, row);
    Ok(())
}

/// Whether the one that is ready may stay so.
fn stands(tx: &mut Tx<'_>, nominee: crate::model::TaskId) -> Planned<bool> {
    let now = tx.now;
    let Some(row) = tx.get::<TaskRow>(&nominee)? else { return Ok(false) };
    let fresh = row.task.expires_at.is_none_or(|at| at > now);
    Ok(row.turn == Turn::Ready && fresh && !queues::is_paused(tx, &row.task.queue)?)
}

fn first_in_line(tx: &mut Tx<'_>, key: &str) -> Planned<Option<crate::model::TaskId>> {
    let mut skip = Vec::new();
    loop {
        let set = TaskSet::Contenders { key: key.to_owned(), skip: skip.clone() };
        let Some(first) = tx.find(&set, 1)?.keys.into_iter().next() else { return Ok(None) };
        if !queues::is_paused(tx, &first.task.queue)? {
            return Ok(Some(first.task.id));
        }
        skip.push(first.task.queue.clone());
    }
}
