//! Standard error, written by a thread of its own: whoever reads the log slowly, or not at all, keeps no request waiting.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// How many bytes wait to be written at most. Lines beyond that are left out, and counted.
const MOST: usize = 1 << 20;

/// How long the end waits for what is not written yet.
const PATIENCE: Duration = Duration::from_secs(1);

/// The log. What was said is written when it is dropped, if somebody takes it.
pub(super) struct Log(Lines);

/// Takes lines for the log.
#[derive(Clone)]
pub(super) struct Lines(Arc<Shared>);

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// What is not written yet.
#[derive(Default)]
struct Waiting {
    text: Vec<u8>,
    /// How many lines had no room.
    left_out: u64,
    /// Nothing more will come.
    over: bool,
    /// Everything was written after that.
    ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what comes until nothing more will.
    fn run(&self, mut out: impl Write, json: bool) {
        let mut text = Vec::new();
        let mut waiting = self.lock();
        while !waiting.over || !waiting.text.is_empty() {
            if waiting.text.is_empty() {
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            std::mem::swap(&mut waiting.text, &mut text);
            let left_out = std::mem::take(&mut waiting.left_out);
            drop(waiting);
            if left_out > 0 {
                let said = format!("{left_out} lines are missing here: the log was not taken fast enough");
                let line = if json { format!(r#"{{"level":"WARN","message":"{said}"}}"#) } else { said };
                let _ = writeln!(text, "{line}");
            }
            // If it cannot be written, there is nobody to tell.
            let _ = out.write_all(&text).and_then(|()| out.flush());
            text.clear();
            waiting = self.lock();
        }
        waiting.ended = true;
        self.changed.notify_all();
    }
}

impl Log {
    /// A log that is written there, of lines that are text or JSON.
    pub(super) fn to(out: impl Write + Send + 'static, json: bool) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let thread = Arc::clone(&shared);
        std::thread::Builder::new().name("statehold-stderr".into()).spawn(move || thread.run(out, json))?;
        Ok(Self(Lines(shared)))
    }

    /// What takes its lines.
    pub(super) fn lines(&self) -> Lines {
        self.0.clone()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let shared = &self.0.0;
        let mut waiting = shared.lock();
        waiting.over = true;
        shared.changed.notify_all();
        let ended = shared.changed.wait_timeout_while(waiting, PATIENCE, |waiting| !waiting.ended);
        drop(ended);
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> &'a Self {
        self
    }
}

impl Write for &Lines {
    /// Takes a line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = self.0.lock();
        // Once a line is left out, so are all until the rest is taken: they are missing in one place, which is told.
        if waiting.left_out > 0 || waiting.text.len() + line.len() > MOST {
            waiting.left_out += 1;
            return Ok(line.len());
        }
        let first = waiting.text.is_empty();
        waiting.text.extend_from_slice(line);
        if first {
            self.0.changed.notify_all();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// Passes on what is written, once it is taken.
    struct Pipe(SyncSender<Vec<u8>>);

    impl Write for Pipe {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.send(text.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn piped() -> (Log, Receiver<Vec<u8>>) {
        let (pipe, taken) = sync_channel(0);
        (Log::to(Pipe(pipe), false).expect("a thread"), taken)
    }

    #[test]
    fn who_does_not_read_keeps_nobody_waiting() {
        let (log, taken) = piped();
        let line = |number: usize| format!("{number:0>99}\n");
        let count = 3 * MOST / 100;
        for number in 0..count {
            log.lines().make_writer().write_all(line(number).as_bytes()).expect("taken");
        }
        let reader = std::thread::spawn(move || taken.iter().flatten().collect::<Vec<u8>>());
        drop(log);
        let text = String::from_utf8(reader.join().expect("read")).expect("text");
        let (mut next, mut lines, mut missing) = (0, 0, 0);
        for is in text.lines() {
            if is.contains("missing") {
                let left_out: usize = is.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
                missing += left_out;
                next += left_out;
            } else {
                assert_eq!(format!("{is}\n"), line(next), "whole, in order, and missing where it is said");
                lines += 1;
                next += 1;
            }
        }
        assert_eq!(next, count);
        assert!(missing > 0 && lines >= MOST / 100, "{lines} lines, {missing} missing");
    }

    #[test]
    fn all_is_written_in_the_end() {
        let (log, taken) = piped();
        let reader = std::thread::spawn(move || taken.iter().flatten().collect::<Vec<u8>>());
        for number in 0..1000 {
            writeln!(log.lines().make_writer(), "{number}").expect("taken");
        }
        drop(log);
        let text = String::from_utf8(reader.join().expect("read")).expect("text");
        assert_eq!(text.lines().count(), 1000);
    }

    #[test]
    fn nobody_is_waited_for_for_ever() {
        let (log, _taken) = piped();
        writeln!(log.lines().make_writer(), "nobody reads this").expect("taken");
        drop(log);
    }
}
