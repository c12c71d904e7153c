//! Futures that are dropped at any moment: afterwards nobody holds anything that nobody knows of.

use std::time::Duration;

use crate::common::{on_every_store, random, stream};
use statehold::core::call::{Claim, GroupRead};
use statehold::core::command::{DeliveryRef, LockAcquire};
use statehold::core::model::Source;
use statehold::{NewEvent, Seconds, Statehold, TaskCreate};

const ROUNDS: u64 = 2000;

/// Polls at most some times, with pauses of some microseconds, so that the future is dropped at any point of its way.
async fn briefly<F: Future>(work: F) -> Option<F::Output> {
    let patience = async {
        for _ in 0..random(8) {
            tokio::task::yield_now().await;
            std::thread::sleep(Duration::from_micros(random(150)));
        }
    };
    tokio::select! {
        biased;
        done = work => Some(done),
        () = patience => None,
    }
}

/// Leases and locks that would not end by themselves while the test runs.
const LONG: Seconds = Seconds::new(3600);

fn a_claim(hold: &Statehold, limit: u32) -> Claim {
    Claim { limit, lease_seconds: Some(LONG), ..Claim::new(hold.namespace(), "default", "hasty") }
}

/// Claims until all tasks are in hand. What is still on its way comes back soon; what nobody knows of would not.
async fn claim_all(hold: &Statehold, tasks: u32) {
    let mut leases = Vec::new();
    while let left @ 1.. = tasks - u32::try_from(leases.len()).unwrap() {
        leases.extend(
            hold.tasks().claim_with(a_claim(hold, left), Some(Duration::from_millis(20))).await.unwrap(),
        );
    }
}

#[test]
fn a_claim_that_is_dropped_holds_no_task() {
    on_every_store(async |hold, _| {
        for _ in 0..10 {
            hold.tasks().create(TaskCreate::new("work")).await.unwrap();
        }
        let (mut dropped, mut answered) = (0, 0);
        for round in 0..ROUNDS {
            let most = (round % 2 == 0).then_some(Duration::from_millis(5));
            let Some(leases) = briefly(hold.tasks().claim_with(a_claim(&hold, 3), most)).await else {
                dropped += 1;
                continue;
            };
            answered += 1;
            for lease in leases.unwrap() {
                lease.release().await.unwrap();
            }
        }
        eprintln!("{dropped} dropped, {answered} answered");
        assert!(dropped > 0 && answered > 0, "both happen: {dropped} dropped, {answered} answered");
        claim_all(&hold, 10).await;
    });
}

#[test]
fn a_start_that_is_dropped_holds_no_task() {
    on_every_store(async |hold, _| {
        let task = hold.tasks().create(TaskCreate::new("work")).await.unwrap().task;
        for _ in 0..ROUNDS / 4 {
            if let Some(Ok(lease)) = briefly(hold.tasks().start(task.id, "hasty", Some(LONG))).await {
                lease.release().await.unwrap();
            }
        }
        claim_all(&hold, 1).await;
    });
}

#[test]
fn a_lock_whose_acquisition_is_dropped_is_free() {
    on_every_store(async |hold, _| {
        let (mut dropped, mut answered) = (0, 0);
        for round in 0..ROUNDS {
            let acquire = LockAcquire { ttl_seconds: LONG, ..LockAcquire::new("project/1", "hasty") };
            let most = Some(Duration::from_millis(round % 5));
            match briefly(hold.locks().acquire_with(acquire, most)).await {
                None => dropped += 1,
                // Released, dropped, or released by a future that is dropped itself.
                Some(Ok(guard)) => {
                    answered += 1;
                    match random(3) {
                        0 => guard.release().await.unwrap(),
                        1 => drop(guard),
                        _ => drop(briefly(guard.release()).await),
                    }
                }
                Some(Err(error)) => assert_eq!(error.code(), "held"),
            }
        }
        eprintln!("{dropped} dropped, {answered} answered");
        assert!(dropped > 0 && answered > 0, "both happen: {dropped} dropped, {answered} answered");
        let most = Duration::from_secs(30);
        hold.locks().acquire("project/1", "patient", most).await.expect("nobody has the lock for good");
    });
}

#[test]
fn deliveries_of_a_read_that_is_dropped_come_again_at_once() {
    on_every_store(async |hold, _| {
        let log = stream("log/1");
        hold.streams().append(&log, vec![NewEvent::new("happened"); 20]).await.unwrap();
        let source = Source::Stream(log);
        let mut read = GroupRead::new(hold.namespace(), "readers", source.clone(), "hasty");
        (read.limit, read.visibility_seconds, read.max_deliveries) = (7, LONG, u32::MAX);
        let (mut dropped, mut answered) = (0, 0);
        for round in 0..ROUNDS {
            let most = (round % 2 == 0).then_some(Duration::from_millis(5));
            let Some(events) = briefly(hold.groups().read(read.clone(), most)).await else {
                dropped += 1;
                continue;
            };
            answered += 1;
            let refs: Vec<_> = events.unwrap().iter().map(DeliveryRef::from).collect();
            if !refs.is_empty() {
                hold.groups().nack("readers", &source, refs, None).await.unwrap();
            }
        }
        eprintln!("{dropped} dropped, {answered} answered");
        assert!(dropped > 0 && answered > 0, "both happen: {dropped} dropped, {answered} answered");
        let mut seen = std::collections::BTreeSet::new();
        while seen.len() < 20 {
            for delivered in hold.groups().read(read.clone(), Some(Duration::from_millis(20))).await.unwrap()
            {
                assert!(seen.insert(delivered.event.seq), "nobody else can have given it back");
            }
        }
    });
}
