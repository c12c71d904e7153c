//! What a create makes, and what it answers when the task is already known.

use serde_json::json;
use statehold_core::command::{OnBusy, OnDuplicate, TaskCancel, TaskCreate};
use statehold_core::error::Place;
use statehold_core::model::{Backoff, StreamName, TaskId};
use statehold_core::query::TaskList;
use statehold_core::{ErrorKind, Json, Seconds, Status};

use crate::harness::{event, json, plain_create, refused};
use crate::{Case, Store, cases};

pub(super) const CASES: &[Case] = cases![
    a_new_task_has_what_was_left_out_filled_in,
    a_new_task_keeps_every_field_as_given,
    a_task_is_created_in_the_backlog_if_asked,
    an_id_of_the_callers_is_kept,
    the_same_idempotency_key_and_request_answer_the_existing_task,
    a_repeated_create_answers_the_task_as_it_is_now,
    times_and_policies_do_not_make_another_request,
    the_order_of_members_does_not_make_another_request,
    a_default_that_is_spelled_out_makes_another_request,
    the_same_idempotency_key_with_another_request_is_a_conflict,
    on_duplicate_return_answers_the_existing_task_either_way,
    a_known_id_answers_like_a_known_key,
    a_known_generated_id_answers_like_a_known_key,
    idempotency_key_then_child_key_then_id_decide,
    a_key_is_known_only_in_its_namespace,
    a_parent_is_judged_before_dependencies_in_order_and_the_key,
    a_refused_create_takes_the_whole_batch_with_it,
    a_batch_names_a_key_once,
    a_wrong_request_is_refused_with_its_path,
    an_event_names_the_batchs_actor,
];

async fn count(store: &Store) -> usize {
    let page = store.backend.task_list(&store.namespace, &TaskList::default()).await;
    page.expect("the tasks are listed").items.len()
}

fn keyed(key: &str) -> TaskCreate {
    TaskCreate { idempotency_key: Some(key.into()), ..plain_create() }
}

async fn a_new_task_has_what_was_left_out_filled_in(store: Store) {
    let task = store.create(TaskCreate::new("k")).await;
    assert_eq!((task.queue.as_str(), task.kind.as_str(), task.status), ("default", "k", Status::Pending));
    assert_eq!((task.priority, task.rank, task.revision), (0, 0, 1));
    assert_eq!((task.attempt, task.failures, task.lease_losses), (0, 0, 0));
    assert_eq!((task.max_attempts, task.max_lease_losses), (3, 10));
    assert_eq!((task.backoff, task.cancel_requested), (Backoff::default(), false));
    assert_eq!((task.root, task.parent, &task.child_key), (task.id, None, &None));
    let now = store.now();
    assert_eq!((task.run_at, task.created_at, task.updated_at), (now, now, now));
    assert_eq!((task.expires_at, task.started_at, task.finished_at), (None, None, None));
    assert_eq!((&task.input, &task.output, &task.error, &task.metadata), (&None, &None, &None, &None));
    assert_eq!((&task.progress, &task.waiting_for, &task.resumed_by), (&None, &None, &None));
    assert_eq!((&task.thread, &task.traceparent, &task.timeout_seconds), (&None, &None, &None));
    assert_eq!((&task.idempotency_key, &task.exclusive_key, &task.lease), (&None, &None, &None));
    assert!(task.labels.is_empty() && task.depends_on.is_empty());
    assert_eq!(store.task(task.id).await, task);
    let created = event("task.created", &json!({"queue": "default", "kind": "k", "status": "pending"}));
    assert_eq!(store.log(task.id).await, [created]);
}

async fn a_new_task_keeps_every_field_as_given(store: Store) {
    let (parent, dependency) = (store.plain().await, store.plain().await);
    let backoff = Backoff { initial_seconds: 2.into(), factor: 3, max_seconds: 50.into() };
    let (later, end) = (store.now() + Seconds::new(5), store.now() + Seconds::new(50));
    let create = TaskCreate {
        input: Some(json(r#"{"n":12345678901234567890,"e":[],"d":1.10}"#)),
        metadata: Some(json(r#"{"a":{}}"#)),
        labels: [("team".to_owned(), "blue".to_owned())].into(),
        priority: Some(-7),
        rank: Some(42),
        thread: Some("t1".into()),
        parent: Some(parent.id),
        child_key: Some("c".into()),
        depends_on: vec![dependency.id],
        idempotency_key: Some("i".into()),
        exclusive_key: Some("e".into()),
        run_at: Some(later),
        expires_at: Some(end),
        timeout_seconds: Some(Seconds::from_micros(1_500_000)),
        max_attempts: Some(7),
        max_lease_losses: Some(2),
        backoff: Some(backoff),
        traceparent: Some("00-1-2-01".into()),
        ..plain_create()
    };
    let task = store.create(create.clone()).await;
    assert_eq!(store.task(task.id).await, task);
    assert_eq!(task.input.as_ref().map(Json::as_str), create.input.as_ref().map(Json::as_str));
    assert_eq!(
        (&task.metadata, &task.labels, &task.thread),
        (&create.metadata, &create.labels, &create.thread)
    );
    assert_eq!((task.priority, task.rank, task.status), (-7, 42, Status::Blocked));
    assert_eq!((task.parent, task.root, task.depends_on), (create.parent, parent.id, create.depends_on));
    assert_eq!((task.child_key, task.idempotency_key), (create.child_key, create.idempotency_key));
    assert_eq!((task.exclusive_key, task.traceparent), (create.exclusive_key, create.traceparent));
    assert_eq!((task.run_at, task.expires_at), (later, Some(end)));
    assert_eq!((task.timeout_seconds, task.backoff), (create.timeout_seconds, backoff));
    assert_eq!((task.max_attempts, task.max_lease_losses), (7, 2));
}

async fn a_task_is_created_in_the_backlog_if_asked(store: Store) {
    let open = store.plain().await;
    let task = store.create(TaskCreate { backlog: true, depends_on: vec![open.id], ..plain_create() }).await;
    assert_eq!((task.status, task.revision), (Status::Backlog, 1));
    let created = event("task.created", &json!({"queue": "q", "kind": "k", "status": "backlog"}));
    assert_eq!(store.log(task.id).await, [created]);
    store.finish(open.id).await;
    assert_eq!(store.status(task.id).await, Status::Backlog);
}

async fn an_id_of_the_callers_is_kept(store: Store) {
    let id: TaskId = "00000000-0000-4000-8000-000000000007".parse().expect("a UUID");
    let task = store.create(TaskCreate { id: Some(id), ..plain_create() }).await;
    assert_eq!((task.id, task.root), (id, id));
    assert_eq!(store.task(id).await, task);
}

async fn the_same_idempotency_key_and_request_answer_the_existing_task(store: Store) {
    let task = store.create(keyed("a")).await;
    store.clock.advance(5);
    let again = store.run(keyed("a")).await.expect("the create is repeated");
    assert_eq!((again.created, &again.task), (false, &task));
    assert_eq!(count(&store).await, 1);
    assert_eq!(store.history(task.id).await, ["task.created"]);
    store.create(keyed("b")).await;
    assert_eq!(count(&store).await, 2);
}

async fn a_repeated_create_answers_the_task_as_it_is_now(store: Store) {
    let task = store.create(keyed("a")).await;
    let done = store.finish(task.id).await;
    store.clock.advance(1_000_000);
    let again = store.run(keyed("a")).await.expect("the create is repeated");
    assert_eq!((again.created, again.task), (false, done));
}

async fn times_and_policies_do_not_make_another_request(store: Store) {
    let task = store.create(keyed("a")).await;
    let later = Some(store.now() + Seconds::new(60));
    let other = TaskCreate {
        id: Some(TaskId::generate()),
        run_at: later,
        expires_at: later,
        traceparent: Some("00-a-b-01".into()),
        on_duplicate: Some(OnDuplicate::Conflict),
        on_busy: Some(OnBusy::Reject),
        ..keyed("a")
    };
    let again = store.run(other).await.expect("the create is repeated");
    assert_eq!((again.created, again.task), (false, task));
}

async fn the_order_of_members_does_not_make_another_request(store: Store) {
    let with = |text: &str| TaskCreate { input: Some(json(text)), ..keyed("a") };
    let task = store.create(with(r#"{"a":1,"b":{"c":[],"d":null}}"#)).await;
    let again = store.run(with(r#"{ "b": {"d": null, "c": []}, "a": 1 }"#)).await;
    assert_eq!(again.expect("the create is repeated").task, task);
    refused(store.run(with(r#"{"a":1,"b":{"c":[],"d":0}}"#)).await, "conflict");
}

async fn a_default_that_is_spelled_out_makes_another_request(store: Store) {
    store.create(keyed("a")).await;
    let spelled = TaskCreate { priority: Some(0), ..keyed("a") };
    refused(store.run(spelled).await, "conflict");
}

async fn the_same_idempotency_key_with_another_request_is_a_conflict(store: Store) {
    let task = store.create(keyed("a")).await;
    let others = [
        TaskCreate { kind: "other".into(), ..keyed("a") },
        TaskCreate { queue: Some("other".into()), ..keyed("a") },
        TaskCreate { input: Some(json("1")), ..keyed("a") },
        TaskCreate { labels: [("l".to_owned(), "v".to_owned())].into(), ..keyed("a") },
        TaskCreate { parent: Some(task.id), ..keyed("a") },
        TaskCreate { max_attempts: Some(9), ..keyed("a") },
        TaskCreate { backlog: true, ..keyed("a") },
    ];
    for other in others {
        let error = store.refuses(task.id, other, "conflict").await;
        assert_eq!(error.key(), Some("a"));
    }
    assert_eq!(count(&store).await, 1);
}

async fn on_duplicate_return_answers_the_existing_task_either_way(store: Store) {
    let task = store.create(keyed("a")).await;
    let returning = TaskCreate { on_duplicate: Some(OnDuplicate::Return), ..keyed("a") };
    for kind in ["k", "other"] {
        let again = store.run(TaskCreate { kind: kind.into(), ..returning.clone() }).await;
        let again = again.expect("the existing task is answered");
        assert_eq!((again.created, &again.task), (false, &task));
    }
    assert_eq!(count(&store).await, 1);
}

async fn a_known_id_answers_like_a_known_key(store: Store) {
    let with_id = TaskCreate { id: Some(TaskId::generate()), ..plain_create() };
    let task = store.create(with_id.clone()).await;
    let again = store.run(with_id.clone()).await.expect("the create is repeated");
    assert_eq!((again.created, &again.task), (false, &task));
    let other = TaskCreate { kind: "other".into(), ..with_id };
    store.refuses(task.id, other.clone(), "conflict").await;
    let returning = TaskCreate { on_duplicate: Some(OnDuplicate::Return), ..other };
    let again = store.run(returning).await.expect("the existing task is answered");
    assert_eq!((again.created, &again.task), (false, &task));
}

async fn a_known_generated_id_answers_like_a_known_key(store: Store) {
    let task = store.plain().await;
    let with_id = TaskCreate { id: Some(task.id), ..plain_create() };
    let again = store.run(with_id.clone()).await.expect("the create is repeated");
    assert_eq!((again.created, &again.task), (false, &task));
    store.refuses(task.id, TaskCreate { kind: "other".into(), ..with_id }, "conflict").await;
}

async fn idempotency_key_then_child_key_then_id_decide(store: Store) {
    let parent = store.plain().await;
    let by_key = store.create(keyed("a")).await;
    let by_child = store.child(parent.id, "c").await;
    let by_id = store.plain().await;
    let all = TaskCreate {
        id: Some(by_id.id),
        parent: Some(parent.id),
        child_key: Some("c".into()),
        on_duplicate: Some(OnDuplicate::Return),
        ..keyed("a")
    };
    let answered = |create: TaskCreate| async { store.run(create).await.expect("one is known").task.id };
    assert_eq!(answered(all.clone()).await, by_key.id);
    assert_eq!(answered(TaskCreate { idempotency_key: None, ..all.clone() }).await, by_child.id);
    let last = TaskCreate { idempotency_key: None, child_key: None, ..all.clone() };
    assert_eq!(answered(last).await, by_id.id);
    assert_eq!(answered(TaskCreate { idempotency_key: Some("new".into()), ..all }).await, by_child.id);
}

async fn a_key_is_known_only_in_its_namespace(store: Store) {
    let task = store.create(keyed("a")).await;
    let other = Store { namespace: format!("{}-other", store.namespace), ..store.clone() };
    let theirs = other.create(TaskCreate { kind: "other".into(), ..keyed("a") }).await;
    assert_eq!((other.find(task.id).await, store.find(theirs.id).await), (None, None));
    assert_eq!(other.claim("w", 10).await.tasks.len(), 1);
    assert_eq!(store.status(task.id).await, Status::Pending);
}

async fn a_parent_is_judged_before_dependencies_in_order_and_the_key(store: Store) {
    let busy = store.create(TaskCreate { exclusive_key: Some("e".into()), ..plain_create() }).await;
    let missing = [TaskId::generate(), TaskId::generate(), TaskId::generate()];
    let mut create = TaskCreate {
        parent: Some(missing[0]),
        depends_on: vec![busy.id, missing[1], missing[2]],
        exclusive_key: Some("e".into()),
        on_busy: Some(OnBusy::Reject),
        ..plain_create()
    };
    let error = store.refuses(busy.id, create.clone(), "not_found").await;
    assert_eq!(error.key(), Some(missing[0].to_string().as_str()));
    create.parent = None;
    let error = store.refuses(busy.id, create.clone(), "not_found").await;
    assert_eq!(error.key(), Some(missing[1].to_string().as_str()));
    create.depends_on = vec![busy.id];
    store.refuses(busy.id, create, "held").await;
}

async fn a_refused_create_takes_the_whole_batch_with_it(store: Store) {
    let known = store.plain().await;
    let mut batch = store.batch();
    let fine = TaskId::generate();
    batch.add(TaskCreate { id: Some(fine), ..keyed("a") });
    batch.add(TaskCancel { id: known.id, force: false, children: false });
    batch.add(TaskCreate { depends_on: vec![TaskId::generate()], ..plain_create() });
    let error = refused(store.apply(batch).await, "not_found");
    assert_eq!(error.place(), Some(Place::Command(2)));
    assert_eq!((store.find(fine).await, store.task(known.id).await), (None, known));
    assert!(store.events(&StreamName::of_task(fine)).await.is_empty());
    assert_eq!(count(&store).await, 1);
    store.create(TaskCreate { kind: "the key is free".into(), ..keyed("a") }).await;
}

async fn a_batch_names_a_key_once(store: Store) {
    let (id, parent) = (TaskId::generate(), store.plain().await.id);
    let twice = [
        TaskCreate { id: Some(id), ..plain_create() },
        keyed("a"),
        TaskCreate { exclusive_key: Some("e".into()), ..plain_create() },
        TaskCreate { parent: Some(parent), child_key: Some("c".into()), ..plain_create() },
    ];
    for create in twice {
        let mut batch = store.batch();
        batch.add(create.clone());
        batch.add(create);
        let error = refused(store.apply(batch).await, "invalid");
        assert_eq!(error.place(), Some(Place::Command(1)));
    }
    assert_eq!(count(&store).await, 1);
}

async fn a_wrong_request_is_refused_with_its_path(store: Store) {
    let (id, none) = (Some(TaskId::generate()), Some(Seconds::ZERO));
    let flat = Backoff { factor: 0, ..Backoff::default() };
    let wrong = [
        (TaskCreate::new(""), "kind"),
        (TaskCreate { queue: Some("a\nb".into()), ..plain_create() }, "queue"),
        (keyed(&"k".repeat(257)), "idempotency_key"),
        (TaskCreate { child_key: Some("c".into()), ..plain_create() }, "child_key"),
        (TaskCreate { metadata: Some(json("[]")), ..plain_create() }, "metadata"),
        (TaskCreate { max_attempts: Some(0), ..plain_create() }, "max_attempts"),
        (TaskCreate { max_lease_losses: Some(0), ..plain_create() }, "max_lease_losses"),
        (TaskCreate { timeout_seconds: none, ..plain_create() }, "timeout_seconds"),
        (TaskCreate { backoff: Some(flat), ..plain_create() }, "backoff.factor"),
        (TaskCreate { id, depends_on: id.into_iter().collect(), ..plain_create() }, "depends_on"),
        (TaskCreate { id, parent: id, ..plain_create() }, "depends_on"),
        (TaskCreate { depends_on: [id, id].into_iter().flatten().collect(), ..plain_create() }, "depends_on"),
    ];
    for (create, path) in wrong {
        let error = refused(store.run(create).await, "invalid");
        let ErrorKind::Invalid { problems } = error.kind() else { unreachable!("it is invalid") };
        let path = format!("commands[0].{path}");
        assert!(problems.iter().any(|problem| problem.path == path), "{path} is not in {problems:?}");
    }
    assert_eq!(count(&store).await, 0);
}

async fn an_event_names_the_batchs_actor(store: Store) {
    let mut batch = store.batch().actor("alice");
    let created = batch.add(plain_create());
    let mut replies = store.apply(batch).await.expect("the task is created");
    let id = replies.take(created).expect("a reply").task.id;
    store.claim("w", 1).await;
    let events = store.events(&StreamName::of_task(id)).await;
    let actors: Vec<_> = events.iter().map(|event| (event.kind.as_str(), event.actor.as_deref())).collect();
    assert_eq!(actors, [("task.created", Some("alice")), ("task.started", None)]);
    assert!(events.iter().all(|event| event.at == store.now()));
}
