//! Subscriptions: what is there, then what comes, each event once and in order.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{code, json, on_every_store, random, soon, stream};
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use statehold::core::command::TrimTo;
use statehold::core::model::Event;
use statehold::{From, NewEvent, Result, Statehold, StreamName};

const WRITERS: u64 = 4;
const EACH: u64 = 200;

/// Begins to append, each writer some events at a time, all of them numbered.
fn write(hold: &Statehold, name: impl Fn(u64) -> StreamName) {
    for writer in 0..WRITERS {
        let (hold, name) = (hold.clone(), name(writer));
        tokio::spawn(async move {
            let mut next = 0;
            while next < EACH {
                let some = (1 + random(5)).min(EACH - next);
                let event = |number| NewEvent::new("numbered").data(json(&(writer, number)));
                hold.streams().append(&name, (next..next + some).map(event).collect()).await.unwrap();
                next += some;
                if random(4) == 0 {
                    tokio::time::sleep(Duration::from_micros(random(3000))).await;
                }
            }
        });
    }
}

async fn next(events: &mut (impl Stream<Item = Result<Event>> + Unpin)) -> Event {
    soon(events.next()).await.expect("it goes on").unwrap()
}

/// Reads all that the writers write, and requires that each writer's come in order, once.
async fn read_all(events: &mut (impl Stream<Item = Result<Event>> + Unpin)) -> Vec<Event> {
    let mut read = Vec::new();
    let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
    for _ in 0..WRITERS * EACH {
        let event = next(events).await;
        let (writer, number): (u64, u64) = event.data.as_ref().unwrap().to().unwrap();
        let expected = expected.entry(writer).or_default();
        assert_eq!(number, *expected, "of writer {writer}, nothing twice and nothing left out");
        *expected += 1;
        read.push(event);
    }
    read
}

#[test]
fn a_subscription_replays_and_goes_on_without_gap_or_double_while_many_write() {
    on_every_store(async |hold, _| {
        let log = stream("log/1");
        hold.streams().append(&log, vec![NewEvent::new("before"); 3]).await.unwrap();
        let mut early = Box::pin(hold.streams().subscribe(&log, From::After(1)));
        write(&hold, |_| stream("log/1"));
        for seq in [2, 3] {
            assert_eq!(next(&mut early).await.seq, seq);
        }
        let read = read_all(&mut early).await;
        assert!(read.iter().map(|event| event.seq).eq(4..4 + WRITERS * EACH), "no gap");

        let late: Vec<_> = hold.streams().subscribe(&log, From::Oldest).take(3 + read.len()).collect().await;
        let late: Vec<_> = late.into_iter().map(Result::unwrap).collect();
        assert_eq!(late[3..], read, "whoever comes later reads the same");
        assert!(early.next().now_or_never().is_none(), "then it waits");
    });
}

#[test]
fn a_subscription_to_a_category_gives_each_stream_in_its_order_to_all_alike() {
    on_every_store(async |hold, _| {
        let mut live = Box::pin(hold.streams().subscribe_category("run", From::Oldest));
        write(&hold, |writer| stream(&format!("run/{writer}")));
        let read = read_all(&mut live).await;
        let replayed: Vec<_> =
            hold.streams().subscribe_category("run", From::Oldest).take(read.len()).collect().await;
        let replayed: Vec<_> = replayed.into_iter().map(Result::unwrap).collect();
        assert_eq!(replayed, read, "the order is the same for everyone");

        let middle = &read[read.len() / 2];
        let after = From::After(middle.position.clone().into());
        let rest = hold.streams().subscribe_category("run", after).take(read.len() / 2 - 1);
        let rest: Vec<_> = rest.map(Result::unwrap).collect().await;
        assert_eq!(rest, read[read.len() / 2 + 1..]);
    });
}

#[test]
fn from_now_gives_what_comes_and_nothing_before() {
    on_every_store(async |hold, _| {
        let log = stream("run/1");
        hold.streams().append(&log, vec![NewEvent::new("before"); 5]).await.unwrap();
        let mut of_stream = Box::pin(hold.streams().subscribe(&log, From::Now));
        let mut of_category = Box::pin(hold.streams().subscribe_category("run", From::Now));
        let mut of_nothing = Box::pin(hold.streams().subscribe(&stream("run/2"), From::Now));
        // It begins when it is first asked.
        let first = tokio::time::timeout(Duration::from_millis(200), of_stream.next()).await;
        assert!(first.is_err(), "nothing has come: {first:?}");
        assert!(tokio::time::timeout(Duration::from_millis(200), of_category.next()).await.is_err());
        assert!(tokio::time::timeout(Duration::from_millis(200), of_nothing.next()).await.is_err());
        hold.streams().append(&log, vec![NewEvent::new("after")]).await.unwrap();
        hold.streams().append(&stream("run/2"), vec![NewEvent::new("first")]).await.unwrap();
        assert_eq!(next(&mut of_stream).await.seq, 6);
        assert_eq!(next(&mut of_category).await.kind, "after");
        assert_eq!(next(&mut of_category).await.kind, "first");
        assert_eq!(next(&mut of_nothing).await.kind, "first");
    });
}

#[test]
fn a_subscription_whose_next_event_was_trimmed_ends_with_that() {
    on_every_store(async |hold, _| {
        let log = stream("run/1");
        hold.streams().append(&log, vec![NewEvent::new("e")]).await.unwrap();
        let mut of_stream = Box::pin(hold.streams().subscribe(&log, From::Oldest));
        let mut of_category = Box::pin(hold.streams().subscribe_category("run", From::Oldest));
        assert_eq!(next(&mut of_stream).await.seq, 1);
        assert_eq!(next(&mut of_category).await.seq, 1);
        hold.streams().append(&log, vec![NewEvent::new("e"); 9]).await.unwrap();
        hold.streams().trim(&log, TrimTo::Length(2)).await.unwrap();
        assert_eq!(code(soon(of_stream.next()).await.unwrap()), "compacted");
        assert!(of_stream.next().await.is_none(), "and that is its end");
        assert_eq!(code(soon(of_category.next()).await.unwrap()), "compacted");
        assert!(of_category.next().await.is_none());
        let mut again = Box::pin(hold.streams().subscribe(&log, From::Oldest));
        assert_eq!(next(&mut again).await.seq, 9, "from the oldest there is one begins well");
    });
}
