//! What users give comes back as it was: JSON bodies to the digit, names to the byte.

use statehold_core::call::Claim;
use statehold_core::command::{
    DocumentPut, EntrySet, EntryTake, GroupAck, LockAcquire, LockRelease, NewEvent, QueueSet, StreamAppend,
    TaskComplete, TaskCreate, TaskFail, TaskRenew, TaskSignal,
};
use statehold_core::model::{Labels, ResumedBy, Source, StreamName, TaskError, WaitFor};
use statehold_core::query::{DocumentList, KeyList, TaskList};

use crate::harness::{Store, appending, json, plain_create, proof, refused, stream};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    bodies_of_entries_documents_and_events_survive,
    bodies_of_tasks_survive,
    errors_of_tasks_survive,
    the_order_of_members_does_not_matter,
    null_is_a_value,
    names_are_bytes,
    names_may_be_as_long_as_allowed,
    strange_names_stay_apart,
];

/// Values that are easily damaged on the way to a store and back.
const BODIES: [&str; 18] = [
    "12345678901234567890123",
    "-9223372036854775809",
    "9007199254740993",
    "1.10",
    "0.1000000000000000055511151231257827",
    "1e400",
    "-0",
    "-0.0",
    "1E+2",
    "[]",
    "{}",
    r#"[[],{},[{}],{"a":[]}]"#,
    r#""""#,
    r#""ünï→日本 😀""#,
    r#""\ud83d\ude00 \u00e9 \/ \\ \" \n""#,
    r#""it's; -- $1 ? {x} % \\u0000""#,
    r#"{"":1,"a b":2,"ä":3,"__proto__":4}"#,
    r#"{"deep":[[[[[[[[[[null,true,false]]]]]]]]]]}"#,
];

async fn bodies_of_entries_documents_and_events_survive(store: Store) {
    let namespace = store.namespace.as_str();
    let events = BODIES.iter().map(|body| NewEvent { kind: "b".into(), data: Some(json(body)) }).collect();
    let append = StreamAppend { stream: stream("s/1"), events, expect_seq: None };
    store.run(append).await.expect("appended");
    for (n, event) in store.events(&stream("s/1")).await.into_iter().enumerate() {
        assert_eq!(event.data, Some(json(BODIES[n])));
    }
    for body in BODIES {
        store.run(EntrySet::new("e", json(body))).await.expect("set");
        store.run(DocumentPut::json("d", "n", json(body))).await.expect("put");
        let entry = store.backend.entry_get(namespace, "e").await.expect("read").expect("it is there");
        let document =
            store.backend.document_get(namespace, "d", "n").await.expect("read").expect("it is there");
        let listed = store.backend.document_list(namespace, &DocumentList::new("d")).await.expect("listed");
        let entries = store.backend.entry_list(namespace, &KeyList::default()).await.expect("listed");
        let taken =
            store.run(EntryTake { key: "e".into() }).await.expect("taken").entry.expect("it was there");
        let values = [entry.value, entries.items[0].value.clone(), taken.value];
        let bodies = [document.body, listed.items[0].body.clone()];
        for value in values.into_iter().chain(bodies.into_iter().flatten()) {
            assert_eq!(value, json(body));
        }
    }
}

async fn bodies_of_tasks_survive(store: Store) {
    for body in BODIES {
        let metadata = json(&format!(r#"{{"m":{body}}}"#));
        let create =
            TaskCreate { input: Some(json(body)), metadata: Some(metadata.clone()), ..plain_create() };
        let task = store.create(create).await;
        let (_, token) = store.start(task.id, "w").await;
        store.run(TaskSignal { id: task.id, name: "s".into(), data: Some(json(body)) }).await.expect("kept");
        let renew = TaskRenew { id: task.id, token, lease_seconds: None, progress: Some(json(body)) };
        store.run(renew).await.expect("renewed");
        assert_eq!(store.task(task.id).await.progress, Some(json(body)));
        let resumed = store.suspend(task.id, token, WaitFor::Signal("s".into())).await.resumed_by;
        assert_eq!(resumed, Some(ResumedBy::Signal { name: "s".into(), data: Some(json(body)) }));
        let (_, token) = store.start(task.id, "w").await;
        let complete = TaskComplete { id: task.id, token, output: Some(json(body)) };
        store.run(complete).await.expect("completed");
        let task = store.task(task.id).await;
        assert_eq!((task.input, task.output), (Some(json(body)), Some(json(body))));
        assert_eq!(task.metadata, Some(metadata));
    }
}

async fn errors_of_tasks_survive(store: Store) {
    for body in BODIES {
        let error = TaskError { details: Some(json(body)), ..TaskError::new("c", "m") };
        for retry in [true, false] {
            let (task, token) = store.started("w").await;
            store.run(TaskFail { id: task.id, token, error: error.clone(), retry }).await.expect("failed");
            assert_eq!(store.task(task.id).await.error.as_ref(), Some(&error));
            let event = store.events(&StreamName::of_task(task.id)).await.remove(2);
            let data = event.data.expect("the error is told");
            assert!(data.as_str().contains(&format!(r#""details":{body}"#)), "{data:?} has lost {body}");
        }
    }
}

async fn the_order_of_members_does_not_matter(store: Store) {
    let create = |input: &str| TaskCreate {
        idempotency_key: Some("i".into()),
        input: Some(json(input)),
        ..plain_create()
    };
    let first = store.create(create(r#"{"a":1,"b":{"c":[1,2],"d":null}}"#)).await;
    let again =
        store.run(create(r#"{ "b": {"d": null, "c": [1, 2]}, "a": 1 }"#)).await.expect("the same request");
    assert!(!again.created);
    assert_eq!(again.task, first);
    for other in
        [r#"{"a":1,"b":{"c":[2,1],"d":null}}"#, r#"{"a":1.0,"b":{"c":[1,2],"d":null}}"#, r#"{"a":1}"#]
    {
        refused(store.run(create(other)).await, "conflict");
    }
}

async fn null_is_a_value(store: Store) {
    store.run(EntrySet::new("e", json("null"))).await.expect("set");
    store.run(DocumentPut::json("d", "n", json("null"))).await.expect("put");
    let namespace = store.namespace.as_str();
    let entry = store.backend.entry_get(namespace, "e").await.expect("read").expect("it is there");
    assert_eq!(entry.value, json("null"));
    let document = store.backend.document_get(namespace, "d", "n").await.expect("read").expect("it is there");
    assert_eq!((document.body, document.content), (Some(json("null")), None));
}

/// Goes once through every primitive with one name in every place.
async fn use_everywhere(store: &Store, name: &str) {
    let namespace = store.namespace.as_str();
    store.run(EntrySet::new(name, json("1"))).await.expect("set");
    assert_eq!(store.backend.entry_get(namespace, name).await.expect("read").expect("it is there").key, name);
    let labels = Labels::from([(name.to_owned(), name.to_owned())]);
    let put = DocumentPut { labels: labels.clone(), ..DocumentPut::json(name, name, json("1")) };
    store.run(put).await.expect("put");
    let document =
        store.backend.document_get(namespace, name, name).await.expect("read").expect("it is there");
    assert_eq!((document.kind.as_str(), document.name.as_str(), &document.labels), (name, name, &labels));
    let list = DocumentList { prefix: name.into(), labels: labels.clone(), ..DocumentList::new(name) };
    assert_eq!(store.backend.document_list(namespace, &list).await.expect("listed").items, [document]);
    let lock = store.run(LockAcquire::new(name, name)).await.expect("acquired");
    assert_eq!(store.backend.lock_get(namespace, name).await.expect("read").expect("held").owner, name);
    store.run(LockRelease { key: name.into(), token: lock.token }).await.expect("released");
    store.run(QueueSet { queue: name.into(), paused: false }).await.expect("set");
    let create = TaskCreate {
        queue: Some(name.into()),
        labels,
        thread: Some(name.into()),
        idempotency_key: Some(name.into()),
        exclusive_key: Some(name.into()),
        ..TaskCreate::new(name)
    };
    let task = store.create(create.clone()).await;
    assert!(!store.run(create).await.expect("known").created);
    let list = TaskList { thread: Some(name.into()), queue: Some(name.into()), ..TaskList::default() };
    assert_eq!(
        store.backend.task_list(namespace, &list).await.expect("listed").items[..],
        std::slice::from_ref(&task)[..]
    );
    let claim = Claim::new(namespace, name, name);
    let claimed = store.backend.claim(claim).await.expect("claimed").tasks;
    assert_eq!((claimed[0].id, claimed[0].kind.as_str()), (task.id, name));
}

async fn names_are_bytes(store: Store) {
    for name in [
        "a", "A", "ä", "a\u{308}", "a ", " a", "*", "%", "_", "'", "\"", "\\", "{a}", "a:b", "a/b", "$1",
        "日",
    ] {
        use_everywhere(&store, name).await;
    }
}

async fn names_may_be_as_long_as_allowed(store: Store) {
    for name in ["n".repeat(256), "é".repeat(128), "😀".repeat(64)] {
        use_everywhere(&store, &name).await;
    }
    let long = stream(&format!("{}/{}", "c".repeat(127), "i".repeat(128)));
    store.append(long.as_str(), &["a"]).await;
    let (group, consumer) = ("g".repeat(248), "c".repeat(256));
    for source in [Source::Stream(long.clone()), Source::Category("c".repeat(127))] {
        let delivered = store.deliver(&group, &source, &consumer).await;
        assert_eq!(delivered[0].event.stream, long);
        let deliveries = vec![proof(&delivered[0])];
        store.run(GroupAck { group: group.clone(), source, deliveries }).await.expect("acknowledged");
    }
    let (key, actor) = ("k".repeat(256), "a".repeat(256));
    let mut batch = store.batch().key(key).actor(&actor);
    batch.add(appending("s/1", &[&"t".repeat(256)]));
    store.apply(batch.clone()).await.expect("applied");
    assert!(store.apply(batch).await.expect("answered").replayed);
    assert_eq!(store.events(&stream("s/1")).await[0].actor, Some(actor));
}

async fn strange_names_stay_apart(store: Store) {
    let (one, two) = (("a", "b/c"), ("a/b", "c"));
    for (kind, name) in [one, two] {
        store.run(DocumentPut::json(kind, name, json(&format!("{kind:?}")))).await.expect("put");
    }
    for (kind, name) in [one, two] {
        let document = store.backend.document_get(&store.namespace, kind, name).await.expect("read");
        assert_eq!(
            document.expect("it is there").body,
            Some(json(&format!("{kind:?}"))),
            "{kind} and {name}"
        );
    }
    let parent = store.plain().await;
    for key in ["a", "A", "a ", "ä", "a\u{308}"] {
        store.child(parent.id, key).await;
        store.run(EntrySet { if_absent: true, ..EntrySet::new(key, json("1")) }).await.expect("another key");
    }
    let task = StreamName::of_task(parent.id);
    store.append(&format!("tasks/{}", parent.id), &["a"]).await;
    assert_eq!(store.events(&task).await.len(), 1);
}
