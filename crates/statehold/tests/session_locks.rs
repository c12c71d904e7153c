//! Locks that end with the session of their process, on a PostgreSQL server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::process::ExitCode;

use common::{PATIENCE, block_on, code, json, open_url, soon};
use statehold::core::command::LockAcquire;
use statehold::{DocumentPut, LockGuard, Seconds, Statehold, Token};
use statehold_conformance::process::{Process, hear, say};
use statehold_conformance::{named, postgres, process};
use statehold_postgres::Config;

fn main() -> ExitCode {
    let tests = named![
        the_lock_of_a_killed_process_is_free_at_once,
        a_guard_that_lost_its_session_is_told_and_fenced,
        two_never_write_under_one_lock_while_sessions_are_lost,
        a_session_that_ended_frees_no_lock_that_an_older_release_took,
        where_there_are_no_sessions_it_says_so,
    ];
    postgres::with_server(|| process::run(tests, named![holder]))
}

/// The server as one test sees it, which has a schema to itself, and connections that can be told from others.
fn url(test: &str) -> String {
    format!("{}?schema={test}&application_name={test}", postgres::url())
}

/// A lock that lasts longer than any test, unless its session ends.
fn long(key: &str, owner: &str) -> LockAcquire {
    LockAcquire { ttl_seconds: Seconds::new(3600), ..LockAcquire::new(key, owner) }
}

async fn in_session(hold: &Statehold, key: &str, owner: &str) -> LockGuard {
    hold.locks().of_session().acquire_with(long(key, owner), Some(PATIENCE)).await.unwrap()
}

/// Takes two locks, one of them for its session, and keeps them until it is killed.
fn holder() {
    block_on(async {
        let hold = open_url(&url("killed")).await;
        let guard = in_session(&hold, "killed", "holder").await;
        let other = hold.locks().acquire_with(long("killed/other", "holder"), None).await.unwrap();
        say(&guard.token().0.to_string());
        while hear().is_some() {}
        drop((guard, other));
    });
}

fn the_lock_of_a_killed_process_is_free_at_once() {
    let mut process = Process::start("holder", &[]);
    let first = Token(process.line().parse().unwrap());
    block_on(async {
        let hold = open_url(&url("killed")).await;
        assert!(
            hold.locks().of_session().try_acquire("killed", "hasty").await.unwrap().is_none(),
            "it is held"
        );
        let waiting = {
            let hold = hold.clone();
            tokio::spawn(async move { in_session(&hold, "killed", "next").await })
        };
        process.kill();
        let guard = soon(waiting).await.unwrap();
        assert!(guard.token() > first, "tokens grow");
        assert_eq!(hold.locks().get("killed").await.unwrap().unwrap().owner, "next");
        let other = hold.locks().try_acquire("killed/other", "next").await.unwrap();
        assert!(other.is_none(), "one without a session lasts until its time is over");
    });
}

/// Ends the connections of a test that are sessions, at the server; answers how many there were.
async fn end_sessions(test: &str) -> i64 {
    let client = Config::from_url(&postgres::url()).unwrap().client().await.unwrap();
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE application_name = $1 AND query LIKE '%pg_advisory_lock(%' AND state = 'idle'";
    client.query_one(end, &[&test]).await.unwrap().get(0)
}

fn a_guard_that_lost_its_session_is_told_and_fenced() {
    block_on(async {
        let (hold, other) = (open_url(&url("lost")).await, open_url(&url("lost")).await);
        let guard = in_session(&hold, "lost", "first").await;
        assert!(!guard.is_lost());
        soon(async { while end_sessions("lost").await == 0 {} }).await;
        soon(guard.lost()).await;
        let next = in_session(&other, "lost", "second").await;
        assert!(next.token() > guard.token(), "tokens grow");
        let mut late = hold.batch().fence(guard.fence());
        late.add(DocumentPut::json("project", "lost", json("late")));
        assert_eq!(code(hold.apply(late).await), "fenced");
        // A session that is lost is replaced by another.
        drop(next);
        in_session(&hold, "lost", "third").await.release().await.unwrap();
    });
}

/// Counts in a document by reading and writing, which only a lock makes right.
async fn count(hold: &Statehold, owner: &str) -> u32 {
    let mut counted = 0;
    while counted < 20 {
        let guard = in_session(hold, "count", owner).await;
        let document = hold.documents().get("count", "n").await.unwrap();
        let before: u32 = document.map_or(0, |document| document.body.unwrap().to().unwrap());
        let mut batch = hold.batch().fence(guard.fence());
        batch.add(DocumentPut::json("count", "n", json(&(before + 1))));
        match hold.apply(batch).await {
            Ok(_) => counted += 1,
            Err(error) => assert!(error.is_fenced(), "{error}"),
        }
    }
    counted
}

fn two_never_write_under_one_lock_while_sessions_are_lost() {
    block_on(async {
        let holds = [open_url(&url("count")).await, open_url(&url("count")).await];
        let counting: Vec<_> = (0..4)
            .map(|number| {
                let hold = holds[number % 2].clone();
                tokio::spawn(async move { count(&hold, &format!("counter-{number}")).await })
            })
            .collect();
        let mut ended = 0;
        while !counting.iter().all(tokio::task::JoinHandle::is_finished) {
            ended += end_sessions("count").await;
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let mut counted = 0;
        for counter in counting {
            counted += counter.await.unwrap();
        }
        let document = holds[0].documents().get("count", "n").await.unwrap().unwrap();
        assert_eq!(document.body.unwrap().to::<u32>().unwrap(), counted, "someone wrote over another");
        assert!(ended > 0, "no session was lost");
    });
}

/// The release before sessions leaves the session's columns as they were when it gives a lock to another.
fn a_session_that_ended_frees_no_lock_that_an_older_release_took() {
    block_on(async {
        let hold = open_url(&url("older")).await;
        let guard = in_session(&hold, "older", "first").await;
        let client = Config::from_url(&url("older")).unwrap().client().await.unwrap();
        let take = "UPDATE older.locks SET token = token + 1, owner = 'older' WHERE key = 'older' AND owner = 'first'";
        assert_eq!(client.execute(take, &[]).await.unwrap(), 1);
        soon(async { while end_sessions("older").await == 0 {} }).await;
        soon(guard.lost()).await;
        let kept = hold.locks().get("older").await.unwrap();
        assert_eq!(kept.map(|lock| lock.owner).as_deref(), Some("older"));
        let other = hold.locks().of_session().try_acquire("older", "next").await.unwrap();
        assert!(other.is_none(), "the older release holds it");
    });
}

fn where_there_are_no_sessions_it_says_so() {
    block_on(async {
        let folder = common::folder();
        let file = format!("sqlite:{}", folder.path().join("state.db").display());
        let pooled = format!("{}?pooled=true", postgres::url());
        for (url, hint) in [("memory:", "ttl_seconds"), (&file, "ttl_seconds"), (&pooled, "pooled=true")] {
            let hold = open_url(url).await;
            let refused = hold.locks().of_session().try_acquire("k", "me").await.unwrap_err();
            assert_eq!(refused.code(), "unsupported", "{url}");
            assert!(refused.hint_text().unwrap().contains(hint), "{url}: {refused:?}");
        }
    });
}
