//! Consumer groups: who reads what, what is out, and where it ends when nobody can take it.

use std::sync::Arc;

use serde_json::json;

use super::fences::current_delivery;
use super::lookup::{DeliverySet, EventAt, Latest, Unread, UnreadEvents};
use super::streams;
use super::tx::{Planned, Tx};
use crate::call::{Deliveries, GroupRead};
use crate::clock::Seconds;
use crate::command::{Ack, Done, GroupAck, GroupNack, GroupSeek, SeekTo};
use crate::error::{Error, ErrorKind};
use crate::model::{DEAD_CATEGORY, Delivered, Event, Position, Source, StreamName, Token};
use crate::query::CategoryCursor;
use crate::row::{Cursor, DeliveryKey, DeliveryRow, GroupKey, GroupRow, StreamRow, TaskRow};

fn keys(ack: Ack<'_>) -> impl Iterator<Item = (DeliveryKey, Token)> {
    let group = GroupKey { group: ack.group.to_owned(), source: ack.source.clone() };
    ack.deliveries.iter().map(move |delivery| {
        let key = DeliveryKey { group: group.clone(), position: delivery.position.clone() };
        (key, delivery.delivery_token)
    })
}

pub(super) fn judge_ack(tx: &mut Tx<'_>, ack: Ack<'_>) -> Planned<()> {
    keys(ack).for_each(|(key, _)| tx.want::<DeliveryRow>(&key));
    for (key, token) in keys(ack) {
        let row = tx.delivery(&key)?;
        current_delivery(row.as_deref(), &key, token)?;
    }
    Ok(())
}

pub(super) fn ack(tx: &mut Tx<'_>, ack: &GroupAck) -> Done {
    keys(ack.deliveries()).for_each(|(key, _)| tx.delete::<DeliveryRow>(&key));
    Done {}
}

pub(super) fn nack(tx: &mut Tx<'_>, nack: &GroupNack) -> Planned<Done> {
    let visible_at = tx.now + nack.delay_seconds.unwrap_or(Seconds::ZERO);
    for (key, _) in keys(nack.deliveries()) {
        if let Some(row) = tx.delivery(&key)? {
            tx.put(DeliveryRow { out: false, visible_at, read_key: None, ..DeliveryRow::clone(&row) });
        }
    }
    Ok(Done {})
}

pub(super) fn judge_seek(tx: &mut Tx<'_>, seek: &GroupSeek) -> Planned<()> {
    let group = GroupKey { group: seek.group.clone(), source: seek.source.clone() };
    tx.want::<GroupRow>(&group);
    target(tx, seek).map(|_| ())
}

/// Where a seek leads to. At the oldest event there is no cursor until the next read fixes it.
fn target(tx: &mut Tx<'_>, seek: &GroupSeek) -> Planned<(Option<Cursor>, u64)> {
    Ok(match (&seek.to, &seek.source) {
        (SeekTo::Oldest, _) => (None, 0),
        (SeekTo::After(cursor), Source::Stream(_)) => (Some(Cursor::Seq(cursor.parse().unwrap_or(0))), 0),
        (SeekTo::After(cursor), Source::Category(_)) => {
            let CategoryCursor { position, trims } = cursor.clone().into();
            (Some(Cursor::Position(position)), trims)
        }
        (SeekTo::Latest, Source::Stream(stream)) => (Some(Cursor::Seq(last_seq(tx, stream)?)), 0),
        (SeekTo::Latest, Source::Category(category)) => {
            (Some(Cursor::Position(tx.look(&Latest(category.clone()))?)), 0)
        }
    })
}

fn last_seq(tx: &mut Tx<'_>, stream: &StreamName) -> Planned<u64> {
    Ok(match stream.task() {
        Some(task) => tx.get::<TaskRow>(&task)?.map_or(0, |row| row.head.last),
        None => tx.get::<StreamRow>(stream)?.map_or(0, |row| row.head.last),
    })
}

pub(super) fn seek(tx: &mut Tx<'_>, seek: &GroupSeek) -> Planned<Done> {
    let group = GroupKey { group: seek.group.clone(), source: seek.source.clone() };
    let (cursor, trims_seen) = target(tx, seek)?;
    let token = tx.get::<GroupRow>(&group)?.map_or(Token::default(), |row| row.token);
    tx.clear(group.clone());
    tx.put(GroupRow { group, cursor, trims_seen, token });
    Ok(Done {})
}

pub(super) fn read(tx: &mut Tx<'_>, read: &GroupRead) -> Planned<Deliveries> {
    let group = GroupKey { group: read.group.clone(), source: read.source.clone() };
    if let Some(events) = out_before(tx, read, &group)? {
        return Ok(Deliveries { events, next_at: None });
    }
    let row = tx.get::<GroupRow>(&group)?;
    let visible = tx.find_deliveries(&DeliverySet::Visible(group.clone()), read.limit as usize)?;
    let unread = unread(tx, read, row.as_deref())?;
    want_events(tx, &visible)?;
    let mut events = Vec::new();
    let all_seen = visible.len() < read.limit as usize;
    let mut out = HandOut { read, token: row.as_ref().map_or(Token::default(), |row| row.token) };
    for row in visible {
        events.extend(deliver_again(tx, &mut out, &row)?);
    }
    let room = (read.limit as usize).saturating_sub(events.len());
    let fresh: Vec<_> = unread.events.iter().take(room).cloned().collect();
    for event in &fresh {
        events.push(deliver(tx, &mut out, &group, event));
    }
    advance(tx, &out, row.as_deref(), fresh.last().map(AsRef::as_ref), &unread);
    let next_at = match events.is_empty() {
        true if all_seen => hidden_until(tx, group)?,
        true => Some(tx.now),
        false => None,
    };
    Ok(Deliveries { events, next_at })
}

/// Sees to it that the events of deliveries are loaded.
fn want_events(tx: &mut Tx<'_>, rows: &[Arc<DeliveryRow>]) -> Planned<()> {
    for row in rows {
        tx.want_look(EventAt { stream: row.stream.clone(), seq: row.seq });
    }
    tx.all_loaded()
}

/// What is still out from an earlier read with the same key.
fn out_before(tx: &mut Tx<'_>, read: &GroupRead, group: &GroupKey) -> Planned<Option<Vec<Delivered>>> {
    let Some(key) = &read.key else { return Ok(None) };
    let set = DeliverySet::Read { group: group.clone(), consumer: read.consumer.clone(), key: key.clone() };
    let rows = tx.find_deliveries(&set, crate::limits::LIST)?;
    want_events(tx, &rows)?;
    let mut events = Vec::new();
    for row in rows {
        if let Some(event) = tx.look(&EventAt { stream: row.stream.clone(), seq: row.seq })? {
            let event = Event::clone(&event);
            events.push(Delivered { event, delivery: row.delivery, delivery_token: row.token });
        }
    }
    Ok(if events.is_empty() { None } else { Some(events) })
}

fn unread(tx: &mut Tx<'_>, read: &GroupRead, row: Option<&GroupRow>) -> Planned<UnreadEvents> {
    let after = row.and_then(|row| row.cursor.clone());
    let unread = tx.look(&Unread { source: read.source.clone(), after, limit: read.limit as usize })?;
    let missed = match row.and_then(|row| Some((row.cursor.as_ref()?, row.trims_seen))) {
        Some((Cursor::Seq(seq), _)) => *seq < unread.oldest,
        Some((Cursor::Position(position), seen)) => unread.trims.missed(position, seen),
        None => false,
    };
    if missed {
        let oldest = match &read.source {
            Source::Stream(_) => unread.oldest.to_string(),
            Source::Category(_) => unread.trims.oldest().to_string(),
        };
        let message = format!("group `{}` has not read events that were trimmed since", read.group);
        return Err(Error::new(ErrorKind::Compacted { oldest }, message)
            .about(&read.group)
            .hint("move the group with a seek; what was trimmed is lost to it")
            .into());
    }
    Ok(unread)
}

/// Moves the group's cursor to the last event that is delivered; its first read fixes it in any case.
fn advance(
    tx: &mut Tx<'_>,
    out: &HandOut<'_>,
    before: Option<&GroupRow>,
    last: Option<&Event>,
    unread: &UnreadEvents,
) {
    let known = before.and_then(|row| row.cursor.clone());
    let group = GroupKey { group: out.read.group.clone(), source: out.read.source.clone() };
    let cursor = match (last, &group.source) {
        (Some(event), Source::Stream(_)) => Cursor::Seq(event.seq),
        (Some(event), Source::Category(_)) => Cursor::Position(event.position.clone()),
        (None, Source::Stream(_)) => known.unwrap_or(Cursor::Seq(unread.oldest)),
        (None, Source::Category(_)) => known.unwrap_or_else(|| Cursor::Position(Position::default())),
    };
    let row = GroupRow { group, cursor: Some(cursor), trims_seen: unread.trims.count(), token: out.token };
    if before != Some(&row) {
        tx.put(row);
    }
}

/// A read that hands out deliveries, each with a token larger than all before in the group.
struct HandOut<'a> {
    read: &'a GroupRead,
    token: Token,
}

fn deliver(tx: &mut Tx<'_>, out: &mut HandOut<'_>, group: &GroupKey, event: &Event) -> Delivered {
    let row = DeliveryRow {
        key: DeliveryKey { group: group.clone(), position: event.position.clone() },
        stream: event.stream.clone(),
        seq: event.seq,
        consumer: String::new(),
        delivery: 0,
        token: Token::default(),
        out: false,
        visible_at: tx.now,
        read_key: None,
    };
    hand_out(tx, out, row, event)
}

fn hand_out(tx: &mut Tx<'_>, out: &mut HandOut<'_>, mut row: DeliveryRow, event: &Event) -> Delivered {
    let read = out.read;
    out.token = Token::next(out.token, tx.now);
    row.consumer.clone_from(&read.consumer);
    row.delivery += 1;
    row.token = out.token;
    row.out = true;
    row.visible_at = tx.now + read.visibility_seconds;
    row.read_key.clone_from(&read.key);
    let delivered = Delivered { event: event.clone(), delivery: row.delivery, delivery_token: row.token };
    tx.put(row);
    delivered
}

/// Delivers once more, or buries.
fn deliver_again(
    tx: &mut Tx<'_>,
    out: &mut HandOut<'_>,
    row: &Arc<DeliveryRow>,
) -> Planned<Option<Delivered>> {
    let read = out.read;
    let event = tx.look(&EventAt { stream: row.stream.clone(), seq: row.seq })?;
    let dead_source = read.source.category() == DEAD_CATEGORY;
    match event {
        Some(event) if row.delivery < read.max_deliveries || dead_source => {
            Ok(Some(hand_out(tx, out, DeliveryRow::clone(row), &event)))
        }
        event => {
            if !dead_source {
                bury(tx, read, row, event.as_deref())?;
            }
            tx.delete::<DeliveryRow>(&row.key);
            Ok(None)
        }
    }
}

fn bury(tx: &mut Tx<'_>, read: &GroupRead, row: &DeliveryRow, event: Option<&Event>) -> Planned<()> {
    let place = json!({ "stream": row.stream, "seq": row.seq, "position": row.key.position });
    let (reason, what) = match event {
        Some(event) => ("max_deliveries", super::tx::data(event)),
        None => ("compacted", super::tx::data(&place)),
    };
    let letter = DeadLetter { reason, delivery: row.delivery, consumer: &row.consumer, event: what };
    streams::write(tx, &StreamName::trusted(DEAD_CATEGORY, &read.group), "dead_letter", &letter)
}

#[derive(serde::Serialize)]
struct DeadLetter<'a> {
    reason: &'static str,
    delivery: u32,
    consumer: &'a str,
    event: Option<crate::Json>,
}

fn hidden_until(tx: &mut Tx<'_>, group: GroupKey) -> Planned<Option<crate::Timestamp>> {
    let hidden = tx.find_deliveries(&DeliverySet::Hidden(group), 1)?;
    Ok(hidden.first().map(|row| row.visible_at))
}
