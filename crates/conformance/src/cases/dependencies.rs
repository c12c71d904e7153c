//! Dependencies: who waits for whom, and what happens when one of them ends.

use serde_json::json;
use statehold_core::command::{TaskCancel, TaskComplete, TaskCreate, TaskFail, TaskPurge, TaskRetry};
use statehold_core::model::{Task, TaskId};
use statehold_core::{ErrorKind, Json, Seconds, Status};

use crate::harness::{broken, event, plain_create, refused};
use crate::{Case, Store, cases};

pub(super) const CASES: &[Case] = cases![
    a_task_is_blocked_until_all_its_dependencies_are_completed,
    a_chain_goes_link_by_link,
    a_diamond_joins_once,
    unblocking_keeps_the_run_at,
    two_dependencies_completed_in_one_batch_unblock_once,
    completed_dependencies_do_not_block,
    a_missing_dependency_is_not_found,
    a_dependency_in_the_same_batch_blocks,
    a_later_create_of_the_batch_is_not_known_yet,
    a_dependency_completed_in_the_same_batch_is_seen,
    a_dependency_on_an_ancestor_is_invalid,
    a_dependency_on_a_sibling_is_fine,
    a_failed_dependency_fails_its_dependents,
    a_cancelled_dependency_fails_its_dependents,
    a_failure_that_is_tried_again_leaves_dependents_blocked,
    failures_cascade,
    a_task_with_a_failed_dependency_is_created_failed,
    many_dependents_are_unblocked_by_sweeps,
    many_dependents_fail_by_sweeps,
    a_long_chain_fails_and_is_revived_by_sweeps,
    a_retry_is_blocked_while_a_dependency_is_not_completed,
    a_retry_leaves_dependents_failed,
    a_retry_with_dependents_revives_those_it_failed,
    a_retry_with_dependents_leaves_other_failures_alone,
    a_retry_with_many_dependents_revives_all_by_sweeps,
    a_purged_dependency_is_not_waited_for,
    a_cancelled_dependent_stays_cancelled,
];

async fn retry(store: &Store, id: TaskId, with_dependents: bool) -> Task {
    store.run(TaskRetry { id, with_dependents }).await.expect("the task is retried")
}

/// Checks that a task failed because of one of its dependencies.
fn assert_failed_by(task: &Task, dependency: TaskId) {
    let error = task.error.as_ref().expect("an error");
    assert_eq!((task.status, error.code.as_deref()), (Status::Failed, Some("dependency")));
    let details = Json::of(&json!({"task": dependency})).expect("valid JSON");
    assert_eq!(error.details, Some(details));
    assert_eq!(task.finished_at, Some(task.updated_at));
}

/// Creates `count` tasks that depend on one.
async fn fan_out(store: &Store, id: TaskId, count: usize) -> Vec<TaskId> {
    let mut batch = store.batch();
    let handles: Vec<_> =
        (0..count).map(|_| batch.add(TaskCreate { depends_on: vec![id], ..plain_create() })).collect();
    let mut replies = store.apply(batch).await.expect("the tasks are created");
    handles.into_iter().map(|handle| replies.take(handle).expect("a reply").task.id).collect()
}

/// Sweeps until nothing is left, and answers how much left-over work was taken up.
async fn sweep_all(store: &Store) -> u32 {
    let mut chores = 0;
    for _ in 0..50 {
        let swept = store.sweep().await;
        chores += swept.chores;
        if !swept.more {
            return chores;
        }
    }
    panic!("sweeping does not come to an end")
}

async fn all(store: &Store, ids: &[TaskId]) -> Vec<Task> {
    let tasks = store.backend.task_get(&store.namespace, ids).await.expect("the tasks are read");
    tasks.into_iter().map(|task| task.expect("the task exists")).collect()
}

async fn a_task_is_blocked_until_all_its_dependencies_are_completed(store: Store) {
    let (one, two) = (store.plain().await, store.plain().await);
    let task = store.after(&[one.id, two.id]).await;
    assert_eq!((task.status, task.revision), (Status::Blocked, 1));
    let created = event("task.created", &json!({"queue": "q", "kind": "k", "status": "blocked"}));
    store.clock.advance(5);
    store.finish(two.id).await;
    assert_eq!(store.task(task.id).await, task);
    store.clock.advance(5);
    store.finish(one.id).await;
    let unblocked = store.task(task.id).await;
    assert_eq!((unblocked.status, unblocked.run_at), (Status::Pending, task.run_at));
    assert_eq!((unblocked.revision, unblocked.updated_at), (2, store.now()));
    assert_eq!(store.log(task.id).await, [created, event("task.unblocked", &json!(null))]);
    assert_eq!(store.claim("w", 10).await.tasks.len(), 1);
}

async fn a_chain_goes_link_by_link(store: Store) {
    let first = store.plain().await;
    let second = store.after(&[first.id]).await;
    let third = store.after(&[second.id]).await;
    for expected in [first.id, second.id, third.id] {
        let claimed = store.claim("w", 10).await.tasks;
        assert_eq!(claimed.iter().map(|task| task.id).collect::<Vec<_>>(), [expected]);
        let token = crate::harness::token_of(&claimed[0]);
        store.complete(expected, token).await.expect("completed");
    }
}

async fn a_diamond_joins_once(store: Store) {
    let top = store.plain().await;
    let (left, right) = (store.after(&[top.id]).await, store.after(&[top.id]).await);
    let bottom = store.after(&[left.id, right.id]).await;
    store.finish(top.id).await;
    store.finish(left.id).await;
    assert_eq!(store.status(bottom.id).await, Status::Blocked);
    store.finish(right.id).await;
    assert_eq!(store.history(bottom.id).await, ["task.created", "task.unblocked"]);
}

async fn unblocking_keeps_the_run_at(store: Store) {
    let open = store.plain().await;
    let later = store.now() + Seconds::new(60);
    let create = TaskCreate { depends_on: vec![open.id], run_at: Some(later), ..plain_create() };
    let task = store.create(create).await;
    store.finish(open.id).await;
    let unblocked = store.task(task.id).await;
    assert_eq!((unblocked.status, unblocked.run_at), (Status::Pending, later));
    assert!(store.claim("w", 1).await.tasks.is_empty());
    store.clock.advance(60);
    assert_eq!(store.claim("w", 1).await.tasks.len(), 1);
}

async fn two_dependencies_completed_in_one_batch_unblock_once(store: Store) {
    let ((one, first), (two, second)) = (store.started("w").await, store.started("w").await);
    let task = store.after(&[one.id, two.id]).await;
    let mut batch = store.batch();
    batch.add(TaskComplete { id: one.id, token: first, output: None });
    batch.add(TaskComplete { id: two.id, token: second, output: None });
    store.apply(batch).await.expect("both are completed");
    assert_eq!(store.log(task.id).await.len(), 2);
    assert_eq!(store.status(task.id).await, Status::Pending);
}

async fn completed_dependencies_do_not_block(store: Store) {
    let (one, two) = (store.plain().await, store.plain().await);
    store.finish(one.id).await;
    store.finish(two.id).await;
    let task = store.after(&[one.id, two.id]).await;
    assert_eq!((task.status, task.revision), (Status::Pending, 1));
    let open = store.plain().await;
    assert_eq!(store.after(&[one.id, open.id]).await.status, Status::Blocked);
}

async fn a_missing_dependency_is_not_found(store: Store) {
    let (open, missing) = (store.plain().await, TaskId::generate());
    let create = TaskCreate { depends_on: vec![open.id, missing], ..plain_create() };
    let error = store.refuses(open.id, create, "not_found").await;
    assert_eq!(error.key(), Some(missing.to_string().as_str()));
}

async fn a_dependency_in_the_same_batch_blocks(store: Store) {
    let id = TaskId::generate();
    let mut batch = store.batch();
    batch.add(TaskCreate { id: Some(id), ..plain_create() });
    let second = batch.add(TaskCreate { depends_on: vec![id], ..plain_create() });
    let mut replies = store.apply(batch).await.expect("both are created");
    let second = replies.take(second).expect("a reply").task;
    assert_eq!((second.status, second.revision), (Status::Blocked, 1));
    store.finish(id).await;
    assert_eq!(store.status(second.id).await, Status::Pending);
}

async fn a_later_create_of_the_batch_is_not_known_yet(store: Store) {
    let id = TaskId::generate();
    let mut batch = store.batch();
    batch.add(TaskCreate { depends_on: vec![id], ..plain_create() });
    batch.add(TaskCreate { id: Some(id), ..plain_create() });
    refused(store.apply(batch).await, "not_found");
    assert_eq!(store.find(id).await, None);
}

async fn a_dependency_completed_in_the_same_batch_is_seen(store: Store) {
    for complete_first in [true, false] {
        let (task, token) = store.started("w").await;
        let (complete, id) = (TaskComplete { id: task.id, token, output: None }, TaskId::generate());
        let create = TaskCreate { id: Some(id), depends_on: vec![task.id], ..plain_create() };
        let mut batch = store.batch();
        if complete_first {
            batch.add(complete);
            batch.add(create);
        } else {
            batch.add(create);
            batch.add(complete);
        }
        store.apply(batch).await.expect("the batch is applied");
        assert_eq!(store.status(id).await, Status::Pending, "complete first: {complete_first}");
        store.log(id).await;
    }
}

async fn a_dependency_on_an_ancestor_is_invalid(store: Store) {
    let grandparent = store.plain().await;
    let parent = store.child(grandparent.id, "p").await;
    for ancestor in [&parent, &grandparent] {
        let depends_on = vec![ancestor.id];
        let create = TaskCreate { parent: Some(parent.id), depends_on, ..plain_create() };
        let error = store.refuses(ancestor.id, create, "invalid").await;
        assert!(matches!(error.kind(), ErrorKind::Invalid { problems } if !problems.is_empty()));
    }
}

async fn a_dependency_on_a_sibling_is_fine(store: Store) {
    let parent = store.plain().await;
    let sibling = store.child(parent.id, "a").await;
    let create = TaskCreate { parent: Some(parent.id), depends_on: vec![sibling.id], ..plain_create() };
    let task = store.create(create).await;
    assert_eq!(task.status, Status::Blocked);
    store.finish(sibling.id).await;
    assert_eq!(store.status(task.id).await, Status::Pending);
}

async fn a_failed_dependency_fails_its_dependents(store: Store) {
    let (bad, open) = (store.plain().await, store.plain().await);
    let task = store.after(&[open.id, bad.id]).await;
    store.clock.advance(5);
    store.doom(bad.id).await;
    let failed = store.task(task.id).await;
    assert_failed_by(&failed, bad.id);
    assert_eq!((failed.finished_at, failed.revision, failed.failures), (Some(store.now()), 2, 0));
    let log = store.log(task.id).await;
    assert_eq!(log[1..], [event("task.failed", &json!({"error": failed.error}))]);
    store.finish(open.id).await;
    assert_eq!(store.task(task.id).await, failed);
}

async fn a_cancelled_dependency_fails_its_dependents(store: Store) {
    let bad = store.plain().await;
    let task = store.after(&[bad.id]).await;
    store.cancel(bad.id).await.expect("cancelled");
    assert_failed_by(&store.task(task.id).await, bad.id);
    let (running, _) = store.started("w").await;
    let task = store.after(&[running.id]).await;
    store.run(TaskCancel { id: running.id, force: true, children: false }).await.expect("cancelled");
    assert_failed_by(&store.task(task.id).await, running.id);
}

async fn a_failure_that_is_tried_again_leaves_dependents_blocked(store: Store) {
    let (task, token) = store.started("w").await;
    let dependent = store.after(&[task.id]).await;
    store.fail(task.id, token).await.expect("the attempt fails");
    assert_eq!(store.task(dependent.id).await, dependent);
}

async fn failures_cascade(store: Store) {
    let first = store.plain().await;
    let second = store.after(&[first.id]).await;
    let third = store.after(&[second.id]).await;
    let both = store.after(&[first.id, third.id]).await;
    store.doom(first.id).await;
    assert_failed_by(&store.task(second.id).await, first.id);
    assert_failed_by(&store.task(third.id).await, second.id);
    let both = store.task(both.id).await;
    assert_eq!((both.status, both.revision), (Status::Failed, 2));
    store.log(both.id).await;
}

async fn a_task_with_a_failed_dependency_is_created_failed(store: Store) {
    let (bad, open) = (store.doom(store.plain().await.id).await, store.plain().await);
    let task = store.after(&[open.id, bad.id]).await;
    assert_failed_by(&task, bad.id);
    assert_eq!((task.revision, task.attempt, task.finished_at), (2, 0, Some(store.now())));
    let created = event("task.created", &json!({"queue": "q", "kind": "k", "status": "failed"}));
    let failed = event("task.failed", &json!({"error": task.error}));
    assert_eq!(store.log(task.id).await, [created, failed]);
    assert_failed_by(&store.after(&[task.id]).await, task.id);
}

async fn many_dependents_are_unblocked_by_sweeps(store: Store) {
    let task = store.plain().await;
    let dependents = fan_out(&store, task.id, 300).await;
    store.finish(task.id).await;
    assert!(sweep_all(&store).await >= 1, "work was left over");
    for dependent in all(&store, &dependents).await {
        assert_eq!((dependent.status, dependent.revision), (Status::Pending, 2));
    }
    assert_eq!(store.claim("w", 400).await.tasks.len(), 300);
}

async fn many_dependents_fail_by_sweeps(store: Store) {
    let task = store.plain().await;
    let dependents = fan_out(&store, task.id, 300).await;
    let last = store.after(&dependents).await;
    store.doom(task.id).await;
    sweep_all(&store).await;
    for dependent in all(&store, &dependents).await {
        assert_failed_by(&dependent, task.id);
        assert_eq!(dependent.revision, 2);
    }
    assert_eq!(store.task(last.id).await.revision, 2);
    assert_eq!(store.status(last.id).await, Status::Failed);
}

async fn a_long_chain_fails_and_is_revived_by_sweeps(store: Store) {
    let ids: Vec<_> = (0..300).map(|_| TaskId::generate()).collect();
    let mut batch = store.batch();
    for (n, id) in ids.iter().enumerate() {
        let depends_on = ids[..n].last().copied().into_iter().collect();
        batch.add(TaskCreate { id: Some(*id), depends_on, ..plain_create() });
    }
    store.apply(batch).await.expect("the tasks are created");
    store.doom(ids[0]).await;
    sweep_all(&store).await;
    for (dependency, task) in ids.iter().zip(all(&store, &ids[1..]).await) {
        assert_failed_by(&task, *dependency);
    }
    retry(&store, ids[0], true).await;
    sweep_all(&store).await;
    for task in all(&store, &ids[1..]).await {
        assert_eq!((task.status, task.revision), (Status::Blocked, 3));
    }
}

async fn a_retry_is_blocked_while_a_dependency_is_not_completed(store: Store) {
    let bad = store.plain().await;
    let task = store.after(&[bad.id]).await;
    store.doom(bad.id).await;
    let error = store.task(task.id).await.error;
    let retried = retry(&store, task.id, false).await;
    assert_eq!((retried.status, retried.revision, &retried.error), (Status::Blocked, 3, &None));
    let retrying = event("task.retrying", &json!({"error": error, "run_at": null}));
    assert_eq!(store.log(task.id).await[2..], [retrying]);
    store.sweep().await;
    assert_eq!(store.status(task.id).await, Status::Blocked);
    retry(&store, bad.id, false).await;
    store.finish(bad.id).await;
    assert_eq!(store.status(task.id).await, Status::Pending);
}

async fn a_retry_leaves_dependents_failed(store: Store) {
    let bad = store.plain().await;
    let task = store.after(&[bad.id]).await;
    store.doom(bad.id).await;
    let failed = store.task(task.id).await;
    retry(&store, bad.id, false).await;
    store.finish(bad.id).await;
    store.sweep().await;
    assert_eq!(store.task(task.id).await, failed);
    assert_eq!(retry(&store, task.id, false).await.status, Status::Pending);
}

async fn a_retry_with_dependents_revives_those_it_failed(store: Store) {
    let first = store.plain().await;
    let second = store.after(&[first.id]).await;
    let third = store.after(&[second.id]).await;
    store.doom(first.id).await;
    let error = store.task(third.id).await.error;
    store.clock.advance(5);
    assert_eq!(retry(&store, first.id, true).await.status, Status::Pending);
    for id in [second.id, third.id] {
        let revived = store.task(id).await;
        assert_eq!((revived.status, revived.revision), (Status::Blocked, 3));
        assert_eq!((revived.error, revived.finished_at), (None, None));
        assert_eq!((revived.run_at, revived.updated_at), (store.now(), store.now()));
    }
    let retrying = event("task.retrying", &json!({"error": error, "run_at": null}));
    assert_eq!(store.log(third.id).await[2..], [retrying]);
    for id in [first.id, second.id, third.id] {
        store.finish(id).await;
    }
}

async fn a_retry_with_dependents_leaves_other_failures_alone(store: Store) {
    let (bad, other) = (store.plain().await, store.plain().await);
    let by_other = store.after(&[bad.id, other.id]).await;
    store.doom(other.id).await;
    let cancelled = store.after(&[bad.id]).await;
    store.cancel(cancelled.id).await.expect("cancelled");
    store.doom(bad.id).await;
    retry(&store, bad.id, true).await;
    assert_failed_by(&store.task(by_other.id).await, other.id);
    assert_eq!(store.status(cancelled.id).await, Status::Cancelled);
}

async fn a_retry_with_many_dependents_revives_all_by_sweeps(store: Store) {
    let task = store.plain().await;
    let dependents = fan_out(&store, task.id, 300).await;
    store.doom(task.id).await;
    sweep_all(&store).await;
    retry(&store, task.id, true).await;
    sweep_all(&store).await;
    assert!(all(&store, &dependents).await.iter().all(|task| task.status == Status::Blocked));
    store.finish(task.id).await;
    sweep_all(&store).await;
    assert!(all(&store, &dependents).await.iter().all(|task| task.status == Status::Pending));
}

async fn a_purged_dependency_is_not_waited_for(store: Store) {
    let (bad, open) = (store.plain().await, store.plain().await);
    let task = store.after(&[bad.id]).await;
    let both = store.after(&[bad.id, open.id]).await;
    store.doom(bad.id).await;
    store.run(TaskPurge { id: bad.id }).await.expect("all dependents are terminal");
    assert_eq!(retry(&store, task.id, false).await.status, Status::Pending);
    assert_eq!(retry(&store, both.id, false).await.status, Status::Blocked);
    store.finish(open.id).await;
    assert_eq!(store.status(both.id).await, Status::Pending);
    let create = TaskCreate { depends_on: vec![bad.id], ..plain_create() };
    refused(store.run(create).await, "not_found");
}

async fn a_cancelled_dependent_stays_cancelled(store: Store) {
    let (task, token) = store.started("w").await;
    let dependent = store.after(&[task.id]).await;
    let cancelled = store.cancel(dependent.id).await.expect("cancelled");
    let fail = TaskFail { id: task.id, token, error: broken(), retry: false };
    store.run(fail).await.expect("failed");
    assert_eq!(store.task(dependent.id).await, cancelled);
    assert_eq!(retry(&store, dependent.id, false).await.status, Status::Blocked);
}
