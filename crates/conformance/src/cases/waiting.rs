//! Waiting: suspending on a signal or a time, what wakes a task, and deadlines.

use serde_json::json;
use statehold_core::command::{TaskCreate, TaskSignal, TaskSuspend};
use statehold_core::model::{OnTimeout, ResumedBy, Task, TaskId, Token, WaitFor, Waiting};
use statehold_core::{Json, Seconds, Status};

use crate::harness::{event, json, plain_create};
use crate::{Case, Store, cases};

pub(super) const CASES: &[Case] = cases![
    a_suspended_task_waits_without_a_worker,
    a_signal_resumes_who_waits_for_it,
    a_signal_before_the_suspend_is_not_lost,
    a_signal_of_another_name_is_kept,
    signals_are_first_in_first_out_per_name,
    a_signal_is_consumed_once,
    a_signal_is_kept_in_every_open_status,
    signals_survive_a_lost_lease,
    a_task_keeps_a_hundred_signals,
    a_time_that_has_passed_resumes_at_once,
    a_time_to_come_resumes_when_it_comes,
    a_deadline_resumes,
    a_deadline_fails_if_asked,
    a_deadline_that_was_not_reached_does_nothing,
    what_is_waited_for_counts_before_the_deadline,
    a_signal_after_the_deadline_but_before_a_sweep_counts,
    an_expired_wait_fails_although_its_time_has_come,
    what_resumed_it_survives_lost_leases_and_failures,
    what_resumed_it_is_forgotten_by_the_next_suspend,
    what_resumed_it_is_forgotten_at_the_end,
    a_wait_is_not_a_lease,
];

fn signal(id: TaskId, name: &str, data: &str) -> TaskSignal {
    TaskSignal { id, name: name.into(), data: Some(json(data)) }
}

fn named(name: &str) -> WaitFor {
    WaitFor::Signal(name.into())
}

fn signalled(name: &str, data: Option<Json>) -> ResumedBy {
    ResumedBy::Signal { name: name.into(), data }
}

/// Suspends a running task for at most ten seconds.
async fn briefly(store: &Store, id: TaskId, token: Token, on: WaitFor, then: OnTimeout) -> Task {
    let timeout_seconds = Some(Seconds::new(10));
    let suspend = TaskSuspend { id, token, waiting_for: on, timeout_seconds, on_timeout: then };
    store.run(suspend).await.expect("the task is suspended")
}

/// Starts a task and suspends it on a signal.
async fn wait_for(store: &Store, id: TaskId, name: &str) -> Task {
    let (_, token) = store.start(id, "w").await;
    store.suspend(id, token, named(name)).await
}

async fn last_events(store: &Store, id: TaskId, count: usize) -> Vec<(String, Option<Json>)> {
    let mut log = store.log(id).await;
    log.split_off(log.len() - count)
}

async fn a_suspended_task_waits_without_a_worker(store: Store) {
    let (task, token) = store.started("w").await;
    store.clock.advance(5);
    let waiting = briefly(&store, task.id, token, named("s"), OnTimeout::Fail).await;
    let deadline = Some(store.now() + Seconds::new(10));
    let expected = Waiting { on: named("s"), deadline, on_timeout: OnTimeout::Fail };
    assert_eq!((waiting.status, waiting.waiting_for.as_ref()), (Status::Waiting, Some(&expected)));
    assert_eq!((&waiting.lease, &waiting.resumed_by, waiting.finished_at), (&None, &None, None));
    assert_eq!((waiting.attempt, waiting.failures, waiting.lease_losses), (1, 0, 0));
    assert_eq!((waiting.revision, waiting.updated_at), (3, store.now()));
    assert_eq!(store.task(task.id).await, waiting);
    let suspended = event("task.suspended", &json!({"waiting_for": expected}));
    assert_eq!(store.log(task.id).await[2..], [suspended]);
    assert!(store.claim("v", 1).await.tasks.is_empty());
}

async fn a_signal_resumes_who_waits_for_it(store: Store) {
    let task = store.plain().await;
    wait_for(&store, task.id, "s").await;
    store.clock.advance(5);
    let resumed = store.run(signal(task.id, "s", r#"{"n":1}"#)).await.expect("signalled");
    assert_eq!((resumed.status, resumed.run_at), (Status::Pending, store.now()));
    assert_eq!(resumed.resumed_by, Some(signalled("s", Some(json(r#"{"n":1}"#)))));
    assert_eq!((&resumed.waiting_for, resumed.updated_at, resumed.revision), (&None, store.now(), 5));
    let told = event("task.signalled", &json!({"name": "s"}));
    let woken = event("task.resumed", &json!({"by": "signal"}));
    assert_eq!(last_events(&store, task.id, 2).await, [told, woken]);
    let again = store.claim("v", 1).await.tasks.remove(0);
    assert_eq!((again.attempt, again.resumed_by), (2, resumed.resumed_by));
}

async fn a_signal_before_the_suspend_is_not_lost(store: Store) {
    let task = store.plain().await;
    let kept = store.run(signal(task.id, "s", "1")).await.expect("signalled");
    assert_eq!((kept.status, kept.revision, kept.resumed_by), (Status::Pending, 2, None));
    let (_, token) = store.start(task.id, "w").await;
    store.clock.advance(5);
    let resumed = store.suspend(task.id, token, named("s")).await;
    assert_eq!((resumed.status, resumed.run_at), (Status::Pending, store.now()));
    assert_eq!((&resumed.resumed_by, &resumed.waiting_for), (&Some(signalled("s", Some(json("1")))), &None));
    assert_eq!((resumed.lease.as_ref(), resumed.revision), (None, 5));
    let log = last_events(&store, task.id, 2).await;
    assert_eq!(log[0].0, "task.suspended");
    assert_eq!(log[1], event("task.resumed", &json!({"by": "signal"})));
}

async fn a_signal_of_another_name_is_kept(store: Store) {
    let task = store.plain().await;
    wait_for(&store, task.id, "s").await;
    let kept = store.signal(task.id, "other").await.expect("signalled");
    assert_eq!((kept.status, kept.revision), (Status::Waiting, 4));
    assert_eq!(store.signal(task.id, "s").await.expect("signalled").resumed_by, Some(signalled("s", None)));
    let resumed = wait_for(&store, task.id, "other").await;
    assert_eq!((resumed.status, resumed.resumed_by), (Status::Pending, Some(signalled("other", None))));
}

async fn signals_are_first_in_first_out_per_name(store: Store) {
    let task = store.plain().await;
    for (name, data) in [("a", "1"), ("b", "2"), ("a", "3"), ("b", "4"), ("a", "5")] {
        store.run(signal(task.id, name, data)).await.expect("signalled");
    }
    for (name, data) in [("a", "1"), ("a", "3"), ("b", "2"), ("a", "5"), ("b", "4")] {
        let resumed = wait_for(&store, task.id, name).await;
        assert_eq!(resumed.resumed_by, Some(signalled(name, Some(json(data)))));
    }
    assert_eq!(wait_for(&store, task.id, "a").await.status, Status::Waiting);
}

async fn a_signal_is_consumed_once(store: Store) {
    let task = store.plain().await;
    wait_for(&store, task.id, "s").await;
    store.signal(task.id, "s").await.expect("signalled");
    assert_eq!(wait_for(&store, task.id, "s").await.status, Status::Waiting);
    store.signal(task.id, "s").await.expect("signalled");
    let kept = store.signal(task.id, "s").await.expect("signalled");
    assert_eq!(kept.status, Status::Pending);
    assert_eq!(wait_for(&store, task.id, "s").await.status, Status::Pending);
    assert_eq!(wait_for(&store, task.id, "s").await.status, Status::Waiting);
}

async fn a_signal_is_kept_in_every_open_status(store: Store) {
    let open = store.plain().await;
    let blocked = store.after(&[open.id]).await;
    let parked = store.create(TaskCreate { backlog: true, ..plain_create() }).await;
    let (running, token) = store.started("w").await;
    for task in [&blocked, &parked, &running] {
        let kept = store.signal(task.id, "s").await.expect("signalled");
        assert_eq!((kept.status, kept.revision), (task.status, task.revision + 1));
        let told = event("task.signalled", &json!({"name": "s"}));
        assert_eq!(last_events(&store, task.id, 1).await, [told]);
    }
    store.finish(open.id).await;
    assert_eq!(wait_for(&store, blocked.id, "s").await.status, Status::Pending);
    assert_eq!(store.suspend(running.id, token, named("s")).await.status, Status::Pending);
}

async fn signals_survive_a_lost_lease(store: Store) {
    let (task, _) = store.started("w").await;
    store.run(signal(task.id, "s", "1")).await.expect("signalled");
    store.clock.advance(30);
    store.sweep().await;
    let resumed = wait_for(&store, task.id, "s").await;
    assert_eq!(resumed.resumed_by, Some(signalled("s", Some(json("1")))));
}

async fn a_task_keeps_a_hundred_signals(store: Store) {
    let task = store.plain().await;
    for n in 0..100 {
        store.run(signal(task.id, if n % 2 == 0 { "a" } else { "b" }, &n.to_string())).await.expect("kept");
    }
    store.refuses(task.id, signal(task.id, "a", "100"), "too_large").await;
    store.refuses(task.id, signal(task.id, "c", "100"), "too_large").await;
    let resumed = wait_for(&store, task.id, "b").await;
    assert_eq!(resumed.resumed_by, Some(signalled("b", Some(json("1")))));
    store.run(signal(task.id, "a", "100")).await.expect("there is room again");
    store.refuses(task.id, signal(task.id, "a", "101"), "too_large").await;
}

async fn a_time_that_has_passed_resumes_at_once(store: Store) {
    for age in [0, 60] {
        let (task, token) = store.started("w").await;
        let until = store.now() - Seconds::new(age);
        let resumed = store.suspend(task.id, token, WaitFor::Until(until)).await;
        assert_eq!((resumed.status, resumed.run_at), (Status::Pending, store.now()));
        assert_eq!((resumed.resumed_by, resumed.waiting_for), (Some(ResumedBy::Until(until)), None));
        let log = last_events(&store, task.id, 2).await;
        assert_eq!(log[1], event("task.resumed", &json!({"by": "until"})));
    }
}

async fn a_time_to_come_resumes_when_it_comes(store: Store) {
    let (task, token) = store.started("w").await;
    let until = store.now() + Seconds::new(3600);
    let waiting = store.suspend(task.id, token, WaitFor::Until(until)).await;
    let expected = Waiting { on: WaitFor::Until(until), deadline: None, on_timeout: OnTimeout::Resume };
    assert_eq!((waiting.status, waiting.waiting_for.as_ref()), (Status::Waiting, Some(&expected)));
    store.clock.advance(Seconds::from_micros(3_599_999_999));
    assert_eq!(store.sweep().await.timers, 0);
    assert_eq!(store.task(task.id).await, waiting);
    store.clock.advance(10);
    assert_eq!(store.sweep().await.timers, 1);
    let resumed = store.task(task.id).await;
    assert_eq!((resumed.status, resumed.run_at), (Status::Pending, store.now()));
    assert_eq!((resumed.resumed_by, resumed.waiting_for), (Some(ResumedBy::Until(until)), None));
    let woken = event("task.resumed", &json!({"by": "until"}));
    assert_eq!(last_events(&store, task.id, 1).await, [woken]);
    assert_eq!(store.claim("v", 1).await.tasks.len(), 1);
}

async fn a_deadline_resumes(store: Store) {
    let (task, token) = store.started("w").await;
    briefly(&store, task.id, token, named("s"), OnTimeout::Resume).await;
    store.clock.advance(10);
    assert_eq!(store.sweep().await.timers, 1);
    let resumed = store.task(task.id).await;
    assert_eq!((resumed.status, resumed.run_at), (Status::Pending, store.now()));
    assert_eq!((resumed.resumed_by, resumed.waiting_for), (Some(ResumedBy::Timeout), None));
    assert_eq!((resumed.failures, resumed.error), (0, None));
    let woken = event("task.resumed", &json!({"by": "timeout"}));
    assert_eq!(last_events(&store, task.id, 1).await, [woken]);
}

async fn a_deadline_fails_if_asked(store: Store) {
    let (task, token) = store.started("w").await;
    briefly(&store, task.id, token, named("s"), OnTimeout::Fail).await;
    store.clock.advance(10);
    store.sweep().await;
    let failed = store.task(task.id).await;
    assert_eq!((failed.status, failed.finished_at), (Status::Failed, Some(store.now())));
    assert_eq!((&failed.waiting_for, &failed.resumed_by, failed.failures), (&None, &None, 0));
    let error = failed.error.expect("an error");
    assert_eq!(error.code.as_deref(), Some("wait_timeout"));
    let ended = event("task.failed", &json!({"error": error}));
    assert_eq!(last_events(&store, task.id, 1).await, [ended]);
}

async fn a_deadline_that_was_not_reached_does_nothing(store: Store) {
    let (task, token) = store.started("w").await;
    briefly(&store, task.id, token, named("s"), OnTimeout::Fail).await;
    let resumed = store.signal(task.id, "s").await.expect("signalled");
    store.clock.advance(60);
    store.sweep().await;
    assert_eq!(store.task(task.id).await, resumed);
}

async fn what_is_waited_for_counts_before_the_deadline(store: Store) {
    for then in [OnTimeout::Resume, OnTimeout::Fail] {
        let (task, token) = store.started("w").await;
        let until = store.now() + Seconds::new(10);
        briefly(&store, task.id, token, WaitFor::Until(until), then).await;
        store.clock.advance(10);
        store.sweep().await;
        let resumed = store.task(task.id).await;
        assert_eq!((resumed.status, resumed.resumed_by), (Status::Pending, Some(ResumedBy::Until(until))));
    }
}

async fn a_signal_after_the_deadline_but_before_a_sweep_counts(store: Store) {
    let (task, token) = store.started("w").await;
    briefly(&store, task.id, token, named("s"), OnTimeout::Fail).await;
    store.clock.advance(11);
    let resumed = store.signal(task.id, "s").await.expect("signalled");
    assert_eq!((resumed.status, &resumed.resumed_by), (Status::Pending, &Some(signalled("s", None))));
    store.sweep().await;
    assert_eq!(store.task(task.id).await, resumed);
}

async fn an_expired_wait_fails_although_its_time_has_come(store: Store) {
    let end = Some(store.now() + Seconds::new(20));
    let task = store.create(TaskCreate { expires_at: end, ..plain_create() }).await;
    let (_, token) = store.start(task.id, "w").await;
    let until = store.now() + Seconds::new(10);
    store.suspend(task.id, token, WaitFor::Until(until)).await;
    store.clock.advance(20);
    store.sweep().await;
    let failed = store.task(task.id).await;
    assert_eq!(failed.status, Status::Failed);
    assert_eq!(failed.error.and_then(|error| error.code).as_deref(), Some("expired"));
}

async fn what_resumed_it_survives_lost_leases_and_failures(store: Store) {
    let task = store.plain().await;
    wait_for(&store, task.id, "s").await;
    let by = store.run(signal(task.id, "s", "1")).await.expect("signalled").resumed_by;
    store.start(task.id, "w").await;
    store.clock.advance(30);
    store.sweep().await;
    let (running, token) = store.start(task.id, "w").await;
    assert_eq!((running.attempt, running.resumed_by), (3, by.clone()));
    store.fail(task.id, token).await.expect("the attempt fails");
    store.clock.advance(100);
    assert_eq!(store.claim("w", 1).await.tasks[0].resumed_by, by);
}

async fn what_resumed_it_is_forgotten_by_the_next_suspend(store: Store) {
    let task = store.plain().await;
    wait_for(&store, task.id, "s").await;
    store.signal(task.id, "s").await.expect("signalled");
    let waiting = wait_for(&store, task.id, "t").await;
    assert_eq!((waiting.status, waiting.resumed_by), (Status::Waiting, None));
}

async fn what_resumed_it_is_forgotten_at_the_end(store: Store) {
    for end in ["complete", "fail", "cancel"] {
        let task = store.plain().await;
        wait_for(&store, task.id, "s").await;
        assert!(store.signal(task.id, "s").await.expect("signalled").resumed_by.is_some());
        let ended = match end {
            "complete" => store.finish(task.id).await,
            "fail" => store.doom(task.id).await,
            _ => store.cancel(task.id).await.expect("cancelled"),
        };
        assert_eq!((ended.resumed_by, ended.status.is_terminal()), (None, true), "{end}");
    }
}

async fn a_wait_is_not_a_lease(store: Store) {
    let create = TaskCreate { timeout_seconds: Some(20.into()), ..plain_create() };
    let task = store.create(create).await;
    let waiting = wait_for(&store, task.id, "s").await;
    store.clock.advance(1_000_000);
    let swept = store.sweep().await;
    assert_eq!((swept.leases, swept.timers), (0, 0));
    assert_eq!(store.task(task.id).await, waiting);
}
