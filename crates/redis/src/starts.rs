//! Tasks as they are stored. A ready one tells before its JSON what a start needs to know, so that a function on the server
//! starts it without reading JSON. A start is added at the end, after the version that was there: who started it, and when.
//! Whoever reads it works out the rest by the rule that plans go by.

use statehold_core::clock::Seconds;
use statehold_core::plan::Starter;
use statehold_core::row::{TaskRow, Turn};
use statehold_core::{Error, Timestamp};

use crate::compact::Compact;
use crate::error::Result;
use crate::rows::body;
use crate::space::Bytes;

/// Times before this are exact in a number of Lua, with any length of time added.
const EXACT: Timestamp = Timestamp::from_micros(1 << 52);

/// What a ready task begins with that takes no more than a plain start.
const READY: u8 = b'R';

/// What a start ends with; JSON ends with a brace.
const STARTED: u8 = b'S';

/// Whether a function on the server can count with a time.
pub(crate) fn is_exact(at: Timestamp) -> bool {
    (Timestamp::default()..EXACT).contains(&at)
}

/// Writes a task as it is stored, before its version.
pub(crate) fn write(row: &TaskRow, mut stored: &mut Bytes) -> Result<()> {
    stored.extend(ready_line(row).unwrap_or_default().bytes());
    serde_json::to_writer(&mut stored, &Compact::from(row))
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
    plain.then(|| format!("R{} {} {} {}\n", task.attempt, row.head.last, or_none(timeout), or_none(expiry)))
}

/// Reads what [`write`] wrote, or what a start made of it.
pub(crate) fn read(stored: &[u8]) -> Result<TaskRow> {
    let Some((&STARTED, stored)) = stored.split_last() else { return read_ready(stored) };
    let (before, at, starter) = split_start(stored).ok_or_else(|| Error::corrupt("a task cannot be read"))?;
    let mut row = read_ready(body(before))?;
    row.start(&starter, at);
    Ok(row)
}

/// Reads a task that was not started since it was written.
fn read_ready(stored: &[u8]) -> Result<TaskRow> {
    let line = if stored.first() == Some(&READY) { end_of_line(stored).map_or(0, |end| end + 1) } else { 0 };
    let body = &stored[line..];
    let row: Compact<'_> = serde_json::from_slice(body)
        .map_err(|e| Error::corrupt(format!("a task cannot be read: {e}")).caused_by(e))?;
    Ok(row.into())
}

/// What was stored before, and after it a line each: who started the task, by which key, and when and for how long. Names have
/// no line ends in them; the version before may.
fn split_start(stored: &[u8]) -> Option<(&[u8], Timestamp, Starter<'_>)> {
    let mut lines = stored.rsplitn(4, |byte| *byte == b'\n');
    let mut next = || std::str::from_utf8(lines.next()?).ok();
    let (times, key, owner) = (next()?, next()?, next()?);
    let before = lines.next()?;
    let (at, lease) = times.split_once(' ')?;
    let lease_seconds = match lease {
        "" => None,
        lease => Some(Seconds::from_micros(lease.parse().ok()?)),
    };
    let claim_key = Some(key).filter(|key| !key.is_empty());
    Some((before, Timestamp::from_micros(at.parse().ok()?), Starter { owner, lease_seconds, claim_key }))
}

fn end_of_line(stored: &[u8]) -> Option<usize> {
    stored.iter().position(|byte| *byte == b'\n')
}

#[cfg(test)]
mod tests {
    use statehold_core::command::TaskCreate;
    use statehold_core::plan::{self, Context, Rows, Step};
    use statehold_core::{Batch, Json};

    use super::*;

    /// A new task, with what can be said of one.
    fn made(create: TaskCreate) -> TaskRow {
        let (batch, _) = Batch::of("n", create);
        let context = Context { now: Timestamp::from_micros(1_700_000_000_000_000), replica: "here" };
        let batch = batch.prepare().expect("a good batch");
        match plan::apply(&batch, &Rows::default(), &context) {
            Step::Accept(_, effects) => TaskRow::clone(effects.tasks[0].after.as_ref().expect("it is there")),
            step => panic!("{step:?}"),
        }
    }

    fn stored(row: &TaskRow) -> Bytes {
        let mut stored = Bytes::new();
        write(row, &mut stored).expect("it is written");
        stored
    }

    #[test]
    fn a_task_is_read_as_it_was_written() {
        let body = Json::parse(r#"{"n":1.10,"l":"\n","e":[]}"#).expect("JSON");
        let plain = made(TaskCreate { input: Some(Json::null()), ..TaskCreate::new("k").queue("q \"é\"") });
        let mut full = made(TaskCreate {
            input: Some(body.clone()),
            metadata: Some(body),
            priority: Some(-3),
            max_attempts: Some(7),
            timeout_seconds: Some(Seconds::from_micros(1_500_000)),
            labels: [("a".into(), "b".into())].into(),
            ..TaskCreate::new("k")
        });
        assert_eq!(read(&stored(&plain)).expect("read"), plain);
        assert_eq!(read(&stored(&full)).expect("read"), full);
        let starter = Starter { owner: "w", lease_seconds: Some(Seconds::new(30)), claim_key: Some("c") };
        full.start(&starter, Timestamp::from_micros(1_700_000_000_000_007));
        assert_eq!(read(&stored(&full)).expect("read"), full);
    }

    #[test]
    fn a_start_at_the_end_is_what_a_plan_makes_of_it() {
        let mut row = made(TaskCreate::new("k"));
        let mut line = stored(&row);
        assert_eq!(line[0], READY);
        line.extend(b"a\nversions\n a\nb\n");
        line.extend(b"\nw\n\n1700000000000009 2500000S");
        let starter =
            Starter { owner: "w", lease_seconds: Some(Seconds::from_micros(2_500_000)), claim_key: None };
        row.start(&starter, Timestamp::from_micros(1_700_000_000_000_009));
        assert_eq!(read(&line).expect("read"), row);
    }
}
