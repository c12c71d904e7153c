//! Tasks as they are stored. A ready one tells before its JSON what a start needs to know, so that a function on the server
//! starts it without reading JSON. A started one tells who started it, and when; whoever reads it works out the rest by the
//! rule that plans go by.

use statehold_core::clock::Seconds;
use statehold_core::plan::Starter;
use statehold_core::row::{TaskRow, Turn};
use statehold_core::{Error, Timestamp};

use crate::error::Result;
use crate::space::Bytes;

/// Times before this are exact in a number of Lua, with any length of time added.
const EXACT: Timestamp = Timestamp::from_micros(1 << 52);

/// Whether a function on the server can count with a time.
pub(crate) fn is_exact(at: Timestamp) -> bool {
    (Timestamp::default()..EXACT).contains(&at)
}

/// Writes a task as it is stored, after its version.
pub(crate) fn write(row: &TaskRow, mut stored: &mut Bytes) -> Result<()> {
    stored.extend(ready_line(row).unwrap_or_default().bytes());
    serde_json::to_writer(&mut stored, row)
        .map_err(|e| Error::corrupt(format!("a task cannot be written: {e}")).into())
}

/// What a start needs to know of a ready task, unless there is more to it.
fn ready_line(row: &TaskRow) -> Option<String> {
    let task = &row.task;
    let plain =
        row.turn == Turn::Ready && task.exclusive_key.is_none() && task.expires_at.is_none_or(is_exact);
    let timeout = task.timeout_seconds.map(|length| length.as_micros().to_string());
    let expiry = task.expires_at.map(|at| at.as_micros().to_string());
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    plain.then(|| format!("{} {} {} {}\n", task.attempt, row.head.last, or_none(timeout), or_none(expiry)))
}

/// Reads what [`write`] wrote, or what a start made of it.
pub(crate) fn read(stored: &[u8]) -> Result<TaskRow> {
    let bad = || Error::corrupt("a task cannot be read");
    let (start, body) = match stored.first() {
        Some(b'{') => (None, stored),
        Some(b'>') => read_start(stored).map(|(start, body)| (Some(start), body)).ok_or_else(bad)?,
        _ => (None, split_line(stored).ok_or_else(bad)?.1),
    };
    let mut row: TaskRow = serde_json::from_slice(body)
        .map_err(|e| Error::corrupt(format!("a task cannot be read: {e}")).caused_by(e))?;
    if let Some((at, starter)) = start {
        row.start(&starter, at);
    }
    Ok(row)
}

/// Who started a task, when, and the body after that.
fn read_start(stored: &[u8]) -> Option<((Timestamp, Starter<'_>), &[u8])> {
    let (times, rest) = split_line(&stored[1..])?;
    let (owner, rest) = split_line(rest)?;
    let (key, body) = split_line(rest)?;
    let (at, lease) = times.split_once(' ')?;
    let lease_seconds = match lease {
        "" => None,
        lease => Some(Seconds::from_micros(lease.parse().ok()?)),
    };
    let claim_key = Some(key).filter(|key| !key.is_empty());
    let at = Timestamp::from_micros(at.parse().ok()?);
    Some(((at, Starter { owner, lease_seconds, claim_key }), body))
}

/// The first line, and what comes after it.
fn split_line(stored: &[u8]) -> Option<(&str, &[u8])> {
    let end = stored.iter().position(|byte| *byte == b'\n')?;
    Some((std::str::from_utf8(&stored[..end]).ok()?, &stored[end + 1..]))
}
