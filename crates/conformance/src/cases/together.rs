//! Commands of one batch that meet in the same tasks: whatever their order, each thing happens once.

use statehold_core::batch::{Batch, Replies};
use statehold_core::call::Claim;
use statehold_core::command::{
    Command, QueueSet, TaskAmend, TaskCancel, TaskComplete, TaskCreate, TaskFail, TaskPark, TaskPurge,
    TaskRetry, TaskStart, TaskSuspend,
};
use statehold_core::error::Place;
use statehold_core::model::{Children, OnTimeout, ResumedBy, Task, TaskId, Token, WaitFor};
use statehold_core::{Result, Status};

use crate::harness::{broken, plain_create, refused};
use crate::{Case, Store, cases};

pub(super) const CASES: &[Case] = cases![
    a_key_is_not_freed_for_its_own_batch,
    two_failed_dependencies_fail_a_dependent_once,
    a_dependent_settled_with_its_dependency_stays_so,
    a_child_completed_with_the_suspend_is_not_waited_for,
    a_child_completed_with_a_forced_cancel_ends_once,
    a_child_created_with_the_cancel_of_its_family_is_cancelled,
    a_task_retried_while_its_dependency_is_purged_is_not_stuck,
    a_task_created_while_its_dependency_is_purged_is_not_stuck,
    a_chain_is_retried_together,
    a_queue_paused_while_a_key_is_freed_is_not_next,
    a_family_that_ends_together_resumes_every_parent_once,
];

/// A batch of two commands, in the order asked for.
fn pair(store: &Store, one: impl Into<Command>, two: impl Into<Command>, swap: bool) -> Batch {
    let mut batch = store.batch();
    batch.commands = vec![one.into(), two.into()];
    if swap {
        batch.commands.reverse();
    }
    batch
}

fn complete(id: TaskId, token: Token) -> TaskComplete {
    TaskComplete { id, token, output: None }
}

fn retry(id: TaskId) -> TaskRetry {
    TaskRetry { id, with_dependents: false }
}

fn wait_for_children(id: TaskId, token: Token) -> TaskSuspend {
    let (waiting_for, on_timeout) = (WaitFor::Children(Children::All), OnTimeout::Resume);
    TaskSuspend { id, token, waiting_for, timeout_seconds: None, on_timeout }
}

async fn kinds(store: &Store, id: TaskId) -> Vec<String> {
    store.log(id).await.into_iter().map(|(kind, _)| kind).collect()
}

async fn a_key_is_not_freed_for_its_own_batch(store: Store) {
    let keyed = || TaskCreate { exclusive_key: Some("e".into()), ..plain_create() };
    let (holder, next) = (store.create(keyed()).await, store.create(keyed()).await);
    let (running, token) = store.start(holder.id, "w").await;
    let start = TaskStart { id: next.id, owner: "w".into(), lease_seconds: None };
    let error = refused(store.apply(pair(&store, complete(holder.id, token), start, false)).await, "held");
    assert_eq!(error.place(), Some(Place::Command(1)));
    assert_eq!((store.task(holder.id).await, store.task(next.id).await), (running, next));
}

async fn two_failed_dependencies_fail_a_dependent_once(store: Store) {
    let (one, two) = (store.plain().await, store.plain().await);
    let dependent = store.after(&[one.id, two.id]).await;
    let cancel = |id| TaskCancel { id, force: false, children: false };
    store.apply(pair(&store, cancel(one.id), cancel(two.id), false)).await.expect("both are cancelled");
    assert_eq!(kinds(&store, dependent.id).await, ["task.created", "task.failed"]);
}

async fn a_dependent_settled_with_its_dependency_stays_so(store: Store) {
    for settle_first in [false, true] {
        let (task, token) = store.started("w").await;
        let mut dependents = Vec::new();
        for _ in 0..3 {
            dependents.push(store.after(&[task.id]).await.id);
        }
        let mut settle: Vec<Command> = vec![
            TaskCancel { id: dependents[0], force: false, children: false }.into(),
            TaskPark { id: dependents[1], rank: None }.into(),
            TaskAmend { id: dependents[2], priority: Some(1), ..TaskAmend::default() }.into(),
        ];
        let fail = TaskFail { id: task.id, token, error: broken(), retry: false }.into();
        settle.insert(if settle_first { 3 } else { 0 }, fail);
        let mut batch = store.batch();
        batch.commands = settle;
        store.apply(batch).await.expect("the batch is applied");
        assert_eq!(kinds(&store, dependents[0]).await, ["task.created", "task.cancelled"]);
        assert_eq!(kinds(&store, dependents[1]).await, ["task.created", "task.parked"]);
        assert_eq!(kinds(&store, dependents[2]).await, ["task.created", "task.amended", "task.failed"]);
    }
}

async fn a_child_completed_with_the_suspend_is_not_waited_for(store: Store) {
    for swap in [false, true] {
        let (parent, token) = store.started("w").await;
        let child = store.child(parent.id, "c").await;
        let (_, child_token) = store.start(child.id, "w").await;
        let end = complete(child.id, child_token);
        let batch = pair(&store, end, wait_for_children(parent.id, token), swap);
        store.apply(batch).await.expect("the batch is applied");
        let resumed = store.task(parent.id).await;
        assert_eq!((resumed.status, &resumed.waiting_for), (Status::Pending, &None), "swapped: {swap}");
        assert_eq!(resumed.resumed_by, Some(ResumedBy::Children(Children::All)));
        assert_eq!(kinds(&store, parent.id).await[2..], ["task.suspended", "task.resumed"]);
    }
}

async fn a_child_completed_with_a_forced_cancel_ends_once(store: Store) {
    for swap in [false, true] {
        let parent = store.plain().await;
        let child = store.child(parent.id, "c").await;
        let (_, token) = store.start(child.id, "w").await;
        let cancel = TaskCancel { id: parent.id, force: true, children: true };
        let batch = pair(&store, complete(child.id, token), cancel, swap);
        store.apply(batch).await.expect("the batch is applied");
        assert_eq!(store.status(parent.id).await, Status::Cancelled);
        assert_eq!(kinds(&store, child.id).await[2..], ["task.completed"], "swapped: {swap}");
    }
}

async fn a_child_created_with_the_cancel_of_its_family_is_cancelled(store: Store) {
    let (parent, id) = (store.plain().await, TaskId::generate());
    let create = TaskCreate { id: Some(id), parent: Some(parent.id), ..plain_create() };
    let cancel = TaskCancel { id: parent.id, force: false, children: true };
    store.apply(pair(&store, create, cancel, false)).await.expect("the batch is applied");
    assert_eq!(kinds(&store, id).await, ["task.created", "task.cancelled"]);
}

/// Checks that a batch was refused as a conflict, or left a task that can go on.
async fn assert_not_stuck(store: &Store, result: Result<Replies>, id: TaskId, swap: bool) {
    match result {
        Ok(_) => {
            store.sweep().await;
            assert_eq!(store.status(id).await, Status::Pending, "swapped: {swap}");
        }
        Err(error) => assert_eq!(error.code(), "conflict", "{error}"),
    }
}

async fn a_task_retried_while_its_dependency_is_purged_is_not_stuck(store: Store) {
    for swap in [false, true] {
        let bad = store.plain().await;
        let task = store.after(&[bad.id]).await;
        store.doom(bad.id).await;
        let batch = pair(&store, TaskPurge { id: bad.id }, retry(task.id), swap);
        let result = store.apply(batch).await;
        assert_not_stuck(&store, result, task.id, swap).await;
    }
}

async fn a_task_created_while_its_dependency_is_purged_is_not_stuck(store: Store) {
    for swap in [false, true] {
        let (done, id) = (store.finish(store.plain().await.id).await, TaskId::generate());
        let create = TaskCreate { id: Some(id), depends_on: vec![done.id], ..plain_create() };
        let batch = pair(&store, TaskPurge { id: done.id }, create, swap);
        let result = store.apply(batch).await;
        if result.is_ok() || store.find(id).await.is_some() {
            assert_not_stuck(&store, result, id, swap).await;
        }
    }
}

async fn a_chain_is_retried_together(store: Store) {
    for swap in [false, true] {
        let first = store.plain().await;
        let second = store.after(&[first.id]).await;
        store.doom(first.id).await;
        store.apply(pair(&store, retry(first.id), retry(second.id), swap)).await.expect("both are retried");
        assert_eq!(store.status(second.id).await, Status::Blocked, "swapped: {swap}");
        store.finish(first.id).await;
        assert_eq!(store.status(second.id).await, Status::Pending, "swapped: {swap}");
    }
}

async fn a_queue_paused_while_a_key_is_freed_is_not_next(store: Store) {
    for (swap, key) in [(false, "e"), (true, "f")] {
        let in_queue = |queue: &str| TaskCreate {
            queue: Some(format!("{queue}-{key}")),
            exclusive_key: Some(key.into()),
            ..plain_create()
        };
        let holder = store.create(in_queue("open")).await;
        let (_, token) = store.start(holder.id, "w").await;
        let (paused, open) = (store.create(in_queue("paused")).await, store.create(in_queue("open")).await);
        let pause = QueueSet { queue: paused.queue.clone(), paused: true };
        let batch = pair(&store, complete(holder.id, token), pause, swap);
        store.apply(batch).await.expect("the batch is applied");
        let claim = Claim::new(&store.namespace, &open.queue, "w");
        let given = store.backend.claim(claim).await.expect("the claim is answered").tasks;
        assert_eq!(given.iter().map(|task| task.id).collect::<Vec<_>>(), [open.id], "swapped: {swap}");
    }
}

async fn a_family_that_ends_together_resumes_every_parent_once(store: Store) {
    let mut waiting: Vec<Task> = Vec::new();
    let mut batch = store.batch();
    for _ in 0..2 {
        let (parent, token) = store.started("w").await;
        for key in ["a", "b"] {
            let child = store.child(parent.id, key).await;
            let (_, token) = store.start(child.id, "w").await;
            batch.add(complete(child.id, token));
        }
        waiting.push(store.run(wait_for_children(parent.id, token)).await.expect("suspended"));
    }
    store.apply(batch).await.expect("all children are completed");
    for parent in waiting {
        assert_eq!(store.status(parent.id).await, Status::Pending);
        assert_eq!(kinds(&store, parent.id).await[2..], ["task.suspended", "task.resumed"]);
    }
}
