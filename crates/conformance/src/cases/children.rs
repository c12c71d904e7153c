//! Children: dispatched once under their key, and awaited by their parent.

use serde_json::json;
use statehold_core::batch::Fence;
use statehold_core::command::{
    OnDuplicate, TaskCreate, TaskEvict, TaskPark, TaskPurge, TaskRetry, TaskSuspend,
};
use statehold_core::error::Place;
use statehold_core::model::{Children, OnTimeout, ResumedBy, Task, TaskId, Token, WaitFor};
use statehold_core::query::TaskList;
use statehold_core::{Seconds, Status};

use crate::harness::{event, plain_create, refused};
use crate::{Case, Store, cases};

pub(super) const CASES: &[Case] = cases![
    a_child_belongs_to_its_parents_family,
    a_child_leaves_its_parents_revision_alone,
    a_child_key_dispatches_once,
    a_child_key_with_another_request_is_a_conflict,
    a_child_key_is_its_parents,
    children_without_a_key_are_all_new,
    a_coordinator_that_lost_its_lease_dispatches_nothing,
    a_new_coordinator_that_repeats_itself_dispatches_nothing_twice,
    a_missing_parent_is_not_found,
    a_terminal_parent_is_a_conflict,
    a_known_child_is_answered_under_a_terminal_parent,
    a_parent_in_the_same_batch_is_known,
    a_family_has_at_most_64_levels_above_a_task,
    a_parent_waits_for_its_last_child,
    a_child_that_ends_in_any_way_counts,
    a_parent_without_open_children_goes_on_at_once,
    a_child_created_with_the_suspend_is_waited_for,
    a_child_created_while_the_parent_waits_is_waited_for,
    a_child_that_is_retried_is_waited_for_again,
    parked_and_blocked_children_are_waited_for,
    grandchildren_are_not_waited_for,
    children_that_end_together_resume_the_parent_once,
    a_parent_is_resumed_by_a_child_failed_by_its_dependency,
    a_parent_waits_for_children_that_sweeps_end,
    a_parents_deadline_does_not_wait_for_children,
    a_purged_child_is_not_waited_for,
    a_child_outlives_its_purged_parent,
];

const ALL: WaitFor = WaitFor::Children(Children::All);

fn child_of(parent: TaskId, key: &str) -> TaskCreate {
    TaskCreate { parent: Some(parent), child_key: Some(key.into()), ..plain_create() }
}

/// Suspends a running parent until its children are done.
async fn wait(store: &Store, parent: &Task, token: Token) {
    assert_eq!(store.suspend(parent.id, token, ALL).await.status, Status::Waiting);
}

async fn children(store: &Store, parent: TaskId) -> usize {
    let list = TaskList { parent: Some(parent), ..TaskList::default() };
    store.backend.task_list(&store.namespace, &list).await.expect("listed").items.len()
}

async fn a_child_belongs_to_its_parents_family(store: Store) {
    let top = store.plain().await;
    let child = store.child(top.id, "c").await;
    let grandchild = store.child(child.id, "c").await;
    assert_eq!((top.parent, top.root), (None, top.id));
    assert_eq!((child.parent, child.root, child.child_key.as_deref()), (Some(top.id), top.id, Some("c")));
    assert_eq!((grandchild.parent, grandchild.root), (Some(child.id), top.id));
}

async fn a_child_leaves_its_parents_revision_alone(store: Store) {
    let parent = store.plain().await;
    store.clock.advance(5);
    let child = store.child(parent.id, "c").await;
    assert_eq!(store.task(parent.id).await, parent);
    store.finish(child.id).await;
    assert_eq!(store.task(parent.id).await, parent);
    store.log(parent.id).await;
}

async fn a_child_key_dispatches_once(store: Store) {
    let parent = store.plain().await;
    let child = store.child(parent.id, "c").await;
    store.clock.advance(5);
    let again = store.run(child_of(parent.id, "c")).await.expect("the create is repeated");
    assert_eq!((again.created, &again.task), (false, &child));
    let done = store.finish(child.id).await;
    let again = store.run(child_of(parent.id, "c")).await.expect("the create is repeated");
    assert_eq!((again.created, &again.task), (false, &done));
    assert_eq!(children(&store, parent.id).await, 1);
    store.child(parent.id, "another try").await;
    assert_eq!(children(&store, parent.id).await, 2);
}

async fn a_child_key_with_another_request_is_a_conflict(store: Store) {
    let parent = store.plain().await;
    let child = store.child(parent.id, "c").await;
    let other = TaskCreate { kind: "other".into(), ..child_of(parent.id, "c") };
    store.refuses(child.id, other.clone(), "conflict").await;
    let other = TaskCreate { on_duplicate: Some(OnDuplicate::Return), ..other };
    let again = store.run(other).await.expect("the existing child is answered");
    assert_eq!((again.created, again.task), (false, child));
}

async fn a_child_key_is_its_parents(store: Store) {
    let (one, two) = (store.plain().await, store.plain().await);
    let (first, second) = (store.child(one.id, "c").await, store.child(two.id, "c").await);
    assert_ne!(first.id, second.id);
}

async fn children_without_a_key_are_all_new(store: Store) {
    let parent = store.plain().await;
    let child = || TaskCreate { parent: Some(parent.id), ..plain_create() };
    store.create(child()).await;
    store.create(child()).await;
    assert_eq!(children(&store, parent.id).await, 2);
}

async fn a_coordinator_that_lost_its_lease_dispatches_nothing(store: Store) {
    let (parent, token) = store.started("old").await;
    let dispatch = |token, key: &str| {
        let mut batch = store.batch().fence(Fence::Task { task: parent.id, token });
        let handle = batch.add(child_of(parent.id, key));
        (batch, handle)
    };
    store.apply(dispatch(token, "a").0).await.expect("the fence holds");
    store.clock.advance(30);
    let error = refused(store.apply(dispatch(token, "b").0).await, "fenced");
    assert_eq!(error.place(), Some(Place::Fence(0)));
    let error = refused(store.apply(dispatch(token, "a").0).await, "fenced");
    assert_eq!(error.place(), Some(Place::Fence(0)));
    assert_eq!(children(&store, parent.id).await, 1);
}

async fn a_new_coordinator_that_repeats_itself_dispatches_nothing_twice(store: Store) {
    let (parent, token) = store.started("old").await;
    let mut batch = store.batch().fence(Fence::Task { task: parent.id, token });
    batch.add(child_of(parent.id, "a"));
    batch.add(child_of(parent.id, "b"));
    store.apply(batch).await.expect("the fence holds");
    store.run(TaskEvict { id: parent.id }).await.expect("evicted");
    let (_, token) = store.start(parent.id, "new").await;
    let mut batch = store.batch().fence(Fence::Task { task: parent.id, token });
    let handles = ["a", "b", "c"].map(|key| batch.add(child_of(parent.id, key)));
    let mut replies = store.apply(batch).await.expect("the fence holds");
    let created = handles.map(|handle| replies.take(handle).expect("a reply").created);
    assert_eq!(created, [false, false, true]);
    assert_eq!(children(&store, parent.id).await, 3);
}

async fn a_missing_parent_is_not_found(store: Store) {
    let missing = TaskId::generate();
    let error = refused(store.run(child_of(missing, "c")).await, "not_found");
    assert_eq!(error.key(), Some(missing.to_string().as_str()));
    assert_eq!(error.place(), Some(Place::Command(0)));
}

async fn a_terminal_parent_is_a_conflict(store: Store) {
    let cancelled = store.cancel(store.plain().await.id).await.expect("cancelled");
    let (failed, done) = (store.doom(store.plain().await.id).await, store.plain().await);
    store.finish(done.id).await;
    for parent in [cancelled.id, failed.id, done.id] {
        store.refuses(parent, child_of(parent, "c"), "conflict").await;
        assert_eq!(children(&store, parent).await, 0);
    }
}

async fn a_known_child_is_answered_under_a_terminal_parent(store: Store) {
    let parent = store.plain().await;
    let child = store.child(parent.id, "c").await;
    store.finish(parent.id).await;
    let again = store.run(child_of(parent.id, "c")).await.expect("the child is known");
    assert_eq!((again.created, again.task), (false, child));
}

async fn a_parent_in_the_same_batch_is_known(store: Store) {
    let id = TaskId::generate();
    let mut batch = store.batch();
    batch.add(TaskCreate { id: Some(id), ..plain_create() });
    let child = batch.add(child_of(id, "c"));
    let mut replies = store.apply(batch).await.expect("both are created");
    let child = replies.take(child).expect("a reply").task;
    assert_eq!((child.parent, child.root), (Some(id), id));
    let (parent, token) = store.start(id, "w").await;
    wait(&store, &parent, token).await;
    store.finish(child.id).await;
    assert_eq!(store.status(id).await, Status::Pending);
}

async fn a_family_has_at_most_64_levels_above_a_task(store: Store) {
    let ids: Vec<_> = (0..65).map(|_| TaskId::generate()).collect();
    let mut batch = store.batch();
    batch.add(TaskCreate { id: Some(ids[0]), ..plain_create() });
    for (parent, id) in ids.iter().zip(&ids[1..]) {
        batch.add(TaskCreate { id: Some(*id), parent: Some(*parent), ..plain_create() });
    }
    store.apply(batch).await.expect("64 levels of parents are allowed");
    assert_eq!(store.task(ids[64]).await.root, ids[0]);
    store.refuses(ids[64], child_of(ids[64], "c"), "invalid").await;
    store.child(ids[63], "c").await;
}

async fn a_parent_waits_for_its_last_child(store: Store) {
    let (parent, token) = store.started("w").await;
    let (one, two) = (store.child(parent.id, "a").await, store.child(parent.id, "b").await);
    wait(&store, &parent, token).await;
    store.finish(one.id).await;
    assert_eq!(store.status(parent.id).await, Status::Waiting);
    store.clock.advance(5);
    store.finish(two.id).await;
    let resumed = store.task(parent.id).await;
    assert_eq!((resumed.status, resumed.run_at), (Status::Pending, store.now()));
    assert_eq!(resumed.resumed_by, Some(ResumedBy::Children(Children::All)));
    assert_eq!((resumed.waiting_for, resumed.updated_at), (None, store.now()));
    let log = store.log(parent.id).await;
    assert_eq!(log[3..], [event("task.resumed", &json!({"by": "children"}))]);
    assert_eq!(store.claim("w", 10).await.tasks[0].id, parent.id);
}

async fn a_child_that_ends_in_any_way_counts(store: Store) {
    for way in ["fail", "cancel", "expire", "lose"] {
        let (parent, token) = store.started("w").await;
        let expires_at = Some(store.now() + Seconds::new(60));
        let bounded = TaskCreate { expires_at, max_lease_losses: Some(1), ..child_of(parent.id, "c") };
        let child = store.create(bounded).await;
        wait(&store, &parent, token).await;
        match way {
            "fail" => drop(store.doom(child.id).await),
            "cancel" => drop(store.cancel(child.id).await.expect("cancelled")),
            "expire" => store.clock.advance(60),
            _ => {
                store.start(child.id, "w").await;
                store.clock.advance(30);
            }
        }
        store.sweep().await;
        assert!(store.status(child.id).await.is_terminal(), "{way}");
        assert_eq!(store.status(parent.id).await, Status::Pending, "{way}");
    }
}

async fn a_parent_without_open_children_goes_on_at_once(store: Store) {
    for with_child in [false, true] {
        let (parent, token) = store.started("w").await;
        if with_child {
            let child = store.child(parent.id, "c").await;
            store.finish(child.id).await;
        }
        store.clock.advance(5);
        let resumed = store.suspend(parent.id, token, ALL).await;
        assert_eq!((resumed.status, resumed.run_at), (Status::Pending, store.now()));
        assert_eq!(resumed.resumed_by, Some(ResumedBy::Children(Children::All)));
        assert_eq!((resumed.waiting_for, resumed.lease), (None, None));
        let log: Vec<_> = store.log(parent.id).await.into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(log[2..], ["task.suspended", "task.resumed"]);
    }
}

async fn a_child_created_with_the_suspend_is_waited_for(store: Store) {
    let (parent, token) = store.started("w").await;
    let mut batch = store.batch().fence(Fence::Task { task: parent.id, token });
    let child = batch.add(child_of(parent.id, "c"));
    let (timeout_seconds, on_timeout) = (None, OnTimeout::Resume);
    let suspend = TaskSuspend { id: parent.id, token, waiting_for: ALL, timeout_seconds, on_timeout };
    let suspended = batch.add(suspend);
    let mut replies = store.apply(batch).await.expect("the fence holds");
    assert_eq!(replies.take(suspended).expect("a reply").status, Status::Waiting);
    store.finish(replies.take(child).expect("a reply").task.id).await;
    assert_eq!(store.status(parent.id).await, Status::Pending);
    assert_eq!(store.log(parent.id).await.len(), 4);
}

async fn a_child_created_while_the_parent_waits_is_waited_for(store: Store) {
    let (parent, token) = store.started("w").await;
    let first = store.child(parent.id, "a").await;
    wait(&store, &parent, token).await;
    let second = store.child(parent.id, "b").await;
    store.finish(first.id).await;
    assert_eq!(store.status(parent.id).await, Status::Waiting);
    store.finish(second.id).await;
    assert_eq!(store.status(parent.id).await, Status::Pending);
}

async fn a_child_that_is_retried_is_waited_for_again(store: Store) {
    let (parent, token) = store.started("w").await;
    let (one, two) = (store.child(parent.id, "a").await, store.child(parent.id, "b").await);
    store.doom(one.id).await;
    wait(&store, &parent, token).await;
    store.run(TaskRetry { id: one.id, with_dependents: false }).await.expect("retried");
    store.finish(two.id).await;
    assert_eq!(store.status(parent.id).await, Status::Waiting);
    store.finish(one.id).await;
    assert_eq!(store.status(parent.id).await, Status::Pending);
}

async fn parked_and_blocked_children_are_waited_for(store: Store) {
    let (parent, token) = store.started("w").await;
    let (open, parked) = (store.plain().await, store.child(parent.id, "parked").await);
    let blocked = TaskCreate { depends_on: vec![open.id], ..child_of(parent.id, "blocked") };
    let blocked = store.create(blocked).await;
    store.run(TaskPark { id: parked.id, rank: None }).await.expect("parked");
    wait(&store, &parent, token).await;
    store.cancel(parked.id).await.expect("cancelled");
    assert_eq!(store.status(parent.id).await, Status::Waiting);
    store.finish(open.id).await;
    assert_eq!(store.status(parent.id).await, Status::Waiting);
    store.finish(blocked.id).await;
    assert_eq!(store.status(parent.id).await, Status::Pending);
}

async fn grandchildren_are_not_waited_for(store: Store) {
    let (parent, token) = store.started("w").await;
    let child = store.child(parent.id, "c").await;
    let grandchild = store.child(child.id, "c").await;
    wait(&store, &parent, token).await;
    store.finish(child.id).await;
    assert_eq!(store.status(parent.id).await, Status::Pending);
    store.finish(grandchild.id).await;
    assert_eq!(store.log(parent.id).await.len(), 4);
}

async fn children_that_end_together_resume_the_parent_once(store: Store) {
    let (parent, token) = store.started("w").await;
    let mut cancels = store.batch();
    for key in ["a", "b", "c"] {
        let child = store.child(parent.id, key).await;
        cancels.add(statehold_core::command::TaskCancel { id: child.id, force: false, children: false });
    }
    wait(&store, &parent, token).await;
    store.apply(cancels).await.expect("all are cancelled");
    assert_eq!(store.status(parent.id).await, Status::Pending);
    assert_eq!(store.log(parent.id).await.len(), 4);
}

async fn a_parent_is_resumed_by_a_child_failed_by_its_dependency(store: Store) {
    let (parent, token) = store.started("w").await;
    let open = store.plain().await;
    store.create(TaskCreate { depends_on: vec![open.id], ..child_of(parent.id, "c") }).await;
    wait(&store, &parent, token).await;
    store.doom(open.id).await;
    assert_eq!(store.status(parent.id).await, Status::Pending);
}

async fn a_parent_waits_for_children_that_sweeps_end(store: Store) {
    let (parent, token) = store.started("w").await;
    let open = store.plain().await;
    let mut batch = store.batch();
    for _ in 0..600 {
        batch.add(TaskCreate { parent: Some(parent.id), depends_on: vec![open.id], ..plain_create() });
    }
    store.apply(batch).await.expect("the children are created");
    wait(&store, &parent, token).await;
    store.doom(open.id).await;
    assert_eq!(store.status(parent.id).await, Status::Waiting, "more than one commit ends the children");
    for _ in 0..20 {
        if !store.sweep().await.more {
            break;
        }
    }
    assert_eq!(store.status(parent.id).await, Status::Pending);
    assert_eq!(store.log(parent.id).await.len(), 4);
}

async fn a_parents_deadline_does_not_wait_for_children(store: Store) {
    let (parent, token) = store.started("w").await;
    let child = store.child(parent.id, "c").await;
    let (timeout_seconds, on_timeout) = (Some(10.into()), OnTimeout::Resume);
    let suspend = TaskSuspend { id: parent.id, token, waiting_for: ALL, timeout_seconds, on_timeout };
    store.run(suspend).await.expect("suspended");
    store.clock.advance(10);
    store.sweep().await;
    let resumed = store.task(parent.id).await;
    assert_eq!((resumed.status, &resumed.resumed_by), (Status::Pending, &Some(ResumedBy::Timeout)));
    store.finish(child.id).await;
    assert_eq!(store.task(parent.id).await, resumed);
}

async fn a_purged_child_is_not_waited_for(store: Store) {
    let parent = store.plain().await;
    let (one, two) = (store.child(parent.id, "a").await, store.child(parent.id, "b").await);
    store.finish(one.id).await;
    store.cancel(parent.id).await.expect("cancelled");
    store.run(TaskPurge { id: one.id }).await.expect("the parent is terminal");
    store.run(TaskRetry { id: parent.id, with_dependents: false }).await.expect("retried");
    let (parent, token) = store.start(parent.id, "w").await;
    wait(&store, &parent, token).await;
    store.finish(two.id).await;
    assert_eq!(store.status(parent.id).await, Status::Pending);
}

async fn a_child_outlives_its_purged_parent(store: Store) {
    let parent = store.plain().await;
    let child = store.child(parent.id, "c").await;
    store.finish(parent.id).await;
    store.run(TaskPurge { id: parent.id }).await.expect("the parent is terminal");
    assert_eq!(store.task(child.id).await, child);
    assert_eq!(store.finish(child.id).await.parent, Some(parent.id));
    store.run(TaskPurge { id: child.id }).await.expect("nobody needs it");
}
