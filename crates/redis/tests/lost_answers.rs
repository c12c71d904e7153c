//! What is answered when the connection is lost over a call: what became of it, whether the server did it or not. None of
//! these calls has a key, so that nobody could repeat it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use statehold_conformance::line::{Fault, Line};
use statehold_conformance::redis::Server;
use statehold_core::call::{Claim, GroupRead};
use statehold_core::command::{
    LockAcquire, LockRelease, NewEvent, Op, StreamAppend, TaskComplete, TaskCreate,
};
use statehold_core::model::{Source, Task, TaskId};
use statehold_core::query::{ReadFrom, StreamRead};
use statehold_core::{Backend, Batch, Result};
use statehold_redis::{Config, Redis};

const NAMESPACE: &str = "n";
const ROUNDS: u64 = 8;

async fn open(url: &str) -> Redis {
    Redis::open(Config::from_url(url).expect("a good URL")).await.expect("the store opens")
}

fn through(line: &Line) -> String {
    format!("redis://127.0.0.1:{}/0", line.port())
}

async fn run<O: Op>(store: &Redis, command: O) -> Result<O::Reply> {
    let (batch, reply) = Batch::of(NAMESPACE, command);
    store.apply(batch.prepare()?).await?.take(reply)
}

fn appending(kind: &str) -> StreamAppend {
    let event = NewEvent { kind: kind.to_owned(), data: None };
    StreamAppend { stream: "s/1".parse().expect("a name"), events: vec![event], expect_seq: None }
}

/// The kinds of the stream's events.
async fn appended(store: &Redis) -> Vec<String> {
    let (mut from, mut kinds) = (ReadFrom::Oldest, Vec::new());
    loop {
        let read = StreamRead { stream: "s/1".parse().expect("a name"), from, limit: 1000 };
        let events = store.stream_read(NAMESPACE, &read).await.expect("it is read").events;
        let Some(last) = events.last() else { return kinds };
        from = ReadFrom::After(last.seq);
        kinds.extend(events.into_iter().map(|event| event.kind));
    }
}

async fn create(store: &Redis, count: u64) -> Vec<TaskId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let create = TaskCreate { queue: Some("q".into()), ..TaskCreate::new("k") };
        ids.push(run(store, create).await.expect("it is created").task.id);
    }
    ids
}

async fn claim(store: &Redis, owner: &str, limit: u32) -> Vec<Task> {
    let claim = Claim { limit, ..Claim::new(NAMESPACE, "q", owner) };
    store.claim(claim).await.expect("it is answered").tasks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_done_is_answered_though_the_answer_was_lost() {
    let server = Server::start(&["--appendfsync", "everysec"]);
    let line = Line::to(server.port());
    let store = open(&through(&line)).await;
    assert!(!store.can_lose_answers());
    for round in 1..=ROUNDS {
        line.break_next(Fault::Answer, "_commit");
        let done = run(&store, appending(&round.to_string())).await.expect("it is known that it was done");
        assert_eq!((done.first_seq, done.last_seq), (round, round));
        line.break_next(Fault::Answer, "_commit");
        let token = run(&store, LockAcquire::new("k", "o")).await.expect("it does not meet itself").token;
        // A refusal is checked too.
        line.break_next(Fault::Answer, "_commit");
        let held = run(&store, LockAcquire::new("k", "p")).await;
        assert_eq!(held.expect_err("it is not free").code(), "held");
        run(&store, LockRelease { key: "k".into(), token }).await.expect("it is ours");
    }
    assert_eq!(line.faults() as u64, 3 * ROUNDS);
    assert_eq!(appended(&store).await.len() as u64, ROUNDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_never_came_to_the_server_is_done_after_all() {
    let server = Server::start(&["--appendfsync", "everysec"]);
    let line = Line::to(server.port());
    let store = open(&through(&line)).await;
    create(&store, ROUNDS).await;
    for round in 1..=ROUNDS {
        line.break_next(Fault::Call, "_commit");
        let done = run(&store, appending("e")).await.expect("it is done the second time");
        assert_eq!((done.first_seq, done.last_seq), (round, round));
        line.break_next(Fault::Call, "_claim");
        assert_eq!(claim(&store, "o", 1).await.len(), 1, "there is one left");
    }
    assert_eq!(line.faults() as u64, 2 * ROUNDS);
    assert_eq!(appended(&store).await.len() as u64, ROUNDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_comes_after_it_was_given_up_is_not_done() {
    let server = Server::start(&["--appendfsync", "everysec"]);
    let line = Line::to(server.port());
    let (store, other) = (open(&through(&line)).await, open(&server.url()).await);
    create(&store, 4).await;
    for round in 1..=4 {
        line.break_next(Fault::Late, "_commit");
        let done = run(&store, appending("e")).await.expect("it is done the second time");
        assert_eq!(done.last_seq, round);
        // What others write meanwhile does not bring it back.
        run(&other, LockAcquire::new(format!("k/{round}"), "o")).await.expect("it is free");
    }
    for _ in 1..=4 {
        let said = line.let_go();
        assert!(said.contains("late "), "{said:?}");
    }
    assert_eq!(appended(&store).await.len(), 4);

    line.break_next(Fault::Late, "_claim");
    let got = claim(&store, "o", 1).await;
    assert_eq!(got.len(), 1);
    assert_eq!(line.let_go(), "$-1\r\n", "it is told that it came too late");
    assert_eq!(claim(&other, "p", 10).await.len(), 3, "nothing was given to nobody");
    assert_eq!(line.faults(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_answer_was_lost_answers_what_it_took() {
    let server = Server::start(&["--appendfsync", "everysec"]);
    let line = Line::to(server.port());
    let (store, other) = (open(&through(&line)).await, open(&server.url()).await);
    let ids = create(&store, 3 * ROUNDS).await;
    let mut got = Vec::new();
    for _ in 0..ROUNDS {
        line.break_next(Fault::Answer, "_claim");
        let (ours, theirs) = (claim(&store, "o", 2).await, claim(&other, "o", 1).await);
        assert_eq!((ours.len(), theirs.len()), (2, 1));
        got.extend(ours.into_iter().chain(theirs));
    }
    assert_eq!(line.faults() as u64, ROUNDS);
    assert_eq!(got.iter().map(|task| task.id).collect::<Vec<_>>(), ids, "in their turn, each once");
    for task in got {
        assert_eq!(task.attempt, 1);
        let token = task.lease.expect("a lease").token;
        run(&store, TaskComplete { id: task.id, token, output: None }).await.expect("it is ours");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_that_were_sent_together_each_get_their_own() {
    const CLAIMERS: usize = 12;
    let server = Server::start(&["--appendfsync", "everysec"]);
    let line = Line::to(server.port());
    let store = open(&through(&line)).await;
    let ids = create(&store, 3 * CLAIMERS as u64).await;
    let mut seen = BTreeSet::new();
    for round in 0..3 {
        line.break_next(Fault::Answer, "_claim");
        let claims = (0..CLAIMERS).map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let owner = format!("o/{}", number % 5);
                (claim(&store, &owner, 1).await, owner)
            })
        });
        for claimed in join_all(claims).await {
            let (tasks, owner) = claimed.expect("it is answered");
            assert_eq!(tasks.len(), 1, "there is one for each");
            assert_eq!(tasks[0].lease.as_ref().map(|lease| &lease.owner), Some(&owner));
            assert!(seen.insert(tasks[0].id), "a task was given twice");
        }
        assert_eq!(line.faults(), round + 1);
    }
    assert_eq!(seen, ids.into_iter().collect());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_on_a_bad_line_are_each_done_once() {
    const CALLERS: usize = 16;
    const EACH: usize = 200;
    const CALLS_A_FAULT: usize = 40;
    let server = Server::start(&["--appendfsync", "everysec"]);
    let line = Line::to(server.port());
    let store = open(&through(&line)).await;
    let done = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (store, count) = (store.clone(), Arc::clone(&done));
            tokio::spawn(async move {
                for number in 0..EACH {
                    run(&store, appending(&format!("{caller}/{number}"))).await.expect("it is done");
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    // By how many calls were done, so that it comes to an end however long a new connection takes.
    let (mut faults, mut next) = ([Fault::Answer, Fault::Call, Fault::Answer].into_iter().cycle(), 0);
    while !callers.iter().all(tokio::task::JoinHandle::is_finished) {
        let done = done.load(Ordering::Relaxed);
        if done >= next {
            line.break_next(faults.next().expect("it never ends"), "_commit");
            next = done + CALLS_A_FAULT;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    for caller in callers {
        caller.await.expect("every call was done");
    }
    let (appended, faults) = (appended(&store).await, line.faults());
    assert!(faults > 20, "the line was too good: {faults}");
    assert_eq!(appended.len(), CALLERS * EACH);
    assert_eq!(appended.into_iter().collect::<BTreeSet<_>>().len(), CALLERS * EACH, "nothing twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_notices_that_connections_are_ended() {
    let server = Server::start(&["--appendfsync", "everysec"]);
    let store = open(&server.url()).await;
    let client = redis::Client::open(server.url()).expect("a client");
    let mut raw = client.get_multiplexed_async_connection().await.expect("a connection");
    create(&store, 4 * ROUNDS).await;
    let mut ended = 0;
    for round in 0..4 * ROUNDS {
        let end = redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").to_owned();
        let end: u64 = end.query_async(&mut raw).await.expect("they are ended");
        ended += end;
        let callers = (0..=round % 3).map(|_| run(&store, appending("e")));
        for done in join_all(callers).await {
            done.expect("it is appended");
        }
        assert_eq!(claim(&store, "o", 1).await.len(), 1, "there is one left");
    }
    assert!(ended > 4 * ROUNDS, "too few were ended: {ended}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_whose_answer_was_lost_is_made_once() {
    let server = Server::start(&["--appendfsync", "everysec"]);
    let line = Line::to(server.port());
    let store = open(&through(&line)).await;
    for _ in 0..ROUNDS {
        run(&store, appending("e")).await.expect("it is appended");
    }
    for round in 1..=ROUNDS {
        line.break_next(Fault::Answer, "_commit");
        let source = Source::Stream("s/1".parse().expect("a name"));
        let read = GroupRead { limit: 1, ..GroupRead::new(NAMESPACE, "g", source, "c") };
        let given = store.group_read(read).await.expect("it is answered").events;
        let given: Vec<_> = given.iter().map(|given| (given.event.seq, given.delivery)).collect();
        assert_eq!(given, [(round, 1)]);
    }
    assert_eq!(line.faults() as u64, ROUNDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_be_asked_any_more_leaves_it_open() {
    let mut server = Server::start(&["--appendfsync", "everysec"]);
    let line = Line::to(server.port());
    let store = open(&through(&line)).await;
    create(&store, 1).await;
    for function in ["_commit", "_claim"] {
        line.break_next(Fault::Answer, function);
        line.shut();
        let said = if function == "_commit" {
            run(&store, appending("e")).await.map(drop)
        } else {
            let claiming = store.claim(Claim::new(NAMESPACE, "q", "o")).await;
            claiming.map(drop)
        };
        // Without a way in, the second one does not even come that far.
        let expected = if function == "_commit" { "timeout" } else { "unavailable" };
        assert_eq!(said.expect_err("nobody knows").code(), expected);
    }
    server.kill();
}
