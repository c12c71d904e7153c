//! What start, complete, release and evict do to a task, field by field.

use serde_json::json;
use statehold_core::command::{
    Command, NewEvent, StreamAppend, TaskAmend, TaskCancel, TaskComplete, TaskCreate, TaskEvict, TaskFail,
    TaskPark, TaskPromote, TaskPurge, TaskRelease, TaskRenew, TaskRetry, TaskSignal, TaskStart, TaskSuspend,
};
use statehold_core::error::Place;
use statehold_core::model::{OnTimeout, StreamName, TaskId, Token, WaitFor};
use statehold_core::{ErrorKind, Seconds, Status};

use crate::harness::{broken, event, json, plain_create, refused, token_of};
use crate::{Case, Store, cases};

pub(super) const CASES: &[Case] = cases![
    a_start_leases_the_task_and_counts_the_attempt,
    a_start_forgets_progress_and_keeps_the_error,
    a_start_can_be_without_end,
    a_start_before_its_time_is_refused,
    a_start_of_an_expired_task_is_refused,
    a_start_of_a_due_task_needs_no_sweep,
    a_start_works_in_a_paused_queue,
    every_command_on_a_missing_task_is_not_found,
    a_completion_ends_the_task_with_its_output,
    a_completion_forgets_the_error,
    a_repeated_completion_answers_the_same,
    a_completion_with_another_token_is_fenced,
    a_release_counts_for_nothing,
    a_release_can_name_a_time,
    an_eviction_takes_the_task_from_its_owner,
    appended_events_come_before_lifecycle_events,
    a_batch_that_starts_and_creates_does_both,
    a_whole_life_is_told_in_events,
];

fn start(id: TaskId) -> TaskStart {
    TaskStart { id, owner: "w".into(), lease_seconds: Some(30.into()) }
}

async fn a_start_leases_the_task_and_counts_the_attempt(store: Store) {
    let task = store.plain().await;
    store.clock.advance(5);
    let now = store.now();
    let running = store.run(start(task.id)).await.expect("the task starts");
    assert_eq!((running.status, running.attempt, running.revision), (Status::Running, 1, 2));
    assert_eq!((running.started_at, running.updated_at, running.run_at), (Some(now), now, task.run_at));
    let lease = running.lease.as_ref().expect("a lease");
    assert_eq!((lease.owner.as_str(), lease.token), ("w", Token(now.as_micros())));
    assert_eq!((lease.started_at, lease.heartbeat_at), (now, now));
    assert_eq!(lease.expires_at, Some(now + Seconds::new(30)));
    assert_eq!(store.task(task.id).await, running);
    let log = store.log(task.id).await;
    assert_eq!(log[1..], [event("task.started", &json!({"owner": "w", "attempt": 1}))]);
}

async fn a_start_forgets_progress_and_keeps_the_error(store: Store) {
    let (task, token) = store.started("w").await;
    let renew = TaskRenew { id: task.id, token, lease_seconds: None, progress: Some(json("0.5")) };
    store.run(renew).await.expect("the lease is renewed");
    let failed = store.fail(task.id, token).await.expect("the attempt fails");
    assert_eq!(failed.progress, Some(json("0.5")));
    store.clock.advance(100);
    let (again, _) = store.start(task.id, "w").await;
    assert_eq!((again.progress, again.error), (None, Some(broken())));
    assert_eq!((again.attempt, again.failures), (2, 1));
}

async fn a_start_can_be_without_end(store: Store) {
    let task = store.plain().await;
    let running = store.run(TaskStart { lease_seconds: None, ..start(task.id) }).await;
    let running = running.expect("the task starts");
    assert_eq!(running.lease.as_ref().and_then(|lease| lease.expires_at), None);
    store.clock.advance(100_000_000);
    assert_eq!(store.sweep().await.leases, 0);
    store.complete(task.id, token_of(&running)).await.expect("still leased");
}

async fn a_start_before_its_time_is_refused(store: Store) {
    let later = store.now() + Seconds::new(10);
    let task = store.create(TaskCreate { run_at: Some(later), ..plain_create() }).await;
    store.clock.advance(Seconds::from_micros(9_999_999));
    let error = store.refuses(task.id, start(task.id), "invalid_transition").await;
    let allowed = vec![Status::Running, Status::Backlog, Status::Failed, Status::Cancelled];
    let expected = ErrorKind::InvalidTransition { from: Status::Pending, to: Status::Running, allowed };
    assert_eq!(*error.kind(), expected);
}

async fn a_start_of_an_expired_task_is_refused(store: Store) {
    let end = Some(store.now() + Seconds::new(10));
    let task = store.create(TaskCreate { expires_at: end, ..plain_create() }).await;
    store.clock.advance(10);
    store.refuses(task.id, start(task.id), "invalid_transition").await;
}

async fn a_start_of_a_due_task_needs_no_sweep(store: Store) {
    let later = store.now() + Seconds::new(10);
    let task = store.create(TaskCreate { run_at: Some(later), ..plain_create() }).await;
    store.clock.advance(10);
    let (running, _) = store.start(task.id, "w").await;
    assert_eq!((running.status, running.run_at), (Status::Running, later));
    store.sweep().await;
    assert_eq!(store.task(task.id).await, running);
}

async fn a_start_works_in_a_paused_queue(store: Store) {
    let task = store.plain().await;
    let pause = statehold_core::command::QueueSet { queue: "q".into(), paused: true };
    store.run(pause).await.expect("the queue is paused");
    assert_eq!(store.start(task.id, "w").await.0.status, Status::Running);
}

async fn every_command_on_a_missing_task_is_not_found(store: Store) {
    let (id, token) = (TaskId::generate(), Token(1));
    let (waiting_for, on_timeout) = (WaitFor::Signal("s".into()), OnTimeout::Resume);
    let commands: [Command; 14] = [
        start(id).into(),
        TaskRenew { id, token, lease_seconds: None, progress: None }.into(),
        TaskComplete { id, token, output: None }.into(),
        TaskFail { id, token, error: broken(), retry: true }.into(),
        TaskRelease { id, token, run_at: None }.into(),
        TaskSuspend { id, token, waiting_for, timeout_seconds: None, on_timeout }.into(),
        TaskSignal { id, name: "s".into(), data: None }.into(),
        TaskCancel { id, force: true, children: true }.into(),
        TaskEvict { id }.into(),
        TaskRetry { id, with_dependents: true }.into(),
        TaskPromote { id }.into(),
        TaskPark { id, rank: None }.into(),
        TaskAmend { id, revision: Some(1), ..TaskAmend::default() }.into(),
        TaskPurge { id }.into(),
    ];
    for command in commands {
        let name = command.name();
        let mut batch = store.batch();
        batch.commands.push(command);
        let error = refused(store.apply(batch).await, "not_found");
        assert_eq!(error.key(), Some(id.to_string().as_str()), "{name}");
        assert_eq!(error.place(), Some(Place::Command(0)), "{name}");
    }
    assert_eq!(store.find(id).await, None);
}

async fn a_completion_ends_the_task_with_its_output(store: Store) {
    let (task, token) = store.started("w").await;
    store.clock.advance(7);
    let output = Some(json(r#"{"answer":42}"#));
    let done = store.run(TaskComplete { id: task.id, token, output: output.clone() }).await;
    let done = done.expect("the task completes");
    assert_eq!((done.status, done.revision, done.attempt), (Status::Completed, 3, 1));
    assert_eq!((&done.output, &done.error, &done.lease), (&output, &None, &None));
    assert_eq!((done.finished_at, done.updated_at), (Some(store.now()), store.now()));
    assert_eq!((done.started_at, done.failures), (task.started_at, 0));
    assert_eq!(store.task(task.id).await, done);
    assert_eq!(store.log(task.id).await[2..], [event("task.completed", &json!({"attempt": 1}))]);
}

async fn a_completion_forgets_the_error(store: Store) {
    let (task, token) = store.started("w").await;
    store.fail(task.id, token).await.expect("the attempt fails");
    store.clock.advance(100);
    let done = store.finish(task.id).await;
    assert_eq!((done.error, done.failures, done.attempt), (None, 1, 2));
}

async fn a_repeated_completion_answers_the_same(store: Store) {
    let (task, token) = store.started("w").await;
    let complete = |text: &str| TaskComplete { id: task.id, token, output: Some(json(text)) };
    let done = store.run(complete("1")).await.expect("the task completes");
    store.clock.advance(10_000);
    store.sweep().await;
    for output in ["1", "2"] {
        assert_eq!(store.run(complete(output)).await.expect("the same answer"), done);
    }
    assert_eq!(store.task(task.id).await, done);
    assert_eq!(store.log(task.id).await.len(), 3);
}

async fn a_completion_with_another_token_is_fenced(store: Store) {
    let (task, first) = store.started("old").await;
    store.clock.advance(1);
    store.run(TaskEvict { id: task.id }).await.expect("the task is evicted");
    store.clock.advance(1);
    let (running, second) = store.start(task.id, "new").await;
    store.clock.advance(1);
    let complete = |token| TaskComplete { id: task.id, token, output: None };
    let error = store.refuses(task.id, complete(first), "fenced").await;
    let fenced = ErrorKind::Fenced { lost_at: running.started_at, owner: Some("new".into()) };
    assert_eq!(*error.kind(), fenced);
    let done = store.run(complete(second)).await.expect("the holder completes");
    store.clock.advance(1);
    let error = store.refuses(task.id, complete(first), "fenced").await;
    assert_eq!(*error.kind(), ErrorKind::Fenced { lost_at: Some(done.updated_at), owner: None });
}

async fn a_release_counts_for_nothing(store: Store) {
    let (task, token) = store.started("w").await;
    store.clock.advance(3);
    let released = store.run(TaskRelease { id: task.id, token, run_at: None }).await;
    let released = released.expect("the task is released");
    assert_eq!((released.status, released.lease.as_ref()), (Status::Pending, None));
    assert_eq!((released.attempt, released.failures, released.lease_losses), (1, 0, 0));
    assert_eq!((released.run_at, &released.error), (store.now(), &None));
    assert_eq!((released.started_at, released.finished_at), (task.started_at, None));
    assert_eq!(store.log(task.id).await[2..], [event("task.released", &json!({"run_at": store.now()}))]);
    let again = store.claim("v", 1).await.tasks.remove(0);
    assert_eq!((again.id, again.attempt), (task.id, 2));
    assert!(token_of(&again) > token);
}

async fn a_release_can_name_a_time(store: Store) {
    let (task, token) = store.started("w").await;
    let later = store.now() + Seconds::new(60);
    let released = store.run(TaskRelease { id: task.id, token, run_at: Some(later) }).await;
    assert_eq!(released.expect("the task is released").run_at, later);
    assert_eq!(store.log(task.id).await[2..], [event("task.released", &json!({"run_at": later}))]);
    assert!(store.claim("v", 1).await.tasks.is_empty());
    store.clock.advance(60);
    assert_eq!(store.claim("v", 1).await.tasks.len(), 1);
}

async fn an_eviction_takes_the_task_from_its_owner(store: Store) {
    let (task, token) = store.started("w").await;
    store.clock.advance(3);
    let evicted = store.run(TaskEvict { id: task.id }).await.expect("the task is evicted");
    assert_eq!((evicted.status, evicted.lease.as_ref()), (Status::Pending, None));
    assert_eq!((evicted.run_at, evicted.updated_at, evicted.revision), (store.now(), store.now(), 3));
    assert_eq!((evicted.attempt, evicted.failures, evicted.lease_losses), (1, 0, 0));
    assert_eq!(store.log(task.id).await[2..], [event("task.evicted", &json!({"owner": "w"}))]);
    let renew = TaskRenew { id: task.id, token, lease_seconds: None, progress: None };
    let error = store.refuses(task.id, renew, "fenced").await;
    assert_eq!(*error.kind(), ErrorKind::Fenced { lost_at: Some(store.now()), owner: None });
    assert_eq!(store.claim("v", 1).await.tasks.len(), 1);
}

async fn appended_events_come_before_lifecycle_events(store: Store) {
    let (task, token) = store.started("w").await;
    let stream = StreamName::of_task(task.id);
    let said = NewEvent { kind: "said".into(), data: Some(json("1")) };
    let mut batch = store.batch();
    let done = batch.add(TaskComplete { id: task.id, token, output: None });
    let appended = batch.add(StreamAppend { stream, events: vec![said], expect_seq: Some(2) });
    let mut replies = store.apply(batch).await.expect("the batch is applied");
    assert_eq!(replies.take(done).expect("a reply").revision, 3);
    assert_eq!(replies.take(appended).expect("a reply").first_seq, 3);
    let history = store.history(task.id).await;
    assert_eq!(history, ["task.created", "task.started", "said", "task.completed"]);
    store.log(task.id).await;
}

async fn a_batch_that_starts_and_creates_does_both(store: Store) {
    let task = store.plain().await;
    let mut batch = store.batch();
    let started = batch.add(start(task.id));
    let created = batch.add(TaskCreate { parent: Some(task.id), ..plain_create() });
    let mut replies = store.apply(batch).await.expect("the batch is applied");
    let running = replies.take(started).expect("a reply");
    assert_eq!((running.status, store.task(task.id).await), (Status::Running, running.clone()));
    assert_eq!(replies.take(created).expect("a reply").task.parent, Some(task.id));
    store.complete(task.id, token_of(&running)).await.expect("the token is good");
}

async fn a_whole_life_is_told_in_events(store: Store) {
    let (task, token) = store.started("w").await;
    store.run(TaskRelease { id: task.id, token, run_at: None }).await.expect("released");
    store.run(TaskPark { id: task.id, rank: Some(3) }).await.expect("parked");
    store.run(TaskPromote { id: task.id }).await.expect("promoted");
    store.run(TaskAmend { id: task.id, priority: Some(1), ..TaskAmend::default() }).await.expect("amended");
    let (_, token) = store.start(task.id, "w").await;
    store.signal(task.id, "s").await.expect("signalled");
    store.suspend(task.id, token, WaitFor::Signal("s".into())).await;
    let (_, token) = store.start(task.id, "w").await;
    store.cancel(task.id).await.expect("asked to stop");
    store.run(TaskRelease { id: task.id, token, run_at: None }).await.expect("cancelled");
    store.run(TaskRetry { id: task.id, with_dependents: false }).await.expect("retried");
    store.finish(task.id).await;
    let expected = [
        "created",
        "started",
        "released",
        "parked",
        "promoted",
        "amended",
        "started",
        "signalled",
        "suspended",
        "resumed",
        "started",
        "cancel_requested",
        "cancelled",
        "retrying",
        "started",
        "completed",
    ];
    let told: Vec<_> = store.log(task.id).await.into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(told, expected.map(|kind| format!("task.{kind}")));
    let events = store.events(&StreamName::of_task(task.id)).await;
    assert!(events.iter().zip(1..).all(|(event, seq)| event.seq == seq), "no gap in {events:?}");
}
