//! Bounds: sizes of bodies and batches, counts, and the input of calls and queries.

use std::collections::BTreeMap;

use statehold_core::batch::{Batch, Fence};
use statehold_core::call::{Claim, GroupRead, Sweep};
use statehold_core::command::{
    Command, DeliveryRef, DocumentPut, EntrySet, EntryTake, GroupAck, LockAcquire, NewEvent, StreamAppend,
    TaskCreate,
};
use statehold_core::error::Place;
use statehold_core::model::{Content, Labels, Position, Source, Token};
use statehold_core::policy::{Retention, StreamRetention};
use statehold_core::query::{
    CategoryFrom, CategoryRead, DocumentList, KeyList, ReadFrom, StreamRead, TaskList, write_cursor,
};
use statehold_core::{Error, ErrorKind, Json, Result, Seconds, Status};

use crate::harness::{Store, appending, json, refused, stream};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_body_is_at_most_one_mebibyte,
    a_document_is_at_most_16_mebibytes,
    a_batch_is_at_most_16_mebibytes,
    a_batch_has_at_most_a_thousand_commands,
    lists_in_commands_are_bounded,
    labels_are_bounded,
    a_bad_claim_is_refused_and_takes_nothing,
    a_bad_group_read_is_refused_and_delivers_nothing,
    a_bad_sweep_is_refused,
    a_page_has_one_to_a_thousand_items,
    a_cursor_that_no_list_gave_is_refused,
];

const MEBIBYTE: usize = 1 << 20;

/// The paths of all problems of an invalid request.
fn paths(error: &Error) -> Vec<&str> {
    let ErrorKind::Invalid { problems } = error.kind() else { panic!("not invalid: {error}") };
    problems.iter().map(|problem| problem.path.as_str()).collect()
}

/// A JSON text of exactly this many bytes.
fn text(size: usize) -> Json {
    json(&format!("\"{}\"", "x".repeat(size - 2)))
}

async fn a_body_is_at_most_one_mebibyte(store: Store) {
    let event = |data| StreamAppend {
        events: vec![NewEvent { kind: "a".into(), data: Some(data) }],
        ..appending("s/1", &[])
    };
    let oversize: [(Command, &str); 4] = [
        (EntrySet::new("e", text(MEBIBYTE + 1)).into(), "value"),
        (event(text(MEBIBYTE + 1)).into(), "events.data"),
        (TaskCreate { input: Some(text(MEBIBYTE + 1)), ..TaskCreate::new("k") }.into(), "input"),
        (
            TaskCreate {
                metadata: Some(json(&format!(r#"{{"a":{:?}}}"#, text(MEBIBYTE)))),
                ..TaskCreate::new("k")
            }
            .into(),
            "metadata",
        ),
    ];
    for (command, path) in oversize {
        let batch = Batch { commands: vec![LockAcquire::new("l", "me").into(), command], ..store.batch() };
        let error = refused(store.apply(batch).await, "too_large");
        assert_eq!((error.key(), error.place()), (Some(path), Some(Place::Command(1))));
    }
    assert_eq!(store.dump().await, []);
    store.run(EntrySet::new("e", text(MEBIBYTE))).await.expect("just fits");
    store.run(event(text(MEBIBYTE))).await.expect("just fits");
    let entry = store.backend.entry_get(&store.namespace, "e").await.expect("read").expect("it is there");
    assert_eq!(entry.value, text(MEBIBYTE));
    assert_eq!(store.events(&stream("s/1")).await[0].data, Some(text(MEBIBYTE)));
}

async fn a_document_is_at_most_16_mebibytes(store: Store) {
    let most = 16 * MEBIBYTE;
    let binary = |size: usize| {
        let data = (0..size).map(|n| u8::try_from(n % 251).expect("below 256")).collect();
        DocumentPut::binary("d", "n", Content { content_type: "a/b".into(), data })
    };
    let oversize =
        [(DocumentPut::json("d", "n", text(most + 1)), "body"), (binary(most + 1), "content.data")];
    for (put, path) in oversize {
        let error = refused(store.run(put).await, "too_large");
        assert_eq!((error.key(), error.place()), (Some(path), Some(Place::Command(0))));
    }
    assert_eq!(store.dump().await, []);
    let largest = binary(most - 100);
    store.run(largest.clone()).await.expect("just fits");
    let document = store.backend.document_get(&store.namespace, "d", "n").await.expect("read");
    assert!(document.expect("it is there").content == largest.content, "every byte came back");
    store.run(DocumentPut::json("d", "n", text(most - 100))).await.expect("just fits");
    let document = store.backend.document_get(&store.namespace, "d", "n").await.expect("read");
    assert!(document.expect("it is there").body == Some(text(most - 100)), "every byte came back");
}

async fn a_batch_is_at_most_16_mebibytes(store: Store) {
    let large = |count: usize| {
        let mut batch = store.batch();
        for n in 0..count {
            batch.add(EntrySet::new(format!("e/{n:02}"), text(MEBIBYTE - 100)));
        }
        batch
    };
    let mut over = large(16);
    over.add(EntrySet::new("last", text(1700)));
    let error = refused(store.apply(over).await, "too_large");
    assert_eq!((error.key(), error.place()), (Some("batch"), None));
    assert_eq!(store.dump().await, []);
    assert_eq!(store.apply(large(16)).await.expect("just fits").replies.len(), 16);
}

async fn a_batch_has_at_most_a_thousand_commands(store: Store) {
    let mut batch = store.batch();
    let error = refused(store.apply(batch.clone()).await, "invalid");
    assert_eq!((paths(&error), error.place()), (vec!["commands"], None), "there must be one");
    for n in 0..1001 {
        batch.add(EntrySet::new(n.to_string(), json("1")));
    }
    let error = refused(store.apply(batch).await, "invalid");
    assert_eq!((paths(&error), error.place()), (vec!["commands"], None));
    let mut fenced = Batch::of(&store.namespace, EntryTake { key: "e".into() }).0;
    fenced.fences = vec![Fence::Lock { lock: "l".into(), token: Token(1) }; 101];
    let error = refused(store.apply(fenced).await, "invalid");
    assert_eq!(paths(&error), ["fences"]);
    assert_eq!(store.dump().await, []);
}

async fn lists_in_commands_are_bounded(store: Store) {
    let many: Vec<_> = (0..1001).map(|_| "a").collect();
    for events in [&many[..], &[]] {
        let error = refused(store.run(appending("s/1", events)).await, "invalid");
        assert_eq!(paths(&error), ["commands[0].events"]);
    }
    let ack = |count: u64| GroupAck {
        group: "g".into(),
        source: Source::Category("in".into()),
        deliveries: (0..count)
            .map(|n| DeliveryRef { position: Position::from_number(n), delivery_token: Token(1) })
            .collect(),
    };
    for count in [0, 1001] {
        let error = refused(store.run(ack(count)).await, "invalid");
        assert_eq!(paths(&error), ["commands[0].deliveries"]);
    }
    assert_eq!(store.dump().await, []);
}

async fn labels_are_bounded(store: Store) {
    let labels = |count: usize| -> Labels { (0..count).map(|n| (n.to_string(), "v".repeat(256))).collect() };
    let put = |labels| DocumentPut { labels, ..DocumentPut::json("d", "n", json("1")) };
    let error = refused(store.run(put(labels(65))).await, "invalid");
    assert_eq!(paths(&error), ["commands[0].labels"]);
    let long = Labels::from([("a".to_owned(), "v".repeat(257))]);
    let error = refused(store.run(put(long)).await, "too_large");
    assert_eq!(error.key(), Some("labels"));
    assert_eq!(store.dump().await, []);
    store.run(put(labels(64))).await.expect("just fits");
    let document = store.backend.document_get(&store.namespace, "d", "n").await.expect("read");
    assert_eq!(document.expect("it is there").labels, labels(64));
}

async fn a_bad_claim_is_refused_and_takes_nothing(store: Store) {
    let task = store.plain().await;
    let before = store.dump().await;
    let claim = || Claim::new(&store.namespace, "q", "w");
    let bad = [
        (Claim { limit: 0, ..claim() }, "limit"),
        (Claim { limit: 1001, ..claim() }, "limit"),
        (Claim { queues: vec![], ..claim() }, "queues"),
        (Claim { queues: (0..101).map(|n| n.to_string()).collect(), ..claim() }, "queues"),
        (Claim { queues: vec!["q".into(), String::new()], ..claim() }, "queues"),
        (Claim { owner: String::new(), ..claim() }, "owner"),
        (Claim { owner: "w".repeat(257), ..claim() }, "owner"),
        (Claim { lease_seconds: Some(Seconds::ZERO), ..claim() }, "lease_seconds"),
        (Claim { key: Some(String::new()), ..claim() }, "key"),
        (Claim { namespace: String::new(), ..claim() }, "namespace"),
    ];
    for (claim, path) in bad {
        let error = refused(store.backend.claim(claim).await, "invalid");
        assert_eq!(paths(&error), [path]);
        assert_eq!(store.dump().await, before, "not even the poller is recorded");
    }
    assert_eq!(store.status(task.id).await, Status::Pending);
    assert_eq!(store.backend.claim(Claim { limit: 1000, ..claim() }).await.expect("claimed").tasks.len(), 1);
}

async fn a_bad_group_read_is_refused_and_delivers_nothing(store: Store) {
    store.append("in/1", &["a"]).await;
    let before = store.dump().await;
    let read = || GroupRead::new(&store.namespace, "g", Source::Category("in".into()), "c");
    let bad = [
        (GroupRead { limit: 0, ..read() }, "limit"),
        (GroupRead { limit: 1001, ..read() }, "limit"),
        (GroupRead { max_deliveries: 0, ..read() }, "max_deliveries"),
        (GroupRead { visibility_seconds: Seconds::ZERO, ..read() }, "visibility_seconds"),
        (GroupRead { consumer: "\n".into(), ..read() }, "consumer"),
        (GroupRead { key: Some(String::new()), ..read() }, "key"),
        (GroupRead { group: "g".repeat(249), ..read() }, "group"),
        (GroupRead { source: Source::Category("in/1".into()), ..read() }, "source.category"),
        (GroupRead { namespace: "a\0".into(), ..read() }, "namespace"),
    ];
    for (read, path) in bad {
        let error = refused(store.backend.group_read(read).await, "invalid");
        assert_eq!(paths(&error), [path]);
        assert_eq!(store.dump().await, before);
    }
    assert_eq!(
        store.backend.group_read(GroupRead { limit: 1000, ..read() }).await.expect("read").events.len(),
        1
    );
}

async fn a_bad_sweep_is_refused(store: Store) {
    store.run(EntrySet::new("e", json("1"))).await.expect("set");
    store.clock.advance(3600);
    let sweep = || Sweep::new(&store.namespace);
    let task_streams = BTreeMap::from([("task".to_owned(), StreamRetention::default())]);
    let open_tasks = BTreeMap::from([(Status::Pending, Seconds::new(1))]);
    let bad = [
        (Sweep { limit: 0, ..sweep() }, "limit"),
        (Sweep { limit: 1001, ..sweep() }, "limit"),
        (Sweep { namespace: String::new(), ..sweep() }, "namespace"),
        (
            Sweep { retention: Retention { streams: task_streams, ..Retention::forever() }, ..sweep() },
            "retention.streams",
        ),
        (
            Sweep { retention: Retention { tasks: open_tasks, ..Retention::forever() }, ..sweep() },
            "retention.tasks",
        ),
    ];
    for (sweep, path) in bad {
        let error = refused(store.backend.sweep(sweep).await, "invalid");
        assert_eq!(paths(&error), [path]);
    }
    assert_eq!(store.sweep().await.entries, 1, "nothing was swept before");
}

/// What every list answers for a page of this size after this cursor.
async fn lists(store: &Store, limit: u32, cursor: Option<&str>) -> Vec<(&'static str, Result<usize>)> {
    let (backend, namespace) = (&store.backend, store.namespace.as_str());
    let cursor = cursor.map(str::to_owned);
    let keys = KeyList { limit, cursor: cursor.clone(), ..KeyList::default() };
    let documents = DocumentList { limit, cursor: cursor.clone(), ..DocumentList::new("d") };
    let tasks = TaskList { limit, cursor, ..TaskList::default() };
    vec![
        ("streams", backend.stream_list(namespace, &keys).await.map(|page| page.items.len())),
        ("entries", backend.entry_list(namespace, &keys).await.map(|page| page.items.len())),
        ("locks", backend.lock_list(namespace, &keys).await.map(|page| page.items.len())),
        ("documents", backend.document_list(namespace, &documents).await.map(|page| page.items.len())),
        ("tasks", backend.task_list(namespace, &tasks).await.map(|page| page.items.len())),
    ]
}

async fn a_page_has_one_to_a_thousand_items(store: Store) {
    for limit in [0, 1001, u32::MAX] {
        for (list, result) in lists(&store, limit, None).await {
            let error = refused(result, "invalid");
            assert_eq!(paths(&error), ["limit"], "{list}");
        }
        let read = StreamRead { stream: stream("s/1"), from: ReadFrom::Oldest, limit };
        let error = refused(store.backend.stream_read(&store.namespace, &read).await, "invalid");
        assert_eq!(paths(&error), ["limit"]);
        let read = CategoryRead { category: "s".into(), from: CategoryFrom::Latest, limit };
        let error = refused(store.backend.category_read(&store.namespace, &read).await, "invalid");
        assert_eq!(paths(&error), ["limit"]);
    }
    for (list, result) in lists(&store, 1000, None).await {
        assert_eq!(result, Ok(0), "{list}");
    }
    let read = CategoryRead { category: String::new(), from: CategoryFrom::Latest, limit: 1 };
    let error = refused(store.backend.category_read(&store.namespace, &read).await, "invalid");
    assert_eq!(paths(&error), ["category"]);
    let list = DocumentList::new("");
    let error = refused(store.backend.document_list(&store.namespace, &list).await, "invalid");
    assert_eq!(paths(&error), ["kind"]);
}

async fn a_cursor_that_no_list_gave_is_refused(store: Store) {
    let of_another_shape = write_cursor(&[1, 2]);
    for cursor in ["", "nonsense", "%%%", of_another_shape.as_str()] {
        for (list, result) in lists(&store, 10, Some(cursor)).await {
            let error = refused(result, "invalid");
            assert_eq!(paths(&error), ["cursor"], "{list} after {cursor:?}");
            assert!(error.hint_text().is_some_and(|hint| hint.contains("next_cursor")));
        }
    }
}
