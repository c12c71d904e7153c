//! Exclusive keys: one runs at a time, one is first in line, and the line is fair.

use statehold_core::call::Claim;
use statehold_core::command::{
    OnBusy, QueueSet, TaskAmend, TaskCancel, TaskCreate, TaskEvict, TaskPark, TaskPromote, TaskRelease,
    TaskRetry, TaskStart,
};
use statehold_core::error::Place;
use statehold_core::model::{Task, TaskId, WaitFor};
use statehold_core::query::{ReasonCode, TaskCounts, TaskList};
use statehold_core::{ErrorKind, Seconds, Status};

use crate::harness::{plain_create, refused, token_of};
use crate::{Case, Store, cases};

pub(super) const CASES: &[Case] = cases![
    one_task_of_a_key_is_given_at_a_time,
    keys_do_not_hinder_each_other,
    a_key_spans_queues,
    the_next_in_line_is_chosen_by_claim_order,
    the_first_in_line_is_not_pushed_out,
    a_parked_first_makes_room,
    a_cancelled_first_makes_room,
    a_postponed_first_makes_room,
    an_expired_first_makes_room,
    a_first_amended_to_have_expired_makes_room_at_once,
    a_paused_queue_makes_room,
    a_queue_that_goes_on_stands_in_line_again,
    a_queue_that_goes_on_gives_its_task_of_a_free_key,
    a_pause_of_many_keys_is_finished_by_sweeps,
    a_task_to_come_is_not_first_in_line,
    a_blocked_task_is_not_in_line,
    a_start_of_another_sends_the_first_back_in_line,
    a_start_of_a_held_key_is_refused,
    two_starts_of_a_key_in_one_batch_are_invalid,
    a_suspended_holder_frees_the_key,
    every_way_out_of_running_frees_the_key,
    a_lost_lease_frees_the_key,
    a_failed_attempt_frees_the_key_while_it_backs_off,
    a_promoted_or_retried_task_stands_in_line,
    a_key_is_busy_while_any_open_task_has_it,
    a_busy_key_tells_its_holder,
    a_key_in_line_counts_one_claimable,
];

fn with_key(key: &str) -> TaskCreate {
    TaskCreate { exclusive_key: Some(key.into()), ..plain_create() }
}

/// Creates a task with key `e` and this priority.
async fn urgent(store: &Store, priority: i16) -> Task {
    store.create(TaskCreate { priority: Some(priority), ..with_key("e") }).await
}

/// Creates a task with key `e`.
async fn keyed(store: &Store) -> Task {
    urgent(store, 0).await
}

async fn in_queue(store: &Store, queue: &str) -> Task {
    store.create(TaskCreate { queue: Some(queue.into()), ..with_key("e") }).await
}

/// Claims all there is; at most one of a key.
async fn given(store: &Store) -> Option<Task> {
    let mut tasks = store.claim("w", 100).await.tasks;
    assert!(tasks.len() <= 1, "one at a time: {tasks:?}");
    tasks.pop()
}

async fn given_id(store: &Store) -> Option<TaskId> {
    given(store).await.map(|task| task.id)
}

async fn from_queues(store: &Store, queues: &[&str]) -> Vec<TaskId> {
    let queues = queues.iter().map(|queue| (*queue).to_owned()).collect();
    let claim = Claim { queues, limit: 100, ..Claim::new(&store.namespace, "q", "w") };
    let claimed = store.backend.claim(claim).await.expect("the claim is answered");
    claimed.tasks.iter().map(|task| task.id).collect()
}

/// Completes a running task, whoever holds it.
async fn complete_held(store: &Store, id: TaskId) {
    let token = token_of(&store.task(id).await);
    store.complete(id, token).await.expect("completed");
}

async fn set_paused(store: &Store, queue: &str, paused: bool) {
    store.run(QueueSet { queue: queue.into(), paused }).await.expect("the queue is set");
}

async fn one_task_of_a_key_is_given_at_a_time(store: Store) {
    let mut ids = vec![keyed(&store).await.id, keyed(&store).await.id, keyed(&store).await.id];
    ids.sort();
    for id in ids {
        let task = given(&store).await.expect("one is ready");
        assert_eq!((task.id, given_id(&store).await), (id, None));
        store.complete(id, token_of(&task)).await.expect("completed");
    }
    assert_eq!(given_id(&store).await, None);
}

async fn keys_do_not_hinder_each_other(store: Store) {
    for key in ["a", "b", "a", "b"] {
        store.create(with_key(key)).await;
    }
    store.plain().await;
    assert_eq!(store.claim("w", 100).await.tasks.len(), 3);
}

async fn a_key_spans_queues(store: Store) {
    let (one, two) = (in_queue(&store, "a").await, in_queue(&store, "b").await);
    let first = from_queues(&store, &["b", "a"]).await;
    assert_eq!(first, [one.id]);
    assert!(from_queues(&store, &["b"]).await.is_empty());
    store.run(TaskCancel { id: one.id, force: true, children: false }).await.expect("cancelled");
    assert_eq!(from_queues(&store, &["b"]).await, [two.id]);
}

async fn the_next_in_line_is_chosen_by_claim_order(store: Store) {
    let holder = keyed(&store).await;
    let (_, token) = store.start(holder.id, "w").await;
    let late = urgent(&store, 5).await;
    let first = urgent(&store, -5).await;
    let middle = keyed(&store).await;
    store.complete(holder.id, token).await.expect("completed");
    for id in [first.id, middle.id, late.id] {
        let task = given(&store).await.expect("one is ready");
        assert_eq!(task.id, id);
        store.complete(id, token_of(&task)).await.expect("completed");
    }
}

async fn the_first_in_line_is_not_pushed_out(store: Store) {
    let first = keyed(&store).await;
    let hurried = urgent(&store, -5).await;
    let task = given(&store).await.expect("one is ready");
    assert_eq!(task.id, first.id);
    store.complete(first.id, token_of(&task)).await.expect("completed");
    assert_eq!(given_id(&store).await, Some(hurried.id));
}

async fn a_parked_first_makes_room(store: Store) {
    let (first, second) = (keyed(&store).await, urgent(&store, 1).await);
    store.run(TaskPark { id: first.id, rank: None }).await.expect("parked");
    assert_eq!(given_id(&store).await, Some(second.id));
}

async fn a_cancelled_first_makes_room(store: Store) {
    let (first, second) = (keyed(&store).await, urgent(&store, 1).await);
    store.cancel(first.id).await.expect("cancelled");
    assert_eq!(given_id(&store).await, Some(second.id));
}

async fn a_postponed_first_makes_room(store: Store) {
    let (first, second) = (keyed(&store).await, urgent(&store, 1).await);
    let run_at = Some(store.now() + Seconds::new(60));
    let amend = TaskAmend { id: first.id, run_at, ..TaskAmend::default() };
    store.run(amend).await.expect("amended");
    assert_eq!(given_id(&store).await, Some(second.id));
    complete_held(&store, second.id).await;
    assert_eq!(given_id(&store).await, None);
    store.clock.advance(60);
    assert_eq!(given_id(&store).await, Some(first.id));
}

async fn an_expired_first_makes_room(store: Store) {
    let expires_at = Some(store.now() + Seconds::new(10));
    let first = store.create(TaskCreate { expires_at, ..with_key("e") }).await;
    let second = urgent(&store, 1).await;
    store.clock.advance(10);
    assert_eq!(given_id(&store).await, Some(second.id));
    assert_eq!(store.status(first.id).await, Status::Failed);
}

async fn a_first_amended_to_have_expired_makes_room_at_once(store: Store) {
    let (first, second) = (keyed(&store).await, urgent(&store, 1).await);
    let amend = TaskAmend { id: first.id, expires_at: Some(store.now()), ..TaskAmend::default() };
    store.run(amend).await.expect("amended");
    let why = store.backend.task_why(&store.namespace, second.id).await.expect("the reasons are told");
    assert!(why.reasons.iter().all(|reason| reason.code != ReasonCode::KeyHeld), "{why:?}");
    assert_eq!(given_id(&store).await, Some(second.id));
}

async fn a_paused_queue_makes_room(store: Store) {
    let (paused, open) = (in_queue(&store, "a").await, in_queue(&store, "b").await);
    assert!(from_queues(&store, &["b"]).await.is_empty());
    set_paused(&store, "a", true).await;
    assert_eq!(from_queues(&store, &["a", "b"]).await, [open.id]);
    assert_eq!(store.status(paused.id).await, Status::Pending);
}

async fn a_queue_that_goes_on_stands_in_line_again(store: Store) {
    let (first, second) = (in_queue(&store, "a").await, in_queue(&store, "b").await);
    set_paused(&store, "a", true).await;
    set_paused(&store, "a", false).await;
    // The one that moved up meanwhile keeps its place, although it comes later in claim order.
    assert_eq!(from_queues(&store, &["a", "b"]).await, [second.id]);
    store.run(TaskCancel { id: second.id, force: true, children: false }).await.expect("cancelled");
    assert_eq!(from_queues(&store, &["a", "b"]).await, [first.id]);
}

async fn a_queue_that_goes_on_gives_its_task_of_a_free_key(store: Store) {
    let (one, two) = (keyed(&store).await, keyed(&store).await);
    set_paused(&store, "q", true).await;
    assert_eq!(given_id(&store).await, None);
    let third = keyed(&store).await;
    set_paused(&store, "q", false).await;
    let first = one.id.min(two.id).min(third.id);
    assert_eq!(given_id(&store).await, Some(first));
}

async fn a_pause_of_many_keys_is_finished_by_sweeps(store: Store) {
    for queue in ["a", "b"] {
        let mut batch = store.batch();
        for n in 0..300 {
            batch.add(TaskCreate { queue: Some(queue.into()), ..with_key(&format!("e{n}")) });
        }
        store.apply(batch).await.expect("the tasks are created");
    }
    set_paused(&store, "a", true).await;
    let mut given = 0;
    for _ in 0..20 {
        if given == 300 {
            break;
        }
        store.sweep().await;
        let queues = vec!["a".to_owned(), "b".to_owned()];
        let claim = Claim { queues, limit: 1000, ..Claim::new(&store.namespace, "b", "w") };
        let tasks = store.backend.claim(claim).await.expect("the claim is answered").tasks;
        assert!(tasks.iter().all(|task| task.queue == "b"), "a paused queue gives nothing");
        given += tasks.len();
    }
    assert_eq!(given, 300);
}

async fn a_task_to_come_is_not_first_in_line(store: Store) {
    let run_at = Some(store.now() + Seconds::new(60));
    let later = store.create(TaskCreate { run_at, priority: Some(-9), ..with_key("e") }).await;
    let now = keyed(&store).await;
    assert_eq!(given_id(&store).await, Some(now.id));
    store.clock.advance(20);
    complete_held(&store, now.id).await;
    assert_eq!(given_id(&store).await, None);
    store.clock.advance(40);
    assert_eq!(given_id(&store).await, Some(later.id));
}

async fn a_blocked_task_is_not_in_line(store: Store) {
    let open = store.create(TaskCreate { queue: Some("other".into()), ..plain_create() }).await;
    let create = TaskCreate { depends_on: vec![open.id], priority: Some(-9), ..with_key("e") };
    let blocked = store.create(create).await;
    let ready = keyed(&store).await;
    store.finish(open.id).await;
    assert_eq!(store.status(blocked.id).await, Status::Pending);
    assert_eq!(given_id(&store).await, Some(ready.id));
    complete_held(&store, ready.id).await;
    assert_eq!(given_id(&store).await, Some(blocked.id));
}

async fn a_start_of_another_sends_the_first_back_in_line(store: Store) {
    let (first, other) = (keyed(&store).await, urgent(&store, 3).await);
    let (_, token) = store.start(other.id, "w").await;
    assert_eq!(store.status(first.id).await, Status::Pending);
    assert_eq!(given_id(&store).await, None);
    store.complete(other.id, token).await.expect("completed");
    assert_eq!(given_id(&store).await, Some(first.id));
}

async fn a_start_of_a_held_key_is_refused(store: Store) {
    let (holder, other) = (keyed(&store).await, keyed(&store).await);
    let (running, token) = store.start(holder.id, "holder").await;
    let start = TaskStart { id: other.id, owner: "w".into(), lease_seconds: None };
    let error = store.refuses(other.id, start.clone(), "held").await;
    let expires_at = running.lease.and_then(|lease| lease.expires_at);
    assert_eq!(*error.kind(), ErrorKind::Held { owner: Some("holder".into()), expires_at });
    store.complete(holder.id, token).await.expect("completed");
    assert_eq!(store.run(start).await.expect("the key is free").status, Status::Running);
}

async fn two_starts_of_a_key_in_one_batch_are_invalid(store: Store) {
    let tasks = [keyed(&store).await, keyed(&store).await];
    let mut batch = store.batch();
    for task in &tasks {
        batch.add(TaskStart { id: task.id, owner: "w".into(), lease_seconds: None });
    }
    let error = refused(store.apply(batch).await, "invalid");
    assert_eq!(error.place(), Some(Place::Command(1)));
    for task in tasks {
        assert_eq!(store.task(task.id).await, task);
    }
}

async fn a_suspended_holder_frees_the_key(store: Store) {
    let (holder, next) = (keyed(&store).await, keyed(&store).await);
    let (_, token) = store.start(holder.id, "w").await;
    store.suspend(holder.id, token, WaitFor::Signal("s".into())).await;
    let running = given(&store).await.expect("the key is free");
    assert_eq!(running.id, next.id);
    store.signal(holder.id, "s").await.expect("signalled");
    assert_eq!(store.status(holder.id).await, Status::Pending);
    assert_eq!(given_id(&store).await, None);
    store.complete(next.id, token_of(&running)).await.expect("completed");
    assert_eq!(given_id(&store).await, Some(holder.id));
}

async fn every_way_out_of_running_frees_the_key(store: Store) {
    for way in ["complete", "fail", "release", "evict", "cancel"] {
        let (holder, next) = (keyed(&store).await, urgent(&store, -1).await);
        let (_, token) = store.start(holder.id, "w").await;
        let id = holder.id;
        match way {
            "complete" => store.complete(id, token).await,
            "fail" => store.fail(id, token).await,
            "release" => store.run(TaskRelease { id, token, run_at: None }).await,
            "evict" => store.run(TaskEvict { id }).await,
            _ => store.run(TaskCancel { id, force: true, children: false }).await,
        }
        .expect("it leaves its owner");
        assert_eq!(given_id(&store).await, Some(next.id), "{way}");
        complete_held(&store, next.id).await;
        if !store.status(id).await.is_terminal() {
            store.cancel(id).await.expect("cancelled");
        }
    }
}

async fn a_lost_lease_frees_the_key(store: Store) {
    let (holder, next) = (keyed(&store).await, urgent(&store, -1).await);
    store.start(holder.id, "w").await;
    store.clock.advance(30);
    assert_eq!(given_id(&store).await, Some(next.id));
    assert_eq!(store.task(holder.id).await.lease_losses, 1);
}

async fn a_failed_attempt_frees_the_key_while_it_backs_off(store: Store) {
    let (first, next) = (urgent(&store, -1).await, keyed(&store).await);
    let (_, token) = store.start(first.id, "w").await;
    store.fail(first.id, token).await.expect("the attempt fails");
    assert_eq!(given_id(&store).await, Some(next.id));
    store.clock.advance(2);
    assert_eq!(given_id(&store).await, None);
    complete_held(&store, next.id).await;
    assert_eq!(given_id(&store).await, Some(first.id));
}

async fn a_promoted_or_retried_task_stands_in_line(store: Store) {
    let parked = store.create(TaskCreate { backlog: true, ..with_key("e") }).await;
    let failed = store.doom(keyed(&store).await.id).await;
    let holder = given_id(&store).await;
    assert_eq!(holder, None);
    store.run(TaskRetry { id: failed.id, with_dependents: false }).await.expect("retried");
    store.run(TaskPromote { id: parked.id }).await.expect("promoted");
    assert_eq!(given_id(&store).await, Some(failed.id));
    complete_held(&store, failed.id).await;
    assert_eq!(given_id(&store).await, Some(parked.id));
}

async fn a_key_is_busy_while_any_open_task_has_it(store: Store) {
    let open = store.plain().await;
    let reject = || TaskCreate { on_busy: Some(OnBusy::Reject), ..with_key("e") };
    let creates = [
        with_key("e"),
        TaskCreate { backlog: true, ..with_key("e") },
        TaskCreate { depends_on: vec![open.id], ..with_key("e") },
        TaskCreate { run_at: Some(store.now() + Seconds::new(60)), ..with_key("e") },
        reject(),
    ];
    for create in creates {
        let task = store.create(create).await;
        let error = store.refuses(task.id, reject(), "held").await;
        assert_eq!(*error.kind(), ErrorKind::Held { owner: None, expires_at: None });
        store.cancel(task.id).await.expect("cancelled");
    }
    let task = keyed(&store).await;
    let (_, token) = store.start(task.id, "w").await;
    store.suspend(task.id, token, WaitFor::Signal("s".into())).await;
    store.refuses(task.id, reject(), "held").await;
    store.signal(task.id, "s").await.expect("signalled");
    store.finish(task.id).await;
    store.create(reject()).await;
}

async fn a_busy_key_tells_its_holder(store: Store) {
    let holder = keyed(&store).await;
    let (running, token) = store.start(holder.id, "holder").await;
    keyed(&store).await;
    let reject = TaskCreate { on_busy: Some(OnBusy::Reject), ..with_key("e") };
    let error = store.refuses(holder.id, reject.clone(), "held").await;
    let expires_at = running.lease.and_then(|lease| lease.expires_at);
    assert_eq!(*error.kind(), ErrorKind::Held { owner: Some("holder".into()), expires_at });
    assert!(error.is_retryable());
    store.complete(holder.id, token).await.expect("completed");
    store.refuses(holder.id, reject, "held").await;
}

async fn a_key_in_line_counts_one_claimable(store: Store) {
    for _ in 0..3 {
        keyed(&store).await;
    }
    let count = || async { store.backend.task_count(&store.namespace, Some("q")).await.expect("counted") };
    let TaskCounts { counts, claimable, .. } = count().await;
    assert_eq!((counts, claimable), ([(Status::Pending, 3)].into(), 1));
    given(&store).await;
    assert_eq!(count().await.claimable, 0);
    let list =
        TaskList { exclusive_key: Some("e".into()), status: vec![Status::Running], ..TaskList::default() };
    let running = store.backend.task_list(&store.namespace, &list).await.expect("listed").items;
    assert_eq!(running.len(), 1);
}
