//! Acknowledging deliveries and giving them back.

use statehold_core::Result;
use statehold_core::batch::{Batch, Fence};
use statehold_core::call::GroupRead;
use statehold_core::command::{
    DeliveryRef, DocumentPut, Done, GroupAck, GroupNack, GroupSeek, SeekTo, StreamTrim, TrimTo,
};
use statehold_core::error::Place;
use statehold_core::model::{Delivered, Position, Source, Token};

use crate::harness::{Store, json, proof, refused, stream};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    what_is_acknowledged_is_not_delivered_again,
    an_ack_after_the_visibility_counts_while_nobody_else_got_it,
    what_was_delivered_again_cannot_be_acknowledged_with_the_old_token,
    what_was_acknowledged_given_back_or_sought_is_fenced,
    an_unknown_delivery_is_fenced,
    one_lost_delivery_refuses_them_all,
    what_is_given_back_is_delivered_again_at_once,
    what_is_given_back_with_a_delay_comes_later,
    what_is_visible_again_comes_in_the_order_in_which_it_became_so,
    giving_back_counts_as_a_delivery,
    a_trimmed_event_can_be_acknowledged,
    an_ack_goes_together_with_what_was_done,
    an_ack_moves_no_cursor,
];

fn source() -> Source {
    Source::Stream(stream("in/1"))
}

async fn ack(store: &Store, deliveries: &[&Delivered]) -> Result<Done> {
    let deliveries = deliveries.iter().map(|delivered| proof(delivered)).collect();
    store.run(GroupAck { group: "g".into(), source: source(), deliveries }).await
}

async fn nack(store: &Store, delivered: &Delivered, delay: Option<u64>) -> Result<Done> {
    let (deliveries, delay_seconds) = (vec![proof(delivered)], delay.map(Into::into));
    store.run(GroupNack { group: "g".into(), source: source(), deliveries, delay_seconds }).await
}

async fn read(store: &Store) -> Vec<Delivered> {
    store.deliver("g", &source(), "c").await
}

fn seqs(delivered: &[Delivered]) -> Vec<u64> {
    delivered.iter().map(|delivered| delivered.event.seq).collect()
}

async fn pending(store: &Store) -> u64 {
    store.backend.group_info(&store.namespace, "g", &source()).await.expect("info").pending
}

async fn what_is_acknowledged_is_not_delivered_again(store: Store) {
    store.append("in/1", &["a", "b", "c"]).await;
    let out = read(&store).await;
    ack(&store, &[&out[0], &out[2]]).await.expect("acknowledged");
    assert_eq!(pending(&store).await, 1);
    store.clock.advance(30);
    assert_eq!(seqs(&read(&store).await), [2]);
}

async fn an_ack_after_the_visibility_counts_while_nobody_else_got_it(store: Store) {
    store.append("in/1", &["a", "b"]).await;
    let out = read(&store).await;
    store.clock.advance(3600);
    ack(&store, &[&out[0]]).await.expect("nobody else got it");
    nack(&store, &out[1], Some(10)).await.expect("nobody else got it");
    assert_eq!(seqs(&read(&store).await), [0; 0]);
    store.clock.advance(10);
    assert_eq!(seqs(&read(&store).await), [2]);
}

async fn what_was_delivered_again_cannot_be_acknowledged_with_the_old_token(store: Store) {
    store.append("in/1", &["a"]).await;
    let first = read(&store).await;
    store.clock.advance(30);
    let second = read(&store).await;
    let error = refused(ack(&store, &[&first[0]]).await, "fenced");
    assert_eq!(error.place(), Some(Place::Command(0)));
    refused(nack(&store, &first[0], None).await, "fenced");
    ack(&store, &[&second[0]]).await.expect("the current token");
}

async fn what_was_acknowledged_given_back_or_sought_is_fenced(store: Store) {
    store.append("in/1", &["a", "b", "c"]).await;
    let out = read(&store).await;
    ack(&store, &[&out[0]]).await.expect("acknowledged");
    nack(&store, &out[1], Some(60)).await.expect("given back");
    for spent in &out[..2] {
        refused(ack(&store, &[spent]).await, "fenced");
        refused(nack(&store, spent, None).await, "fenced");
    }
    let seek = GroupSeek { group: "g".into(), source: source(), to: SeekTo::Latest };
    store.run(seek).await.expect("sought");
    refused(ack(&store, &[&out[2]]).await, "fenced");
    refused(nack(&store, &out[2], None).await, "fenced");
    store.clock.advance(60);
    assert_eq!(seqs(&read(&store).await), [0; 0], "a seek forgets what was given back, too");
}

async fn an_unknown_delivery_is_fenced(store: Store) {
    store.append("in/1", &["a"]).await;
    let out = read(&store).await;
    let good = proof(&out[0]);
    let wrong_token = DeliveryRef { delivery_token: Token(good.delivery_token.0 + 1), ..good.clone() };
    let wrong_place = DeliveryRef { position: Position(format!("{}0", good.position)), ..good.clone() };
    let acks = [
        GroupAck { group: "g".into(), source: source(), deliveries: vec![wrong_token] },
        GroupAck { group: "g".into(), source: source(), deliveries: vec![wrong_place] },
        GroupAck { group: "other".into(), source: source(), deliveries: vec![good.clone()] },
        GroupAck { group: "g".into(), source: Source::Category("in".into()), deliveries: vec![good] },
    ];
    for ack in acks {
        refused(store.run(ack).await, "fenced");
    }
    assert_eq!(pending(&store).await, 1);
}

async fn one_lost_delivery_refuses_them_all(store: Store) {
    store.append("in/1", &["a", "b"]).await;
    let out = read(&store).await;
    ack(&store, &[&out[1]]).await.expect("acknowledged");
    refused(ack(&store, &[&out[0], &out[1]]).await, "fenced");
    assert_eq!(pending(&store).await, 1);
    ack(&store, &[&out[0]]).await.expect("it is still out");
}

async fn what_is_given_back_is_delivered_again_at_once(store: Store) {
    store.append("in/1", &["a", "b"]).await;
    let out = read(&store).await;
    nack(&store, &out[0], None).await.expect("given back");
    let again = read(&store).await;
    assert_eq!(seqs(&again), [1]);
    assert_eq!(again[0].delivery, 2);
    assert!(again[0].delivery_token > out[0].delivery_token, "also at the same instant");
}

async fn what_is_given_back_with_a_delay_comes_later(store: Store) {
    store.append("in/1", &["a"]).await;
    let out = read(&store).await;
    nack(&store, &out[0], Some(10)).await.expect("given back");
    let read_at = |store: &Store| GroupRead::new(&store.namespace, "g", source(), "c");
    let empty = store.backend.group_read(read_at(&store)).await.expect("read");
    assert_eq!((empty.events.len(), empty.next_at), (0, Some(store.now() + 10.into())));
    store.clock.advance(9);
    assert_eq!(seqs(&read(&store).await), [0; 0]);
    store.clock.advance(1);
    assert_eq!(seqs(&read(&store).await), [1]);
}

async fn what_is_visible_again_comes_in_the_order_in_which_it_became_so(store: Store) {
    store.append("in/1", &["a", "b", "c"]).await;
    let out = read(&store).await;
    for (n, delay) in [(0, Some(3)), (1, Some(3)), (2, Some(2))] {
        nack(&store, &out[n], delay).await.expect("given back");
    }
    store.clock.advance(3);
    let reading = GroupRead { limit: 2, ..GroupRead::new(&store.namespace, "g", source(), "c") };
    let again = store.backend.group_read(reading).await.expect("read").events;
    assert_eq!(seqs(&again), [3, 1], "at the same time, by position");
}

async fn giving_back_counts_as_a_delivery(store: Store) {
    store.append("in/1", &["a"]).await;
    for delivery in 1..=3 {
        let out = read(&store).await;
        assert_eq!(out[0].delivery, delivery);
        nack(&store, &out[0], None).await.expect("given back");
    }
    let info = store.backend.group_info(&store.namespace, "g", &source()).await.expect("info");
    assert_eq!((info.pending, info.oldest[0].delivery), (1, 3), "it waits to be delivered again");
}

async fn a_trimmed_event_can_be_acknowledged(store: Store) {
    store.append("in/1", &["a"]).await;
    let out = read(&store).await;
    store.run(StreamTrim { stream: stream("in/1"), to: TrimTo::Length(0) }).await.expect("trimmed");
    ack(&store, &[&out[0]]).await.expect("the work was done");
    store.clock.advance(60);
    assert_eq!(seqs(&read(&store).await), [0; 0]);
    assert_eq!(store.events(&stream("dead/g")).await, []);
}

async fn an_ack_goes_together_with_what_was_done(store: Store) {
    store.append("in/1", &["a"]).await;
    let out = read(&store).await.remove(0);
    let settling = || {
        let fence = Fence::Delivery {
            group: "g".into(),
            source: source(),
            position: out.event.position.clone(),
            delivery_token: out.delivery_token,
        };
        let (mut batch, _) = Batch::of(&store.namespace, DocumentPut::json("d", "n", json("1")));
        batch.add(GroupAck { group: "g".into(), source: source(), deliveries: vec![proof(&out)] });
        batch.fence(fence)
    };
    store.apply(settling()).await.expect("the delivery is out");
    assert_eq!(pending(&store).await, 0);
    let error = refused(store.apply(settling()).await, "fenced");
    assert_eq!(error.place(), Some(Place::Fence(0)));
    let document = store.backend.document_get(&store.namespace, "d", "n").await.expect("read");
    assert_eq!(document.expect("put once").revision, 1);
}

async fn an_ack_moves_no_cursor(store: Store) {
    store.append("in/1", &["a", "b", "c"]).await;
    let read = GroupRead { limit: 2, ..GroupRead::new(&store.namespace, "g", source(), "c") };
    let out = store.backend.group_read(read.clone()).await.expect("read").events;
    ack(&store, &[&out[1]]).await.expect("acknowledged out of order");
    store.clock.advance(30);
    let next = store.backend.group_read(read).await.expect("read").events;
    assert_eq!(seqs(&next), [1, 3]);
}
