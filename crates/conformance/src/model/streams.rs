//! Streams: appending, trimming, purging.

use serde_json::json;
use statehold_core::command::{Appended, StreamAppend, StreamTrim, TrimTo, Trimmed};
use statehold_core::error::ErrorKind;
use statehold_core::model::{Event, Position, StreamName, TASK_CATEGORY};
use statehold_core::{Error, Result, Timestamp};

use super::commit::Commit;
use super::state::State;

impl State {
    pub(super) fn event(&self, stream: &StreamName, seq: u64) -> Option<&Event> {
        self.streams.get(stream)?.events.iter().find(|event| event.seq == seq)
    }

    pub(super) fn event_mut(&mut self, stream: &StreamName, seq: u64) -> Option<&mut Event> {
        self.streams.get_mut(stream)?.events.iter_mut().find(|event| event.seq == seq)
    }

    /// All events of a category, in the order of their positions.
    pub(super) fn category(&self, category: &str) -> Vec<&Event> {
        let streams = self.streams.iter().filter(|(name, _)| name.category() == category);
        let mut events: Vec<_> = streams.flat_map(|(_, stream)| &stream.events).collect();
        events.sort_by_key(|event| &event.position);
        events
    }

    /// The highest position of a category that was trimmed.
    pub(super) fn mark(&self, category: &str) -> Option<&Position> {
        self.trims.get(category)?.iter().max()
    }

    /// How often something of a category was trimmed.
    pub(super) fn trims_of(&self, category: &str) -> usize {
        self.trims.get(category).map_or(0, Vec::len)
    }

    /// Refuses a place in a category after which events were trimmed since it had been trimmed `seen` times.
    pub(super) fn judge_place(&self, category: &str, after: &Position, seen: usize) -> Result<()> {
        let since = self.trims.get(category).into_iter().flatten().skip(seen);
        let lost = since.filter(|trimmed| *trimmed > after).count() > 0;
        match self.mark(category).filter(|_| lost) {
            Some(mark) => Err(compacted(mark)),
            None => Ok(()),
        }
    }

    pub(super) fn judge_append(&self, append: &StreamAppend) -> Result<()> {
        let last = self.streams.get(&append.stream).map_or(0, |stream| stream.last);
        let tasks = append.stream.category() == TASK_CATEGORY;
        if tasks && !append.stream.task().is_some_and(|id| self.tasks.contains_key(&id)) {
            return Err(Error::not_found("task", append.stream.id()));
        }
        match append.expect_seq {
            Some(expected) if expected != last => Err(Error::conflict(&append.stream, "the head has moved")),
            _ => Ok(()),
        }
    }

    pub(super) fn judge_stream(&self, stream: &StreamName) -> Result<()> {
        let known = self.streams.contains_key(stream);
        if known { Ok(()) } else { Err(Error::not_found("stream", stream)) }
    }

    /// The last event to go, if this many stay.
    pub(super) fn cut_by_length(&self, stream: &StreamName, length: u64) -> u64 {
        self.streams[stream].last.saturating_sub(length)
    }

    /// The last event to go, if all from the first one that is not before `since` on stay.
    pub(super) fn cut_by_age(&self, stream: &StreamName, since: Timestamp) -> u64 {
        let stream = &self.streams[stream];
        stream.events.iter().find(|event| event.at >= since).map_or(stream.last, |event| event.seq - 1)
    }
}

/// The error of a cursor that is behind what was trimmed.
pub(super) fn compacted(oldest: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Compacted { oldest: oldest.to_string() }, "events after the cursor were trimmed")
}

impl Commit {
    pub(super) fn append_all(&mut self, append: &StreamAppend) -> Appended {
        for event in &append.events {
            self.append(&append.stream, &event.kind, event.data.clone());
        }
        let last_seq = self.state.streams[&append.stream].last;
        Appended { first_seq: last_seq + 1 - append.events.len() as u64, last_seq }
    }

    pub(super) fn trim(&mut self, trim: &StreamTrim) -> Trimmed {
        let cut = match trim.to {
            TrimTo::Length(length) => self.state.cut_by_length(&trim.stream, length),
            TrimTo::AgeSeconds(age) => self.state.cut_by_age(&trim.stream, self.now - age),
            TrimTo::After(seq) => seq,
        };
        self.trim_to(&trim.stream, cut);
        Trimmed { oldest: self.state.streams[&trim.stream].oldest }
    }

    pub(super) fn purge_stream(&mut self, stream: &StreamName) -> Trimmed {
        self.trim_to(stream, u64::MAX);
        let oldest = self.state.streams[stream].oldest;
        self.audit("stream.purged", &json!({"stream": stream.as_str()}));
        Trimmed { oldest }
    }

    /// Removes all events up to `cut`. The head stays.
    pub(super) fn trim_to(&mut self, name: &StreamName, cut: u64) {
        let Some(stream) = self.state.streams.get_mut(name) else { return };
        let cut = cut.min(stream.last);
        if cut <= stream.oldest {
            return;
        }
        stream.oldest = cut;
        let (gone, kept) = std::mem::take(&mut stream.events).into_iter().partition(|event| event.seq <= cut);
        stream.events = kept;
        self.note_trim(name.category(), gone);
    }

    /// Remembers how far a category was trimmed. Of events that nobody saw, it is not known yet.
    fn note_trim(&mut self, category: &str, gone: Vec<Event>) {
        let unknown = gone.iter().any(|event| event.position.0.is_empty());
        let Some(mark) = gone.into_iter().map(|event| event.position).max() else { return };
        self.state.unknown_marks.extend(unknown.then(|| category.to_owned()));
        let mark = if unknown { Position::default() } else { mark };
        self.state.trims.entry(category.to_owned()).or_default().push(mark);
    }
}
