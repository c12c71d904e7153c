//! Lookups about streams and pollers, which take one load each.

use std::collections::BTreeSet;
use std::mem::take;
use std::sync::Arc;

use statehold_core::Timestamp;
use statehold_core::model::{Position, Source};
use statehold_core::plan::{Cut, CutAt, CutPoint, EventAt, Latest, Needs, Polled, Unread, UnreadEvents};
use statehold_core::row::{Cursor, PollerRow, Trims};

use crate::connection::{RowKey, read_bytes, read_found};
use crate::error::{Result, odd};
use crate::queues;
use crate::rows::read;
use crate::snapshot::{Loading, Scene};
use crate::streams::{self, read_events};

/// Adds all of them to a load.
pub(crate) fn streams<'a>(loading: &mut Loading<'a>, scene: Scene<'a>, needs: &mut Needs) {
    for lookup in take(&mut needs.cuts) {
        cut(loading, scene, lookup);
    }
    for lookup in take(&mut needs.unread) {
        unread(loading, scene, lookup);
    }
    events_at(loading, scene, take(&mut needs.events_at));
    for lookup in take(&mut needs.latest) {
        latest(loading, scene, lookup);
    }
    for lookup in take(&mut needs.polled) {
        polled(loading, scene, lookup);
    }
}

/// Where a stream would be cut. Its head is read too, and changes with everything that happens to it.
fn cut<'a>(loading: &mut Loading<'a>, scene: Scene<'a>, cut: Cut) {
    match cut.at {
        CutAt::Seq(up_to) => {
            let call = streams::events_after(&scene, &cut.stream, up_to, 1);
            loading.add(call, move |snapshot, answer| {
                let next = read_events(&cut.stream, answer)?;
                let oldest_at = next.first().map(|event| event.at);
                snapshot.rows.answer(cut, CutPoint { up_to, oldest_at });
                Ok(())
            });
        }
        CutAt::Time(time) => {
            let mut call = scene.db.reading("since", &[scene.space.events(&cut.stream)]);
            call.arg(time.as_micros());
            loading.add(call, move |snapshot, answer| {
                let found: Vec<i64> = redis::from_redis_value(answer).map_err(|_| odd("an event"))?;
                let number = |seq: i64| u64::try_from(seq).unwrap_or_default();
                let point = match found.as_slice() {
                    [seq, at] => CutPoint {
                        up_to: number(*seq).saturating_sub(1),
                        oldest_at: Some(Timestamp::from_micros(*at)),
                    },
                    [last] => CutPoint { up_to: number(*last), oldest_at: None },
                    _ => return Err(odd("an event")),
                };
                snapshot.rows.answer(cut, point);
                Ok(())
            });
        }
    }
}

/// Events that a group has not read. More of them may come before the commit, but none of these may go.
fn unread<'a>(loading: &mut Loading<'a>, scene: Scene<'a>, unread: Unread) {
    match unread.source.clone() {
        Source::Stream(stream) => {
            let seq = if let Some(Cursor::Seq(seq)) = &unread.after { *seq } else { 0 };
            let [head, events] = streams::page_calls(&scene, &stream, seq, unread.limit);
            let trims = streams::get_trims(scene.space, stream.category());
            loading.add_all([head, events, trims], move |snapshot, [head, events, trims]| {
                let oldest = streams::read_head(&stream, read_bytes(head)?.as_deref())?.oldest;
                let events = read_events(&stream, events)?.into_iter().map(Arc::new).collect();
                let stored = read_bytes(trims)?.unwrap_or_default();
                snapshot.seen.trims.entry(stream.category().to_owned()).or_insert(stored);
                snapshot.rows.answer(unread, UnreadEvents { events, oldest, trims: Trims::default() });
                Ok(())
            });
        }
        Source::Category(category) => {
            let start = Position::default();
            let after = if let Some(Cursor::Position(after)) = &unread.after { after } else { &start };
            let call = streams::category_after(&scene, &category, after, unread.limit);
            loading.add(call, move |snapshot, answer| {
                let (events, stored) = streams::read_category_events(answer)?;
                let trims = streams::read_trims(&stored);
                snapshot.seen.trims.entry(category).or_insert(stored);
                let events = events.into_iter().map(Arc::new).collect();
                snapshot.rows.answer(unread, UnreadEvents { events, oldest: 0, trims });
                Ok(())
            });
        }
    }
}

/// Single events.
fn events_at<'a>(loading: &mut Loading<'a>, scene: Scene<'a>, places: BTreeSet<EventAt>) {
    let categories: BTreeSet<_> = places.iter().map(|place| place.stream.category().to_owned()).collect();
    for category in categories {
        loading.add(streams::get_trims(scene.space, &category), move |snapshot, answer| {
            let stored = read_bytes(answer)?.unwrap_or_default();
            snapshot.seen.trims.entry(category).or_insert(stored);
            Ok(())
        });
    }
    for place in places {
        let call = streams::events_after(&scene, &place.stream, place.seq.saturating_sub(1), 1);
        loading.add(call, move |snapshot, answer| {
            let found = read_events(&place.stream, answer)?.into_iter().next();
            let event = found.filter(|event| event.seq == place.seq).map(Arc::new);
            snapshot.rows.answer(place, event);
            Ok(())
        });
    }
}

fn latest<'a>(loading: &mut Loading<'a>, scene: Scene<'a>, latest: Latest) {
    loading.add_all(streams::latest_calls(&scene, &latest.0), move |snapshot, [trims, last]| {
        let (position, _) = streams::read_latest(&latest.0, trims, last)?;
        snapshot.rows.answer(latest, position);
        Ok(())
    });
}

/// Who asked a queue for work is only looked at.
fn polled<'a>(loading: &mut Loading<'a>, scene: Scene<'a>, polled: Polled) {
    let call = scene.db.range(scene.space, &queues::pollers(&polled.0), usize::MAX >> 1, RowKey::OWN);
    loading.add(call, move |snapshot, answer| {
        let rows = read_found(answer)?.rows.into_iter().flatten();
        let times: Result<Vec<_>> = rows.map(|stored| read::<PollerRow>(&stored).map(|row| row.at)).collect();
        let last = times?.into_iter().max();
        snapshot.rows.answer(polled, last);
        Ok(())
    });
}
