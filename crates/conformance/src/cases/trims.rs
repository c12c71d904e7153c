//! Trimming and purging streams, by command and by retention.

use std::collections::BTreeMap;

use statehold_core::call::Sweep;
use statehold_core::command::{StreamAppend, StreamPurge, StreamTrim, TaskComplete, TaskPurge, TrimTo};
use statehold_core::error::Place;
use statehold_core::model::{StreamName, TaskId};
use statehold_core::policy::{Retention, StreamRetention};
use statehold_core::query::{KeyList, ReadFrom, StreamPage, StreamRead};
use statehold_core::{Batch, ErrorKind, Result, Status};

use crate::harness::{Store, appending, json, refused, stream};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    trimming_to_a_length_keeps_the_last,
    trimming_after_a_number_keeps_what_comes_after,
    trimming_by_age_keeps_what_is_not_older,
    trimming_by_age_keeps_all_from_the_first_young_one_on,
    trimming_never_brings_anything_back,
    trimming_a_stream_that_never_was_is_not_found,
    reading_after_a_trimmed_cursor_is_compacted,
    other_ways_to_read_show_what_is_left,
    a_trimmed_stream_goes_on_where_it_was,
    purging_removes_all_and_keeps_the_head,
    purging_is_audited,
    a_tasks_stream_can_be_trimmed_and_purged,
    a_trim_keeps_its_place_among_the_commands,
    a_tasks_stream_goes_with_its_task,
    retention_trims_the_streams_of_a_category,
];

async fn trim(store: &Store, name: &str, to: TrimTo) -> u64 {
    store.run(StreamTrim { stream: stream(name), to }).await.expect("trimmed").oldest
}

async fn read(store: &Store, name: &str, from: ReadFrom) -> Result<StreamPage> {
    let read = StreamRead { stream: stream(name), from, limit: 100 };
    store.backend.stream_read(&store.namespace, &read).await
}

async fn left(store: &Store, name: &str) -> Vec<u64> {
    store.events(&stream(name)).await.into_iter().map(|event| event.seq).collect()
}

async fn trimming_to_a_length_keeps_the_last(store: Store) {
    store.append("s/1", &["a", "b", "c", "d", "e"]).await;
    assert_eq!(trim(&store, "s/1", TrimTo::Length(9)).await, 0, "there is nothing to remove");
    assert_eq!(trim(&store, "s/1", TrimTo::Length(5)).await, 0);
    assert_eq!(trim(&store, "s/1", TrimTo::Length(2)).await, 3);
    assert_eq!(left(&store, "s/1").await, [4, 5]);
    assert_eq!(trim(&store, "s/1", TrimTo::Length(2)).await, 3, "repeating it does nothing");
    assert_eq!(trim(&store, "s/1", TrimTo::Length(0)).await, 5);
    assert_eq!(left(&store, "s/1").await, [0; 0]);
}

async fn trimming_after_a_number_keeps_what_comes_after(store: Store) {
    store.append("s/1", &["a", "b", "c"]).await;
    assert_eq!(trim(&store, "s/1", TrimTo::After(0)).await, 0);
    assert_eq!(trim(&store, "s/1", TrimTo::After(1)).await, 1);
    assert_eq!(left(&store, "s/1").await, [2, 3]);
    assert_eq!(trim(&store, "s/1", TrimTo::After(u64::MAX)).await, 3, "only what is there can be removed");
    assert_eq!(store.append("s/1", &["d"]).await.first_seq, 4);
    assert_eq!(left(&store, "s/1").await, [4]);
}

async fn trimming_by_age_keeps_what_is_not_older(store: Store) {
    for kind in ["a", "b", "c"] {
        store.append("s/1", &[kind]).await;
        store.clock.advance(10);
    }
    assert_eq!(trim(&store, "s/1", TrimTo::AgeSeconds(60.into())).await, 0, "nothing is old enough");
    assert_eq!(
        trim(&store, "s/1", TrimTo::AgeSeconds(20.into())).await,
        1,
        "the second is not older than that"
    );
    store.clock.advance(1);
    assert_eq!(trim(&store, "s/1", TrimTo::AgeSeconds(20.into())).await, 2);
    assert_eq!(left(&store, "s/1").await, [3]);
    store.clock.advance(100);
    assert_eq!(trim(&store, "s/1", TrimTo::AgeSeconds(20.into())).await, 3);
}

async fn trimming_by_age_keeps_all_from_the_first_young_one_on(store: Store) {
    store.append("s/1", &["old"]).await;
    store.clock.advance(100);
    store.append("s/1", &["young"]).await;
    store.clock.rewind(100);
    store.append("s/1", &["written while the clock was back"]).await;
    store.clock.advance(100);
    assert_eq!(trim(&store, "s/1", TrimTo::AgeSeconds(50.into())).await, 1);
    assert_eq!(left(&store, "s/1").await, [2, 3], "only a prefix goes");
}

async fn trimming_never_brings_anything_back(store: Store) {
    store.append("s/1", &["a", "b", "c"]).await;
    assert_eq!(trim(&store, "s/1", TrimTo::After(2)).await, 2);
    for to in [TrimTo::After(1), TrimTo::Length(3), TrimTo::AgeSeconds(60.into())] {
        assert_eq!(trim(&store, "s/1", to).await, 2, "{to:?}");
    }
    assert_eq!(left(&store, "s/1").await, [3]);
}

async fn trimming_a_stream_that_never_was_is_not_found(store: Store) {
    let task = StreamName::of_task(TaskId::generate());
    for name in ["none/1", task.as_str()] {
        let trim = StreamTrim { stream: stream(name), to: TrimTo::Length(1) };
        let error = refused(store.run(trim).await, "not_found");
        assert_eq!(error.place(), Some(Place::Command(0)));
        refused(store.run(StreamPurge { stream: stream(name) }).await, "not_found");
    }
    assert_eq!(store.dump().await, []);
}

async fn reading_after_a_trimmed_cursor_is_compacted(store: Store) {
    store.append("s/1", &["a", "b", "c", "d"]).await;
    trim(&store, "s/1", TrimTo::After(2)).await;
    for cursor in [0, 1] {
        let error = refused(read(&store, "s/1", ReadFrom::After(cursor)).await, "compacted");
        assert_eq!(error.kind(), &ErrorKind::Compacted { oldest: "2".into() });
    }
    let page = read(&store, "s/1", ReadFrom::After(2)).await.expect("nothing is missing after that");
    assert_eq!((page.events.len(), page.events[0].seq, page.oldest, page.last_seq), (2, 3, 2, 4));
}

async fn other_ways_to_read_show_what_is_left(store: Store) {
    store.append("s/1", &["a", "b", "c", "d"]).await;
    trim(&store, "s/1", TrimTo::After(2)).await;
    let seqs = |page: Result<StreamPage>| -> Vec<u64> {
        page.expect("read").events.into_iter().map(|event| event.seq).collect()
    };
    assert_eq!(seqs(read(&store, "s/1", ReadFrom::Oldest).await), [3, 4]);
    assert_eq!(seqs(read(&store, "s/1", ReadFrom::Last).await), [3, 4]);
    assert_eq!(seqs(read(&store, "s/1", ReadFrom::Before(4)).await), [3]);
    assert_eq!(seqs(read(&store, "s/1", ReadFrom::Before(2)).await), [0; 0]);
}

async fn a_trimmed_stream_goes_on_where_it_was(store: Store) {
    store.append("s/1", &["a", "b", "c"]).await;
    trim(&store, "s/1", TrimTo::Length(0)).await;
    let expecting = StreamAppend { expect_seq: Some(3), ..appending("s/1", &["d"]) };
    assert_eq!(store.run(expecting).await.expect("three is the head").first_seq, 4);
    let list = KeyList { prefix: "s/".into(), ..KeyList::default() };
    let page = store.backend.stream_list(&store.namespace, &list).await.expect("listed");
    assert_eq!((page.items[0].last_seq, page.items[0].oldest), (4, 3));
}

async fn purging_removes_all_and_keeps_the_head(store: Store) {
    store.append("s/1", &["a", "b", "c"]).await;
    trim(&store, "s/1", TrimTo::After(1)).await;
    let purge = StreamPurge { stream: stream("s/1") };
    assert_eq!(store.run(purge.clone()).await.expect("purged").oldest, 3);
    assert_eq!(store.run(purge).await.expect("purged again").oldest, 3);
    let page = read(&store, "s/1", ReadFrom::Oldest).await.expect("read");
    assert_eq!((page.events.len(), page.last_seq, page.oldest), (0, 3, 3));
    refused(read(&store, "s/1", ReadFrom::After(2)).await, "compacted");
    let list = KeyList { prefix: "s/".into(), ..KeyList::default() };
    let page = store.backend.stream_list(&store.namespace, &list).await.expect("listed");
    assert_eq!(page.items.len(), 1, "it had events");
    assert_eq!(store.append("s/1", &["d"]).await.first_seq, 4);
    assert_eq!(left(&store, "s/1").await, [4]);
}

async fn purging_is_audited(store: Store) {
    store.append("s/1", &["a"]).await;
    trim(&store, "s/1", TrimTo::Length(0)).await;
    assert_eq!(store.events(&stream("audit/local")).await, [], "a trim is no administrative act");
    store.append("s/1", &["b"]).await;
    let mut batch = store.batch().actor("admin");
    batch.add(StreamPurge { stream: stream("s/1") });
    store.apply(batch).await.expect("purged");
    let audit = store.events(&stream("audit/local")).await;
    assert_eq!(audit.len(), 1);
    assert_eq!((audit[0].kind.as_str(), audit[0].seq, audit[0].at), ("stream.purged", 1, store.now()));
    assert_eq!(audit[0].data, Some(json(r#"{"stream":"s/1"}"#)));
    assert_eq!(audit[0].actor.as_deref(), Some("admin"));
}

async fn a_tasks_stream_can_be_trimmed_and_purged(store: Store) {
    let (task, token) = store.started("w").await;
    let name = StreamName::of_task(task.id);
    store.append(name.as_str(), &["note"]).await;
    assert_eq!(trim(&store, name.as_str(), TrimTo::Length(1)).await, 2);
    assert_eq!(store.history(task.id).await, ["note"]);
    store.run(StreamPurge { stream: name.clone() }).await.expect("purged");
    assert_eq!(store.history(task.id).await, [""; 0]);
    let done = store.complete(task.id, token).await.expect("completed");
    assert_eq!(done.revision, 3, "the revision counts all that happened");
    let events = store.events(&name).await;
    assert_eq!((events.len(), events[0].seq, events[0].kind.as_str()), (1, 4, "task.completed"));
    refused(read(&store, name.as_str(), ReadFrom::After(2)).await, "compacted");
}

async fn a_trim_keeps_its_place_among_the_commands(store: Store) {
    for trim_first in [true, false] {
        let (task, token) = store.started("w").await;
        let trim = StreamTrim { stream: StreamName::of_task(task.id), to: TrimTo::Length(0) };
        let complete = TaskComplete { id: task.id, token, output: None };
        let mut commands = vec![trim.into(), complete.into()];
        if !trim_first {
            commands.reverse();
        }
        store.apply(Batch { commands, ..store.batch() }).await.expect("applied");
        let expected: &[&str] = if trim_first { &["task.completed"] } else { &[] };
        assert_eq!(store.history(task.id).await, expected);
        assert_eq!(store.task(task.id).await.status, Status::Completed);
    }
}

async fn a_tasks_stream_goes_with_its_task(store: Store) {
    let task = store.plain().await;
    let name = StreamName::of_task(task.id);
    store.append(name.as_str(), &["note"]).await;
    store.finish(task.id).await;
    store.run(TaskPurge { id: task.id }).await.expect("purged");
    assert_eq!(read(&store, name.as_str(), ReadFrom::Oldest).await, Ok(StreamPage::default()));
    refused(store.run(appending(name.as_str(), &["late"])).await, "not_found");
    refused(store.run(StreamTrim { stream: name.clone(), to: TrimTo::Length(1) }).await, "not_found");
    let list = KeyList { prefix: "task/".into(), ..KeyList::default() };
    let page = store.backend.stream_list(&store.namespace, &list).await.expect("listed");
    assert_eq!(page.items, []);
}

async fn retention_trims_the_streams_of_a_category(store: Store) {
    for name in ["live/1", "live/2", "kept/1"] {
        store.append(name, &["a", "b"]).await;
    }
    store.clock.advance(100);
    for name in ["live/1", "kept/1", "log/1"] {
        store.append(name, &["c", "d", "e"]).await;
    }
    let aged = StreamRetention { max_length: None, max_age_seconds: Some(50.into()) };
    let short = StreamRetention { max_length: Some(1), max_age_seconds: None };
    let streams = BTreeMap::from([("live".to_owned(), aged), ("log".to_owned(), short)]);
    let retention = Retention { streams, ..Retention::forever() };
    let sweep = Sweep { retention, ..Sweep::new(&store.namespace) };
    let swept = store.backend.sweep(sweep.clone()).await.expect("swept");
    assert_eq!((swept.trimmed, swept.more), (3, false));
    assert_eq!(left(&store, "live/1").await, [3, 4, 5]);
    assert_eq!(left(&store, "live/2").await, [0; 0]);
    assert_eq!(left(&store, "kept/1").await, [1, 2, 3, 4, 5]);
    assert_eq!(left(&store, "log/1").await, [3]);
    refused(read(&store, "live/1", ReadFrom::After(1)).await, "compacted");
    assert_eq!(store.backend.sweep(sweep).await.expect("swept").trimmed, 0, "there is nothing left to do");
    assert_eq!(store.events(&stream("audit/local")).await, []);
}
