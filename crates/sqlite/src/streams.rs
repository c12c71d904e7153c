//! Streams and categories: heads, events, and what was trimmed away.

use std::sync::Arc;

use rusqlite::{Result, params};
use statehold_core::model::{Event, Position, Source, StreamInfo, StreamName, TaskId};
use statehold_core::plan::{Appending, Cut, CutAt, CutPoint, EventAt, Overgrown, Trim, Unread, UnreadEvents};
use statehold_core::query::{
    CategoryCursor, CategoryFrom, CategoryPage, CategoryRead, ReadFrom, StreamPage, StreamRead,
};
use statehold_core::row::{Cursor, Head, StreamRow, TrimMark, Trims};
use statehold_core::{Error, Timestamp};

use crate::rows::{Cells, Keys, More, Table, id, micros, text};
use crate::statements::{Db, sql};

impl Table for StreamRow {
    fn get(db: Db<'_, '_>, ns: i64, key: &StreamName) -> Result<Option<Self>> {
        db.first(sql!("stream_get"), params![ns, key.as_str()], read_stream)
    }

    fn put(&self, db: Db<'_, '_>, ns: i64, _: Option<&Self>) -> Result<()> {
        let head = &self.head;
        let params = params![ns, self.stream.as_str(), head.last, head.oldest, micros(head.oldest_at)];
        db.run(sql!("stream_put"), params).map(drop)
    }

    fn delete(&self, db: Db<'_, '_>, ns: i64) -> Result<()> {
        db.run(sql!("stream_delete"), params![ns, self.stream.as_str()]).map(drop)
    }
}

pub(crate) fn read_stream(cells: &mut Cells<'_, '_>) -> Result<StreamRow> {
    Ok(StreamRow { stream: cells.parse()?, head: read_head(cells)? })
}

fn read_head(cells: &mut Cells<'_, '_>) -> Result<Head> {
    Ok(Head { last: cells.get()?, oldest: cells.get()?, oldest_at: cells.maybe_time()? })
}

/// How many events a namespace can number: the lower bits of an event's id; the others are its category's.
const NUMBERS: i64 = (1 << 40) - 1;

/// Where the positions of a namespace's own events stand, after what was loaded into it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Origin {
    /// How many events were loaded, with the positions that they had.
    pub(crate) loaded: i64,
    /// What the positions of later ones are ahead of their numbers.
    pub(crate) ahead: i64,
}

impl Origin {
    /// The number of the event at a position that this store gave; none if it was loaded.
    fn number(self, position: &Position) -> Option<i64> {
        let number = i64::try_from(position.number()?).ok()?.saturating_sub(self.ahead);
        (number > self.loaded).then_some(number.min(NUMBERS))
    }

    /// The position of an event, by its id and the position that it was loaded with.
    fn position(self, id: i64, loaded: Option<String>) -> Position {
        let own = || Position::from_number((id & NUMBERS).saturating_add(self.ahead).unsigned_abs());
        loaded.map_or_else(own, Position)
    }
}

/// A category of a namespace.
#[derive(Clone, Copy)]
pub(crate) struct Category {
    number: i64,
    origin: Origin,
}

impl Category {
    fn get(db: Db<'_, '_>, ns: i64, name: &str) -> Result<Option<Self>> {
        db.first(sql!("category_get"), params![ns, name], |cells| {
            let (number, loaded, ahead) = (cells.get()?, cells.get()?, cells.get()?);
            Ok(Self { number, origin: Origin { loaded, ahead } })
        })
    }

    /// The ids that its events can have.
    fn ids(self) -> (i64, i64) {
        (self.number << 40, self.number << 40 | NUMBERS)
    }

    /// The id after which its events after a position come.
    fn after(self, db: Db<'_, '_>, ns: i64, position: &Position) -> Result<i64> {
        let (first, _) = self.ids();
        if let Some(number) = self.origin.number(position) {
            return Ok(first | number);
        }
        if self.origin.loaded == 0 {
            return Ok(first);
        }
        let params = params![ns, self.number, position.0];
        let next: Option<i64> = db.first(sql!("event_loaded_after"), params, |cells| cells.get())?;
        Ok(next.map_or(first | self.origin.loaded, |next| next - 1))
    }
}

/// The origin of the positions in a namespace; of no importance if it has no such category.
fn origin(db: Db<'_, '_>, ns: i64, category: &str) -> Result<Origin> {
    Ok(Category::get(db, ns, category)?.map(|category| category.origin).unwrap_or_default())
}

/// Reads an event; if it is of the stream that is expected, the name is shared.
pub(crate) fn read_event(
    cells: &mut Cells<'_, '_>,
    origin: Origin,
    expected: Option<&StreamName>,
) -> Result<Event> {
    let (id, loaded, stream) = (cells.get()?, cells.maybe_text()?, cells.str()?);
    let expected = expected.filter(|name| name.as_str() == stream).cloned();
    Ok(Event {
        position: origin.position(id, loaded),
        stream: expected.unwrap_or_else(|| StreamName::stored(stream)),
        seq: cells.get()?,
        at: cells.time()?,
        kind: cells.text()?,
        actor: cells.maybe_text()?,
        data: cells.maybe_json()?,
    })
}

/// The head of any stream, and where the positions of its events begin.
fn head(db: Db<'_, '_>, ns: i64, stream: &StreamName) -> Result<(Head, Origin)> {
    let read = |cells: &mut Cells<'_, '_>| {
        Ok((read_head(cells)?, Origin { loaded: cells.get()?, ahead: cells.get()? }))
    };
    let head = match stream.task() {
        Some(task) => db.first(sql!("task_head"), params![ns, id(task)], read)?,
        None => db.first(sql!("stream_head"), params![ns, stream.as_str()], read)?,
    };
    Ok(head.unwrap_or_default())
}

/// The number of a category, which is given now if it has none.
pub(crate) fn category(db: Db<'_, '_>, ns: i64, name: &str) -> Result<i64> {
    if let Some(category) = Category::get(db, ns, name)? {
        return Ok(category.number);
    }
    let given = db.first(sql!("category_insert"), params![ns, name], |cells| cells.get())?;
    given.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

/// Writes an event with its number in the namespace, and the position that it is loaded with.
pub(crate) fn insert(
    db: Db<'_, '_>,
    ns: i64,
    category: i64,
    number: i64,
    event: &Appending,
    loaded: Option<&Position>,
) -> Result<()> {
    let (id, stream) = (category << 40 | number & NUMBERS, event.stream.as_str());
    let (at, data) = (event.at.as_micros(), text(event.data.as_ref()));
    let position = loaded.map(|position| position.0.as_str());
    let params = params![id, ns, stream, event.seq, at, event.kind, event.actor, data, position];
    db.run(sql!("event_insert"), params).map(drop)
}

/// Removes a prefix of a stream, and remembers how far.
pub(crate) fn trim(db: Db<'_, '_>, ns: i64, trim: &Trim) -> Result<()> {
    let range = params![ns, trim.stream.as_str(), trim.up_to];
    let category = trim.stream.category();
    let origin = origin(db, ns, category)?;
    let position = |cells: &mut Cells<'_, '_>| Ok(origin.position(cells.get()?, cells.maybe_text()?));
    let Some(last) = db.first(sql!("trim_last"), range, position)? else { return Ok(()) };
    db.run(sql!("trim_begin"), range)?;
    db.run(sql!("trim_events"), range)?;
    db.run(sql!("trim_end"), params![ns, trim.stream.as_str()])?;
    let number = trims(db, ns, category)?.count() + 1;
    db.run(sql!("trims_outdone"), params![ns, category, last.0])?;
    db.run(sql!("trim_note"), params![ns, category, number, last.0]).map(drop)
}

/// What was trimmed away from a category.
pub(crate) fn trims(db: Db<'_, '_>, ns: i64, category: &str) -> Result<Trims> {
    let read =
        |cells: &mut Cells<'_, '_>| Ok(TrimMark { number: cells.get()?, position: Position(cells.text()?) });
    db.all(sql!("trims_get"), params![ns, category], read).map(Trims)
}

/// Puts back what a dump says was trimmed away.
pub(crate) fn restore_trims(db: Db<'_, '_>, ns: i64, category: &str, trims: &Trims) -> Result<()> {
    for mark in &trims.0 {
        db.run(sql!("trim_note"), params![ns, category, mark.number, mark.position.0])?;
    }
    Ok(())
}

/// The position after everything in a category.
pub(crate) fn latest(db: Db<'_, '_>, ns: i64, category: &str) -> Result<Position> {
    let trimmed = trims(db, ns, category)?.oldest();
    let Some(category) = Category::get(db, ns, category)? else { return Ok(trimmed) };
    let (first, last) = category.ids();
    let position =
        |cells: &mut Cells<'_, '_>| Ok(category.origin.position(cells.get()?, cells.maybe_text()?));
    let latest = db.first(sql!("event_latest"), params![first, last], position)?;
    Ok(latest.unwrap_or_default().max(trimmed))
}

pub(crate) fn event_at(db: Db<'_, '_>, ns: i64, at: &EventAt) -> Result<Option<Arc<Event>>> {
    let origin = origin(db, ns, at.stream.category())?;
    let read = |cells: &mut Cells<'_, '_>| read_event(cells, origin, Some(&at.stream));
    let event = db.first(sql!("event_get"), params![ns, at.stream.as_str(), at.seq], read)?;
    Ok(event.map(Arc::new))
}

pub(crate) fn cut(db: Db<'_, '_>, ns: i64, cut: &Cut) -> Result<CutPoint> {
    let stream = cut.stream.as_str();
    let read = |cells: &mut Cells<'_, '_>| Ok((cells.get::<u64>()?, cells.time()?));
    Ok(match cut.at {
        CutAt::Seq(up_to) => {
            // A number beyond what a stream can have is past its end.
            let seq = i64::try_from(up_to).unwrap_or(i64::MAX);
            let next = db.first(sql!("event_next"), params![ns, stream, seq], read)?;
            CutPoint { up_to, oldest_at: next.map(|(_, at)| at) }
        }
        CutAt::Time(time) => {
            match db.first(sql!("event_since"), params![ns, stream, time.as_micros()], read)? {
                Some((seq, at)) => CutPoint { up_to: seq - 1, oldest_at: Some(at) },
                None => CutPoint { up_to: head(db, ns, &cut.stream)?.0.last, oldest_at: None },
            }
        }
    })
}

fn after(
    db: Db<'_, '_>,
    ns: i64,
    (stream, origin): (&StreamName, Origin),
    seq: u64,
    limit: usize,
) -> Result<Vec<Event>> {
    let seq = i64::try_from(seq).unwrap_or(i64::MAX);
    let read = |cells: &mut Cells<'_, '_>| read_event(cells, origin, Some(stream));
    db.all(sql!("events_after"), params![ns, stream.as_str(), seq, limit], read)
}

fn of_category(db: Db<'_, '_>, ns: i64, name: &str, after: &Position, limit: usize) -> Result<Vec<Event>> {
    let Some(category) = Category::get(db, ns, name)? else { return Ok(Vec::new()) };
    let (after, (_, last)) = (category.after(db, ns, after)?, category.ids());
    let read = |cells: &mut Cells<'_, '_>| read_event(cells, category.origin, None);
    db.all(sql!("events_of_category"), params![after, last, limit], read)
}

pub(crate) fn unread(db: Db<'_, '_>, ns: i64, unread: &Unread) -> Result<UnreadEvents> {
    let (events, oldest, trims) = match (&unread.source, &unread.after) {
        (Source::Stream(stream), cursor) => {
            let (Head { oldest, .. }, origin) = head(db, ns, stream)?;
            let seq = if let Some(Cursor::Seq(seq)) = cursor { *seq } else { oldest };
            (after(db, ns, (stream, origin), seq, unread.limit)?, oldest, Trims::default())
        }
        (Source::Category(category), cursor) => {
            let start = Position::default();
            let position = if let Some(Cursor::Position(position)) = cursor { position } else { &start };
            (of_category(db, ns, category, position, unread.limit)?, 0, trims(db, ns, category)?)
        }
    };
    Ok(UnreadEvents { events: events.into_iter().map(Arc::new).collect(), oldest, trims })
}

pub(crate) fn overgrown(
    db: Db<'_, '_>,
    ns: i64,
    overgrown: &Overgrown,
    now: Timestamp,
) -> Result<Vec<StreamName>> {
    let keep = &overgrown.keep;
    let most = keep.max_length.map(|most| i64::try_from(most).unwrap_or(i64::MAX));
    let oldest = keep.max_age_seconds.map(|age| (now - age).as_micros());
    // All names of a category lie between its slash and the character after the slash.
    let (first, last) = (format!("{}/", overgrown.category), format!("{}0", overgrown.category));
    let params = params![ns, first, last, most, oldest, overgrown.limit];
    db.all(sql!("streams_overgrown"), params, |cells| cells.parse())
}

pub(crate) fn read(db: Db<'_, '_>, ns: i64, read: &StreamRead) -> Result<statehold_core::Result<StreamPage>> {
    let (head, origin) = head(db, ns, &read.stream)?;
    let limit = read.limit as usize;
    let backward = |before: u64| -> Result<Vec<Event>> {
        let before = i64::try_from(before).unwrap_or(i64::MAX);
        let params = params![ns, read.stream.as_str(), before, limit];
        let read_one = |cells: &mut Cells<'_, '_>| read_event(cells, origin, Some(&read.stream));
        let mut events = db.all(sql!("events_before"), params, read_one)?;
        events.reverse();
        Ok(events)
    };
    let events = match read.from {
        ReadFrom::After(seq) if seq < head.oldest => {
            return Ok(Err(Error::compacted(read.stream.as_str(), &head.oldest)));
        }
        ReadFrom::After(seq) => after(db, ns, (&read.stream, origin), seq, limit)?,
        ReadFrom::Oldest => after(db, ns, (&read.stream, origin), head.oldest, limit)?,
        ReadFrom::Before(seq) => backward(seq)?,
        ReadFrom::Last => backward(u64::MAX)?,
    };
    Ok(Ok(StreamPage { events, last_seq: head.last, oldest: head.oldest }))
}

pub(crate) fn read_category(
    db: Db<'_, '_>,
    ns: i64,
    read: &CategoryRead,
) -> Result<statehold_core::Result<CategoryPage>> {
    let trims = trims(db, ns, &read.category)?;
    let cursor = |position| CategoryCursor { position, trims: trims.count() };
    let after = match &read.from {
        CategoryFrom::Latest => {
            let cursor = cursor(latest(db, ns, &read.category)?);
            return Ok(Ok(CategoryPage { events: Vec::new(), cursor }));
        }
        CategoryFrom::After(after) if trims.missed(&after.position, after.trims) => {
            return Ok(Err(Error::compacted(&read.category, &trims.oldest())));
        }
        CategoryFrom::After(after) => after.position.clone(),
        CategoryFrom::Oldest => Position::default(),
    };
    let events = of_category(db, ns, &read.category, &after, read.limit as usize)?;
    let cursor = cursor(events.last().map_or(after, |event| event.position.clone()));
    Ok(Ok(CategoryPage { events, cursor }))
}

/// The first streams after a name that begin with a prefix, those of tasks included.
pub(crate) fn list(db: Db<'_, '_>, ns: i64, keys: Keys<'_>) -> Result<Vec<StreamInfo>> {
    let Keys { prefix, after, limit } = keys;
    let mut streams = Vec::new();
    db.each(sql!("stream_list"), params![ns, after, prefix], |cells| {
        let row = read_stream(cells)?;
        let within = row.stream.as_str().starts_with(prefix) && streams.len() < limit;
        if within {
            streams.push(StreamInfo { stream: row.stream, last_seq: row.head.last, oldest: row.head.oldest });
        }
        Ok(if within { More::Please } else { More::Enough })
    })?;
    let end = streams.len() + limit;
    // Ids begin with a hexadecimal digit, so that what stands before or after all names is told by the name itself.
    let of_tasks = |name: &str| match name.strip_prefix("task/") {
        Some(id) => id.to_owned(),
        None if name < "task/" => String::new(),
        None => "~".to_owned(),
    };
    db.each(sql!("stream_list_of_tasks"), params![ns, of_tasks(after), of_tasks(prefix)], |cells| {
        let stream = StreamName::of_task(cells.parse::<TaskId>()?);
        let within = stream.as_str().starts_with(prefix) && streams.len() < end;
        if within {
            streams.push(StreamInfo { stream, last_seq: cells.get()?, oldest: cells.get()? });
        }
        Ok(if within { More::Please } else { More::Enough })
    })?;
    streams.sort_by(|one, two| one.stream.cmp(&two.stream));
    streams.truncate(limit);
    Ok(streams)
}
