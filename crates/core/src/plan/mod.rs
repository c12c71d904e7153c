//! The plan: every rule, once. Pure functions from a request and loaded rows to a decision, without I/O,
//! clock or randomness.
//!
//! A backend calls one of [`apply`], [`claim`], [`group_read`], [`sweep`] and [`why`] with [`Rows`], empty at
//! first. The answer is a [`Step`]: rows that are missing (load them and call again), a decision with its
//! [`Effects`] (store them, commit, answer), or a refusal. Several requests can be decided in one commit: lay
//! the effects of each accepted one over the rows with [`Rows::accept`].
//!
//! Where a rule is: the commands of a noun in the file of that noun (`tasks` judges and applies, `create`
//! is its largest part); what a task's transitions have in common in `lifecycle`; what follows from
//! them for other tasks in `derived`; fences and batch keys in `fences` and `keys`.

mod claim;
mod create;
mod derived;
mod documents;
mod entries;
mod exclusive;
mod fences;
mod groups;
mod keys;
mod lifecycle;
mod locks;
mod lookup;
mod queues;
mod rows;
mod streams;
mod sweep;
mod tasks;
mod topics;
mod tx;
mod why;

pub use claim::Ready;
pub use lifecycle::Starter;
pub use lookup::{
    Child, Cut, CutAt, CutPoint, DeliverySelect, DeliverySet, EventAt, Expired, ExpiredKeys, Found,
    Idempotency, Latest, Lookup, Overgrown, Place, Polled, TaskSelect, TaskSet, Unread, UnreadEvents,
};
pub use rows::{Appending, Asked, Effects, Kept, Map, Needs, Rows, Trim};
pub use topics::start_topics;

use crate::batch::{Prepared, Replies};
use crate::call::{Claim, Claimed, Deliveries, GroupRead, Sweep, Swept};
use crate::clock::Timestamp;
use crate::command::{Command, Reply};
use crate::error::{Error, Place as At};
use crate::model::TaskId;
use crate::query::Why;
use tx::{Halt, Planned, Tx};

/// What a plan answers.
#[derive(Clone, Debug)]
pub enum Step<T> {
    /// Load these and plan again.
    Need(Needs),
    /// Store the effects, commit, then answer.
    Accept(T, Effects),
    /// Answer the error; nothing is stored.
    Refuse(Error),
}

/// What a plan knows beside the rows.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The store's time, read after the rows were had.
    pub now: Timestamp,
    /// The name of this process in the audit category.
    pub replica: &'a str,
}

/// Decides a batch.
pub fn apply(batch: &Prepared, rows: &Rows, context: &Context<'_>) -> Step<Replies> {
    tx::run(rows, context, batch.batch().actor.as_ref(), |tx| apply_all(tx, batch))
}

/// Decides a claim.
pub fn claim(claim: &Claim, rows: &Rows, context: &Context<'_>) -> Step<Claimed> {
    tx::run(rows, context, None, |tx| claim::claim(tx, claim, None))
}

/// Decides a claim that was prepared. What is due is not handled twice at the same time.
pub fn claim_prepared(
    claim: &Claim,
    ready: Option<Ready>,
    rows: &Rows,
    context: &Context<'_>,
) -> Step<Claimed> {
    tx::run(rows, context, None, |tx| claim::claim(tx, claim, ready))
}

/// Decides what comes before a claim takes anything: who asks is noted, and a bounded part of what is due is handled. For
/// stores that start ready tasks by themselves.
pub fn prepare_claim(claim: &Claim, rows: &Rows, context: &Context<'_>) -> Step<Ready> {
    tx::run(rows, context, None, |tx| claim::prepare(tx, claim))
}

/// Decides a group read.
pub fn group_read(read: &GroupRead, rows: &Rows, context: &Context<'_>) -> Step<Deliveries> {
    tx::run(rows, context, None, |tx| groups::read(tx, read))
}

/// Decides a sweep.
pub fn sweep(sweep: &Sweep, rows: &Rows, context: &Context<'_>) -> Step<Swept> {
    tx::run(rows, context, None, |tx| sweep::sweep(tx, sweep))
}

/// Finds out why a task is not moving; changes nothing.
pub fn why(id: TaskId, rows: &Rows, context: &Context<'_>) -> Step<Why> {
    tx::run(rows, context, None, |tx| why::why(tx, id))
}

fn apply_all(tx: &mut Tx<'_>, batch: &Prepared) -> Planned<Replies> {
    if let Some(Some(replies)) = tx.attempt(|tx| keys::recall(tx, batch))? {
        return Ok(replies);
    }
    for (index, fence) in batch.batch().fences.iter().enumerate() {
        tx.attempt(|tx| at(At::Fence(index), fences::judge(tx, fence)))?;
    }
    let commands = &batch.batch().commands;
    let mut created = create::Family::default();
    for (index, command) in commands.iter().enumerate() {
        tx.attempt(|tx| at(At::Command(index), judge(tx, batch, command, &mut created)))?;
    }
    tx.all_loaded()?;
    let mut replies: Vec<Option<Reply>> = vec![None; commands.len()];
    // The user's appends come before the lifecycle events of the same stream.
    for early in [true, false] {
        for (command, reply) in commands.iter().zip(&mut replies) {
            if is_task_append(command) == early {
                *reply = tx.attempt(|tx| effect(tx, batch, command))?;
            }
        }
    }
    derived::settle(tx)?;
    let replies = Replies { replies: replies.into_iter().flatten().collect(), replayed: false };
    keys::remember(tx, batch, &replies);
    Ok(replies)
}

fn at<T>(place: At, planned: Planned<T>) -> Planned<T> {
    planned.map_err(|halt| match halt {
        Halt::Refused(error) => Halt::Refused(error.at(place)),
        Halt::Missing => Halt::Missing,
    })
}

fn is_task_append(command: &Command) -> bool {
    matches!(command, Command::StreamAppend(append) if append.stream.task().is_some())
}

/// Judges a command's guard on the state before the batch.
fn judge(tx: &mut Tx<'_>, batch: &Prepared, command: &Command, created: &mut create::Family) -> Planned<()> {
    match command {
        Command::TaskCreate(c) => create::judge(tx, batch, c, created),
        Command::TaskStart(c) => tasks::judge_start(tx, c, created),
        Command::TaskRenew(c) => tasks::leased(tx, c.id, c.token),
        Command::TaskComplete(c) => tasks::judge_complete(tx, c),
        Command::TaskFail(c) => tasks::judge_settle(tx, c.id, c.token),
        Command::TaskRelease(c) => tasks::judge_settle(tx, c.id, c.token),
        Command::TaskSuspend(c) => tasks::judge_suspend(tx, c),
        Command::TaskSignal(c) => tasks::judge_signal(tx, c),
        Command::TaskCancel(c) => tasks::judge_cancel(tx, c),
        Command::TaskEvict(c) => tasks::judge_evict(tx, c),
        Command::TaskRetry(c) => tasks::judge_retry(tx, c),
        Command::TaskPromote(c) => tasks::judge_promote(tx, c),
        Command::TaskPark(c) => tasks::judge_park(tx, c),
        Command::TaskAmend(c) => tasks::judge_amend(tx, c),
        Command::TaskPurge(c) => tasks::judge_purge(tx, c),
        Command::QueueSet(c) => queues::judge_set(tx, c),
        Command::StreamAppend(c) => streams::judge_append(tx, c),
        Command::StreamTrim(c) => streams::judge_trim(tx, &c.stream, Some(c.to)),
        Command::StreamPurge(c) => streams::judge_trim(tx, &c.stream, None),
        Command::GroupAck(c) => groups::judge_ack(tx, c.deliveries()),
        Command::GroupNack(c) => groups::judge_ack(tx, c.deliveries()),
        Command::GroupSeek(c) => groups::judge_seek(tx, c),
        Command::DocumentPut(c) => documents::judge_put(tx, c),
        Command::DocumentDelete(c) => documents::judge_delete(tx, c),
        Command::EntrySet(c) => entries::judge_set(tx, c),
        Command::EntryTake(c) => entries::judge_key(tx, &c.key),
        Command::EntryDelete(c) => entries::judge_key(tx, &c.key),
        Command::LockAcquire(c) => locks::judge_acquire(tx, c),
        Command::LockRenew(c) => locks::judge_renew(tx, c),
        Command::LockRelease(c) => locks::judge_release(tx, c),
        Command::LockForceRelease(c) => locks::judge_force_release(tx, c),
    }
}

/// Does what a command does, on the state that the commands before it left.
fn effect(tx: &mut Tx<'_>, batch: &Prepared, command: &Command) -> Planned<Reply> {
    Ok(match command {
        Command::TaskCreate(c) => Reply::Created(create::create(tx, batch, c)?),
        Command::TaskStart(c) => Reply::Task(tasks::start(tx, c)?),
        Command::TaskRenew(c) => Reply::Renewed(tasks::renew(tx, c)?),
        Command::TaskComplete(c) => Reply::Task(tasks::complete(tx, c)?),
        Command::TaskFail(c) => Reply::Task(tasks::fail(tx, c)?),
        Command::TaskRelease(c) => Reply::Task(tasks::release(tx, c)?),
        Command::TaskSuspend(c) => Reply::Task(tasks::suspend(tx, c)?),
        Command::TaskSignal(c) => Reply::Task(tasks::signal(tx, c)?),
        Command::TaskCancel(c) => Reply::Task(tasks::cancel(tx, c)?),
        Command::TaskEvict(c) => Reply::Task(tasks::evict(tx, c)?),
        Command::TaskRetry(c) => Reply::Task(tasks::retry(tx, c)?),
        Command::TaskPromote(c) => Reply::Task(tasks::promote(tx, c)?),
        Command::TaskPark(c) => Reply::Task(tasks::park(tx, c)?),
        Command::TaskAmend(c) => Reply::Task(tasks::amend(tx, c)?),
        Command::TaskPurge(c) => Reply::Done(tasks::purge(tx, c)?),
        Command::QueueSet(c) => Reply::QueueState(queues::set(tx, c)?),
        Command::StreamAppend(c) => Reply::Appended(streams::append(tx, c)?),
        Command::StreamTrim(c) => Reply::Trimmed(streams::trim(tx, &c.stream, c.to)?),
        Command::StreamPurge(c) => Reply::Trimmed(streams::purge(tx, c)?),
        Command::GroupAck(c) => Reply::Done(groups::ack(tx, c)),
        Command::GroupNack(c) => Reply::Done(groups::nack(tx, c)?),
        Command::GroupSeek(c) => Reply::Done(groups::seek(tx, c)?),
        Command::DocumentPut(c) => Reply::DocumentRevision(documents::put(tx, c)?),
        Command::DocumentDelete(c) => Reply::Existed(documents::delete(tx, c)?),
        Command::EntrySet(c) => Reply::EntryExpiry(entries::set(tx, c)),
        Command::EntryTake(c) => Reply::TakenEntry(entries::take(tx, &c.key)?),
        Command::EntryDelete(c) => Reply::Existed(entries::delete(tx, &c.key)?),
        Command::LockAcquire(c) => Reply::LockAcquired(locks::acquire(tx, c)?),
        Command::LockRenew(c) => Reply::LockRenewed(locks::renew(tx, c)?),
        Command::LockRelease(c) => Reply::Done(locks::release(tx, c)?),
        Command::LockForceRelease(c) => Reply::LockFreed(locks::force_release(tx, c)?),
    })
}
