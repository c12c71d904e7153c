//! Wakes: who registered before a change hears of it. A wake may come for nothing, so only its coming is
//! judged, and that not everything wakes everyone.

use std::time::Duration;

use statehold_core::command::{
    DocumentDelete, DocumentPut, EntryDelete, EntrySet, EntryTake, Expect, GroupNack, LockAcquire,
    LockForceRelease, LockRelease, QueueSet, StreamTrim, TaskAmend, TaskCreate, TaskEvict, TaskPromote,
    TaskRelease, TaskRetry, TrimTo,
};
use statehold_core::model::{Source, StreamName, TaskId, WaitFor};
use statehold_core::wake::{Topic, Waiter};

use crate::harness::{Store, json, plain_create, proof, stream};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_queue_wakes_when_a_task_is_created,
    a_queue_wakes_when_a_task_is_ready_again,
    a_queue_wakes_when_a_task_is_resumed_or_unblocked,
    a_queue_wakes_when_a_key_is_freed,
    a_queue_wakes_when_a_sweep_makes_a_task_ready,
    a_queue_wakes_when_it_is_paused_or_not,
    a_task_wakes_with_every_change,
    a_stream_and_its_category_wake_when_they_grow_or_are_trimmed,
    a_tasks_stream_wakes_with_its_lifecycle,
    an_entry_wakes_when_it_is_set_taken_or_deleted,
    a_lock_wakes_when_it_is_freed,
    a_document_wakes_when_it_is_written_or_deleted,
    a_group_wakes_when_a_delivery_is_given_back,
    a_wake_before_the_wait_is_not_lost,
    a_registration_may_name_many_topics_and_everyone_is_woken,
    not_everything_wakes_everyone,
];

async fn register(store: &Store, topic: Topic) -> Waiter {
    store.backend.register(&store.namespace, &[topic]).await.expect("registered")
}

/// Waits for a wake that must come; the bound only keeps a broken store from hanging.
async fn woken(waiter: &Waiter, why: &str) {
    let wait = tokio::time::timeout(Duration::from_secs(10), waiter.wait());
    assert!(wait.await.is_ok(), "no wake: {why}");
}

fn queue() -> Topic {
    Topic::Queue("q".into())
}

async fn a_queue_wakes_when_a_task_is_created(store: Store) {
    let waiter = register(&store, queue()).await;
    store.plain().await;
    woken(&waiter, "created").await;
    let waiter = register(&store, queue()).await;
    let parked = store.create(TaskCreate { backlog: true, ..plain_create() }).await;
    store.run(TaskPromote { id: parked.id }).await.expect("promoted");
    woken(&waiter, "promoted").await;
}

async fn a_queue_wakes_when_a_task_is_ready_again(store: Store) {
    let task = store.plain().await;
    store.doom(task.id).await;
    let waiter = register(&store, queue()).await;
    store.run(TaskRetry { id: task.id, with_dependents: false }).await.expect("retried");
    woken(&waiter, "retried").await;
    let (_, token) = store.start(task.id, "w").await;
    let waiter = register(&store, queue()).await;
    store.run(TaskRelease { id: task.id, token, run_at: None }).await.expect("released");
    woken(&waiter, "released").await;
    store.start(task.id, "w").await;
    let waiter = register(&store, queue()).await;
    store.run(TaskEvict { id: task.id }).await.expect("evicted");
    woken(&waiter, "evicted").await;
}

async fn a_queue_wakes_when_a_task_is_resumed_or_unblocked(store: Store) {
    let (task, token) = store.started("w").await;
    store.suspend(task.id, token, WaitFor::Signal("go".into())).await;
    let waiter = register(&store, queue()).await;
    store.signal(task.id, "go").await.expect("signalled");
    woken(&waiter, "resumed").await;
    let create = TaskCreate { queue: Some("elsewhere".into()), ..TaskCreate::new("k") };
    let dependency = store.create(create).await;
    store.after(&[dependency.id]).await;
    let waiter = register(&store, queue()).await;
    store.finish(dependency.id).await;
    woken(&waiter, "unblocked").await;
}

async fn a_queue_wakes_when_a_key_is_freed(store: Store) {
    let exclusive = |queue: &str| TaskCreate {
        queue: Some(queue.into()),
        exclusive_key: Some("x".into()),
        ..TaskCreate::new("k")
    };
    let holder = store.create(exclusive("elsewhere")).await;
    let (_, token) = store.start(holder.id, "w").await;
    let next = store.create(exclusive("q")).await;
    let waiter = register(&store, queue()).await;
    store.complete(holder.id, token).await.expect("completed");
    woken(&waiter, "the next in line is ready").await;
    assert_eq!(store.claim("w", 1).await.tasks[0].id, next.id);
}

async fn a_queue_wakes_when_a_sweep_makes_a_task_ready(store: Store) {
    let run_at = Some(store.now() + 60.into());
    store.create(TaskCreate { run_at, ..plain_create() }).await;
    let waiter = register(&store, queue()).await;
    store.clock.advance(60);
    store.sweep().await;
    woken(&waiter, "due").await;
    store.claim("w", 1).await;
    let waiter = register(&store, queue()).await;
    store.clock.advance(30);
    store.sweep().await;
    woken(&waiter, "its lease was lost").await;
}

async fn a_queue_wakes_when_it_is_paused_or_not(store: Store) {
    store.plain().await;
    for paused in [true, false] {
        let waiter = register(&store, queue()).await;
        store.run(QueueSet { queue: "q".into(), paused }).await.expect("set");
        woken(&waiter, "paused or not").await;
    }
}

async fn a_task_wakes_with_every_change(store: Store) {
    let id = TaskId::generate();
    let waiter = register(&store, Topic::Task(id)).await;
    store.create(TaskCreate { id: Some(id), ..plain_create() }).await;
    woken(&waiter, "created").await;
    store.run(TaskAmend { id, priority: Some(1), ..TaskAmend::default() }).await.expect("amended");
    woken(&waiter, "amended").await;
    store.claim("w", 1).await;
    woken(&waiter, "claimed").await;
    store.cancel(id).await.expect("asked to stop");
    woken(&waiter, "asked to stop").await;
    store.clock.advance(30);
    store.sweep().await;
    woken(&waiter, "cancelled by the sweep").await;
    let dependency = store.plain().await;
    let blocked = store.after(&[dependency.id]).await;
    let waiter = register(&store, Topic::Task(blocked.id)).await;
    store.finish(dependency.id).await;
    woken(&waiter, "a derived change").await;
}

async fn a_stream_and_its_category_wake_when_they_grow_or_are_trimmed(store: Store) {
    let of_stream = register(&store, Topic::Stream(stream("s/1"))).await;
    let of_category = register(&store, Topic::Category("s".into())).await;
    store.append("s/1", &["a", "b"]).await;
    woken(&of_stream, "grown").await;
    woken(&of_category, "grown").await;
    store.run(StreamTrim { stream: stream("s/1"), to: TrimTo::Length(1) }).await.expect("trimmed");
    woken(&of_stream, "trimmed").await;
    woken(&of_category, "trimmed").await;
    store.append("s/2", &["a"]).await;
    woken(&of_category, "another stream has grown").await;
}

async fn a_tasks_stream_wakes_with_its_lifecycle(store: Store) {
    let task = store.plain().await;
    let of_stream = register(&store, Topic::Stream(StreamName::of_task(task.id))).await;
    let of_category = register(&store, Topic::Category("task".into())).await;
    store.claim("w", 1).await;
    woken(&of_stream, "started").await;
    woken(&of_category, "started").await;
    store.clock.advance(30);
    store.sweep().await;
    woken(&of_stream, "its lease was lost").await;
}

async fn an_entry_wakes_when_it_is_set_taken_or_deleted(store: Store) {
    let waiter = register(&store, Topic::Entry("e".into())).await;
    store.run(EntrySet::new("e", json("1"))).await.expect("set");
    woken(&waiter, "set").await;
    store.run(EntryTake { key: "e".into() }).await.expect("taken");
    woken(&waiter, "taken").await;
    store.run(EntrySet::new("e", json("1"))).await.expect("set");
    woken(&waiter, "set again").await;
    store.run(EntryDelete { key: "e".into() }).await.expect("deleted");
    woken(&waiter, "deleted").await;
}

async fn a_lock_wakes_when_it_is_freed(store: Store) {
    let token = store.run(LockAcquire::new("l", "a")).await.expect("acquired").token;
    let waiter = register(&store, Topic::Lock("l".into())).await;
    store.run(LockRelease { key: "l".into(), token }).await.expect("released");
    woken(&waiter, "released").await;
    store.run(LockAcquire::new("l", "b")).await.expect("acquired");
    let waiter = register(&store, Topic::Lock("l".into())).await;
    store.run(LockForceRelease { key: "l".into() }).await.expect("freed");
    woken(&waiter, "freed by force").await;
}

async fn a_document_wakes_when_it_is_written_or_deleted(store: Store) {
    let waiter = register(&store, Topic::Document { kind: "d".into(), name: "n".into() }).await;
    for _ in 0..2 {
        store.run(DocumentPut::json("d", "n", json("1"))).await.expect("put");
        woken(&waiter, "written").await;
    }
    let delete = DocumentDelete { kind: "d".into(), name: "n".into(), expect: Expect::Any };
    store.run(delete).await.expect("deleted");
    woken(&waiter, "deleted").await;
}

async fn a_group_wakes_when_a_delivery_is_given_back(store: Store) {
    store.append("in/1", &["a"]).await;
    let source = Source::Category("in".into());
    let delivered = store.deliver("g", &source, "c").await;
    let waiter = register(&store, Topic::Group("g".into())).await;
    let (group, deliveries) = ("g".into(), vec![proof(&delivered[0])]);
    store.run(GroupNack { group, source, deliveries, delay_seconds: None }).await.expect("given back");
    woken(&waiter, "given back").await;
}

async fn a_wake_before_the_wait_is_not_lost(store: Store) {
    let waiter = register(&store, Topic::Entry("e".into())).await;
    store.run(EntrySet::new("e", json("1"))).await.expect("set");
    tokio::task::yield_now().await;
    woken(&waiter, "set before the wait began").await;
    let waiting = tokio::spawn(async move { woken(&waiter, "set while waiting").await });
    tokio::task::yield_now().await;
    store.run(EntrySet::new("e", json("2"))).await.expect("set");
    waiting.await.expect("woken");
}

async fn a_registration_may_name_many_topics_and_everyone_is_woken(store: Store) {
    let topics = [Topic::Entry("e".into()), Topic::Lock("l".into()), queue()];
    let one = store.backend.register(&store.namespace, &topics).await.expect("registered");
    let two = store.backend.register(&store.namespace, &topics).await.expect("registered");
    drop(register(&store, queue()).await);
    store.run(EntrySet::new("e", json("1"))).await.expect("set");
    for waiter in [&one, &two] {
        woken(waiter, "the entry was set").await;
    }
    store.plain().await;
    for waiter in [&one, &two] {
        woken(waiter, "a task was created").await;
    }
}

async fn not_everything_wakes_everyone(store: Store) {
    let mut strays = 0;
    for n in 0..5 {
        let own = register(&store, Topic::Entry("own".into())).await;
        let other = store.beside();
        other.run(EntrySet::new("own", json("1"))).await.expect("set in another namespace");
        store.run(EntrySet::new("other", json("1"))).await.expect("set");
        store.append(&format!("s/{n}"), &["a"]).await;
        strays += u32::from(tokio::time::timeout(Duration::from_millis(10), own.wait()).await.is_ok());
    }
    assert!(strays < 5, "every unrelated change woke a waiter");
}
