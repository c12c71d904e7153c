//! Consumer groups: who gets which event, when again, and how far a group is. Acknowledging is in
//! `acks`, giving up in `dead_letters`.

use std::collections::BTreeSet;

use statehold_core::ErrorKind;
use statehold_core::call::{Deliveries, GroupRead};
use statehold_core::command::{GroupAck, GroupSeek, SeekTo, StreamTrim, TrimTo};
use statehold_core::model::{Delivered, Pending, Source, StreamName};

use crate::harness::{Store, at_once, proof, refused, stream};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_new_group_begins_at_the_oldest_event,
    a_new_group_begins_at_the_oldest_event_that_was_not_trimmed,
    an_empty_first_read_fixes_the_cursor,
    what_is_out_goes_to_nobody_else_until_its_visibility_runs_out,
    a_redelivery_counts_on_and_has_a_larger_token,
    tokens_grow_over_the_whole_group,
    redeliveries_come_before_unread_events,
    an_empty_answer_says_when_something_is_visible_again,
    a_read_with_a_key_answers_the_same_again,
    a_read_key_answers_nothing_whose_visibility_ran_out,
    a_read_key_belongs_to_its_consumer,
    a_group_on_a_category_reads_all_its_streams,
    a_group_reads_the_stream_of_a_task,
    groups_know_nothing_of_each_other,
    one_name_on_two_sources_is_two_groups,
    a_group_behind_a_trim_is_compacted_until_a_seek,
    a_group_on_a_category_behind_a_trim_is_compacted_until_a_seek,
    a_seek_moves_the_cursor,
    a_group_that_began_after_a_trim_reads_all_that_is_there,
    a_seek_to_the_oldest_begins_with_what_is_there_at_the_next_read,
    a_seek_to_the_latest_misses_nothing_that_was_trimmed_before,
    a_seek_forgets_what_is_out,
    a_seek_needs_no_group,
    group_info_says_how_far_a_group_is,
    group_info_shows_the_first_hundred_deliveries,
    many_consumers_share_a_stream,
];

fn on_stream() -> Source {
    Source::Stream(stream("in/1"))
}

async fn read(store: &Store, change: impl FnOnce(&mut GroupRead)) -> Deliveries {
    let mut read = GroupRead::new(&store.namespace, "g", on_stream(), "c");
    change(&mut read);
    store.backend.group_read(read).await.expect("the group is read")
}

fn seqs(delivered: &[Delivered]) -> Vec<u64> {
    delivered.iter().map(|delivered| delivered.event.seq).collect()
}

async fn seek(store: &Store, source: Source, to: SeekTo) {
    store.run(GroupSeek { group: "g".into(), source, to }).await.expect("sought");
}

async fn a_new_group_begins_at_the_oldest_event(store: Store) {
    store.append("in/1", &["a", "b", "c"]).await;
    let first = read(&store, |read| read.limit = 2).await;
    assert_eq!(seqs(&first.events), [1, 2]);
    assert_eq!(first.next_at, None);
    assert!(first.events.iter().all(|delivered| delivered.delivery == 1));
    let events = store.events(&stream("in/1")).await;
    assert_eq!(first.events[0].event, events[0], "the whole event is delivered");
    assert_eq!(seqs(&read(&store, |_| {}).await.events), [3]);
    store.append("in/1", &["d"]).await;
    assert_eq!(seqs(&read(&store, |_| {}).await.events), [4]);
}

async fn a_new_group_begins_at_the_oldest_event_that_was_not_trimmed(store: Store) {
    store.append("in/1", &["a", "b", "c"]).await;
    store.run(StreamTrim { stream: stream("in/1"), to: TrimTo::After(2) }).await.expect("trimmed");
    assert_eq!(seqs(&read(&store, |_| {}).await.events), [3]);
    assert_eq!(seqs(&store.deliver("g", &Source::Category("in".into()), "c").await), [3]);
}

async fn an_empty_first_read_fixes_the_cursor(store: Store) {
    let empty = read(&store, |_| {}).await;
    assert_eq!((empty.events.len(), empty.next_at), (0, None));
    store.append("in/1", &["a", "b"]).await;
    store.run(StreamTrim { stream: stream("in/1"), to: TrimTo::After(1) }).await.expect("trimmed");
    let read = GroupRead::new(&store.namespace, "g", on_stream(), "c");
    let error = refused(store.backend.group_read(read).await, "compacted");
    assert_eq!(error.kind(), &ErrorKind::Compacted { oldest: "1".into() }, "the group missed an event");
}

async fn what_is_out_goes_to_nobody_else_until_its_visibility_runs_out(store: Store) {
    store.append("in/1", &["a", "b"]).await;
    read(&store, |read| (read.limit, read.visibility_seconds) = (1, 60.into())).await;
    let second = read(&store, |read| read.consumer = "d".into()).await;
    assert_eq!(seqs(&second.events), [2]);
    store.clock.advance(29);
    assert_eq!(seqs(&read(&store, |_| {}).await.events), [0; 0]);
    store.clock.advance(1);
    assert_eq!(seqs(&read(&store, |_| {}).await.events), [2], "half a minute is over for the second");
    store.clock.advance(29);
    assert_eq!(seqs(&read(&store, |_| {}).await.events), [0; 0]);
    store.clock.advance(1);
    assert_eq!(seqs(&read(&store, |_| {}).await.events), [1, 2]);
}

async fn a_redelivery_counts_on_and_has_a_larger_token(store: Store) {
    store.append("in/1", &["a"]).await;
    let mut last = read(&store, |_| {}).await.events.remove(0);
    for delivery in 2..=4 {
        store.clock.advance(30);
        let next = read(&store, |read| read.consumer = format!("c{delivery}")).await.events.remove(0);
        assert_eq!((next.delivery, &next.event), (delivery, &last.event));
        assert!(next.delivery_token > last.delivery_token);
        last = next;
    }
}

async fn tokens_grow_over_the_whole_group(store: Store) {
    store.append("in/1", &["a", "b", "c", "d"]).await;
    let mut tokens = Vec::new();
    for limit in [1, 2, 1] {
        let delivered = read(&store, |read| read.limit = limit).await.events;
        tokens.extend(delivered.iter().map(|delivered| delivered.delivery_token));
    }
    store.clock.advance(30);
    tokens.extend(read(&store, |_| {}).await.events.iter().map(|delivered| delivered.delivery_token));
    assert_eq!(tokens.len(), 8);
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "each is larger than all before");
}

async fn redeliveries_come_before_unread_events(store: Store) {
    store.append("in/1", &["a", "b", "c", "d", "e"]).await;
    read(&store, |read| read.limit = 3).await;
    store.clock.advance(30);
    let mixed = read(&store, |read| read.limit = 4).await.events;
    assert_eq!(seqs(&mixed), [1, 2, 3, 4]);
    let deliveries: Vec<_> = mixed.iter().map(|delivered| delivered.delivery).collect();
    assert_eq!(deliveries, [2, 2, 2, 1]);
    store.clock.advance(30);
    assert_eq!(seqs(&read(&store, |read| read.limit = 2).await.events), [1, 2], "the limit counts both");
}

async fn an_empty_answer_says_when_something_is_visible_again(store: Store) {
    assert_eq!(read(&store, |_| {}).await.next_at, None, "nothing is out");
    store.append("in/1", &["a", "b"]).await;
    read(&store, |read| (read.limit, read.visibility_seconds) = (1, 60.into())).await;
    store.clock.advance(10);
    let first_end = store.now() + 30.into();
    assert_eq!(read(&store, |_| {}).await.next_at, None, "something was there");
    assert_eq!(read(&store, |_| {}).await.next_at, Some(first_end), "the earlier of the two");
    store.clock.advance(30);
    assert_eq!(seqs(&read(&store, |_| {}).await.events), [2]);
    assert_eq!(read(&store, |_| {}).await.next_at, Some(first_end + 20.into()));
}

async fn a_read_with_a_key_answers_the_same_again(store: Store) {
    store.append("in/1", &["a", "b", "c"]).await;
    let keyed = |read: &mut GroupRead| (read.key, read.limit) = (Some("k".into()), 2);
    let first = read(&store, keyed).await.events;
    store.clock.advance(10);
    let again = read(&store, keyed).await;
    assert_eq!(again.events, first, "same tokens, same numbers");
    assert_eq!(store.backend.group_info(&store.namespace, "g", &on_stream()).await.expect("info").pending, 2);
    let ack = GroupAck { group: "g".into(), source: on_stream(), deliveries: vec![proof(&first[0])] };
    store.run(ack).await.expect("acknowledged");
    assert_eq!(read(&store, keyed).await.events, first[1..], "what is still out");
    let ack = GroupAck { group: "g".into(), source: on_stream(), deliveries: vec![proof(&first[1])] };
    store.run(ack).await.expect("acknowledged");
    assert_eq!(seqs(&read(&store, keyed).await.events), [3], "nothing is out any more");
}

async fn a_read_key_answers_nothing_whose_visibility_ran_out(store: Store) {
    store.append("in/1", &["a"]).await;
    let keyed = |read: &mut GroupRead| read.key = Some("k".into());
    let first = read(&store, keyed).await.events.remove(0);
    store.clock.advance(30);
    let again = read(&store, keyed).await.events.remove(0);
    assert_eq!(again.delivery, 2, "anyone may get it now, so it is delivered anew");
    assert!(again.delivery_token > first.delivery_token);
}

async fn a_read_key_belongs_to_its_consumer(store: Store) {
    store.append("in/1", &["a", "b", "c"]).await;
    let keyed = |consumer: &'static str, key: &'static str| {
        move |read: &mut GroupRead| {
            (read.consumer, read.key, read.limit) = (consumer.into(), Some(key.into()), 1);
        }
    };
    assert_eq!(seqs(&read(&store, keyed("c", "k")).await.events), [1]);
    assert_eq!(seqs(&read(&store, keyed("d", "k")).await.events), [2]);
    assert_eq!(seqs(&read(&store, keyed("c", "other")).await.events), [3]);
    assert_eq!(seqs(&read(&store, keyed("d", "k")).await.events), [2]);
}

async fn a_group_on_a_category_reads_all_its_streams(store: Store) {
    for name in ["in/2", "in/1", "inner/1", "in/2"] {
        store.append(name, &["a"]).await;
    }
    let source = Source::Category("in".into());
    let delivered = store.deliver("g", &source, "c").await;
    let places: Vec<_> = delivered.iter().map(|d| (d.event.stream.as_str(), d.event.seq)).collect();
    assert_eq!(places, [("in/2", 1), ("in/1", 1), ("in/2", 2)]);
    store.append("in/3", &["a"]).await;
    assert_eq!(store.deliver("g", &source, "c").await[0].event.stream, stream("in/3"));
    let task = store.plain().await;
    let tasks = store.deliver("g", &Source::Category("task".into()), "c").await;
    assert_eq!(tasks[0].event.stream.task(), Some(task.id));
}

async fn a_group_reads_the_stream_of_a_task(store: Store) {
    let task = store.plain().await;
    let source = Source::Stream(StreamName::of_task(task.id));
    assert_eq!(store.deliver("g", &source, "c").await[0].event.kind, "task.created");
    store.start(task.id, "w").await;
    seek(&store, source.clone(), SeekTo::Latest).await;
    store.append(&format!("task/{}", task.id), &["note"]).await;
    let delivered = store.deliver("g", &source, "c").await;
    assert_eq!((seqs(&delivered), delivered[0].event.kind.as_str()), (vec![3], "note"));
}

async fn groups_know_nothing_of_each_other(store: Store) {
    store.append("in/1", &["a", "b"]).await;
    for group in ["g", "h"] {
        let delivered = store.deliver(group, &on_stream(), "c").await;
        assert_eq!(seqs(&delivered), [1, 2]);
        let deliveries = delivered.iter().map(proof).collect();
        store
            .run(GroupAck { group: group.into(), source: on_stream(), deliveries })
            .await
            .expect("own deliveries");
    }
    seek(&store, on_stream(), SeekTo::Oldest).await;
    assert_eq!(seqs(&store.deliver("h", &on_stream(), "c").await), [0; 0]);
    assert_eq!(seqs(&store.deliver("g", &on_stream(), "c").await), [1, 2]);
}

async fn one_name_on_two_sources_is_two_groups(store: Store) {
    store.append("in/1", &["a"]).await;
    let category = Source::Category("in".into());
    let by_stream = store.deliver("g", &on_stream(), "c").await;
    let by_category = store.deliver("g", &category, "c").await;
    assert_eq!(by_stream[0].event, by_category[0].event);
    let deliveries = vec![proof(&by_stream[0])];
    store.run(GroupAck { group: "g".into(), source: on_stream(), deliveries }).await.expect("acknowledged");
    let info = store.backend.group_info(&store.namespace, "g", &category).await.expect("info");
    assert_eq!(info.pending, 1);
}

async fn a_group_behind_a_trim_is_compacted_until_a_seek(store: Store) {
    store.append("in/1", &["a", "b", "c", "d"]).await;
    let out = read(&store, |read| read.limit = 1).await.events;
    store.run(StreamTrim { stream: stream("in/1"), to: TrimTo::After(1) }).await.expect("trimmed");
    assert_eq!(seqs(&read(&store, |read| read.limit = 1).await.events), [2], "it had read what was trimmed");
    store.run(StreamTrim { stream: stream("in/1"), to: TrimTo::After(3) }).await.expect("trimmed");
    for _ in 0..2 {
        store.clock.advance(30);
        let read = GroupRead::new(&store.namespace, "g", on_stream(), "c");
        let error = refused(store.backend.group_read(read).await, "compacted");
        assert_eq!(error.kind(), &ErrorKind::Compacted { oldest: "3".into() });
    }
    let deliveries = vec![proof(&out[0])];
    store
        .run(GroupAck { group: "g".into(), source: on_stream(), deliveries })
        .await
        .expect("nobody else got it");
    seek(&store, on_stream(), SeekTo::After("3".into())).await;
    assert_eq!(seqs(&read(&store, |_| {}).await.events), [4]);
    seek(&store, on_stream(), SeekTo::After("2".into())).await;
    let read = GroupRead::new(&store.namespace, "g", on_stream(), "c");
    refused(store.backend.group_read(read).await, "compacted");
}

async fn a_group_on_a_category_behind_a_trim_is_compacted_until_a_seek(store: Store) {
    let source = Source::Category("in".into());
    assert_eq!(store.deliver("g", &source, "c").await, []);
    store.append("in/1", &["a"]).await;
    store.append("in/2", &["b"]).await;
    let trimmed = store.events(&stream("in/1")).await[0].position.clone();
    store.run(StreamTrim { stream: stream("in/1"), to: TrimTo::Length(0) }).await.expect("trimmed");
    let read = GroupRead::new(&store.namespace, "g", source.clone(), "c");
    let error = refused(store.backend.group_read(read).await, "compacted");
    assert_eq!(error.kind(), &ErrorKind::Compacted { oldest: trimmed.0.clone() });
    seek(&store, source.clone(), SeekTo::After(trimmed.0)).await;
    assert_eq!(store.deliver("g", &source, "c").await[0].event.kind, "b");
}

async fn a_seek_moves_the_cursor(store: Store) {
    store.append("in/1", &["a", "b", "c"]).await;
    let category = Source::Category("in".into());
    let second = store.events(&stream("in/1")).await[1].position.0.clone();
    for (source, after) in [(on_stream(), "2".to_owned()), (category, second)] {
        let kinds = async || -> Vec<_> {
            let delivered = store.deliver("g", &source, "c").await;
            delivered.into_iter().map(|delivered| delivered.event.seq).collect()
        };
        seek(&store, source.clone(), SeekTo::After(after)).await;
        assert_eq!(kinds().await, [3]);
        seek(&store, source.clone(), SeekTo::Oldest).await;
        assert_eq!(kinds().await, [1, 2, 3]);
        seek(&store, source.clone(), SeekTo::Latest).await;
        assert_eq!(kinds().await, [0; 0]);
    }
    store.append("in/1", &["d"]).await;
    assert_eq!(seqs(&store.deliver("g", &on_stream(), "c").await), [4]);
}

async fn a_seek_to_the_oldest_begins_with_what_is_there_at_the_next_read(store: Store) {
    store.append("in/1", &["a", "b", "c", "d"]).await;
    let trim = |after| StreamTrim { stream: stream("in/1"), to: TrimTo::After(after) };
    store.run(trim(1)).await.expect("trimmed");
    seek(&store, on_stream(), SeekTo::Oldest).await;
    store.run(trim(2)).await.expect("trimmed");
    assert_eq!(seqs(&read(&store, |read| read.limit = 1).await.events), [3]);
    store.run(trim(4)).await.expect("trimmed");
    let read = GroupRead::new(&store.namespace, "g", on_stream(), "c");
    let error = refused(store.backend.group_read(read).await, "compacted");
    assert_eq!(error.kind(), &ErrorKind::Compacted { oldest: "4".into() }, "the read has fixed the cursor");
}

async fn a_group_that_began_after_a_trim_reads_all_that_is_there(store: Store) {
    for name in ["in/1", "in/2", "in/1", "in/2"] {
        store.append(name, &["a"]).await;
    }
    store.run(StreamTrim { stream: stream("in/1"), to: TrimTo::Length(0) }).await.expect("trimmed");
    let source = Source::Category("in".into());
    let reading = GroupRead { limit: 1, ..GroupRead::new(&store.namespace, "g", source.clone(), "c") };
    for seq in [1, 2] {
        let delivered =
            store.backend.group_read(reading.clone()).await.expect("nothing was trimmed since").events;
        assert_eq!((seqs(&delivered), &delivered[0].event.stream), (vec![seq], &stream("in/2")));
    }
    store.append("in/1", &["a"]).await;
    store.run(StreamTrim { stream: stream("in/1"), to: TrimTo::Length(0) }).await.expect("trimmed");
    refused(store.backend.group_read(reading).await, "compacted");
}

async fn a_seek_to_the_latest_misses_nothing_that_was_trimmed_before(store: Store) {
    let category = Source::Category("in".into());
    store.append("in/1", &["a", "b"]).await;
    store.run(StreamTrim { stream: stream("in/1"), to: TrimTo::Length(0) }).await.expect("trimmed");
    for source in [on_stream(), category] {
        seek(&store, source.clone(), SeekTo::Latest).await;
        assert_eq!(store.deliver("g", &source, "c").await, []);
        let next = store.append("in/1", &["c"]).await.last_seq;
        assert_eq!(seqs(&store.deliver("g", &source, "c").await), [next]);
    }
}

async fn a_seek_forgets_what_is_out(store: Store) {
    store.append("in/1", &["a", "b"]).await;
    let out = read(&store, |read| read.key = Some("k".into())).await.events;
    seek(&store, on_stream(), SeekTo::Oldest).await;
    let info = store.backend.group_info(&store.namespace, "g", &on_stream()).await.expect("info");
    assert_eq!((info.pending, info.oldest), (0, vec![]));
    let again = read(&store, |read| read.key = Some("k".into())).await.events;
    assert_eq!(seqs(&again), [1, 2]);
    for (old, new) in out.iter().zip(&again) {
        assert_eq!(new.delivery, 1, "the count begins again");
        assert!(new.delivery_token > out[1].delivery_token, "also at the same instant");
        let ack = GroupAck { group: "g".into(), source: on_stream(), deliveries: vec![proof(old)] };
        refused(store.run(ack).await, "fenced");
    }
}

async fn a_seek_needs_no_group(store: Store) {
    seek(&store, on_stream(), SeekTo::Latest).await;
    let info = store.backend.group_info(&store.namespace, "g", &on_stream()).await.expect("it exists now");
    assert_eq!(info.pending, 0);
    store.append("in/1", &["a"]).await;
    assert_eq!(seqs(&read(&store, |_| {}).await.events), [1]);
    store.append("late/1", &["a", "b"]).await;
    let late = Source::Stream(stream("late/1"));
    seek(&store, late.clone(), SeekTo::After("1".into())).await;
    assert_eq!(seqs(&store.deliver("g", &late, "c").await), [2]);
}

async fn group_info_says_how_far_a_group_is(store: Store) {
    let (namespace, source) = (store.namespace.as_str(), on_stream());
    refused(store.backend.group_info(namespace, "g", &source).await, "not_found");
    store.append("in/1", &["a", "b", "c"]).await;
    let delivered = read(&store, |read| read.limit = 2).await.events;
    let info = store.backend.group_info(namespace, "g", &source).await.expect("info");
    assert_eq!((info.group.as_str(), &info.source), ("g", &source));
    assert_eq!((info.cursor.as_deref(), info.pending), (Some("2"), 2));
    let pending = Pending {
        stream: stream("in/1"),
        seq: 1,
        position: delivered[0].event.position.clone(),
        consumer: "c".into(),
        delivery: 1,
        visible_at: store.now() + 30.into(),
    };
    assert_eq!(info.oldest[0], pending);
    assert_eq!(info.oldest.len(), 2);
    let ack = GroupAck { group: "g".into(), source: source.clone(), deliveries: vec![proof(&delivered[0])] };
    store.run(ack).await.expect("acknowledged");
    let info = store.backend.group_info(namespace, "g", &source).await.expect("info");
    assert_eq!((info.cursor.as_deref(), info.pending, info.oldest[0].seq), (Some("2"), 1, 2));
    refused(store.backend.group_info(namespace, "h", &source).await, "not_found");
    let category = Source::Category("in".into());
    refused(store.backend.group_info(namespace, "g", &category).await, "not_found");
    let all = store.deliver("g", &category, "c").await;
    let info = store.backend.group_info(namespace, "g", &category).await.expect("info");
    assert_eq!(info.cursor.as_ref(), Some(&all[2].event.position.0));
}

async fn group_info_shows_the_first_hundred_deliveries(store: Store) {
    let many: Vec<_> = (0..150).map(|_| "a").collect();
    store.append("in/1", &many).await;
    assert_eq!(read(&store, |read| read.limit = 150).await.events.len(), 150);
    let info = store.backend.group_info(&store.namespace, "g", &on_stream()).await.expect("info");
    assert_eq!(info.pending, 150);
    assert!(info.oldest.iter().map(|pending| pending.seq).eq(1..=100));
}

async fn many_consumers_share_a_stream(store: Store) {
    const EVENTS: usize = 200;
    let kinds: Vec<_> = (0..EVENTS).map(|_| "a").collect();
    store.append("in/1", &kinds).await;
    let shares = at_once(10, |consumer| {
        let store = store.clone();
        async move {
            let mut own = Vec::new();
            loop {
                let change = |read: &mut GroupRead| (read.consumer, read.limit) = (format!("c{consumer}"), 7);
                let delivered = read(&store, change).await.events;
                if delivered.is_empty() {
                    return own;
                }
                own.extend(seqs(&delivered));
                let deliveries = delivered.iter().map(proof).collect();
                let ack = GroupAck { group: "g".into(), source: on_stream(), deliveries };
                store.run(ack).await.expect("its own deliveries");
            }
        }
    })
    .await;
    let seen: Vec<_> = shares.into_iter().flatten().collect();
    assert_eq!(seen.len(), EVENTS, "each event went to exactly one");
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>().len(), EVENTS);
    store.clock.advance(60);
    assert_eq!(read(&store, |_| {}).await, Deliveries::default());
}
