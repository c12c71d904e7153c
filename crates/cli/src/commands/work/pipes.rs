//! What goes into a program and what comes out of it: input, output, errors and events, each bounded.

use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use statehold::worker::Stopping;
use statehold::{Json, Lease, NewEvent, Result, TaskId};
use statehold_core::limits;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::lines::{Line, Lines};

/// How much of what a program says on stderr goes into the error of its task.
const TAIL: usize = 4 << 10;

/// The longest line of stderr that is passed on.
const STDERR_LINE: usize = 4 << 10;

/// The longest text of an event `log`.
const LOG: usize = 4 << 10;

/// Gives a program its input. It need not read it.
pub(super) async fn feed(mut stdin: impl AsyncWrite + Unpin, input: Option<&Json>) {
    if let Some(input) = input {
        let _ = stdin.write_all(input.as_str().as_bytes()).await;
    }
}

/// A program has printed more than an output can have.
#[derive(Debug)]
pub(super) struct TooLarge;

/// What a program has printed so far.
#[derive(Debug, Default)]
pub(super) struct Output(Mutex<Printed>);

#[derive(Debug, Default)]
struct Printed {
    bytes: Vec<u8>,
    too_large: bool,
}

impl Output {
    /// Reads all of it and keeps what may be kept. `too_large` is called when that is too little; the rest is read and
    /// dropped, so that the program is not stuck while it is being stopped.
    pub(super) async fn read(
        &self,
        mut stdout: impl AsyncRead + Unpin,
        over: &Stopping,
        too_large: impl Fn(),
    ) {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = tokio::select! {
                biased;
                read = stdout.read(&mut buffer) => read,
                () = over.cancelled() => return,
            };
            let Ok(count @ 1..) = read else { return };
            let mut printed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if printed.bytes.len() + count <= limits::BODY {
                printed.bytes.extend_from_slice(&buffer[..count]);
            } else if !printed.too_large {
                printed.too_large = true;
                too_large();
            }
        }
    }

    /// What it means: JSON as it is, otherwise text; nothing if nothing was printed.
    pub(super) fn take(&self) -> Result<Option<Json>, TooLarge> {
        let printed = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if printed.too_large {
            return Err(TooLarge);
        }
        if printed.bytes.is_empty() {
            return Ok(None);
        }
        let json = output_json(&printed.bytes);
        if json.size() <= limits::BODY { Ok(Some(json)) } else { Err(TooLarge) }
    }
}

/// What was printed, as JSON. Of text, the last line's end does not count, as in a shell.
fn output_json(bytes: &[u8]) -> Json {
    let text = std::str::from_utf8(bytes).ok();
    let json = text.and_then(|text| Json::parse(text).ok());
    json.unwrap_or_else(|| {
        let text = text_of(bytes);
        text_json(text.strip_suffix('\n').unwrap_or(&text))
    })
}

/// Text that every store can hold.
fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}")
}

fn text_json(text: &str) -> Json {
    // Text without NUL is always JSON.
    Json::of(text).unwrap_or_else(|_| Json::null())
}

/// The last of what a program said on stderr.
#[derive(Debug, Default)]
pub(super) struct Tail(Mutex<VecDeque<u8>>);

impl Tail {
    /// Passes stderr on, each line with the task's id, and keeps its end.
    pub(super) async fn read(&self, stderr: impl AsyncRead + Unpin, over: &Stopping, task: TaskId) {
        let mut lines = Lines::new(stderr, STDERR_LINE, over);
        while let Ok(Some(mut line)) = lines.next().await {
            if line.cut {
                line.bytes.extend_from_slice("…".as_bytes());
            }
            line.bytes.push(b'\n');
            self.keep(&line.bytes);
            let mut out = format!("{task} | ").into_bytes();
            out.extend_from_slice(&line.bytes);
            // If nobody listens to us, the program still goes on.
            let _ = std::io::stderr().write_all(&out);
        }
    }

    fn keep(&self, bytes: &[u8]) {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend(bytes);
        let over = tail.len().saturating_sub(TAIL);
        tail.drain(..over);
    }

    /// The end of it, as text.
    pub(super) fn text(&self) -> String {
        let tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        text_of(&tail.iter().copied().collect::<Vec<_>>())
    }
}

/// Appends what a program writes on its third pipe to the stream of its task, in order. The pipe is read only as fast
/// as the store takes it: what comes meanwhile makes the next batch.
pub(super) async fn events(pipe: impl AsyncRead + Unpin, over: &Stopping, lease: &Lease) -> Result<()> {
    let mut lines = Lines::new(pipe, limits::EVENT, over);
    while let Ok(Some(line)) = lines.next().await {
        let mut events = vec![event(&line)];
        while events.len() < limits::LIST && lines.has_more() {
            let Ok(Some(line)) = lines.next().await else { break };
            events.push(event(&line));
        }
        lease.append(events).await?;
    }
    Ok(())
}

/// The event that a line means: the one that it is, or `log` with its text.
fn event(line: &Line) -> NewEvent {
    let event = serde_json::from_slice::<NewEvent>(&line.bytes).ok();
    let event = event.filter(|event| !line.cut && limits::name(&event.kind).is_ok());
    event.unwrap_or_else(|| {
        let mut text = text_of(&line.bytes[..line.bytes.len().min(LOG)]);
        if line.cut || line.bytes.len() > LOG {
            text.push('…');
        }
        NewEvent::new("log").data(text_json(&text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event_of(text: &str) -> (String, Option<String>) {
        let event = event(&Line { bytes: text.into(), cut: false });
        (event.kind, event.data.map(|data| data.as_str().to_owned()))
    }

    #[test]
    fn a_line_is_the_event_that_it_says_or_a_log() {
        let log = |text: &str| ("log".to_owned(), Some(text.to_owned()));
        assert_eq!(event_of(r#"{"type": "step", "data": [1]}"#), ("step".into(), Some("[1]".into())));
        assert_eq!(event_of(r#"{"type": "step"}"#), ("step".into(), None));
        assert_eq!(event_of("hello"), log(r#""hello""#));
        assert_eq!(event_of(r#"{"type": ""}"#), log(r#""{\"type\": \"\"}""#));
        assert_eq!(event_of(r#"{"type": "a", "more": 1}"#), log(r#""{\"type\": \"a\", \"more\": 1}""#));
        assert_eq!(event_of("\0"), log("\"\u{fffd}\""));
        let (kind, data) = event_of(&"x".repeat(LOG + 1));
        assert_eq!((kind.as_str(), data.map(|data| data.len())), ("log", Some(LOG + 2 + "…".len())));
    }

    #[test]
    fn output_is_json_or_text() {
        let json = |bytes: &[u8]| output_json(bytes).as_str().to_owned();
        assert_eq!(json(b"{\"a\": 1}\n"), r#"{"a":1}"#);
        assert_eq!(json(b"two\nlines\n"), r#""two\nlines""#);
        assert_eq!(json(b"a\xffb\0"), "\"a\u{fffd}b\u{fffd}\"");
        assert_eq!(json(br#""\u0000""#), r#""\"\\u0000\"""#);
    }
}
