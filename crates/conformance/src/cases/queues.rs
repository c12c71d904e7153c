//! Queues: pausing them, counting what is in them, and who asks them for work.

use statehold_core::call::Claim;
use statehold_core::command::{QueueSet, QueueState, TaskCreate, TaskRenew};
use statehold_core::model::QueueInfo;
use statehold_core::query::TaskCounts;
use statehold_core::{Seconds, Status};

use crate::harness::{plain_create, refused};
use crate::{Case, Store, cases};

pub(super) const CASES: &[Case] = cases![
    a_queue_says_whether_it_is_paused,
    what_runs_in_a_paused_queue_goes_on,
    a_queue_needs_a_name,
    a_queue_is_named_once_in_a_batch,
    queues_are_listed_by_name,
    a_queue_that_was_only_polled_is_forgotten,
    a_queue_tells_its_depth,
    a_queue_tells_how_long_the_oldest_waits,
    a_queue_tells_how_many_ended_in_the_last_minute,
    a_queue_tells_who_polled,
    a_poller_is_seen_again_after_a_while,
    tasks_are_counted_by_status,
    tasks_are_counted_in_one_queue_or_all,
    what_is_claimable_is_counted_though_paused,
    what_is_due_is_claimable_before_any_sweep,
    what_is_not_ready_is_not_claimable,
    nothing_counts_as_nothing,
];

async fn set(store: &Store, queue: &str, paused: bool) -> QueueState {
    store.run(QueueSet { queue: queue.into(), paused }).await.expect("the queue is set")
}

async fn queues(store: &Store) -> Vec<QueueInfo> {
    store.backend.queue_list(&store.namespace).await.expect("the queues are listed")
}

async fn queue(store: &Store, name: &str) -> QueueInfo {
    let found = queues(store).await.into_iter().find(|queue| queue.queue == name);
    found.expect("the queue is listed")
}

async fn counts(store: &Store, queue: Option<&str>) -> TaskCounts {
    store.backend.task_count(&store.namespace, queue).await.expect("the tasks are counted")
}

async fn poll(store: &Store, queue: &str, owner: &str) {
    let claim = Claim::new(&store.namespace, queue, owner);
    assert!(store.backend.claim(claim).await.expect("the claim is answered").tasks.is_empty());
}

async fn a_queue_says_whether_it_is_paused(store: Store) {
    store.plain().await;
    for paused in [true, true, false, false] {
        assert_eq!(set(&store, "q", paused).await, QueueState { queue: "q".into(), paused });
        assert_eq!(queue(&store, "q").await.paused, paused);
    }
    store.create(TaskCreate { queue: Some("other".into()), ..plain_create() }).await;
    set(&store, "q", true).await;
    assert!(!queue(&store, "other").await.paused);
}

async fn what_runs_in_a_paused_queue_goes_on(store: Store) {
    let (task, token) = store.started("w").await;
    set(&store, "q", true).await;
    assert_eq!(store.task(task.id).await, task);
    let renew = TaskRenew { id: task.id, token, lease_seconds: None, progress: None };
    store.run(renew).await.expect("the lease is renewed");
    assert_eq!(store.complete(task.id, token).await.expect("completed").status, Status::Completed);
}

async fn a_queue_needs_a_name(store: Store) {
    refused(store.run(QueueSet { queue: String::new(), paused: true }).await, "invalid");
    assert_eq!(queues(&store).await, []);
}

async fn a_queue_is_named_once_in_a_batch(store: Store) {
    let mut batch = store.batch();
    batch.add(QueueSet { queue: "q".into(), paused: true });
    batch.add(QueueSet { queue: "q".into(), paused: false });
    refused(store.apply(batch).await, "invalid");
    assert_eq!(queues(&store).await, []);
}

async fn queues_are_listed_by_name(store: Store) {
    set(&store, "paused", true).await;
    set(&store, "neither paused nor polled", false).await;
    poll(&store, "polled", "w").await;
    for name in ["b", "B", "a", "é", "a"] {
        store.create(TaskCreate { queue: Some(name.into()), ..plain_create() }).await;
    }
    store.finish(store.plain().await.id).await;
    let names: Vec<_> = queues(&store).await.into_iter().map(|queue| queue.queue).collect();
    assert_eq!(names, ["B", "a", "b", "paused", "polled", "q", "é"]);
}

async fn a_queue_that_was_only_polled_is_forgotten(store: Store) {
    poll(&store, "polled", "w").await;
    store.clock.advance(200);
    assert_eq!(queues(&store).await.len(), 1);
    store.clock.advance(200);
    assert_eq!(queues(&store).await, []);
}

async fn a_queue_tells_its_depth(store: Store) {
    let (running, _) = store.started("w").await;
    store.after(&[running.id]).await;
    store.create(TaskCreate { backlog: true, ..plain_create() }).await;
    store.create(TaskCreate { run_at: Some(store.now() + Seconds::new(9)), ..plain_create() }).await;
    store.plain().await;
    let info = queue(&store, "q").await;
    let expected = [(Status::Running, 1), (Status::Blocked, 1), (Status::Backlog, 1), (Status::Pending, 2)];
    assert_eq!((info.counts, info.claimable), (expected.into(), 1));
    set(&store, "q", true).await;
    assert_eq!(queue(&store, "q").await.claimable, 1);
}

async fn a_queue_tells_how_long_the_oldest_waits(store: Store) {
    let run_at = Some(store.now() + Seconds::new(10));
    store.create(TaskCreate { run_at, ..plain_create() }).await;
    assert_eq!(queue(&store, "q").await.oldest_pending_seconds, None);
    store.clock.advance(4);
    store.create(TaskCreate { priority: Some(9), ..plain_create() }).await;
    store.clock.advance(4);
    store.create(TaskCreate { priority: Some(-9), ..plain_create() }).await;
    store.clock.advance(1);
    assert_eq!(queue(&store, "q").await.oldest_pending_seconds, Some(5.into()));
    assert_eq!(counts(&store, Some("q")).await.oldest_claimable, Some(store.now() - Seconds::new(5)));
    store.claim("w", 10).await;
    assert_eq!(queue(&store, "q").await.oldest_pending_seconds, None);
}

async fn a_queue_tells_how_many_ended_in_the_last_minute(store: Store) {
    assert_eq!(store.finish(store.plain().await.id).await.status, Status::Completed);
    store.doom(store.plain().await.id).await;
    store.clock.advance(40);
    store.cancel(store.plain().await.id).await.expect("cancelled");
    store.started("w").await;
    assert_eq!(queue(&store, "q").await.per_minute, 3);
    store.clock.advance(30);
    assert_eq!(queue(&store, "q").await.per_minute, 1);
    store.clock.advance(40);
    assert_eq!(queue(&store, "q").await.per_minute, 0);
}

async fn a_queue_tells_who_polled(store: Store) {
    let now = store.now();
    let both = Claim { queues: vec!["q".into(), "r".into()], ..Claim::new(&store.namespace, "q", "w") };
    store.backend.claim(both).await.expect("the claim is answered");
    poll(&store, "q", "v").await;
    let who = |info: QueueInfo| info.pollers.into_iter().map(|p| (p.owner, p.at)).collect::<Vec<_>>();
    assert_eq!(who(queue(&store, "q").await), [("v".to_owned(), now), ("w".to_owned(), now)]);
    assert_eq!(who(queue(&store, "r").await), [("w".to_owned(), now)]);
    store.create(plain_create()).await;
    store.clock.advance(400);
    assert_eq!(who(queue(&store, "q").await), []);
}

async fn a_poller_is_seen_again_after_a_while(store: Store) {
    poll(&store, "q", "w").await;
    store.clock.advance(60);
    poll(&store, "q", "w").await;
    let pollers = queue(&store, "q").await.pollers;
    assert_eq!(pollers.len(), 1);
    assert_eq!((pollers[0].owner.as_str(), pollers[0].at), ("w", store.now()));
}

async fn tasks_are_counted_by_status(store: Store) {
    let (running, _) = store.started("w").await;
    store.after(&[running.id]).await;
    store.create(TaskCreate { backlog: true, ..plain_create() }).await;
    let (waiting, token) = store.started("w").await;
    store.suspend(waiting.id, token, statehold_core::model::WaitFor::Signal("s".into())).await;
    store.finish(store.plain().await.id).await;
    store.doom(store.plain().await.id).await;
    store.cancel(store.plain().await.id).await.expect("cancelled");
    store.plain().await;
    store.plain().await;
    let counted = counts(&store, Some("q")).await;
    let expected = Status::ALL.map(|status| (status, if status == Status::Pending { 2 } else { 1 }));
    assert_eq!((counted.counts, counted.claimable), (expected.into(), 2));
    assert_eq!(counted.oldest_claimable, Some(store.now()));
}

async fn tasks_are_counted_in_one_queue_or_all(store: Store) {
    for queue in ["a", "b", "b"] {
        store.create(TaskCreate { queue: Some(queue.into()), ..plain_create() }).await;
    }
    assert_eq!(counts(&store, Some("a")).await.counts, [(Status::Pending, 1)].into());
    assert_eq!(counts(&store, Some("b")).await.counts, [(Status::Pending, 2)].into());
    let all = counts(&store, None).await;
    assert_eq!((all.counts, all.claimable), ([(Status::Pending, 3)].into(), 3));
}

async fn what_is_claimable_is_counted_though_paused(store: Store) {
    store.plain().await;
    set(&store, "q", true).await;
    let paused = counts(&store, Some("q")).await;
    assert_eq!((paused.claimable, paused.oldest_claimable), (1, Some(store.now())));
}

async fn what_is_due_is_claimable_before_any_sweep(store: Store) {
    let at = store.now() + Seconds::new(10);
    store.create(TaskCreate { run_at: Some(at), ..plain_create() }).await;
    assert_eq!(counts(&store, Some("q")).await.claimable, 0);
    store.clock.advance(10);
    let due = counts(&store, Some("q")).await;
    assert_eq!((due.claimable, due.oldest_claimable), (1, Some(at)));
    assert_eq!(queue(&store, "q").await.claimable, 1);
}

async fn what_is_not_ready_is_not_claimable(store: Store) {
    let (running, _) = store.started("w").await;
    store.after(&[running.id]).await;
    store.create(TaskCreate { backlog: true, ..plain_create() }).await;
    store.create(TaskCreate { run_at: Some(store.now() + Seconds::new(1)), ..plain_create() }).await;
    let end = store.now() + Seconds::new(1);
    store.create(TaskCreate { expires_at: Some(end), run_at: Some(end), ..plain_create() }).await;
    let counted = counts(&store, Some("q")).await;
    assert_eq!((counted.claimable, counted.oldest_claimable), (0, None));
}

async fn nothing_counts_as_nothing(store: Store) {
    assert_eq!(counts(&store, None).await, TaskCounts::default());
    assert_eq!(counts(&store, Some("q")).await, TaskCounts::default());
}
