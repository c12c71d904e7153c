//! Fences and leases: who still holds what. Every judgement by token is here.

use super::tx::{Planned, Tx};
use crate::batch::Fence;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind};
use crate::model::Token;
use crate::row::{DeliveryKey, DeliveryRow, GroupKey, Holder, LockRow, TaskRow};
use crate::status::Status;

/// Judges a fence of a batch.
pub(super) fn judge(tx: &mut Tx<'_>, fence: &Fence) -> Planned<()> {
    let now = tx.now;
    match fence {
        Fence::Task { task, token } => match tx.get::<TaskRow>(task)? {
            Some(row) => Ok(task_lease(&row, *token, now)?),
            None => Err(fenced("task", task.to_string(), None, None).into()),
        },
        Fence::Lock { lock, token } => {
            let row = tx.get::<LockRow>(lock)?;
            Ok(held_lock(row.as_deref(), lock, *token, now)?)
        }
        Fence::Delivery { group, source, position, delivery_token } => {
            let group = GroupKey { group: group.clone(), source: source.clone() };
            let key = DeliveryKey { group, position: position.clone() };
            let row = tx.delivery(&key)?.filter(|row| row.visible_at > now);
            Ok(current_delivery(row.as_deref(), &key, *delivery_token)?)
        }
    }
}

/// Whether a task is running with this token and its lease is not over.
pub(super) fn task_lease(row: &TaskRow, token: Token, now: Timestamp) -> Result<(), Error> {
    let task = &row.task;
    let (lost_at, owner) = match &task.lease {
        Some(lease) if task.status == Status::Running && lease.token == token => match row.lease_end() {
            Some(end) if end <= now => (Some(end), None),
            _ => return Ok(()),
        },
        Some(lease) if task.status == Status::Running => (Some(lease.started_at), Some(lease.owner.clone())),
        _ => (Some(task.updated_at), None),
    };
    Err(fenced("task", task.id.to_string(), lost_at, owner))
}

/// Whether a lock is held with this token and has not expired.
pub(super) fn held_lock(row: Option<&LockRow>, key: &str, token: Token, now: Timestamp) -> Result<(), Error> {
    let held = row.and_then(|row| row.holder.as_ref().map(|holder| (row.token, holder)));
    let (lost_at, owner) = match held {
        Some((current, holder)) if current == token && holder.expires_at > now => return Ok(()),
        Some((current, holder)) if current == token => (Some(holder.expires_at), None),
        Some((_, holder)) => lost_to(holder, now),
        None => (None, None),
    };
    Err(fenced("lock", key.to_owned(), lost_at, owner))
}

/// When a lock was lost, and to whom, if that one still holds it.
pub(super) fn lost_to(holder: &Holder, now: Timestamp) -> (Option<Timestamp>, Option<String>) {
    (Some(holder.acquired_at), (holder.expires_at > now).then(|| holder.owner.clone()))
}

/// Whether a delivery is out with this token.
pub(super) fn current_delivery(
    row: Option<&DeliveryRow>,
    key: &DeliveryKey,
    token: Token,
) -> Result<(), Error> {
    match row {
        Some(row) if row.out && row.token == token => Ok(()),
        _ => Err(fenced("delivery", key.position.to_string(), None, None)),
    }
}

/// The error of whoever no longer holds something.
pub(super) fn fenced(noun: &str, key: String, lost_at: Option<Timestamp>, owner: Option<String>) -> Error {
    let since = lost_at.map(|at| format!(" since {at}")).unwrap_or_default();
    let to = owner.as_ref().map(|owner| format!("; `{owner}` holds it now")).unwrap_or_default();
    let message = format!("{noun} `{key}` is not held with this token{since}{to}");
    Error::new(ErrorKind::Fenced { lost_at, owner }, message).about(key)
}
