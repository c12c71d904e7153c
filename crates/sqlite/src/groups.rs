//! Consumer groups and their deliveries.

use rusqlite::{Result, params};
use statehold_core::model::{GroupInfo, Pending, Position, Source, StreamName, Token};
use statehold_core::plan::{DeliverySelect, DeliverySet, Found, Rows};
use statehold_core::row::{Cursor, DeliveryKey, DeliveryRow, GroupKey, GroupRow};
use statehold_core::{Error, Timestamp};
use std::sync::Arc;

use crate::rows::{Cells, More, Table};
use crate::statements::{Db, sql};

fn source_name(source: &Source) -> String {
    match source {
        Source::Stream(stream) => format!("stream:{stream}"),
        Source::Category(category) => format!("category:{category}"),
    }
}

fn read_source(cells: &mut Cells<'_, '_>) -> Result<Source> {
    let source: SourceName = cells.parse()?;
    Ok(source.0)
}

struct SourceName(Source);

impl std::str::FromStr for SourceName {
    type Err = Error;

    fn from_str(text: &str) -> statehold_core::Result<Self> {
        match text.split_once(':') {
            Some(("stream", name)) => name.parse::<StreamName>().map(|name| Self(Source::Stream(name))),
            Some(("category", name)) => Ok(Self(Source::Category(name.to_owned()))),
            _ => Err(Error::corrupt(format!("`{text}` is not the source of a group"))),
        }
    }
}

pub(crate) fn read_group(cells: &mut Cells<'_, '_>) -> Result<GroupRow> {
    let group = GroupKey { group: cells.text()?, source: read_source(cells)? };
    let cursor = cells.maybe_text()?.and_then(|text| match &group.source {
        Source::Stream(_) => text.parse().ok().map(Cursor::Seq),
        Source::Category(_) => Some(Cursor::Position(Position(text))),
    });
    Ok(GroupRow { group, cursor, trims_seen: cells.get()?, token: Token(cells.get()?) })
}

impl Table for GroupRow {
    fn get(db: Db<'_, '_>, ns: i64, key: &GroupKey) -> Result<Option<Self>> {
        db.first(sql!("group_get"), params![ns, key.group, source_name(&key.source)], read_group)
    }

    fn put(&self, db: Db<'_, '_>, ns: i64, _: Option<&Self>) -> Result<()> {
        let cursor = self.cursor.as_ref().map(ToString::to_string);
        let source = source_name(&self.group.source);
        let params = params![ns, self.group.group, source, cursor, self.trims_seen, self.token.0];
        db.run(sql!("group_put"), params).map(drop)
    }

    fn delete(&self, db: Db<'_, '_>, ns: i64) -> Result<()> {
        let source = source_name(&self.group.source);
        db.run(sql!("group_delete"), params![ns, self.group.group, source]).map(drop)
    }
}

pub(crate) fn read_delivery(cells: &mut Cells<'_, '_>) -> Result<DeliveryRow> {
    let group = GroupKey { group: cells.text()?, source: read_source(cells)? };
    Ok(DeliveryRow {
        key: DeliveryKey { group, position: Position(cells.text()?) },
        stream: cells.parse()?,
        seq: cells.get()?,
        consumer: cells.text()?,
        delivery: cells.get()?,
        token: Token(cells.get()?),
        out: cells.get()?,
        visible_at: cells.time()?,
        read_key: cells.maybe_text()?,
    })
}

impl Table for DeliveryRow {
    fn get(db: Db<'_, '_>, ns: i64, key: &DeliveryKey) -> Result<Option<Self>> {
        let params = params![ns, key.group.group, source_name(&key.group.source), key.position.0];
        db.first(sql!("delivery_get"), params, read_delivery)
    }

    fn put(&self, db: Db<'_, '_>, ns: i64, _: Option<&Self>) -> Result<()> {
        let params = params![
            ns,
            self.key.group.group,
            source_name(&self.key.group.source),
            self.key.position.0,
            self.stream.as_str(),
            self.seq,
            self.consumer,
            self.delivery,
            self.token.0,
            self.out,
            self.visible_at.as_micros(),
            self.read_key,
        ];
        db.run(sql!("delivery_put"), params).map(drop)
    }

    fn delete(&self, db: Db<'_, '_>, ns: i64) -> Result<()> {
        let group = &self.key.group;
        let params = params![ns, group.group, source_name(&group.source), self.key.position.0];
        db.run(sql!("delivery_delete"), params).map(drop)
    }
}

/// Forgets all deliveries of a group.
pub(crate) fn clear(db: Db<'_, '_>, ns: i64, group: &GroupKey) -> Result<()> {
    db.run(sql!("deliveries_clear"), params![ns, group.group, source_name(&group.source)]).map(drop)
}

/// Answers a set of deliveries and loads its rows.
pub(crate) fn select(
    db: Db<'_, '_>,
    ns: i64,
    select: DeliverySelect,
    rows: &mut Rows,
    now: Timestamp,
) -> Result<()> {
    let group = select.set.group();
    let statement = match &select.set {
        DeliverySet::Visible(_) => sql!("deliveries_visible"),
        DeliverySet::Hidden(_) | DeliverySet::Read { .. } => sql!("deliveries_hidden"),
    };
    let params = params![ns, group.group, source_name(&group.source), now.as_micros()];
    let mut keys = Vec::new();
    db.each(statement, params, |cells| {
        let row = read_delivery(cells)?;
        if select.set.contains(&row, now) {
            keys.push(row.key.clone());
            rows.load(row.key.clone(), Some(Arc::new(row)));
        }
        Ok(if keys.len() > select.limit { More::Enough } else { More::Please })
    })?;
    let found = Found::first(keys, select.limit);
    rows.answer(select, found);
    Ok(())
}

/// How far a group is.
pub(crate) fn info(db: Db<'_, '_>, ns: i64, group: &str, source: &Source) -> Result<Option<GroupInfo>> {
    let key = GroupKey { group: group.to_owned(), source: source.clone() };
    let Some(row) = GroupRow::get(db, ns, &key)? else { return Ok(None) };
    let of_group = params![ns, group, source_name(source)];
    let pending = db.first(sql!("deliveries_count"), of_group, |cells| cells.get())?.unwrap_or_default();
    let mut oldest = Vec::new();
    db.each(sql!("deliveries_of_group"), of_group, |cells| {
        let row = read_delivery(cells)?;
        oldest.push(Pending {
            stream: row.stream,
            seq: row.seq,
            position: row.key.position,
            consumer: row.consumer,
            delivery: row.delivery,
            visible_at: row.visible_at,
        });
        Ok(if oldest.len() == 100 { More::Enough } else { More::Please })
    })?;
    let cursor = row.cursor.as_ref().map(ToString::to_string);
    Ok(Some(GroupInfo { group: key.group, source: key.source, cursor, pending, oldest }))
}
