//! What is answered when the connection is lost over a call: what became of it, whether the server did it or not. None of
//! these calls has a key, so that nobody could repeat it.

mod common;

use std::collections::BTreeSet;
use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use libtest_mimic::{Arguments, Trial};
use statehold_conformance::line::{Fault, Line};
use statehold_conformance::postgres;
use statehold_core::call::Claim;
use statehold_core::command::{
    GroupSeek, LockAcquire, LockRelease, NewEvent, Op, SeekTo, StreamAppend, TaskComplete, TaskCreate,
};
use statehold_core::model::{Source, Task, TaskId};
use statehold_core::query::{ReadFrom, StreamRead};
use statehold_core::{Backend, Batch, Result};
use statehold_postgres::{Config, Postgres};
use tokio::time::{sleep, timeout};

/// How long anything may take. It only keeps a broken store from hanging.
const PATIENCE: Duration = Duration::from_secs(60);
const ROUNDS: u64 = 8;

fn main() -> ExitCode {
    postgres::with_server(|| {
        let trials = vec![
            test("what_was_done_is_answered_though_the_answer_was_lost", lost_answers),
            test("what_never_came_to_the_server_is_done_after_all", lost_calls),
            test("a_call_that_comes_after_it_was_given_up_is_not_done", late_calls),
            test("a_transaction_whose_client_has_vanished_keeps_nobody_waiting_for_long", late_commits),
            test("a_claim_whose_answer_was_lost_answers_what_it_took", lost_claims),
            test("claims_that_were_sent_together_each_get_their_own", lost_claims_together),
            test("many_callers_on_a_bad_line_are_each_done_once", bad_line),
            test("a_server_that_cannot_be_asked_any_more_leaves_it_open", cut_off),
        ];
        libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
    })
}

fn test<F: Future<Output = ()> + 'static>(name: &str, run: fn() -> F) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let judged = runtime.block_on(async { timeout(PATIENCE, run()).await });
        judged.map_err(|_| "it does not end".into())
    })
}

/// A store behind a line, and one on the same schema that is not.
async fn behind_a_line() -> (Line, Postgres, Postgres) {
    let (url, config) = (postgres::url(), common::config());
    let port = url.rsplit_once(':').and_then(|(_, rest)| rest.split_once('/')).expect("a port").0;
    let line = Line::to(port.parse().expect("a port"));
    let far = Config::from_url(&url.replacen(port, &line.port().to_string(), 1)).expect("a good URL");
    let far = Postgres::open(far.with_schema(config.schema.clone())).await.expect("it opens");
    (line, far, Postgres::open(config).await.expect("it opens"))
}

async fn run<O: Op>(store: &Postgres, command: O) -> Result<O::Reply> {
    let (batch, reply) = Batch::of("n", command);
    store.apply(batch.prepare()?).await?.take(reply)
}

fn appending(kind: &str) -> StreamAppend {
    let event = NewEvent { kind: kind.to_owned(), data: None };
    StreamAppend { stream: "s/1".parse().expect("a name"), events: vec![event], expect_seq: None }
}

/// The kinds of the stream's events.
async fn appended(store: &Postgres) -> Vec<String> {
    let (mut from, mut kinds) = (ReadFrom::Oldest, Vec::new());
    loop {
        let read = StreamRead { stream: "s/1".parse().expect("a name"), from, limit: 1000 };
        let events = store.stream_read("n", &read).await.expect("it is read").events;
        let Some(last) = events.last() else { return kinds };
        from = ReadFrom::After(last.seq);
        kinds.extend(events.into_iter().map(|event| event.kind));
    }
}

async fn create(store: &Postgres, count: u64) -> Vec<TaskId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let create = TaskCreate { queue: Some("q".into()), ..TaskCreate::new("k") };
        ids.push(run(store, create).await.expect("it is created").task.id);
    }
    ids
}

async fn claim(store: &Postgres, owner: &str, limit: u32) -> Vec<Task> {
    let claim = Claim { limit, ..Claim::new("n", "q", owner) };
    store.claim(claim).await.expect("it is answered").tasks
}

async fn lost_answers() {
    let (line, store, _) = behind_a_line().await;
    assert!(!store.can_lose_answers());
    for round in 1..=ROUNDS {
        line.break_next(Fault::Answer, "broken");
        let done = run(&store, appending("broken")).await.expect("it is known that it was done");
        assert_eq!((done.first_seq, done.last_seq), (round, round));
        line.break_next(Fault::Answer, "somebody");
        let acquired = run(&store, LockAcquire::new("k", "somebody")).await;
        let token = acquired.expect("it does not meet itself").token;
        run(&store, LockRelease { key: "k".into(), token }).await.expect("it is ours");
    }
    assert_eq!(line.faults() as u64, 2 * ROUNDS);
    assert_eq!(appended(&store).await.len() as u64, ROUNDS);
}

async fn lost_calls() {
    let (line, store, _) = behind_a_line().await;
    create(&store, ROUNDS + 1).await;
    assert_eq!(claim(&store, "somebody", 1).await.len(), 1);
    for round in 1..=ROUNDS {
        line.break_next(Fault::Call, "broken");
        let done = run(&store, appending("broken")).await.expect("it is done the second time");
        assert_eq!((done.first_seq, done.last_seq), (round, round));
        line.break_next(Fault::Call, "somebody");
        assert_eq!(claim(&store, "somebody", 1).await.len(), 1, "there is one left");
    }
    assert_eq!(line.faults() as u64, 2 * ROUNDS);
    assert_eq!(appended(&store).await.len() as u64, ROUNDS);
}

/// What comes so late that it was given up is refused for that, because the time that it was decided for is over, or because its
/// transaction has ended meanwhile. Whoever asks how many there are sees that it was not done.
fn is_refused(said: &str) -> bool {
    // The first of two columns, the number under which it was done, is null.
    let idle = "D\0\0\0\u{16}\0\u{2}\u{fffd}\u{fffd}\u{fffd}\u{fffd}";
    let why = ["strokes_pkey", "unchanged", "not as they were", "idle-in-transaction timeout", idle];
    why.iter().any(|why| said.contains(why))
}

async fn late_calls() {
    let (line, store, other) = behind_a_line().await;
    create(&store, 5).await;
    assert_eq!(claim(&store, "somebody", 1).await.len(), 1);
    run(&store, appending("first")).await.expect("appended");
    for round in 2..=5 {
        line.break_next(Fault::Late, "broken");
        let done = run(&store, appending("broken")).await.expect("it is done the second time");
        assert_eq!(done.last_seq, round);
        let said = line.let_go();
        assert!(is_refused(&said), "{said:?}");
    }
    assert_eq!(appended(&other).await.len(), 5);

    line.break_next(Fault::Late, "somebody");
    assert_eq!(claim(&store, "somebody", 1).await.len(), 1);
    let said = line.let_go();
    assert!(is_refused(&said), "{said:?}");
    assert_eq!(claim(&other, "other", 10).await.len(), 3, "nothing was given to nobody");
    assert_eq!(line.faults(), 5);
}

async fn late_commits() {
    let (line, store, other) = behind_a_line().await;
    run(&store, appending("first")).await.expect("appended");
    // What it looks for takes a trip of its own, after which rows are held on the server until the other one comes.
    let seek = GroupSeek { group: "g".into(), source: Source::Category("s".into()), to: SeekTo::Latest };
    let mut batch = Batch::new("n");
    let _ = batch.add(seek);
    let done = batch.add(appending("broken"));
    line.break_next(Fault::Late, "broken");
    let mut replies = store.apply(batch.prepare().expect("good")).await.expect("it is done the second time");
    assert_eq!(replies.take(done).expect("its reply").last_seq, 2);
    let said = line.let_go();
    assert!(is_refused(&said), "{said:?}");
    assert_eq!((appended(&other).await.len(), line.faults()), (2, 1));
}

async fn lost_claims() {
    let (line, store, other) = behind_a_line().await;
    let ids = create(&store, 3 * ROUNDS + 1).await;
    let mut got = claim(&store, "somebody", 1).await;
    for _ in 0..ROUNDS {
        line.break_next(Fault::Answer, "somebody");
        let (ours, theirs) = (claim(&store, "somebody", 2).await, claim(&other, "somebody", 1).await);
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

async fn lost_claims_together() {
    const CLAIMERS: usize = 12;
    let (line, store, _) = behind_a_line().await;
    let ids = create(&store, 4 * CLAIMERS as u64).await;
    let mut seen = BTreeSet::new();
    for round in 0..4 {
        if round > 0 {
            line.break_next(Fault::Answer, "owner");
        }
        let claims = (0..CLAIMERS).map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let owner = format!("owner/{}", number % 5);
                (claim(&store, &owner, 1).await, owner)
            })
        });
        for claimed in join_all(claims).await {
            let (tasks, owner) = claimed.expect("it is answered");
            assert_eq!(tasks.len(), 1, "there is one for each");
            assert_eq!(tasks[0].lease.as_ref().map(|lease| &lease.owner), Some(&owner));
            assert!(seen.insert(tasks[0].id), "a task was given twice");
        }
        assert_eq!(line.faults(), round);
    }
    assert_eq!(seen, ids.into_iter().collect());
}

async fn bad_line() {
    const CALLERS: usize = 16;
    const EACH: usize = 200;
    const CALLS_A_FAULT: usize = 40;
    let (line, store, other) = behind_a_line().await;
    let done = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (store, count) = (store.clone(), Arc::clone(&done));
            tokio::spawn(async move {
                for number in 0..EACH {
                    let done = run(&store, appending(&format!("broken/{caller}/{number}"))).await;
                    done.expect("it is done");
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
            line.break_next(faults.next().expect("it never ends"), "broken");
            next = done + CALLS_A_FAULT;
        }
        sleep(Duration::from_millis(1)).await;
    }
    for caller in callers {
        caller.await.expect("every call was done");
    }
    let (appended, faults) = (appended(&other).await, line.faults());
    assert!(faults > 20, "the line was too good: {faults}");
    assert_eq!(appended.len(), CALLERS * EACH);
    assert_eq!(appended.into_iter().collect::<BTreeSet<_>>().len(), CALLERS * EACH, "nothing twice");
}

async fn cut_off() {
    const FIRST: usize = 64;
    let (line, store, other) = behind_a_line().await;
    // So many that all who write have a connection by then.
    for done in join_all((0..FIRST).map(|_| run(&store, appending("first")))).await {
        done.expect("appended");
    }
    line.break_next(Fault::Answer, "broken");
    line.shut();
    let said = run(&store, appending("broken")).await.expect_err("nobody knows");
    assert_eq!(said.code(), "timeout", "{said:?}");
    assert_eq!((appended(&other).await.len(), line.faults()), (FIRST + 1, 1), "it was done");
    let said = run(&store, appending("next")).await.expect_err("it was not even sent");
    assert_eq!(said.code(), "unavailable");
}
