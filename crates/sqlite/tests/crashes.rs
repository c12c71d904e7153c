//! Killed while it writes: what was acknowledged is there, and nothing is there by half.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use common::{apply, block_on, copy_to, folder, integrity, numbered, open, whole_batches};
use statehold_conformance::named;
use statehold_conformance::process::{self, Process, given, say};

const ROUNDS: u64 = 20;
const CALLERS: u64 = 16;
/// Batches of a round begin at its number times this.
const ROUND: u64 = 1_000_000;
const SIGKILL: i32 = 9;
/// What a writer says when the log was taken over into the file.
const CHECKPOINT: &str = "checkpoint";

fn main() -> ExitCode {
    process::run(named![acknowledged_batches_survive_kills_and_none_is_there_by_half], named![writer])
}

/// Writes at full speed until it is killed, and says what was acknowledged.
fn writer() {
    let first: u64 = given("FIRST").to_str().and_then(|text| text.parse().ok()).expect("a number");
    let path = given("DATABASE");
    block_on(async move {
        let store = Arc::new(open(Path::new(&path)).await);
        if checkpoints(first) {
            std::thread::spawn(move || take_over_the_log(Path::new(&path)));
        }
        let callers: Vec<_> =
            (0..CALLERS).map(|caller| tokio::spawn(call(Arc::clone(&store), first + caller))).collect();
        for caller in callers {
            caller.await.expect("a caller writes until the end");
        }
    });
}

/// Whether the log is taken over into the file all the time in this round, so that kills meet that too.
fn checkpoints(first: u64) -> bool {
    (first / ROUND).is_multiple_of(3)
}

/// Takes the log over into the file and lets it begin anew, again and again.
fn take_over_the_log(path: &Path) {
    let connection = rusqlite::Connection::open(path).expect("a connection");
    connection.busy_timeout(common::PATIENCE).expect("it waits for its turn");
    let checkpoint =
        || connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get::<_, i64>(0));
    while checkpoint().expect("the log is taken over") == 0 {
        say(CHECKPOINT);
    }
}

/// One caller: its own numbers, each batch after the last was acknowledged.
async fn call(store: Arc<statehold_sqlite::Sqlite>, first: u64) {
    let mut number = first;
    loop {
        apply(&store, numbered(number, padding(number))).await.expect("a batch is acknowledged");
        say(&number.to_string());
        number += CALLERS;
    }
}

/// Mostly short, at times long enough for pages that overflow.
fn padding(number: u64) -> usize {
    if number.is_multiple_of(7) { 20_000 } else { usize::try_from(number % 500).expect("small") }
}

#[derive(Debug, Default)]
struct Counts {
    kills_while_writing: u64,
    acknowledged: usize,
    unacknowledged_but_there: usize,
    unacknowledged_and_gone: usize,
    checked_in_place: u64,
    checked_in_a_copy: u64,
    checkpoints: u64,
}

fn acknowledged_batches_survive_kills_and_none_is_there_by_half() {
    let folder = folder();
    let path = folder.path().join("state.db");
    let mut counts = Counts::default();
    let mut acknowledged = BTreeSet::new();
    let mut there = BTreeSet::new();
    for round in 1..=ROUNDS {
        let enough = 50 + common::random(450);
        let (of_round, killed) = write_and_kill(&path, round * ROUND, enough, &mut counts.checkpoints);
        let left_a_log = fs::metadata(common::beside(&path, "-wal")).is_ok_and(|log| log.len() > 0);
        counts.kills_while_writing += u64::from(killed && left_a_log);
        // Every second time the next writer itself opens what the kill left.
        let now = if round % 2 == 0 {
            counts.checked_in_place += 1;
            survivors(&path)
        } else {
            counts.checked_in_a_copy += 1;
            let copies = tempfile::tempdir_in(folder.path()).expect("a folder");
            survivors(&copy_to(&path, copies.path()))
        };
        let lost: Vec<_> = there.difference(&now).collect();
        assert!(lost.is_empty(), "round {round}: survived an earlier kill and is gone now: {lost:?}");
        let lost: Vec<_> = of_round.difference(&now).collect();
        assert!(lost.is_empty(), "round {round}: acknowledged and gone: {lost:?}");

        let open_at_the_end = in_flight(&of_round, round * ROUND);
        let new: BTreeSet<_> = now.difference(&there).copied().collect();
        let invented: Vec<_> =
            new.iter().filter(|n| !of_round.contains(n) && !open_at_the_end.contains(n)).collect();
        assert!(invented.is_empty(), "round {round}: there, but nobody wrote it: {invented:?}");
        counts.unacknowledged_but_there += open_at_the_end.intersection(&now).count();
        counts.unacknowledged_and_gone += open_at_the_end.difference(&now).count();
        counts.acknowledged += of_round.len();
        acknowledged.extend(of_round);
        there = now;
    }
    eprintln!("{counts:?}");
    assert_eq!(counts.kills_while_writing, ROUNDS, "each kill hits a process that writes");
    assert!(counts.checkpoints > 0, "no log was taken over while it was written: {counts:?}");
    assert!(counts.unacknowledged_and_gone > 0, "no kill came before a commit: {counts:?}");
    assert!(acknowledged.is_subset(&there) && acknowledged.len() == counts.acknowledged);
}

/// Lets a process write, kills it after some acknowledgements, and answers all that it gave.
fn write_and_kill(path: &Path, first: u64, enough: u64, checkpoints: &mut u64) -> (BTreeSet<u64>, bool) {
    let text = first.to_string();
    let mut process = Process::start("writer", &[("DATABASE", path.as_os_str()), ("FIRST", text.as_ref())]);
    let mut acknowledged = BTreeSet::new();
    let mut note = |line: String| {
        if line == CHECKPOINT {
            *checkpoints += 1;
        } else {
            assert!(acknowledged.insert(line.parse::<u64>().expect("a number")), "{line} was said twice");
        }
        acknowledged.len() as u64
    };
    while note(process.line()) < enough {}
    let status = process.kill();
    while let Some(line) = process.next_line() {
        note(line);
    }
    (acknowledged, status.signal() == Some(SIGKILL))
}

/// What each caller had asked for and not been answered: the one after its last.
fn in_flight(acknowledged: &BTreeSet<u64>, first: u64) -> BTreeSet<u64> {
    let mut next: BTreeMap<u64, u64> = (0..CALLERS).map(|caller| (caller, first + caller)).collect();
    for number in acknowledged {
        next.insert((number - first) % CALLERS, number + CALLERS);
    }
    next.into_values().collect()
}

/// Opens what a kill left, and answers the batches that are there, all of them whole.
fn survivors(path: &Path) -> BTreeSet<u64> {
    block_on(async {
        let store = open(path).await;
        assert_eq!(integrity(path), "ok");
        whole_batches(&store).await
    })
}
