//! What accepted plans leave, and the one call that writes it if everything they read is still so.

use std::collections::{BTreeMap, BTreeSet};

use redis::{Cmd, Value};
use statehold_core::Timestamp;
use statehold_core::model::{Document, Entry, Event};
use statehold_core::plan::{Appending, Effects, Trim};
use statehold_core::row::{
    AnswerRow, ChoreRow, DeliveryRow, ExclusiveRow, FloorRow, GroupKey, GroupRow, LockRow, PollerRow,
    QueueRow, SignalsRow, StreamRow, TaskRow,
};

use crate::connection::Connection;
use crate::error::{Result, Trouble, odd};
use crate::rows::{Changes, Table, Version, tail};
use crate::snapshot::{SeenRange, Snapshot};
use crate::space::{Bytes, Range, Space};
use crate::strokes::{self, Stroke};
use crate::wakes::Wakes;
use crate::{groups, streams, tasks};

/// How much longer than its time the server keeps what expires, so that a sweep comes first.
const GRACE: i64 = 60_000;

/// About how long a row is, with some room.
const ROW: usize = 256;

/// What the accepted plans leave together.
#[derive(Default)]
pub(crate) struct Changed {
    answers: Changes<AnswerRow>,
    queues: Changes<QueueRow>,
    pollers: Changes<PollerRow>,
    tasks: Changes<TaskRow>,
    signals: Changes<SignalsRow>,
    exclusives: Changes<ExclusiveRow>,
    chores: Changes<ChoreRow>,
    locks: Changes<LockRow>,
    documents: Changes<Document>,
    floors: Changes<FloorRow>,
    entries: Changes<Entry>,
    groups: Changes<GroupRow>,
    deliveries: Changes<DeliveryRow>,
    streams: Changes<StreamRow>,
    events: Vec<Appending>,
    /// After all events: what goes is told by numbers, so it does not matter what came between.
    trims: Vec<Trim>,
    cleared: BTreeSet<GroupKey>,
}

impl Changed {
    /// Adds what an accepted plan leaves.
    pub(crate) fn add(&mut self, effects: Effects) {
        for group in effects.cleared {
            self.deliveries.forget(|key| key.group == group);
            self.cleared.insert(group);
        }
        self.answers.add(effects.answers);
        self.queues.add(effects.queues);
        self.pollers.add(effects.pollers);
        self.tasks.add(effects.tasks);
        self.signals.add(effects.signals);
        self.exclusives.add(effects.exclusives);
        self.chores.add(effects.chores);
        self.locks.add(effects.locks);
        self.documents.add(effects.documents);
        self.floors.add(effects.floors);
        self.entries.add(effects.entries);
        self.groups.add(effects.groups);
        self.deliveries.add(effects.deliveries);
        self.streams.add(effects.streams);
        self.events.extend(effects.events);
        self.trims.extend(effects.trims);
        let cleared = &self.cleared;
        self.deliveries.unstore(|key| cleared.contains(&key.group));
    }

    /// What is to be written.
    pub(crate) fn writing(&self, space: &Space, version: Version) -> Result<Writing> {
        let mut writing = Writing::new(version);
        for group in &self.cleared {
            writing.cleared.push([groups::all(group), Range::of(&groups::visible(group))]);
        }
        writing.rows(space, &self.answers)?;
        writing.rows(space, &self.queues)?;
        writing.rows(space, &self.pollers)?;
        writing.rows(space, &self.tasks)?;
        writing.rows(space, &self.signals)?;
        writing.rows(space, &self.exclusives)?;
        writing.rows(space, &self.chores)?;
        writing.rows(space, &self.locks)?;
        writing.rows(space, &self.documents)?;
        writing.rows(space, &self.floors)?;
        writing.rows(space, &self.entries)?;
        writing.rows(space, &self.groups)?;
        writing.rows(space, &self.deliveries)?;
        writing.rows(space, &self.streams)?;
        for (_, before, after) in self.tasks.each() {
            writing.task(space, before, after);
        }
        for event in &self.events {
            writing.append(space, event)?;
        }
        for trim in &self.trims {
            writing.trim(space, trim);
        }
        Ok(writing)
    }
}

/// Everything that one call writes.
#[derive(Default)]
pub(crate) struct Writing {
    /// What every row ends with.
    version: Version,
    cleared: Vec<[Range; 2]>,
    gone: Vec<Bytes>,
    put: Vec<Put>,
    members_gone: Vec<Bytes>,
    members_put: Vec<Bytes>,
    counts: BTreeMap<Bytes, i64>,
    meta: Vec<(Bytes, Bytes)>,
    events: Vec<Logged>,
    /// The list of an event that has its position, its place, and itself.
    placed: Vec<[Bytes; 3]>,
    trims: Vec<[Bytes; 4]>,
    /// Positions go on above this one.
    pub(crate) position: u64,
}

/// A row to be written.
struct Put {
    name: Bytes,
    value: Bytes,
    /// When the server removes it by itself.
    gone_at: Option<Timestamp>,
}

/// An event that is given its position by the server.
struct Logged {
    list: Bytes,
    /// What stands before and after the position where it is found.
    place: [Bytes; 2],
    /// The event without the position that it begins with.
    event: Bytes,
}

impl Writing {
    /// Nothing yet.
    pub(crate) fn new(version: Version) -> Self {
        Self { version, ..Self::default() }
    }

    /// The rows of a kind.
    pub(crate) fn rows<R: Table>(&mut self, space: &Space, changes: &Changes<R>) -> Result<()> {
        for (key, before, after) in changes.each() {
            let own = tail::<R>(key);
            let name = space.key(&own);
            let places = |row: Option<&R>| row.map(Table::places).unwrap_or_default();
            let (was, is) = (places(before), places(after));
            let gone = was.iter().filter(|place| !is.contains(place));
            self.members_gone.extend(gone.map(|place| place.0.clone()));
            self.members_put.extend(is.into_iter().filter(|place| !was.contains(place)).map(|place| place.0));
            match (before, after) {
                (None, Some(_)) => self.members_put.push(own),
                (Some(_), None) => self.members_gone.push(own),
                _ => {}
            }
            match after {
                Some(row) => {
                    let mut value = Bytes::with_capacity(ROW);
                    row.write(&mut value)?;
                    value.extend(self.version);
                    self.put.push(Put { name, value, gone_at: row.gone_at() });
                }
                None => self.gone.push(name),
            }
        }
        Ok(())
    }

    /// What a task has beside its row: keys that no other has, and its part of the counts.
    pub(crate) fn task(&mut self, space: &Space, before: Option<&TaskRow>, after: Option<&TaskRow>) {
        let (was, is) = (before.map(tasks::unique_keys), after.map(tasks::unique_keys));
        let (was, is) = (was.unwrap_or_default(), is.unwrap_or_default());
        self.gone.extend(was.iter().filter(|key| !is.contains(key)).map(|key| space.key(key)));
        for (key, row) in is.iter().filter(|key| !was.contains(key)).zip(after.into_iter().cycle()) {
            let value = [row.task.id.0.as_bytes(), self.version.as_slice()].concat();
            self.put.push(Put { name: space.key(key), value, gone_at: None });
        }
        for (row, step) in before.map(|row| (row, -1)).into_iter().chain(after.map(|row| (row, 1))) {
            *self.counts.entry(tasks::count_field(row)).or_default() += step;
        }
    }

    fn append(&mut self, space: &Space, event: &Appending) -> Result<()> {
        let body = streams::body(&event.kind, event.data.as_ref(), event.actor.as_ref())?;
        let place = streams::place_in_log(&event.stream, event.seq);
        let event = Logged {
            list: space.events(&event.stream),
            place,
            event: streams::after_position(event.seq, event.at, &body),
        };
        self.events.push(event);
        Ok(())
    }

    /// An event of a dump, which has its position.
    pub(crate) fn restore(&mut self, space: &Space, event: &Event) -> Result<()> {
        let body = streams::body(&event.kind, event.data.as_ref(), event.actor.as_ref())?;
        let position = event.position.0.as_bytes();
        let [before, after] = streams::place_in_log(&event.stream, event.seq);
        let stored = [position, &streams::after_position(event.seq, event.at, &body)].concat();
        self.placed.push([space.events(&event.stream), [&before, position, &after].concat(), stored]);
        Ok(())
    }

    fn trim(&mut self, space: &Space, trim: &Trim) {
        let (stream, number) = (&trim.stream, trim.up_to.to_string());
        let words = [stream.category(), stream.as_str(), &number].map(|word| word.as_bytes().to_vec());
        let [category, name, number] = words;
        self.trims.push([space.events(stream), category, name, number]);
    }

    /// A field of the namespace's meta hash.
    pub(crate) fn meta(&mut self, field: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.meta.push((field.into(), value.into()));
    }

    /// The keys of rows that are written and of those that go.
    pub(crate) fn touched(&self) -> impl Iterator<Item = (&Bytes, bool)> {
        let put = self.put.iter().map(|put| (&put.name, true));
        put.chain(self.gone.iter().map(|name| (name, false)))
    }

    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.cleared.is_empty()
            && self.gone.is_empty()
            && self.put.is_empty()
            && self.members_gone.is_empty()
            && self.members_put.is_empty()
            && self.events.is_empty()
            && self.placed.is_empty()
            && self.trims.is_empty()
    }
}

/// Whom to wake, and how.
pub(crate) struct Wake<'a> {
    pub(crate) channel: &'a str,
    /// Empty if nobody is to be woken.
    pub(crate) message: String,
    /// A channel that only this process listens to, so that it is seen on the server whether others do; empty if that cannot
    /// be seen.
    pub(crate) own: &'a str,
}

/// The call that checks everything that was read and writes. There is none if nothing is left to write and everything was
/// read at one instant.
pub(crate) fn call(
    snapshot: &Snapshot<'_>,
    writing: &Writing,
    wake: &Wake<'_>,
    stroke: Option<&Stroke>,
) -> Option<Cmd> {
    let idle = writing.is_empty() && snapshot.reserved.is_empty() && snapshot.ghosts.is_empty();
    if idle && snapshot.is_of_one_instant() {
        return None;
    }
    let space = snapshot.scene.space;
    let mut call = snapshot.scene.db.function("commit");
    strokes::begin(&mut call, space, stroke);
    call.arg(space.tag()).arg(wake.channel).arg(&wake.message).arg(wake.own);
    add_parts(&mut call, snapshot, writing);
    Some(call)
}

/// The parts of the call, after the numbers.
fn add_parts(call: &mut Cmd, snapshot: &Snapshot<'_>, writing: &Writing) {
    let expiry = |put: &Put| put.gone_at.and_then(|at| snapshot.on_server(at));
    let (expiring, put): (Vec<_>, Vec<_>) =
        writing.put.iter().map(|put| (put, expiry(put))).partition(|(_, expiry)| expiry.is_some());
    let counts: Vec<_> = writing.counts.iter().filter(|(_, step)| **step != 0).collect();
    let (seen, ghosts) = (&snapshot.seen, &snapshot.ghosts);
    let (present, absent): (Vec<_>, Vec<_>) = seen.rows.iter().partition(|(_, version)| version.is_some());
    let (times, least) = (
        [snapshot.holds_until(), snapshot.asked()]
            .map(|at| u64::try_from(at).unwrap_or_default().to_be_bytes()),
        writing.position.to_be_bytes(),
    );
    let numbers = [
        absent.len(),
        present.len(),
        seen.ranges.len(),
        seen.trims.len(),
        writing.cleared.len(),
        writing.gone.len(),
        put.len() + 1,
        expiring.len(),
        writing.members_gone.len() + ghosts.len(),
        counts.len(),
        writing.meta.len(),
        writing.events.len(),
        writing.placed.len(),
        writing.trims.len(),
        snapshot.reserved.len(),
    ];
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
    let numbers = numbers.map(number);
    let guessed = [u8::from(snapshot.guessed_time())];
    call.arg([times.as_flattened(), &guessed, &least, numbers.as_flattened()].concat());
    for (name, _) in absent {
        call.arg(name);
    }
    for (name, version) in present {
        call.arg(name).arg(version.as_ref().map_or(&[][..], Version::as_slice));
    }
    for SeenRange { range, limit, members } in &seen.ranges {
        call.arg(&range.min).arg(&range.max).arg(limit).arg(members);
    }
    for (category, stored) in &seen.trims {
        call.arg(category).arg(stored);
    }
    for [rows, places] in &writing.cleared {
        call.arg(&rows.min).arg(&rows.max).arg(&places.min).arg(&places.max);
    }
    writing.gone.iter().for_each(|name| add(call, [name]));
    for (put, _) in put {
        add(call, [&put.name, &put.value]);
    }
    add(call, [&snapshot.scene.space.last(), &Bytes::new()]);
    for (put, expiry) in expiring {
        call.arg(&put.name).arg(&put.value).arg(expiry.unwrap_or_default() / 1000 + GRACE);
    }
    writing.members_gone.iter().chain(ghosts).for_each(|member| add(call, [member]));
    for (field, step) in counts {
        call.arg(field).arg(step);
    }
    writing.meta.iter().for_each(|(field, value)| add(call, [field, value]));
    for Logged { list, place: [before, after], event } in &writing.events {
        add(call, [list, before, after, event]);
    }
    writing.placed.iter().for_each(|words| add(call, words));
    writing.trims.iter().for_each(|words| add(call, words));
    for id in &snapshot.reserved {
        call.arg(id.0.as_bytes());
    }
    for member in &writing.members_put {
        call.arg(b"0").arg(member);
    }
}

fn add<'a>(call: &mut Cmd, words: impl IntoIterator<Item = &'a Bytes>) {
    for word in words {
        call.arg(word);
    }
}

/// Whether there was something in the namespace before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Nothing.
    First,
    /// Something, or nothing was written.
    Later,
}

/// Sends the call and reads what it says. If that is lost, asks what became of it.
pub(crate) async fn send(
    db: &Connection,
    wakes: &Wakes,
    space: &Space,
    call: &Cmd,
    stroke: Option<Stroke>,
) -> Result<Written> {
    match (send_once(db, wakes, call).await, stroke) {
        (Err(trouble), Some(stroke)) if trouble.is_lost() => {
            let left = stroke.learn(db, space, trouble).await?;
            // Whether there was something in the namespace before was not told.
            left.map(|_| Written::First).ok_or(Trouble::Undone)
        }
        (said, Some(stroke)) => {
            stroke.end(matches!(said, Ok(Written::Later)));
            said
        }
        (said, None) => said,
    }
}

async fn send_once(db: &Connection, wakes: &Wakes, call: &Cmd) -> Result<Written> {
    let said = db.call(call).await?;
    let (word, alone, time) = match &said {
        Value::BulkString(said) => read_answer(said),
        _ => None,
    }
    .ok_or_else(|| odd("whether it was written"))?;
    db.note_late_time(time);
    wakes.note_alone(alone);
    match word {
        "ok" => Ok(Written::Later),
        "first" => Ok(Written::First),
        _ => Err(Trouble::Again),
    }
}

/// Whether it was written, whether nobody else listens, and the time.
fn read_answer(said: &[u8]) -> Option<(&str, bool, i64)> {
    let mut words = std::str::from_utf8(said).ok()?.split(' ');
    let (word, alone) = (words.next()?, words.next()? == "1");
    let (seconds, micros): (i64, i64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some((word, alone, seconds * 1_000_000 + micros))
}
