//! Lines of bounded length, read from a program that may write anything.

use std::io;

use statehold::worker::Stopping;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// How much is read at a time: as much as a pipe holds.
const BUFFER: usize = 64 << 10;

/// Reads lines; what is beyond the longest is dropped.
#[derive(Debug)]
pub(super) struct Lines<'o, R> {
    from: BufReader<R>,
    longest: usize,
    over: &'o Stopping,
}

/// One line, without its end.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) bytes: Vec<u8>,
    /// Whether there was more of it.
    pub(super) cut: bool,
}

impl<'o, R: AsyncRead + Unpin> Lines<'o, R> {
    /// From `over` on, only what is there is read, and nothing more is waited for.
    pub(super) fn new(from: R, longest: usize, over: &'o Stopping) -> Self {
        Self { from: BufReader::with_capacity(BUFFER, from), longest, over }
    }

    /// Whether a whole line is there without waiting.
    pub(super) fn has_more(&self) -> bool {
        self.from.buffer().contains(&b'\n')
    }

    /// The next line; none at the end.
    pub(super) async fn next(&mut self) -> io::Result<Option<Line>> {
        let mut line = Line::default();
        let mut begun = false;
        loop {
            let there = tokio::select! {
                biased;
                there = self.from.fill_buf() => there?,
                () = self.over.cancelled() => &[],
            };
            if there.is_empty() {
                return Ok(begun.then_some(line));
            }
            begun = true;
            let end = there.iter().position(|byte| *byte == b'\n');
            let part = &there[..end.unwrap_or(there.len())];
            let room = self.longest - line.bytes.len();
            line.bytes.extend_from_slice(&part[..part.len().min(room)]);
            line.cut |= part.len() > room;
            let used = end.map_or(there.len(), |end| end + 1);
            self.from.consume(used);
            if end.is_some() {
                return Ok(Some(line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_cut_at_the_longest_and_go_on_behind_it() {
        let over = Stopping::new();
        let mut lines = Lines::new(&b"one\n\nlonger than that\nlast"[..], 6, &over);
        let mut read = Vec::new();
        while let Some(line) = lines.next().await.expect("it can be read") {
            read.push((String::from_utf8(line.bytes).expect("text"), line.cut));
        }
        let expected = [("one", false), ("", false), ("longer", true), ("last", false)];
        assert_eq!(read, expected.map(|(text, cut)| (text.to_owned(), cut)));
    }

    #[tokio::test]
    async fn when_it_is_over_what_is_there_is_read_and_no_more_waited_for() {
        let (mut writer, reader) = tokio::io::duplex(100);
        tokio::io::AsyncWriteExt::write_all(&mut writer, b"one\ntwo").await.expect("it can be written");
        let over = Stopping::new();
        over.cancel();
        let mut lines = Lines::new(reader, 6, &over);
        for expected in [Some("one"), Some("two"), None] {
            let line = lines.next().await.expect("it can be read");
            assert_eq!(line.map(|line| line.bytes), expected.map(|text| text.as_bytes().to_vec()));
        }
    }
}
