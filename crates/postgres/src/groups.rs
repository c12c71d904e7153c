//! Consumer groups and their deliveries.

use statehold_core::model::{GroupInfo, Pending, Position, Source, StreamName, Token};
use statehold_core::plan::{DeliverySelect, DeliverySet, Found};
use statehold_core::row::{Cursor, DeliveryKey, DeliveryRow, GroupKey, GroupRow};
use statehold_core::{Error, Timestamp};

use crate::connection::{Call, Connection, Hold, Reading, reading, sql};
use crate::error::Result;
use crate::rows::{self, Loading, Table, load_found, read_all, read_first};
use crate::values::{At, Cells, Param, column, count, limit, param};

/// How a source is kept.
pub(crate) fn source_name(source: &Source) -> String {
    match source {
        Source::Stream(stream) => format!("stream:{stream}"),
        Source::Category(category) => format!("category:{category}"),
    }
}

struct SourceName(Source);

impl std::str::FromStr for SourceName {
    type Err = Error;

    fn from_str(text: &str) -> statehold_core::Result<Self> {
        match text.split_once(':') {
            Some(("stream", name)) => Ok(Self(Source::Stream(StreamName::stored(name)))),
            Some(("category", name)) => Ok(Self(Source::Category(name.to_owned()))),
            _ => Err(Error::corrupt(format!("`{text}` is not the source of a group"))),
        }
    }
}

fn read_key(cells: &mut Cells<'_>) -> Result<GroupKey> {
    let (group, source): (_, SourceName) = (cells.text()?, cells.parse()?);
    Ok(GroupKey { group, source: source.0 })
}

impl Table for GroupRow {
    const GET: Reading = reading!("group_get");
    const INSERT: &'static str = sql!("group_insert");
    const UPDATE: &'static str = sql!("group_update");
    const DELETE: &'static str = sql!("group_delete");

    fn keys(keys: &[&GroupKey]) -> Vec<Param> {
        vec![column(keys, |key| key.group.clone()), column(keys, |key| source_name(&key.source))]
    }

    fn columns(rows: &[&Self]) -> Vec<Param> {
        vec![
            column(rows, |row| row.group.group.clone()),
            column(rows, |row| source_name(&row.group.source)),
            column(rows, |row| row.cursor.as_ref().map(ToString::to_string)),
            column(rows, |row| count(row.trims_seen)),
            column(rows, |row| row.token.0),
        ]
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        let group = read_key(cells)?;
        let cursor = cells.maybe_text()?.and_then(|text| match &group.source {
            Source::Stream(_) => text.parse().ok().map(Cursor::Seq),
            Source::Category(_) => Some(Cursor::Position(Position(text))),
        });
        Ok(Self { group, cursor, trims_seen: cells.number()?, token: Token(cells.get()?) })
    }
}

impl Table for DeliveryRow {
    const GET: Reading = reading!("delivery_get");
    const INSERT: &'static str = sql!("delivery_insert");
    const UPDATE: &'static str = sql!("delivery_update");
    const DELETE: &'static str = sql!("delivery_delete");

    fn keys(keys: &[&DeliveryKey]) -> Vec<Param> {
        vec![
            column(keys, |key| key.group.group.clone()),
            column(keys, |key| source_name(&key.group.source)),
            column(keys, |key| key.position.0.clone()),
        ]
    }

    fn columns(rows: &[&Self]) -> Vec<Param> {
        vec![
            column(rows, |row| row.key.group.group.clone()),
            column(rows, |row| source_name(&row.key.group.source)),
            column(rows, |row| row.key.position.0.clone()),
            column(rows, |row| row.stream.to_string()),
            column(rows, |row| count(row.seq)),
            column(rows, |row| row.consumer.clone()),
            column(rows, |row| i64::from(row.delivery)),
            column(rows, |row| row.token.0),
            column(rows, |row| row.out),
            column(rows, |row| At(row.visible_at)),
            column(rows, |row| row.read_key.clone()),
        ]
    }

    fn read(cells: &mut Cells<'_>) -> Result<Self> {
        let group = read_key(cells)?;
        Ok(Self {
            key: DeliveryKey { group, position: Position(cells.text()?) },
            stream: cells.stream()?,
            seq: cells.number()?,
            consumer: cells.text()?,
            delivery: cells.number()?,
            token: Token(cells.get()?),
            out: cells.get()?,
            visible_at: cells.time()?,
            read_key: cells.maybe_text()?,
        })
    }
}

const VISIBLE: Reading = reading!("deliveries_visible");
const HIDDEN: Reading = reading!("deliveries_hidden");
const READ: Reading = reading!("deliveries_read");

/// Answers a set of deliveries and loads its rows.
pub(crate) fn select(loading: &mut Loading, ns: i64, select: DeliverySelect, now: Timestamp, hold: Hold) {
    let group = select.set.group();
    let mut params = vec![
        param(ns),
        param(group.group.clone()),
        param(source_name(&group.source)),
        param(At(now)),
        param(limit(select.limit + 1)),
    ];
    let statement = match &select.set {
        DeliverySet::Visible(_) => VISIBLE,
        DeliverySet::Hidden(_) => HIDDEN,
        DeliverySet::Read { consumer, key, .. } => {
            params.extend([param(consumer.clone()), param(key.clone())]);
            READ
        }
    };
    loading.add(Call::new(statement.holding(hold), params), move |found, rows| {
        let keys = load_found::<DeliveryRow>(found, rows)?;
        let found = Found::first(keys, select.limit);
        rows.answer(select, found);
        Ok(())
    });
}

/// How far a group is.
pub(crate) async fn info(db: &Connection, ns: i64, key: &GroupKey) -> Result<Option<GroupInfo>> {
    let of_group = || vec![param(ns), param(key.group.clone()), param(source_name(&key.source))];
    let calls = [
        rows::get::<GroupRow>(ns, &[key], Hold::Not),
        Call::new(sql!("deliveries_count"), of_group()),
        Call::new(sql!("deliveries_of_group"), of_group()),
    ];
    let answers = db.query_all(&calls).await?;
    let Some(row) = read_first(&answers[0], GroupRow::read)? else { return Ok(None) };
    let pending = read_first(&answers[1], Cells::number)?.unwrap_or_default();
    let oldest = read_all(&answers[2], DeliveryRow::read)?.into_iter().map(|row| Pending {
        stream: row.stream,
        seq: row.seq,
        position: row.key.position,
        consumer: row.consumer,
        delivery: row.delivery,
        visible_at: row.visible_at,
    });
    let (cursor, oldest) = (row.cursor.as_ref().map(ToString::to_string), oldest.collect());
    Ok(Some(GroupInfo { group: row.group.group, source: row.group.source, cursor, pending, oldest }))
}
