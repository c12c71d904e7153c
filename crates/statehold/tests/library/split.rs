//! Two stores as one: what is on which, and what holds when one of them is away.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{block_on, claim, folder, json, soon, stream};
use statehold::core::batch::Fence;
use statehold::core::command::{EntrySet, EntryTake, StreamAppend, TaskComplete};
use statehold::core::query::{KeyList, ReadFrom};
use statehold::{Batch, NewEvent, Statehold, Store, TaskCreate, TaskId};
use statehold_conformance::redis::Server;
use tempfile::TempDir;

/// A file for what must last, with a Redis server beside it.
async fn split(folder: &TempDir, ephemeral: &str) -> Statehold {
    let store = Store::parse(&file(folder)).unwrap().with_ephemeral(ephemeral).unwrap();
    Statehold::on(store.open().await.unwrap())
}

fn file(folder: &TempDir) -> String {
    format!("sqlite:{}", folder.path().join("state.db").display())
}

/// Waits until the ephemeral store is, or is not, away.
async fn until_away(hold: &Statehold, away: bool) {
    while hold.backend().health().await.unwrap().ephemeral.unwrap().away.is_some() != away {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn appending(name: &str) -> StreamAppend {
    StreamAppend { stream: stream(name), events: vec![NewEvent::new("token")], expect_seq: None }
}

#[test]
fn results_heartbeats_and_live_streams_are_on_the_ephemeral_store_and_the_rest_is_not() {
    let (folder, server) = (folder(), Server::start(&[]));
    block_on(async {
        let hold = split(&folder, &server.url()).await;
        let hour = Duration::from_secs(3600);
        for key in ["result/1", "heartbeat/a", "code/1"] {
            hold.entries().set(key, json(&1), hour).await.unwrap();
        }
        hold.streams().append(&stream("live/1"), vec![NewEvent::new("token")]).await.unwrap();
        hold.streams().append(&stream("thread/1"), vec![NewEvent::new("message")]).await.unwrap();
        let mut batch = hold.batch();
        let _ = batch.add(TaskCreate::new("k"));
        let _ = batch.add(EntrySet::new("result/mixed", json(&1)));
        hold.apply(batch).await.unwrap();

        let (a, b) =
            (Statehold::open(&file(&folder)).await.unwrap(), Statehold::open(&server.url()).await.unwrap());
        for (key, durable) in
            [("result/1", false), ("heartbeat/a", false), ("code/1", true), ("result/mixed", true)]
        {
            assert_eq!(a.entries().get(key).await.unwrap().is_some(), durable, "{key}");
            assert_eq!(b.entries().get(key).await.unwrap().is_some(), !durable, "{key}");
            assert!(hold.entries().get(key).await.unwrap().is_some(), "{key}");
        }
        for (name, durable) in [("live/1", false), ("thread/1", true)] {
            let count = async |hold: &Statehold| hold.streams().last(&stream(name), 10).await.unwrap().len();
            assert_eq!((count(&a).await, count(&b).await), (usize::from(durable), usize::from(!durable)));
            assert_eq!(count(&hold).await, 1, "{name}");
        }
        let listed = hold.entries().list(&KeyList::default()).await.unwrap().items;
        let keys: Vec<_> = listed.iter().map(|entry| &*entry.key).collect();
        assert_eq!(keys, ["code/1", "heartbeat/a", "result/1", "result/mixed"]);
    });
}

/// Lets the server do nothing that writes for a while.
fn pause_writes(server: &Server, millis: u32) {
    let mut raw = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    write!(raw, "CLIENT PAUSE {millis} WRITE\r\n").unwrap();
    let mut said = [0; 5];
    raw.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"+OK\r\n");
}

#[test]
fn an_event_of_a_live_stream_that_may_have_been_appended_is_not_appended_again() {
    let (folder, server) = (folder(), Server::start(&[]));
    block_on(async {
        let (hold, name) = (split(&folder, &server.url()).await, stream("live/1"));
        hold.streams().append(&name, vec![NewEvent::new("token")]).await.unwrap();
        // It takes longer than is waited for, and is done after that.
        pause_writes(&server, 3000);
        let lost = hold.streams().append(&name, vec![NewEvent::new("token")]).await;
        assert_eq!(lost.unwrap_err().code(), "timeout");
        until_away(&hold, false).await;
        hold.streams().append(&name, vec![NewEvent::new("token")]).await.unwrap();
        let events = hold.streams().last(&name, 10).await.unwrap();
        assert_eq!(events.len(), 3, "each once");
    });
}

#[test]
fn what_is_about_live_streams_goes_alone_and_only_while_the_lease_lasts() {
    let (folder, server) = (folder(), Server::start(&[]));
    block_on(async {
        let hold = split(&folder, &server.url()).await;
        hold.tasks().create(TaskCreate::new("k")).await.unwrap();
        let lease = claim(&hold, "w").await;
        let fence = Fence::Task { task: lease.task().id, token: lease.token() };
        let fenced = || {
            let mut batch = hold.batch().fence(fence.clone());
            let _ = batch.add(appending("live/1"));
            batch
        };
        hold.apply(fenced()).await.unwrap();
        let mut mixed: Batch = fenced();
        let _ = mixed.add(appending("thread/1"));
        assert_eq!(hold.apply(mixed).await.unwrap_err().code(), "unsupported");
        lease.settle().complete(None).await.unwrap();
        assert_eq!(hold.apply(fenced()).await.unwrap_err().code(), "fenced");
        assert_eq!(hold.streams().last(&stream("live/1"), 10).await.unwrap().len(), 1);
    });
}

#[test]
fn without_the_ephemeral_store_results_go_on_and_it_is_used_again_by_itself() {
    let (folder, mut server) = (folder(), Server::start(&[]));
    block_on(async {
        let hold = split(&folder, &server.url()).await;
        hold.results().set("before", json(&1)).await.unwrap();
        hold.streams().append(&stream("live/1"), vec![NewEvent::new("token")]).await.unwrap();
        server.kill();
        let waiting = {
            let hold = hold.clone();
            tokio::spawn(async move { hold.results().wait("during", None).await })
        };
        hold.results().set("during", json(&2)).await.unwrap();
        assert_eq!(soon(waiting).await.unwrap().unwrap(), Some(json(&2)), "it is handed over");
        assert_eq!(hold.results().get("before").await.unwrap(), None, "it is not seen meanwhile");
        assert_eq!(hold.streams().last(&stream("live/1"), 1).await.unwrap_err().code(), "unavailable");
        let health = hold.backend().health().await.unwrap();
        assert!(health.notes.iter().any(|note| note.contains("degraded")), "{health:?}");
        let ephemeral = health.ephemeral.unwrap();
        assert!(ephemeral.away.is_some() && ephemeral.fallbacks > 0, "{ephemeral:?}");

        server.revive();
        soon(until_away(&hold, false)).await;
        for (key, value) in [("before", 1), ("during", 2)] {
            assert_eq!(hold.results().get(key).await.unwrap(), Some(json(&value)), "nothing is lost");
        }
        assert_eq!(hold.streams().last(&stream("live/1"), 1).await.unwrap().len(), 1);
        hold.results().set("after", json(&3)).await.unwrap();
        let b = Statehold::open(&server.url()).await.unwrap();
        assert_eq!(b.results().get("after").await.unwrap(), Some(json(&3)), "it is used again");
    });
}

#[test]
fn what_was_replaced_taken_or_deleted_while_the_store_was_away_does_not_come_back() {
    let (folder, mut server) = (folder(), Server::start(&[]));
    block_on(async {
        let hold = split(&folder, &server.url()).await;
        for key in ["replaced", "taken", "deleted", "left"] {
            hold.results().set(key, json(&"old")).await.unwrap();
        }
        server.kill();
        hold.results().set_for("replaced", json(&"new"), Duration::from_millis(1)).await.unwrap();
        hold.results().set("taken", json(&"new")).await.unwrap();
        assert_eq!(hold.results().take("taken").await.unwrap(), Some(json(&"new")));
        hold.entries().delete("result/deleted").await.unwrap();
        server.revive();
        soon(until_away(&hold, false)).await;
        for key in ["replaced", "taken", "deleted"] {
            assert_eq!(hold.results().get(key).await.unwrap(), None, "{key}");
        }
        assert_eq!(hold.results().get("left").await.unwrap(), Some(json(&"old")));
    });
}

#[test]
fn it_starts_while_the_ephemeral_store_is_away() {
    let (folder, mut server) = (folder(), Server::start(&[]));
    server.kill();
    block_on(async {
        let hold = split(&folder, &server.url()).await;
        hold.results().set("1", json(&1)).await.unwrap();
        assert_eq!(hold.results().take("1").await.unwrap(), Some(json(&1)));
        server.revive();
        soon(until_away(&hold, false)).await;
    });
}

#[test]
fn without_the_durable_store_everything_fails_loudly() {
    let (mut durable, ephemeral) = (Server::start(&[]), Server::start(&[]));
    block_on(async {
        let store = Store::parse(&durable.url()).unwrap().with_ephemeral(&ephemeral.url()).unwrap();
        let hold = Statehold::on(store.open().await.unwrap());
        hold.results().set("1", json(&1)).await.unwrap();
        durable.kill();
        let namespace = hold.namespace();
        assert_eq!(hold.backend().entry_get(namespace, "result/1").await.unwrap_err().code(), "unavailable");
        let create = Batch::of(namespace, TaskCreate::new("k")).0.prepare().unwrap();
        let error = hold.backend().apply(create).await.unwrap_err();
        assert!(matches!(error.code(), "unavailable" | "timeout"), "{error}");
        assert_eq!(hold.backend().health().await.unwrap_err().code(), "unavailable");
        let take = Batch::of(namespace, EntryTake { key: "result/1".into() }).0.prepare().unwrap();
        assert!(hold.backend().apply(take).await.is_err());
        let b = Statehold::open(&ephemeral.url()).await.unwrap();
        assert!(b.results().get("1").await.unwrap().is_some(), "what could not be settled is still there");
    });
}

#[test]
fn a_reader_of_a_live_stream_is_told_that_the_store_lost_its_memory() {
    let (folder, mut server) = (folder(), Server::start(&["--appendonly", "no"]));
    block_on(async {
        let hold = split(&folder, &server.url()).await;
        hold.streams().append(&stream("live/1"), vec![NewEvent::new("token"); 5]).await.unwrap();
        server.kill();
        server.revive();
        soon(async { while hold.run(appending("live/1")).await.is_err() {} }).await;
        let read = hold.streams().read(&stream("live/1"), ReadFrom::After(5), 10).await;
        assert_eq!(read.unwrap_err().code(), "compacted");
    });
}

/// How many results are handed over.
const RESULTS: usize = 2000;
/// After so many the server is killed, and after so many it is there again.
const KILLED: usize = 600;
const REVIVED: usize = 1200;

/// Tasks that are completed, each with its number as output.
async fn completed(hold: &Statehold) -> Vec<TaskId> {
    let mut ids = Vec::new();
    for some in 0..RESULTS / 1000 {
        let mut batch = hold.batch();
        for _ in 0..1000 {
            let _ = batch.add(TaskCreate::new("k"));
        }
        hold.apply(batch).await.unwrap();
        let leases = hold.tasks().claim(&["default"], "w", 1000).await.unwrap();
        let mut batch = hold.batch();
        for (number, lease) in leases.iter().enumerate() {
            let (id, token) = (lease.task().id, lease.token());
            let output = Some(json(&(some * 1000 + number)));
            let _ = batch.add(TaskComplete { id, token, output });
            ids.push(id);
        }
        hold.apply(batch).await.unwrap();
    }
    ids
}

/// What a monitor does: it waits for the result for a moment, and then looks at the job itself. Whether it was the
/// result is answered.
async fn collect(hold: &Statehold, ids: &[TaskId], number: usize) -> bool {
    let result = hold.results().wait(&number.to_string(), Some(Duration::from_millis(1))).await.unwrap();
    let task = hold.tasks().get(ids[number]).await.unwrap().unwrap();
    assert_eq!(task.output, Some(json(&number)), "the job's own state covers it");
    if let Some(result) = &result {
        assert_eq!(*result, json(&number));
    }
    result.is_some()
}

#[test]
fn results_that_were_written_while_redis_was_down_all_arrive_and_the_jobs_themselves_cover_the_rest() {
    let (folder, mut server) = (folder(), Server::start(&["--appendonly", "no"]));
    block_on(async {
        let hold = split(&folder, &server.url()).await;
        let ids = completed(&hold).await;
        let (next, written) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(BTreeSet::new())));
        let down = Arc::new(Mutex::new(BTreeSet::new()));
        let is_down = Arc::new(AtomicUsize::new(0));
        let writers: Vec<_> = (0..8)
            .map(|_| {
                let (hold, next, written) = (hold.clone(), Arc::clone(&next), Arc::clone(&written));
                let (down, is_down) = (Arc::clone(&down), Arc::clone(&is_down));
                tokio::spawn(async move {
                    loop {
                        let number = next.fetch_add(1, Ordering::SeqCst);
                        if number >= RESULTS {
                            return;
                        }
                        let before = is_down.load(Ordering::SeqCst);
                        hold.results().set(&number.to_string(), json(&number)).await.unwrap();
                        if before == 1 && is_down.load(Ordering::SeqCst) == 1 {
                            down.lock().unwrap().insert(number);
                        }
                        written.lock().unwrap().insert(number);
                    }
                })
            })
            .collect();
        let count = || written.lock().unwrap().len();
        let until = async |most: usize| {
            while count() < most {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        soon(until(KILLED)).await;
        server.kill();
        is_down.store(1, Ordering::SeqCst);
        soon(until(REVIVED)).await;
        is_down.store(2, Ordering::SeqCst);
        server.revive();
        soon(until(RESULTS)).await;
        for writer in writers {
            writer.await.unwrap();
        }
        soon(until_away(&hold, false)).await;
        let mut arrived = BTreeSet::new();
        for number in 0..RESULTS {
            if collect(&hold, &ids, number).await {
                arrived.insert(number);
            }
        }
        let down = down.lock().unwrap().clone();
        eprintln!("{} of {RESULTS} results arrived, {} written while it was down", arrived.len(), down.len());
        assert!(
            down.len() > (REVIVED - KILLED) / 2,
            "too few were written while it was down: {}",
            down.len()
        );
        assert_eq!(down.difference(&arrived).collect::<Vec<_>>(), Vec::<&usize>::new(), "these were lost");
        assert!(arrived.len() < RESULTS, "what was only in the server's memory is lost by design");
    });
}
