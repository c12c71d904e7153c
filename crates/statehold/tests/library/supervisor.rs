//! The supervisor: what has run out of time is seen to, in every namespace, without anyone asking for work.

use std::time::Duration;

use crate::common::{claim, json, on_every_store, soon, story, stream};
use statehold::core::policy::{Retention, StreamRetention};
use statehold::supervisor::{LEADER, Supervisor};
use statehold::worker::Stopping;
use statehold::{NewEvent, Seconds, Statehold, Status, Task, TaskCreate};

const OFTEN: Duration = Duration::from_millis(20);

/// Leaves something behind of everything that time brings to an end.
async fn fill(hold: &Statehold, due: statehold::Timestamp) -> [Task; 3] {
    hold.tasks().create(TaskCreate::new("done")).await.unwrap();
    let done = claim(hold, "one").await.complete(None).await.unwrap();
    hold.tasks().create(TaskCreate::new("lost")).await.unwrap();
    let lost = claim(hold, "gone").await.task().clone();
    let expires_at = Some(due);
    let expiring = TaskCreate { expires_at, ..TaskCreate::new("late").queue("late") };
    let expiring = hold.tasks().create(expiring).await.unwrap().task;
    hold.entries().set("key", json("value"), Duration::from_secs(60)).await.unwrap();
    hold.streams().append(&stream("live/1"), vec![NewEvent::new("token"); 30]).await.unwrap();
    [done, lost, expiring]
}

#[test]
fn leases_timers_and_retention_are_seen_to_in_every_namespace() {
    on_every_store(async |hold, clock| {
        let spaces = ["default", "first", "second"].map(|namespace| hold.at(namespace));
        let mut tasks = Vec::new();
        for space in &spaces {
            tasks.push(fill(space, clock.now() + Seconds::new(60)).await);
        }
        clock.advance(3600);
        let retention = Retention {
            tasks: [(Status::Completed, Seconds::new(60))].into(),
            streams: [("live".into(), StreamRetention { max_length: Some(10), max_age_seconds: None })]
                .into(),
        };
        let stopping = Stopping::new();
        let supervisor = Supervisor::new(&hold).every(OFTEN).retention(retention);
        let running = tokio::spawn(supervisor.run(stopping.clone()));
        for (space, [done, lost, expiring]) in spaces.iter().zip(&tasks) {
            let freed = space.tasks().wait_until(lost.id, None, |task| task.status == Status::Pending);
            assert_eq!(soon(freed).await.unwrap().lease_losses, 1);
            assert_eq!(story(space, lost).await.last().unwrap(), "task.lease_lost");
            let failed = soon(space.tasks().wait(expiring.id, None)).await.unwrap();
            assert_eq!(failed.error.unwrap().code.as_deref(), Some("expired"));
            while space.tasks().get(done.id).await.unwrap().is_some() {
                tokio::time::sleep(OFTEN).await;
            }
            let trimmed = async {
                while space.streams().last(&stream("live/1"), 30).await.unwrap().len() > 10 {
                    tokio::time::sleep(OFTEN).await;
                }
            };
            soon(trimmed).await;
        }
        stopping.cancel();
        let swept = soon(running).await.unwrap().unwrap();
        let counts = (swept.leases, swept.timers, swept.entries, swept.purged, swept.trimmed);
        assert_eq!(counts, (3, 3, 3, 3, 3), "{swept:?}");
        assert_eq!(hold.locks().get(LEADER).await.unwrap(), None, "the leadership is given back");
    });
}

#[test]
fn more_than_one_sweep_can_do_is_done_at_once() {
    on_every_store(async |hold, clock| {
        for _ in 0..250 {
            hold.tasks().create(TaskCreate::new("work")).await.unwrap();
        }
        assert_eq!(hold.tasks().claim(&["default"], "gone", 250).await.unwrap().len(), 250);
        clock.advance(3600);
        // It looks once in the time of this test.
        let supervisor = Supervisor::new(&hold).every(Duration::from_secs(3600));
        let stopping = Stopping::new();
        let running = tokio::spawn(supervisor.run(stopping.clone()));
        while hold.tasks().count(None).await.unwrap().claimable < 250 {
            tokio::time::sleep(OFTEN).await;
        }
        stopping.cancel();
        assert_eq!(soon(running).await.unwrap().unwrap().leases, 250);
    });
}

#[test]
fn a_leader_that_stops_is_succeeded_at_once() {
    on_every_store(async |hold, _| {
        let start = || {
            let stopping = Stopping::new();
            (tokio::spawn(Supervisor::new(&hold).every(OFTEN).run(stopping.clone())), stopping)
        };
        let leader = async || {
            loop {
                if let Some(lock) = hold.locks().get(LEADER).await.unwrap() {
                    return lock.owner;
                }
                tokio::time::sleep(OFTEN).await;
            }
        };
        let (first, stop_first) = start();
        let owner = leader().await;
        let (second, stop_second) = start();
        tokio::time::sleep(10 * OFTEN).await;
        assert_eq!(leader().await, owner, "whoever leads goes on leading");
        stop_first.cancel();
        soon(first).await.unwrap().unwrap();
        assert_ne!(soon(leader()).await, owner);
        stop_second.cancel();
        soon(second).await.unwrap().unwrap();
    });
}
