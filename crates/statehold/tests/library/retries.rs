//! A bad line to the store, which cuts calls off before or after they are done: each is repeated, and happens once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::common::flaky::Flaky;
use crate::common::{claim, code, events, everything, json, story, stream, tasks};
use statehold::core::call::{Claim, GroupRead};
use statehold::core::command::{DeliveryRef, EntrySet, Expect};
use statehold::core::model::{Event, Source};
use statehold::{Clock, DocumentPut, Json, NewEvent, Statehold, Status, TaskCreate, TaskError};

const ROUNDS: u64 = 100;
const HOUR: Duration = Duration::from_secs(3600);

/// Runs a case on a store of whose calls one in four is cut off before and one in four after it is done. The pauses
/// between tries take no time here.
fn on_a_bad_line(case: impl AsyncFn(Statehold)) {
    let store = Arc::new(Flaky::new(Clock::real(), 4));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(case(Statehold::on(store.clone())));
    let (unreached, unanswered) = store.troubles();
    eprintln!("{unreached} calls did not reach the store, {unanswered} were not answered");
    assert!(unreached > 10 && unanswered > 10, "the line was too good: {unreached} and {unanswered}");
}

#[test]
fn a_task_is_created_once_and_the_caller_is_told_so() {
    on_a_bad_line(async |hold| {
        for round in 0..ROUNDS {
            let plain = hold.tasks().create(TaskCreate::new("plain")).await.unwrap();
            assert!(plain.created, "nobody else could have made it");
            let keyed = || TaskCreate::new("keyed").idempotency_key(format!("hook-{round}"));
            let first = hold.tasks().create(keyed()).await.unwrap();
            let again = hold.tasks().create(keyed()).await.unwrap();
            assert!(first.created && !again.created, "the first one has made it");
            assert_eq!(first.task.id, again.task.id);
        }
        assert_eq!(tasks(&hold).await.len() as u64, 2 * ROUNDS);
    });
}

#[test]
fn an_event_is_appended_once() {
    on_a_bad_line(async |hold| {
        let log = stream("log/1");
        for round in 1..=ROUNDS {
            let appended = hold.streams().append(&log, vec![NewEvent::new("e").data(json(&round))]).await;
            assert_eq!(appended.unwrap().last_seq, round, "the answer is that of the first try");
        }
        let number = |event: Event| event.data.unwrap().to::<u64>().unwrap();
        let numbers = events(&hold, &log).await.into_iter().map(number);
        assert!(numbers.eq(1..=ROUNDS), "nothing twice, nothing left out");
    });
}

#[test]
fn an_entry_is_set_and_taken_once() {
    on_a_bad_line(async |hold| {
        for round in 0..ROUNDS {
            let key = format!("code/{round}");
            let set = EntrySet { if_absent: true, ..EntrySet::new(&key, json(&round)) };
            hold.entries().set_with(set).await.expect("it does not meet itself");
            let taken = hold.entries().take(&key).await.unwrap().expect("whoever takes it gets it");
            assert_eq!(taken.value, json(&round));
            assert_eq!(hold.entries().take(&key).await.unwrap(), None);
            hold.results().set_for(&key, json(&round), HOUR).await.unwrap();
            assert!(hold.entries().delete(&format!("result/{key}")).await.unwrap(), "this call removed it");
        }
    });
}

#[test]
fn a_document_is_written_once_and_an_increment_counts_once() {
    on_a_bad_line(async |hold| {
        for round in 1..=ROUNDS {
            let name = format!("plan-{round}");
            let put = |expect| {
                let put = DocumentPut { expect, ..DocumentPut::json("plan", &name, json(&round)) };
                hold.documents().put_with(put)
            };
            let first = put(Expect::Absent).await.expect("it does not meet itself");
            assert_eq!(put(Expect::Revision(first)).await.unwrap(), first + 1);
            assert_eq!(put(Expect::Any).await.unwrap(), first + 2);
            assert!(hold.documents().delete("plan", &name).await.unwrap(), "this call removed it");
            let increment = |body: Option<&Json>| Json::of(&(body.map_or(Ok(0), Json::to::<u64>)? + 1));
            hold.documents().update("counter", "visits", increment).await.unwrap();
        }
        let counter = hold.documents().get("counter", "visits").await.unwrap().unwrap();
        assert_eq!((counter.body, counter.revision), (Some(json(&ROUNDS)), ROUNDS));
    });
}

#[test]
fn a_claim_takes_what_it_answers_and_nothing_else() {
    on_a_bad_line(async |hold| {
        for _ in 0..ROUNDS {
            hold.tasks().create(TaskCreate::new("work")).await.unwrap();
        }
        let mut ids = BTreeSet::new();
        loop {
            let claim = Claim { limit: 3, lease_seconds: None, ..Claim::new("", "default", "one") };
            let leases = hold.tasks().claim_with(claim, None).await.unwrap();
            if leases.is_empty() {
                break;
            }
            for lease in leases {
                assert!(ids.insert(lease.id()), "nothing is given twice");
                assert_eq!(lease.task().attempt, 1, "nothing was given to nobody");
                lease.complete(Some(json("done"))).await.unwrap();
            }
        }
        let counts = hold.tasks().count(None).await.unwrap().counts;
        assert_eq!(counts.into_iter().collect::<Vec<_>>(), [(Status::Completed, ROUNDS)]);
    });
}

#[test]
fn a_lease_does_each_thing_once() {
    on_a_bad_line(async |hold| {
        for round in 0..ROUNDS / 2 {
            let task = TaskCreate { max_attempts: Some(2), ..TaskCreate::new("work") };
            let task = hold.tasks().create(task).await.unwrap().task;
            let lease = hold.tasks().start(task.id, "one", None).await.unwrap();
            assert_eq!(lease.append(vec![NewEvent::new("begun")]).await.unwrap().last_seq, 3);
            let child = lease.dispatch(TaskCreate::new("child").queue("children")).await.unwrap();
            assert!(child.created);
            lease.release().await.unwrap();
            hold.tasks().signal(task.id, "go", Some(json(&round))).await.unwrap();
            let lease = hold.tasks().start(task.id, "two", None).await.unwrap();
            let mut settle = lease.settle();
            settle.append(stream(&format!("log/{round}")), vec![NewEvent::new("done")]);
            let failed = settle.fail(TaskError::new("broken", "it broke"), false).await.unwrap();
            assert_eq!((failed.failures, failed.attempt, failed.status), (1, 2, Status::Failed));
            let kinds = story(&hold, &task).await;
            let expected = ["created", "started", "begun", "released", "signalled", "started", "failed"];
            let kinds: Vec<_> = kinds.iter().map(|kind| kind.trim_start_matches("task.")).collect();
            assert_eq!(kinds, expected);
            assert_eq!(events(&hold, &stream(&format!("log/{round}"))).await.len(), 1);
        }
        assert_eq!(tasks(&hold).await.len() as u64, ROUNDS, "half of them children");
    });
}

#[test]
fn a_delivery_is_made_once_and_acknowledged() {
    on_a_bad_line(async |hold| {
        let log = stream("log/1");
        hold.streams().append(&log, vec![NewEvent::new("e"); 300]).await.unwrap();
        let source = Source::Stream(log);
        let mut read = GroupRead::new("", "readers", source.clone(), "one");
        read.limit = 3;
        for round in 0..ROUNDS {
            let given = hold.groups().read(read.clone(), None).await.unwrap();
            let seqs: Vec<_> = given.iter().map(|given| (given.event.seq, given.delivery)).collect();
            assert_eq!(seqs, [(3 * round + 1, 1), (3 * round + 2, 1), (3 * round + 3, 1)]);
            let refs = given.iter().map(DeliveryRef::from).collect();
            hold.groups().ack("readers", &source, refs).await.unwrap();
        }
        assert_eq!(hold.groups().info("readers", &source).await.unwrap().pending, 0);
        assert!(hold.groups().read(read, None).await.unwrap().is_empty());
    });
}

#[test]
fn a_lock_is_not_held_against_its_own_holder() {
    on_a_bad_line(async |hold| {
        for _ in 0..ROUNDS {
            let token = hold.locks().try_lock("project", "one").await.unwrap();
            hold.locks().release("project", token.expect("nobody else has it")).await.unwrap();
            let guard = hold.locks().try_acquire("project", "two").await.unwrap().expect("nobody has it");
            guard.release().await.unwrap();
            assert_eq!(hold.locks().get("project").await.unwrap(), None);
        }
    });
}

#[test]
fn a_store_that_stays_away_is_told_of_and_nothing_has_happened() {
    let store = Arc::new(Flaky::new(Clock::real(), 0));
    let hold = Statehold::on(store.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(async {
        hold.tasks().create(TaskCreate::new("work")).await.unwrap();
        let before = everything(&hold).await;
        store.set_down(true);
        assert_eq!(code(hold.tasks().create(TaskCreate::new("work")).await), "unavailable");
        assert_eq!(code(hold.tasks().claim(&["default"], "one", 1).await), "unavailable");
        assert_eq!(code(hold.locks().try_acquire("project", "one").await), "unavailable");
        assert_eq!(everything(&hold).await, before);
        store.set_down(false);
        claim(&hold, "one").await;
    });
}
