//! A namespace as records, and back.

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use statehold_core::dump::{CategoryMark, Record};
use statehold_core::model::{Document, Entry, Position};
use statehold_core::row::{
    AnswerRow, Change, ChoreRow, DeliveryRow, ExclusiveRow, FloorRow, GroupRow, LockRow, PollerRow, QueueRow,
    SignalsRow, StreamRow, TaskRow,
};
use statehold_core::{Error, Result as Answer};

use crate::commit::Writing;
use crate::connection::{RowKey, read_found};
use crate::error::{Result, odd};
use crate::rows::{Changes, Table, Version, read};
use crate::snapshot::{Scene, SeenRange};
use crate::space::{Bytes, Member, Range, Space};
use crate::streams;

/// All rows of a kind, out of the answer to [`rows_call`].
fn rows<R: Table>(answer: redis::Value, record: impl Fn(R) -> Record) -> Result<Vec<Record>> {
    let rows = read_found(answer)?.rows.into_iter().flatten();
    rows.map(|stored| read(&stored).map(&record)).collect()
}

/// Everything in a namespace, at one instant.
pub(crate) async fn write(scene: &Scene<'_>) -> Result<Vec<Record>> {
    let all = |letter: u8| Range::of(&Member::new(letter));
    let call = |letter: u8| scene.db.range(scene.space, &all(letter), usize::MAX >> 1, RowKey::OWN);
    let mut meta = redis::cmd("HGETALL");
    meta.arg(scene.space.meta());
    let calls = [
        call(QueueRow::LETTER),
        call(PollerRow::LETTER),
        call(TaskRow::LETTER),
        call(SignalsRow::LETTER),
        call(ExclusiveRow::LETTER),
        call(StreamRow::LETTER),
        streams::category_call(scene, "", &all(b'G'), usize::MAX >> 1),
        meta,
        call(GroupRow::LETTER),
        call(DeliveryRow::LETTER),
        call(Document::LETTER),
        call(FloorRow::LETTER),
        call(Entry::LETTER),
        call(LockRow::LETTER),
        call(AnswerRow::LETTER),
        call(ChoreRow::LETTER),
    ];
    let mut answers = scene.db.call_all(&calls).await?.into_iter();
    let mut next = || answers.next().ok_or_else(|| odd("as many answers"));
    let mut records = rows(next()?, Record::Queue)?;
    records.extend(rows(next()?, Record::Poller)?);
    records.extend(rows(next()?, |row: TaskRow| Record::Task(Box::new(row)))?);
    records.extend(rows(next()?, Record::Signals)?);
    records.extend(rows(next()?, Record::Exclusive)?);
    records.extend(rows(next()?, Record::Stream)?);
    let (mut events, _) = streams::read_category_events(next()?)?;
    events.sort_by(|one, two| one.position.cmp(&two.position));
    records.extend(events.into_iter().map(Record::Event));
    records.extend(marks(next()?)?);
    records.extend(rows(next()?, Record::Group)?);
    records.extend(rows(next()?, Record::Delivery)?);
    records.extend(rows(next()?, Record::Document)?);
    records.extend(rows(next()?, Record::Floor)?);
    records.extend(rows(next()?, Record::Entry)?);
    records.extend(rows(next()?, Record::Lock)?);
    records.extend(rows(next()?, Record::Answer)?);
    records.extend(rows(next()?, Record::Chore)?);
    Ok(records)
}

/// What was trimmed away, by category.
fn marks(answer: redis::Value) -> Result<Vec<Record>> {
    let fields: Vec<(Bytes, Bytes)> = redis::from_redis_value(answer).map_err(|_| odd("fields"))?;
    let mark = |(field, stored): (Bytes, Bytes)| {
        let field = String::from_utf8_lossy(&field).into_owned();
        let category = field.strip_prefix("trims:")?.to_owned();
        Some(Record::Category(CategoryMark { category, trims: streams::read_trims(&stored) }))
    };
    let mut fields = fields;
    fields.sort();
    Ok(fields.into_iter().filter_map(mark).collect())
}

/// All records of a dump, once it has come to its end.
pub(crate) async fn gather(mut records: BoxStream<'static, Answer<Record>>) -> Answer<Vec<Record>> {
    let mut all = Vec::new();
    while let Some(record) = records.next().await {
        all.push(record?);
    }
    Ok(all)
}

/// What a load writes. It must find the namespace empty.
pub(crate) fn fill(space: &Space, version: Version, records: Vec<Record>) -> Result<Writing> {
    let mut writing = Writing::new(version);
    for record in records {
        match record {
            Record::Queue(row) => put(&mut writing, space, row)?,
            Record::Poller(row) => put(&mut writing, space, row)?,
            Record::Task(row) => {
                writing.task(space, None, Some(&row));
                put(&mut writing, space, *row)?;
            }
            Record::Signals(row) => put(&mut writing, space, row)?,
            Record::Exclusive(row) => put(&mut writing, space, row)?,
            Record::Stream(row) => put(&mut writing, space, row)?,
            Record::Event(event) => {
                writing.position = writing.position.max(number(&event.position));
                writing.restore(space, &event)?;
            }
            Record::Category(mark) => {
                writing.position = writing.position.max(number(&mark.trims.oldest()));
                writing.meta(streams::trims_field(&mark.category), streams::write_trims(&mark.trims));
            }
            Record::Group(row) => put(&mut writing, space, row)?,
            Record::Delivery(row) => put(&mut writing, space, row)?,
            Record::Document(row) => put(&mut writing, space, row)?,
            Record::Floor(row) => put(&mut writing, space, row)?,
            Record::Entry(row) => put(&mut writing, space, row)?,
            Record::Lock(row) => put(&mut writing, space, row)?,
            Record::Answer(row) => put(&mut writing, space, row)?,
            Record::Chore(row) => put(&mut writing, space, row)?,
        }
    }
    Ok(writing)
}

fn number(position: &Position) -> u64 {
    position.number().unwrap_or_default()
}

fn put<R: Table>(writing: &mut Writing, space: &Space, row: R) -> Result<()> {
    let mut changes = Changes::default();
    changes.add(vec![Change { key: row.key(), before: None, after: Some(row.into()) }]);
    writing.rows(space, &changes)
}

/// Says that there is nothing in a namespace.
pub(crate) fn nothing() -> SeenRange {
    SeenRange { range: Range { min: b"-".to_vec(), max: b"+".to_vec() }, limit: 1, members: Bytes::new() }
}

/// There is something in the namespace.
pub(crate) fn not_empty(namespace: &str) -> Error {
    let message = format!("namespace `{namespace}` is not empty");
    Error::conflict(namespace, message).hint("load into a namespace with nothing in it")
}
