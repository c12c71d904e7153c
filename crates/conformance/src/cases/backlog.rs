//! Parking, promoting and amending: changing what a task carries or when its turn comes.

use serde_json::json;
use statehold_core::command::{TaskAmend, TaskCreate, TaskPark, TaskPromote, TaskRenew};
use statehold_core::limits;
use statehold_core::model::TaskId;
use statehold_core::{ErrorKind, Json, Seconds, Status};

use crate::harness::{broken, event, json, plain_create};
use crate::{Case, Store, cases};

pub(super) const CASES: &[Case] = cases![
    a_parked_task_is_not_claimed,
    parking_keeps_the_rank_unless_given,
    a_promoted_task_keeps_its_run_at,
    a_parked_task_does_not_expire_until_promoted,
    a_task_is_promoted_into_waiting_for_open_dependencies,
    a_parked_task_is_not_judged_when_its_dependency_completes,
    a_parked_task_fails_for_its_dependency_only_when_promoted,
    an_amendment_merges_metadata_shallowly,
    an_amendment_merges_labels,
    an_amendment_sets_what_is_given_and_nothing_else,
    an_amendment_of_another_revision_is_refused,
    an_amendment_beyond_the_bounds_is_too_large,
    an_amended_priority_changes_the_turn,
    an_amended_run_at_decides_when_it_is_due,
    an_amended_run_at_holds_after_unblocking,
    an_amended_expiry_counts,
    an_amendment_leaves_a_lease_alone,
];

async fn park(store: &Store, id: TaskId, rank: Option<i64>) {
    store.run(TaskPark { id, rank }).await.expect("the task is parked");
}

async fn amend(store: &Store, amend: TaskAmend) -> statehold_core::model::Task {
    store.run(amend).await.expect("the task is amended")
}

async fn a_parked_task_is_not_claimed(store: Store) {
    let task = store.plain().await;
    store.clock.advance(5);
    let parked = store.run(TaskPark { id: task.id, rank: Some(-4) }).await.expect("the task is parked");
    assert_eq!((parked.status, parked.rank, parked.run_at), (Status::Backlog, -4, task.run_at));
    assert_eq!((parked.revision, parked.updated_at), (2, store.now()));
    assert_eq!(store.log(task.id).await[1..], [event("task.parked", &json!({"rank": -4}))]);
    let claimed = store.claim("w", 10).await;
    assert_eq!((claimed.tasks.len(), claimed.next_at), (0, None));
}

async fn parking_keeps_the_rank_unless_given(store: Store) {
    let task = store.create(TaskCreate { rank: Some(9), ..plain_create() }).await;
    park(&store, task.id, None).await;
    assert_eq!(store.task(task.id).await.rank, 9);
    assert_eq!(store.log(task.id).await[1..], [event("task.parked", &json!({"rank": 9}))]);
}

async fn a_promoted_task_keeps_its_run_at(store: Store) {
    let later = store.now() + Seconds::new(60);
    let task = store.create(TaskCreate { run_at: Some(later), backlog: true, ..plain_create() }).await;
    store.clock.advance(10);
    let promoted = store.run(TaskPromote { id: task.id }).await.expect("the task is promoted");
    assert_eq!((promoted.status, promoted.run_at), (Status::Pending, later));
    assert_eq!((promoted.revision, promoted.updated_at), (2, store.now()));
    assert_eq!(store.log(task.id).await[1..], [event("task.promoted", &json!(null))]);
    assert!(store.claim("w", 1).await.tasks.is_empty());
    store.clock.advance(50);
    assert_eq!(store.claim("w", 1).await.tasks.len(), 1);
}

async fn a_parked_task_does_not_expire_until_promoted(store: Store) {
    let end = Some(store.now() + Seconds::new(10));
    let task = store.create(TaskCreate { expires_at: end, backlog: true, ..plain_create() }).await;
    store.clock.advance(20);
    assert_eq!(store.sweep().await.timers, 0);
    assert_eq!(store.status(task.id).await, Status::Backlog);
    store.run(TaskPromote { id: task.id }).await.expect("the task is promoted");
    assert!(store.claim("w", 1).await.tasks.is_empty());
    store.sweep().await;
    let failed = store.task(task.id).await;
    assert_eq!(failed.status, Status::Failed);
    assert_eq!(failed.error.and_then(|error| error.code).as_deref(), Some("expired"));
}

async fn a_task_is_promoted_into_waiting_for_open_dependencies(store: Store) {
    let open = store.plain().await;
    let task = store.after(&[open.id]).await;
    park(&store, task.id, None).await;
    let promoted = store.run(TaskPromote { id: task.id }).await.expect("the task is promoted");
    assert_eq!(promoted.status, Status::Blocked);
    store.finish(open.id).await;
    assert_eq!(store.status(task.id).await, Status::Pending);
    let log: Vec<_> = store.log(task.id).await.into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(log, ["task.created", "task.parked", "task.promoted", "task.unblocked"]);
}

async fn a_parked_task_is_not_judged_when_its_dependency_completes(store: Store) {
    let open = store.plain().await;
    let task = store.after(&[open.id]).await;
    park(&store, task.id, None).await;
    store.finish(open.id).await;
    store.sweep().await;
    assert_eq!(store.task(task.id).await.revision, 2);
    let promoted = store.run(TaskPromote { id: task.id }).await.expect("the task is promoted");
    assert_eq!((promoted.status, promoted.revision), (Status::Pending, 3));
    store.log(task.id).await;
}

async fn a_parked_task_fails_for_its_dependency_only_when_promoted(store: Store) {
    let (open, bad) = (store.plain().await, store.plain().await);
    let task = store.after(&[open.id, bad.id]).await;
    park(&store, task.id, None).await;
    store.doom(bad.id).await;
    store.sweep().await;
    assert_eq!(store.status(task.id).await, Status::Backlog);
    let promoted = store.run(TaskPromote { id: task.id }).await.expect("the task is promoted");
    assert_eq!((promoted.status, promoted.finished_at), (Status::Failed, Some(store.now())));
    let error = promoted.error.expect("an error");
    assert_eq!(error.code.as_deref(), Some("dependency"));
    assert_eq!(error.details, Some(Json::of(&json!({"task": bad.id})).expect("valid JSON")));
    let failed = event("task.failed", &json!({"error": error}));
    assert_eq!(store.log(task.id).await[2..], [event("task.promoted", &json!(null)), failed]);
}

async fn an_amendment_merges_metadata_shallowly(store: Store) {
    let metadata = Some(json(r#"{"keep":1,"deep":{"a":1,"b":2},"gone":true}"#));
    let task = store.create(TaskCreate { metadata, ..plain_create() }).await;
    let change = Some(json(r#"{"deep":{"b":3},"gone":null,"new":[],"never":null}"#));
    let amended = amend(&store, TaskAmend { id: task.id, metadata: change, ..TaskAmend::default() }).await;
    assert_eq!(amended.metadata, Some(json(r#"{"keep":1,"deep":{"b":3},"new":[]}"#)));
    assert_eq!(store.task(task.id).await, amended);
    let bare = store.plain().await;
    let change = Some(json(r#"{"a":1}"#));
    let amended = amend(&store, TaskAmend { id: bare.id, metadata: change, ..TaskAmend::default() }).await;
    assert_eq!(amended.metadata, Some(json(r#"{"a":1}"#)));
}

async fn an_amendment_merges_labels(store: Store) {
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let labels = [label("keep", "1"), label("change", "1"), label("gone", "1")].into();
    let task = store.create(TaskCreate { labels, ..plain_create() }).await;
    let labels = [("change", Some("2")), ("gone", None), ("new", Some("3")), ("never", None)];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.map(str::to_owned))).into();
    let amended = amend(&store, TaskAmend { id: task.id, labels, ..TaskAmend::default() }).await;
    let expected = [label("keep", "1"), label("change", "2"), label("new", "3")];
    assert_eq!(amended.labels, expected.into());
}

async fn an_amendment_sets_what_is_given_and_nothing_else(store: Store) {
    let task = store.create(TaskCreate { metadata: Some(json(r#"{"a":1}"#)), ..plain_create() }).await;
    store.clock.advance(5);
    let (later, end) = (store.now() + Seconds::new(60), store.now() + Seconds::new(90));
    let change = TaskAmend {
        id: task.id,
        revision: Some(1),
        priority: Some(4),
        rank: Some(5),
        run_at: Some(later),
        expires_at: Some(end),
        ..TaskAmend::default()
    };
    let amended = amend(&store, change).await;
    let mut expected = task.clone();
    (expected.priority, expected.rank, expected.run_at) = (4, 5, later);
    (expected.expires_at, expected.revision, expected.updated_at) = (Some(end), 2, store.now());
    assert_eq!(amended, expected);
    assert_eq!(store.task(task.id).await, expected);
    assert_eq!(store.log(task.id).await[1..], [event("task.amended", &json!(null))]);
}

async fn an_amendment_of_another_revision_is_refused(store: Store) {
    let (task, _) = store.started("w").await;
    for revision in [1, 3] {
        let change = TaskAmend { id: task.id, revision: Some(revision), ..TaskAmend::default() };
        let error = store.refuses(task.id, change, "precondition_failed").await;
        assert_eq!(*error.kind(), ErrorKind::PreconditionFailed { revision: Some(2) });
    }
}

async fn an_amendment_beyond_the_bounds_is_too_large(store: Store) {
    let labels = |from: usize, to: usize| (from..to).map(|n| (format!("l{n}"), "v".to_owned()));
    let half = Some(json(&format!(r#"{{"a":"{}"}}"#, "x".repeat(600_000))));
    let task =
        store.create(TaskCreate { labels: labels(0, 60).collect(), metadata: half, ..plain_create() }).await;
    let more = |to| labels(60, to).map(|(key, value)| (key, Some(value))).collect();
    let change = TaskAmend { id: task.id, labels: more(65), ..TaskAmend::default() };
    store.refuses(task.id, change, "too_large").await;
    // `{"a":"…","b":"…"}` has 15 bytes beside the two texts.
    let rest = |bytes: usize| Some(json(&format!(r#"{{"b":"{}"}}"#, "x".repeat(bytes - 600_015))));
    let change = TaskAmend { id: task.id, metadata: rest(limits::BODY + 1), ..TaskAmend::default() };
    store.refuses(task.id, change, "too_large").await;
    let metadata = rest(limits::BODY);
    let fits =
        amend(&store, TaskAmend { id: task.id, labels: more(64), metadata, ..TaskAmend::default() }).await;
    assert_eq!((fits.labels.len(), fits.metadata.map(|all| all.size())), (64, Some(limits::BODY)));
}

async fn an_amended_priority_changes_the_turn(store: Store) {
    let first = store.plain().await;
    store.clock.advance(1);
    let second = store.plain().await;
    amend(&store, TaskAmend { id: second.id, priority: Some(-1), ..TaskAmend::default() }).await;
    let ids: Vec<_> = store.claim("w", 2).await.tasks.iter().map(|task| task.id).collect();
    assert_eq!(ids, [second.id, first.id]);
}

async fn an_amended_run_at_decides_when_it_is_due(store: Store) {
    let task = store.plain().await;
    let later = store.now() + Seconds::new(60);
    let change = |run_at| TaskAmend { id: task.id, run_at: Some(run_at), ..TaskAmend::default() };
    amend(&store, change(later)).await;
    let claimed = store.claim("w", 1).await;
    assert_eq!((claimed.tasks.len(), claimed.next_at), (0, Some(later)));
    amend(&store, change(store.now())).await;
    assert_eq!(store.claim("w", 1).await.tasks.len(), 1);
}

async fn an_amended_run_at_holds_after_unblocking(store: Store) {
    let open = store.plain().await;
    let task = store.after(&[open.id]).await;
    let later = store.now() + Seconds::new(60);
    amend(&store, TaskAmend { id: task.id, run_at: Some(later), ..TaskAmend::default() }).await;
    store.finish(open.id).await;
    let unblocked = store.task(task.id).await;
    assert_eq!((unblocked.status, unblocked.run_at), (Status::Pending, later));
    assert!(store.claim("w", 1).await.tasks.is_empty());
    store.clock.advance(60);
    assert_eq!(store.claim("w", 1).await.tasks.len(), 1);
}

async fn an_amended_expiry_counts(store: Store) {
    let task = store.plain().await;
    let end = Some(store.now() + Seconds::new(10));
    amend(&store, TaskAmend { id: task.id, expires_at: end, ..TaskAmend::default() }).await;
    store.clock.advance(10);
    assert!(store.claim("w", 1).await.tasks.is_empty());
    let failed = store.task(task.id).await;
    assert_eq!((failed.status, failed.finished_at), (Status::Failed, Some(store.now())));
}

async fn an_amendment_leaves_a_lease_alone(store: Store) {
    let (task, token) = store.started("w").await;
    let metadata = Some(json(r#"{"note":"x"}"#));
    let amended = amend(&store, TaskAmend { id: task.id, metadata, ..TaskAmend::default() }).await;
    assert_eq!((amended.status, &amended.lease, amended.revision), (Status::Running, &task.lease, 3));
    let renew = TaskRenew { id: task.id, token, lease_seconds: None, progress: None };
    store.run(renew).await.expect("the lease is renewed");
    let failed = store.fail(task.id, token).await.expect("the token is good");
    assert_eq!(failed.error, Some(broken()));
}
