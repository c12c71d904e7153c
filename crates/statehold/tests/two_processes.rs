//! Two processes on one file: a wait in one ends by what the other does, and of two supervisors one leads.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use common::{PATIENCE, block_on, claim, folder, json, open, soon, stream, while_waiting};
use statehold::core::call::GroupRead;
use statehold::core::model::Source;
use statehold::supervisor::{LEADER, Supervisor};
use statehold::worker::Stopping;
use statehold::{NewEvent, Statehold, Status, TaskCreate};
use statehold_conformance::named;
use statehold_conformance::process::{self, Process, given, hear, say};

fn main() -> ExitCode {
    process::run(
        named![
            waits_end_by_what_another_process_does,
            of_two_supervisors_one_leads_and_is_succeeded_when_it_is_killed,
        ],
        named![other, supervisor],
    )
}

/// Longer than anything here takes, so that a wait that is not woken fails.
const LONG: Duration = PATIENCE;

/// Another process, which does what it is told.
fn other() {
    let path = PathBuf::from(given("DATABASE"));
    block_on(async {
        let hold = open(&path).await;
        let (log, mut guard) = (stream("log/1"), hold.locks().try_acquire("project", "other").await.unwrap());
        say("open");
        while let Some(line) = hear() {
            let done = match line.as_str() {
                "create" => hold.tasks().create(TaskCreate::new("work")).await.map(drop),
                "complete" => claim(&hold, "other").await.complete(None).await.map(drop),
                "set" => hold.results().set("run-7", json("42")).await.map(|_| ()),
                "release" => guard.take().unwrap().release().await,
                "append" => hold.streams().append(&log, vec![NewEvent::new("e")]).await.map(|_| ()),
                _ => panic!("what is {line}?"),
            };
            done.expect("it is done");
        }
    });
}

fn waits_end_by_what_another_process_does() {
    let folder = folder();
    let path = folder.path().join("state.db");
    block_on(async {
        let hold = open(&path).await;
        let mut other = Process::start("other", &[("DATABASE", path.as_os_str())]);
        other.expect("open");
        let claiming = hold.clone();
        let claimed = async move { claiming.tasks().claim_wait(&["default"], "one", 1, LONG).await };
        let lease = while_waiting(claimed, other.told("create")).await.unwrap().remove(0);
        lease.release().await.unwrap();
        let (waiting, id) = (hold.clone(), lease.id());
        let ended = async move { waiting.tasks().wait(id, None).await };
        assert_eq!(while_waiting(ended, other.told("complete")).await.unwrap().status, Status::Completed);
        let waiting = hold.clone();
        let result = async move { waiting.results().wait("run-7", None).await };
        assert_eq!(while_waiting(result, other.told("set")).await.unwrap(), Some(json("42")));
        let waiting = hold.clone();
        let locked = async move { waiting.locks().acquire("project", "one", LONG).await };
        while_waiting(locked, other.told("release")).await.unwrap();
        let reading = hold.clone();
        let read = GroupRead::new("", "readers", Source::Stream(stream("log/1")), "one");
        let events = async move { reading.groups().read(read, Some(LONG)).await };
        assert_eq!(while_waiting(events, other.told("append")).await.unwrap().len(), 1);
        other.finish();
    });
}

/// Supervises until its input ends.
fn supervisor() {
    let path = PathBuf::from(given("DATABASE"));
    block_on(async {
        let hold = open(&path).await;
        let stopping = Stopping::new();
        let told = stopping.clone();
        std::thread::spawn(move || {
            while hear().is_some() {}
            told.cancel();
        });
        Supervisor::new(&hold).every(Duration::from_millis(50)).run(stopping).await.unwrap();
    });
}

/// The number of the process that leads.
async fn leader(hold: &Statehold) -> Option<u32> {
    let lock = hold.locks().get(LEADER).await.unwrap()?;
    // Owners are named `machine/process/random`.
    lock.owner.rsplit('/').nth(1).unwrap().parse().ok()
}

/// Waits until one of some processes leads.
async fn leads(hold: &Statehold, among: &[u32]) -> u32 {
    let wait = async {
        loop {
            match leader(hold).await {
                Some(leader) if among.contains(&leader) => return leader,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    soon(wait).await
}

fn of_two_supervisors_one_leads_and_is_succeeded_when_it_is_killed() {
    let folder = folder();
    let path = folder.path().join("state.db");
    block_on(async {
        let hold = open(&path).await;
        let start = || Process::start("supervisor", &[("DATABASE", path.as_os_str())]);
        let mut both = [start(), start()];
        let ids = both.each_ref().map(Process::id);
        let first = leads(&hold, &ids).await;
        for _ in 0..20 {
            assert_eq!(leader(&hold).await, Some(first), "it stays the leader");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let (killed, successor) = if first == ids[0] { (0, 1) } else { (1, 0) };
        both[killed].kill();
        leads(&hold, &[ids[successor]]).await;

        // It does what a leader does.
        let other = hold.at("other");
        let task = other.tasks().create(TaskCreate::new("work")).await.unwrap().task;
        other.tasks().start(task.id, "gone", Some(1.into())).await.unwrap();
        let freed = other.tasks().wait_until(task.id, None, |task| task.status == Status::Pending);
        assert_eq!(soon(freed).await.unwrap().lease_losses, 1);
        let [one, two] = both;
        let survivor = if killed == 0 { two } else { one };
        survivor.finish();
        assert_eq!(leader(&hold).await, None, "whoever ends well gives the leadership back");
    });
}
