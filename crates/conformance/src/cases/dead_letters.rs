//! Dead letters: what happens to events that nobody acknowledges.

use serde_json::json as value;
use statehold_core::Json;
use statehold_core::call::{Deliveries, GroupRead};
use statehold_core::command::{GroupAck, GroupNack, NewEvent, StreamAppend, StreamTrim, TrimTo};
use statehold_core::model::{Delivered, Source};

use crate::harness::{Store, json, proof, refused, stream};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    what_was_delivered_too_often_becomes_a_dead_letter,
    a_dead_letter_is_delivered_no_more,
    dead_letters_do_not_count_for_the_limit,
    a_read_looks_at_as_many_deliveries_as_it_may_give,
    each_read_says_how_often_is_too_often,
    what_was_trimmed_while_out_becomes_a_dead_letter,
    what_was_trimmed_waits_for_its_visibility,
    dead_letters_of_a_category_keep_their_stream,
    nothing_in_category_dead_becomes_a_dead_letter,
    what_was_trimmed_in_category_dead_is_dropped,
    dead_letters_are_numbered_like_any_stream,
];

fn source() -> Source {
    Source::Stream(stream("in/1"))
}

async fn read(store: &Store, source: &Source, max_deliveries: u32) -> Deliveries {
    let read = GroupRead { max_deliveries, ..GroupRead::new(&store.namespace, "g", source.clone(), "c") };
    store.backend.group_read(read).await.expect("the group is read")
}

fn seqs(delivered: &[Delivered]) -> Vec<u64> {
    delivered.iter().map(|delivered| delivered.event.seq).collect()
}

async fn trim_all(store: &Store, name: &str) {
    store.run(StreamTrim { stream: stream(name), to: TrimTo::Length(0) }).await.expect("trimmed");
}

async fn what_was_delivered_too_often_becomes_a_dead_letter(store: Store) {
    let events =
        vec![NewEvent { kind: "order".into(), data: Some(json(r#"{"n":12345678901234567890,"x":[]}"#)) }];
    let mut batch = store.batch().actor("alice");
    batch.add(StreamAppend { stream: stream("in/1"), events, expect_seq: None });
    store.apply(batch).await.expect("appended");
    for delivery in 1..=2 {
        let out = read(&store, &source(), 2).await.events;
        assert_eq!(out[0].delivery, delivery);
        store.clock.advance(30);
    }
    assert_eq!(store.events(&stream("dead/g")).await, []);
    let reading = GroupRead::new(&store.namespace, "g", source(), "finder");
    let found = store.backend.group_read(GroupRead { max_deliveries: 2, ..reading }).await;
    assert_eq!(found, Ok(Deliveries::default()));
    let dead = store.events(&stream("dead/g")).await;
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].kind.as_str(), dead[0].seq, dead[0].at), ("dead_letter", 1, store.now()));
    assert_eq!(dead[0].actor, None);
    let event = Json::of(&store.events(&stream("in/1")).await[0]).expect("JSON");
    let expected =
        format!(r#"{{"reason":"max_deliveries","delivery":2,"consumer":"c","event":{}}}"#, event.as_str());
    assert_eq!(dead[0].data, Some(json(&expected)), "the whole event, numbers as they came");
}

async fn a_dead_letter_is_delivered_no_more(store: Store) {
    store.append("in/1", &["a"]).await;
    let out = read(&store, &source(), 1).await.events;
    store.clock.advance(30);
    read(&store, &source(), 1).await;
    let info = store.backend.group_info(&store.namespace, "g", &source()).await.expect("info");
    assert_eq!((info.pending, info.cursor.as_deref()), (0, Some("1")));
    let ack = GroupAck { group: "g".into(), source: source(), deliveries: vec![proof(&out[0])] };
    refused(store.run(ack).await, "fenced");
    store.clock.advance(3600);
    assert_eq!(read(&store, &source(), 9).await, Deliveries::default());
    assert_eq!(store.events(&stream("dead/g")).await.len(), 1);
}

async fn dead_letters_do_not_count_for_the_limit(store: Store) {
    store.append("in/1", &["a", "b", "c", "d"]).await;
    let reading =
        GroupRead { limit: 2, max_deliveries: 1, ..GroupRead::new(&store.namespace, "g", source(), "c") };
    store.backend.group_read(reading.clone()).await.expect("read");
    store.clock.advance(30);
    let out = store.backend.group_read(reading).await.expect("read").events;
    assert_eq!(seqs(&out), [3, 4]);
    assert_eq!(store.events(&stream("dead/g")).await.len(), 2);
}

async fn a_read_looks_at_as_many_deliveries_as_it_may_give(store: Store) {
    store.append("in/1", &["a", "b", "c", "d"]).await;
    let reading = GroupRead { max_deliveries: 1, ..GroupRead::new(&store.namespace, "g", source(), "c") };
    let three = GroupRead { limit: 3, ..reading.clone() };
    store.backend.group_read(three).await.expect("read");
    store.clock.advance(30);
    let two = GroupRead { limit: 2, ..reading };
    assert_eq!(seqs(&store.backend.group_read(two.clone()).await.expect("read").events), [4]);
    assert_eq!(store.events(&stream("dead/g")).await.len(), 2, "the third is looked at next time");
    assert_eq!(store.backend.group_read(two).await.expect("read").events, []);
    assert_eq!(store.events(&stream("dead/g")).await.len(), 3);
}

async fn each_read_says_how_often_is_too_often(store: Store) {
    store.append("in/1", &["a"]).await;
    for delivery in 1..=3 {
        let out = read(&store, &source(), 5).await.events;
        assert_eq!(out[0].delivery, delivery);
        let nack = GroupNack {
            group: "g".into(),
            source: source(),
            deliveries: vec![proof(&out[0])],
            delay_seconds: None,
        };
        store.run(nack).await.expect("given back");
    }
    assert_eq!(read(&store, &source(), 3).await.events, []);
    let dead = store.events(&stream("dead/g")).await;
    let data: serde_json::Value = dead[0].data.as_ref().expect("data").to().expect("JSON");
    assert_eq!((&data["delivery"], &data["reason"]), (&value!(3), &value!("max_deliveries")));
}

async fn what_was_trimmed_while_out_becomes_a_dead_letter(store: Store) {
    store.append("in/1", &["a", "b"]).await;
    let out = read(&store, &source(), 5).await.events;
    store.run(StreamTrim { stream: stream("in/1"), to: TrimTo::After(1) }).await.expect("trimmed");
    store.clock.advance(30);
    let again = read(&store, &source(), 5).await;
    assert_eq!(seqs(&again.events), [2]);
    let dead = store.events(&stream("dead/g")).await;
    assert_eq!(dead.len(), 1);
    let data: serde_json::Value = dead[0].data.as_ref().expect("data").to().expect("JSON");
    let event = value!({"stream": "in/1", "seq": 1, "position": out[0].event.position.0});
    let expected = value!({"reason": "compacted", "delivery": 1, "consumer": "c", "event": event});
    assert_eq!(data, expected);
    let info = store.backend.group_info(&store.namespace, "g", &source()).await.expect("info");
    assert_eq!(info.pending, 1);
}

async fn what_was_trimmed_waits_for_its_visibility(store: Store) {
    store.append("in/1", &["a"]).await;
    read(&store, &source(), 5).await;
    trim_all(&store, "in/1").await;
    let empty = read(&store, &source(), 5).await;
    assert_eq!((empty.events.len(), empty.next_at), (0, Some(store.now() + 30.into())));
    assert_eq!(store.events(&stream("dead/g")).await, [], "its consumer may still acknowledge it");
    store.clock.advance(30);
    assert_eq!(read(&store, &source(), 5).await, Deliveries::default());
    assert_eq!(store.events(&stream("dead/g")).await.len(), 1);
}

async fn dead_letters_of_a_category_keep_their_stream(store: Store) {
    store.append("in/1", &["a"]).await;
    store.append("in/2", &["b"]).await;
    let category = Source::Category("in".into());
    read(&store, &category, 1).await;
    trim_all(&store, "in/1").await;
    store.clock.advance(30);
    assert_eq!(read(&store, &category, 1).await.events, []);
    let mut letters = Vec::new();
    for event in store.events(&stream("dead/g")).await {
        let data: serde_json::Value = event.data.expect("data").to().expect("JSON");
        letters.push((
            data["reason"].clone(),
            data["event"]["stream"].clone(),
            data["event"]["type"].clone(),
        ));
    }
    let trimmed = (value!("compacted"), value!("in/1"), value!(null));
    let repeated = (value!("max_deliveries"), value!("in/2"), value!("b"));
    assert_eq!(letters, [trimmed, repeated], "in the order of their positions");
}

async fn nothing_in_category_dead_becomes_a_dead_letter(store: Store) {
    store.append("dead/h", &["dead_letter"]).await;
    for source in [Source::Stream(stream("dead/h")), Source::Category("dead".into())] {
        for delivery in 1..=4 {
            let out = read(&store, &source, 1).await.events;
            assert_eq!(seqs(&out), [1]);
            assert_eq!(out[0].delivery, delivery, "it is delivered again instead");
            store.clock.advance(30);
        }
    }
    assert_eq!(store.events(&stream("dead/g")).await, []);
}

async fn what_was_trimmed_in_category_dead_is_dropped(store: Store) {
    store.append("dead/h", &["dead_letter", "dead_letter"]).await;
    let source = Source::Stream(stream("dead/h"));
    assert_eq!(read(&store, &source, 5).await.events.len(), 2);
    store.run(StreamTrim { stream: stream("dead/h"), to: TrimTo::After(1) }).await.expect("trimmed");
    store.clock.advance(30);
    assert_eq!(seqs(&read(&store, &source, 5).await.events), [2]);
    let info = store.backend.group_info(&store.namespace, "g", &source).await.expect("info");
    assert_eq!(info.pending, 1);
    assert_eq!(store.events(&stream("dead/g")).await, []);
}

async fn dead_letters_are_numbered_like_any_stream(store: Store) {
    store.append("dead/g", &["note"]).await;
    store.append("in/1", &["a", "b", "c"]).await;
    read(&store, &source(), 1).await;
    store.clock.advance(30);
    read(&store, &source(), 1).await;
    let dead = store.events(&stream("dead/g")).await;
    assert!(dead.iter().map(|event| event.seq).eq(1..=4));
    let mut seqs = Vec::new();
    for letter in &dead[1..] {
        let data: serde_json::Value = letter.data.as_ref().expect("data").to().expect("JSON");
        seqs.push(data["event"]["seq"].clone());
    }
    assert_eq!(seqs, [value!(1), value!(2), value!(3)]);
    let letters = store.deliver("undertaker", &Source::Stream(stream("dead/g")), "c").await;
    assert_eq!(letters.len(), 4, "dead letters can be consumed");
}
