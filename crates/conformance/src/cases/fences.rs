//! Fences: what a batch must still hold, and that nothing gets past one that is lost.

use statehold_core::ErrorKind;
use statehold_core::batch::{Batch, Fence};
use statehold_core::clock::Timestamp;
use statehold_core::command::{
    Command, DocumentDelete, DocumentPut, EntryDelete, EntrySet, EntryTake, Expect, GroupAck, GroupNack,
    GroupSeek, LockAcquire, LockForceRelease, LockRelease, LockRenew, QueueSet, SeekTo, StreamPurge,
    StreamTrim, TaskAmend, TaskCancel, TaskComplete, TaskCreate, TaskEvict, TaskSignal, TaskStart, TrimTo,
};
use statehold_core::error::Place;
use statehold_core::model::{Delivered, Position, Source, StreamName, TaskId, Token};

use crate::harness::{Store, appending, json, plain_create, proof, refused, stream, token_of};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_tasks_fence_holds_while_it_is_leased,
    a_tasks_fence_is_lost_to_the_next_owner,
    a_tasks_fence_is_lost_with_the_attempts_timeout,
    a_tasks_fence_is_lost_with_its_end,
    a_fence_on_what_never_was_is_fenced,
    a_locks_fence_holds_while_it_is_held,
    a_locks_fence_is_lost_to_the_next_owner,
    a_locks_fence_is_lost_with_its_release,
    a_deliverys_fence_holds_while_it_is_visible_to_nobody_else,
    a_deliverys_fence_is_lost_with_ack_nack_and_seek,
    a_lost_fence_refuses_every_command,
    no_refusal_carries_a_token,
];

fn writing(store: &Store, fence: Fence) -> Batch {
    Batch::of(&store.namespace, appending("log/1", &["a"])).0.fence(fence)
}

/// Applies a batch whose only fence must be lost.
async fn lost(store: &Store, fence: Fence) -> ErrorKind {
    let error = refused(store.apply(writing(store, fence)).await, "fenced");
    assert_eq!(error.place(), Some(Place::Fence(0)));
    assert!(error.is_fenced() && !error.is_retryable());
    error.kind().clone()
}

async fn holds(store: &Store, fence: Fence) {
    store.apply(writing(store, fence)).await.expect("the fence holds");
}

fn since(lost_at: Timestamp) -> ErrorKind {
    ErrorKind::Fenced { lost_at: Some(lost_at), owner: None }
}

fn to(owner: &str, lost_at: Timestamp) -> ErrorKind {
    ErrorKind::Fenced { lost_at: Some(lost_at), owner: Some(owner.into()) }
}

async fn a_tasks_fence_holds_while_it_is_leased(store: Store) {
    let (task, token) = store.started("a").await;
    let fence = Fence::Task { task: task.id, token };
    holds(&store, fence.clone()).await;
    store.clock.advance(29);
    holds(&store, fence.clone()).await;
    store.clock.advance(1);
    assert_eq!(
        lost(&store, fence.clone()).await,
        since(store.now()),
        "the lease is over, though nobody swept"
    );
    store.clock.advance(10);
    assert_eq!(lost(&store, fence).await, since(store.now() - 10.into()));
    let wrong = Fence::Task { task: store.started("b").await.0.id, token: Token(1) };
    assert_eq!(lost(&store, wrong).await, to("b", store.now()));
}

async fn a_tasks_fence_is_lost_to_the_next_owner(store: Store) {
    let (task, token) = store.started("a").await;
    store.clock.advance(30);
    assert_eq!(store.sweep().await.leases, 1);
    let swept_at = store.now();
    store.clock.advance(1);
    let fence = Fence::Task { task: task.id, token };
    assert_eq!(lost(&store, fence.clone()).await, since(swept_at), "it is not running since its last change");
    let (_, next) = store.start(task.id, "b").await;
    assert!(next > token);
    store.clock.advance(1);
    assert_eq!(lost(&store, fence).await, to("b", store.now() - 1.into()));
    holds(&store, Fence::Task { task: task.id, token: next }).await;
}

async fn a_tasks_fence_is_lost_with_the_attempts_timeout(store: Store) {
    let create = TaskCreate { timeout_seconds: Some(10.into()), ..plain_create() };
    let task = store.create(create).await;
    let start = TaskStart { id: task.id, owner: "a".into(), lease_seconds: None };
    let token = token_of(&store.run(start).await.expect("started"));
    let fence = Fence::Task { task: task.id, token };
    store.clock.advance(9);
    holds(&store, fence.clone()).await;
    store.clock.advance(1);
    assert_eq!(lost(&store, fence).await, since(store.now()));
}

async fn a_tasks_fence_is_lost_with_its_end(store: Store) {
    let (task, token) = store.started("a").await;
    store.complete(task.id, token).await.expect("completed");
    store.clock.advance(5);
    let fence = Fence::Task { task: task.id, token };
    assert_eq!(lost(&store, fence).await, since(store.now() - 5.into()));
}

async fn a_fence_on_what_never_was_is_fenced(store: Store) {
    let token = Token(1);
    let nobody = ErrorKind::Fenced { lost_at: None, owner: None };
    assert_eq!(lost(&store, Fence::Task { task: TaskId::generate(), token }).await, nobody);
    assert_eq!(lost(&store, Fence::Lock { lock: "none".into(), token }).await, nobody);
    let source = Source::Stream(stream("none/1"));
    let position = Position::from_number(1);
    let fence = Fence::Delivery { group: "none".into(), source, position, delivery_token: token };
    lost(&store, fence).await;
    let waiting = store.plain().await;
    lost(&store, Fence::Task { task: waiting.id, token: Token(0) }).await;
}

async fn a_locks_fence_holds_while_it_is_held(store: Store) {
    let held = store.run(LockAcquire::new("l", "a")).await.expect("acquired");
    let fence = Fence::Lock { lock: "l".into(), token: held.token };
    holds(&store, fence.clone()).await;
    store.clock.advance(59);
    holds(&store, fence.clone()).await;
    let renew = LockRenew { key: "l".into(), token: held.token, ttl_seconds: 10.into() };
    let renewed = store.run(renew).await.expect("renewed");
    store.clock.advance(9);
    holds(&store, fence.clone()).await;
    store.clock.advance(1);
    assert_eq!(lost(&store, fence).await, since(renewed.expires_at));
}

async fn a_locks_fence_is_lost_to_the_next_owner(store: Store) {
    let first = store.run(LockAcquire::new("l", "a")).await.expect("acquired").token;
    store.clock.advance(60);
    let second = store.run(LockAcquire::new("l", "b")).await.expect("it had expired").token;
    store.clock.advance(1);
    let kind = lost(&store, Fence::Lock { lock: "l".into(), token: first }).await;
    assert_eq!(kind, to("b", store.now() - 1.into()));
    holds(&store, Fence::Lock { lock: "l".into(), token: second }).await;
}

async fn a_locks_fence_is_lost_with_its_release(store: Store) {
    let token = store.run(LockAcquire::new("l", "a")).await.expect("acquired").token;
    let fence = Fence::Lock { lock: "l".into(), token };
    store.run(LockRelease { key: "l".into(), token }).await.expect("released");
    let kind = lost(&store, fence).await;
    assert!(matches!(kind, ErrorKind::Fenced { owner: None, .. }), "nobody has it: {kind:?}");
    let token = store.run(LockAcquire::new("l", "a")).await.expect("acquired").token;
    store.run(LockForceRelease { key: "l".into() }).await.expect("freed");
    let kind = lost(&store, Fence::Lock { lock: "l".into(), token }).await;
    assert!(matches!(kind, ErrorKind::Fenced { owner: None, .. }), "nobody has it: {kind:?}");
}

fn on_delivery(source: &Source, delivered: &Delivered) -> Fence {
    Fence::Delivery {
        group: "g".into(),
        source: source.clone(),
        position: delivered.event.position.clone(),
        delivery_token: delivered.delivery_token,
    }
}

async fn a_deliverys_fence_holds_while_it_is_visible_to_nobody_else(store: Store) {
    store.append("in/1", &["a"]).await;
    let source = Source::Category("in".into());
    let first = store.deliver("g", &source, "c1").await.remove(0);
    let fence = on_delivery(&source, &first);
    store.clock.advance(29);
    holds(&store, fence.clone()).await;
    let other_source = on_delivery(&Source::Stream(stream("in/1")), &first);
    lost(&store, other_source).await;
    store.clock.advance(1);
    lost(&store, fence.clone()).await;
    let second = store.deliver("g", &source, "c2").await.remove(0);
    lost(&store, fence).await;
    holds(&store, on_delivery(&source, &second)).await;
}

async fn a_deliverys_fence_is_lost_with_ack_nack_and_seek(store: Store) {
    store.append("in/1", &["a", "b", "c"]).await;
    let source = Source::Stream(stream("in/1"));
    let delivered = store.deliver("g", &source, "c").await;
    let (group, one) = ("g".to_owned(), |n: usize| vec![proof(&delivered[n])]);
    let ack = GroupAck { group: group.clone(), source: source.clone(), deliveries: one(0) };
    store.run(ack).await.expect("acknowledged");
    let nack =
        GroupNack { group: group.clone(), source: source.clone(), deliveries: one(1), delay_seconds: None };
    store.run(nack).await.expect("given back");
    lost(&store, on_delivery(&source, &delivered[0])).await;
    lost(&store, on_delivery(&source, &delivered[1])).await;
    holds(&store, on_delivery(&source, &delivered[2])).await;
    store.run(GroupSeek { group, source: source.clone(), to: SeekTo::Oldest }).await.expect("sought");
    lost(&store, on_delivery(&source, &delivered[2])).await;
}

/// One write of every kind, each of which would be accepted without the fence.
async fn writes(store: &Store) -> Vec<Command> {
    store.append("s/1", &["a", "b"]).await;
    let source = Source::Stream(stream("s/1"));
    let delivered = store.deliver("g", &source, "c").await;
    let (group, one) = ("g".to_owned(), |n: usize| vec![proof(&delivered[n])]);
    store.run(EntrySet::new("e", json("1"))).await.expect("set");
    store.run(DocumentPut::json("d", "n", json("1"))).await.expect("put");
    let lock = store.run(LockAcquire::new("l", "me")).await.expect("acquired").token;
    let (running, token) = store.started("other").await;
    let id = store.plain().await.id;
    vec![
        plain_create().into(),
        TaskComplete { id: running.id, token, output: None }.into(),
        TaskSignal { id, name: "n".into(), data: None }.into(),
        TaskCancel { id, force: false, children: false }.into(),
        TaskAmend { id, priority: Some(1), ..TaskAmend::default() }.into(),
        QueueSet { queue: "q".into(), paused: true }.into(),
        appending("s/1", &["c"]).into(),
        appending(&format!("task/{id}"), &["c"]).into(),
        StreamTrim { stream: stream("s/1"), to: TrimTo::Length(1) }.into(),
        StreamPurge { stream: stream("s/1") }.into(),
        GroupAck { group: group.clone(), source: source.clone(), deliveries: one(0) }.into(),
        GroupNack { group: group.clone(), source: source.clone(), deliveries: one(1), delay_seconds: None }
            .into(),
        GroupSeek { group, source, to: SeekTo::Latest }.into(),
        DocumentPut::json("d", "n", json("2")).into(),
        DocumentDelete { kind: "d".into(), name: "n".into(), expect: Expect::Any }.into(),
        EntrySet::new("e", json("2")).into(),
        EntryTake { key: "e".into() }.into(),
        EntryDelete { key: "e".into() }.into(),
        LockAcquire::new("free", "me").into(),
        LockRenew { key: "l".into(), token: lock, ttl_seconds: 5.into() }.into(),
        LockRelease { key: "l".into(), token: lock }.into(),
        LockForceRelease { key: "l".into() }.into(),
    ]
}

async fn a_lost_fence_refuses_every_command(store: Store) {
    let (task, stale) = store.started("zombie").await;
    store.run(TaskEvict { id: task.id }).await.expect("evicted");
    store.start(task.id, "heir").await;
    let writes = writes(&store).await;
    let before = store.dump().await;
    for write in writes {
        let fence = Fence::Task { task: task.id, token: stale };
        let batch = Batch { commands: vec![write.clone()], ..store.batch().fence(fence) };
        let error = refused(store.apply(batch).await, "fenced");
        assert_eq!(error.place(), Some(Place::Fence(0)), "{write:?}");
        assert_eq!(store.dump().await, before, "{write:?} got past the fence");
    }
}

async fn no_refusal_carries_a_token(store: Store) {
    let (task, token) = store.started("a").await;
    let lock = store.run(LockAcquire::new("l", "a")).await.expect("acquired").token;
    let fences = [
        Fence::Task { task: task.id, token: Token(token.0 - 1) },
        Fence::Lock { lock: "l".into(), token: Token(lock.0 - 1) },
    ];
    for fence in fences {
        let error = refused(store.apply(writing(&store, fence)).await, "fenced");
        let kind = json(&serde_json::to_string(error.kind()).expect("a kind can be written"));
        for secret in [token, lock, Token(token.0 - 1)] {
            let secret = secret.0.to_string();
            assert!(!error.to_string().contains(&secret), "{error}");
            assert!(!kind.as_str().contains(&secret), "{kind:?}");
        }
    }
    refused(store.run(LockAcquire::new("l", "b")).await, "held");
    let events = store.events(&StreamName::of_task(task.id)).await;
    let shown = serde_json::to_string(&events).expect("events can be written");
    assert!(!shown.contains(&token.0.to_string()), "{shown}");
}
