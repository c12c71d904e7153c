//! What holds when the server crashes, forgets its functions or loses the end of its file, and when several processes
//! want the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::{FutureExt as _, StreamExt as _};
use statehold_conformance::redis::Server;
use statehold_core::batch::Replies;
use statehold_core::call::{Claim, Sweep};
use statehold_core::clock::Seconds;
use statehold_core::command::{
    DocumentPut, EntrySet, Expect, LockAcquire, LockRelease, NewEvent, Op, StreamAppend, TaskComplete,
    TaskCreate, TaskStart,
};
use statehold_core::model::TaskId;
use statehold_core::query::{KeyList, ReadFrom, StreamRead, TaskList};
use statehold_core::{Backend, Batch, Error, ErrorKind, Json, Result, Status};
use statehold_redis::{Config, Redis};

const NAMESPACE: &str = "n";
/// Everything ends long before; a test that does not has failed.
const LIMIT: Duration = Duration::from_secs(60);

async fn open(server: &Server) -> Redis {
    Redis::open(Config::from_url(&server.url()).expect("a good URL")).await.expect("the store opens")
}

async fn raw(server: &Server) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(server.url()).expect("a client");
    client.get_multiplexed_async_connection().await.expect("a connection")
}

async fn apply(store: &Redis, batch: Batch) -> Result<Replies> {
    store.apply(batch.prepare()?).await
}

async fn run<O: Op>(store: &Redis, command: O) -> Result<O::Reply> {
    let (batch, reply) = Batch::of(NAMESPACE, command);
    apply(store, batch).await?.take(reply)
}

fn appending(stream: &str, kind: &str) -> StreamAppend {
    let event = NewEvent { kind: kind.to_owned(), data: None };
    StreamAppend { stream: stream.parse().expect("a name"), events: vec![event], expect_seq: None }
}

fn entry(key: &str, ttl: u64) -> EntrySet {
    let value = Json::parse("1").expect("JSON");
    EntrySet { key: key.into(), value, ttl_seconds: Seconds::new(ttl), if_absent: false }
}

/// An error that a crash of the server may cause.
fn is_of_a_crash(error: &Error) -> bool {
    matches!(error.code(), "timeout" | "unavailable")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_kill_9() {
    const ROUNDS: usize = 10;
    let mut server = Server::start(&[]);
    let store = open(&server).await;
    let acknowledged: Arc<Mutex<BTreeSet<TaskId>>> = Arc::default();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..8)
        .map(|_| {
            let (store, acknowledged) = (store.clone(), Arc::clone(&acknowledged));
            let stop = Arc::clone(&stop);
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let id = TaskId::generate();
                    let create = TaskCreate { id: Some(id), ..TaskCreate::new("k") };
                    match run(&store, create).await {
                        Ok(created) => {
                            acknowledged.lock().expect("the set").insert(created.task.id);
                        }
                        Err(error) => assert!(is_of_a_crash(&error), "{error}"),
                    }
                }
            })
        })
        .collect();
    let count = || acknowledged.lock().expect("the set").len();
    for _ in 0..ROUNDS {
        let (before, began) = (count(), Instant::now());
        while count() < before + 50 {
            assert!(began.elapsed() < LIMIT, "it does not go on after a crash");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server.kill();
        server.revive();
    }
    let before = count();
    while count() < before + 50 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.expect("a writer ends");
    }
    let ids: Vec<_> = acknowledged.lock().expect("the set").iter().copied().collect();
    assert!(ids.len() >= ROUNDS * 50, "{} were acknowledged", ids.len());
    for some in ids.chunks(500) {
        let found = store.task_get(NAMESPACE, some).await.expect("they are read");
        assert!(found.iter().all(Option::is_some), "an acknowledged task is gone");
    }
    let counts = store.task_count(NAMESPACE, None).await.expect("they are counted");
    assert!(counts.claimable >= ids.len() as u64, "the counts were lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_that_are_flushed_under_load_come_back() {
    let server = Server::start(&[]);
    let (store, mut raw) = (open(&server).await, raw(&server).await);
    let writers: Vec<_> = (0..4)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                for _ in 0..100 {
                    run(&store, appending(&format!("s/{number}"), "e")).await.expect("it is appended");
                    store.claim(Claim::new(NAMESPACE, "q", "o")).await.expect("it is answered");
                }
            })
        })
        .collect();
    let mut flushed = 0;
    while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
        redis::cmd("FUNCTION").arg("FLUSH").exec_async(&mut raw).await.expect("it is flushed");
        flushed += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for writer in writers {
        writer.await.expect("nobody noticed");
    }
    assert!(flushed > 3, "it was flushed {flushed} times only");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_token_repeats_when_the_end_of_the_file_is_lost() {
    let mut server = Server::start(&["--auto-aof-rewrite-percentage", "0"]);
    let mut tokens = BTreeMap::new();
    for round in 0..5 {
        let store = open(&server).await;
        for _ in 0..20 {
            let acquire = LockAcquire::new("k", "o");
            let token = run(&store, acquire).await.expect("it is free").token;
            assert_eq!(tokens.insert(token, round), None, "a token came twice");
            run(&store, LockRelease { key: "k".into(), token }).await.expect("it is released");
        }
        let last = tokens.keys().next_back().copied();
        drop(store);
        server.kill();
        let cut = cut_tail(&server, 4000);
        assert!(cut > 0, "nothing was cut");
        server.revive();
        let store = open(&server).await;
        let acquire = LockAcquire::new("k", "p");
        // The release may be what was lost.
        match run(&store, acquire).await {
            Ok(acquired) => {
                assert!(Some(acquired.token) > last, "a token went back");
                tokens.insert(acquired.token, round);
                let release = LockRelease { key: "k".into(), token: acquired.token };
                run(&store, release).await.expect("it is released");
            }
            Err(error) => {
                assert_eq!(error.code(), "held", "{error}");
                let force = statehold_core::command::LockForceRelease { key: "k".into() };
                run(&store, force).await.expect("it is freed");
            }
        }
    }
    assert!(tokens.len() >= 100);
}

/// Cuts bytes off the end of the file that the server appends to; answers how many.
fn cut_tail(server: &Server, bytes: u64) -> u64 {
    let folder = server.folder().join("appendonlydir");
    let files = std::fs::read_dir(folder).expect("the folder").filter_map(std::result::Result::ok);
    let file = files.map(|file| file.path()).find(|path| path.to_string_lossy().ends_with(".incr.aof"));
    let file = std::fs::OpenOptions::new().write(true).open(file.expect("the file")).expect("it opens");
    let length = file.metadata().expect("its length").len();
    let left = length.saturating_sub(bytes);
    file.set_len(left).expect("it is cut");
    length - left
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_that_claim_from_one_queue_share_it() {
    const TASKS: usize = 400;
    let server = Server::start(&["--appendfsync", "everysec"]);
    let stores = [open(&server).await, open(&server).await];
    for _ in 0..TASKS / 100 {
        let mut batch = Batch::new(NAMESPACE);
        for _ in 0..100 {
            let _ = batch.add(TaskCreate { queue: Some("q".into()), ..TaskCreate::new("k") });
        }
        apply(&stores[0], batch).await.expect("they are created");
    }
    let seen: Arc<Mutex<BTreeMap<TaskId, usize>>> = Arc::default();
    let mut claimers = Vec::new();
    for (number, store) in stores.iter().enumerate() {
        for _ in 0..8 {
            let (store, seen) = (store.clone(), Arc::clone(&seen));
            claimers.push(tokio::spawn(async move {
                loop {
                    let claim = Claim::new(NAMESPACE, "q", format!("owner-{number}"));
                    let claimed = store.claim(claim).await.expect("it is answered");
                    if claimed.tasks.is_empty()
                        && claimed.next_at.is_none_or(|at| at > statehold_core::Clock::real().now())
                    {
                        return;
                    }
                    for task in claimed.tasks {
                        let twice = seen.lock().expect("the map").insert(task.id, number);
                        assert_eq!(twice, None, "a task was given twice");
                        let token = task.lease.expect("a lease").token;
                        run(&store, TaskComplete { id: task.id, token, output: None })
                            .await
                            .expect("it is ours");
                    }
                }
            }));
        }
    }
    for claimer in claimers {
        tokio::time::timeout(LIMIT, claimer).await.expect("nobody starves").expect("a claimer ends");
    }
    let seen = seen.lock().expect("the map");
    let first = seen.values().filter(|number| **number == 0).count();
    assert_eq!(seen.len(), TASKS);
    assert!(first > 0 && first < TASKS, "one process took all, {first} of {TASKS}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_caller_began_is_finished_when_it_leaves() {
    let server = Server::start(&["--appendfsync", "everysec"]);
    let (store, other) = (open(&server).await, open(&server).await);
    let mut left = 0;
    for number in 0..50 {
        let key = format!("left/{number}");
        let mut setting = Box::pin(run(&store, entry(&key, 60)));
        left += u32::from((&mut setting).now_or_never().is_none());
        drop(setting);
        let began = Instant::now();
        while other.entry_get(NAMESPACE, &key).await.expect("it is read").is_none() {
            assert!(began.elapsed() < LIMIT, "{key} was never set");
        }
    }
    assert!(left > 0, "nobody left before the end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_a_caller_who_does_not_look() {
    let server = Server::start(&["--appendfsync", "everysec"]);
    let store = open(&server).await;
    // One that this thread is kept from is answered at its first look.
    let first = (0..100).find_map(|number| {
        let mut first = Box::pin(run(&store, entry(&format!("one/{number}"), 60)));
        (&mut first).now_or_never().is_none().then_some(first)
    });
    let first = first.expect("nobody was waiting after its first look");
    let second = tokio::time::timeout(LIMIT, run(&store, entry("two", 60))).await;
    second.expect("it is answered in time").expect("it is set");
    first.await.expect("it is set");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_process_did_to_a_queue_counts_at_once() {
    let server = Server::start(&["--appendfsync", "everysec"]);
    let [ours, other] = [open(&server).await, open(&server).await];
    let create =
        |priority| TaskCreate { queue: Some("q".into()), priority: Some(priority), ..TaskCreate::new("k") };
    let mut created = Vec::new();
    for _ in 0..6 {
        created.push(run(&ours, create(5)).await.expect("it is created").task.id);
    }
    let claim = async |store: &Redis| {
        let claimed = store.claim(Claim::new(NAMESPACE, "q", "me")).await.expect("it is answered");
        claimed.tasks.first().expect("a task").id
    };
    assert_eq!(claim(&ours).await, created[0]);
    let urgent = run(&other, create(1)).await.expect("it is created").task.id;
    assert_eq!(claim(&ours).await, urgent);
    assert_eq!(claim(&other).await, created[1]);
    assert_eq!(claim(&ours).await, created[2]);
    assert_eq!(claim(&ours).await, created[3]);
    assert_eq!(claim(&other).await, created[4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_process_wrote_is_never_taken_for_what_is_remembered() {
    let server = Server::start(&["--appendfsync", "everysec"]);
    let [ours, other] = [open(&server).await, open(&server).await];
    let put =
        |expect| DocumentPut { expect, ..DocumentPut::json("kind", "name", Json::parse("1").expect("JSON")) };
    for (store, expect, revision) in
        [(&ours, Expect::Absent, 1), (&other, Expect::Revision(1), 2), (&ours, Expect::Revision(2), 3)]
    {
        let done = run(store, put(expect)).await.expect("it is as expected");
        assert_eq!(done.revision, revision);
    }
    let late = run(&other, put(Expect::Revision(2))).await.expect_err("it is no longer so");
    assert_eq!(*late.kind(), ErrorKind::PreconditionFailed { revision: Some(3) });
    let late = run(&other, put(Expect::Absent)).await.expect_err("it is there");
    assert_eq!(*late.kind(), ErrorKind::PreconditionFailed { revision: Some(3) });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_process_has_claimed_is_not_started_again() {
    let server = Server::start(&["--appendfsync", "everysec"]);
    let [ours, other] = [open(&server).await, open(&server).await];
    let create = TaskCreate { queue: Some("q".into()), ..TaskCreate::new("k") };
    // From now on it is remembered here as ready.
    let id = run(&ours, create).await.expect("it is created").task.id;
    let claimed = other.claim(Claim::new(NAMESPACE, "q", "they")).await.expect("it is answered");
    assert_eq!(claimed.tasks.first().map(|task| task.id), Some(id));
    let start = TaskStart { id, owner: "me".into(), lease_seconds: None };
    let again = run(&ours, start).await;
    assert_eq!(again.map(drop).expect_err("it runs").code(), "invalid_transition");
    let task = ours.task_get(NAMESPACE, &[id]).await.expect("it is read").remove(0).expect("it is there");
    assert_eq!(task.lease.map(|lease| lease.owner).as_deref(), Some("they"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_on_one_stream_leave_no_gap() {
    const EACH: usize = 40;
    let server = Server::start(&["--appendfsync", "everysec"]);
    let stores = [open(&server).await, open(&server).await];
    let mut writers = Vec::new();
    for number in 0..12 {
        let store = stores[number % 2].clone();
        writers.push(tokio::spawn(async move {
            for _ in 0..EACH {
                run(&store, appending("s/hot", &number.to_string())).await.expect("it is appended");
            }
        }));
    }
    for writer in writers {
        tokio::time::timeout(LIMIT, writer).await.expect("nobody starves").expect("a writer ends");
    }
    let read = StreamRead { stream: "s/hot".parse().expect("a name"), from: ReadFrom::Oldest, limit: 1000 };
    let events = stores[0].stream_read(NAMESPACE, &read).await.expect("it is read").events;
    assert_eq!(events.len(), 12 * EACH);
    assert!(events.iter().zip(1..).all(|(event, seq)| event.seq == seq), "there is a gap");
    assert!(events.windows(2).all(|pair| pair[0].position < pair[1].position), "out of order");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dependent_created_while_its_dependency_completes_is_not_stuck() {
    let server = Server::start(&["--appendfsync", "everysec"]);
    let (one, two) = (open(&server).await, open(&server).await);
    let (mut blocked, mut free) = (0, 0);
    for _ in 0..300 {
        let first = run(&one, TaskCreate::new("k")).await.expect("it is created").task;
        let start = TaskStart { id: first.id, owner: "o".into(), lease_seconds: None };
        let token = run(&one, start).await.expect("it starts").lease.expect("a lease").token;
        let complete = TaskComplete { id: first.id, token, output: None };
        let create = TaskCreate { depends_on: vec![first.id], ..TaskCreate::new("k") };
        let (completed, created) = tokio::join!(run(&one, complete), run(&two, create));
        completed.expect("it is completed");
        let created = created.expect("it is created").task;
        match created.status {
            Status::Blocked => blocked += 1,
            _ => free += 1,
        }
        let found = one.task_get(NAMESPACE, &[created.id]).await.expect("it is read").remove(0);
        assert_eq!(found.expect("it is there").status, Status::Pending, "it waits for what is done");
    }
    assert!(blocked > 0 && free > 0, "they never raced: {blocked} were first, {free} second");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_arrives_after_the_lease_is_over_is_refused() {
    let server = Server::start(&[]);
    let (store, mut raw) = (open(&server).await, raw(&server).await);
    let task = run(&store, TaskCreate::new("k")).await.expect("it is created").task;
    let start = TaskStart { id: task.id, owner: "o".into(), lease_seconds: Some(Seconds::new(2)) };
    let token = run(&store, start).await.expect("it starts").lease.expect("a lease").token;
    // Reads are answered and writes wait, so that the plan finds the lease good and its effects come too late.
    redis::cmd("CLIENT").arg("PAUSE").arg(4000).arg("WRITE").exec_async(&mut raw).await.expect("a pause");
    let late = run(&store, TaskComplete { id: task.id, token, output: None }).await;
    assert_eq!(late.expect_err("it is too late").code(), "fenced");
    let found = store.task_get(NAMESPACE, &[task.id]).await.expect("it is read").remove(0);
    assert_eq!(found.expect("it is there").status, Status::Running);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_big_namespace_is_listed_counted_and_claimed() {
    const TASKS: usize = 100_000;
    let server = Server::start(&["--appendfsync", "no"]);
    let store = open(&server).await;
    for _ in 0..TASKS / 1000 {
        let mut batch = Batch::new(NAMESPACE);
        for number in 0..1000 {
            let _ = batch.add(TaskCreate { priority: Some(number % 7), ..TaskCreate::new("k") });
        }
        apply(&store, batch).await.expect("they are created");
    }
    let (mut list, mut ids) = (TaskList { limit: 1000, ..TaskList::default() }, BTreeSet::new());
    loop {
        let page = store.task_list(NAMESPACE, &list).await.expect("they are listed");
        ids.extend(page.items.iter().map(|task| task.id));
        list.cursor = page.next_cursor;
        if list.cursor.is_none() {
            break;
        }
    }
    assert_eq!(ids.len(), TASKS);
    let counts = store.task_count(NAMESPACE, None).await.expect("they are counted");
    assert_eq!(counts.claimable, TASKS as u64);
    let claim = Claim { limit: 1000, ..Claim::new(NAMESPACE, "default", "o") };
    let claimed = store.claim(claim).await.expect("it is answered").tasks;
    assert_eq!(claimed.len(), 1000);
    assert!(claimed.iter().all(|task| task.priority == 0), "not in their turn");
    let running = TaskList { status: vec![Status::Running], limit: 1000, ..TaskList::default() };
    let running = store.task_list(NAMESPACE, &running).await.expect("they are listed").items;
    assert_eq!(running.len(), 1000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_agents_and_thousands_of_tasks_take_less_than_100_mb() {
    let server = Server::start(&["--appendfsync", "no"]);
    let store = open(&server).await;
    for some in 0..10 {
        let mut batch = Batch::new(NAMESPACE);
        for number in 0..50 {
            let agent = format!("{some}-{number}");
            let _ = batch.add(entry(&format!("heartbeat/{agent}"), 15));
            let record = Json::parse(r#"{"state":"working","capabilities":["code"]}"#).expect("JSON");
            let _ = batch.add(DocumentPut::json("agent", &agent, record));
        }
        for _ in 0..900 {
            let _ = batch.add(TaskCreate::new("k"));
        }
        apply(&store, batch).await.expect("they are there");
    }
    // All of them go through their lives, which leaves events.
    for _ in 0..9 {
        let claim = Claim { limit: 1000, ..Claim::new(NAMESPACE, "default", "o") };
        let mut batch = Batch::new(NAMESPACE);
        for task in store.claim(claim).await.expect("it is answered").tasks {
            let token = task.lease.expect("it is leased").token;
            let _ = batch.add(TaskComplete { id: task.id, token, output: None });
        }
        apply(&store, batch).await.expect("they are completed");
    }
    let mut raw = raw(&server).await;
    let info: String = redis::cmd("INFO").arg("memory").query_async(&mut raw).await.expect("it tells");
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("it is there");
    let used: u64 = used.trim().parse().expect("a number");
    eprintln!("500 agents and 9,000 tasks take {used} bytes");
    assert!(used < 100_000_000, "they take {used} bytes");
}

#[tokio::test]
async fn what_the_server_removed_by_itself_leaves_no_ghost() {
    let server = Server::start(&[]);
    let (store, mut raw) = (open(&server).await, raw(&server).await);
    for key in ["a", "b", "c"] {
        run(&store, entry(key, 1)).await.expect("it is set");
    }
    // As the server does when their time has come.
    for key in ["a", "b"] {
        let gone: u32 = redis::cmd("DEL")
            .arg(format!("{{statehold:n}}e{key}"))
            .query_async(&mut raw)
            .await
            .expect("gone");
        assert_eq!(gone, 1, "the key has another name");
    }
    run(&store, entry("b", 3600)).await.expect("it is set again");
    let keys = || async {
        let page = store.entry_list(NAMESPACE, &KeyList::default()).await.expect("they are listed");
        page.items.into_iter().map(|entry| entry.key).collect::<Vec<_>>()
    };
    assert!(!keys().await.contains(&"a".to_owned()));
    let began = Instant::now();
    loop {
        store.sweep(Sweep::new(NAMESPACE)).await.expect("it is swept");
        let members: Vec<Vec<u8>> = redis::cmd("ZRANGE")
            .arg("{statehold:n}I")
            .arg(0)
            .arg(-1)
            .query_async(&mut raw)
            .await
            .expect("the index");
        if members.len() == 2 {
            break;
        }
        assert!(began.elapsed() < LIMIT, "ghosts stay: {members:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(keys().await, ["b"]);
}

/// Writes once; answers whether others were told of it.
async fn tells_of_a_write(
    store: &Redis,
    heard: &mut redis::aio::PubSub,
    told: &mut redis::aio::MultiplexedConnection,
) -> bool {
    run(store, entry("e", 3600)).await.expect("it is set");
    let _: i64 = redis::cmd("PUBLISH").arg("end:wakes").arg("").query_async(told).await.expect("published");
    let (mut messages, mut marks) = (heard.on_message(), 0);
    while let Some(message) = messages.next().await {
        if message.get_channel_name() == "end:wakes" {
            return marks > 0;
        }
        // What is only sent to see whether the way is open says nothing.
        marks += usize::from(!message.get_payload_bytes().ends_with(b":"));
    }
    panic!("the connection is lost");
}

#[tokio::test]
async fn who_begins_to_listen_is_told_of_what_comes_next() {
    let server = Server::start(&[]);
    let (store, mut told) = (open(&server).await, raw(&server).await);
    let client = redis::Client::open(server.url()).expect("a client");
    let mut heard = client.get_async_pubsub().await.expect("a connection");
    // Who listens by a pattern is not counted among those who listen.
    heard.psubscribe("*:wakes").await.expect("it listens");
    // In some of the rounds a second may end between the two.
    for _ in 0..3 {
        assert!(!tells_of_a_write(&store, &mut heard, &mut told).await, "nobody else listens");
        let other = open(&server).await;
        assert!(tells_of_a_write(&store, &mut heard, &mut told).await, "another one listens");
        drop(other);
        // The server sees that it has gone when it closes the connection, and is asked who listens once a second.
        let began = Instant::now();
        while tells_of_a_write(&store, &mut heard, &mut told).await {
            assert!(began.elapsed() < LIMIT, "it is noticed who has gone");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
