//! Dump and load: a namespace moves whole, and goes on as if it had not moved.

use std::collections::BTreeSet;

use futures_util::stream::{self, BoxStream, StreamExt as _};
use statehold_core::call::Claim;
use statehold_core::command::{
    DocumentDelete, DocumentPut, EntrySet, Expect, GroupAck, GroupSeek, LockAcquire, LockRelease, LockRenew,
    QueueSet, SeekTo, StreamAppend, StreamTrim, TaskCreate, TrimTo,
};
use statehold_core::dump::Record;
use statehold_core::model::{Content, Source, StreamName, TaskId, WaitFor};
use statehold_core::query::{CategoryFrom, CategoryRead, ReadFrom, StreamRead};
use statehold_core::{Error, Result, Status};

use crate::harness::{Store, appending, json, plain_create, proof, refused, stream as named, token_of};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_dump_holds_one_record_of_every_kind,
    a_record_is_a_line_of_json,
    a_loaded_namespace_gives_the_same_dump,
    a_loaded_namespace_reads_the_same,
    an_empty_namespace_dumps_and_loads_nothing,
    loading_into_a_namespace_that_has_anything_is_a_conflict,
    a_dump_that_breaks_off_leaves_nothing,
    streams_go_on_after_a_load,
    tasks_go_on_after_a_load,
    locks_and_documents_go_on_after_a_load,
    groups_go_on_after_a_load,
    a_groups_tokens_grow_on_after_a_load,
    keys_of_batches_go_on_after_a_load,
    left_over_work_goes_on_after_a_load,
    a_dump_is_of_one_instant,
];

fn records(records: Vec<Record>) -> BoxStream<'static, Result<Record>> {
    stream::iter(records).map(Ok).boxed()
}

/// Dumps the store's namespace and loads it into another one.
async fn moved(store: &Store) -> Store {
    let (other, dump) = (store.beside(), store.dump().await);
    let count = dump.len() as u64;
    assert_eq!(other.backend.load(&other.namespace, records(dump)).await, Ok(count));
    other
}

/// Tasks in every state that can be reached in a few steps.
async fn fill_tasks(store: &Store) {
    let exclusive = || TaskCreate { exclusive_key: Some("x".into()), ..plain_create() };
    let holder = store.create(exclusive()).await;
    store.start(holder.id, "w").await;
    store.create(exclusive()).await;
    let pending = store.create(TaskCreate { idempotency_key: Some("i".into()), ..plain_create() }).await;
    store.signal(pending.id, "kept").await.expect("kept");
    store.child(pending.id, "c").await;
    store.create(TaskCreate { backlog: true, ..plain_create() }).await;
    store.create(TaskCreate { run_at: Some(store.now() + 60.into()), ..plain_create() }).await;
    let (waiting, token) = store.started("w").await;
    store.suspend(waiting.id, token, WaitFor::Signal("go".into())).await;
    let doomed = store.plain().await;
    store.after(&[doomed.id]).await;
    store.doom(doomed.id).await;
    let cancelled = store.plain().await;
    store.cancel(cancelled.id).await.expect("cancelled");
    left_over(store).await;
}

/// Completes a task with more dependents than one commit takes up.
async fn left_over(store: &Store) -> TaskId {
    let (task, token) = store.started("w").await;
    let mut batch = store.batch();
    for _ in 0..300 {
        batch.add(TaskCreate {
            queue: Some("many".into()),
            depends_on: vec![task.id],
            ..TaskCreate::new("k")
        });
    }
    store.apply(batch).await.expect("created");
    store.complete(task.id, token).await.expect("completed");
    task.id
}

/// A namespace with at least one of everything.
async fn fill(store: &Store) {
    fill_tasks(store).await;
    store.run(QueueSet { queue: "paused".into(), paused: true }).await.expect("paused");
    store.backend.claim(Claim::new(&store.namespace, "polled", "w")).await.expect("claimed");
    store.append("s/1", &["a", "b", "c"]).await;
    store.append("s/2", &["d"]).await;
    store.run(StreamTrim { stream: named("s/1"), to: TrimTo::After(1) }).await.expect("trimmed");
    let source = Source::Category("s".into());
    let delivered = store.deliver("g", &source, "c").await;
    let deliveries = vec![proof(&delivered[0])];
    store.run(GroupAck { group: "g".into(), source, deliveries }).await.expect("acknowledged");
    store.deliver("h", &Source::Stream(named("s/2")), "c").await;
    store.run(DocumentPut::json("d", "n", json(r#"{"n":1.10}"#))).await.expect("put");
    let content = Content { content_type: "a/b".into(), data: b"\0\xff"[..].into() };
    store
        .run(DocumentPut { ttl_seconds: Some(60.into()), ..DocumentPut::binary("d", "b", content) })
        .await
        .expect("put");
    store.run(DocumentPut::json("d", "gone", json("1"))).await.expect("put");
    let delete = DocumentDelete { kind: "d".into(), name: "gone".into(), expect: Expect::Any };
    store.run(delete).await.expect("deleted");
    store.run(EntrySet::new("e", json("null"))).await.expect("set");
    let lock = store.run(LockAcquire::new("freed", "me")).await.expect("acquired");
    let release = LockRelease { key: "freed".into(), token: lock.token };
    store.run(release).await.expect("released");
    store.run(LockAcquire::new("held", "me")).await.expect("acquired");
    let mut batch = store.batch().key("k").actor("me");
    batch.add(appending("s/3", &["keyed"]));
    store.apply(batch).await.expect("applied");
}

fn kinds(dump: &[Record]) -> BTreeSet<String> {
    let kind = |record: &Record| {
        let value = serde_json::to_value(record).expect("a record can be written");
        value["record"].as_str().expect("a record is named").to_owned()
    };
    dump.iter().map(kind).collect()
}

async fn a_dump_holds_one_record_of_every_kind(store: Store) {
    fill(&store).await;
    let kinds = kinds(&store.dump().await);
    let expected = [
        "answer",
        "category",
        "chore",
        "delivery",
        "document",
        "entry",
        "event",
        "exclusive",
        "floor",
        "group",
        "lock",
        "poller",
        "queue",
        "signals",
        "stream",
        "task",
    ];
    assert!(kinds.iter().eq(expected), "{kinds:?}");
}

async fn a_record_is_a_line_of_json(store: Store) {
    fill(&store).await;
    for record in store.dump().await {
        let line = serde_json::to_string(&record).expect("a record can be written");
        assert!(line.starts_with(r#"{"record":""#) && !line.contains('\n'), "{line}");
        let read: Record = serde_json::from_str(&line).expect("a record can be read");
        assert_eq!(read, record);
    }
}

async fn a_loaded_namespace_gives_the_same_dump(store: Store) {
    fill(&store).await;
    let before = store.dump().await;
    let other = moved(&store).await;
    assert_eq!(other.dump().await, before);
    assert_eq!(store.dump().await, before, "dumping changes nothing");
    let names = store.backend.namespaces().await.expect("listed");
    assert!(names.contains(&other.namespace));
}

async fn a_loaded_namespace_reads_the_same(store: Store) {
    fill(&store).await;
    let other = moved(&store).await;
    let (backend, here, there) = (&store.backend, store.namespace.as_str(), other.namespace.as_str());
    let category = CategoryRead { category: "s".into(), from: CategoryFrom::Oldest, limit: 10 };
    assert_eq!(backend.category_read(there, &category).await, backend.category_read(here, &category).await);
    let trimmed = StreamRead { stream: named("s/1"), from: ReadFrom::After(0), limit: 10 };
    refused(backend.stream_read(there, &trimmed).await, "compacted");
    let source = Source::Category("s".into());
    assert_eq!(backend.group_info(there, "g", &source).await, backend.group_info(here, "g", &source).await);
    for name in ["n", "b", "gone"] {
        assert_eq!(backend.document_get(there, "d", name).await, backend.document_get(here, "d", name).await);
    }
    assert_eq!(backend.entry_get(there, "e").await, backend.entry_get(here, "e").await);
    assert_eq!(backend.lock_get(there, "held").await, backend.lock_get(here, "held").await);
    assert_eq!(backend.queue_list(there).await, backend.queue_list(here).await);
    assert_eq!(backend.task_count(there, None).await, backend.task_count(here, None).await);
}

async fn an_empty_namespace_dumps_and_loads_nothing(store: Store) {
    assert_eq!(store.dump().await, []);
    let other = moved(&store).await;
    assert_eq!(other.dump().await, []);
    let names = store.backend.namespaces().await.expect("listed");
    assert!(!names.contains(&other.namespace));
}

async fn loading_into_a_namespace_that_has_anything_is_a_conflict(store: Store) {
    store.run(EntrySet::new("e", json("1"))).await.expect("set");
    let dump = store.dump().await;
    refused(store.backend.load(&store.namespace, records(dump.clone())).await, "conflict");
    let other = store.beside();
    other.append("s/1", &["a"]).await;
    let before = other.dump().await;
    refused(other.backend.load(&other.namespace, records(dump)).await, "conflict");
    assert_eq!(other.dump().await, before);
}

async fn a_dump_that_breaks_off_leaves_nothing(store: Store) {
    fill(&store).await;
    let (other, dump) = (store.beside(), store.dump().await);
    for length in [0, 1, dump.len() / 2, dump.len()] {
        let broken = Err(Error::unavailable("the file ends here"));
        let records = stream::iter(dump[..length].to_vec()).map(Ok).chain(stream::iter([broken])).boxed();
        let error = refused(other.backend.load(&other.namespace, records).await, "unavailable");
        assert_eq!(error.message(), "the file ends here");
        assert_eq!(other.dump().await, [], "after {length} records");
    }
    assert!(!other.backend.namespaces().await.expect("listed").contains(&other.namespace));
    moved(&store).await;
}

async fn streams_go_on_after_a_load(store: Store) {
    fill(&store).await;
    let tail = CategoryRead { category: "s".into(), from: CategoryFrom::Latest, limit: 10 };
    let cursor = store.backend.category_read(&store.namespace, &tail).await.expect("read").cursor;
    let other = moved(&store).await;
    let expecting = StreamAppend { expect_seq: Some(3), ..appending("s/1", &["next"]) };
    assert_eq!(other.run(expecting).await.expect("the head came along").first_seq, 4);
    assert_eq!(other.append("s/new", &["first"]).await.first_seq, 1);
    let tail = CategoryRead { from: CategoryFrom::After(cursor), ..tail };
    let page = other.backend.category_read(&other.namespace, &tail).await.expect("the cursor is still good");
    let kinds: Vec<_> = page.events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["next", "first"], "new positions come after all that were loaded");
}

async fn tasks_go_on_after_a_load(store: Store) {
    let (task, token) = store.started("w").await;
    let ready = store.create(TaskCreate { idempotency_key: Some("i".into()), ..plain_create() }).await;
    let later = store.create(TaskCreate { run_at: Some(store.now() + 60.into()), ..plain_create() }).await;
    let blocked = store.after(&[task.id]).await;
    let (waiting, waiting_token) = store.started("w").await;
    store.suspend(waiting.id, waiting_token, WaitFor::Signal("go".into())).await;
    let other = moved(&store).await;
    assert_eq!(other.claim("v", 10).await.tasks.iter().map(|task| task.id).collect::<Vec<_>>(), [ready.id]);
    let again = TaskCreate { idempotency_key: Some("i".into()), ..plain_create() };
    assert!(!other.run(again).await.expect("known").created);
    other.complete(task.id, token).await.expect("the token came along");
    assert_eq!(other.status(blocked.id).await, Status::Pending);
    let (_, next) = other.start(blocked.id, "v").await;
    assert_eq!(next, token_of(&other.task(blocked.id).await));
    let resumed = other.signal(waiting.id, "go").await.expect("signalled");
    assert_eq!(resumed.status, Status::Pending);
    let (_, next) = other.start(waiting.id, "v").await;
    assert!(next > waiting_token, "tokens grow on at the same instant");
    assert_eq!(other.events(&StreamName::of_task(waiting.id)).await.last().map(|event| event.seq), Some(6));
    other.clock.advance(60);
    other.sweep().await;
    assert!(other.claim("v", 10).await.tasks.iter().any(|task| task.id == later.id));
    assert_eq!(store.status(task.id).await, Status::Running, "nothing happened where it came from");
}

async fn locks_and_documents_go_on_after_a_load(store: Store) {
    let freed = store.run(LockAcquire::new("freed", "me")).await.expect("acquired").token;
    let release = LockRelease { key: "freed".into(), token: freed };
    store.run(release.clone()).await.expect("released");
    let held = store.run(LockAcquire::new("held", "me")).await.expect("acquired").token;
    for _ in 0..3 {
        store.run(DocumentPut::json("d", "n", json("1"))).await.expect("put");
    }
    store
        .run(DocumentDelete { kind: "d".into(), name: "n".into(), expect: Expect::Any })
        .await
        .expect("deleted");
    let other = moved(&store).await;
    refused(other.run(LockAcquire::new("held", "you")).await, "held");
    let renew = LockRenew { key: "held".into(), token: held, ttl_seconds: 5.into() };
    other.run(renew).await.expect("the token came along");
    other.run(release).await.expect("released gladly");
    let next = other.run(LockAcquire::new("freed", "you")).await.expect("acquired").token;
    assert!(next > freed, "tokens grow on at the same instant");
    assert_eq!(other.run(DocumentPut::json("d", "new", json("1"))).await.expect("put").revision, 4);
}

async fn groups_go_on_after_a_load(store: Store) {
    let source = Source::Category("s".into());
    store.append("s/1", &["a", "b"]).await;
    let out = store.deliver("g", &source, "c").await;
    store.append("s/2", &["c"]).await;
    let other = moved(&store).await;
    let unread = other.deliver("g", &source, "c").await;
    assert_eq!(unread.iter().map(|delivered| delivered.event.kind.as_str()).collect::<Vec<_>>(), ["c"]);
    let ack = GroupAck { group: "g".into(), source: source.clone(), deliveries: vec![proof(&out[0])] };
    other.run(ack).await.expect("the delivery came along");
    other.clock.advance(30);
    let again = other.deliver("g", &source, "c").await;
    assert_eq!((again[0].event.kind.as_str(), again[0].delivery), ("b", 2));
    assert!(again[0].delivery_token > out[1].delivery_token);
}

async fn a_groups_tokens_grow_on_after_a_load(store: Store) {
    let source = Source::Stream(named("s/1"));
    store.append("s/1", &["a", "b"]).await;
    let out = store.deliver("g", &source, "c").await;
    let seek = GroupSeek { group: "g".into(), source: source.clone(), to: SeekTo::Oldest };
    store.run(seek).await.expect("sought");
    let other = moved(&store).await;
    let again = other.deliver("g", &source, "c").await;
    assert!(again[0].delivery_token > out[1].delivery_token, "at the same instant");
}

async fn keys_of_batches_go_on_after_a_load(store: Store) {
    let batch = |store: &Store| {
        let mut batch = store.batch().key("k").actor("me");
        batch.add(appending("s/1", &["a"]));
        batch.add(TaskCreate::new("k"));
        batch
    };
    let first = store.apply(batch(&store)).await.expect("applied");
    let other = moved(&store).await;
    let again = other.apply(batch(&other)).await.expect("answered");
    assert_eq!((again.replayed, again.replies), (true, first.replies));
    assert_eq!(other.events(&named("s/1")).await.len(), 1);
}

async fn left_over_work_goes_on_after_a_load(store: Store) {
    left_over(&store).await;
    let blocked = async |store: &Store| {
        let counts = store.backend.task_count(&store.namespace, Some("many")).await.expect("counted").counts;
        counts.get(&Status::Blocked).copied().unwrap_or_default()
    };
    let other = moved(&store).await;
    assert!(blocked(&other).await > 0, "some are left to the sweep");
    while other.sweep().await.more {}
    assert_eq!(blocked(&other).await, 0);
    assert!(blocked(&store).await > 0);
}

async fn a_dump_is_of_one_instant(store: Store) {
    let writing = store.clone();
    let writer = tokio::spawn(async move {
        for n in 0..200 {
            let mut batch = writing.batch();
            batch.add(EntrySet::new(format!("{n}"), json("1")));
            batch.add(DocumentPut::json("d", format!("{n}"), json("1")));
            batch.add(appending(&format!("s/{}", n % 3), &["a"]));
            writing.apply(batch).await.expect("applied");
            tokio::task::yield_now().await;
        }
    });
    let mut dumps = 0;
    while dumps < 5 || !writer.is_finished() {
        let dump = store.dump().await;
        let count = |wanted: fn(&Record) -> bool| dump.iter().filter(|record| wanted(record)).count();
        let entries = count(|record| matches!(record, Record::Entry(_)));
        assert_eq!(count(|record| matches!(record, Record::Document(_))), entries);
        assert_eq!(count(|record| matches!(record, Record::Event(_))), entries);
        dumps += 1;
        tokio::task::yield_now().await;
    }
    writer.await.expect("the writer ends");
}
