//! Leases, fencing tokens and what a holder that lost its task can no longer do.

use statehold_core::batch::Fence;
use statehold_core::command::{
    Command, DocumentPut, EntrySet, LockAcquire, NewEvent, StreamAppend, TaskCancel, TaskComplete,
    TaskCreate, TaskEvict, TaskFail, TaskRelease, TaskRenew, TaskSignal, TaskStart, TaskSuspend,
};
use statehold_core::error::Place;
use statehold_core::model::{OnTimeout, StreamName, Task, TaskId, Token, WaitFor};
use statehold_core::{ErrorKind, Seconds, Status, Timestamp};

use crate::harness::{broken, json, plain_create, refused, token_of};
use crate::{Case, Store, cases};

pub(super) const CASES: &[Case] = cases![
    a_renewal_moves_the_end_and_nothing_else,
    a_renewal_without_a_length_takes_that_of_the_start,
    a_renewal_can_shorten_the_lease,
    a_renewal_keeps_progress_unless_given,
    a_lease_ends_with_the_attempts_timeout,
    a_lease_without_end_stays_so_unless_a_length_is_given,
    a_lease_without_end_is_over_at_the_timeout,
    a_renewal_tells_that_someone_asked_to_stop,
    a_lease_is_good_until_its_last_microsecond,
    a_lease_that_is_over_is_fenced_before_any_sweep,
    a_taken_over_task_is_fenced_with_its_new_owner,
    a_forced_cancel_fences_the_owner,
    a_fence_on_a_missing_task_is_fenced,
    the_first_fence_that_fails_is_named,
    a_zombie_can_write_nothing,
    a_live_holder_can_write_everything,
    tokens_grow_with_every_start,
    tokens_grow_when_the_clock_steps_back,
    no_error_and_no_event_carries_a_token,
];

async fn start(store: &Store, create: TaskCreate, length: Option<Seconds>) -> (Task, Token) {
    let id = store.create(create).await.id;
    let running = store.run(TaskStart { id, owner: "w".into(), lease_seconds: length }).await;
    let running = running.expect("the task starts");
    let token = token_of(&running);
    (running, token)
}

fn renew(id: TaskId, token: Token, length: Option<u64>) -> TaskRenew {
    TaskRenew { id, token, lease_seconds: length.map(Seconds::new), progress: None }
}

async fn renewed(store: &Store, id: TaskId, token: Token, length: Option<u64>) -> Option<Timestamp> {
    let reply = store.run(renew(id, token, length)).await.expect("the lease is renewed");
    let lease = store.task(id).await.lease.expect("a lease");
    assert_eq!((lease.expires_at, lease.heartbeat_at), (reply.expires_at, store.now()));
    reply.expires_at
}

fn fenced(lost_at: Option<Timestamp>, owner: Option<&str>) -> ErrorKind {
    ErrorKind::Fenced { lost_at, owner: owner.map(str::to_owned) }
}

async fn a_renewal_moves_the_end_and_nothing_else(store: Store) {
    let (task, token) = store.started("w").await;
    store.clock.advance(20);
    let progress = Some(json(r#"{"done":3}"#));
    let renew = TaskRenew { id: task.id, token, lease_seconds: Some(60.into()), progress: progress.clone() };
    let reply = store.run(renew).await.expect("the lease is renewed");
    let end = Some(store.now() + Seconds::new(60));
    assert_eq!((reply.expires_at, reply.cancel_requested), (end, false));
    let mut expected = task.clone();
    expected.progress = progress;
    let lease = expected.lease.as_mut().expect("a lease");
    (lease.expires_at, lease.heartbeat_at) = (end, store.now());
    assert_eq!(store.task(task.id).await, expected);
    assert_eq!(store.log(task.id).await.len(), 2);
}

async fn a_renewal_without_a_length_takes_that_of_the_start(store: Store) {
    let (task, token) = start(&store, plain_create(), Some(45.into())).await;
    store.clock.advance(10);
    assert_eq!(renewed(&store, task.id, token, None).await, Some(store.now() + Seconds::new(45)));
    renewed(&store, task.id, token, Some(300)).await;
    store.clock.advance(10);
    assert_eq!(renewed(&store, task.id, token, None).await, Some(store.now() + Seconds::new(45)));
}

async fn a_renewal_can_shorten_the_lease(store: Store) {
    let (task, token) = store.started("w").await;
    assert_eq!(renewed(&store, task.id, token, Some(5)).await, Some(store.now() + Seconds::new(5)));
    store.clock.advance(5);
    store.refuses(task.id, renew(task.id, token, None), "fenced").await;
}

async fn a_renewal_keeps_progress_unless_given(store: Store) {
    let (task, token) = store.started("w").await;
    let progress = |text: &str| TaskRenew { progress: Some(json(text)), ..renew(task.id, token, None) };
    store.run(progress("1")).await.expect("the lease is renewed");
    renewed(&store, task.id, token, None).await;
    assert_eq!(store.task(task.id).await.progress, Some(json("1")));
    store.run(progress("[2]")).await.expect("the lease is renewed");
    assert_eq!(store.task(task.id).await.progress, Some(json("[2]")));
}

async fn a_lease_ends_with_the_attempts_timeout(store: Store) {
    let bounded = || TaskCreate { timeout_seconds: Some(50.into()), ..plain_create() };
    let end = Some(store.now() + Seconds::new(50));
    let (task, _) = start(&store, bounded(), Some(60.into())).await;
    assert_eq!(task.lease.expect("a lease").expires_at, end);
    let (task, token) = start(&store, bounded(), Some(30.into())).await;
    store.clock.advance(10);
    assert_eq!(renewed(&store, task.id, token, None).await, Some(store.now() + Seconds::new(30)));
    store.clock.advance(25);
    assert_eq!(renewed(&store, task.id, token, None).await, end);
    assert_eq!(renewed(&store, task.id, token, Some(1000)).await, end);
    store.clock.advance(15);
    let error = store.refuses(task.id, renew(task.id, token, None), "fenced").await;
    assert_eq!(*error.kind(), fenced(end, None));
}

async fn a_lease_without_end_stays_so_unless_a_length_is_given(store: Store) {
    let (task, token) = start(&store, plain_create(), None).await;
    store.clock.advance(1000);
    assert_eq!(renewed(&store, task.id, token, None).await, None);
    store.clock.advance(1000);
    assert_eq!(renewed(&store, task.id, token, Some(10)).await, Some(store.now() + Seconds::new(10)));
    store.clock.advance(10);
    store.refuses(task.id, renew(task.id, token, None), "fenced").await;
}

async fn a_lease_without_end_is_over_at_the_timeout(store: Store) {
    let bounded = TaskCreate { timeout_seconds: Some(60.into()), ..plain_create() };
    let (task, token) = start(&store, bounded, None).await;
    assert_eq!(task.lease.as_ref().and_then(|lease| lease.expires_at), None);
    store.clock.advance(60);
    let error = store.refuses(task.id, renew(task.id, token, None), "fenced").await;
    assert_eq!(*error.kind(), fenced(Some(store.now()), None));
    store.sweep().await;
    let after = store.task(task.id).await;
    assert_eq!((after.status, after.failures, after.lease_losses), (Status::Pending, 1, 0));
}

async fn a_renewal_tells_that_someone_asked_to_stop(store: Store) {
    let (task, token) = store.started("w").await;
    assert!(!store.run(renew(task.id, token, None)).await.expect("renewed").cancel_requested);
    store.cancel(task.id).await.expect("asked to stop");
    assert!(store.run(renew(task.id, token, None)).await.expect("renewed").cancel_requested);
}

async fn a_lease_is_good_until_its_last_microsecond(store: Store) {
    let (task, token) = store.started("w").await;
    store.clock.advance(Seconds::from_micros(29_999_999));
    store.sweep().await;
    assert_eq!(store.status(task.id).await, Status::Running);
    store.complete(task.id, token).await.expect("the lease is not over");
}

async fn a_lease_that_is_over_is_fenced_before_any_sweep(store: Store) {
    let (task, token) = store.started("w").await;
    let (id, end) = (task.id, task.lease.as_ref().and_then(|lease| lease.expires_at));
    store.clock.advance(30);
    let (waiting_for, on_timeout) = (WaitFor::Signal("s".into()), OnTimeout::Resume);
    let suspend = TaskSuspend { id, token, waiting_for, timeout_seconds: None, on_timeout };
    let errors = [
        store.refuses(id, renew(id, token, None), "fenced").await,
        store.refuses(id, TaskComplete { id, token, output: None }, "fenced").await,
        store.refuses(id, TaskFail { id, token, error: broken(), retry: true }, "fenced").await,
        store.refuses(id, TaskRelease { id, token, run_at: None }, "fenced").await,
        store.refuses(id, suspend, "fenced").await,
    ];
    for error in errors {
        assert_eq!(*error.kind(), fenced(end, None), "{error}");
    }
    assert_eq!(store.status(id).await, Status::Running);
}

async fn a_taken_over_task_is_fenced_with_its_new_owner(store: Store) {
    let (task, token) = store.started("old").await;
    store.clock.advance(40);
    let second = store.claim("new", 1).await.tasks.remove(0);
    assert_eq!((second.id, second.attempt), (task.id, 2));
    store.clock.advance(5);
    let since = second.lease.as_ref().map(|lease| lease.started_at);
    let complete = TaskComplete { id: task.id, token, output: None };
    let error = store.refuses(task.id, complete, "fenced").await;
    assert_eq!(*error.kind(), fenced(since, Some("new")));
    store.complete(task.id, token_of(&second)).await.expect("the new owner completes");
}

async fn a_forced_cancel_fences_the_owner(store: Store) {
    let (task, token) = store.started("w").await;
    store.clock.advance(5);
    store.run(TaskCancel { id: task.id, force: true, children: false }).await.expect("cancelled");
    let since = store.now();
    store.clock.advance(5);
    let complete = TaskComplete { id: task.id, token, output: None };
    let error = store.refuses(task.id, complete, "fenced").await;
    assert_eq!(*error.kind(), fenced(Some(since), None));
    assert_eq!(store.status(task.id).await, Status::Cancelled);
}

async fn a_fence_on_a_missing_task_is_fenced(store: Store) {
    let fence = Fence::Task { task: TaskId::generate(), token: Token(1) };
    let mut batch = store.batch().fence(fence);
    batch.add(EntrySet::new("e", json("1")));
    let error = refused(store.apply(batch).await, "fenced");
    assert_eq!(error.place(), Some(Place::Fence(0)));
    assert_eq!(store.backend.entry_get(&store.namespace, "e").await.expect("read"), None);
}

async fn the_first_fence_that_fails_is_named(store: Store) {
    let (good, token) = store.started("w").await;
    let (lost, old) = store.started("w").await;
    store.run(TaskEvict { id: lost.id }).await.expect("evicted");
    let fence = |task, token| Fence::Task { task, token };
    let mut batch = store.batch().fence(fence(good.id, token)).fence(fence(lost.id, old));
    batch.add(TaskComplete { id: good.id, token: Token(token.0 + 1), output: None });
    let error = refused(store.apply(batch).await, "fenced");
    assert_eq!(error.place(), Some(Place::Fence(1)));
    assert_eq!(store.task(good.id).await, good);
}

/// What a worker writes beside its own task.
fn writes(other: TaskId, parent: TaskId) -> Vec<Command> {
    let said = NewEvent { kind: "said".into(), data: None };
    let stream = StreamName::new("thread", "1").expect("a name");
    let own =
        StreamAppend { stream: StreamName::of_task(parent), events: vec![said.clone()], expect_seq: None };
    vec![
        StreamAppend { stream, events: vec![said], expect_seq: None }.into(),
        own.into(),
        DocumentPut::json("kind", "name", json("{}")).into(),
        EntrySet::new("entry", json("1")).into(),
        LockAcquire::new("lock", "w").into(),
        TaskCreate { parent: Some(parent), child_key: Some("c".into()), ..plain_create() }.into(),
        TaskSignal { id: other, name: "s".into(), data: None }.into(),
    ]
}

/// How many of those writes are there.
async fn written(store: &Store, other: TaskId, parent: TaskId) -> usize {
    let (backend, namespace) = (&store.backend, &store.namespace);
    let thread = store.events(&StreamName::new("thread", "1").expect("a name")).await.len();
    let said = store.history(parent).await.iter().filter(|kind| *kind == "said").count();
    let document = backend.document_get(namespace, "kind", "name").await.expect("read");
    let entry = backend.entry_get(namespace, "entry").await.expect("read");
    let lock = backend.lock_get(namespace, "lock").await.expect("read");
    let list = statehold_core::query::TaskList { parent: Some(parent), ..Default::default() };
    let children = backend.task_list(namespace, &list).await.expect("listed").items.len();
    let signals = store.log(other).await.len() - 1;
    let there = [document.is_some(), entry.is_some(), lock.is_some()];
    thread + said + there.into_iter().filter(|there| *there).count() + children + signals
}

async fn a_zombie_can_write_nothing(store: Store) {
    let other = store.plain().await;
    let (zombie, token) = store.started("w").await;
    store.clock.advance(30);
    for taken_over in [false, true] {
        if taken_over {
            store.sweep().await;
            store.start(zombie.id, "new").await;
        }
        for command in writes(other.id, zombie.id) {
            let name = command.name();
            let mut batch = store.batch().fence(Fence::Task { task: zombie.id, token });
            batch.commands.push(command);
            let error = refused(store.apply(batch).await, "fenced");
            assert_eq!(error.place(), Some(Place::Fence(0)), "{name}");
        }
        assert_eq!(written(&store, other.id, zombie.id).await, 0);
    }
}

async fn a_live_holder_can_write_everything(store: Store) {
    let other = store.plain().await;
    let (task, token) = store.started("w").await;
    let mut batch = store.batch().fence(Fence::Task { task: task.id, token });
    batch.commands = writes(other.id, task.id);
    store.apply(batch).await.expect("the fence holds");
    assert_eq!(written(&store, other.id, task.id).await, 7);
}

async fn tokens_grow_with_every_start(store: Store) {
    let (task, first) = store.started("w").await;
    assert_eq!(first, Token(store.now().as_micros()));
    store.run(TaskEvict { id: task.id }).await.expect("evicted");
    let (_, second) = store.start(task.id, "w").await;
    assert_eq!(second, Token(first.0 + 1));
    store.clock.advance(1);
    store.run(TaskEvict { id: task.id }).await.expect("evicted");
    let (_, third) = store.start(task.id, "w").await;
    assert_eq!(third, Token(store.now().as_micros()));
}

async fn tokens_grow_when_the_clock_steps_back(store: Store) {
    let (task, first) = store.started("old").await;
    store
        .run(TaskRelease { id: task.id, token: first, run_at: Some(store.now() - Seconds::new(7200)) })
        .await
        .expect("released");
    store.clock.rewind(3600);
    let (_, second) = store.start(task.id, "new").await;
    assert_eq!(second, Token(first.0 + 1));
    store.refuses(task.id, TaskComplete { id: task.id, token: first, output: None }, "fenced").await;
    store.complete(task.id, second).await.expect("the newer token is good");
}

async fn no_error_and_no_event_carries_a_token(store: Store) {
    let (task, _) = store.started("w").await;
    store.run(TaskEvict { id: task.id }).await.expect("evicted");
    // The second token of an instant is not also a time, so that it can be told from one.
    let (task, token) = store.start(task.id, "w").await;
    let (secret, wrong) = (token.0.to_string(), Token(token.0 + 7));
    let error = store.refuses(task.id, renew(task.id, wrong, None), "fenced").await;
    let told = format!("{error} {error:?} {task:?}");
    assert!(!told.contains(&secret) && !told.contains(&wrong.0.to_string()), "{told}");
    store.complete(task.id, token).await.expect("completed");
    let events = format!("{:?}", store.events(&StreamName::of_task(task.id)).await);
    assert!(!events.contains(&secret), "{events}");
}
