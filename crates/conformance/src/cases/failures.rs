//! Attempts that do not succeed: failures, timeouts, lost leases, expiry, and the explicit retry.

use serde_json::json;
use statehold_core::command::{TaskCreate, TaskFail, TaskRenew, TaskRetry, TaskStart};
use statehold_core::model::{Backoff, Task, TaskError, TaskId, WaitFor};
use statehold_core::{Seconds, Status};

use crate::harness::{broken, event, json, plain_create, token_of};
use crate::{Case, Store, cases};

pub(super) const CASES: &[Case] = cases![
    a_failure_is_tried_again_after_its_backoff,
    backoff_grows_with_every_failure,
    backoff_is_the_tasks_own,
    a_task_fails_for_good_at_max_attempts,
    a_failure_that_is_not_worth_a_retry_is_for_good,
    an_error_is_kept_as_given,
    a_timeout_counts_as_a_failure,
    timeouts_fail_for_good_at_max_attempts,
    a_timeout_counts_from_the_start_however_often_renewed,
    a_timeout_counts_instead_of_a_lost_lease,
    the_first_lost_lease_is_claimable_at_once,
    later_lost_leases_back_off,
    a_task_fails_at_max_lease_losses,
    lost_leases_keep_the_last_error,
    failures_and_lost_leases_are_counted_apart,
    a_task_past_its_expiry_fails,
    a_running_task_does_not_expire,
    a_task_that_would_be_tried_again_expires,
    a_retry_begins_anew,
    a_retry_runs_now,
    a_retry_removes_an_expiry_that_has_passed,
    a_retry_of_a_cancelled_task_forgets_the_request,
    counts_begin_at_zero_after_a_retry,
];

fn code(task: &Task) -> Option<&str> {
    task.error.as_ref().and_then(|error| error.code.as_deref())
}

/// Starts a task and lets its lease of 30 seconds run out.
async fn lose(store: &Store, id: TaskId) -> Task {
    store.start(id, "w").await;
    store.clock.advance(30);
    assert_eq!(store.sweep().await.leases, 1);
    store.task(id).await
}

async fn retry(store: &Store, id: TaskId) -> Task {
    store.run(TaskRetry { id, with_dependents: false }).await.expect("the task is retried")
}

async fn a_failure_is_tried_again_after_its_backoff(store: Store) {
    let (task, token) = store.started("w").await;
    store.clock.advance(5);
    let failed = store.fail(task.id, token).await.expect("the attempt fails");
    let at = store.now() + Backoff::default().delay(1, task.id, 1);
    assert_eq!((failed.status, failed.run_at), (Status::Pending, at));
    assert_eq!((failed.attempt, failed.failures, failed.lease_losses), (1, 1, 0));
    assert_eq!((&failed.error, &failed.lease, failed.finished_at), (&Some(broken()), &None, None));
    assert_eq!((failed.revision, failed.updated_at), (3, store.now()));
    assert_eq!(store.task(task.id).await, failed);
    let retrying = event("task.retrying", &json!({"error": broken(), "run_at": at}));
    assert_eq!(store.log(task.id).await[2..], [retrying]);
    let claimed = store.claim("v", 1).await;
    assert_eq!((claimed.tasks.len(), claimed.next_at), (0, Some(at)));
    store.clock.advance(at.since(store.now()));
    assert_eq!(store.claim("v", 1).await.tasks.len(), 1);
}

async fn backoff_grows_with_every_failure(store: Store) {
    let task = store.create(TaskCreate { max_attempts: Some(20), ..plain_create() }).await;
    for n in 1..=9 {
        let (_, token) = store.start(task.id, "w").await;
        let failed = store.fail(task.id, token).await.expect("the attempt fails");
        let wait = failed.run_at.since(store.now());
        assert_eq!(wait, Backoff::default().delay(n, task.id, n));
        let plain = (1_000_000 << (n - 1)).min(100_000_000);
        assert!((plain * 9 / 10..=plain * 11 / 10).contains(&wait.as_micros()), "{wait} after {n}");
        store.clock.advance(wait);
    }
}

async fn backoff_is_the_tasks_own(store: Store) {
    let backoff = Backoff { initial_seconds: 10.into(), factor: 5, max_seconds: 60.into() };
    let task = store.create(TaskCreate { backoff: Some(backoff), ..plain_create() }).await;
    for (n, plain) in [(1, 10_000_000), (2, 50_000_000)] {
        let (_, token) = store.start(task.id, "w").await;
        let failed = store.fail(task.id, token).await.expect("the attempt fails");
        let wait = failed.run_at.since(store.now());
        assert_eq!(wait, backoff.delay(n, task.id, n));
        assert!((plain * 9 / 10..=plain * 11 / 10).contains(&wait.as_micros()), "{wait} after {n}");
        store.clock.advance(wait);
    }
}

async fn a_task_fails_for_good_at_max_attempts(store: Store) {
    let task = store.plain().await;
    for n in 1..=3 {
        let (_, token) = store.start(task.id, "w").await;
        let failed = store.fail(task.id, token).await.expect("the attempt fails");
        assert_eq!((failed.attempt, failed.failures), (n, n));
        assert_eq!(failed.status, if n < 3 { Status::Pending } else { Status::Failed });
        store.clock.advance(100);
    }
    let failed = store.task(task.id).await;
    assert_eq!((failed.finished_at, &failed.lease), (Some(failed.updated_at), &None));
    let last = store.log(task.id).await.pop();
    assert_eq!(last, Some(event("task.failed", &json!({"error": broken()}))));
    store.sweep().await;
    assert!(store.claim("w", 1).await.tasks.is_empty());
}

async fn a_failure_that_is_not_worth_a_retry_is_for_good(store: Store) {
    let failed = store.doom(store.plain().await.id).await;
    assert_eq!((failed.status, failed.failures, failed.attempt), (Status::Failed, 1, 1));
    assert_eq!((failed.finished_at, &failed.error), (Some(store.now()), &Some(broken())));
    let log = store.log(failed.id).await;
    assert_eq!(log[2..], [event("task.failed", &json!({"error": broken()}))]);
}

async fn an_error_is_kept_as_given(store: Store) {
    let details = Some(json(r#"{"status":503,"big":12345678901234567890}"#));
    let given = [
        TaskError { message: "no code".into(), code: None, details },
        TaskError { message: String::new(), code: Some("c".into()), details: None },
    ];
    for error in given {
        let (task, token) = store.started("w").await;
        let fail = TaskFail { id: task.id, token, error: error.clone(), retry: true };
        store.run(fail).await.expect("the attempt fails");
        assert_eq!(store.task(task.id).await.error, Some(error));
    }
}

async fn a_timeout_counts_as_a_failure(store: Store) {
    let task = store.create(TaskCreate { timeout_seconds: Some(10.into()), ..plain_create() }).await;
    store.start(task.id, "w").await;
    store.clock.advance(10);
    let swept = store.sweep().await;
    assert_eq!((swept.timers, swept.leases), (1, 0));
    let after = store.task(task.id).await;
    let at = store.now() + Backoff::default().delay(1, task.id, 1);
    assert_eq!((after.status, after.run_at, code(&after)), (Status::Pending, at, Some("timeout")));
    assert_eq!((after.attempt, after.failures, after.lease_losses), (1, 1, 0));
    assert_eq!((&after.lease, after.updated_at), (&None, store.now()));
    let retrying = event("task.retrying", &json!({"error": after.error, "run_at": at}));
    assert_eq!(store.log(task.id).await[2..], [retrying]);
}

async fn timeouts_fail_for_good_at_max_attempts(store: Store) {
    let (timeout_seconds, max_attempts) = (Some(10.into()), Some(2));
    let task = store.create(TaskCreate { timeout_seconds, max_attempts, ..plain_create() }).await;
    for _ in 0..2 {
        store.start(task.id, "w").await;
        store.clock.advance(10);
        store.sweep().await;
        store.clock.advance(100);
    }
    let failed = store.task(task.id).await;
    assert_eq!((failed.status, failed.failures, code(&failed)), (Status::Failed, 2, Some("timeout")));
    let last = store.log(task.id).await.pop();
    assert_eq!(last, Some(event("task.failed", &json!({"error": failed.error}))));
}

async fn a_timeout_counts_from_the_start_however_often_renewed(store: Store) {
    let task = store.create(TaskCreate { timeout_seconds: Some(50.into()), ..plain_create() }).await;
    let (_, token) = store.start(task.id, "w").await;
    for _ in 0..2 {
        store.clock.advance(20);
        let renew = TaskRenew { id: task.id, token, lease_seconds: Some(1000.into()), progress: None };
        store.run(renew).await.expect("the lease is renewed");
    }
    store.clock.advance(Seconds::from_micros(9_999_999));
    store.sweep().await;
    assert_eq!(store.status(task.id).await, Status::Running);
    store.clock.advance(Seconds::from_micros(1));
    store.sweep().await;
    assert_eq!(store.task(task.id).await.failures, 1);
}

async fn a_timeout_counts_instead_of_a_lost_lease(store: Store) {
    let task = store.create(TaskCreate { timeout_seconds: Some(50.into()), ..plain_create() }).await;
    store.start(task.id, "w").await;
    store.clock.advance(60);
    store.sweep().await;
    let after = store.task(task.id).await;
    assert_eq!((after.failures, after.lease_losses, code(&after)), (1, 0, Some("timeout")));
    store.clock.advance(100);
    let lost = lose(&store, task.id).await;
    assert_eq!((lost.failures, lost.lease_losses), (1, 1));
}

async fn the_first_lost_lease_is_claimable_at_once(store: Store) {
    let task = store.plain().await;
    let lost = lose(&store, task.id).await;
    assert_eq!((lost.status, lost.run_at), (Status::Pending, store.now()));
    assert_eq!((lost.attempt, lost.failures, lost.lease_losses), (1, 0, 1));
    assert_eq!((&lost.error, &lost.lease, lost.updated_at), (&None, &None, store.now()));
    assert_eq!(store.log(task.id).await[2..], [event("task.lease_lost", &json!({"owner": "w"}))]);
    assert_eq!(store.claim("v", 1).await.tasks.len(), 1);
}

async fn later_lost_leases_back_off(store: Store) {
    let task = store.plain().await;
    lose(&store, task.id).await;
    for n in 2..=4 {
        let lost = lose(&store, task.id).await;
        let wait = Backoff::default().delay(n - 1, task.id, n);
        assert_eq!((lost.lease_losses, lost.run_at), (n, store.now() + wait));
        assert_eq!((lost.status, &lost.error), (Status::Pending, &None));
        store.clock.advance(wait);
    }
}

async fn a_task_fails_at_max_lease_losses(store: Store) {
    let task = store.create(TaskCreate { max_lease_losses: Some(2), ..plain_create() }).await;
    assert_eq!(lose(&store, task.id).await.status, Status::Pending);
    let failed = lose(&store, task.id).await;
    assert_eq!((failed.status, failed.lease_losses, failed.failures), (Status::Failed, 2, 0));
    assert_eq!((code(&failed), failed.finished_at), (Some("lease_lost"), Some(store.now())));
    let lost = event("task.lease_lost", &json!({"owner": "w"}));
    let ended = event("task.failed", &json!({"error": failed.error}));
    assert_eq!(store.log(task.id).await[4..], [lost, ended]);
}

async fn lost_leases_keep_the_last_error(store: Store) {
    let (task, token) = store.started("w").await;
    store.fail(task.id, token).await.expect("the attempt fails");
    store.clock.advance(100);
    let lost = lose(&store, task.id).await;
    assert_eq!((lost.status, lost.error), (Status::Pending, Some(broken())));
}

async fn failures_and_lost_leases_are_counted_apart(store: Store) {
    let task = store.plain().await;
    for n in 1..=2 {
        lose(&store, task.id).await;
        store.clock.advance(100);
        let (_, token) = store.start(task.id, "w").await;
        let failed = store.fail(task.id, token).await.expect("the attempt fails");
        assert_eq!((failed.failures, failed.lease_losses, failed.attempt), (n, n, 2 * n));
        assert_eq!(failed.run_at, store.now() + Backoff::default().delay(n, task.id, 2 * n));
        store.clock.advance(100);
    }
    assert_eq!(store.status(task.id).await, Status::Pending);
}

async fn a_task_past_its_expiry_fails(store: Store) {
    let end = Some(store.now() + Seconds::new(10));
    let expiring = || TaskCreate { expires_at: end, ..plain_create() };
    let pending = store.create(expiring()).await;
    let open = store.plain().await;
    let blocked = store.create(TaskCreate { depends_on: vec![open.id], ..expiring() }).await;
    let waiting = store.create(expiring()).await;
    let (_, token) = store.start(waiting.id, "w").await;
    store.suspend(waiting.id, token, WaitFor::Signal("s".into())).await;
    store.clock.advance(Seconds::from_micros(9_999_999));
    assert_eq!(store.sweep().await.timers, 0);
    store.clock.advance(Seconds::from_micros(1));
    assert_eq!(store.sweep().await.timers, 3);
    for id in [pending.id, blocked.id, waiting.id] {
        let failed = store.task(id).await;
        assert_eq!((failed.status, code(&failed)), (Status::Failed, Some("expired")));
        assert_eq!((failed.finished_at, &failed.waiting_for), (end, &None));
        let last = store.log(id).await.pop();
        assert_eq!(last, Some(event("task.failed", &json!({"error": failed.error}))));
    }
}

async fn a_running_task_does_not_expire(store: Store) {
    let end = Some(store.now() + Seconds::new(10));
    let task = store.create(TaskCreate { expires_at: end, ..plain_create() }).await;
    let start = TaskStart { id: task.id, owner: "w".into(), lease_seconds: Some(100.into()) };
    let running = store.run(start).await.expect("the task starts");
    store.clock.advance(20);
    store.sweep().await;
    assert_eq!(store.task(task.id).await, running);
    store.complete(task.id, token_of(&running)).await.expect("still leased");
}

async fn a_task_that_would_be_tried_again_expires(store: Store) {
    let end = Some(store.now() + Seconds::new(10));
    let task = store.create(TaskCreate { expires_at: end, ..plain_create() }).await;
    lose(&store, task.id).await;
    store.sweep().await;
    let failed = store.task(task.id).await;
    assert_eq!((failed.status, code(&failed)), (Status::Failed, Some("expired")));
}

async fn a_retry_begins_anew(store: Store) {
    let (task, token) = store.started("w").await;
    let renew = TaskRenew { id: task.id, token, lease_seconds: None, progress: Some(json("1")) };
    store.run(renew).await.expect("the lease is renewed");
    let fail = TaskFail { id: task.id, token, error: broken(), retry: false };
    let failed = store.run(fail).await.expect("the task fails");
    store.clock.advance(100);
    let retried = retry(&store, task.id).await;
    let mut expected = failed.clone();
    (expected.status, expected.failures, expected.lease_losses) = (Status::Pending, 0, 0);
    (expected.error, expected.output, expected.progress, expected.finished_at) = (None, None, None, None);
    (expected.run_at, expected.updated_at, expected.revision) = (store.now(), store.now(), 4);
    assert_eq!(retried, expected);
    assert_eq!((retried.attempt, retried.started_at), (1, task.started_at));
    assert_eq!(store.task(task.id).await, expected);
    let retrying = event("task.retrying", &json!({"error": broken(), "run_at": store.now()}));
    assert_eq!(store.log(task.id).await[3..], [retrying]);
}

async fn a_retry_runs_now(store: Store) {
    let later = store.now() + Seconds::new(500);
    let task = store.create(TaskCreate { run_at: Some(later), ..plain_create() }).await;
    store.cancel(task.id).await.expect("the task is cancelled");
    assert_eq!(retry(&store, task.id).await.run_at, store.now());
    let claimed = store.claim("w", 1).await.tasks.remove(0);
    assert_eq!((claimed.id, claimed.attempt), (task.id, 1));
}

async fn a_retry_removes_an_expiry_that_has_passed(store: Store) {
    let end = Some(store.now() + Seconds::new(10));
    let expiring = || TaskCreate { expires_at: end, ..plain_create() };
    let early = store.doom(store.create(expiring()).await.id).await;
    let late = store.create(expiring()).await;
    assert_eq!(retry(&store, early.id).await.expires_at, end);
    store.finish(early.id).await;
    store.clock.advance(10);
    store.sweep().await;
    let retried = retry(&store, late.id).await;
    assert_eq!((retried.status, retried.expires_at), (Status::Pending, None));
    store.sweep().await;
    assert_eq!(store.claim("w", 1).await.tasks.len(), 1);
}

async fn a_retry_of_a_cancelled_task_forgets_the_request(store: Store) {
    let (task, token) = store.started("w").await;
    store.cancel(task.id).await.expect("asked to stop");
    let cancelled = store.fail(task.id, token).await.expect("the attempt fails");
    assert_eq!((cancelled.status, cancelled.cancel_requested), (Status::Cancelled, true));
    let retried = retry(&store, task.id).await;
    assert_eq!((retried.status, retried.cancel_requested), (Status::Pending, false));
    let (_, token) = store.start(task.id, "w").await;
    assert_eq!(store.fail(task.id, token).await.expect("fails").status, Status::Pending);
}

async fn counts_begin_at_zero_after_a_retry(store: Store) {
    let create = TaskCreate { max_attempts: Some(2), max_lease_losses: Some(2), ..plain_create() };
    let task = store.create(create).await;
    let (_, token) = store.start(task.id, "w").await;
    store.fail(task.id, token).await.expect("the attempt fails");
    store.clock.advance(100);
    lose(&store, task.id).await;
    assert_eq!(store.doom(task.id).await.failures, 2);
    retry(&store, task.id).await;
    let lost = lose(&store, task.id).await;
    assert_eq!((lost.status, lost.lease_losses, lost.run_at), (Status::Pending, 1, store.now()));
    let (_, token) = store.start(task.id, "w").await;
    let failed = store.fail(task.id, token).await.expect("the attempt fails");
    assert_eq!((failed.status, failed.failures, failed.attempt), (Status::Pending, 1, 5));
}
