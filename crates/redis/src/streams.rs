//! Streams and categories: heads, events, and what was trimmed away. The events of a stream are a list; a category is a
//! part of the index that leads to them.

use std::io::Write as _;

use statehold_core::model::{Event, Position, StreamInfo, StreamName, TaskId};
use statehold_core::query::{
    CategoryCursor, CategoryFrom, CategoryPage, CategoryRead, KeyList, ReadFrom, StreamPage, StreamRead,
};
use statehold_core::row::{Head, StreamRow, TaskRow, TrimMark, Trims};
use statehold_core::{Error, Json, Timestamp};

use crate::connection::{RowKey, read_bytes, read_found};
use crate::error::{Result, odd};
use crate::lists::{Page, scan};
use crate::rows::{Table, read, tail};
use crate::snapshot::Scene;
use crate::space::{Bytes, Member, Range, Space};

impl Table for StreamRow {
    const LETTER: u8 = b'h';

    fn find(key: &StreamName, member: Member) -> Member {
        member.bytes(key.as_str().as_bytes())
    }

    // Every append writes one, so it is not JSON: the head in words, and the name.
    fn write(&self, stored: &mut Bytes) -> Result<()> {
        let (Self { stream, head }, since) = (self, self.head.oldest_at.map(Timestamp::as_micros));
        // Writing to memory does not fail.
        let _ = match since {
            Some(since) => write!(stored, "{} {} {since} {stream}", head.last, head.oldest),
            None => write!(stored, "{} {} - {stream}", head.last, head.oldest),
        };
        Ok(())
    }

    fn read(body: &[u8]) -> Result<Self> {
        let row = std::str::from_utf8(body).ok().and_then(parse_row);
        row.ok_or_else(|| Error::corrupt("a stream cannot be read").into())
    }
}

fn parse_row(text: &str) -> Option<StreamRow> {
    let mut words = text.splitn(4, ' ');
    let (last, oldest) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let oldest_at = match words.next()? {
        "-" => None,
        since => Some(Timestamp::from_micros(since.parse().ok()?)),
    };
    Some(StreamRow { stream: StreamName::stored(words.next()?), head: Head { last, oldest, oldest_at } })
}

/// What is kept of an event after its first line: its type and who wrote it, a line each, then its data. Names have no line
/// ends; no text of JSON is empty.
pub(crate) fn body(kind: &str, data: Option<&Json>, actor: Option<&String>) -> Result<Bytes> {
    let (actor, data) = (actor.map_or("", String::as_str), data.map_or("", Json::as_str));
    if [kind, actor].iter().any(|name| name.contains('\n')) {
        return Err(Error::invalid("type", "must not contain control characters").into());
    }
    Ok(format!("{kind}\n{actor}\n{data}").into_bytes())
}

/// What is kept of an event after its position.
pub(crate) fn after_position(seq: u64, at: Timestamp, body: &[u8]) -> Bytes {
    let line = format!(" {seq} {}\n", at.as_micros());
    [line.as_bytes(), body].concat()
}

/// Reads an event: "position number time", a line's end, and the body.
pub(crate) fn read_event(stream: &StreamName, stored: &[u8]) -> Result<Event> {
    let event = std::str::from_utf8(stored).ok().and_then(|text| parse_event(stream, text));
    event.ok_or_else(|| Error::corrupt(format!("an event of `{stream}` cannot be read")).into())
}

fn parse_event(stream: &StreamName, text: &str) -> Option<Event> {
    let mut lines = text.splitn(4, '\n');
    let mut head = lines.next()?.split(' ');
    let (position, seq, at) = (head.next()?, head.next()?.parse().ok()?, head.next()?.parse().ok()?);
    let (kind, actor, data) = (lines.next()?, lines.next()?, lines.next()?);
    let present = |text: &&str| !text.is_empty();
    Some(Event {
        stream: stream.clone(),
        seq,
        position: Position(position.to_owned()),
        kind: kind.to_owned(),
        data: Some(data).filter(present).map(Json::stored),
        at: Timestamp::from_micros(at),
        actor: Some(actor).filter(present).map(str::to_owned),
    })
}

/// Reads the events of one stream.
pub(crate) fn read_events(stream: &StreamName, answer: redis::Value) -> Result<Vec<Event>> {
    let stored: Vec<Bytes> = redis::from_redis_value(answer).map_err(|_| odd("events"))?;
    stored.iter().map(|stored| read_event(stream, stored)).collect()
}

/// The field of what was trimmed away from a category.
pub(crate) fn trims_field(category: &str) -> String {
    format!("trims:{category}")
}

/// Reads what was trimmed away from a category: a number and a position a line.
pub(crate) fn read_trims(stored: &[u8]) -> Trims {
    let text = String::from_utf8_lossy(stored);
    let mark = |line: &str| {
        let (number, position) = line.split_once(' ')?;
        Some(TrimMark { number: number.parse().ok()?, position: Position(position.to_owned()) })
    };
    Trims(text.lines().filter_map(mark).collect())
}

/// What was trimmed away from a category, as it is stored.
pub(crate) fn write_trims(trims: &Trims) -> Bytes {
    let lines: Vec<_> = trims.0.iter().map(|mark| format!("{} {}\n", mark.number, mark.position)).collect();
    lines.concat().into_bytes()
}

/// Reads what was trimmed away from a category.
pub(crate) fn get_trims(space: &Space, category: &str) -> redis::Cmd {
    let mut get = redis::cmd("HGET");
    get.arg(space.meta()).arg(trims_field(category));
    get
}

/// The key of the row that a stream's head is on.
pub(crate) fn head_tail(stream: &StreamName) -> Bytes {
    match stream.task() {
        Some(id) => tail::<TaskRow>(&id),
        None => tail::<StreamRow>(stream),
    }
}

/// Reads the head of a stream from its row.
pub(crate) fn read_head(stream: &StreamName, stored: Option<&[u8]>) -> Result<Head> {
    let Some(stored) = stored else { return Ok(Head::default()) };
    match stream.task() {
        Some(_) => read::<TaskRow>(stored).map(|row| row.head),
        None => read::<StreamRow>(stored).map(|row| row.head),
    }
}

fn get_head(space: &Space, stream: &StreamName) -> redis::Cmd {
    let mut get = redis::cmd("GET");
    get.arg(space.key(&head_tail(stream)));
    get
}

/// Events after a number, in order.
pub(crate) fn events_after(scene: &Scene<'_>, stream: &StreamName, seq: u64, limit: usize) -> redis::Cmd {
    let mut call = scene.db.reading("events", &[scene.space.events(stream)]);
    call.arg("after").arg(seq).arg(limit);
    call
}

/// The calls that read the head of a stream and events after a number; after what was trimmed away if there is none.
pub(crate) fn page_calls(scene: &Scene<'_>, stream: &StreamName, seq: u64, limit: usize) -> [redis::Cmd; 2] {
    [get_head(scene.space, stream), events_after(scene, stream, seq, limit)]
}

/// Reads a part of a stream.
pub(crate) async fn read_stream(scene: &Scene<'_>, read: &StreamRead) -> Result<StreamPage> {
    let stream = &read.stream;
    let events = match read.from {
        ReadFrom::After(seq) => events_after(scene, stream, seq, read.limit as usize),
        ReadFrom::Oldest => events_after(scene, stream, 0, read.limit as usize),
        ReadFrom::Before(seq) => {
            let mut call = scene.db.reading("events", &[scene.space.events(stream)]);
            call.arg("before").arg(seq).arg(read.limit);
            call
        }
        ReadFrom::Last => {
            let mut call = redis::cmd("LRANGE");
            call.arg(scene.space.events(stream)).arg(-i64::from(read.limit)).arg(-1);
            call
        }
    };
    let answers = scene.db.call_all(&[get_head(scene.space, stream), events]).await?;
    let [head, events] = <[_; 2]>::try_from(answers).map_err(|_| odd("two answers"))?;
    let head = read_head(stream, read_bytes(head)?.as_deref())?;
    if matches!(read.from, ReadFrom::After(seq) if seq < head.oldest) {
        return Err(Error::compacted(stream.as_str(), &head.oldest).into());
    }
    Ok(StreamPage { events: read_events(stream, events)?, last_seq: head.last, oldest: head.oldest })
}

/// The log of a category.
pub(crate) fn log(category: &str) -> Member {
    Member::new(b'G').name(category)
}

/// Where an event is found in the log of its category: what stands before and after its position.
pub(crate) fn place_in_log(stream: &StreamName, seq: u64) -> [Bytes; 2] {
    [log(stream.category()).0, format!("\0{stream}\0{seq}").into_bytes()]
}

/// The call that reads events of a category after a position, with what was trimmed away.
pub(crate) fn category_after(
    scene: &Scene<'_>,
    category: &str,
    after: &Position,
    limit: usize,
) -> redis::Cmd {
    let log = log(category);
    let range = Range::of(&log);
    let range = if after.0.is_empty() { range } else { range.beyond(&log.name(&after.0)) };
    category_call(scene, category, &range, limit)
}

/// The call that reads events in a range of logs.
pub(crate) fn category_call(scene: &Scene<'_>, category: &str, range: &Range, limit: usize) -> redis::Cmd {
    let mut call = scene.db.reading("category", &[scene.space.index(), scene.space.meta()]);
    call.arg(scene.space.tag()).arg(category).arg(&range.min).arg(&range.max).arg(limit);
    call
}

/// Reads events of a category, and what was trimmed away as it is stored.
pub(crate) fn read_category_events(answer: redis::Value) -> Result<(Vec<Event>, Bytes)> {
    let parts: Vec<Option<Bytes>> = redis::from_redis_value(answer).map_err(|_| odd("events"))?;
    let mut parts = parts.into_iter();
    let trims = parts.next().flatten().unwrap_or_default();
    let mut events = Vec::new();
    while let (Some(Some(stream)), Some(Some(event))) = (parts.next(), parts.next()) {
        events.push(read_event(&StreamName::stored(&String::from_utf8_lossy(&stream)), &event)?);
    }
    Ok((events, trims))
}

/// The calls that tell the position after everything in a category.
pub(crate) fn latest_calls(scene: &Scene<'_>, category: &str) -> [redis::Cmd; 2] {
    let last = scene.db.range_either_way(scene.space, &Range::of(&log(category)), 1, RowKey::None, true);
    [get_trims(scene.space, category), last]
}

/// Reads the position after everything in a category, and what was trimmed away.
pub(crate) fn read_latest(
    category: &str,
    trims: redis::Value,
    last: redis::Value,
) -> Result<(Position, Trims)> {
    let trims = read_trims(&read_bytes(trims)?.unwrap_or_default());
    let skipped = log(category).0.len();
    let position = |member: &Bytes| {
        let rest = member.get(skipped..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        Some(Position(String::from_utf8_lossy(&rest[..end]).into_owned()))
    };
    let last = read_found(last)?.members.first().and_then(position).unwrap_or_default();
    Ok((last.max(trims.oldest()), trims))
}

/// Reads a part of a category.
pub(crate) async fn read_category(scene: &Scene<'_>, read: &CategoryRead) -> Result<CategoryPage> {
    let (after, seen) = match &read.from {
        CategoryFrom::Latest => {
            let answers = scene.db.call_all(&latest_calls(scene, &read.category)).await?;
            let [trims, last] = <[_; 2]>::try_from(answers).map_err(|_| odd("two answers"))?;
            let (position, trims) = read_latest(&read.category, trims, last)?;
            let cursor = CategoryCursor { position, trims: trims.count() };
            return Ok(CategoryPage { events: Vec::new(), cursor });
        }
        CategoryFrom::After(after) => (after.position.clone(), after.trims),
        CategoryFrom::Oldest => (Position::default(), u64::MAX),
    };
    let call = category_after(scene, &read.category, &after, read.limit as usize);
    let (events, trims) = read_category_events(scene.db.call(&call).await?)?;
    let trims = read_trims(&trims);
    if trims.missed(&after, seen) {
        return Err(Error::compacted(&read.category, &trims.oldest()).into());
    }
    let position = events.last().map_or(after, |event| event.position.clone());
    Ok(CategoryPage { events, cursor: CategoryCursor { position, trims: trims.count() } })
}

/// The streams of a page, those of tasks included, and one more to tell that there is a next one.
pub(crate) async fn list(
    scene: &Scene<'_>,
    list: &KeyList,
    after: Option<String>,
) -> Result<Vec<StreamInfo>> {
    let limit = list.limit as usize + 1;
    let rows: Vec<StreamRow> = crate::lists::by_key(scene, list, after.clone(), |_| true).await?;
    let info = |stream, head: Head| StreamInfo { stream, last_seq: head.last, oldest: head.oldest };
    let mut streams: Vec<_> = rows.into_iter().map(|row| info(row.stream, row.head)).collect();
    for row in of_tasks(scene, &list.prefix, after.as_deref(), limit).await? {
        streams.push(info(StreamName::of_task(row.task.id), row.head));
    }
    streams.sort_by(|one, two| one.stream.cmp(&two.stream));
    streams.truncate(limit);
    Ok(streams)
}

/// The tasks whose streams begin with a prefix and come after a name. Ids sort as their text does.
async fn of_tasks(
    scene: &Scene<'_>,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<TaskRow>> {
    let wanted = |id: &TaskId| {
        let name = StreamName::of_task(*id);
        name.as_str().starts_with(prefix) && after.is_none_or(|after| name.as_str() > after)
    };
    if !"task/".starts_with(prefix) && !prefix.starts_with("task/") {
        return Ok(Vec::new());
    }
    let mut range = Range::of(&Member::new(TaskRow::LETTER));
    // The place where the page begins, as far as the text is that of an id.
    let text =
        after.into_iter().chain([prefix]).max().and_then(|text| text.strip_prefix("task/")).unwrap_or("");
    range = range.from(&Member::new(TaskRow::LETTER).bytes(&front_of_id(text)).0);
    scan(scene, Page { range, limit, backwards: false }, |row: &TaskRow| wanted(&row.task.id)).await
}

/// The first bytes of an id from the beginning of its text.
fn front_of_id(text: &str) -> Bytes {
    let digits: Vec<_> = text
        .chars()
        .filter(|c| *c != '-')
        .map_while(|c| c.to_digit(16))
        .filter_map(|d| u8::try_from(d).ok())
        .collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_read_as_it_was_written() {
        for oldest_at in [None, Some(Timestamp::from_micros(1_700_000_000_000_009))] {
            let row = StreamRow {
                stream: StreamName::stored("chat/a b"),
                head: Head { last: 7, oldest: 3, oldest_at },
            };
            let mut stored = Bytes::new();
            row.write(&mut stored).expect("it is written");
            assert_eq!(StreamRow::read(&stored).expect("it is read"), row);
            assert!(StreamRow::read(&stored[..3]).is_err());
        }
    }
}
