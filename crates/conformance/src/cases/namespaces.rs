//! Namespaces, which know nothing of each other, and what a store says about itself.

use statehold_core::batch::Fence;
use statehold_core::command::{
    DocumentPut, EntrySet, Expect, GroupSeek, LockAcquire, QueueSet, SeekTo, StreamAppend, TaskCreate,
};
use statehold_core::model::{Source, TaskId};
use statehold_core::query::{CategoryFrom, CategoryRead, DocumentList, KeyList, TaskList};

use crate::harness::{Store, appending, json, plain_create, refused, stream};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    tasks_of_another_namespace_are_not_seen,
    streams_of_another_namespace_are_not_seen,
    documents_entries_and_locks_of_another_namespace_are_not_seen,
    keys_of_batches_belong_to_their_namespace,
    fences_belong_to_their_namespace,
    a_sweep_stays_in_its_namespace,
    namespaces_with_anything_in_them_are_listed,
    reading_makes_no_namespace,
    a_store_tells_how_it_is,
    migrating_again_does_nothing,
];

async fn tasks_of_another_namespace_are_not_seen(store: Store) {
    let other = store.beside();
    let create = TaskCreate {
        id: Some(TaskId::generate()),
        idempotency_key: Some("i".into()),
        exclusive_key: Some("x".into()),
        ..plain_create()
    };
    let task = store.create(create.clone()).await;
    assert_eq!(other.find(task.id).await, None);
    assert_eq!(other.claim("w", 10).await.tasks, []);
    let twin = other.create(create).await;
    assert_eq!(twin.id, task.id, "the same id and keys are free there");
    store.start(task.id, "a").await;
    store.clock.advance(1);
    let (_, token) = other.start(twin.id, "b").await;
    refused(store.complete(task.id, token).await.map(|task| task.status), "fenced");
}

async fn streams_of_another_namespace_are_not_seen(store: Store) {
    let other = store.beside();
    store.append("s/1", &["a", "b"]).await;
    assert_eq!(other.events(&stream("s/1")).await, []);
    let expecting = StreamAppend { expect_seq: Some(0), ..appending("s/1", &["c"]) };
    assert_eq!(other.run(expecting).await.expect("its first event").last_seq, 1);
    let read = CategoryRead { category: "s".into(), from: CategoryFrom::Oldest, limit: 10 };
    let page = other.backend.category_read(&other.namespace, &read).await.expect("read");
    assert_eq!(page.events.len(), 1);
    let source = Source::Category("s".into());
    assert_eq!(store.deliver("g", &source, "c").await.len(), 2);
    refused(other.backend.group_info(&other.namespace, "g", &source).await, "not_found");
    assert_eq!(other.deliver("g", &source, "c").await.len(), 1);
    let list = KeyList::default();
    assert_eq!(other.backend.stream_list(&other.namespace, &list).await.expect("listed").items.len(), 1);
}

async fn documents_entries_and_locks_of_another_namespace_are_not_seen(store: Store) {
    let other = store.beside();
    let put = DocumentPut { expect: Expect::Absent, ..DocumentPut::json("d", "n", json("1")) };
    let set = EntrySet { if_absent: true, ..EntrySet::new("e", json("1")) };
    for store in [&store, &other] {
        let namespace = store.namespace.as_str();
        assert_eq!(store.backend.document_get(namespace, "d", "n").await, Ok(None));
        assert_eq!(store.backend.entry_get(namespace, "e").await, Ok(None));
        assert_eq!(store.backend.lock_get(namespace, "l").await, Ok(None));
        assert_eq!(store.run(put.clone()).await.expect("put").revision, 1);
        store.run(set.clone()).await.expect("set");
        store.run(LockAcquire::new("l", "me")).await.expect("acquired");
        let documents =
            store.backend.document_list(namespace, &DocumentList::new("d")).await.expect("listed");
        let entries = store.backend.entry_list(namespace, &KeyList::default()).await.expect("listed");
        let locks = store.backend.lock_list(namespace, &KeyList::default()).await.expect("listed");
        assert_eq!((documents.items.len(), entries.items.len(), locks.items.len()), (1, 1, 1));
    }
    store.run(QueueSet { queue: "q".into(), paused: true }).await.expect("paused");
    other.plain().await;
    assert_eq!(other.claim("w", 1).await.tasks.len(), 1, "the other queue goes on");
}

async fn keys_of_batches_belong_to_their_namespace(store: Store) {
    for store in [&store, &store.beside()] {
        let mut batch = store.batch().key("k");
        batch.add(appending("s/1", &["a"]));
        assert!(!store.apply(batch).await.expect("applied").replayed);
    }
    let mut batch = store.beside().batch().key("k2");
    batch.add(EntrySet::new("e", json("1")));
    store.beside().apply(batch).await.expect("applied");
    let mut batch = store.batch().key("k2");
    batch.add(EntrySet::new("another request", json("1")));
    assert!(!store.apply(batch).await.expect("applied").replayed);
}

async fn fences_belong_to_their_namespace(store: Store) {
    let other = store.beside();
    let token = store.run(LockAcquire::new("l", "me")).await.expect("acquired").token;
    let mut batch = other.batch().fence(Fence::Lock { lock: "l".into(), token });
    batch.add(EntrySet::new("e", json("1")));
    refused(other.apply(batch).await, "fenced");
    assert_eq!(other.dump().await, []);
}

async fn a_sweep_stays_in_its_namespace(store: Store) {
    let other = store.beside();
    for store in [&store, &other] {
        store.run(EntrySet::new("e", json("1"))).await.expect("set");
        store.started("w").await;
    }
    store.clock.advance(3600);
    let swept = store.sweep().await;
    assert_eq!((swept.entries, swept.leases), (1, 1));
    let swept = other.sweep().await;
    assert_eq!((swept.entries, swept.leases), (1, 1), "nobody swept there before");
}

async fn namespaces_with_anything_in_them_are_listed(store: Store) {
    let named = |name: &str| Store { namespace: format!("{}-{name}", store.namespace), ..store.clone() };
    named("task").plain().await;
    named("stream").append("s/1", &["a"]).await;
    named("document").run(DocumentPut::json("d", "n", json("1"))).await.expect("put");
    named("entry").run(EntrySet::new("e", json("1"))).await.expect("set");
    named("lock").run(LockAcquire::new("l", "me")).await.expect("acquired");
    named("queue").run(QueueSet { queue: "q".into(), paused: true }).await.expect("paused");
    let seek = GroupSeek { group: "g".into(), source: Source::Category("c".into()), to: SeekTo::Oldest };
    named("group").run(seek).await.expect("sought");
    let all = store.backend.namespaces().await.expect("listed");
    let own: Vec<_> =
        all.iter().filter_map(|name| name.strip_prefix(&format!("{}-", store.namespace))).collect();
    assert_eq!(own, ["document", "entry", "group", "lock", "queue", "stream", "task"]);
    assert!(all.windows(2).all(|pair| pair[0].as_bytes() < pair[1].as_bytes()), "by name, each once");
}

async fn reading_makes_no_namespace(store: Store) {
    let (backend, namespace) = (&store.backend, store.namespace.as_str());
    assert_eq!(backend.entry_get(namespace, "e").await, Ok(None));
    assert_eq!(backend.queue_list(namespace).await, Ok(vec![]));
    assert_eq!(backend.task_list(namespace, &TaskList::default()).await.expect("listed").items, []);
    store.sweep().await;
    assert_eq!(store.dump().await, []);
    assert!(!backend.namespaces().await.expect("listed").contains(&store.namespace));
}

async fn a_store_tells_how_it_is(store: Store) {
    let health = store.backend.health().await.expect("the store is well");
    assert!(!health.store.is_empty());
    let migration = store.backend.migrate(true).await.expect("told");
    assert_eq!(health.schema_version, migration.from, "a dry run changes nothing");
}

async fn migrating_again_does_nothing(store: Store) {
    store.append("s/1", &["a"]).await;
    let before = store.dump().await;
    let first = store.backend.migrate(false).await.expect("migrated");
    assert!(first.from <= first.to);
    for dry_run in [true, false] {
        let again = store.backend.migrate(dry_run).await.expect("migrated");
        assert_eq!((again.from, again.to, again.steps.len()), (first.to, first.to, 0));
    }
    assert_eq!(store.backend.health().await.expect("well").schema_version, first.to);
    assert_eq!(store.dump().await, before);
}
