//! Consumer groups: shared reading with redelivery.

use serde_json::{Value, json};
use statehold_core::call::{Deliveries, GroupRead};
use statehold_core::command::{Ack, GroupAck, GroupNack, GroupSeek, SeekTo};
use statehold_core::model::{DEAD_CATEGORY, Delivered, Event, Position, Source, StreamName, Token};
use statehold_core::row::{Cursor, DeliveryKey, GroupKey};
use statehold_core::{Result, Seconds, Timestamp};

use super::commit::{Commit, json_of};
use super::state::{Delivery, Group, State};
use super::streams::compacted;
use super::tasks::fenced;

pub(super) fn group_key(group: &str, source: &Source) -> GroupKey {
    GroupKey { group: group.to_owned(), source: source.clone() }
}

impl State {
    /// A delivery whose token is the current one.
    pub(super) fn judge_delivery(
        &self,
        group: &str,
        source: &Source,
        position: &Position,
        token: Token,
    ) -> Result<&Delivery> {
        let key = DeliveryKey { group: group_key(group, source), position: position.clone() };
        let current = self.deliveries.get(&key).filter(|delivery| delivery.out && delivery.token == token);
        current.ok_or_else(|| fenced(None, None))
    }

    pub(super) fn judge_ack(&self, ack: Ack<'_>) -> Result<()> {
        for delivery in ack.deliveries {
            self.judge_delivery(ack.group, ack.source, &delivery.position, delivery.delivery_token)?;
        }
        Ok(())
    }

    /// The deliveries of a group, in the order of positions.
    pub(super) fn deliveries_of(&self, group: &GroupKey) -> Vec<(DeliveryKey, Delivery)> {
        let own = self.deliveries.iter().filter(|(key, _)| key.group == *group);
        own.map(|(key, delivery)| (key.clone(), delivery.clone())).collect()
    }

    /// The cursor before all that is there.
    fn oldest(&self, source: &Source) -> Cursor {
        match source {
            Source::Stream(stream) => Cursor::Seq(self.streams.get(stream).map_or(0, |stream| stream.oldest)),
            Source::Category(_) => Cursor::Position(Position::default()),
        }
    }

    /// The cursor after which there is nothing yet.
    fn latest(&self, source: &Source) -> Cursor {
        match source {
            Source::Stream(stream) => Cursor::Seq(self.streams.get(stream).map_or(0, |stream| stream.last)),
            Source::Category(category) => {
                let newest = self.category(category).last().map(|event| &event.position);
                Cursor::Position(newest.max(self.mark(category)).cloned().unwrap_or_default())
            }
        }
    }

    /// Refuses a cursor after which events were trimmed before the group read them.
    fn judge_cursor(&self, source: &Source, cursor: &Cursor, seen: usize) -> Result<()> {
        match (source, cursor) {
            (Source::Category(category), Cursor::Position(position)) => {
                self.judge_place(category, position, seen)
            }
            (_, cursor) if *cursor < self.oldest(source) => Err(compacted(self.oldest(source))),
            _ => Ok(()),
        }
    }

    fn unread(&self, source: &Source, cursor: &Cursor) -> Vec<Event> {
        let events = match source {
            Source::Stream(stream) => {
                self.streams.get(stream).map(|stream| stream.events.iter().collect()).unwrap_or_default()
            }
            Source::Category(category) => self.category(category),
        };
        events.into_iter().filter(|event| cursor_of(source, event) > *cursor).cloned().collect()
    }
}

fn cursor_of(source: &Source, event: &Event) -> Cursor {
    match source {
        Source::Stream(_) => Cursor::Seq(event.seq),
        Source::Category(_) => Cursor::Position(event.position.clone()),
    }
}

impl Commit {
    pub(super) fn ack(&mut self, ack: &GroupAck) {
        for delivery in &ack.deliveries {
            let group = group_key(&ack.group, &ack.source);
            self.state.deliveries.remove(&DeliveryKey { group, position: delivery.position.clone() });
        }
    }

    pub(super) fn nack(&mut self, nack: &GroupNack) {
        let visible_at = self.now + nack.delay_seconds.unwrap_or(Seconds::ZERO);
        for delivery in &nack.deliveries {
            let group = group_key(&nack.group, &nack.source);
            let key = DeliveryKey { group, position: delivery.position.clone() };
            let known = self.state.deliveries.get_mut(&key).expect("the delivery was judged");
            known.out = false;
            known.visible_at = visible_at;
        }
    }

    pub(super) fn seek(&mut self, seek: &GroupSeek) {
        let group = group_key(&seek.group, &seek.source);
        let cursor = match (&seek.to, &seek.source) {
            (SeekTo::Oldest, _) => None,
            (SeekTo::Latest, source) => Some(self.state.latest(source)),
            (SeekTo::After(seq), Source::Stream(_)) => {
                Some(Cursor::Seq(seq.parse().expect("a checked number")))
            }
            (SeekTo::After(position), Source::Category(_)) => {
                Some(Cursor::Position(Position(position.clone())))
            }
        };
        self.state.deliveries.retain(|key, _| key.group != group);
        let plain = matches!(seek.to, SeekTo::After(_));
        let trims_seen = if plain { 0 } else { self.state.trims_of(seek.source.category()) };
        let token = self.state.groups.get(&group).map_or(Token(0), |known| known.token);
        self.state.groups.insert(group, Group { cursor, trims_seen, token });
    }

    pub(super) fn group_read(&mut self, read: &GroupRead) -> Result<Deliveries> {
        let group = group_key(&read.group, &read.source);
        let again = self.still_out(&group, read);
        if !again.is_empty() {
            return Ok(Deliveries { events: again, next_at: None });
        }
        let cursor = self.fixed_cursor(&group)?;
        let (mut events, looked) = self.redeliver(&group, read);
        let limit = read.limit as usize;
        for event in self.state.unread(&read.source, &cursor).into_iter().take(limit - events.len()) {
            let cursor = Some(cursor_of(&read.source, &event));
            self.state.groups.entry(group.clone()).or_default().cursor = cursor;
            events.push(self.deliver(&group, read, event));
        }
        let next_at = if looked == limit { Some(self.now) } else { self.next_visible(&group) };
        Ok(Deliveries { next_at: next_at.filter(|_| events.is_empty()), events })
    }

    /// When the next delivery is visible again.
    fn next_visible(&self, group: &GroupKey) -> Option<Timestamp> {
        let deliveries = self.state.deliveries_of(group).into_iter();
        deliveries.map(|(_, delivery)| delivery.visible_at).filter(|at| *at > self.now).min()
    }

    /// What is still out from this consumer's earlier read with the same key.
    fn still_out(&self, group: &GroupKey, read: &GroupRead) -> Vec<Delivered> {
        let own = |delivery: &Delivery| {
            read.key.is_some()
                && delivery.read_key == read.key
                && delivery.consumer == read.consumer
                && delivery.out
                && delivery.visible_at > self.now
        };
        let out = self.state.deliveries_of(group).into_iter().filter(|(_, delivery)| own(delivery));
        let again = out.filter_map(|(_, delivery)| {
            let event = self.state.event(&delivery.stream, delivery.seq)?.clone();
            Some(Delivered { event, delivery: delivery.times, delivery_token: delivery.token })
        });
        let (again, first): (Vec<_>, Vec<_>) = again.partition(|delivered| delivered.delivery > 1);
        again.into_iter().chain(first).collect()
    }

    /// Where the group is: its first read fixes the cursor at the oldest event.
    fn fixed_cursor(&mut self, group: &GroupKey) -> Result<Cursor> {
        let known = self.state.groups.get(group).cloned().unwrap_or_default();
        if let Some(cursor) = &known.cursor {
            self.state.judge_cursor(&group.source, cursor, known.trims_seen)?;
        }
        let cursor = known.cursor.clone().unwrap_or_else(|| self.state.oldest(&group.source));
        let trims_seen = self.state.trims_of(group.source.category());
        self.state.groups.insert(group.clone(), Group { cursor: Some(cursor.clone()), trims_seen, ..known });
        Ok(cursor)
    }

    /// Looks at what is visible again; answers what is delivered, and how many it looked at.
    fn redeliver(&mut self, group: &GroupKey, read: &GroupRead) -> (Vec<Delivered>, usize) {
        let mut visible = self.state.deliveries_of(group);
        visible.retain(|(_, delivery)| delivery.visible_at <= self.now);
        visible.sort_by_key(|(key, delivery)| (delivery.visible_at, key.position.clone()));
        visible.truncate(read.limit as usize);
        let looked = visible.len();
        let mut delivered = Vec::new();
        for (key, delivery) in visible {
            let event = self.state.event(&delivery.stream, delivery.seq).cloned();
            let from_dead = read.source.category() == DEAD_CATEGORY;
            match event {
                Some(event) if from_dead || delivery.times < read.max_deliveries => {
                    delivered.push(self.deliver(group, read, event));
                }
                event => {
                    self.state.deliveries.remove(&key);
                    if !from_dead {
                        self.bury(&key, &delivery, event.as_ref());
                    }
                }
            }
        }
        (delivered, looked)
    }

    fn deliver(&mut self, group: &GroupKey, read: &GroupRead, event: Event) -> Delivered {
        let key = DeliveryKey { group: group.clone(), position: event.position.clone() };
        let delivery = 1 + self.state.deliveries.get(&key).map_or(0, |before| before.times);
        let known = self.state.groups.entry(group.clone()).or_default();
        known.token = Token::next(known.token, self.now);
        let delivery_token = known.token;
        let known = Delivery {
            stream: event.stream.clone(),
            seq: event.seq,
            consumer: read.consumer.clone(),
            times: delivery,
            token: delivery_token,
            out: true,
            visible_at: self.now + read.visibility_seconds,
            read_key: read.key.clone(),
        };
        self.state.deliveries.insert(key, known);
        Delivered { event, delivery, delivery_token }
    }

    /// Writes a dead letter.
    fn bury(&mut self, key: &DeliveryKey, delivery: &Delivery, event: Option<&Event>) {
        let reason = if event.is_some() { "max_deliveries" } else { "compacted" };
        let place = json!({"stream": delivery.stream, "seq": delivery.seq, "position": key.position});
        let event = event.map_or(place, |event| serde_json::to_value(event).unwrap_or(Value::Null));
        let data = json!({
            "reason": reason,
            "delivery": delivery.times,
            "consumer": delivery.consumer,
            "event": event,
        });
        let dead = StreamName::new(DEAD_CATEGORY, &key.group.group).expect("a group can name a stream");
        self.append(&dead, "dead_letter", Some(json_of(&data)));
    }
}
