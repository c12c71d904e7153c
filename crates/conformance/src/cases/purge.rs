//! Purging, by hand and by retention: what goes, what stays, and what is written down about it.

use std::collections::BTreeSet;

use statehold_core::call::{Sweep, Swept};
use statehold_core::command::{NewEvent, StreamAppend, TaskCreate, TaskPurge};
use statehold_core::model::{Event, StreamName, Task, TaskId};
use statehold_core::policy::Retention;
use statehold_core::query::TaskList;
use statehold_core::{Seconds, Status};

use crate::harness::{plain_create, refused};
use crate::{Case, Store, cases};

pub(super) const CASES: &[Case] = cases![
    a_purged_task_is_gone_with_its_stream,
    a_purge_frees_the_keys,
    a_purge_is_audited,
    a_purge_waits_for_the_parent,
    a_purge_waits_for_dependents,
    a_purge_needs_no_terminal_children,
    retention_purges_what_is_old_enough,
    retention_goes_by_status,
    retention_keeps_open_tasks,
    retention_keeps_what_an_open_task_needs,
    retention_is_bounded_and_goes_on_at_its_cursor,
    retention_passes_what_it_must_keep,
    retention_takes_the_oldest_first,
    retention_is_audited,
];

async fn purge(store: &Store, id: TaskId) {
    store.run(TaskPurge { id }).await.expect("the task is purged");
}

async fn ids(store: &Store) -> BTreeSet<TaskId> {
    let list = TaskList { limit: 1000, ..TaskList::default() };
    let page = store.backend.task_list(&store.namespace, &list).await.expect("the tasks are listed");
    page.items.iter().map(|task| task.id).collect()
}

/// A sweep that keeps completed tasks for a minute.
fn minute(store: &Store) -> Sweep {
    let mut retention = Retention::forever();
    retention.tasks = [(Status::Completed, Seconds::new(60))].into();
    Sweep { retention, ..Sweep::new(&store.namespace) }
}

async fn sweep(store: &Store, sweep: Sweep) -> Swept {
    store.backend.sweep(sweep).await.expect("the sweep is answered")
}

/// Sweeps with retention from the beginning until it got through, and answers how many were purged.
async fn retain(store: &Store, limit: u32) -> u32 {
    let (mut purged, mut retention_after) = (0, None);
    for _ in 0..50 {
        let swept = sweep(store, Sweep { limit, retention_after, ..minute(store) }).await;
        assert!(swept.purged <= limit, "{swept:?}");
        purged += swept.purged;
        retention_after = swept.retention_after;
        if retention_after.is_none() {
            return purged;
        }
    }
    panic!("retention does not come to an end")
}

/// Creates tasks that end one second after another.
async fn ended(store: &Store, count: usize) -> Vec<Task> {
    let mut tasks = Vec::new();
    for _ in 0..count {
        let task = store.plain().await;
        tasks.push(store.finish(task.id).await);
        store.clock.advance(1);
    }
    tasks
}

async fn audit(store: &Store) -> Vec<Event> {
    store.events(&StreamName::new("audit", "local").expect("a name")).await
}

/// The ids that an audit event of a purge names, and whether retention did it.
fn purged(event: &Event) -> (Vec<TaskId>, bool) {
    assert_eq!(event.kind, "task.purged");
    let data: serde_json::Value = event.data.as_ref().expect("data").to().expect("JSON");
    let tasks = data["tasks"].as_array().expect("a list of tasks");
    let tasks = tasks.iter().map(|id| id.as_str().expect("an id").parse().expect("a UUID"));
    (tasks.collect(), data["retention"].as_bool().expect("whether retention did it"))
}

async fn a_purged_task_is_gone_with_its_stream(store: Store) {
    let task = store.plain().await;
    store.signal(task.id, "s").await.expect("signalled");
    store.finish(task.id).await;
    purge(&store, task.id).await;
    assert_eq!((store.find(task.id).await, ids(&store).await), (None, BTreeSet::new()));
    let stream = StreamName::of_task(task.id);
    assert!(store.events(&stream).await.is_empty());
    let events = vec![NewEvent { kind: "said".into(), data: None }];
    refused(store.run(StreamAppend { stream, events, expect_seq: None }).await, "not_found");
    refused(store.run(TaskPurge { id: task.id }).await, "not_found");
    refused(store.backend.task_why(&store.namespace, task.id).await, "not_found");
}

async fn a_purge_frees_the_keys(store: Store) {
    let parent = store.plain().await;
    let create = TaskCreate {
        id: Some(TaskId::generate()),
        idempotency_key: Some("i".into()),
        parent: Some(parent.id),
        child_key: Some("c".into()),
        ..plain_create()
    };
    let task = store.create(create.clone()).await;
    store.signal(task.id, "s").await.expect("signalled");
    store.finish(task.id).await;
    store.cancel(parent.id).await.expect("cancelled");
    purge(&store, task.id).await;
    let retry = statehold_core::command::TaskRetry { id: parent.id, with_dependents: false };
    store.run(retry).await.expect("retried");
    let again = store.create(TaskCreate { kind: "other".into(), ..create }).await;
    assert_eq!((again.id, again.revision, again.attempt), (task.id, 1, 0));
    let (_, token) = store.start(again.id, "w").await;
    let waiting = store.suspend(again.id, token, statehold_core::model::WaitFor::Signal("s".into())).await;
    assert_eq!(waiting.status, Status::Waiting, "the kept signal is gone");
    assert_eq!(store.log(again.id).await.len(), 3);
}

async fn a_purge_is_audited(store: Store) {
    let task = store.cancel(store.plain().await.id).await.expect("cancelled");
    let mut batch = store.batch().actor("alice");
    batch.add(TaskPurge { id: task.id });
    store.apply(batch).await.expect("purged");
    let events = audit(&store).await;
    assert_eq!(events.len(), 1);
    assert_eq!(purged(&events[0]), (vec![task.id], false));
    assert_eq!((events[0].actor.as_deref(), events[0].at), (Some("alice"), store.now()));
}

async fn a_purge_waits_for_the_parent(store: Store) {
    let parent = store.plain().await;
    let child = store.child(parent.id, "c").await;
    store.finish(child.id).await;
    store.refuses(child.id, TaskPurge { id: child.id }, "conflict").await;
    store.cancel(parent.id).await.expect("cancelled");
    purge(&store, child.id).await;
    assert!(store.find(child.id).await.is_none());
}

async fn a_purge_waits_for_dependents(store: Store) {
    let task = store.plain().await;
    let (ready, parked) = (store.after(&[task.id]).await, store.after(&[task.id]).await);
    let park = statehold_core::command::TaskPark { id: parked.id, rank: None };
    store.run(park).await.expect("parked");
    store.finish(task.id).await;
    store.refuses(task.id, TaskPurge { id: task.id }, "conflict").await;
    store.finish(ready.id).await;
    store.refuses(task.id, TaskPurge { id: task.id }, "conflict").await;
    store.cancel(parked.id).await.expect("cancelled");
    purge(&store, task.id).await;
    assert_eq!(store.task(ready.id).await.depends_on, [task.id]);
}

async fn a_purge_needs_no_terminal_children(store: Store) {
    let parent = store.plain().await;
    let child = store.child(parent.id, "c").await;
    store.cancel(parent.id).await.expect("cancelled");
    purge(&store, parent.id).await;
    assert_eq!(store.task(child.id).await, child);
}

async fn retention_purges_what_is_old_enough(store: Store) {
    let task = store.plain().await;
    store.finish(task.id).await;
    store.clock.advance(Seconds::from_micros(59_999_999));
    assert_eq!(sweep(&store, minute(&store)).await.purged, 0);
    assert!(store.find(task.id).await.is_some());
    store.clock.advance(Seconds::from_micros(1));
    let swept = sweep(&store, minute(&store)).await;
    assert_eq!((swept.purged, swept.retention_after), (1, None));
    assert_eq!(store.find(task.id).await, None);
    assert!(store.events(&StreamName::of_task(task.id)).await.is_empty());
}

async fn retention_goes_by_status(store: Store) {
    let completed = store.finish(store.plain().await.id).await;
    let failed = store.doom(store.plain().await.id).await;
    let cancelled = store.cancel(store.plain().await.id).await.expect("cancelled");
    let mut asked = minute(&store);
    asked.retention.tasks = [(Status::Failed, 100.into()), (Status::Cancelled, 200.into())].into();
    let mut left: BTreeSet<_> = [completed.id, failed.id, cancelled.id].into();
    for gone in [None, Some(failed.id), Some(cancelled.id), None] {
        assert_eq!(sweep(&store, asked.clone()).await.purged, u32::from(gone.is_some()));
        left.retain(|id| Some(*id) != gone);
        assert_eq!(ids(&store).await, left);
        store.clock.advance(100);
    }
    assert_eq!(left, [completed.id].into());
}

async fn retention_keeps_open_tasks(store: Store) {
    let (pending, (running, _)) = (store.plain().await, store.started("w").await);
    store.clock.advance(1_000_000);
    let swept = sweep(&store, Sweep { retention: Retention::default(), ..minute(&store) }).await;
    assert_eq!((swept.purged, ids(&store).await), (0, [pending.id, running.id].into()));
    let done = store.finish(pending.id).await;
    store.clock.advance(1_000_000);
    assert_eq!(store.sweep().await.purged, 0, "without retention everything stays");
    assert!(store.find(done.id).await.is_some());
}

async fn retention_keeps_what_an_open_task_needs(store: Store) {
    let parent = store.plain().await;
    let child = store.child(parent.id, "c").await;
    let dependency = store.plain().await;
    let dependent = store.after(&[dependency.id]).await;
    store.finish(child.id).await;
    store.finish(dependency.id).await;
    store.clock.advance(60);
    assert_eq!(retain(&store, 100).await, 0);
    store.cancel(parent.id).await.expect("cancelled");
    store.cancel(dependent.id).await.expect("cancelled");
    assert_eq!(retain(&store, 100).await, 2);
    assert_eq!(ids(&store).await, [parent.id, dependent.id].into());
}

async fn retention_is_bounded_and_goes_on_at_its_cursor(store: Store) {
    let tasks = ended(&store, 5).await;
    store.clock.advance(60);
    let first = sweep(&store, Sweep { limit: 2, ..minute(&store) }).await;
    assert_eq!((first.purged, ids(&store).await.len()), (2, 3));
    assert!(first.more && first.retention_after.is_some(), "{first:?}");
    assert_eq!(retain(&store, 2).await, 3);
    assert!(tasks.len() == 5 && ids(&store).await.is_empty());
}

async fn retention_passes_what_it_must_keep(store: Store) {
    let parent = store.plain().await;
    let mut kept = BTreeSet::from([parent.id]);
    for key in ["a", "b", "c", "d", "e"] {
        let child = store.child(parent.id, key).await;
        store.finish(child.id).await;
        kept.insert(child.id);
    }
    ended(&store, 3).await;
    store.clock.advance(60);
    assert_eq!(retain(&store, 2).await, 3);
    assert_eq!(ids(&store).await, kept);
    store.cancel(parent.id).await.expect("cancelled");
    assert_eq!(retain(&store, 2).await, 5);
    assert_eq!(ids(&store).await, [parent.id].into());
}

async fn retention_takes_the_oldest_first(store: Store) {
    let tasks = ended(&store, 3).await;
    store.clock.advance(60);
    for task in tasks {
        assert!(store.find(task.id).await.is_some());
        assert_eq!(sweep(&store, Sweep { limit: 1, ..minute(&store) }).await.purged, 1);
        assert_eq!(store.find(task.id).await, None);
    }
}

async fn retention_is_audited(store: Store) {
    let tasks = ended(&store, 3).await;
    store.clock.advance(60);
    sweep(&store, minute(&store)).await;
    let mut named = BTreeSet::new();
    for event in audit(&store).await {
        let (ids, retention) = purged(&event);
        assert!(retention && event.actor.is_none(), "{event:?}");
        named.extend(ids);
    }
    assert_eq!(named, tasks.iter().map(|task| task.id).collect());
}
