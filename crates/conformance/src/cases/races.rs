//! Races: a hundred at once, and exactly the outcome that one after another would have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use statehold_core::call::Claim;
use statehold_core::command::{
    Created, DocumentPut, OnBusy, TaskComplete, TaskCreate, TaskEvict, TaskSignal, TaskStart,
};
use statehold_core::model::{Children, ResumedBy, Task, TaskId, WaitFor};
use statehold_core::query::TaskList;
use statehold_core::{Error, Json, Result, Status};
use tokio::sync::Barrier;

use crate::harness::{plain_create, token_of};
use crate::{Case, Store, cases};

pub(super) const CASES: &[Case] = cases![
    claim_gives_a_task_to_exactly_one_of_many,
    claimers_share_many_tasks_without_a_double,
    repeated_claims_at_once_take_no_more_than_one,
    start_has_exactly_one_winner,
    an_idempotency_key_creates_exactly_one_task,
    an_idempotency_key_with_other_requests_creates_exactly_one_task,
    an_id_creates_exactly_one_task,
    a_child_key_dispatches_exactly_one_child,
    an_exclusive_key_has_exactly_one_starter,
    an_exclusive_key_never_runs_twice,
    a_rejecting_create_of_a_busy_key_has_one_winner,
    a_repeated_completion_happens_once,
    a_completion_or_an_eviction_wins,
    no_dependent_misses_its_completion,
    no_dependent_misses_the_completion_of_many,
    a_fan_in_unblocks_once,
    a_parent_that_suspends_while_its_children_end_is_resumed_once,
    no_signal_is_lost_or_doubled,
    many_sweepers_count_a_lost_lease_once,
    documents_count_every_put_of_batches_that_name_them_in_any_order,
];

const CONTENDERS: usize = 100;

/// Lets a hundred begin together, and answers what each of them got.
async fn race<T, F>(store: &Store, contender: impl Fn(Store, usize) -> F) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let start = Arc::new(Barrier::new(CONTENDERS));
    let spawn = |n| {
        let (start, run) = (Arc::clone(&start), contender(store.clone(), n));
        tokio::spawn(async move {
            start.wait().await;
            run.await
        })
    };
    let runs: Vec<_> = (0..CONTENDERS).map(spawn).collect();
    let mut outcomes = Vec::new();
    for run in runs {
        outcomes.push(run.await.expect("the contender comes to its end"));
    }
    outcomes
}

/// How often each outcome occurred: `ok`, or the code of the error.
fn outcomes<T>(results: &[Result<T>]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for result in results {
        *counts.entry(result.as_ref().map_or_else(Error::code, |_| "ok")).or_default() += 1;
    }
    counts
}

/// The one task that all creates answered, which exactly one of them made.
fn one_created(results: Vec<Result<Created>>) -> TaskId {
    let replies: Vec<_> = results.into_iter().map(|reply| reply.expect("answered")).collect();
    let ids: BTreeSet<_> = replies.iter().map(|reply| reply.task.id).collect();
    assert_eq!(replies.iter().filter(|reply| reply.created).count(), 1);
    assert_eq!(ids.len(), 1, "all answer the same task");
    replies[0].task.id
}

async fn all(store: &Store, list: TaskList) -> Vec<Task> {
    let list = TaskList { limit: 1000, ..list };
    store.backend.task_list(&store.namespace, &list).await.expect("the tasks are listed").items
}

/// Creates many plain tasks at once.
async fn many(store: &Store, count: usize, create: TaskCreate) -> Vec<TaskId> {
    let mut batch = store.batch();
    let mut ids = Vec::new();
    for _ in 0..count {
        let id = TaskId::generate();
        batch.add(TaskCreate { id: Some(id), ..create.clone() });
        ids.push(id);
    }
    store.apply(batch).await.expect("the tasks are created");
    ids
}

async fn claim_gives_a_task_to_exactly_one_of_many(store: Store) {
    let task = store.plain().await;
    let given = race(&store, |store, n| async move { store.claim(&format!("w{n}"), 1).await.tasks }).await;
    let winners: Vec<_> = given.into_iter().flatten().collect();
    assert_eq!(winners.len(), 1);
    assert_eq!(store.task(task.id).await, winners[0]);
    assert_eq!((winners[0].attempt, store.log(task.id).await.len()), (1, 2));
}

async fn claimers_share_many_tasks_without_a_double(store: Store) {
    let ids = many(&store, 300, plain_create()).await;
    let given = race(&store, |store, n| async move {
        let mut mine = Vec::new();
        for _ in 0..4 {
            mine.extend(store.claim(&format!("w{n}"), 2).await.tasks);
        }
        mine
    });
    let mut given: Vec<_> = given.await.into_iter().flatten().map(|task| task.id).collect();
    given.extend(store.claim("last", 1000).await.tasks.iter().map(|task| task.id));
    given.sort();
    let mut expected = ids;
    expected.sort();
    assert_eq!(given, expected, "each task is given once");
    assert!(all(&store, TaskList::default()).await.iter().all(|task| task.attempt == 1));
}

async fn repeated_claims_at_once_take_no_more_than_one(store: Store) {
    // A store may decide the claims of known askers without a plan.
    assert!(store.claim("w", 1).await.tasks.is_empty());
    many(&store, 20, plain_create()).await;
    let given = race(&store, |store, _| async move {
        let claim = Claim { limit: 3, key: Some("key".into()), ..Claim::new(&store.namespace, "q", "w") };
        store.backend.claim(claim).await.expect("the claim is answered").tasks
    });
    let given = given.await;
    assert_eq!(given[0].len(), 3);
    assert!(given.iter().all(|tasks| *tasks == given[0]), "all answer the same");
    let running = TaskList { status: vec![Status::Running], ..TaskList::default() };
    assert_eq!(all(&store, running).await.len(), 3);
}

async fn start_has_exactly_one_winner(store: Store) {
    let id = store.plain().await.id;
    let started = race(&store, move |store, n| async move {
        store.run(TaskStart { id, owner: format!("w{n}"), lease_seconds: Some(30.into()) }).await
    });
    let started = started.await;
    assert_eq!(outcomes(&started), [("invalid_transition", CONTENDERS - 1), ("ok", 1)].into());
    let winner = started.into_iter().flatten().next().expect("a winner");
    assert_eq!(store.task(id).await, winner);
    assert_eq!(store.log(id).await.len(), 2);
}

async fn an_idempotency_key_creates_exactly_one_task(store: Store) {
    let created = race(&store, |store, _| async move {
        store.run(TaskCreate { idempotency_key: Some("i".into()), ..plain_create() }).await
    });
    let id = one_created(created.await);
    assert_eq!(all(&store, TaskList::default()).await.len(), 1);
    assert_eq!(store.log(id).await.len(), 1);
}

async fn an_idempotency_key_with_other_requests_creates_exactly_one_task(store: Store) {
    let created = race(&store, |store, n| async move {
        let input = Some(Json::of(&n).expect("valid JSON"));
        store.run(TaskCreate { idempotency_key: Some("i".into()), input, ..plain_create() }).await
    });
    let expected = [("conflict", CONTENDERS - 1), ("ok", 1)].into();
    assert_eq!(outcomes(&created.await), expected);
    assert_eq!(all(&store, TaskList::default()).await.len(), 1);
}

async fn an_id_creates_exactly_one_task(store: Store) {
    let id = TaskId::generate();
    let created = race(&store, move |store, _| async move {
        store.run(TaskCreate { id: Some(id), ..plain_create() }).await
    });
    assert_eq!(one_created(created.await), id);
    assert_eq!(store.log(id).await.len(), 1);
}

async fn a_child_key_dispatches_exactly_one_child(store: Store) {
    let (parent, token) = store.started("w").await;
    let parent = parent.id;
    let created = race(&store, move |store, _| async move {
        let child_key = Some("c".to_owned());
        store.run(TaskCreate { parent: Some(parent), child_key, ..plain_create() }).await
    });
    let child = one_created(created.await);
    store.suspend(parent, token, WaitFor::Children(Children::All)).await;
    store.finish(child).await;
    assert_eq!(store.status(parent).await, Status::Pending, "the child was counted once");
}

async fn an_exclusive_key_has_exactly_one_starter(store: Store) {
    let mut ids = Vec::new();
    for _ in 0..CONTENDERS {
        ids.push(store.create(TaskCreate { exclusive_key: Some("e".into()), ..plain_create() }).await.id);
    }
    let started = race(&store, move |store, n| {
        let id = ids[n];
        async move { store.run(TaskStart { id, owner: "w".into(), lease_seconds: None }).await }
    });
    assert_eq!(outcomes(&started.await), [("held", CONTENDERS - 1), ("ok", 1)].into());
}

async fn an_exclusive_key_never_runs_twice(store: Store) {
    for _ in 0..30 {
        store.create(TaskCreate { exclusive_key: Some("e".into()), ..plain_create() }).await;
    }
    let running =
        TaskList { status: vec![Status::Running], exclusive_key: Some("e".into()), ..TaskList::default() };
    race(&store, move |store, _| {
        let running = running.clone();
        async move {
            for _ in 0..3 {
                for mine in store.claim("w", 5).await.tasks {
                    let holders = all(&store, running.clone()).await;
                    assert_eq!(holders, std::slice::from_ref(&mine), "the key has one holder");
                    store.complete(mine.id, token_of(&mine)).await.expect("completed");
                }
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
    while let Some(task) = store.claim("last", 5).await.tasks.pop() {
        store.complete(task.id, token_of(&task)).await.expect("completed");
    }
    let tasks = all(&store, TaskList::default()).await;
    assert!(tasks.iter().all(|task| task.status == Status::Completed && task.attempt == 1));
}

async fn a_rejecting_create_of_a_busy_key_has_one_winner(store: Store) {
    let created = race(&store, |store, _| async move {
        let (exclusive_key, on_busy) = (Some("e".to_owned()), Some(OnBusy::Reject));
        store.run(TaskCreate { exclusive_key, on_busy, ..plain_create() }).await
    });
    assert_eq!(outcomes(&created.await), [("held", CONTENDERS - 1), ("ok", 1)].into());
    assert_eq!(all(&store, TaskList::default()).await.len(), 1);
}

async fn a_repeated_completion_happens_once(store: Store) {
    let (task, token) = store.started("w").await;
    let (id, dependent) = (task.id, store.after(&[task.id]).await);
    let done = race(&store, move |store, n| async move {
        let output = Some(Json::of(&n).expect("valid JSON"));
        store.run(TaskComplete { id, token, output }).await.expect("answered")
    });
    let done = done.await;
    assert!(done.iter().all(|task| *task == done[0]), "all answer the same");
    assert_eq!(store.task(id).await, done[0]);
    assert_eq!((store.log(id).await.len(), store.log(dependent.id).await.len()), (3, 2));
}

async fn a_completion_or_an_eviction_wins(store: Store) {
    let (task, token) = store.started("w").await;
    let id = task.id;
    let results = race(&store, move |store, n| async move {
        if n % 2 == 0 {
            store.run(TaskComplete { id, token, output: None }).await
        } else {
            store.run(TaskEvict { id }).await
        }
    });
    let results = results.await;
    let half = CONTENDERS / 2;
    let (status, expected) = if results[0].is_ok() {
        (Status::Completed, [("invalid_transition", half), ("ok", half)])
    } else {
        (Status::Pending, [("fenced", half), ("ok", 1)])
    };
    let mut expected: BTreeMap<_, _> = expected.into();
    if status == Status::Pending {
        expected.insert("invalid_transition", half - 1);
    }
    assert_eq!((store.status(id).await, outcomes(&results)), (status, expected));
    assert_eq!(store.log(id).await.len(), 3);
}

async fn no_dependent_misses_its_completion(store: Store) {
    let (task, token) = store.started("w").await;
    let id = task.id;
    race(&store, move |store, n| async move {
        if n == CONTENDERS / 2 {
            store.complete(id, token).await.expect("completed");
        } else {
            store.after(&[id]).await;
        }
    })
    .await;
    let dependents = all(&store, TaskList { status: vec![Status::Pending], ..TaskList::default() }).await;
    assert_eq!(dependents.len(), CONTENDERS - 1, "nobody stays blocked");
    for dependent in dependents {
        store.log(dependent.id).await;
    }
}

async fn no_dependent_misses_the_completion_of_many(store: Store) {
    let mut running = Vec::new();
    for _ in 0..CONTENDERS / 2 {
        running.push(store.started("w").await);
    }
    let ids: Vec<_> = running.iter().map(|(task, _)| task.id).collect();
    race(&store, move |store, n| {
        let ((task, token), pair) = (running[n / 2].clone(), [ids[n / 2], ids[(n / 2 + 1) % ids.len()]]);
        async move {
            if n % 2 == 0 {
                store.complete(task.id, token).await.expect("completed");
            } else {
                store.after(&pair).await;
            }
        }
    })
    .await;
    let pending = TaskList { status: vec![Status::Pending], ..TaskList::default() };
    assert_eq!(all(&store, pending).await.len(), CONTENDERS / 2, "nobody stays blocked");
}

async fn a_fan_in_unblocks_once(store: Store) {
    let mut running = Vec::new();
    for _ in 0..CONTENDERS {
        running.push(store.started("w").await);
    }
    let ids: Vec<_> = running.iter().map(|(task, _)| task.id).collect();
    let join = store.after(&ids).await;
    race(&store, move |store, n| {
        let (task, token) = running[n].clone();
        async move { store.complete(task.id, token).await.expect("completed") }
    })
    .await;
    assert_eq!(store.status(join.id).await, Status::Pending);
    assert_eq!(store.history(join.id).await, ["task.created", "task.unblocked"]);
}

async fn a_parent_that_suspends_while_its_children_end_is_resumed_once(store: Store) {
    let (parent, token) = store.started("w").await;
    let parent = parent.id;
    let mut children = Vec::new();
    for n in 1..CONTENDERS {
        let child = store.child(parent, &n.to_string()).await;
        children.push(store.start(child.id, "w").await);
    }
    race(&store, move |store, n| {
        let child = children.get(n).cloned();
        async move {
            match child {
                Some((child, token)) => drop(store.complete(child.id, token).await.expect("completed")),
                None => drop(store.suspend(parent, token, WaitFor::Children(Children::All)).await),
            }
        }
    })
    .await;
    let resumed = store.task(parent).await;
    assert_eq!(resumed.status, Status::Pending);
    assert_eq!(resumed.resumed_by, Some(ResumedBy::Children(Children::All)));
    let log: Vec<_> = store.log(parent).await.into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(log[2..], ["task.suspended", "task.resumed"]);
    assert_eq!(store.claim("v", 10).await.tasks.len(), 1);
}

async fn no_signal_is_lost_or_doubled(store: Store) {
    let id = store.plain().await.id;
    race(&store, move |store, n| async move {
        let data = Some(Json::of(&n).expect("valid JSON"));
        store.run(TaskSignal { id, name: "s".into(), data }).await.expect("signalled")
    })
    .await;
    let mut told = BTreeSet::new();
    for _ in 0..CONTENDERS {
        let (_, token) = store.start(id, "w").await;
        let resumed = store.suspend(id, token, WaitFor::Signal("s".into())).await;
        let Some(ResumedBy::Signal { data: Some(data), .. }) = resumed.resumed_by else {
            panic!("a signal is kept: {resumed:?}")
        };
        told.insert(data.to::<usize>().expect("a number"));
    }
    assert_eq!(told, (0..CONTENDERS).collect());
}

async fn many_sweepers_count_a_lost_lease_once(store: Store) {
    many(&store, 50, plain_create()).await;
    assert_eq!(store.claim("w", 50).await.tasks.len(), 50);
    store.clock.advance(30);
    let swept = race(&store, |store, _| async move { store.sweep().await.leases }).await;
    assert_eq!(swept.into_iter().sum::<u32>(), 50);
    let tasks = all(&store, TaskList::default()).await;
    assert!(tasks.iter().all(|task| task.lease_losses == 1 && task.revision == 3), "{tasks:?}");
}

/// Each batch writes two documents of three, and which comes first differs.
async fn documents_count_every_put_of_batches_that_name_them_in_any_order(store: Store) {
    const ROUNDS: usize = 5;
    let names = ["a", "b", "c"];
    let put = |store: Store, n: usize| async move {
        let mut revisions = Vec::new();
        for round in 0..ROUNDS {
            let (first, second) = (names[(n + round) % 3], names[(n + round + 1 + n % 2) % 3]);
            let mut batch = store.batch();
            let puts =
                [first, second].map(|name| (name, batch.add(DocumentPut::json("d", name, Json::null()))));
            let mut replies = store.apply(batch).await.expect("applied");
            for (name, put) in puts {
                revisions.push((name, replies.take(put).expect("its reply").revision));
            }
        }
        revisions
    };
    let revisions: Vec<_> = race(&store, put).await.into_iter().flatten().collect();
    assert_eq!(revisions.len(), 2 * ROUNDS * CONTENDERS);
    let each: BTreeSet<_> = revisions.iter().collect();
    assert_eq!(each.len(), revisions.len(), "two puts were answered the same revision");
    for name in names {
        let puts = revisions.iter().filter(|(put, _)| *put == name).count();
        let document = store.backend.document_get(&store.namespace, "d", name).await.expect("read");
        assert_eq!(document.map(|document| document.revision), u64::try_from(puts).ok(), "{name}");
    }
}
