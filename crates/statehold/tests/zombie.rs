//! A process that stands still for three leases and then goes on as if nothing had happened: whatever it still writes is
//! refused, and what its successor wrote stands.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use common::{block_on, everything, folder, json, open, random, soon, stream};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use statehold::core::call::Claim;
use statehold::core::command::{DocumentPut, EntrySet, LockAcquire, TaskSignal};
use statehold::core::dump::Record;
use statehold::worker::{Outcome, Stopping, Worker};
use statehold::{
    Lease, NewEvent, Result, Seconds, Statehold, Status, StreamName, TaskCreate, TaskError, TaskId, WaitFor,
};
use statehold_conformance::named;
use statehold_conformance::process::{self, Process, given, hear, say};

const LEASE: Seconds = Seconds::new(1);
/// How many things a zombie tries.
const LATE_WRITES: usize = 15;
const THREE_LEASES: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    process::run(
        named![
            a_zombie_that_stood_still_after_its_claim_writes_nothing,
            a_zombie_that_stood_still_after_a_renewal_writes_nothing,
            zombies_that_stood_still_anywhere_in_their_work_write_nothing,
            a_handler_of_a_zombie_is_told_and_writes_nothing,
        ],
        named![claimer, renewer, writer, handler],
    )
}

fn a_zombie_that_stood_still_after_its_claim_writes_nothing() {
    outlive("claimer", Duration::ZERO);
}

fn a_zombie_that_stood_still_after_a_renewal_writes_nothing() {
    outlive("renewer", Duration::from_millis(1500));
}

fn zombies_that_stood_still_anywhere_in_their_work_write_nothing() {
    for _ in 0..3 {
        outlive("writer", Duration::from_micros(random(800_000)));
    }
}

fn a_handler_of_a_zombie_is_told_and_writes_nothing() {
    outlive("handler", Duration::from_micros(random(1_500_000)));
}

/// Everything that a zombie may still try.
fn late_writes(lease: &Lease, other: TaskId) -> Vec<(&'static str, BoxFuture<'_, Result<()>>)> {
    let event = || vec![NewEvent::new("late")];
    let body = || json("late");
    let mut put = lease.settle();
    put.put("work", "result", body());
    let mut all = lease.settle();
    all.put("work", "result", body());
    all.append(stream("log/1"), event());
    all.dispatch(TaskCreate::new("child").child_key("late"));
    let deadline = WaitFor::Signal("never".into());
    vec![
        ("renew", lease.renew().map(|done| done.map(drop)).boxed()),
        ("report", lease.report(Some(body())).map(|done| done.map(drop)).boxed()),
        ("append", lease.append(event()).map(|done| done.map(drop)).boxed()),
        ("append_to", lease.append_to(stream("log/1"), event()).map(|done| done.map(drop)).boxed()),
        ("dispatch", lease.dispatch(TaskCreate::new("child")).map(|done| done.map(drop)).boxed()),
        ("document", put.commit().map(|done| done.map(drop)).boxed()),
        (
            "a new document",
            lease.run(DocumentPut::json("work", "late", body())).map(|done| done.map(drop)).boxed(),
        ),
        ("entry", lease.run(EntrySet::new("late", body())).map(|done| done.map(drop)).boxed()),
        ("lock", lease.run(LockAcquire::new("late", "zombie")).map(|done| done.map(drop)).boxed()),
        (
            "signal",
            lease
                .run(TaskSignal { id: other, name: "late".into(), data: None })
                .map(|done| done.map(drop))
                .boxed(),
        ),
        ("settle", all.complete(Some(body())).map(|done| done.map(drop)).boxed()),
        ("suspend", lease.suspend(deadline).map(|done| done.map(drop)).boxed()),
        ("release", lease.release().map(|done| done.map(drop)).boxed()),
        ("fail", lease.fail(TaskError::new("late", "late"), true).map(|done| done.map(drop)).boxed()),
        ("complete", lease.complete(Some(body())).map(|done| done.map(drop)).boxed()),
    ]
}

/// Tries everything each time it is told to, and says how each try ended.
async fn write_late(lease: &Lease) {
    let other = given("OTHER").to_str().unwrap().parse().unwrap();
    while hear().is_some() {
        let writes = late_writes(lease, other);
        assert_eq!(writes.len(), LATE_WRITES);
        for (what, write) in writes {
            match write.await {
                Ok(()) => say(&format!("{what}: accepted")),
                Err(error) => say(&format!("{what}: {}", error.code())),
            }
        }
    }
}

async fn opened() -> Statehold {
    open(&PathBuf::from(given("DATABASE"))).await
}

async fn claimed(hold: &Statehold) -> Lease {
    let claim = Claim { lease_seconds: Some(LEASE), ..Claim::new("", "default", "zombie") };
    let mut leases = hold.tasks().claim_with(claim, None).await.unwrap();
    leases.pop().expect("a task to claim")
}

/// Claims, and does nothing until it goes on.
fn claimer() {
    block_on(async {
        let lease = claimed(&opened().await).await;
        say("claimed");
        write_late(&lease).await;
    });
}

/// Claims and renews for as long as it can.
fn renewer() {
    block_on(async {
        let lease = claimed(&opened().await).await;
        say("claimed");
        while lease.renew().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        write_late(&lease).await;
    });
}

/// Claims, renews and writes for as long as it can.
fn writer() {
    block_on(async {
        let lease = claimed(&opened().await).await;
        say("claimed");
        loop {
            let mut settle = lease.settle();
            settle.put("work", "result", json("the first owner's"));
            settle.append(stream("log/1"), vec![NewEvent::new("written")]);
            if settle.commit().await.is_err() || lease.renew().await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        write_late(&lease).await;
    });
}

/// A worker whose handler waits until it is told to stop.
fn handler() {
    block_on(async {
        let hold = opened().await;
        let stopping = Stopping::new();
        let stop = stopping.clone();
        let worker = Worker::new(&hold).lease(LEASE.into()).handle_any(move |job| {
            let stop = stop.clone();
            async move {
                say("claimed");
                assert!(job.stopped().await.is_lost(), "it is told why");
                stop.cancel();
                write_late(job.lease()).await;
                Ok(Outcome::Settled)
            }
        });
        worker.run(stopping).await.unwrap();
    });
}

/// Lets a process stand still some time after its claim, takes its task over, and lets it go on.
fn outlive(role: &str, after: Duration) {
    let folder = folder();
    let path = folder.path().join("state.db");
    block_on(async {
        let hold = open(&path).await;
        let other = hold.tasks().create(TaskCreate::new("other").queue("others")).await.unwrap().task;
        let task = hold.tasks().create(TaskCreate::new("work")).await.unwrap().task;
        let other_id = other.id.to_string();
        let variables: [(&str, &OsStr); 2] = [("DATABASE", path.as_os_str()), ("OTHER", other_id.as_ref())];
        let mut zombie = Process::start(role, &variables);
        zombie.expect("claimed");
        tokio::time::sleep(after).await;
        zombie.freeze();
        tokio::time::sleep(THREE_LEASES).await;

        let successor = take_over(&hold, &zombie).await;
        assert_eq!(successor.id(), task.id);
        let mut settle = successor.settle();
        settle.put("work", "result", json("the successor's"));
        settle.append(stream("log/1"), vec![NewEvent::new("taken over")]);
        settle.commit().await.unwrap();
        zombie.thaw();
        refuses_everything(&hold, &mut zombie, "while the successor works").await;
        successor.complete(Some(json("the successor's"))).await.unwrap();
        refuses_everything(&hold, &mut zombie, "when the successor is done").await;
        zombie.finish();

        let task = hold.tasks().get(task.id).await.unwrap().unwrap();
        assert_eq!((task.status, task.output), (Status::Completed, Some(json("the successor's"))));
        let last = hold.streams().last(&stream("log/1"), 1).await.unwrap();
        assert_eq!(last[0].kind, "taken over");
        let story = hold.streams().last(&StreamName::of_task(task.id), 1).await.unwrap();
        assert_eq!(story[0].kind, "task.completed");
    });
}

/// Lets the zombie try everything, and requires that all is refused and leaves nothing.
async fn refuses_everything(hold: &Statehold, zombie: &mut Process, when: &str) {
    let before = durable(hold).await;
    zombie.tell("write");
    for _ in 0..LATE_WRITES {
        let said = zombie.line();
        assert!(said.ends_with(": fenced"), "{when}: {said}");
    }
    assert_eq!(durable(hold).await, before, "{when}, no late write has left anything");
}

/// Takes the task over. A process that stands still in the middle of a commit keeps everyone from writing; then it goes
/// on for a moment first.
async fn take_over(hold: &Statehold, zombie: &Process) -> Lease {
    let claim = async {
        loop {
            let claim = hold.tasks().claim_wait(&["default"], "successor", 1, Duration::from_secs(4));
            match tokio::time::timeout(Duration::from_secs(5), claim).await {
                Ok(Ok(mut leases)) if !leases.is_empty() => return leases.remove(0),
                outcome => eprintln!("not yet: {outcome:?}"),
            }
            zombie.thaw();
            tokio::time::sleep(Duration::from_millis(50)).await;
            zombie.freeze();
        }
    };
    soon(claim).await
}

/// Everything but who asked for work when.
async fn durable(hold: &Statehold) -> Vec<Record> {
    let mut records = everything(hold).await;
    records.retain(|record| !matches!(record, Record::Poller(_)));
    records
}
