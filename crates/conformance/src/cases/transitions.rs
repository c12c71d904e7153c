//! The status table: for each status and each command, whether the step is taken or refused.

use std::fmt::Debug;

use statehold_core::command::{
    Op, TaskAmend, TaskCancel, TaskComplete, TaskCreate, TaskEvict, TaskFail, TaskPark, TaskPromote,
    TaskPurge, TaskRelease, TaskRenew, TaskRetry, TaskSignal, TaskStart, TaskSuspend,
};
use statehold_core::model::{OnTimeout, Task, TaskId, Token, WaitFor};
use statehold_core::status::TRANSITIONS;
use statehold_core::{ErrorKind, Status};

use Status::{Backlog, Blocked, Cancelled, Completed, Failed, Pending, Running, Waiting};

use crate::harness::{broken, plain_create};
use crate::{Case, Store, cases};

pub(super) const CASES: &[Case] = cases![
    the_table_is_the_documented_one,
    start_is_for_pending_tasks,
    evict_is_for_running_tasks,
    retry_is_for_failed_and_cancelled_tasks,
    promote_is_for_the_backlog,
    park_is_for_pending_and_blocked_tasks,
    cancel_is_for_open_tasks,
    signal_is_for_open_tasks,
    amend_is_for_open_tasks,
    purge_is_for_terminal_tasks,
    what_needs_a_lease_is_fenced_unless_running,
    what_has_a_lease_does_as_it_says,
];

const TABLE: [(Status, &[Status]); 8] = [
    (Backlog, &[Pending, Blocked, Cancelled]),
    (Blocked, &[Pending, Backlog, Failed, Cancelled]),
    (Pending, &[Running, Backlog, Failed, Cancelled]),
    (Running, &[Completed, Failed, Pending, Waiting, Cancelled]),
    (Waiting, &[Pending, Failed, Cancelled]),
    (Completed, &[]),
    (Failed, &[Pending, Blocked]),
    (Cancelled, &[Pending, Blocked]),
];

const TERMINAL: [Status; 3] = [Completed, Failed, Cancelled];
const OPEN: [Status; 5] = [Backlog, Blocked, Pending, Running, Waiting];

/// A task in a status, with its last token if it was ever started.
async fn task_in(store: &Store, status: Status) -> (Task, Token) {
    let never = Token(1);
    let (task, token) = match status {
        Backlog => (store.create(TaskCreate { backlog: true, ..plain_create() }).await, never),
        Blocked => {
            let open = store.plain().await;
            (store.after(&[open.id]).await, never)
        }
        Pending => (store.plain().await, never),
        Running => store.started("w").await,
        Waiting => {
            let (task, token) = store.started("w").await;
            (store.suspend(task.id, token, WaitFor::Signal("never".into())).await, token)
        }
        Completed => {
            let (task, token) = store.started("w").await;
            (store.complete(task.id, token).await.expect("the task completes"), token)
        }
        Failed => (store.doom(store.plain().await.id).await, never),
        Cancelled => {
            let task = store.plain().await;
            (store.cancel(task.id).await.expect("the task is cancelled"), never)
        }
    };
    assert_eq!(task.status, status);
    (task, token)
}

/// Runs a command on a task in each status. It must lead `from` each of the listed ones to the other, and
/// be refused as a step to `refused_to` from the rest.
async fn judge<O: Op<Reply: Debug>>(
    store: &Store,
    command: impl Fn(TaskId) -> O,
    taken: &[(Status, Status)],
    refused_to: impl Fn(Status) -> Status,
) {
    for (from, next) in TABLE {
        let (task, _) = task_in(store, from).await;
        store.clock.advance(1);
        if let Some((_, to)) = taken.iter().find(|(one, _)| *one == from) {
            store.run(command(task.id)).await.expect("the step is taken");
            let after = store.task(task.id).await;
            assert_eq!(after.status, *to, "from {from}");
            assert_eq!((after.revision, after.updated_at), (task.revision + 1, store.now()), "from {from}");
            store.log(task.id).await;
        } else {
            let error = store.refuses(task.id, command(task.id), "invalid_transition").await;
            let to = refused_to(from);
            assert_eq!(*error.kind(), ErrorKind::InvalidTransition { from, to, allowed: next.to_vec() });
        }
    }
}

async fn the_table_is_the_documented_one(store: Store) {
    assert_eq!(TRANSITIONS, TABLE);
    for (from, next) in TABLE {
        assert_eq!(from.is_terminal(), TERMINAL.contains(&from));
        assert!(Status::ALL.iter().all(|to| from.allows(*to) == next.contains(to)));
        let (task, _) = task_in(&store, from).await;
        assert_eq!(task.finished_at.is_some(), from.is_terminal());
        assert_eq!((task.lease.is_some(), task.waiting_for.is_some()), (from == Running, from == Waiting));
        assert_eq!(store.task(task.id).await, task);
    }
}

async fn start_is_for_pending_tasks(store: Store) {
    let start = |id| TaskStart { id, owner: "w".into(), lease_seconds: Some(30.into()) };
    judge(&store, start, &[(Pending, Running)], |_| Running).await;
}

async fn evict_is_for_running_tasks(store: Store) {
    judge(&store, |id| TaskEvict { id }, &[(Running, Pending)], |_| Pending).await;
}

async fn retry_is_for_failed_and_cancelled_tasks(store: Store) {
    let retry = |id| TaskRetry { id, with_dependents: false };
    judge(&store, retry, &[(Failed, Pending), (Cancelled, Pending)], |_| Pending).await;
}

async fn promote_is_for_the_backlog(store: Store) {
    judge(&store, |id| TaskPromote { id }, &[(Backlog, Pending)], |_| Pending).await;
}

async fn park_is_for_pending_and_blocked_tasks(store: Store) {
    let park = |id| TaskPark { id, rank: None };
    judge(&store, park, &[(Pending, Backlog), (Blocked, Backlog)], |_| Backlog).await;
}

async fn cancel_is_for_open_tasks(store: Store) {
    let taken = OPEN.map(|from| (from, if from == Running { Running } else { Cancelled }));
    judge(&store, |id| TaskCancel { id, force: false, children: false }, &taken, |_| Cancelled).await;
    let forced = OPEN.map(|from| (from, Cancelled));
    judge(&store, |id| TaskCancel { id, force: true, children: false }, &forced, |_| Cancelled).await;
}

async fn signal_is_for_open_tasks(store: Store) {
    let signal = |id| TaskSignal { id, name: "other".into(), data: None };
    judge(&store, signal, &OPEN.map(|from| (from, from)), |_| Pending).await;
}

async fn amend_is_for_open_tasks(store: Store) {
    let amend = |id| TaskAmend { id, priority: Some(3), ..TaskAmend::default() };
    judge(&store, amend, &OPEN.map(|from| (from, from)), |from| from).await;
}

async fn purge_is_for_terminal_tasks(store: Store) {
    for (from, next) in TABLE {
        let (task, _) = task_in(&store, from).await;
        if TERMINAL.contains(&from) {
            store.run(TaskPurge { id: task.id }).await.expect("the task is purged");
            assert_eq!(store.find(task.id).await, None, "from {from}");
        } else {
            let error = store.refuses(task.id, TaskPurge { id: task.id }, "invalid_transition").await;
            let expected = ErrorKind::InvalidTransition { from, to: from, allowed: next.to_vec() };
            assert_eq!(*error.kind(), expected);
        }
    }
}

fn suspend(id: TaskId, token: Token) -> TaskSuspend {
    let (waiting_for, on_timeout) = (WaitFor::Signal("s".into()), OnTimeout::Resume);
    TaskSuspend { id, token, waiting_for, timeout_seconds: None, on_timeout }
}

async fn what_needs_a_lease_is_fenced_unless_running(store: Store) {
    for status in Status::ALL.into_iter().filter(|status| *status != Running) {
        let (task, token) = task_in(&store, status).await;
        store.clock.advance(1);
        let (id, since) = (task.id, task.updated_at);
        let (progress, lease_seconds) = (None, None);
        let mut errors = vec![
            store.refuses(id, TaskRenew { id, token, lease_seconds, progress }, "fenced").await,
            store.refuses(id, TaskFail { id, token, error: broken(), retry: true }, "fenced").await,
            store.refuses(id, TaskRelease { id, token, run_at: None }, "fenced").await,
            store.refuses(id, suspend(id, token), "fenced").await,
        ];
        if status != Completed {
            errors.push(store.refuses(id, TaskComplete { id, token, output: None }, "fenced").await);
        }
        for error in errors {
            let fenced = ErrorKind::Fenced { lost_at: Some(since), owner: None };
            assert_eq!(*error.kind(), fenced, "in {status}: {error}");
        }
    }
}

async fn what_has_a_lease_does_as_it_says(store: Store) {
    let (task, token) = task_in(&store, Running).await;
    assert_eq!(store.complete(task.id, token).await.expect("completed").status, Completed);
    let (task, token) = task_in(&store, Running).await;
    assert_eq!(store.fail(task.id, token).await.expect("to be tried again").status, Pending);
    let (task, token) = task_in(&store, Running).await;
    let fail = TaskFail { id: task.id, token, error: broken(), retry: false };
    assert_eq!(store.run(fail).await.expect("failed").status, Failed);
    let (task, token) = task_in(&store, Running).await;
    let release = TaskRelease { id: task.id, token, run_at: None };
    assert_eq!(store.run(release).await.expect("released").status, Pending);
    let (task, token) = task_in(&store, Running).await;
    assert_eq!(store.run(suspend(task.id, token)).await.expect("suspended").status, Waiting);
}
