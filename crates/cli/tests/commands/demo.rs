//! `statehold demo`: it holds, it says so in numbers that are right, and it leaves nothing behind.

use std::collections::HashMap;
use std::fs;

use crate::programs::{Place, Run, eventually};
use rustix::process::Signal;
use statehold::core::query::{CategoryFrom, CategoryRead};

/// Starts a demo whose temporary folder is the place's own.
fn demo(place: &Place, args: &[&str]) -> Run {
    let folder = place.file("tmp");
    fs::create_dir_all(&folder).expect("a folder");
    let mut all = vec!["demo"];
    all.extend(args);
    place.start_with(&all, |command| {
        command.env("TMPDIR", &folder).env_remove("CLICOLOR_FORCE");
    })
}

async fn assert_clean(place: &Place) {
    place.assert_nothing_left().await;
    let left: Vec<_> = fs::read_dir(place.file("tmp")).expect("the folder").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn everything_holds_and_nothing_is_left() {
    let place = Place::new().await;
    let ran = demo(&place, &["--fast"]).ended_well().await;
    for line in [
        "24   must be 24",
        "12   must be 12",
        "is killed (SIGKILL)",
        "is paused (SIGSTOP)",
        "All of it is refused as fenced",
        "late writes that are in the store                              0   must be 0",
        "tasks completed exactly once, by their events                 15   must be 15",
        "Nothing was lost, and nothing happened twice.",
    ] {
        assert!(ran.out.contains(line), "`{line}` is not in:\n{}", ran.out);
    }
    assert!(!ran.out.contains("FAIL") && !ran.out.contains('\u{1b}'), "{}", ran.out);
    assert_eq!(ran.out.matches("   ok   ").count(), 11, "{}", ran.out);
    assert_eq!(ran.err, "");
    assert_clean(&place).await;
}

#[tokio::test]
async fn on_a_store_of_ones_own_its_numbers_are_what_the_store_says() {
    let place = Place::new().await;
    let ran = demo(&place, &["--fast", "--tasks", "20", "--store", "sqlite:state.db"]).ended_well().await;
    let space = place.hold.backend().namespaces().await.expect("namespaces");
    let [space] = &space[..] else { panic!("{space:?}") };
    assert!(space.starts_with("demo-") && ran.out.contains(space.as_str()), "{}", ran.out);
    let read = CategoryRead { category: "task".into(), from: CategoryFrom::Oldest, limit: 1000 };
    let events = place.hold.backend().category_read(space, &read).await.expect("events").events;
    let mut completed: HashMap<_, u32> = HashMap::new();
    for event in events.iter().filter(|event| event.kind == "task.completed") {
        *completed.entry(event.stream.clone()).or_default() += 1;
    }
    assert_eq!(completed.len(), 23);
    assert!(completed.values().all(|count| *count == 1), "{completed:?}");
    assert!(events.iter().filter(|event| event.kind == "task.lease_lost").count() >= 2);
    assert!(events.iter().all(|event| event.kind != "late"));
    assert_clean(&place).await;
}

#[tokio::test]
async fn whoever_stops_it_stops_all_of_it() {
    let place = Place::new().await;
    let run = demo(&place, &[]);
    eventually("one worker is killed and one is paused", || run.printed().contains("SIGSTOP")).await;
    assert!(place.left().len() >= 3, "the fleet is running: {:?}", place.left());
    run.signal(Signal::INT);
    let ran = run.ended().await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_clean(&place).await;
}

#[tokio::test]
async fn its_processes_do_not_outlive_it_even_if_it_is_killed() {
    let place = Place::new().await;
    let run = demo(&place, &[]);
    eventually("one worker is killed and one is paused", || run.printed().contains("SIGSTOP")).await;
    run.signal(Signal::KILL);
    assert_eq!(run.ended().await.signal, Some(9));
    place.assert_nothing_left().await;
}

#[tokio::test]
async fn a_store_that_processes_cannot_share_is_refused() {
    let place = Place::new().await;
    let ran = demo(&place, &["--store", "memory:"]).ended().await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("cannot share") && ran.err.contains("hint:"), "{ran:?}");
}
