//! Streams and categories: heads, events, and what was trimmed away.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use statehold_core::model::{Event, Position, Source, StreamInfo, StreamName};
use statehold_core::plan::{Appending, Cut, CutAt, CutPoint, EventAt, Overgrown, Trim, Unread, UnreadEvents};
use statehold_core::query::{
    CategoryCursor, CategoryFrom, CategoryPage, CategoryRead, ReadFrom, StreamPage, StreamRead,
};
use statehold_core::row::{Cursor, Head, StreamRow, Trims};
use statehold_core::{Error, Timestamp};
use tokio::time::{Instant, sleep};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::connection::{Call, Connection, Reading, reading, sql};
use crate::error::{Result, Trouble};
use crate::readers::Keys;
use crate::rows::{Loading, Table, read_all, read_first};
use crate::values::{At, Cells, Param, at, column, count, id, json, limit, param, value};

impl Table for StreamRow {
    const GET: Reading = reading!("stream_get");
    const INSERT: &'static str = sql!("stream_insert");
    const UPDATE: &'static str = sql!("stream_update");
    const DELETE: &'static str = sql!("stream_delete");

    fn keys(keys: &[&StreamName]) -> Vec<Param> {
        vec![column(keys, ToString::to_string)]
    }

    fn columns(rows: &[&Self]) -> Vec<Param> {
        vec![
            column(rows, |row| row.stream.to_string()),
            column(rows, |row| count(row.head.last)),
            column(rows, |row| count(row.head.oldest)),
            column(rows, |row| at(row.head.oldest_at)),
        ]
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        let stream = cells.stream()?;
        let head = Head { last: cells.number()?, oldest: cells.number()?, oldest_at: cells.maybe_time()? };
        Ok(Self { stream, head })
    }
}

/// Reads an event.
pub(crate) fn read_event(cells: &mut Cells<'_>) -> Result<Event> {
    read_joined_event(cells)?.ok_or_else(|| Error::corrupt("an event has no stream").into())
}

/// Reads an event that may be missing.
fn read_joined_event(cells: &mut Cells<'_>) -> Result<Option<Event>> {
    let Some(stream) = cells.get::<Option<&str>>()? else { return Ok(None) };
    Ok(Some(Event {
        stream: StreamName::stored(stream),
        seq: cells.number()?,
        position: Position(cells.text()?),
        at: cells.time()?,
        kind: cells.text()?,
        actor: cells.maybe_text()?,
        data: cells.maybe_json()?,
    }))
}

fn stream_params(ns: i64, stream: &StreamName) -> Vec<Param> {
    vec![param(ns), param(stream.to_string()), param(id(stream.task()))]
}

/// The statement that appends events; their heads are written before. If they are not held but known, it need not look at
/// them.
pub(crate) fn append(ns: i64, events: &[Appending], known: bool) -> (&'static str, Vec<Param>) {
    let mut params = vec![
        param(ns),
        column(events, |event| event.stream.to_string()),
        column(events, |event| count(event.seq)),
        column(events, |event| event.stream.category().to_owned()),
    ];
    if !known {
        params.push(column(events, |event| id(event.stream.task())));
    }
    params.extend([
        column(events, |event| At(event.at)),
        column(events, |event| event.kind.clone()),
        column(events, |event| event.actor.clone()),
        column(events, |event| json(event.data.as_ref())),
    ]);
    if known {
        let places: Vec<_> = (1..=events.len()).collect();
        params.push(column(&places, |place| format!("{place:06x}")));
    }
    (if known { sql!("event_append") } else { sql!("event_insert") }, params)
}

/// The statement that writes events of a dump.
pub(crate) fn restore(ns: i64, events: &[Event]) -> (&'static str, Vec<Param>) {
    let params = vec![
        param(ns),
        column(events, |event| event.stream.to_string()),
        column(events, |event| count(event.seq)),
        column(events, |event| event.stream.category().to_owned()),
        column(events, |event| event.position.0.clone()),
        column(events, |event| At(event.at)),
        column(events, |event| event.kind.clone()),
        column(events, |event| event.actor.clone()),
        column(events, |event| json(event.data.as_ref())),
    ];
    (sql!("event_load"), params)
}

/// Removes a prefix of a stream, and remembers how far.
pub(crate) async fn trim(db: &Connection, ns: i64, trim: &Trim) -> Result<()> {
    let range = || vec![param(ns), param(trim.stream.to_string()), param(count(trim.up_to))];
    let calls = [
        Call::new(sql!("trim_begin"), range()),
        Call::new(sql!("trim_events"), range()),
        Call::new(sql!("trim_end"), vec![param(ns), param(trim.stream.to_string())]),
    ];
    let answers = db.query_all(&calls).await?;
    let Some(last) = read_first(&answers[1], Cells::maybe_text)?.flatten() else { return Ok(()) };
    let category = trim.stream.category();
    let key = || column(&[category.to_owned()], Clone::clone);
    let found = db.query(TRIMS.wait, vec![param(ns), key()]).await?;
    let before = read_first(&found, |cells| {
        cells.text()?;
        cells.value::<Trims>()
    })?;
    let mut trims = before.clone().unwrap_or_default();
    trims.add(Position(last));
    let sql = if before.is_some() { sql!("trims_update") } else { sql!("trims_insert") };
    db.run(sql, vec![param(ns), key(), column(&[trims], value)]).await?;
    Ok(())
}

const TRIMS: Reading = reading!("trims_get");

/// Puts back what a dump says was trimmed away.
pub(crate) async fn restore_trims(db: &Connection, ns: i64, category: &str, trims: &Trims) -> Result<()> {
    let params = vec![
        param(ns),
        column(&[category.to_owned()], Clone::clone),
        column(&[trims], |trims| value(*trims)),
    ];
    db.run(sql!("trims_insert"), params).await?;
    Ok(())
}

/// What a category gave: what was trimmed from it, whether there is more that waits for an older transaction, and
/// the rest of the statement's rows.
struct Category<T> {
    trims: Trims,
    withheld: bool,
    rest: Vec<T>,
}

fn read_category_rows<'r, T>(
    rows: &'r [Row],
    read: impl Fn(&mut Cells<'r>) -> Result<Option<T>>,
) -> Result<Category<T>> {
    let mut category = Category { trims: Trims::default(), withheld: false, rest: Vec::new() };
    for row in rows {
        let mut cells = Cells::new(row);
        category.trims = cells.maybe_value()?.unwrap_or_default();
        category.withheld = cells.get::<Option<bool>>()?.unwrap_or_default();
        category.rest.extend(read(&mut cells)?);
    }
    Ok(category)
}

/// The transaction below which events of a category are read: all that run, unless a horizon is known.
pub(crate) type Bound = Option<i64>;

fn category_call(ns: i64, category: &str, after: &Position, most: usize, bound: Bound) -> Call {
    let mut params = vec![param(ns), param(category.to_owned()), param(after.0.clone())];
    params.extend([param(limit(most)), param(bound)]);
    Call::new(sql!("category_read"), params)
}

fn latest_call(ns: i64, category: &str, bound: Bound) -> Call {
    Call::new(sql!("category_latest"), vec![param(ns), param(category.to_owned()), param(bound)])
}

/// How far events of a namespace can be read, whoever else runs. It costs more than a look at all that run, so it is asked
/// for when those hold something back.
#[derive(Clone, Copy)]
pub(crate) struct Horizon {
    /// The transaction below which nothing can be added any more.
    pub(crate) below: i64,
    /// The next transaction when this was first asked: what was acknowledged before is below it.
    until: i64,
}

impl Horizon {
    /// Looks how far that is by now.
    pub(crate) async fn look(db: &Connection, ns: i64, earlier: Option<Self>) -> Result<Self> {
        let found = db.query(sql!("horizon"), vec![param(ns)]).await?;
        let (below, next) =
            read_first(&found, |cells| Ok((cells.get()?, cells.get()?)))?.ok_or(Trouble::Again)?;
        Ok(Self { below, until: earlier.map_or(next, |earlier| earlier.until) })
    }
}

fn read_latest(rows: &[Row]) -> Result<(Category<String>, Position)> {
    let category = read_category_rows(rows, Cells::maybe_text)?;
    let last = category.rest.first().cloned().map(Position).unwrap_or_default();
    let latest = last.max(category.trims.oldest());
    Ok((category, latest))
}

/// Whether a plan may go on although events wait for an older transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Withheld {
    /// It plans again a little later.
    Again,
    /// It has waited long enough.
    Fine,
}

impl Withheld {
    /// What is there since the first look is waited for, for a while. What came later is not, or there would be no end.
    pub(crate) fn within(patient: bool, horizon: Option<Horizon>) -> Self {
        let waits = patient && horizon.is_none_or(|horizon| horizon.below < horizon.until);
        if waits { Self::Again } else { Self::Fine }
    }

    fn judge(self, withheld: bool) -> Result<()> {
        if withheld && self == Self::Again { Err(Trouble::Withheld) } else { Ok(()) }
    }
}

/// Answers events that a group has not read.
pub(crate) fn unread(loading: &mut Loading, ns: i64, unread: Unread, patience: Withheld, bound: Bound) {
    match &unread.source {
        Source::Stream(stream) => {
            let after = if let Some(Cursor::Seq(seq)) = &unread.after { Some(count(*seq)) } else { None };
            let mut params = stream_params(ns, stream);
            params.extend([param(after), param(limit(unread.limit))]);
            let stream = stream.clone();
            loading.add(Call::new(sql!("stream_read"), params), move |found, rows| {
                let (head, events) = read_page(&stream, found)?;
                let events = events.into_iter().map(Arc::new).collect();
                rows.answer(unread, UnreadEvents { events, oldest: head.oldest, trims: Trims::default() });
                Ok(())
            });
        }
        Source::Category(category) => {
            let start = Position::default();
            let after = if let Some(Cursor::Position(after)) = &unread.after { after } else { &start };
            let call = category_call(ns, category, after, unread.limit, bound);
            loading.add(call, move |found, rows| {
                let category = read_category_rows(found, read_joined_event)?;
                patience.judge(category.withheld)?;
                let events = category.rest.into_iter().map(Arc::new).collect();
                rows.answer(unread, UnreadEvents { events, oldest: 0, trims: category.trims });
                Ok(())
            });
        }
    }
}

/// Answers the position after everything in a category.
pub(crate) fn latest(
    loading: &mut Loading,
    ns: i64,
    latest: statehold_core::plan::Latest,
    patience: Withheld,
    bound: Bound,
) {
    loading.add(latest_call(ns, &latest.0, bound), move |found, rows| {
        let (category, position) = read_latest(found)?;
        patience.judge(category.withheld)?;
        rows.answer(latest, position);
        Ok(())
    });
}

/// Answers single events.
pub(crate) fn events_at(loading: &mut Loading, ns: i64, places: BTreeSet<EventAt>) {
    if places.is_empty() {
        return;
    }
    let asked: Vec<_> = places.iter().collect();
    let params = vec![
        param(ns),
        column(&asked, |place| place.stream.to_string()),
        column(&asked, |place| count(place.seq)),
    ];
    loading.add(Call::new(sql!("event_get"), params), move |found, rows| {
        for event in read_all(found, read_event)? {
            let place = EventAt { stream: event.stream.clone(), seq: event.seq };
            rows.answer(place, Some(Arc::new(event)));
        }
        for place in places {
            if !has_answer(rows, &place) {
                rows.answer(place, None);
            }
        }
        Ok(())
    });
}

fn has_answer(rows: &statehold_core::plan::Rows, place: &EventAt) -> bool {
    use statehold_core::plan::Asked as _;
    EventAt::answers(rows).contains_key(place)
}

/// Answers where a stream would be cut.
pub(crate) fn cut(loading: &mut Loading, ns: i64, cut: Cut) {
    let stream = cut.stream.to_string();
    match cut.at {
        CutAt::Seq(up_to) => {
            let params = vec![param(ns), param(stream), param(count(up_to))];
            loading.add(Call::new(sql!("cut_at_seq"), params), move |found, rows| {
                let oldest_at = read_first(found, Cells::time)?;
                rows.answer(cut, CutPoint { up_to, oldest_at });
                Ok(())
            });
        }
        CutAt::Time(time) => {
            let mut params = stream_params(ns, &cut.stream);
            params.push(param(At(time)));
            loading.add(Call::new(sql!("cut_at_time"), params), move |found, rows| {
                let read = |cells: &mut Cells<'_>| {
                    let (seq, at): (Option<u64>, _) = (cells.maybe_number()?, cells.maybe_time()?);
                    let last = cells.number()?;
                    Ok(CutPoint { up_to: seq.map_or(last, |seq| seq - 1), oldest_at: at })
                };
                let point = read_first(found, read)?.unwrap_or_default();
                rows.answer(cut, point);
                Ok(())
            });
        }
    }
}

/// Answers the streams of a category that hold more than they may.
pub(crate) fn overgrown(loading: &mut Loading, ns: i64, overgrown: Overgrown, now: Timestamp) {
    let keep = &overgrown.keep;
    // All names of a category lie between its slash and the character after the slash.
    let (first, last) = (format!("{}/", overgrown.category), format!("{}0", overgrown.category));
    let params = vec![
        param(ns),
        param(first),
        param(last),
        param(keep.max_length.map(count)),
        param(keep.max_age_seconds.map(|age| At(now - age))),
        param(limit(overgrown.limit)),
    ];
    loading.add(Call::new(sql!("streams_overgrown"), params), move |found, rows| {
        let streams = read_all(found, Cells::stream)?;
        rows.answer(overgrown, streams);
        Ok(())
    });
}

/// Reads the head of a stream and its events.
fn read_page(stream: &StreamName, rows: &[Row]) -> Result<(Head, Vec<Event>)> {
    let (mut head, mut events) = (Head::default(), Vec::with_capacity(rows.len()));
    for row in rows {
        let mut cells = Cells::new(row);
        let (seq, oldest) = (cells.number()?, cells.maybe_number()?);
        match cells.maybe_text()? {
            None => head = Head { last: seq, oldest: oldest.unwrap_or_default(), oldest_at: None },
            Some(position) => events.push(Event {
                stream: stream.clone(),
                seq,
                position: Position(position),
                at: cells.time()?,
                kind: cells.text()?,
                actor: cells.maybe_text()?,
                data: cells.maybe_json()?,
            }),
        }
    }
    events.sort_by_key(|event| event.seq);
    Ok((head, events))
}

/// Reads a part of a stream.
pub(crate) async fn read(db: &Connection, ns: i64, read: &StreamRead) -> Result<StreamPage> {
    let (sql, seq) = match read.from {
        ReadFrom::After(seq) => (sql!("stream_read"), Some(count(seq))),
        ReadFrom::Oldest => (sql!("stream_read"), None),
        ReadFrom::Before(seq) => (sql!("stream_read_back"), Some(count(seq))),
        ReadFrom::Last => (sql!("stream_read_back"), Some(i64::MAX)),
    };
    let mut params = stream_params(ns, &read.stream);
    params.extend([param(seq), param(i64::from(read.limit))]);
    let (head, events) = read_page(&read.stream, &db.query(sql, params).await?)?;
    if matches!(read.from, ReadFrom::After(seq) if seq < head.oldest) {
        return Err(Error::compacted(read.stream.as_str(), &head.oldest).into());
    }
    Ok(StreamPage { events, last_seq: head.last, oldest: head.oldest })
}

/// How long a reader of a category waits for an older transaction that holds events back.
const OLDER: Duration = Duration::from_secs(2);

/// And between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// Reads a part of a category. What was acknowledged is seen by whoever reads next, unless a transaction of the same
/// namespace that is older goes on for long.
pub(crate) async fn read_category(db: &Connection, ns: i64, read: &CategoryRead) -> Result<CategoryPage> {
    let (began, mut horizon) = (Instant::now(), None);
    loop {
        let patience = Withheld::within(began.elapsed() < OLDER, horizon);
        let bound = horizon.map(|horizon| horizon.below);
        match read_category_now(db, ns, read, patience, bound).await {
            Err(Trouble::Withheld) => {
                if horizon.is_some() {
                    sleep(PAUSE).await;
                }
                horizon = Some(Horizon::look(db, ns, horizon).await?);
            }
            page => return page,
        }
    }
}

async fn read_category_now(
    db: &Connection,
    ns: i64,
    read: &CategoryRead,
    patience: Withheld,
    bound: Bound,
) -> Result<CategoryPage> {
    let after = match &read.from {
        CategoryFrom::Latest => {
            let call = latest_call(ns, &read.category, bound);
            let (category, position) = read_latest(&db.query(call.sql, call.params).await?)?;
            patience.judge(category.withheld)?;
            let cursor = CategoryCursor { position, trims: category.trims.count() };
            return Ok(CategoryPage { events: Vec::new(), cursor });
        }
        CategoryFrom::After(after) => after.clone(),
        CategoryFrom::Oldest => CategoryCursor { position: Position::default(), trims: u64::MAX },
    };
    let call = category_call(ns, &read.category, &after.position, read.limit as usize, bound);
    let category = read_category_rows(&db.query(call.sql, call.params).await?, read_joined_event)?;
    if category.trims.missed(&after.position, after.trims) {
        return Err(Error::compacted(&read.category, &category.trims.oldest()).into());
    }
    let events = category.rest;
    if events.len() < read.limit as usize {
        patience.judge(category.withheld)?;
    }
    let position = events.last().map_or(after.position, |event| event.position.clone());
    Ok(CategoryPage { events, cursor: CategoryCursor { position, trims: category.trims.count() } })
}

/// The first streams after a name that begin with a prefix, those of tasks included.
pub(crate) async fn list(db: &Connection, ns: i64, keys: &Keys) -> Result<Vec<StreamInfo>> {
    // Whoever goes on after a stream of a task goes on after that task.
    let after = match keys.after.as_str() {
        name if name < "task/" => Some(Uuid::nil()),
        name => name.strip_prefix("task/").map(|id| id.parse().unwrap_or(Uuid::max())),
    };
    let mut calls = vec![Call::new(sql!("stream_list"), keys.params(ns))];
    if let Some(after) = after {
        let params = vec![param(ns), param(after), param(keys.prefix.clone()), param(limit(keys.limit))];
        calls.push(Call::new(sql!("stream_list_of_tasks"), params));
    }
    let mut streams = Vec::new();
    for found in db.query_all(&calls).await? {
        streams.extend(read_all(&found, |cells| {
            Ok(StreamInfo { stream: cells.stream()?, last_seq: cells.number()?, oldest: cells.number()? })
        })?);
    }
    streams.sort_by(|one, two| one.stream.cmp(&two.stream));
    streams.truncate(keys.limit);
    Ok(streams)
}
