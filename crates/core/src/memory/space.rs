//! One namespace: its rows and events, loading what plans need and storing what they leave.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;

use super::index::Index;
use crate::clock::Timestamp;
use crate::dump::{CategoryMark, Record};
use crate::model::{Document, Entry, Event, Position, Source, StreamName};
use crate::plan::{
    Child, Cut, CutAt, CutPoint, DeliverySelect, DeliverySet, Effects, EventAt, Expired, ExpiredKeys, Found,
    Idempotency, Kept, Latest, Needs, Overgrown, Polled, Rows, TaskSelect, Trim, Unread, UnreadEvents,
};
use crate::query::POLLER_MEMORY;
use crate::row::{
    AnswerRow, Change, ChoreRow, Cursor, DeliveryKey, DeliveryRow, ExclusiveRow, FloorRow, GroupKey,
    GroupRow, Head, LockRow, PollerKey, PollerRow, QueueRow, SignalsRow, StreamRow, TaskRow, Trims,
};

/// Rows of one kind.
pub(super) type Table<R> = BTreeMap<<R as crate::row::Record>::Key, Arc<R>>;

/// A namespace.
#[derive(Debug, Default)]
pub(super) struct Space {
    pub(super) answers: Table<AnswerRow>,
    pub(super) queues: Table<QueueRow>,
    pub(super) pollers: Table<PollerRow>,
    pub(super) tasks: Table<TaskRow>,
    pub(super) signals: Table<SignalsRow>,
    pub(super) exclusives: Table<ExclusiveRow>,
    pub(super) chores: Table<ChoreRow>,
    pub(super) locks: Table<LockRow>,
    pub(super) documents: Table<Document>,
    pub(super) floors: Table<FloorRow>,
    pub(super) entries: Table<Entry>,
    pub(super) groups: Table<GroupRow>,
    pub(super) deliveries: Table<DeliveryRow>,
    pub(super) streams: Table<StreamRow>,
    /// Events by stream and number.
    pub(super) events: BTreeMap<(StreamName, u64), Arc<Event>>,
    /// Events by category and position.
    pub(super) log: BTreeMap<(String, Position), Arc<Event>>,
    /// What was removed from a category.
    pub(super) trims: BTreeMap<String, Trims>,
    last_position: u64,
    index: Index,
    held: Held,
}

/// Effects that are decided and not stored yet, and the rows they were decided on.
#[derive(Debug, Default)]
struct Held {
    rows: Rows,
    at: Timestamp,
    effects: Vec<Effects>,
}

fn load_table<R: Kept>(table: &Table<R>, keys: impl IntoIterator<Item = R::Key>, rows: &mut Rows) {
    for key in keys {
        let row = table.get(&key).cloned();
        rows.load(key, row);
    }
}

fn store_table<R: Kept>(table: &mut Table<R>, changes: &[Change<R>]) {
    for change in changes {
        match &change.after {
            Some(row) => table.insert(change.key.clone(), Arc::clone(row)),
            None => table.remove(&change.key),
        };
    }
}

impl Space {
    pub(super) fn is_empty(&self) -> bool {
        self.held.effects.is_empty()
            && self.last_position == 0
            && self.queues.is_empty()
            && self.pollers.is_empty()
            && self.groups.is_empty()
            && self.documents.is_empty()
            && self.floors.is_empty()
            && self.entries.is_empty()
            && self.locks.is_empty()
            && self.answers.is_empty()
    }

    /// The rows to plan on: an overlay of what is held, if it is of the same instant.
    pub(super) fn overlay(&mut self, now: Timestamp) -> Rows {
        if self.held.at != now {
            self.flush();
            self.held.at = now;
        }
        std::mem::take(&mut self.held.rows)
    }

    /// Holds the effects of an accepted plan.
    pub(super) fn hold(&mut self, effects: Effects) {
        if !effects.is_empty() {
            self.held.effects.push(effects);
        }
    }

    /// Keeps the overlay while fewer than `group` requests share it, else stores all.
    pub(super) fn settle(&mut self, rows: Rows, group: usize) {
        self.held.rows = rows;
        if self.held.effects.len() >= group.max(1) || group < 2 {
            self.flush();
        }
    }

    /// Stores everything that is held.
    pub(super) fn flush(&mut self) {
        self.held.rows = Rows::default();
        for effects in std::mem::take(&mut self.held.effects) {
            self.store(&effects);
        }
    }

    /// Loads what a plan needs.
    pub(super) fn load(&self, needs: Needs, rows: &mut Rows, now: Timestamp) {
        load_table(&self.answers, needs.answers, rows);
        load_table(&self.queues, needs.queues, rows);
        load_table(&self.pollers, needs.pollers, rows);
        load_table(&self.tasks, needs.tasks, rows);
        load_table(&self.signals, needs.signals, rows);
        load_table(&self.exclusives, needs.exclusives, rows);
        load_table(&self.chores, needs.chores, rows);
        load_table(&self.locks, needs.locks, rows);
        load_table(&self.documents, needs.documents, rows);
        load_table(&self.floors, needs.floors, rows);
        load_table(&self.entries, needs.entries, rows);
        load_table(&self.groups, needs.groups, rows);
        load_table(&self.deliveries, needs.deliveries, rows);
        load_table(&self.streams, needs.streams, rows);
        for key in needs.idempotency_keys {
            let id = self.index.by_idempotency_key(&key.0);
            rows.answer::<Idempotency>(key, id);
        }
        for key in needs.child_keys {
            let id = self.index.by_child_key(key.parent, &key.key);
            rows.answer::<Child>(key, id);
        }
        needs.task_sets.into_iter().for_each(|select| self.answer_tasks(select, rows, now));
        needs.delivery_sets.into_iter().for_each(|select| self.answer_deliveries(select, rows, now));
        for cut in needs.cuts {
            let point = self.cut(&cut);
            rows.answer(cut, point);
        }
        for unread in needs.unread {
            let events = self.unread(&unread);
            rows.answer(unread, events);
        }
        for at in needs.events_at {
            let event = self.events.get(&(at.stream.clone(), at.seq)).cloned();
            rows.answer::<EventAt>(at, event);
        }
        for latest in needs.latest {
            let position = self.latest(&latest.0);
            rows.answer::<Latest>(latest, position);
        }
        for polled in needs.polled {
            let at = self.pollers_of(&polled.0).map(|row| row.at).max();
            rows.answer::<Polled>(polled, at);
        }
        for overgrown in needs.overgrown {
            let streams = self.overgrown(&overgrown, now);
            rows.answer(overgrown, streams);
        }
        for expired in needs.expired {
            let keys = self.expired(expired, rows, now);
            rows.answer(expired, keys);
        }
    }

    fn answer_tasks(&self, select: TaskSelect, rows: &mut Rows, now: Timestamp) {
        let mut found = BTreeMap::new();
        for range in self.index.ranges(&select.set, now) {
            let tasks = range.filter_map(|id| self.tasks.get(&id));
            let tasks = tasks.filter(|row| select.set.contains(row, now)).take(select.limit + 1);
            found.extend(tasks.map(|row| (select.set.place(row), row)));
        }
        let keys = found.into_values().map(|row| row.task.id).collect();
        let found = Found::first(keys, select.limit);
        load_table(&self.tasks, found.keys.iter().copied(), rows);
        rows.answer(select, found);
    }

    fn answer_deliveries(&self, select: DeliverySelect, rows: &mut Rows, now: Timestamp) {
        let of_group = self.deliveries_of(select.set.group()).filter(|row| select.set.contains(row, now));
        let sorted: BTreeMap<_, _> = of_group.map(|row| (DeliverySet::place(row), row.key.clone())).collect();
        let found = Found::first(sorted.into_values().take(select.limit + 1).collect(), select.limit);
        load_table(&self.deliveries, found.keys.iter().cloned(), rows);
        rows.answer(select, found);
    }

    /// The deliveries of a group, by position.
    pub(super) fn deliveries_of(&self, group: &GroupKey) -> impl Iterator<Item = &Arc<DeliveryRow>> {
        let first = DeliveryKey { group: group.clone(), position: Position::default() };
        let rows = self.deliveries.range(first..).map(|(_, row)| row);
        rows.take_while(move |row| row.key.group == *group)
    }

    /// Who asked a queue for work, by name.
    pub(super) fn pollers_of(&self, queue: &str) -> impl Iterator<Item = &Arc<PollerRow>> {
        let first = PollerKey { queue: queue.to_owned(), owner: String::new() };
        self.pollers.range(first..).map(|(_, row)| row).take_while(move |row| row.key.queue == queue)
    }

    fn cut(&self, cut: &Cut) -> CutPoint {
        let head = self.head(&cut.stream);
        match cut.at {
            CutAt::Seq(up_to) => {
                let next = self.stream_after(&cut.stream, up_to).next();
                CutPoint { up_to, oldest_at: next.map(|event| event.at) }
            }
            CutAt::Time(time) => match self.stream_after(&cut.stream, 0).find(|event| event.at >= time) {
                Some(event) => CutPoint { up_to: event.seq - 1, oldest_at: Some(event.at) },
                None => CutPoint { up_to: head.last, oldest_at: None },
            },
        }
    }

    /// The head of any stream.
    pub(super) fn head(&self, stream: &StreamName) -> Head {
        match stream.task() {
            Some(task) => self.tasks.get(&task).map(|row| row.head),
            None => self.streams.get(stream).map(|row| row.head),
        }
        .unwrap_or_default()
    }

    /// The events of a stream after a number.
    pub(super) fn stream_after(
        &self,
        stream: &StreamName,
        seq: u64,
    ) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        let range = (Excluded((stream.clone(), seq)), Included((stream.clone(), u64::MAX)));
        self.events.range(range).map(|(_, event)| event)
    }

    /// The events of a category after a position.
    pub(super) fn category_after(
        &self,
        category: &str,
        position: &Position,
    ) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        let first = (category.to_owned(), position.clone());
        // Nothing sorts between a category and the same name with the lowest character after it.
        let last = (format!("{category}\0"), Position::default());
        self.log.range((Excluded(first), Excluded(last))).map(|(_, event)| event)
    }

    fn unread(&self, unread: &Unread) -> UnreadEvents {
        let limit = unread.limit;
        match (&unread.source, &unread.after) {
            (Source::Stream(stream), after) => {
                let oldest = self.head(stream).oldest;
                let seq = if let Some(Cursor::Seq(seq)) = after { *seq } else { oldest };
                let events = self.stream_after(stream, seq).take(limit).cloned().collect();
                UnreadEvents { events, oldest, trims: Trims::default() }
            }
            (Source::Category(category), after) => {
                let position = if let Some(Cursor::Position(position)) = after {
                    position.clone()
                } else {
                    Position::default()
                };
                let events = self.category_after(category, &position).take(limit).cloned().collect();
                UnreadEvents { events, oldest: 0, trims: self.trims_of(category) }
            }
        }
    }

    /// What was removed from a category.
    pub(super) fn trims_of(&self, category: &str) -> Trims {
        self.trims.get(category).cloned().unwrap_or_default()
    }

    /// The position after everything in a category.
    pub(super) fn latest(&self, category: &str) -> Position {
        let last = self.category_after(category, &Position::default()).next_back();
        let last = last.map(|event| event.position.clone()).unwrap_or_default();
        last.max(self.trims_of(category).oldest())
    }

    fn overgrown(&self, overgrown: &Overgrown, now: Timestamp) -> Vec<StreamName> {
        let keep = &overgrown.keep;
        let too_much = |row: &&Arc<StreamRow>| {
            let too_long = keep.max_length.is_some_and(|most| row.head.last - row.head.oldest > most);
            let too_old =
                keep.max_age_seconds.zip(row.head.oldest_at).is_some_and(|(age, at)| at < now - age);
            row.stream.category() == overgrown.category && (too_long || too_old)
        };
        let streams = self.streams.values().filter(too_much).map(|row| row.stream.clone());
        streams.take(overgrown.limit).collect()
    }

    fn expired(&self, expired: Expired, rows: &mut Rows, now: Timestamp) -> ExpiredKeys {
        fn first<R: Kept>(
            table: &Table<R>,
            limit: usize,
            rows: &mut Rows,
            gone: impl Fn(&R) -> bool,
        ) -> Vec<R::Key> {
            let keys = table.values().filter(|row| gone(row)).map(|row| row.key());
            let keys: Vec<_> = keys.take(limit).collect();
            load_table(table, keys.iter().cloned(), rows);
            keys
        }
        let limit = expired.limit;
        ExpiredKeys {
            documents: first(&self.documents, limit, rows, |row| row.expires_at.is_some_and(|at| at <= now)),
            entries: first(&self.entries, limit, rows, |row| row.expires_at <= now),
            locks: first(&self.locks, limit, rows, |row| row.forget_at <= now),
            answers: first(&self.answers, limit, rows, |row| row.expires_at <= now),
            pollers: first(&self.pollers, limit, rows, |row| row.at + POLLER_MEMORY <= now),
            chores: first(&self.chores, limit, rows, |_| true),
        }
    }

    /// Stores what a plan leaves.
    fn store(&mut self, effects: &Effects) {
        for change in &effects.tasks {
            self.index.change(change.before.as_deref(), change.after.as_deref());
        }
        for group in &effects.cleared {
            self.deliveries.retain(|key, _| key.group != *group);
        }
        store_table(&mut self.answers, &effects.answers);
        store_table(&mut self.queues, &effects.queues);
        store_table(&mut self.pollers, &effects.pollers);
        store_table(&mut self.tasks, &effects.tasks);
        store_table(&mut self.signals, &effects.signals);
        store_table(&mut self.exclusives, &effects.exclusives);
        store_table(&mut self.chores, &effects.chores);
        store_table(&mut self.locks, &effects.locks);
        store_table(&mut self.documents, &effects.documents);
        store_table(&mut self.floors, &effects.floors);
        store_table(&mut self.entries, &effects.entries);
        store_table(&mut self.groups, &effects.groups);
        store_table(&mut self.deliveries, &effects.deliveries);
        store_table(&mut self.streams, &effects.streams);
        for event in &effects.events {
            self.last_position += 1;
            self.insert_event(event.at_position(Position::from_number(self.last_position)));
        }
        effects.trims.iter().for_each(|trim| self.trim(trim));
    }

    fn insert_event(&mut self, event: Event) {
        let event = Arc::new(event);
        let category = event.stream.category().to_owned();
        self.log.insert((category, event.position.clone()), Arc::clone(&event));
        self.events.insert((event.stream.clone(), event.seq), event);
    }

    fn trim(&mut self, trim: &Trim) {
        let range = (Included((trim.stream.clone(), 0)), Included((trim.stream.clone(), trim.up_to)));
        let gone: Vec<_> =
            self.events.range(range).map(|(key, event)| (key.clone(), event.position.clone())).collect();
        let category = trim.stream.category().to_owned();
        let Some(last) = gone.iter().map(|(_, position)| position.clone()).max() else { return };
        for (key, position) in gone {
            self.events.remove(&key);
            self.log.remove(&(category.clone(), position));
        }
        self.trims.entry(category).or_default().add(last);
    }

    /// Everything, in an order in which it can be restored.
    pub(super) fn dump(&self) -> Vec<Record> {
        fn all<R: Clone, K>(
            table: &BTreeMap<K, Arc<R>>,
            record: impl Fn(R) -> Record,
        ) -> impl Iterator<Item = Record> {
            table.values().map(move |row| record(R::clone(row)))
        }
        let marks = self.trims.iter().map(|(category, trims)| {
            Record::Category(CategoryMark { category: category.clone(), trims: trims.clone() })
        });
        let mut events: Vec<_> = self.log.values().cloned().collect();
        events.sort_by(|one, two| one.position.cmp(&two.position));
        all(&self.queues, Record::Queue)
            .chain(all(&self.pollers, Record::Poller))
            .chain(all(&self.tasks, |row| Record::Task(Box::new(row))))
            .chain(all(&self.signals, Record::Signals))
            .chain(all(&self.exclusives, Record::Exclusive))
            .chain(all(&self.streams, Record::Stream))
            .chain(events.into_iter().map(|event| Record::Event(Event::clone(&event))))
            .chain(marks)
            .chain(all(&self.groups, Record::Group))
            .chain(all(&self.deliveries, Record::Delivery))
            .chain(all(&self.documents, Record::Document))
            .chain(all(&self.floors, Record::Floor))
            .chain(all(&self.entries, Record::Entry))
            .chain(all(&self.locks, Record::Lock))
            .chain(all(&self.answers, Record::Answer))
            .chain(all(&self.chores, Record::Chore))
            .collect()
    }

    /// Puts back one record of a dump.
    pub(super) fn restore(&mut self, record: Record) {
        fn put<R: crate::row::Record>(table: &mut Table<R>, row: R) {
            table.insert(row.key(), Arc::new(row));
        }
        match record {
            Record::Queue(row) => put(&mut self.queues, row),
            Record::Poller(row) => put(&mut self.pollers, row),
            Record::Task(row) => {
                self.index.change(None, Some(&row));
                put(&mut self.tasks, *row);
            }
            Record::Signals(row) => put(&mut self.signals, row),
            Record::Exclusive(row) => put(&mut self.exclusives, row),
            Record::Stream(row) => put(&mut self.streams, row),
            Record::Event(event) => {
                self.note_position(&event.position);
                self.insert_event(event);
            }
            Record::Category(mark) => {
                self.note_position(&mark.trims.oldest());
                self.trims.insert(mark.category, mark.trims);
            }
            Record::Group(row) => put(&mut self.groups, row),
            Record::Delivery(row) => put(&mut self.deliveries, row),
            Record::Document(row) => put(&mut self.documents, row),
            Record::Floor(row) => put(&mut self.floors, row),
            Record::Entry(row) => put(&mut self.entries, row),
            Record::Lock(row) => put(&mut self.locks, row),
            Record::Answer(row) => put(&mut self.answers, row),
            Record::Chore(row) => put(&mut self.chores, row),
        }
    }

    /// Positions go on above everything that was restored.
    fn note_position(&mut self, position: &Position) {
        self.last_position = self.last_position.max(position.number().unwrap_or(0));
    }
}
