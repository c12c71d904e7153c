//! Waits: whoever waits is told, also of what only time brings.

use std::time::{Duration, Instant};

use crate::common::{PATIENCE, claim, code, json, on_every_store, soon, stream, while_waiting};
use statehold::core::call::{Claim, GroupRead};
use statehold::core::command::{DeliveryRef, LockAcquire};
use statehold::core::model::Source;
use statehold::{Clock, NewEvent, Result, Seconds, Statehold, Status, TaskCreate, TaskError};

/// Longer than anything here takes, so that a wait that is not woken fails.
const LONG: Duration = PATIENCE;
const SECOND: Seconds = Seconds::new(1);

async fn create(hold: &Statehold) -> Result<()> {
    hold.tasks().create(TaskCreate::new("work")).await.map(drop)
}

#[test]
fn a_claim_waits_for_a_task() {
    on_every_store(async |hold, _| {
        let waiting = hold.clone();
        let claim = async move { waiting.tasks().claim_wait(&["a", "default"], "one", 1, LONG).await };
        assert_eq!(while_waiting(claim, create(&hold)).await.unwrap().len(), 1);
    });
}

#[test]
fn a_claim_waits_for_a_lease_that_ends() {
    on_every_store(async |hold, _| {
        create(&hold).await.unwrap();
        let short = Claim { lease_seconds: Some(SECOND), ..Claim::new("", "default", "one") };
        let lost = hold.tasks().claim_with(short, None).await.unwrap().remove(0);
        let taken = hold.tasks().claim_wait(&["default"], "two", 1, LONG).await.unwrap().remove(0);
        assert_eq!((taken.id(), taken.task().lease_losses), (lost.id(), 1));
    });
}

#[test]
fn a_claim_waits_for_a_task_that_becomes_due() {
    on_every_store(async |hold, clock| {
        let later = clock.now() + SECOND;
        hold.tasks().create(TaskCreate::new("work").run_at(later)).await.unwrap();
        let lease = hold.tasks().claim_wait(&["default"], "one", 1, LONG).await.unwrap().remove(0);
        assert!(lease.task().started_at.unwrap() >= later);
    });
}

#[test]
fn an_end_is_waited_for() {
    on_every_store(async |hold, _| {
        let task = hold.tasks().create(TaskCreate::new("work")).await.unwrap().task;
        let lease = claim(&hold, "one").await;
        let waiting = hold.clone();
        let wait = async move { waiting.tasks().wait(task.id, None).await };
        let fail = lease.fail(TaskError::new("broken", "it broke"), false);
        assert_eq!(while_waiting(wait, fail).await.unwrap().status, Status::Failed);
    });
}

#[test]
fn a_value_and_a_result_are_waited_for() {
    on_every_store(async |hold, _| {
        let waiting = hold.clone();
        let wait = async move { waiting.entries().wait("key", None).await };
        let set = hold.entries().set("key", json("value"), LONG);
        assert_eq!(while_waiting(wait, set).await.unwrap().unwrap().value, json("value"));
        let waiting = hold.clone();
        let wait = async move { waiting.results().wait("run-7", Some(LONG)).await };
        let set = hold.results().set("run-7", json("42"));
        assert_eq!(while_waiting(wait, set).await.unwrap(), Some(json("42")));
    });
}

#[test]
fn a_lock_is_waited_for_until_it_is_released() {
    on_every_store(async |hold, _| {
        let guard = hold.locks().try_acquire("project", "one").await.unwrap().unwrap();
        let waiting = hold.clone();
        let wait = async move { waiting.locks().acquire("project", "two", LONG).await };
        let got = while_waiting(wait, guard.release()).await.unwrap();
        assert_eq!(hold.locks().get("project").await.unwrap().unwrap().token, got.token());
    });
}

#[test]
fn a_lock_is_waited_for_until_it_runs_out() {
    on_every_store(async |hold, _| {
        // Its holder has gone without a word, and nobody will be woken.
        let gone = hold.run(LockAcquire { ttl_seconds: SECOND, ..LockAcquire::new("project", "gone") });
        let gone = gone.await.unwrap();
        let guard = hold.locks().acquire("project", "two", LONG).await.unwrap();
        assert!(guard.token() > gone.token);
    });
}

#[test]
fn a_group_waits_for_events_and_for_those_that_come_again() {
    on_every_store(async |hold, _| {
        let log = stream("log/1");
        let source = Source::Category("log".into());
        let read = || {
            let mut read = GroupRead::new("", "readers", source.clone(), "one");
            read.visibility_seconds = SECOND;
            let hold = hold.clone();
            async move { hold.groups().read(read, Some(LONG)).await }
        };
        let append = hold.streams().append(&log, vec![NewEvent::new("e")]);
        let first = while_waiting(read(), append).await.unwrap();
        assert_eq!((first[0].event.seq, first[0].delivery), (1, 1));
        let again = read().await.unwrap();
        assert_eq!((again[0].event.seq, again[0].delivery), (1, 2), "its visibility ran out");
        let refs = vec![DeliveryRef::from(&again[0])];
        let nack = hold.groups().nack("readers", &source, refs, None);
        let (waiting, read) = (hold.clone(), GroupRead::new("", "readers", source.clone(), "two"));
        let wait = async move { waiting.groups().read(read, Some(LONG)).await };
        assert_eq!(while_waiting(wait, nack).await.unwrap()[0].delivery, 3, "it was given back");
    });
}

#[test]
fn a_wait_ends_when_its_time_is_over() {
    on_every_store(async |hold, _| {
        let most = Duration::from_millis(50);
        assert!(hold.tasks().claim_wait(&["default"], "one", 1, most).await.unwrap().is_empty());
        assert_eq!(hold.entries().wait("key", Some(most)).await.unwrap(), None);
        assert_eq!(hold.results().wait("key", Some(most)).await.unwrap(), None);
        let task = hold.tasks().create(TaskCreate::new("work")).await.unwrap().task;
        assert_eq!(hold.tasks().wait(task.id, Some(most)).await.unwrap().status, Status::Pending);
        let _guard = hold.locks().try_acquire("project", "one").await.unwrap().unwrap();
        assert_eq!(code(hold.locks().acquire("project", "two", most).await), "held");
        let read = GroupRead::new("", "readers", Source::Stream(stream("log/1")), "one");
        assert!(hold.groups().read(read, Some(most)).await.unwrap().is_empty());
    });
}

/// A lock for two seconds.
fn short(owner: &str) -> LockAcquire {
    LockAcquire { ttl_seconds: Seconds::new(2), ..LockAcquire::new("project", owner) }
}

#[test]
fn a_guard_renews_its_lock() {
    on_every_store(async |hold, _| {
        let guard = hold.locks().acquire_with(short("one"), None).await.unwrap();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(5) {
            assert_eq!(code(hold.locks().acquire_with(short("two"), None).await), "held");
            assert!(!guard.is_lost());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut batch = hold.batch().fence(guard.fence());
        let _ = batch.add(statehold::DocumentPut::json("project", "1", json("mine")));
        hold.apply(batch).await.expect("what is written with its fence is accepted");
        guard.release().await.unwrap();
    });
}

#[test]
fn a_guard_that_was_robbed_is_told() {
    on_every_store(async |hold, clock: Clock| {
        let guard = hold.locks().acquire_with(short("one"), None).await.unwrap();
        assert_eq!(hold.locks().force_release("project").await.unwrap().unwrap().owner, "one");
        soon(guard.lost()).await;
        assert!(guard.is_lost());

        let guard = hold.locks().acquire_with(short("one"), None).await.unwrap();
        clock.advance(10);
        soon(guard.lost()).await;
        let other = hold.locks().acquire_with(short("two"), None).await.unwrap();
        drop(guard);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let held = hold.locks().get("project").await.unwrap().unwrap();
        assert_eq!((held.owner.as_str(), held.token), ("two", other.token()), "a lost guard frees nothing");
    });
}

#[test]
fn a_guard_that_is_dropped_frees_its_lock() {
    on_every_store(async |hold, _| {
        let guard = hold.locks().try_acquire("project", "one").await.unwrap().unwrap();
        let waiting = hold.clone();
        let wait = async move { waiting.locks().acquire("project", "two", LONG).await };
        let dropped = async {
            drop(guard);
            Ok(())
        };
        while_waiting(wait, dropped).await.unwrap();
    });
}
