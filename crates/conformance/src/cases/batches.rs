//! Batches: in which order they are judged and take effect, and that they are all or nothing.

use std::collections::BTreeSet;

use statehold_core::Status;
use statehold_core::batch::{Batch, Fence};
use statehold_core::command::{
    Command, DeliveryRef, DocumentPut, EntryDelete, EntrySet, EntryTake, Existed, Expect, GroupAck,
    GroupSeek, LockAcquire, LockRelease, LockRenew, QueueSet, SeekTo, StreamAppend, StreamPurge, StreamTrim,
    TaskComplete, TaskCreate, TaskEvict, TaskStart, TrimTo,
};
use statehold_core::dump::Record;
use statehold_core::error::Place;
use statehold_core::model::{Event, Position, Source, StreamName, TaskId, Token};

use crate::harness::{Store, appending, at_once, json, proof, refused, stream};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    replies_come_in_the_order_of_the_commands,
    the_key_is_judged_before_fences_and_guards,
    fences_are_judged_in_order_before_guards,
    guards_are_judged_in_the_order_of_the_commands,
    guards_see_the_state_before_the_batch,
    a_task_created_in_the_batch_has_no_stream_before_it,
    effects_happen_in_the_order_of_the_commands,
    appends_to_a_tasks_stream_come_before_its_lifecycle_events,
    a_refused_batch_leaves_nothing,
    a_worker_settles_all_at_once,
    creates_may_refer_to_tasks_created_earlier_in_the_batch,
    a_create_that_refers_to_a_later_one_is_refused,
    a_batch_may_have_a_thousand_commands,
    the_actor_is_on_every_event_of_the_batch,
    concurrent_changes_of_the_same_keys_happen_one_after_the_other,
    a_batch_whose_caller_goes_away_is_whole_or_nothing,
];

async fn replies_come_in_the_order_of_the_commands(store: Store) {
    let mut batch = store.batch();
    let set = batch.add(EntrySet::new("e", json("1")));
    let created = batch.add(TaskCreate::new("k"));
    let appended = batch.add(appending("s/1", &["a", "b"]));
    let put = batch.add(DocumentPut::json("d", "n", json("{}")));
    let acquired = batch.add(LockAcquire::new("l", "me"));
    let paused = batch.add(QueueSet { queue: "q".into(), paused: true });
    let deleted = batch.add(EntryDelete { key: "none".into() });
    let taken = batch.add(EntryTake { key: "none either".into() });
    let mut replies = store.apply(batch).await.expect("the batch is applied");
    assert_eq!(replies.replies.len(), 8);
    assert!(!replies.replayed);
    assert_eq!(replies.take(taken).expect("taken").entry, None);
    assert_eq!(replies.take(deleted), Ok(Existed { existed: false }));
    assert!(replies.take(paused).expect("paused").paused);
    assert_eq!(replies.take(acquired).expect("acquired").expires_at, store.now() + 60.into());
    assert_eq!(replies.take(put).expect("put").revision, 1);
    let appended = replies.take(appended).expect("appended");
    assert_eq!((appended.first_seq, appended.last_seq), (1, 2));
    assert!(replies.take(created).expect("created").created);
    assert_eq!(replies.take(set).expect("set").expires_at, store.now() + 3600.into());
}

async fn the_key_is_judged_before_fences_and_guards(store: Store) {
    let first = Batch::of(&store.namespace, EntrySet::new("a", json("1"))).0.key("k");
    store.apply(first).await.expect("the key is free");
    let mut second = store.batch().key("k").fence(Fence::Lock { lock: "none".into(), token: Token(1) });
    second.add(TaskComplete { id: TaskId::generate(), token: Token(1), output: None });
    let error = refused(store.apply(second).await, "conflict");
    assert_eq!(error.place(), Some(Place::Key));
}

async fn fences_are_judged_in_order_before_guards(store: Store) {
    let (task, token) = store.started("w").await;
    let good = Fence::Task { task: task.id, token };
    let bad = Fence::Lock { lock: "none".into(), token };
    for (fences, place) in [(vec![&good, &bad, &bad], 1), (vec![&bad, &good], 0)] {
        let mut batch = fences.into_iter().fold(store.batch(), |batch, fence| batch.fence(fence.clone()));
        batch.add(TaskComplete { id: TaskId::generate(), token, output: None });
        let error = refused(store.apply(batch).await, "fenced");
        assert_eq!(error.place(), Some(Place::Fence(place)));
    }
    let mut batch = store.batch().fence(good);
    batch.add(EntrySet::new("e", json("1")));
    batch.add(TaskComplete { id: TaskId::generate(), token, output: None });
    let error = refused(store.apply(batch).await, "not_found");
    assert_eq!(error.place(), Some(Place::Command(1)), "all fences held");
}

async fn guards_are_judged_in_the_order_of_the_commands(store: Store) {
    let refusing = refusals(&store).await;
    for (first, (command, code)) in refusing.iter().enumerate() {
        let mut batch = store.batch();
        batch.add(EntrySet::new("fine", json("1")));
        batch.commands.push(command.clone());
        batch
            .commands
            .extend(refusing.iter().enumerate().filter(|(n, _)| *n != first).map(|(_, c)| c.0.clone()));
        let error = refused(store.apply(batch).await, code);
        assert_eq!(error.place(), Some(Place::Command(1)), "{command:?}: {error}");
    }
}

async fn guards_see_the_state_before_the_batch(store: Store) {
    let exclusive = TaskCreate { exclusive_key: Some("x".into()), ..TaskCreate::new("k") };
    let one = store.create(exclusive.clone()).await;
    let (_, token) = store.start(one.id, "w").await;
    let two = store.create(exclusive).await;
    let mut batch = store.batch();
    batch.add(TaskComplete { id: one.id, token, output: None });
    batch.add(TaskStart { id: two.id, owner: "w".into(), lease_seconds: None });
    let error = refused(store.apply(batch).await, "held");
    assert_eq!(error.place(), Some(Place::Command(1)), "the key is free only after the batch");
    assert_eq!(store.status(one.id).await, Status::Running);
    store.complete(one.id, token).await.expect("the lease is alive");
    store.start(two.id, "w").await;
}

async fn a_task_created_in_the_batch_has_no_stream_before_it(store: Store) {
    let id = TaskId::generate();
    let mut batch = store.batch();
    batch.add(TaskCreate { id: Some(id), ..TaskCreate::new("k") });
    batch.add(appending(StreamName::of_task(id).as_str(), &["note"]));
    let error = refused(store.apply(batch).await, "not_found");
    assert_eq!(error.place(), Some(Place::Command(1)));
    assert_eq!(store.find(id).await, None);
}

async fn effects_happen_in_the_order_of_the_commands(store: Store) {
    let (one, token) = store.started("w").await;
    let mut batch = store.batch();
    batch.add(TaskComplete { id: one.id, token, output: None });
    let after = batch.add(TaskCreate { depends_on: vec![one.id], ..TaskCreate::new("k") });
    let mut replies = store.apply(batch).await.expect("the batch is applied");
    let after = replies.take(after).expect("created").task;
    assert_eq!(after.status, Status::Pending, "its dependency was completed before");
    assert_eq!(store.history(after.id).await, ["task.created"]);

    let (two, token) = store.started("w").await;
    let mut batch = store.batch();
    let before = batch.add(TaskCreate { depends_on: vec![two.id], ..TaskCreate::new("k") });
    batch.add(TaskComplete { id: two.id, token, output: None });
    let mut replies = store.apply(batch).await.expect("the batch is applied");
    let before = replies.take(before).expect("created").task;
    assert_eq!(store.status(before.id).await, Status::Pending);
    assert_eq!(store.history(before.id).await, ["task.created", "task.unblocked"]);
    let events = store.events(&StreamName::of_task(before.id)).await;
    assert_eq!(events[0].data, Some(json(r#"{"queue":"default","kind":"k","status":"blocked"}"#)));
}

async fn appends_to_a_tasks_stream_come_before_its_lifecycle_events(store: Store) {
    let (task, token) = store.started("w").await;
    let mut batch = store.batch();
    batch.add(TaskComplete { id: task.id, token, output: None });
    let appended = batch.add(appending(StreamName::of_task(task.id).as_str(), &["note", "last words"]));
    let mut replies = store.apply(batch).await.expect("the batch is applied");
    assert_eq!(replies.take(appended).expect("appended").first_seq, 3);
    let history = store.history(task.id).await;
    assert_eq!(history, ["task.created", "task.started", "note", "last words", "task.completed"]);
    assert_eq!(store.task(task.id).await.revision, 3, "only lifecycle events count");
}

/// Commands whose guards do not hold, each with the code of its refusal.
async fn refusals(store: &Store) -> Vec<(Command, &'static str)> {
    store.run(EntrySet::new("taken", json("1"))).await.expect("set");
    store.run(LockAcquire::new("taken", "someone")).await.expect("acquired");
    store.append("taken/1", &["a"]).await;
    let done = store.plain().await;
    let source = Source::Category("none".into());
    let deliveries = vec![DeliveryRef { position: Position::from_number(1), delivery_token: Token(1) }];
    let moved = StreamAppend { expect_seq: Some(7), ..appending("taken/1", &["b"]) };
    let outdated = DocumentPut { expect: Expect::Revision(7), ..DocumentPut::json("none", "n", json("1")) };
    vec![
        (TaskComplete { id: TaskId::generate(), token: Token(1), output: None }.into(), "not_found"),
        (TaskComplete { id: done.id, token: Token(1), output: None }.into(), "fenced"),
        (TaskEvict { id: store.plain().await.id }.into(), "invalid_transition"),
        (moved.into(), "conflict"),
        (StreamTrim { stream: stream("none/1"), to: TrimTo::Length(1) }.into(), "not_found"),
        (StreamPurge { stream: stream("none/2") }.into(), "not_found"),
        (GroupAck { group: "none".into(), source, deliveries }.into(), "fenced"),
        (outdated.into(), "precondition_failed"),
        (EntrySet { if_absent: true, ..EntrySet::new("taken", json("2")) }.into(), "conflict"),
        (LockAcquire::new("taken", "me").into(), "held"),
        (LockRenew { key: "none".into(), token: Token(1), ttl_seconds: 60.into() }.into(), "fenced"),
        (LockRelease { key: "never".into(), token: Token(1) }.into(), "fenced"),
    ]
}

async fn a_refused_batch_leaves_nothing(store: Store) {
    let refusing = refusals(&store).await;
    let task = store.plain().await;
    let before = store.dump().await;
    for (command, code) in refusing {
        let mut batch = store.batch().key("k").actor("me");
        batch.add(TaskCreate { idempotency_key: Some("new".into()), ..TaskCreate::new("k") });
        batch.add(TaskStart { id: task.id, owner: "w".into(), lease_seconds: None });
        batch.add(QueueSet { queue: "q".into(), paused: true });
        batch.add(appending("s/1", &["a"]));
        batch.add(GroupSeek { group: "g".into(), source: Source::Stream(stream("s/1")), to: SeekTo::Latest });
        batch.add(DocumentPut::json("d", "n", json("1")));
        batch.add(EntrySet::new("e", json("1")));
        batch.add(LockAcquire::new("l", "me"));
        batch.commands.push(command.clone());
        let error = refused(store.apply(batch).await, code);
        assert_eq!(error.place(), Some(Place::Command(8)), "{command:?}: {error}");
        assert_eq!(store.dump().await, before, "{command:?} left something");
    }
}

async fn a_worker_settles_all_at_once(store: Store) {
    let (task, token) = store.started("w").await;
    let lock = store.run(LockAcquire::new("l", "w")).await.expect("acquired").token;
    store.append("in/1", &["request"]).await;
    let source = Source::Stream(stream("in/1"));
    let delivered = store.deliver("g", &source, "w").await.remove(0);
    let fences = [
        Fence::Task { task: task.id, token },
        Fence::Lock { lock: "l".into(), token: lock },
        Fence::Delivery {
            group: "g".into(),
            source: source.clone(),
            position: delivered.event.position.clone(),
            delivery_token: delivered.delivery_token,
        },
    ];
    let mut batch = fences.into_iter().fold(store.batch(), Batch::fence);
    batch.add(TaskComplete { id: task.id, token, output: Some(json("42")) });
    batch.add(appending("out/1", &["answer"]));
    batch.add(DocumentPut::json("d", "n", json(r#"{"done":true}"#)));
    batch.add(EntrySet::new("result/1", json("42")));
    batch.add(LockRelease { key: "l".into(), token: lock });
    batch.add(GroupAck { group: "g".into(), source, deliveries: vec![proof(&delivered)] });
    let again = batch.clone();
    store.apply(batch).await.expect("all is still held");
    assert_eq!(store.task(task.id).await.output, Some(json("42")));
    assert_eq!(store.events(&stream("out/1")).await.len(), 1);
    let namespace = store.namespace.as_str();
    assert!(store.backend.document_get(namespace, "d", "n").await.expect("read").is_some());
    assert!(store.backend.entry_get(namespace, "result/1").await.expect("read").is_some());
    assert_eq!(store.backend.lock_get(namespace, "l").await, Ok(None));
    let error = refused(store.apply(again).await, "fenced");
    assert_eq!(error.place(), Some(Place::Fence(0)), "the worker gave up everything");
    assert_eq!(store.events(&stream("out/1")).await.len(), 1);
}

async fn creates_may_refer_to_tasks_created_earlier_in_the_batch(store: Store) {
    let (root, first) = (TaskId::generate(), TaskId::generate());
    let mut batch = store.batch();
    batch.add(TaskCreate { id: Some(root), ..TaskCreate::new("plan") });
    batch.add(TaskCreate { id: Some(first), parent: Some(root), ..TaskCreate::new("step") });
    let second = TaskCreate { parent: Some(first), depends_on: vec![first], ..TaskCreate::new("step") };
    let mut refusing = batch.clone();
    refusing.add(second);
    let error = refused(store.apply(refusing).await, "invalid");
    assert_eq!(error.place(), Some(Place::Command(2)), "a task cannot wait for its ancestor");
    assert_eq!(store.find(root).await, None);
    let second = batch.add(TaskCreate {
        parent: Some(root),
        depends_on: vec![first],
        child_key: Some("second".into()),
        ..TaskCreate::new("step")
    });
    let second = store.apply(batch).await.expect("applied").take(second).expect("created").task;
    assert_eq!((second.status, second.root, second.parent), (Status::Blocked, root, Some(root)));
    assert_eq!(store.task(first).await.root, root);
}

async fn a_create_that_refers_to_a_later_one_is_refused(store: Store) {
    let later = TaskId::generate();
    let referring = [
        TaskCreate { parent: Some(later), ..TaskCreate::new("k") },
        TaskCreate { depends_on: vec![later], ..TaskCreate::new("k") },
    ];
    for create in referring {
        let mut batch = store.batch();
        batch.add(create);
        batch.add(TaskCreate { id: Some(later), ..TaskCreate::new("k") });
        let error = refused(store.apply(batch).await, "not_found");
        assert_eq!(error.place(), Some(Place::Command(0)));
        assert_eq!(store.find(later).await, None);
    }
}

async fn a_batch_may_have_a_thousand_commands(store: Store) {
    let mut batch = store.batch();
    for n in 0..1000 {
        batch.commands.push(match n % 4 {
            0 => EntrySet::new(format!("e/{n}"), json("1")).into(),
            1 => DocumentPut::json("d", format!("{n}"), json("1")).into(),
            2 => appending(&format!("s/{n}"), &["a"]).into(),
            _ => LockAcquire::new(format!("l/{n}"), "me").into(),
        });
    }
    let replies = store.apply(batch).await.expect("the batch is applied");
    assert_eq!(replies.replies.len(), 1000);
    let dump = store.dump().await;
    let events = dump.iter().filter(|record| matches!(record, Record::Event(_))).count();
    let locks = dump.iter().filter(|record| matches!(record, Record::Lock(_))).count();
    assert_eq!((events, locks), (250, 250));
}

async fn the_actor_is_on_every_event_of_the_batch(store: Store) {
    let id = TaskId::generate();
    let mut batch = store.batch().actor("alice");
    batch.add(TaskCreate { id: Some(id), queue: Some("q".into()), ..TaskCreate::new("k") });
    batch.add(appending("s/1", &["a"]));
    store.apply(batch).await.expect("the batch is applied");
    store.append("s/1", &["b"]).await;
    assert_eq!(store.claim("w", 1).await.tasks.len(), 1);
    let actors = |events: Vec<Event>| -> Vec<_> { events.into_iter().map(|event| event.actor).collect() };
    let alice = Some("alice".to_owned());
    assert_eq!(actors(store.events(&stream("s/1")).await), [alice.clone(), None]);
    assert_eq!(actors(store.events(&StreamName::of_task(id)).await), [alice, None], "a claim has no actor");
}

async fn concurrent_changes_of_the_same_keys_happen_one_after_the_other(store: Store) {
    const WRITERS: usize = 16;
    store.run(DocumentPut::json("counter", "n", json("0"))).await.expect("put");
    at_once(WRITERS, |_| {
        let store = store.clone();
        async move {
            loop {
                let read = store.backend.document_get(&store.namespace, "counter", "n").await;
                let counter = read.expect("read").expect("it is there");
                let count: u64 = counter.body.expect("a JSON body").to().expect("a number");
                let mut batch = store.batch();
                batch.add(DocumentPut {
                    expect: Expect::Revision(counter.revision),
                    ..DocumentPut::json("counter", "n", json(&(count + 1).to_string()))
                });
                batch.add(appending("counter/log", &["counted"]));
                match store.apply(batch).await {
                    Ok(_) => break,
                    Err(error) => assert_eq!(error.code(), "precondition_failed", "{error}"),
                }
            }
        }
    })
    .await;
    let read = store.backend.document_get(&store.namespace, "counter", "n").await;
    let counter = read.expect("read").expect("it is there");
    assert_eq!((counter.body, counter.revision), (Some(json("16")), 17));
    assert_eq!(store.events(&stream("counter/log")).await.len(), WRITERS, "refused ones left no event");
}

async fn a_batch_whose_caller_goes_away_is_whole_or_nothing(store: Store) {
    for n in 0..40 {
        let mut batch = store.batch();
        batch.add(EntrySet::new(format!("{n}"), json("1")));
        batch.add(DocumentPut::json("d", format!("{n}"), json("1")));
        batch.add(appending(&format!("s/{n}"), &["a"]));
        let calling = store.clone();
        let call = tokio::spawn(async move { calling.apply(batch).await });
        for _ in 0..n % 4 {
            tokio::task::yield_now().await;
        }
        call.abort();
    }
    let (mut entries, mut documents, mut events) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for record in store.dump().await {
        match record {
            Record::Entry(entry) => entries.insert(entry.key),
            Record::Document(document) => documents.insert(document.name),
            Record::Event(event) => events.insert(event.stream.id().to_owned()),
            _ => continue,
        };
    }
    assert_eq!(entries, documents);
    assert_eq!(entries, events);
    store.append("s/after", &["a"]).await;
}
