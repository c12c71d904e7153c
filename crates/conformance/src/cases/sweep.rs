//! Sweeps: what time brings to tasks, counted and bounded.

use statehold_core::call::{Sweep, Swept};
use statehold_core::command::{TaskCreate, TaskSuspend};
use statehold_core::model::{OnTimeout, StreamName, TaskId, WaitFor};
use statehold_core::{Seconds, Status};

use crate::harness::{plain_create, refused};
use crate::{Case, Store, cases};

pub(super) const CASES: &[Case] = cases![
    a_sweep_of_nothing_does_nothing,
    a_sweep_counts_what_it_did,
    a_sweep_repeated_does_nothing_more,
    a_due_task_is_counted_and_not_changed,
    a_sweep_takes_at_most_its_limit_of_leases,
    a_sweep_takes_at_most_its_limit_of_timers,
    timers_go_in_the_order_of_time,
    a_sweep_works_in_paused_queues,
    a_sweep_leaves_other_namespaces_alone,
    events_of_a_sweep_have_no_actor,
    what_a_sweep_ends_has_its_effects,
    a_wrong_sweep_is_refused,
];

async fn bounded(store: &Store, limit: u32) -> Swept {
    let sweep = Sweep { limit, ..Sweep::new(&store.namespace) };
    store.backend.sweep(sweep).await.expect("the sweep is answered")
}

async fn losses(store: &Store, ids: &[TaskId]) -> u32 {
    let mut sum = 0;
    for id in ids {
        sum += store.task(*id).await.lease_losses;
    }
    sum
}

async fn a_sweep_of_nothing_does_nothing(store: Store) {
    assert_eq!(store.sweep().await, Swept::default());
    let (task, _) = store.started("w").await;
    store.plain().await;
    assert_eq!(store.sweep().await, Swept::default());
    assert_eq!(store.task(task.id).await, task);
}

async fn a_sweep_counts_what_it_did(store: Store) {
    let later = Some(store.now() + Seconds::new(10));
    for _ in 0..3 {
        store.started("w").await;
    }
    store.create(TaskCreate { run_at: later, ..plain_create() }).await;
    store.create(TaskCreate { expires_at: later, ..plain_create() }).await;
    let timed = store.create(TaskCreate { timeout_seconds: Some(10.into()), ..plain_create() }).await;
    store.start(timed.id, "w").await;
    let (waiting, token) = store.started("w").await;
    store.suspend(waiting.id, token, WaitFor::Until(store.now() + Seconds::new(10))).await;
    store.clock.advance(30);
    let swept = store.sweep().await;
    assert_eq!(swept, Swept { leases: 3, timers: 4, ..Swept::default() });
}

async fn a_sweep_repeated_does_nothing_more(store: Store) {
    let (task, _) = store.started("w").await;
    store.clock.advance(30);
    store.sweep().await;
    let lost = store.task(task.id).await;
    assert_eq!(store.sweep().await, Swept::default());
    assert_eq!(store.task(task.id).await, lost);
}

async fn a_due_task_is_counted_and_not_changed(store: Store) {
    let run_at = Some(store.now() + Seconds::new(10));
    let task = store.create(TaskCreate { run_at, ..plain_create() }).await;
    store.clock.advance(20);
    assert_eq!(store.sweep().await.timers, 1);
    assert_eq!(store.task(task.id).await, task);
    assert_eq!(store.log(task.id).await.len(), 1);
    assert_eq!(store.claim("w", 1).await.tasks.len(), 1);
}

async fn a_sweep_takes_at_most_its_limit_of_leases(store: Store) {
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(store.started("w").await.0.id);
    }
    store.clock.advance(30);
    let first = bounded(&store, 2).await;
    assert_eq!((first.leases, first.more, losses(&store, &ids).await), (2, true, 2));
    let second = bounded(&store, 2).await;
    assert_eq!((second.leases, second.more, losses(&store, &ids).await), (2, true, 4));
    let third = bounded(&store, 2).await;
    assert_eq!((third.leases, third.more, losses(&store, &ids).await), (1, false, 5));
}

async fn a_sweep_takes_at_most_its_limit_of_timers(store: Store) {
    let expires_at = Some(store.now() + Seconds::new(10));
    for _ in 0..5 {
        store.create(TaskCreate { expires_at, ..plain_create() }).await;
    }
    store.clock.advance(10);
    let mut timers = Vec::new();
    for _ in 0..3 {
        let swept = bounded(&store, 2).await;
        timers.push((swept.timers, swept.more));
    }
    assert_eq!(timers, [(2, true), (2, true), (1, false)]);
    let counts = store.backend.task_count(&store.namespace, None).await.expect("counted").counts;
    assert_eq!(counts, [(Status::Failed, 5)].into());
}

async fn timers_go_in_the_order_of_time(store: Store) {
    let mut ids = Vec::new();
    for seconds in [30, 10, 20] {
        let expires_at = Some(store.now() + Seconds::new(seconds));
        ids.push(store.create(TaskCreate { expires_at, ..plain_create() }).await.id);
    }
    store.clock.advance(60);
    for next in [ids[1], ids[2], ids[0]] {
        assert_eq!(store.status(next).await, Status::Pending);
        bounded(&store, 1).await;
        assert_eq!(store.status(next).await, Status::Failed);
    }
}

async fn a_sweep_works_in_paused_queues(store: Store) {
    let (task, _) = store.started("w").await;
    let pause = statehold_core::command::QueueSet { queue: "q".into(), paused: true };
    store.run(pause).await.expect("paused");
    store.clock.advance(30);
    assert_eq!(store.sweep().await.leases, 1);
    assert_eq!(store.status(task.id).await, Status::Pending);
}

async fn a_sweep_leaves_other_namespaces_alone(store: Store) {
    let (task, _) = store.started("w").await;
    store.clock.advance(30);
    let other = Store { namespace: format!("{}-other", store.namespace), ..store.clone() };
    assert_eq!(other.sweep().await, Swept::default());
    assert_eq!(store.task(task.id).await, task);
}

async fn events_of_a_sweep_have_no_actor(store: Store) {
    let mut batch = store.batch().actor("alice");
    let created = batch.add(plain_create());
    let mut replies = store.apply(batch).await.expect("created");
    let id = replies.take(created).expect("a reply").task.id;
    store.start(id, "w").await;
    store.clock.advance(30);
    store.sweep().await;
    let last = store.events(&StreamName::of_task(id)).await.pop().expect("an event");
    assert_eq!((last.kind.as_str(), last.actor, last.at), ("task.lease_lost", None, store.now()));
}

async fn what_a_sweep_ends_has_its_effects(store: Store) {
    let (parent, token) = store.started("w").await;
    let (waiting_for, on_timeout) = (WaitFor::Signal("s".into()), OnTimeout::Fail);
    let child = store.child(parent.id, "c").await;
    let (_, child_token) = store.start(child.id, "w").await;
    let dependent = store.after(&[child.id]).await;
    store.suspend(parent.id, token, WaitFor::Children(statehold_core::model::Children::All)).await;
    let timeout_seconds = Some(10.into());
    let suspend = TaskSuspend { id: child.id, token: child_token, waiting_for, timeout_seconds, on_timeout };
    store.run(suspend).await.expect("suspended");
    store.clock.advance(10);
    store.sweep().await;
    assert_eq!(store.status(child.id).await, Status::Failed);
    assert_eq!(store.status(dependent.id).await, Status::Failed);
    assert_eq!(store.status(parent.id).await, Status::Pending);
}

async fn a_wrong_sweep_is_refused(store: Store) {
    for limit in [0, 1001] {
        let sweep = Sweep { limit, ..Sweep::new(&store.namespace) };
        refused(store.backend.sweep(sweep).await, "invalid");
    }
    let mut sweep = Sweep::new(&store.namespace);
    sweep.retention.tasks = [(Status::Running, 60.into())].into();
    refused(store.backend.sweep(sweep).await, "invalid");
}
