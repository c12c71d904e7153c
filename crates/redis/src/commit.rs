//! What accepted plans leave, and the one call that writes it if everything they read is still so.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use redis::Cmd;
use statehold_core::Timestamp;
use statehold_core::model::{Document, Entry, Event, StreamName};
use statehold_core::plan::{Appending, Effects, Trim};
use statehold_core::row::{
    AnswerRow, ChoreRow, DeliveryRow, ExclusiveRow, FloorRow, GroupKey, GroupRow, LockRow, PollerRow,
    QueueRow, SignalsRow, StreamRow, TaskRow,
};

use crate::connection::Connection;
use crate::error::{Result, Trouble, odd};
use crate::rows::{Changes, Table, Version, tail};
use crate::snapshot::Snapshot;
use crate::space::{Bytes, Range, Space};
use crate::{groups, streams, tasks};

/// How much longer than its time the server keeps what expires, so that a sweep comes first.
const GRACE: i64 = 60_000;

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
    log: Vec<Logged>,
    cleared: BTreeSet<GroupKey>,
}

/// What happens to a stream, in order.
enum Logged {
    Append(Appending),
    Trim(Trim),
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
        self.log.extend(effects.events.into_iter().map(Logged::Append));
        self.log.extend(effects.trims.into_iter().map(Logged::Trim));
        let cleared = &self.cleared;
        self.deliveries.unstore(|key| cleared.contains(&key.group));
    }

    /// What is to be written.
    pub(crate) fn writing(&self, space: &Space) -> Result<Writing> {
        let mut writing = Writing::default();
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
        for logged in &self.log {
            match logged {
                Logged::Append(event) => writing.append(space, event)?,
                Logged::Trim(trim) => writing.trim(space, trim),
            }
        }
        Ok(writing)
    }
}

/// Everything that one call writes.
#[derive(Default)]
pub(crate) struct Writing {
    cleared: Vec<[Range; 2]>,
    gone: Vec<Bytes>,
    put: Vec<Put>,
    pub(crate) members_gone: BTreeSet<Bytes>,
    pub(crate) members_put: BTreeSet<Bytes>,
    counts: BTreeMap<Bytes, i64>,
    meta: Vec<(Bytes, Bytes)>,
    /// The key of a list, and what happens to it.
    log: Vec<(Bytes, [Bytes; 5])>,
}

/// A row to be written.
struct Put {
    name: Bytes,
    value: Bytes,
    /// When the server removes it by itself.
    gone_at: Option<Timestamp>,
}

impl Writing {
    /// The rows of a kind.
    pub(crate) fn rows<R: Table>(&mut self, space: &Space, changes: &Changes<R>) -> Result<()> {
        for (key, before, after) in changes.each() {
            let own = tail::<R>(key);
            let places = |row: Option<&R>| -> BTreeSet<Bytes> {
                let places = row.map(Table::places).unwrap_or_default().into_iter().map(|place| place.0);
                places.chain(row.map(|_| own.clone())).collect()
            };
            let (was, is) = (places(before), places(after));
            self.members_gone.extend(was.difference(&is).cloned());
            self.members_put.extend(is.difference(&was).cloned());
            let name = space.key(&own);
            match after {
                Some(row) => self.put.push(Put { name, value: row.write()?, gone_at: row.gone_at() }),
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
            let value = row.task.id.0.as_bytes().to_vec();
            self.put.push(Put { name: space.key(key), value, gone_at: None });
        }
        for (row, step) in before.map(|row| (row, -1)).into_iter().chain(after.map(|row| (row, 1))) {
            *self.counts.entry(tasks::count_field(row)).or_default() += step;
        }
    }

    fn append(&mut self, space: &Space, event: &Appending) -> Result<()> {
        let body = streams::body_of(event)?;
        self.log_event(space, &event.stream, (event.seq, event.at, ""), body);
        Ok(())
    }

    /// An event of a dump, which has its position.
    pub(crate) fn restore(&mut self, space: &Space, event: &Event) -> Result<()> {
        let body = streams::body(&event.kind, event.data.as_ref(), event.actor.as_ref())?;
        self.log_event(space, &event.stream, (event.seq, event.at, &event.position.0), body);
        Ok(())
    }

    fn log_event(
        &mut self,
        space: &Space,
        stream: &StreamName,
        (seq, at, position): (u64, Timestamp, &str),
        body: Bytes,
    ) {
        let category = stream.category().as_bytes().to_vec();
        let head = format!("{seq} {} ", at.as_micros()).into_bytes();
        let ending = format!("\0{stream}\0{seq}").into_bytes();
        self.log.push((space.events(stream), [category, head, ending, position.as_bytes().to_vec(), body]));
    }

    fn trim(&mut self, space: &Space, trim: &Trim) {
        let (stream, number) = (&trim.stream, trim.up_to.to_string());
        let words = [stream.category(), "", stream.as_str(), &number, ""];
        self.log.push((space.events(stream), words.map(|word| word.as_bytes().to_vec())));
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
            && self.log.is_empty()
    }
}

/// The arguments of the call, which are many.
#[derive(Default)]
struct Arguments<'a> {
    keys: Vec<&'a [u8]>,
    args: Vec<Cow<'a, [u8]>>,
}

impl<'a> Arguments<'a> {
    fn add(&mut self, arg: &'a [u8]) {
        self.args.push(Cow::Borrowed(arg));
    }

    fn number(&mut self, number: impl fmt::Display) {
        self.args.push(Cow::Owned(number.to_string().into_bytes()));
    }

    /// A part: the number of its items, then each of them.
    fn part<T>(
        &mut self,
        items: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
        add: impl Fn(&mut Self, T),
    ) {
        let items = items.into_iter();
        self.number(items.len());
        items.for_each(|item| add(self, item));
    }

    /// The rows that were read and those that are put, each named once.
    fn rows(&mut self, snapshot: &'a Snapshot<'_>, put: &'a [Put]) {
        let seen = &snapshot.seen.rows;
        let (replaced, added): (Vec<_>, Vec<_>) = put.iter().partition(|put| seen.contains_key(&put.name));
        let known: HashSet<_> = replaced.iter().map(|put| &put.name).collect();
        let unchanged: Vec<_> = seen.iter().filter(|(name, _)| !known.contains(name)).collect();
        self.number(seen.len());
        self.number(replaced.len());
        self.number(added.len());
        for put in &replaced {
            self.keys.push(&put.name);
            self.add(bytes_of(seen[&put.name].as_ref()));
        }
        for (name, version) in unchanged {
            self.keys.push(name);
            self.add(bytes_of(version.as_ref()));
        }
        self.keys.extend(added.iter().map(|put| put.name.as_slice()));
        for put in replaced.into_iter().chain(added) {
            self.add(&put.value);
            match put.gone_at.and_then(|at| snapshot.on_server(at)) {
                Some(at) => self.number(at / 1000 + GRACE),
                None => self.add(b""),
            }
        }
    }
}

fn bytes_of(version: Option<&Version>) -> &[u8] {
    version.map_or(&[], |version| version.as_slice())
}

/// Whom to wake, and how.
pub(crate) struct Wake {
    pub(crate) channel: String,
    /// Empty if nobody is to be woken.
    pub(crate) message: String,
    /// A channel that only this process listens to, so that it is seen on the server whether others do; empty if that cannot
    /// be seen.
    pub(crate) own: String,
}

/// The call that checks everything that was read and writes. There is none if nothing is left to write and everything was
/// read at one instant.
pub(crate) fn call(
    snapshot: &Snapshot<'_>,
    writing: &Writing,
    version: &Version,
    wake: &Wake,
) -> Option<Cmd> {
    let idle = writing.is_empty() && snapshot.reserved.is_empty() && snapshot.ghosts.is_empty();
    if idle && snapshot.is_of_one_instant() {
        return None;
    }
    let space = snapshot.scene.space;
    let shared = [space.meta(), space.index(), space.counts(), space.reservations()];
    let mut all = Arguments { keys: shared.iter().map(Vec::as_slice).collect(), ..Arguments::default() };
    all.add(space.tag());
    all.number(snapshot.holds_until());
    all.number(snapshot.asked());
    all.number(u8::from(snapshot.guessed_time()));
    all.add(wake.channel.as_bytes());
    all.add(wake.message.as_bytes());
    all.add(wake.own.as_bytes());
    all.add(version);
    all.rows(snapshot, &writing.put);
    all.part(&snapshot.seen.ranges, |all, seen| {
        all.add(&seen.range.min);
        all.add(&seen.range.max);
        all.number(seen.limit);
        all.add(&seen.members);
    });
    all.part(&snapshot.seen.trims, |all, (category, stored)| {
        all.add(category.as_bytes());
        all.add(stored);
    });
    all.part(&writing.cleared, |all, [rows, places]| {
        for bound in [&rows.min, &rows.max, &places.min, &places.max] {
            all.add(bound);
        }
    });
    all.part(&writing.gone, |all, name| all.keys.push(name));
    let members_gone: BTreeSet<_> = writing.members_gone.iter().chain(&snapshot.ghosts).collect();
    all.part(members_gone, |all, member| all.add(member));
    all.part(&writing.members_put, |all, member| all.add(member));
    let counts: Vec<_> = writing.counts.iter().filter(|(_, step)| **step != 0).collect();
    all.part(counts, |all, (field, step)| {
        all.add(field);
        all.number(step);
    });
    all.part(&writing.meta, |all, (field, value)| {
        all.add(field);
        all.add(value);
    });
    all.part(&writing.log, |all, (name, words)| {
        all.keys.push(name);
        for word in words {
            all.add(word);
        }
    });
    all.part(&snapshot.reserved, |all, id| all.add(id.0.as_bytes()));
    let mut call = snapshot.scene.db.function("commit");
    call.arg(all.keys.len());
    for arg in all.keys.into_iter().chain(all.args.iter().map(|arg| &**arg)) {
        call.arg(arg);
    }
    Some(call)
}

/// Whether there was something in the namespace before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Nothing.
    First,
    /// Something, or nothing was written.
    Later,
}

/// Sends the call and reads what it says.
pub(crate) async fn send(db: &Connection, call: &Cmd) -> Result<Written> {
    let said = db.call(call).await?;
    let (said, time): (String, i64) =
        redis::from_redis_value(said).map_err(|_| odd("whether it was written"))?;
    db.note_late_time(time);
    match said.as_str() {
        "ok" => Ok(Written::Later),
        "first" => Ok(Written::First),
        _ => Err(Trouble::Again),
    }
}
