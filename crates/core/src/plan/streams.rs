//! Streams: gapless numbers from the head, appends, trims, and the audit of acts that remove things.

use serde::Serialize;
use serde_json::json;

use super::lookup::{Cut, CutAt, CutPoint};
use super::tx::{Planned, Tx, data};
use crate::command::{Appended, StreamAppend, StreamPurge, TrimTo, Trimmed};
use crate::error::Error;
use crate::model::{AUDIT_CATEGORY, StreamName, TASK_CATEGORY};
use crate::row::{Head, StreamRow, TaskRow};

/// The head of a stream: on the task's row for a task's stream, on its own row for any other.
fn head(tx: &mut Tx<'_>, stream: &StreamName) -> Planned<Option<Head>> {
    if stream.category() != TASK_CATEGORY {
        return Ok(tx.get::<StreamRow>(stream)?.map(|row| row.head));
    }
    let Some(task) = stream.task() else { return Ok(None) };
    Ok(tx.get::<TaskRow>(&task)?.map(|row| row.head))
}

fn put_head(tx: &mut Tx<'_>, stream: &StreamName, head: Head) -> Planned<()> {
    match stream.task() {
        None => tx.put(StreamRow { stream: stream.clone(), head }),
        Some(task) => {
            if let Some(row) = tx.get::<TaskRow>(&task)? {
                tx.put(TaskRow { head, ..TaskRow::clone(&row) });
            }
        }
    }
    Ok(())
}

impl Head {
    /// The number of the next event.
    pub(super) fn next(&mut self, now: crate::Timestamp) -> u64 {
        if self.last == self.oldest {
            self.oldest_at = Some(now);
        }
        self.last += 1;
        self.last
    }
}

pub(super) fn judge_append(tx: &mut Tx<'_>, append: &StreamAppend) -> Planned<()> {
    let head = head(tx, &append.stream)?;
    if head.is_none() && append.stream.category() == TASK_CATEGORY {
        return Err(Error::not_found("task", append.stream.id())
            .hint("streams of category `task` belong to tasks; use another category")
            .into());
    }
    let last = head.unwrap_or_default().last;
    match append.expect_seq {
        Some(expected) if expected != last => {
            let message = format!("stream `{}` is at {last}, not at {expected}", append.stream);
            Err(Error::conflict(&append.stream, message).hint("read what is new and append again").into())
        }
        _ => Ok(()),
    }
}

pub(super) fn append(tx: &mut Tx<'_>, append: &StreamAppend) -> Planned<Appended> {
    let mut head = head(tx, &append.stream)?.unwrap_or_default();
    let first_seq = head.last + 1;
    for event in &append.events {
        let seq = head.next(tx.now);
        tx.append(append.stream.clone(), seq, &event.kind, event.data.clone());
    }
    put_head(tx, &append.stream, head)?;
    Ok(Appended { first_seq, last_seq: head.last })
}

/// Appends one event of this crate's own.
pub(super) fn write<T: Serialize>(
    tx: &mut Tx<'_>,
    stream: &StreamName,
    kind: &str,
    value: &T,
) -> Planned<()> {
    let mut head = head(tx, stream)?.unwrap_or_default();
    let seq = head.next(tx.now);
    tx.append(stream.clone(), seq, kind, data(value));
    put_head(tx, stream, head)
}

fn audit_stream(tx: &Tx<'_>) -> StreamName {
    StreamName::trusted(AUDIT_CATEGORY, tx.replica)
}

/// Notes that an audit event will be written.
pub(super) fn want_audit(tx: &mut Tx<'_>) {
    let stream = audit_stream(tx);
    tx.want::<StreamRow>(&stream);
}

/// Writes down an act that removes something.
pub(super) fn audit<T: Serialize>(tx: &mut Tx<'_>, kind: &str, value: &T) -> Planned<()> {
    let stream = audit_stream(tx);
    write(tx, &stream, kind, value)
}

/// Where a stream is to be cut; everything goes if `to` is none.
fn cut(tx: &Tx<'_>, stream: &StreamName, head: Head, to: Option<TrimTo>) -> Cut {
    let at = match to {
        None => CutAt::Seq(head.last),
        Some(TrimTo::Length(keep)) => CutAt::Seq(head.last.saturating_sub(keep)),
        Some(TrimTo::After(seq)) => CutAt::Seq(seq.min(head.last)),
        Some(TrimTo::AgeSeconds(age)) => CutAt::Time(tx.now - age),
    };
    Cut { stream: stream.clone(), at }
}

pub(super) fn judge_trim(tx: &mut Tx<'_>, stream: &StreamName, to: Option<TrimTo>) -> Planned<()> {
    if to.is_none() {
        want_audit(tx);
    }
    match head(tx, stream)?.filter(|head| head.last > 0) {
        Some(head) if to.is_some() => {
            let cut = cut(tx, stream, head, to);
            tx.want_look(cut);
            Ok(())
        }
        Some(_) => Ok(()),
        None => Err(Error::not_found("stream", stream).into()),
    }
}

pub(super) fn trim(tx: &mut Tx<'_>, stream: &StreamName, to: TrimTo) -> Planned<Trimmed> {
    let mut head = head(tx, stream)?.unwrap_or_default();
    let cut = cut(tx, stream, head, Some(to));
    let CutPoint { up_to, oldest_at } = tx.look(&cut)?;
    if up_to > head.oldest {
        head.oldest = up_to;
        head.oldest_at = if up_to == head.last { None } else { oldest_at.or(Some(tx.now)) };
        tx.trim(stream.clone(), up_to);
        put_head(tx, stream, head)?;
    }
    Ok(Trimmed { oldest: head.oldest })
}

pub(super) fn purge(tx: &mut Tx<'_>, purge: &StreamPurge) -> Planned<Trimmed> {
    let mut head = head(tx, &purge.stream)?.unwrap_or_default();
    head.oldest = head.last;
    head.oldest_at = None;
    tx.trim(purge.stream.clone(), head.last);
    put_head(tx, &purge.stream, head)?;
    audit(tx, "stream.purged", &json!({ "stream": purge.stream }))?;
    Ok(Trimmed { oldest: head.last })
}
