//! What accepted plans leave, and the one call that writes it if everything they read is still so.

use std::collections::{BTreeMap, BTreeSet};
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
use crate::rows::{Changes, Table, tail, write};
use crate::snapshot::{Seen, Snapshot};
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
    put: Vec<(Bytes, Bytes)>,
    /// Rows that the server removes by itself.
    expiring: Vec<(Bytes, Timestamp)>,
    members_gone: BTreeSet<Bytes>,
    members_put: BTreeSet<Bytes>,
    counts: BTreeMap<Bytes, i64>,
    meta: Vec<(Bytes, Bytes)>,
    /// The key of a list, and what happens to it.
    log: Vec<(Bytes, Vec<Bytes>)>,
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
                Some(row) => {
                    self.expiring.extend(row.gone_at().map(|at| (name.clone(), at)));
                    self.put.push((name, write(row)?));
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
            self.put.push((space.key(key), row.task.id.0.as_bytes().to_vec()));
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
        let words = ["append", stream.category(), stream.as_str(), &seq.to_string()]
            .map(|word| word.as_bytes().to_vec());
        let rest = [at.as_micros().to_string().into_bytes(), position.as_bytes().to_vec(), body];
        self.log.push((space.events(stream), words.into_iter().chain(rest).collect()));
    }

    fn trim(&mut self, space: &Space, trim: &Trim) {
        let (stream, number) = (&trim.stream, trim.up_to.to_string());
        let words =
            ["trim", stream.category(), stream.as_str(), &number].map(|word| word.as_bytes().to_vec());
        self.log.push((space.events(stream), words.to_vec()));
    }

    /// A field of the namespace's meta hash.
    pub(crate) fn meta(&mut self, field: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.meta.push((field.into(), value.into()));
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
struct Arguments {
    keys: Vec<Bytes>,
    args: Vec<Bytes>,
}

impl Arguments {
    fn add(&mut self, arg: impl Into<Bytes>) {
        self.args.push(arg.into());
    }

    fn number(&mut self, number: impl fmt::Display) {
        self.add(format!("{number}"));
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
}

/// Whom to wake, and how.
pub(crate) struct Wake {
    pub(crate) channel: String,
    /// Empty if nobody is to be woken.
    pub(crate) message: String,
}

/// The call that checks everything that was read and writes.
fn call(db: &Connection, snapshot: &Snapshot<'_>, writing: Writing, wake: Wake) -> Cmd {
    let space = snapshot.scene.space;
    let mut all = Arguments::default();
    all.keys.extend([space.meta(), space.index(), space.counts(), space.reservations()]);
    all.add(space.tag());
    all.number(snapshot.holds_until());
    all.add(wake.channel);
    all.add(wake.message);
    check(&mut all, &snapshot.seen);
    let Writing { cleared, gone, put, expiring, mut members_gone, members_put, counts, meta, log } = writing;
    members_gone.extend(snapshot.ghosts.iter().cloned());
    all.part(cleared, |all, [rows, places]| all.args.extend([rows.min, rows.max, places.min, places.max]));
    all.part(gone, |all, name| all.keys.push(name));
    all.part(put, |all, (name, value)| {
        all.keys.push(name);
        all.add(value);
    });
    let expiring: Vec<_> =
        expiring.into_iter().filter_map(|(name, at)| Some((name, snapshot.on_server(at)?))).collect();
    all.part(expiring, |all, (name, at)| {
        all.keys.push(name);
        all.number(at / 1000 + GRACE);
    });
    all.part(members_gone, Arguments::add);
    all.part(members_put, Arguments::add);
    let counts: Vec<_> = counts.into_iter().filter(|(_, step)| *step != 0).collect();
    all.part(counts, |all, (field, step)| {
        all.add(field);
        all.number(step);
    });
    all.part(meta, |all, (field, value)| all.args.extend([field, value]));
    all.part(log, |all, (name, words)| {
        all.keys.push(name);
        all.args.extend(words);
    });
    all.part(&snapshot.reserved, |all, id| all.add(id.0.as_bytes().as_slice()));
    let mut call = db.function("commit");
    call.arg(all.keys.len()).arg(&all.keys).arg(&all.args);
    call
}

fn check(all: &mut Arguments, seen: &Seen) {
    all.part(&seen.rows, |all, (name, version)| {
        all.keys.push(name.clone());
        all.add(version.clone());
    });
    all.part(&seen.ranges, |all, seen| {
        all.args.extend([seen.range.min.clone(), seen.range.max.clone()]);
        all.number(seen.limit);
        all.add(seen.members.clone());
    });
    all.part(&seen.trims, |all, (category, stored)| {
        all.args.extend([category.clone().into_bytes(), stored.clone()]);
    });
}

/// Whether there was something in the namespace before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Nothing.
    First,
    /// Something, or nothing was written.
    Later,
}

/// Writes what plans leave, if everything that they read is still so. If they leave nothing and read everything at one
/// instant, there is nothing to do.
pub(crate) async fn commit(snapshot: &Snapshot<'_>, writing: Writing, wake: Wake) -> Result<Written> {
    let idle = writing.is_empty() && snapshot.reserved.is_empty() && snapshot.ghosts.is_empty();
    if idle && snapshot.loads < 2 {
        return Ok(Written::Later);
    }
    let db = snapshot.scene.db;
    let said: String = redis::from_redis_value(db.call(&call(db, snapshot, writing, wake)).await?)
        .map_err(|_| odd("whether it was written"))?;
    match said.as_str() {
        "ok" => Ok(Written::Later),
        "first" => Ok(Written::First),
        _ => Err(Trouble::Again),
    }
}
