//! Streams: appending, numbering, reading and listing. Removing events is in `trims`.

use statehold_core::command::{NewEvent, StreamAppend};
use statehold_core::error::Place;
use statehold_core::model::{StreamName, TaskId};
use statehold_core::query::{KeyList, ReadFrom, StreamPage, StreamRead};
use statehold_core::{Json, Result};

use crate::harness::{Store, appending, at_once, json, refused, stream};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    events_are_numbered_from_one_without_a_gap,
    an_event_carries_what_was_given,
    an_append_may_expect_the_head,
    a_refused_append_leaves_no_gap,
    appends_to_several_streams_go_together,
    a_stream_without_events_is_empty,
    reading_after_goes_forward_from_the_cursor,
    reading_before_answers_what_comes_just_before,
    reading_the_last_answers_the_end_in_order,
    reading_from_the_oldest_is_bounded_by_the_limit,
    a_cursor_beyond_the_head_is_no_error,
    positions_grow_along_a_stream,
    a_tasks_stream_takes_appends_while_the_task_exists,
    a_stream_of_no_task_is_not_found,
    streams_are_listed_by_prefix_in_the_order_of_bytes,
    streams_are_listed_page_by_page,
    many_writers_and_a_tailing_reader_leave_no_gap,
];

async fn read(store: &Store, name: &str, from: ReadFrom, limit: u32) -> Result<StreamPage> {
    let read = StreamRead { stream: stream(name), from, limit };
    store.backend.stream_read(&store.namespace, &read).await
}

async fn seqs(store: &Store, name: &str, from: ReadFrom, limit: u32) -> Vec<u64> {
    let page = read(store, name, from, limit).await.expect("the stream is read");
    page.events.into_iter().map(|event| event.seq).collect()
}

async fn events_are_numbered_from_one_without_a_gap(store: Store) {
    let first = store.append("s/1", &["a", "b", "c"]).await;
    assert_eq!((first.first_seq, first.last_seq), (1, 3));
    let second = store.append("s/1", &["d"]).await;
    assert_eq!((second.first_seq, second.last_seq), (4, 4));
    let events = store.events(&stream("s/1")).await;
    let numbered: Vec<_> = events.iter().map(|event| (event.seq, event.kind.as_str())).collect();
    assert_eq!(numbered, [(1, "a"), (2, "b"), (3, "c"), (4, "d")]);
    let many: Vec<_> = (0..1000).map(|_| "many").collect();
    let third = store.append("s/1", &many).await;
    assert_eq!((third.first_seq, third.last_seq), (5, 1004));
}

async fn an_event_carries_what_was_given(store: Store) {
    store.clock.advance(7);
    let mut batch = store.batch().actor("alice");
    let events = vec![
        NewEvent { kind: "message".into(), data: Some(json(r#"{"text":"hé","n":[1.10]}"#)) },
        NewEvent { kind: "empty".into(), data: None },
        NewEvent { kind: "null".into(), data: Some(json("null")) },
    ];
    batch.add(StreamAppend { stream: stream("thread/42"), events, expect_seq: None });
    store.apply(batch).await.expect("appended");
    let events = store.events(&stream("thread/42")).await;
    assert_eq!((events[0].kind.as_str(), events[0].seq), ("message", 1));
    assert_eq!(events[0].stream, stream("thread/42"));
    assert_eq!(events[0].data.as_ref().map(Json::as_str), Some(r#"{"text":"hé","n":[1.10]}"#));
    assert_eq!((events[0].at, events[0].actor.as_deref()), (store.now(), Some("alice")));
    assert_eq!(events[1].data, None);
    assert_eq!(events[2].data, Some(json("null")), "null is a value");
}

async fn an_append_may_expect_the_head(store: Store) {
    let expecting = |seq| StreamAppend { expect_seq: Some(seq), ..appending("s/1", &["a", "b"]) };
    refused(store.run(expecting(1)).await, "conflict");
    assert_eq!(store.run(expecting(0)).await.expect("there is none yet").last_seq, 2);
    for wrong in [0, 1, 3] {
        let error = refused(store.run(expecting(wrong)).await, "conflict");
        assert_eq!((error.place(), error.key()), (Some(Place::Command(0)), Some("s/1")));
    }
    assert_eq!(store.run(expecting(2)).await.expect("two is the last").last_seq, 4);
    assert_eq!(seqs(&store, "s/1", ReadFrom::Oldest, 10).await, [1, 2, 3, 4]);
}

async fn a_refused_append_leaves_no_gap(store: Store) {
    store.append("s/1", &["a"]).await;
    for _ in 0..5 {
        let mut batch = store.batch();
        batch.add(appending("s/1", &["lost", "lost"]));
        batch.add(StreamAppend { expect_seq: Some(9), ..appending("s/2", &["never"]) });
        refused(store.apply(batch).await, "conflict");
    }
    assert_eq!(store.append("s/1", &["b"]).await.first_seq, 2);
    let page = read(&store, "s/2", ReadFrom::Oldest, 10).await;
    assert_eq!(page, Ok(StreamPage::default()));
}

async fn appends_to_several_streams_go_together(store: Store) {
    store.append("s/2", &["x"]).await;
    let mut batch = store.batch();
    let one = batch.add(appending("s/1", &["a", "b"]));
    let two = batch.add(appending("s/2", &["c"]));
    let mut replies = store.apply(batch).await.expect("appended");
    assert_eq!(replies.take(one).expect("appended").last_seq, 2);
    assert_eq!(replies.take(two).expect("appended").first_seq, 2);
}

async fn a_stream_without_events_is_empty(store: Store) {
    for from in [ReadFrom::Oldest, ReadFrom::After(0), ReadFrom::Before(5), ReadFrom::Last] {
        assert_eq!(read(&store, "none/1", from, 10).await, Ok(StreamPage::default()), "{from:?}");
    }
}

async fn reading_after_goes_forward_from_the_cursor(store: Store) {
    store.append("s/1", &["a", "b", "c", "d", "e"]).await;
    assert_eq!(seqs(&store, "s/1", ReadFrom::After(0), 2).await, [1, 2]);
    assert_eq!(seqs(&store, "s/1", ReadFrom::After(2), 2).await, [3, 4]);
    assert_eq!(seqs(&store, "s/1", ReadFrom::After(4), 2).await, [5]);
    let page = read(&store, "s/1", ReadFrom::After(5), 2).await.expect("read");
    assert_eq!((page.events.len(), page.last_seq, page.oldest), (0, 5, 0));
}

async fn reading_before_answers_what_comes_just_before(store: Store) {
    store.append("s/1", &["a", "b", "c", "d", "e"]).await;
    assert_eq!(seqs(&store, "s/1", ReadFrom::Before(5), 2).await, [3, 4]);
    assert_eq!(seqs(&store, "s/1", ReadFrom::Before(3), 10).await, [1, 2]);
    assert_eq!(seqs(&store, "s/1", ReadFrom::Before(1), 10).await, [0; 0]);
    assert_eq!(seqs(&store, "s/1", ReadFrom::Before(0), 10).await, [0; 0]);
    assert_eq!(seqs(&store, "s/1", ReadFrom::Before(6), 1).await, [5]);
}

async fn reading_the_last_answers_the_end_in_order(store: Store) {
    store.append("s/1", &["a", "b", "c"]).await;
    assert_eq!(seqs(&store, "s/1", ReadFrom::Last, 2).await, [2, 3]);
    assert_eq!(seqs(&store, "s/1", ReadFrom::Last, 10).await, [1, 2, 3]);
}

async fn reading_from_the_oldest_is_bounded_by_the_limit(store: Store) {
    store.append("s/1", &["a", "b", "c"]).await;
    assert_eq!(seqs(&store, "s/1", ReadFrom::Oldest, 1).await, [1]);
    assert_eq!(seqs(&store, "s/1", ReadFrom::Oldest, 3).await, [1, 2, 3]);
    let page = read(&store, "s/1", ReadFrom::Oldest, 1).await.expect("read");
    assert_eq!((page.last_seq, page.oldest), (3, 0), "the head is told whatever was read");
}

async fn a_cursor_beyond_the_head_is_no_error(store: Store) {
    store.append("s/1", &["a", "b"]).await;
    for cursor in [3, u64::MAX / 2, u64::MAX] {
        assert_eq!(seqs(&store, "s/1", ReadFrom::After(cursor), 10).await, [0; 0]);
        assert_eq!(seqs(&store, "s/1", ReadFrom::Before(cursor), 1).await, [2]);
    }
}

async fn positions_grow_along_a_stream(store: Store) {
    for kinds in [&["a", "b"][..], &["c"], &["d", "e", "f"]] {
        store.append("other/1", kinds).await;
        store.append("s/1", kinds).await;
        store.clock.rewind(60);
    }
    let events = store.events(&stream("s/1")).await;
    assert_eq!(events.len(), 6);
    assert!(events.windows(2).all(|pair| pair[0].position.0.as_bytes() < pair[1].position.0.as_bytes()));
}

async fn a_tasks_stream_takes_appends_while_the_task_exists(store: Store) {
    let (task, token) = store.started("w").await;
    let name = StreamName::of_task(task.id);
    assert_eq!(store.append(name.as_str(), &["token", "token"]).await.first_seq, 3);
    let expecting = StreamAppend { expect_seq: Some(4), ..appending(name.as_str(), &["token"]) };
    assert_eq!(store.run(expecting.clone()).await.expect("four is the last").last_seq, 5);
    refused(store.run(expecting).await, "conflict");
    store.complete(task.id, token).await.expect("completed");
    assert_eq!(store.append(name.as_str(), &["epilogue"]).await.first_seq, 7);
    let history = store.history(task.id).await;
    assert_eq!(
        history,
        ["task.created", "task.started", "token", "token", "token", "task.completed", "epilogue"]
    );
    assert_eq!(store.task(task.id).await.revision, 3);
}

async fn a_stream_of_no_task_is_not_found(store: Store) {
    let id = store.plain().await.id;
    let unknown = TaskId::generate().to_string();
    let loud = id.to_string().to_uppercase();
    for name in [unknown.as_str(), loud.as_str(), "nonsense"] {
        let error = refused(store.run(appending(&format!("task/{name}"), &["a"])).await, "not_found");
        assert_eq!(error.place(), Some(Place::Command(0)));
    }
    assert_eq!(store.history(id).await, ["task.created"]);
}

async fn listed(store: &Store, prefix: &str) -> Vec<String> {
    let list = KeyList { prefix: prefix.into(), ..KeyList::default() };
    let page = store.backend.stream_list(&store.namespace, &list).await.expect("listed");
    assert_eq!(page.next_cursor, None);
    page.items.into_iter().map(|info| info.stream.to_string()).collect()
}

async fn streams_are_listed_by_prefix_in_the_order_of_bytes(store: Store) {
    let names = ["a/ä", "a/b", "a/B", "a/10", "a/9", "a/_", "a/%", "b/1", "a_/1", "ab/1", "a%/1", "A/b"];
    for name in names {
        store.append(name, &["x"]).await;
    }
    assert_eq!(listed(&store, "a/").await, ["a/%", "a/10", "a/9", "a/B", "a/_", "a/b", "a/ä"]);
    assert_eq!(listed(&store, "a_").await, ["a_/1"], "a prefix is no pattern");
    assert_eq!(listed(&store, "a%").await, ["a%/1"]);
    assert_eq!(listed(&store, "a/*").await, [""; 0]);
    assert_eq!(listed(&store, "").await.len(), names.len());
    let task = StreamName::of_task(store.plain().await.id).to_string();
    assert_eq!(listed(&store, "task/").await, [task]);
}

async fn streams_are_listed_page_by_page(store: Store) {
    for n in 0..5 {
        store.append(&format!("a/{n}"), &["x", "y"]).await;
    }
    let mut list = KeyList { prefix: "a/".into(), limit: 2, cursor: None };
    let mut pages = Vec::new();
    loop {
        let page = store.backend.stream_list(&store.namespace, &list).await.expect("listed");
        assert!(page.items.iter().all(|info| (info.last_seq, info.oldest) == (2, 0)));
        pages.push(page.items.into_iter().map(|info| info.stream.id().to_owned()).collect::<Vec<_>>());
        // A stream that comes before the cursor moves nothing.
        store.append(&format!("a/{}x", pages.len() * 2 - 2), &["x", "y"]).await;
        list.cursor = page.next_cursor;
        if list.cursor.is_none() {
            break;
        }
    }
    assert_eq!(pages, [vec!["0", "1"], vec!["2", "3"], vec!["4"]]);
}

async fn many_writers_and_a_tailing_reader_leave_no_gap(store: Store) {
    const WRITERS: usize = 16;
    const EACH: usize = 20;
    let tailing = store.clone();
    let reader = tokio::spawn(async move {
        let (mut seen, mut cursor) = (Vec::new(), 0);
        while seen.len() < WRITERS * EACH {
            let page = read(&tailing, "s/1", ReadFrom::After(cursor), 50).await.expect("read");
            cursor = page.events.last().map_or(cursor, |event| event.seq);
            seen.extend(page.events.into_iter().map(|event| (event.seq, event.kind)));
            tokio::task::yield_now().await;
        }
        seen
    });
    let replies = at_once(WRITERS, |writer| {
        let store = store.clone();
        async move {
            let mut own = Vec::new();
            for n in 0..EACH {
                own.push((
                    store.append("s/1", &[&format!("{writer}/{n}")]).await.first_seq,
                    format!("{writer}/{n}"),
                ));
            }
            own
        }
    })
    .await;
    let mut written: Vec<_> = replies.into_iter().flatten().collect();
    written.sort_unstable();
    assert!(written.iter().map(|(seq, _)| *seq).eq(1..=(WRITERS * EACH) as u64));
    assert_eq!(reader.await.expect("the reader ends"), written, "in order, nothing missed, nothing twice");
}
