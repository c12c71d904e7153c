//! Keys of batches: what makes a batch safe to repeat, for whom and for how long.

use statehold_core::batch::{Batch, BatchKey, Fence};
use statehold_core::command::{
    Command, EntrySet, LockAcquire, LockRelease, LockRenew, TaskComplete, TaskCreate, TaskRenew,
};
use statehold_core::dump::Record;
use statehold_core::error::Place;
use statehold_core::model::{StreamName, TaskId};
use statehold_core::query::TaskList;

use crate::harness::{Store, appending, at_once, json, plain_create, refused, stream};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_repeated_batch_answers_the_same_and_does_nothing,
    a_repeated_batch_answers_also_after_its_fence_went_stale,
    a_key_with_another_request_is_a_conflict,
    requests_are_compared_as_values,
    a_key_belongs_to_its_actor,
    a_refusal_is_not_remembered,
    a_key_is_forgotten_after_24_hours,
    a_key_is_kept_as_long_as_it_says,
    a_sweep_removes_forgotten_answers,
    what_repeats_by_nature_stores_nothing,
    what_does_not_repeat_by_nature_is_stored,
    a_batch_tried_again_finds_the_task_of_its_first_try,
    of_many_repeats_at_once_one_is_applied,
];

fn logging(store: &Store, key: &str) -> Batch {
    let mut batch = store.batch().key(key);
    batch.add(appending("log/1", &["a"]));
    batch.add(TaskCreate::new("k"));
    batch.add(LockAcquire::new(format!("lock/{key}"), "me"));
    batch
}

async fn logged(store: &Store) -> usize {
    store.events(&stream("log/1")).await.len()
}

async fn answers(store: &Store) -> usize {
    store.dump().await.iter().filter(|record| matches!(record, Record::Answer(_))).count()
}

async fn a_repeated_batch_answers_the_same_and_does_nothing(store: Store) {
    let first = store.apply(logging(&store, "k")).await.expect("applied");
    assert!(!first.replayed);
    let before = store.dump().await;
    store.clock.advance(100);
    let second = store.apply(logging(&store, "k")).await.expect("answered");
    assert!(second.replayed);
    assert_eq!(second.replies, first.replies, "ids, tokens and times are those of the first");
    assert_eq!(store.dump().await, before);
}

async fn a_repeated_batch_answers_also_after_its_fence_went_stale(store: Store) {
    let (task, token) = store.started("w").await;
    let batch = logging(&store, "k").fence(Fence::Task { task: task.id, token });
    let first = store.apply(batch.clone()).await.expect("the fence holds");
    store.complete(task.id, token).await.expect("completed");
    let second = store.apply(batch.clone()).await.expect("answered");
    assert_eq!((second.replayed, second.replies), (true, first.replies));
    let other = Batch { key: Some(BatchKey::new("other")), ..batch };
    let error = refused(store.apply(other).await, "fenced");
    assert_eq!(error.place(), Some(Place::Fence(0)));
    assert_eq!(logged(&store).await, 1);
}

async fn a_key_with_another_request_is_a_conflict(store: Store) {
    store.apply(logging(&store, "k")).await.expect("applied");
    let before = store.dump().await;
    let mut longer = logging(&store, "k");
    longer.add(EntrySet::new("e", json("1")));
    let other = Batch::of(&store.namespace, EntrySet::new("e", json("1"))).0.key("k");
    for batch in [longer, other] {
        let error = refused(store.apply(batch).await, "conflict");
        assert_eq!(error.place(), Some(Place::Key));
        assert_eq!(error.key(), Some("k"));
        assert_eq!(store.dump().await, before);
    }
    assert!(store.apply(logging(&store, "k")).await.expect("answered").replayed);
}

async fn requests_are_compared_as_values(store: Store) {
    let batch = |value: &str| Batch::of(&store.namespace, EntrySet::new("e", json(value))).0.key("k");
    store.apply(batch(r#"{"a": 1, "b": [1, 2]}"#)).await.expect("applied");
    assert!(store.apply(batch(r#"{"b":[1,2],"a":1}"#)).await.expect("answered").replayed);
    refused(store.apply(batch(r#"{"b":[2,1],"a":1}"#)).await, "conflict");
}

async fn a_key_belongs_to_its_actor(store: Store) {
    let batch = || {
        let mut batch = store.batch().key("k");
        batch.add(appending("log/1", &["a"]));
        batch
    };
    for actor in ["alice", "bob"] {
        assert!(!store.apply(batch().actor(actor)).await.expect("applied").replayed);
        assert!(store.apply(batch().actor(actor)).await.expect("answered").replayed);
    }
    assert!(!store.apply(batch()).await.expect("applied").replayed, "nobody in particular is another actor");
    assert_eq!(logged(&store).await, 3);
    let other = Batch::of(&store.namespace, EntrySet::new("e", json("1"))).0.key("k").actor("carol");
    assert!(!store.apply(other).await.expect("another actor's key may mean another request").replayed);
}

async fn a_refusal_is_not_remembered(store: Store) {
    let held = store.run(LockAcquire::new("lock/k", "other")).await.expect("acquired");
    refused(store.apply(logging(&store, "k")).await, "held");
    assert_eq!(answers(&store).await, 0);
    store.run(LockRelease { key: "lock/k".into(), token: held.token }).await.expect("released");
    assert!(!store.apply(logging(&store, "k")).await.expect("applied now").replayed);
    assert_eq!(logged(&store).await, 1);
}

async fn a_key_is_forgotten_after_24_hours(store: Store) {
    store.apply(logging(&store, "k")).await.expect("applied");
    store.clock.advance(86_399);
    assert!(store.apply(logging(&store, "k")).await.expect("answered").replayed);
    store.clock.advance(1);
    let other = Batch::of(&store.namespace, EntrySet::new("e", json("1"))).0.key("k");
    assert!(!store.apply(other).await.expect("the key is free, also before a sweep").replayed);
    assert_eq!(logged(&store).await, 1);
}

async fn a_key_is_kept_as_long_as_it_says(store: Store) {
    let batch = || Batch { key: Some(BatchKey { key: "k".into(), keep: 60.into() }), ..logging(&store, "k") };
    store.apply(batch()).await.expect("applied");
    store.clock.advance(59);
    assert!(store.apply(batch()).await.expect("answered").replayed, "a repeat does not keep it longer");
    store.clock.advance(1);
    assert!(!store.apply(batch()).await.expect("applied again").replayed);
    assert_eq!(logged(&store).await, 2);
}

async fn a_sweep_removes_forgotten_answers(store: Store) {
    let entry = |n: u32| Batch::of(&store.namespace, EntrySet::new(format!("{n}"), json("1"))).0;
    for n in 0..3 {
        store.apply(entry(n).key(format!("k{n}"))).await.expect("applied");
    }
    store
        .apply(Batch { key: Some(BatchKey { key: "k".into(), keep: 60.into() }), ..entry(3) })
        .await
        .expect("applied");
    assert_eq!(answers(&store).await, 4);
    store.clock.advance(60);
    assert_eq!(store.sweep().await.answers, 1);
    assert_eq!(answers(&store).await, 3);
    store.clock.advance(86_400);
    assert_eq!(store.sweep().await.answers, 3);
    assert_eq!(answers(&store).await, 0);
}

async fn what_repeats_by_nature_stores_nothing(store: Store) {
    let (task, token) = store.started("w").await;
    let (renewing, renewed) = store.started("w").await;
    let lock = store.run(LockAcquire::new("l", "w")).await.expect("acquired").token;
    let freed = store.run(LockAcquire::new("freed", "w")).await.expect("acquired").token;
    let parent = store.plain().await.id;
    let commands: Vec<Command> = vec![
        TaskCreate { idempotency_key: Some("i".into()), ..plain_create() }.into(),
        TaskCreate { id: Some(TaskId::generate()), ..plain_create() }.into(),
        TaskCreate { parent: Some(parent), child_key: Some("c".into()), ..plain_create() }.into(),
        TaskComplete { id: task.id, token, output: Some(json("1")) }.into(),
        TaskRenew { id: renewing.id, token: renewed, lease_seconds: None, progress: None }.into(),
        LockRenew { key: "l".into(), token: lock, ttl_seconds: 60.into() }.into(),
        LockRelease { key: "freed".into(), token: freed }.into(),
    ];
    for (n, command) in commands.into_iter().enumerate() {
        let batch = Batch { commands: vec![command], ..store.batch().key(format!("k{n}")) };
        store.apply(batch.clone()).await.expect("applied");
        let before = store.dump().await;
        let again = store.apply(batch).await.expect("repeated");
        assert!(!again.replayed, "no answer is stored for {n}");
        assert_eq!(store.dump().await, before, "repeating {n} does nothing");
    }
    assert_eq!(answers(&store).await, 0);
    store.apply(logging(&store, "used")).await.expect("applied");
    let create = TaskCreate { idempotency_key: Some("j".into()), ..plain_create() };
    let batch = Batch::of(&store.namespace, create).0.key("used");
    store.apply(batch).await.expect("its key is not looked up either");
}

async fn what_does_not_repeat_by_nature_is_stored(store: Store) {
    let create = TaskCreate { idempotency_key: Some("i".into()), ..plain_create() };
    let mut mixed = store.batch().key("mixed");
    mixed.add(create.clone());
    mixed.add(appending("log/1", &["a"]));
    store.apply(mixed.clone()).await.expect("applied");
    assert_eq!(answers(&store).await, 1);
    assert!(store.apply(mixed).await.expect("answered").replayed);

    let (task, token) = store.started("w").await;
    let create = TaskCreate { idempotency_key: Some("j".into()), ..create };
    let fenced =
        Batch::of(&store.namespace, create).0.key("fenced").fence(Fence::Task { task: task.id, token });
    store.apply(fenced.clone()).await.expect("applied");
    assert_eq!(answers(&store).await, 2, "a fence may go stale");
    store.complete(task.id, token).await.expect("completed");
    assert!(store.apply(fenced).await.expect("answered").replayed);
}

async fn a_batch_tried_again_finds_the_task_of_its_first_try(store: Store) {
    let (batch, created) = Batch::of(&store.namespace, plain_create());
    let prepared = batch.prepare().expect("a good batch");
    let mut first = store.backend.apply(prepared.clone()).await.expect("applied");
    let first = first.take(created).expect("created");
    let mut second = store.backend.apply(prepared.again()).await.expect("answered");
    let second = second.take(created).expect("answered");
    assert_eq!((first.created, second.created), (true, false));
    assert_eq!(second.task, first.task);
    let all = store.backend.task_list(&store.namespace, &TaskList::default()).await.expect("listed");
    assert_eq!(all.items.len(), 1);
    assert_eq!(store.events(&StreamName::of_task(first.task.id)).await.len(), 1);
}

async fn of_many_repeats_at_once_one_is_applied(store: Store) {
    let answers = at_once(100, |_| {
        let store = store.clone();
        async move { store.apply(logging(&store, "k")).await.expect("applied or answered") }
    })
    .await;
    assert_eq!(answers.iter().filter(|answer| !answer.replayed).count(), 1);
    assert!(answers.iter().all(|answer| answer.replies == answers[0].replies));
    assert_eq!(logged(&store).await, 1);
    let all = store.backend.task_list(&store.namespace, &TaskList::default()).await.expect("listed");
    assert_eq!(all.items.len(), 1);
}
