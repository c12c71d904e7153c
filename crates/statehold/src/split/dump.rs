//! Dumps of two stores as one.

use std::collections::VecDeque;

use futures_core::stream::BoxStream;
use futures_util::{StreamExt as _, stream};
use statehold_core::Result;
use statehold_core::dump::Record;

use super::entries::newer;
use super::parts::Parts;

impl Parts {
    /// Whether a record is of a stream that is short-lived, or of a group that reads one.
    pub(super) fn has_record(&self, record: &Record) -> bool {
        match record {
            Record::Stream(row) => self.has_category(row.stream.category()),
            Record::Event(event) => self.has_category(event.stream.category()),
            Record::Category(mark) => self.has_category(&mark.category),
            Record::Group(row) => self.has_category(row.group.source.category()),
            Record::Delivery(row) => self.has_category(row.key.group.source.category()),
            _ => false,
        }
    }
}

/// The place of a record in a dump: that of its kind, and of entries by their keys.
fn place(record: &Record, others: &str) -> (u8, String) {
    let kind = match record {
        Record::Queue(_) => 0,
        Record::Poller(_) => 1,
        Record::Task(_) => 2,
        Record::Signals(_) => 3,
        Record::Exclusive(_) => 4,
        Record::Stream(_) => 5,
        Record::Event(_) => 6,
        Record::Category(_) => 7,
        Record::Group(_) => 8,
        Record::Delivery(_) => 9,
        Record::Document(_) => 10,
        Record::Floor(_) => 11,
        Record::Entry(_) => 12,
        Record::Lock(_) => 13,
        Record::Answer(_) => 14,
        Record::Chore(_) => 15,
    };
    let key = if let Record::Entry(entry) = record { entry.key.clone() } else { others.to_owned() };
    (kind, key)
}

/// The records of the durable store with those of the other one between them, each where it would be if all were on one.
pub(super) fn merge(
    durable: BoxStream<'static, Result<Record>>,
    mut ephemeral: Vec<Record>,
) -> BoxStream<'static, Result<Record>> {
    let last = "\u{10ffff}";
    ephemeral.sort_by_key(|record| place(record, last));
    let mut waiting: VecDeque<_> = ephemeral.into();
    let ends = stream::once(async { None });
    let merged = durable.map(Some).chain(ends).flat_map(move |record| {
        let mut next = Vec::new();
        match record {
            Some(Ok(record)) => {
                let own = place(&record, "");
                while waiting.front().is_some_and(|other| place(other, last) < own) {
                    next.extend(waiting.pop_front().map(Ok));
                }
                let same = waiting.front().is_some_and(|other| place(other, last) == own);
                let other = if same { waiting.pop_front() } else { None };
                next.extend(one_of(record, other).map(Ok));
            }
            Some(Err(error)) => next.push(Err(error)),
            None => next.extend(waiting.drain(..).map(Ok)),
        }
        stream::iter(next)
    });
    merged.boxed()
}

/// The newer of an entry and the one with the same key on the other store.
fn one_of(record: Record, other: Option<Record>) -> Option<Record> {
    match (record, other) {
        (Record::Entry(durable), Some(Record::Entry(ephemeral))) => {
            newer(Some(durable), Some(ephemeral)).map(Record::Entry)
        }
        (record, _) => Some(record),
    }
}
