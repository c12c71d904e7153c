//! Cancelling: at once, by request, by force, and whole families.

use serde_json::json;
use statehold_core::command::{TaskCancel, TaskComplete, TaskCreate, TaskEvict, TaskRelease};
use statehold_core::model::{Children, Task, TaskId, Token, WaitFor};
use statehold_core::{Seconds, Status};

use crate::harness::{broken, event, json, plain_create};
use crate::{Case, Store, cases};

pub(super) const CASES: &[Case] = cases![
    a_task_without_a_worker_is_cancelled_now,
    a_running_task_is_asked_to_stop_each_time,
    a_completion_wins_over_a_request_to_stop,
    a_stopped_task_that_fails_is_cancelled,
    a_stopped_task_that_is_released_is_cancelled,
    a_stopped_task_that_suspends_is_cancelled,
    a_stopped_task_that_is_evicted_is_cancelled,
    a_stopped_task_that_loses_its_lease_is_cancelled,
    a_stopped_task_that_times_out_is_cancelled,
    a_forced_cancel_ends_a_running_task_now,
    a_forced_cancel_ends_a_stopped_task,
    a_cancel_without_children_leaves_them,
    a_cancel_with_children_reaches_every_open_descendant,
    a_forced_cancel_with_children_ends_running_descendants,
    a_cancel_reaches_below_terminal_children,
    a_cancel_of_children_cancels_what_depends_on_them,
    a_waiting_parent_is_cancelled_and_not_resumed,
    a_cancel_of_many_children_is_finished_by_sweeps,
    a_refused_cancel_leaves_the_children,
];

async fn cancel_family(store: &Store, id: TaskId, force: bool) -> Task {
    store.run(TaskCancel { id, force, children: true }).await.expect("the task is cancelled")
}

/// A running task that was asked to stop.
async fn stopped(store: &Store, create: TaskCreate) -> (TaskId, Token) {
    let id = store.create(create).await.id;
    let (_, token) = store.start(id, "w").await;
    store.cancel(id).await.expect("asked to stop");
    store.clock.advance(5);
    (id, token)
}

/// Checks the end of a stopped task: its counts, and its events after the request.
async fn assert_stopped(store: &Store, id: TaskId, counts: (u32, u32), events: &[&str]) -> Task {
    let task = store.task(id).await;
    assert_eq!((task.status, task.finished_at), (Status::Cancelled, Some(store.now())));
    assert_eq!((task.failures, task.lease_losses, task.attempt), (counts.0, counts.1, 1));
    assert_eq!((&task.lease, &task.waiting_for, &task.resumed_by), (&None, &None, &None));
    assert_eq!((task.cancel_requested, task.updated_at), (true, store.now()));
    let log: Vec<_> = store.log(id).await.into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(log[3..], *events);
    task
}

async fn a_task_without_a_worker_is_cancelled_now(store: Store) {
    let open = store.started("w").await.0;
    let pending = store.plain().await;
    let blocked = store.after(&[open.id]).await;
    let parked = store.create(TaskCreate { backlog: true, ..plain_create() }).await;
    let (waiting, token) = store.started("w").await;
    let waiting = store.suspend(waiting.id, token, WaitFor::Until(store.now() + Seconds::new(9))).await;
    store.clock.advance(5);
    for before in [pending, blocked, parked, waiting] {
        let task = store.cancel(before.id).await.expect("cancelled");
        assert_eq!((task.status, task.finished_at), (Status::Cancelled, Some(store.now())));
        assert_eq!((&task.waiting_for, &task.error), (&None, &None));
        assert_eq!((task.revision, task.updated_at), (before.revision + 1, store.now()));
        assert_eq!(store.log(task.id).await.pop(), Some(event("task.cancelled", &json!(null))));
        assert_eq!(store.task(task.id).await, task);
    }
    store.clock.advance(10);
    assert_eq!(store.sweep().await.timers, 0);
}

async fn a_running_task_is_asked_to_stop_each_time(store: Store) {
    let (task, token) = store.started("w").await;
    for n in 1..=2 {
        store.clock.advance(1);
        let asked = store.cancel(task.id).await.expect("asked to stop");
        assert_eq!((asked.status, asked.cancel_requested), (Status::Running, true));
        assert_eq!((&asked.lease, asked.finished_at), (&task.lease, None));
        assert_eq!((asked.revision, asked.updated_at), (2 + n, store.now()));
        assert_eq!(store.log(task.id).await.pop(), Some(event("task.cancel_requested", &json!(null))));
    }
    store.complete(task.id, token).await.expect("still leased");
}

async fn a_completion_wins_over_a_request_to_stop(store: Store) {
    let (id, token) = stopped(&store, plain_create()).await;
    let done = store.run(TaskComplete { id, token, output: Some(json("1")) }).await.expect("completed");
    assert_eq!((done.status, done.output), (Status::Completed, Some(json("1"))));
    assert_eq!(store.log(id).await[3..], [event("task.completed", &json!({"attempt": 1}))]);
}

async fn a_stopped_task_that_fails_is_cancelled(store: Store) {
    let (id, token) = stopped(&store, plain_create()).await;
    store.fail(id, token).await.expect("the attempt fails");
    let task = assert_stopped(&store, id, (1, 0), &["task.cancelled"]).await;
    assert_eq!(task.error, Some(broken()));
}

async fn a_stopped_task_that_is_released_is_cancelled(store: Store) {
    let (id, token) = stopped(&store, plain_create()).await;
    let run_at = Some(store.now() + Seconds::new(60));
    store.run(TaskRelease { id, token, run_at }).await.expect("released");
    assert_stopped(&store, id, (0, 0), &["task.cancelled"]).await;
    store.clock.advance(60);
    assert!(store.claim("w", 1).await.tasks.is_empty());
}

async fn a_stopped_task_that_suspends_is_cancelled(store: Store) {
    for kept in [false, true] {
        let (id, token) = stopped(&store, plain_create()).await;
        // A kept signal, for which an unstopped task would go on at once.
        let events: &[&str] = if kept { &["task.signalled", "task.cancelled"] } else { &["task.cancelled"] };
        if kept {
            store.signal(id, "s").await.expect("signalled");
        }
        store.suspend(id, token, WaitFor::Signal("s".into())).await;
        assert_stopped(&store, id, (0, 0), events).await;
    }
}

async fn a_stopped_task_that_is_evicted_is_cancelled(store: Store) {
    let (id, _) = stopped(&store, plain_create()).await;
    store.run(TaskEvict { id }).await.expect("evicted");
    assert_stopped(&store, id, (0, 0), &["task.evicted", "task.cancelled"]).await;
}

async fn a_stopped_task_that_loses_its_lease_is_cancelled(store: Store) {
    let (id, _) = stopped(&store, plain_create()).await;
    store.clock.advance(25);
    assert_eq!(store.sweep().await.leases, 1);
    let task = assert_stopped(&store, id, (0, 1), &["task.lease_lost", "task.cancelled"]).await;
    assert_eq!(task.error, None);
}

async fn a_stopped_task_that_times_out_is_cancelled(store: Store) {
    let bounded = TaskCreate { timeout_seconds: Some(20.into()), ..plain_create() };
    let (id, _) = stopped(&store, bounded).await;
    store.clock.advance(15);
    assert_eq!(store.sweep().await.timers, 1);
    let task = assert_stopped(&store, id, (1, 0), &["task.cancelled"]).await;
    assert_eq!(task.error.and_then(|error| error.code).as_deref(), Some("timeout"));
}

async fn a_forced_cancel_ends_a_running_task_now(store: Store) {
    let (task, _) = store.started("w").await;
    store.clock.advance(5);
    let cancel = TaskCancel { id: task.id, force: true, children: false };
    let cancelled = store.run(cancel).await.expect("cancelled");
    assert_eq!((cancelled.status, &cancelled.lease), (Status::Cancelled, &None));
    assert_eq!((cancelled.finished_at, cancelled.revision), (Some(store.now()), 3));
    assert_eq!(store.log(task.id).await[2..], [event("task.cancelled", &json!(null))]);
}

async fn a_forced_cancel_ends_a_stopped_task(store: Store) {
    let (id, _) = stopped(&store, plain_create()).await;
    store.run(TaskCancel { id, force: true, children: false }).await.expect("cancelled");
    assert_stopped(&store, id, (0, 0), &["task.cancelled"]).await;
}

async fn a_cancel_without_children_leaves_them(store: Store) {
    let parent = store.plain().await;
    let child = store.child(parent.id, "c").await;
    store.cancel(parent.id).await.expect("cancelled");
    assert_eq!(store.task(child.id).await, child);
}

async fn a_cancel_with_children_reaches_every_open_descendant(store: Store) {
    let top = store.plain().await;
    let child = store.child(top.id, "c").await;
    let (grandchild, done) = (store.child(child.id, "g").await, store.child(child.id, "d").await);
    let (running, _) = store.start(store.child(grandchild.id, "r").await.id, "w").await;
    let done = store.finish(done.id).await;
    let bystander = store.plain().await;
    store.clock.advance(5);
    assert_eq!(cancel_family(&store, top.id, false).await.status, Status::Cancelled);
    for id in [child.id, grandchild.id] {
        let task = store.task(id).await;
        assert_eq!((task.status, task.finished_at), (Status::Cancelled, Some(store.now())));
        assert_eq!(store.log(id).await[1..], [event("task.cancelled", &json!(null))]);
    }
    let asked = store.task(running.id).await;
    assert_eq!((asked.status, asked.cancel_requested, asked.revision), (Status::Running, true, 3));
    store.log(running.id).await;
    assert_eq!((store.task(done.id).await, store.task(bystander.id).await), (done, bystander));
}

async fn a_forced_cancel_with_children_ends_running_descendants(store: Store) {
    let (top, _) = store.started("w").await;
    let child = store.child(top.id, "c").await;
    let (running, token) = store.start(child.id, "w").await;
    assert_eq!(cancel_family(&store, top.id, true).await.status, Status::Cancelled);
    assert_eq!(store.status(running.id).await, Status::Cancelled);
    let complete = TaskComplete { id: running.id, token, output: None };
    store.refuses(running.id, complete, "fenced").await;
}

async fn a_cancel_reaches_below_terminal_children(store: Store) {
    let top = store.plain().await;
    let child = store.child(top.id, "c").await;
    let grandchild = store.child(child.id, "g").await;
    store.finish(child.id).await;
    cancel_family(&store, top.id, false).await;
    assert_eq!(store.status(child.id).await, Status::Completed);
    assert_eq!(store.status(grandchild.id).await, Status::Cancelled);
}

async fn a_cancel_of_children_cancels_what_depends_on_them(store: Store) {
    let top = store.plain().await;
    let first = store.child(top.id, "a").await;
    let second = TaskCreate { parent: Some(top.id), depends_on: vec![first.id], ..plain_create() };
    let second = store.create(second).await;
    let outside = store.after(&[second.id]).await;
    cancel_family(&store, top.id, false).await;
    assert_eq!(store.status(first.id).await, Status::Cancelled);
    assert_eq!(store.status(second.id).await, Status::Cancelled);
    assert_eq!(store.status(outside.id).await, Status::Failed);
}

async fn a_waiting_parent_is_cancelled_and_not_resumed(store: Store) {
    let (parent, token) = store.started("w").await;
    let child = store.child(parent.id, "c").await;
    store.suspend(parent.id, token, WaitFor::Children(Children::All)).await;
    cancel_family(&store, parent.id, false).await;
    assert_eq!(store.status(child.id).await, Status::Cancelled);
    let log: Vec<_> = store.log(parent.id).await.into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(log[2..], ["task.suspended", "task.cancelled"]);
}

async fn a_cancel_of_many_children_is_finished_by_sweeps(store: Store) {
    let parent = store.plain().await;
    let mut batch = store.batch();
    for _ in 0..300 {
        batch.add(TaskCreate { parent: Some(parent.id), ..plain_create() });
    }
    store.apply(batch).await.expect("the children are created");
    cancel_family(&store, parent.id, false).await;
    let mut chores = 0;
    for _ in 0..20 {
        let swept = store.sweep().await;
        chores += swept.chores;
        if !swept.more {
            break;
        }
    }
    assert!(chores >= 1, "work was left over");
    let counts = store.backend.task_count(&store.namespace, None).await.expect("counted").counts;
    assert_eq!(counts, [(Status::Cancelled, 301)].into());
}

async fn a_refused_cancel_leaves_the_children(store: Store) {
    let parent = store.plain().await;
    let child = store.child(parent.id, "c").await;
    store.finish(parent.id).await;
    let cancel = TaskCancel { id: parent.id, force: true, children: true };
    store.refuses(parent.id, cancel, "invalid_transition").await;
    assert_eq!(store.task(child.id).await, child);
}
