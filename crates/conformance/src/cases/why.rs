//! Why a task is not moving: every reason, alone and together.

use statehold_core::command::{QueueSet, TaskCreate, TaskSuspend};
use statehold_core::model::{Children, OnTimeout, TaskId, WaitFor};
use statehold_core::query::{Reason, ReasonCode};
use statehold_core::{Seconds, Status};

use crate::harness::{plain_create, refused};
use crate::{Case, Store, cases};

pub(super) const CASES: &[Case] = cases![
    a_missing_task_has_no_reason,
    a_ready_task_is_only_waiting_for_its_turn,
    a_task_in_a_queue_that_nobody_polls_says_so,
    a_task_that_is_not_due_says_when,
    a_task_that_failed_says_when_it_is_tried_again,
    a_task_that_lost_leases_says_when_it_is_tried_again,
    a_task_in_a_paused_queue_says_so,
    a_task_behind_a_key_says_who_has_it,
    a_blocked_task_says_on_what,
    a_waiting_task_says_so,
    a_waiting_parent_says_so,
    a_parked_task_says_so,
    a_running_task_says_that_its_owner_was_heard_of,
    a_task_whose_lease_is_over_says_so,
    a_terminal_task_says_so,
    every_reason_that_holds_is_told,
];

async fn why(store: &Store, id: TaskId) -> Vec<Reason> {
    let why = store.backend.task_why(&store.namespace, id).await.expect("the reasons are told");
    assert_eq!(why.status, store.status(id).await);
    assert!(why.reasons.iter().all(|reason| !reason.message.is_empty()), "{why:?}");
    why.reasons
}

async fn codes(store: &Store, id: TaskId) -> Vec<ReasonCode> {
    why(store, id).await.into_iter().map(|reason| reason.code).collect()
}

/// The reason with a code, which must be among those of a task.
async fn reason(store: &Store, id: TaskId, code: ReasonCode) -> Reason {
    let reasons = why(store, id).await;
    let found = reasons.iter().find(|reason| reason.code == code).cloned();
    found.unwrap_or_else(|| panic!("{code:?} is not among {reasons:?}"))
}

/// Asks queue `q` for work that is not there.
async fn poll(store: &Store) {
    assert!(store.claim("poller", 1).await.tasks.is_empty());
}

async fn a_missing_task_has_no_reason(store: Store) {
    let id = TaskId::generate();
    let error = refused(store.backend.task_why(&store.namespace, id).await, "not_found");
    assert_eq!(error.key(), Some(id.to_string().as_str()));
}

async fn a_ready_task_is_only_waiting_for_its_turn(store: Store) {
    poll(&store).await;
    let task = store.plain().await;
    assert_eq!(codes(&store, task.id).await, [ReasonCode::Ready]);
}

async fn a_task_in_a_queue_that_nobody_polls_says_so(store: Store) {
    let task = store.plain().await;
    reason(&store, task.id, ReasonCode::NobodyPolls).await;
    store.cancel(task.id).await.expect("cancelled");
    poll(&store).await;
    let task = store.plain().await;
    assert!(!codes(&store, task.id).await.contains(&ReasonCode::NobodyPolls));
    store.clock.advance(400);
    reason(&store, task.id, ReasonCode::NobodyPolls).await;
}

async fn a_task_that_is_not_due_says_when(store: Store) {
    poll(&store).await;
    let run_at = Some(store.now() + Seconds::new(60));
    let task = store.create(TaskCreate { run_at, ..plain_create() }).await;
    assert_eq!(codes(&store, task.id).await, [ReasonCode::Future]);
    assert_eq!(reason(&store, task.id, ReasonCode::Future).await.at, run_at);
    store.clock.advance(60);
    assert_eq!(codes(&store, task.id).await, [ReasonCode::Ready]);
}

async fn a_task_that_failed_says_when_it_is_tried_again(store: Store) {
    let (task, token) = store.started("w").await;
    let failed = store.fail(task.id, token).await.expect("the attempt fails");
    let told = reason(&store, task.id, ReasonCode::BackingOff).await;
    assert_eq!(told.at, Some(failed.run_at));
}

async fn a_task_that_lost_leases_says_when_it_is_tried_again(store: Store) {
    let task = store.plain().await;
    for _ in 0..2 {
        store.start(task.id, "w").await;
        store.clock.advance(30);
        store.sweep().await;
    }
    let told = reason(&store, task.id, ReasonCode::BackingOff).await;
    assert_eq!(told.at, Some(store.task(task.id).await.run_at));
}

async fn a_task_in_a_paused_queue_says_so(store: Store) {
    poll(&store).await;
    let task = store.plain().await;
    store.run(QueueSet { queue: "q".into(), paused: true }).await.expect("paused");
    assert_eq!(codes(&store, task.id).await, [ReasonCode::QueuePaused]);
}

async fn a_task_behind_a_key_says_who_has_it(store: Store) {
    poll(&store).await;
    let keyed = || TaskCreate { exclusive_key: Some("e".into()), ..plain_create() };
    let (first, second) = (store.create(keyed()).await, store.create(keyed()).await);
    assert_eq!(codes(&store, first.id).await, [ReasonCode::Ready]);
    assert_eq!(codes(&store, second.id).await, [ReasonCode::KeyHeld]);
    assert_eq!(reason(&store, second.id, ReasonCode::KeyHeld).await.tasks, [first.id]);
    let third = store.create(keyed()).await;
    store.start(third.id, "w").await;
    for id in [first.id, second.id] {
        assert_eq!(reason(&store, id, ReasonCode::KeyHeld).await.tasks, [third.id]);
    }
}

async fn a_blocked_task_says_on_what(store: Store) {
    let (one, two, three) = (store.plain().await, store.plain().await, store.plain().await);
    let task = store.after(&[one.id, two.id, three.id]).await;
    store.finish(two.id).await;
    let mut tasks = reason(&store, task.id, ReasonCode::Blocked).await.tasks;
    tasks.sort();
    let mut open = vec![one.id, three.id];
    open.sort();
    assert_eq!(tasks, open);
}

async fn a_waiting_task_says_so(store: Store) {
    let (task, token) = store.started("w").await;
    let until = store.now() + Seconds::new(60);
    store.suspend(task.id, token, WaitFor::Until(until)).await;
    assert_eq!(reason(&store, task.id, ReasonCode::Waiting).await.at, Some(until));
    let (task, token) = store.started("w").await;
    let (waiting_for, on_timeout) = (WaitFor::Signal("s".into()), OnTimeout::Resume);
    let suspend =
        TaskSuspend { id: task.id, token, waiting_for, timeout_seconds: Some(9.into()), on_timeout };
    store.run(suspend).await.expect("suspended");
    let told = reason(&store, task.id, ReasonCode::Waiting).await;
    assert_eq!(told.at, Some(store.now() + Seconds::new(9)));
}

async fn a_waiting_parent_says_so(store: Store) {
    let (parent, token) = store.started("w").await;
    store.child(parent.id, "c").await;
    store.suspend(parent.id, token, WaitFor::Children(Children::All)).await;
    assert_eq!(reason(&store, parent.id, ReasonCode::Waiting).await.at, None);
}

async fn a_parked_task_says_so(store: Store) {
    let task = store.create(TaskCreate { backlog: true, ..plain_create() }).await;
    reason(&store, task.id, ReasonCode::Parked).await;
    assert!(!codes(&store, task.id).await.contains(&ReasonCode::Ready));
}

async fn a_running_task_says_that_its_owner_was_heard_of(store: Store) {
    let (task, _) = store.started("w").await;
    assert_eq!(codes(&store, task.id).await, [ReasonCode::NoProgress]);
}

async fn a_task_whose_lease_is_over_says_so(store: Store) {
    let (task, _) = store.started("w").await;
    store.clock.advance(30);
    let end = store.now();
    store.clock.advance(5);
    let told = reason(&store, task.id, ReasonCode::LeaseOver).await;
    assert_eq!((told.at, store.status(task.id).await), (Some(end), Status::Running));
    assert!(!codes(&store, task.id).await.contains(&ReasonCode::NoProgress));
}

async fn a_terminal_task_says_so(store: Store) {
    let done = store.finish(store.plain().await.id).await;
    let failed = store.doom(store.plain().await.id).await;
    let cancelled = store.cancel(store.plain().await.id).await.expect("cancelled");
    for id in [done.id, failed.id, cancelled.id] {
        assert_eq!(codes(&store, id).await, [ReasonCode::Terminal]);
    }
}

async fn every_reason_that_holds_is_told(store: Store) {
    let run_at = Some(store.now() + Seconds::new(60));
    let task = store.create(TaskCreate { run_at, ..plain_create() }).await;
    store.run(QueueSet { queue: "q".into(), paused: true }).await.expect("paused");
    let told = codes(&store, task.id).await;
    for code in [ReasonCode::Future, ReasonCode::QueuePaused, ReasonCode::NobodyPolls] {
        assert!(told.contains(&code), "{code:?} is not among {told:?}");
    }
    assert!(!told.contains(&ReasonCode::Ready), "{told:?}");
}
