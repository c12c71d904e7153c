//! `statehold lock run`: one program at a time, however many processes ask.

use std::fs;
use std::time::Duration;

use crate::programs::{LIMIT, Place, Run, eventually, send};
use rustix::process::Signal;
use statehold::core::model::Lock;

/// Runs a shell script under the lock `deploy`.
fn run(place: &Place, options: &[&str], script: &str) -> Run {
    let mut args = vec!["lock", "run", "deploy"];
    args.extend(options);
    args.extend(["--", "sh", "-c", script]);
    place.start(&args)
}

async fn lock(place: &Place) -> Option<Lock> {
    place.hold.locks().get("deploy").await.expect("an answer")
}

/// Runs a script that waits for the file `go`, until it holds the lock.
async fn holder(place: &Place, options: &[&str]) -> Run {
    let run = run(place, options, "touch held; while ! [ -e go ]; do sleep 0.1; done");
    eventually("the lock is held", || place.file("held").exists()).await;
    run
}

fn go(place: &Place) {
    fs::write(place.file("go"), "").expect("a file");
}

#[tokio::test]
async fn the_exit_code_is_the_programs_and_the_lock_is_free_afterwards() {
    let place = Place::new().await;
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)] {
        let ran = run(&place, &[], script).ended().await;
        assert_eq!(ran.code, Some(code), "{script}: {ran:?}");
        assert!(lock(&place).await.is_none(), "{script}");
    }
    place.assert_nothing_left().await;
}

#[tokio::test]
async fn the_store_is_closed_well_whatever_the_exit_code() {
    let place = Place::new().await;
    for script in ["exit 0", "exit 7"] {
        let ran = run(&place, &["--store", "sqlite:own.db"], script).ended().await;
        assert!(ran.code.is_some() && place.file("own.db").exists(), "{ran:?}");
        // A log that is left makes the next start look through the whole file.
        assert!(!place.file("own.db-wal").exists(), "{script}: the log is left");
    }
}

#[tokio::test]
async fn the_program_has_our_output_and_finds_the_lock_in_its_environment() {
    let place = Place::new().await;
    let script = r#"echo "$STATEHOLD_LOCK_KEY $STATEHOLD_LOCK_TOKEN"; touch held; while ! [ -e go ]; do sleep 0.1; done"#;
    let run = run(&place, &["--owner", "me"], script);
    eventually("the lock is held", || place.file("held").exists()).await;
    let held = lock(&place).await.expect("it is held");
    go(&place);
    let ran = run.ended_well().await;
    assert_eq!(ran.out, format!("deploy {}\n", held.token.0));
    assert_eq!(held.owner, "me");
}

#[tokio::test]
async fn while_another_has_the_lock_it_is_refused_or_waited_for() {
    let place = Place::new().await;
    let first = holder(&place, &[]).await;

    let refused = run(&place, &["--no-wait"], "touch ran").ended().await;
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert!(refused.err.contains("deploy") && refused.err.contains("held"), "{refused:?}");
    let refused = run(&place, &["--wait", "200ms", "--conflict-exit-code", "99"], "touch ran").ended().await;
    assert_eq!(refused.code, Some(99), "{refused:?}");

    let patient = run(&place, &[], "touch ran");
    assert!(!place.file("ran").exists(), "nobody ran beside the holder");
    go(&place);
    first.ended_well().await;
    patient.ended_well().await;
    assert!(place.file("ran").exists());
}

#[tokio::test]
async fn of_many_processes_one_runs_at_a_time() {
    let place = Place::new().await;
    fs::write(place.file("count"), "0").expect("a file");
    let script = "n=$(cat count); mkdir alone || exit 1; sleep 0.05; echo $((n + 1)) > count; rmdir alone";
    let runs: Vec<_> = (0..12).map(|_| run(&place, &[], script)).collect();
    for run in runs {
        run.ended_well().await;
    }
    assert_eq!(fs::read_to_string(place.file("count")).expect("a number").trim(), "12");
}

#[tokio::test]
async fn the_lock_is_renewed_while_the_program_runs() {
    let place = Place::new().await;
    let first = holder(&place, &["--ttl", "1s"]).await;
    let begun = lock(&place).await.expect("it is held");
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let held = lock(&place).await.expect("it is still held");
    assert_eq!(held.token, begun.token);
    assert!(held.expires_at > begun.expires_at);
    go(&place);
    first.ended_well().await;
}

#[tokio::test]
async fn if_the_lock_is_lost_the_program_is_stopped_with_all_it_started() {
    let place = Place::new().await;
    let script = "trap '' TERM; (trap '' TERM; sleep 1000) & touch held; while :; do sleep 0.1; done";
    let run = run(&place, &["--ttl", "1s"], script);
    eventually("the lock is held", || place.file("held").exists()).await;
    place.hold.locks().force_release("deploy").await.expect("it is taken away");
    let ran = run.ended().await;
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(ran.err.contains("lock `deploy` was lost, so the program was stopped"), "{ran:?}");
    place.assert_nothing_left().await;
}

#[tokio::test]
async fn a_program_that_ends_when_asked_to_is_not_killed() {
    let place = Place::new().await;
    let script = "trap 'touch asked; exit 3' TERM; touch held; while :; do sleep 0.1; done";
    let run = run(&place, &["--ttl", "1s"], script);
    eventually("the lock is held", || place.file("held").exists()).await;
    place.hold.locks().force_release("deploy").await.expect("it is taken away");
    assert_eq!(run.ended().await.code, Some(5));
    assert!(place.file("asked").exists());
}

#[tokio::test]
async fn signals_are_the_programs_and_the_lock_is_released_after_it() {
    let place = Place::new().await;
    for (signal, code) in [(Signal::TERM, 9), (Signal::INT, 10)] {
        let script = "trap 'exit 9' TERM; trap 'exit 10' INT; touch held; while :; do sleep 0.1; done";
        let run = run(&place, &[], script);
        eventually("the lock is held", || place.file("held").exists()).await;
        run.signal(signal);
        let ran = run.ended().await;
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(lock(&place).await.is_none());
        fs::remove_file(place.file("held")).expect("it is there");
    }
}

#[tokio::test]
async fn if_this_process_is_killed_the_lock_ends_by_its_time_to_live() {
    let place = Place::new().await;
    let killed = holder(&place, &["--ttl", "1s"]).await;
    killed.signal(Signal::KILL);
    assert_eq!(killed.ended().await.signal, Some(9));
    let wait = format!("{}s", LIMIT.as_secs());
    run(&place, &["--wait", &wait], "true").ended_well().await;
    for (pid, _) in place.left() {
        send(pid.cast_unsigned(), Signal::KILL);
    }
    place.assert_nothing_left().await;
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_error_before_the_lock_is_taken() {
    let place = Place::new().await;
    let first = holder(&place, &[]).await;
    let ran = place.start(&["lock", "run", "deploy", "--", "no-such-program"]).ended().await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    go(&place);
    first.ended_well().await;
}
