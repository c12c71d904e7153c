//! Input of batches: what is wrong is refused with its place, and nothing is touched. Input of calls and
//! queries, and sizes, are in `bounds`.

use statehold_core::batch::{Batch, BatchKey, Fence};
use statehold_core::command::{
    Command, DeliveryRef, DocumentDelete, DocumentPut, EntryDelete, EntrySet, EntryTake, Expect, GroupAck,
    GroupNack, GroupSeek, LockAcquire, LockRelease, LockRenew, QueueSet, SeekTo, StreamPurge, StreamTrim,
    TaskCancel, TaskCreate, TaskPurge, TaskSignal, TaskStart, TrimTo,
};
use statehold_core::error::Place;
use statehold_core::model::{Content, Labels, Position, Source, StreamName, TaskId, Token};
use statehold_core::{Error, ErrorKind, Seconds};

use crate::harness::{Store, appending, json, refused, stream};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    what_cannot_be_read_is_refused_with_its_path,
    an_unknown_command_is_refused_with_those_there_are,
    what_follows_a_batch_is_refused,
    a_name_that_is_none_is_refused_with_its_path,
    a_bad_namespace_actor_or_key_is_refused,
    all_that_is_wrong_with_a_command_is_told_at_once,
    a_length_of_time_is_bounded,
    a_stream_is_named_category_and_id,
    a_batch_names_each_key_once,
    a_group_is_not_moved_and_acknowledged_in_one_batch,
    a_seek_after_what_is_no_cursor_is_refused,
];

/// The path of the one problem of a request that must be refused as invalid.
fn path_of(error: &Error) -> &str {
    let ErrorKind::Invalid { problems } = error.kind() else { panic!("not invalid: {error}") };
    assert_eq!(problems.len(), 1, "{error}");
    assert!(!problems[0].message.is_empty());
    &problems[0].path
}

/// Nothing came into being, not even the namespace.
async fn assert_untouched(store: &Store) {
    assert_eq!(store.dump().await, []);
    let namespaces = store.backend.namespaces().await.expect("listed");
    assert!(!namespaces.contains(&store.namespace));
}

/// Applies a good command and a bad one after it.
async fn refused_second(store: &Store, bad: Command) -> Error {
    let mut batch = store.batch();
    batch.add(EntrySet::new("good", json("1")));
    batch.commands.push(bad);
    let error = refused(store.apply(batch).await, "invalid");
    assert_eq!(error.place(), Some(Place::Command(1)));
    error
}

async fn what_cannot_be_read_is_refused_with_its_path(store: Store) {
    let deep = "[".repeat(5000) + &"]".repeat(5000);
    let set = |value: &str| format!(r#"{{"op": "entry.set", "key": "k", "value": {value}}}"#);
    let commands = [
        (r#"{"op": "entry.take", "key": "k", "x": 1}"#.to_owned(), "commands[0].x"),
        (r#"{"op": "entry.take", "key": 7}"#.into(), "commands[0].key"),
        (r#"{"op": "entry.take"}"#.into(), "commands[0]"),
        (r#"{"op": 7}"#.into(), "commands[0].op"),
        (r#"{"op": "entry.take", "key": "k", "key": "l"}"#.into(), "commands[0]"),
        (r#"{"key": "k"}"#.into(), "commands[0].op"),
        ("7".into(), "commands[0]"),
        (set(r#""\u0000""#), "commands[0].value"),
        (set(r#"{"a\u0000": 1}"#), "commands[0].value"),
        (set(r#""\ud800""#), "commands[0].value"),
        (set("1e9999"), "commands[0].value"),
        (set(&deep), "commands[0].value"),
        (r#"{"op": "entry.set", "key": "k", "value": 1, "ttl_seconds": -1}"#.into(), "commands[0].ttl_seconds"),
        (r#"{"op": "task.complete", "id": "7", "token": 1}"#.into(), "commands[0].id"),
        (r#"{"op": "stream.append", "stream": "s", "events": [{"type": "a"}]}"#.into(), "commands[0].stream"),
        (
            r#"{"op": "stream.append", "stream": "s/1", "events": [{"type": "a"}, {"type": "b", "x": 1}]}"#.into(),
            "commands[0].events[1].x",
        ),
        (
            r#"{"op": "document.put", "kind": "k", "name": "n", "content": {"content_type": "a/b", "data": "?"}}"#.into(),
            "commands[0].content.data",
        ),
        (r#"{"op": "document.put", "kind": "k", "name": "n", "body": 1, "expect": "x"}"#.into(), "commands[0].expect"),
    ];
    let batches = [
        (r#"{"commands": 7}"#.to_owned(), "commands"),
        (r#"{"commands": [], "x": 1}"#.into(), "x"),
        (r#"{"commands": [], "fences": [{"task": "7", "token": 1}]}"#.into(), "fences[0].task"),
        (r#"{"commands": [], "fences": [{"lock": "l", "token": 1, "x": 1}]}"#.into(), "fences[0].x"),
        (r#"{"commands": [], "fences": [{"token": 1}]}"#.into(), "fences[0]"),
        ("{}".into(), ""),
        ("nonsense".into(), ""),
    ];
    let commands = commands.map(|(command, path)| (format!(r#"{{"commands": [{command}]}}"#), path));
    for (text, path) in commands.into_iter().chain(batches) {
        let error = refused(Batch::from_json(&store.namespace, &text), "invalid");
        assert_eq!(path_of(&error), path, "{error}");
        assert!(!error.message().contains("hint:"), "the hint stands apart: {}", error.message());
    }
}

async fn an_unknown_command_is_refused_with_those_there_are(store: Store) {
    let text = r#"{"commands": [{"op": "entry.take", "key": "k"}, {"op": "entry.grab", "key": "k"}]}"#;
    let error = refused(Batch::from_json(&store.namespace, text), "invalid");
    assert_eq!((path_of(&error), error.place()), ("commands[1].op", Some(Place::Command(1))));
    assert!(error.hint_text().is_some_and(|hint| hint.contains("entry.take")), "{error}");
}

async fn what_follows_a_batch_is_refused(store: Store) {
    let text = r#"{"commands": [{"op": "entry.take", "key": "k"}]} {"commands": []}"#;
    refused(Batch::from_json(&store.namespace, text), "invalid");
}

/// A command with a name in the given place, and its path.
type Naming = (fn(String) -> Command, &'static str);

fn namings() -> Vec<Naming> {
    let mut namings: Vec<Naming> = vec![
        (|kind| TaskCreate { kind, ..TaskCreate::default() }.into(), "kind"),
        (|queue| TaskCreate { queue: Some(queue), ..TaskCreate::new("k") }.into(), "queue"),
        (|thread| TaskCreate { thread: Some(thread), ..TaskCreate::new("k") }.into(), "thread"),
        (|key| TaskCreate { idempotency_key: Some(key), ..TaskCreate::new("k") }.into(), "idempotency_key"),
        (|key| TaskCreate { exclusive_key: Some(key), ..TaskCreate::new("k") }.into(), "exclusive_key"),
        (|owner| TaskStart { id: TaskId::default(), owner, lease_seconds: None }.into(), "owner"),
        (|name| TaskSignal { id: TaskId::default(), name, data: None }.into(), "name"),
        (|queue| QueueSet { queue, paused: true }.into(), "queue"),
        (|kind| appending("s/1", &[&kind]).into(), "events.type"),
        (|kind| DocumentPut::json(kind, "n", json("1")).into(), "kind"),
        (|name| DocumentPut::json("k", name, json("1")).into(), "name"),
    ];
    namings.extend::<[Naming; 10]>([
        (|key| labelled(&key).into(), "labels"),
        (|content_type| typed(content_type).into(), "content.content_type"),
        (|key| EntrySet::new(key, json("1")).into(), "key"),
        (|key| EntryTake { key }.into(), "key"),
        (|key| EntryDelete { key }.into(), "key"),
        (|key| LockAcquire::new(key, "me").into(), "key"),
        (|owner| LockAcquire::new("l", owner).into(), "owner"),
        (|key| LockRenew { key, token: Token(1), ttl_seconds: 1.into() }.into(), "key"),
        (|key| LockRelease { key, token: Token(1) }.into(), "key"),
        (|category| seek("g", Source::Category(category)).into(), "source.category"),
    ]);
    namings
}

fn labelled(key: &str) -> DocumentPut {
    let labels = Labels::from([(key.to_owned(), "value".to_owned())]);
    DocumentPut { labels, ..DocumentPut::json("k", "n", json("1")) }
}

fn typed(content_type: String) -> DocumentPut {
    DocumentPut::binary("k", "n", Content { content_type, data: b"1"[..].into() })
}

fn seek(group: &str, source: Source) -> GroupSeek {
    GroupSeek { group: group.into(), source, to: SeekTo::Oldest }
}

async fn a_name_that_is_none_is_refused_with_its_path(store: Store) {
    let long = "k".repeat(257);
    let long_in_bytes = "é".repeat(129);
    let bad = ["", &long, &long_in_bytes, "line\nbreak", "nul\0", "delete\u{7f}", "next\u{85}line"];
    for (naming, path) in namings() {
        for name in bad {
            let error = refused_second(&store, naming(name.to_owned())).await;
            assert_eq!(path_of(&error), format!("commands[1].{path}"), "{name:?}");
        }
    }
    for name in ["", "line\nbreak"] {
        let error = refused_second(&store, seek(name, Source::Category("in".into())).into()).await;
        assert_eq!(path_of(&error), "commands[1].group");
    }
    let error = refused_second(&store, seek(&"g".repeat(249), Source::Category("in".into())).into()).await;
    assert_eq!(path_of(&error), "commands[1].group", "there must be room for its dead letters' stream");
    let error = refused_second(&store, seek("g", Source::Category("in/1".into())).into()).await;
    assert_eq!(path_of(&error), "commands[1].source.category");
    assert_untouched(&store).await;
}

async fn a_bad_namespace_actor_or_key_is_refused(store: Store) {
    let batch = || Batch::of(&store.namespace, EntrySet::new("e", json("1"))).0;
    for bad in ["", &"k".repeat(257), "a\tb"] {
        let named = [
            (Batch { namespace: bad.into(), ..batch() }, "namespace"),
            (batch().actor(bad), "actor"),
            (batch().key(bad), "key"),
        ];
        for (batch, path) in named {
            let error = refused(store.apply(batch).await, "invalid");
            assert_eq!((path_of(&error), error.place()), (path, None));
        }
    }
    let forgotten_at_once = BatchKey { key: "k".into(), keep: Seconds::ZERO };
    let error = refused(store.apply(Batch { key: Some(forgotten_at_once), ..batch() }).await, "invalid");
    assert_eq!(path_of(&error), "key");
    assert_untouched(&store).await;
}

async fn all_that_is_wrong_with_a_command_is_told_at_once(store: Store) {
    let create = TaskCreate {
        queue: Some(String::new()),
        child_key: Some("c".into()),
        metadata: Some(json("[]")),
        max_attempts: Some(0),
        ..TaskCreate::new("")
    };
    let error = refused_second(&store, create.into()).await;
    let ErrorKind::Invalid { problems } = error.kind() else { panic!("{error}") };
    let paths: Vec<_> = problems.iter().map(|problem| problem.path.as_str()).collect();
    for path in ["kind", "queue", "child_key", "metadata", "max_attempts"] {
        assert!(paths.contains(&format!("commands[1].{path}").as_str()), "{path} is missing in {paths:?}");
    }
    assert_untouched(&store).await;
}

async fn a_length_of_time_is_bounded(store: Store) {
    type Lasting = (fn(Seconds) -> Command, &'static str);
    let lasting: [Lasting; 5] = [
        (|length| EntrySet { ttl_seconds: length, ..EntrySet::new("e", json("1")) }.into(), "ttl_seconds"),
        (
            |length| {
                DocumentPut { ttl_seconds: Some(length), ..DocumentPut::json("d", "n", json("1")) }.into()
            },
            "ttl_seconds",
        ),
        (|length| LockAcquire { ttl_seconds: length, ..LockAcquire::new("l", "me") }.into(), "ttl_seconds"),
        (|length| LockRenew { key: "l".into(), token: Token(1), ttl_seconds: length }.into(), "ttl_seconds"),
        (
            |length| StreamTrim { stream: stream("s/1"), to: TrimTo::AgeSeconds(length) }.into(),
            "to.age_seconds",
        ),
    ];
    for (command, path) in lasting {
        for length in [Seconds::ZERO, Seconds::from_micros(Seconds::MAX.as_micros() + 1)] {
            let error = refused_second(&store, command(length)).await;
            assert_eq!(path_of(&error), format!("commands[1].{path}"));
        }
    }
    assert_untouched(&store).await;
    let longest = EntrySet { ttl_seconds: Seconds::MAX, ..EntrySet::new("e", json("1")) };
    let expires_at = store.run(longest).await.expect("ten years").expires_at;
    assert_eq!(expires_at, store.now() + Seconds::MAX);
}

async fn a_stream_is_named_category_and_id(store: Store) {
    let long = format!("s/{}", "i".repeat(255));
    for bad in ["", "s", "s/", "/1", "/", long.as_str(), "s/\n", "s\0/1"] {
        let error = refused(bad.parse::<StreamName>(), "invalid");
        assert_eq!(path_of(&error), "stream", "{bad:?}");
    }
    let longest = format!("s/{}", "i".repeat(254));
    for good in ["s/1", "s//", "s/1/2", " / ", longest.as_str()] {
        assert_eq!(store.append(good, &["a"]).await.last_seq, 1, "{good:?}");
        assert_eq!(store.events(&stream(good)).await.len(), 1);
    }
}

/// Pairs of commands that name the same key.
fn pairs() -> Vec<(Command, Command, &'static str)> {
    let id = TaskId::generate();
    let create = || TaskCreate::new("k");
    let keyed = || TaskCreate { idempotency_key: Some("i".into()), ..create() };
    let child = || TaskCreate { parent: Some(id), child_key: Some("c".into()), ..create() };
    let exclusive = || TaskCreate { exclusive_key: Some("x".into()), ..create() };
    let named = TaskCreate { id: Some(id), ..create() };
    let cancel = TaskCancel { id, force: false, children: false };
    let source = || Source::Stream(stream("s/1"));
    let deliveries = || vec![DeliveryRef { position: Position::from_number(1), delivery_token: Token(1) }];
    let ack = GroupAck { group: "g".into(), source: source(), deliveries: deliveries() };
    let nack =
        GroupNack { group: "g".into(), source: source(), deliveries: deliveries(), delay_seconds: None };
    let trim = StreamTrim { stream: stream("s/1"), to: TrimTo::Length(1) };
    vec![
        (named.clone().into(), cancel.into(), "task"),
        (keyed().into(), keyed().into(), "idempotency key"),
        (child().into(), child().into(), "child key"),
        (exclusive().into(), exclusive().into(), "exclusive key"),
        (appending("s/1", &["a"]).into(), trim.into(), "stream"),
        (TaskPurge { id }.into(), StreamPurge { stream: StreamName::of_task(id) }.into(), "stream"),
        (
            DocumentPut::json("d", "n", json("1")).into(),
            DocumentDelete { kind: "d".into(), name: "n".into(), expect: Expect::Any }.into(),
            "document",
        ),
        (EntrySet::new("e", json("1")).into(), EntryTake { key: "e".into() }.into(), "entry"),
        (LockAcquire::new("l", "me").into(), LockRelease { key: "l".into(), token: Token(1) }.into(), "lock"),
        (
            QueueSet { queue: "q".into(), paused: true }.into(),
            QueueSet { queue: "q".into(), paused: false }.into(),
            "queue",
        ),
        (seek("g", source()).into(), seek("g", source()).into(), "group"),
        (ack.into(), nack.into(), "delivery"),
    ]
}

async fn a_batch_names_each_key_once(store: Store) {
    for (one, two, noun) in pairs() {
        for (first, second) in [(&one, &two), (&two, &one)] {
            let between = EntrySet::new("between", json("1")).into();
            let batch = Batch { commands: vec![first.clone(), between, second.clone()], ..store.batch() };
            let error = refused(store.apply(batch).await, "invalid");
            assert_eq!((path_of(&error), error.place()), ("commands[2]", Some(Place::Command(2))), "{noun}");
            assert!(error.message().contains(&format!("{noun} `")), "{noun} is not named: {error}");
        }
    }
    let delivery = DeliveryRef { position: Position::from_number(1), delivery_token: Token(1) };
    let deliveries = vec![delivery.clone(), delivery];
    let twice = GroupAck { group: "g".into(), source: Source::Category("in".into()), deliveries };
    let error = refused_second(&store, twice.into()).await;
    assert_eq!(path_of(&error), "commands[1].deliveries");
    assert_untouched(&store).await;
    let (task, token) = store.started("w").await;
    let fence = Fence::Task { task: task.id, token };
    let cancel = TaskCancel { id: task.id, force: false, children: false };
    let batch = Batch::of(&store.namespace, cancel).0.fence(fence.clone()).fence(fence);
    store.apply(batch).await.expect("a fence names no key");
}

async fn a_group_is_not_moved_and_acknowledged_in_one_batch(store: Store) {
    let source = || Source::Category("in".into());
    let delivery = DeliveryRef { position: Position::from_number(1), delivery_token: Token(1) };
    let ack = GroupAck { group: "g".into(), source: source(), deliveries: vec![delivery] };
    for seek_first in [true, false] {
        let mut commands: Vec<Command> = vec![seek("g", source()).into(), ack.clone().into()];
        if !seek_first {
            commands.reverse();
        }
        let error = refused(store.apply(Batch { commands, ..store.batch() }).await, "invalid");
        assert_eq!(path_of(&error), format!("commands[{}].group", usize::from(seek_first)));
    }
    assert_untouched(&store).await;
}

async fn a_seek_after_what_is_no_cursor_is_refused(store: Store) {
    for cursor in ["", "x", "-1", "1.5", "99999999999999999999999"] {
        let (group, to) = ("g".into(), SeekTo::After(cursor.into()));
        let error =
            refused_second(&store, GroupSeek { group, source: Source::Stream(stream("s/1")), to }.into())
                .await;
        assert_eq!(path_of(&error), "commands[1].to.after");
    }
    assert_untouched(&store).await;
}
