//! Two processes on one file: a change in one wakes who waits for it in the other, and nobody else; no wake is lost.

mod common;

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::{NAMESPACE, apply, block_on, folder, open, run_well, stream};
use futures_util::FutureExt as _;
use statehold_conformance::named;
use statehold_conformance::process::{self, Process, given, say};
use statehold_core::command::{NewEvent, StreamAppend};
use statehold_core::query::{ReadFrom, StreamRead};
use statehold_core::wake::{Topic, Waiter};
use statehold_core::{Backend as _, Batch};
use statehold_sqlite::Sqlite;

/// A wake that does not come within this time is lost: nothing but the wake itself would bring it.
const LOST: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    process::run(
        named![
            a_change_in_another_process_wakes_who_waits_for_it_and_nobody_else,
            no_wake_is_lost_between_two_processes,
            who_was_stopped_and_fell_behind_is_woken,
            a_killed_process_is_noticed_and_its_socket_goes,
            a_process_that_is_alone_sleeps,
        ],
        named![changer, ponger, waiter, sleeper],
    )
}

async fn append(store: &Sqlite, name: &str) {
    let event = NewEvent { kind: "change".into(), data: None };
    let append = StreamAppend { stream: stream(name), events: vec![event], expect_seq: None };
    apply(store, Batch::of(NAMESPACE, append).0).await.expect("an event is appended");
}

async fn last_seq(store: &Sqlite, name: &str) -> u64 {
    let read = StreamRead { stream: stream(name), from: ReadFrom::Last, limit: 1 };
    store.stream_read(NAMESPACE, &read).await.expect("the stream is read").last_seq
}

async fn register(store: &Sqlite, name: &str) -> Waiter {
    store.register(NAMESPACE, &[Topic::Stream(stream(name))]).await.expect("a waiter")
}

/// Waits for a wake that must come.
async fn woken(waiter: &Waiter, what: &str) {
    let wait = tokio::time::timeout(LOST, waiter.wait()).await;
    assert!(wait.is_ok(), "a wake was lost: {what}");
}

/// Whether a wake has come that was not waited for yet.
fn has_wake(waiter: &Waiter) -> bool {
    waiter.wait().now_or_never().is_some()
}

fn nanoseconds() -> i128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    i128::try_from(now.as_nanos()).expect("a time of this age")
}

/// The lines that the parent says.
fn lines() -> impl Iterator<Item = String> {
    std::io::stdin().lines().map(|line| line.expect("a line"))
}

/// Appends an event to each stream that it is told, and says when that was answered.
fn changer() {
    let path = PathBuf::from(given("DATABASE"));
    block_on(async {
        let store = open(&path).await;
        say("open");
        for name in lines() {
            append(&store, &name).await;
            say(&nanoseconds().to_string());
        }
        drop(store);
    });
}

fn start(role: &str, path: &Path) -> Process {
    let mut process = Process::start(role, &[("DATABASE", path.as_os_str())]);
    process.expect("open");
    process
}

fn median(mut measured: Vec<i128>) -> i128 {
    measured.sort_unstable();
    measured[measured.len() / 2]
}

fn a_change_in_another_process_wakes_who_waits_for_it_and_nobody_else() {
    const CHANGES: usize = 200;
    let folder = folder();
    let path = folder.path().join("state.db");
    block_on(async {
        let store = open(&path).await;
        let mut other = start("changer", &path);
        let (waiting, bystander, last) = (
            register(&store, "log/a").await,
            register(&store, "log/b").await,
            register(&store, "log/c").await,
        );
        let mut delays = Vec::new();
        for change in 1..=CHANGES {
            other.tell("log/a");
            woken(&waiting, &format!("change {change}")).await;
            let at = nanoseconds();
            assert_eq!(last_seq(&store, "log/a").await, change as u64, "woken for a change that can be read");
            delays.push((at - other.line().parse::<i128>().expect("a time")) / 1_000);
        }
        // Messages keep their order: once this one is here, all before have been.
        other.tell("log/c");
        woken(&last, "the last change").await;
        assert!(!has_wake(&bystander), "who waits for something else sleeps on");
        assert!(!has_wake(&waiting), "one wake for each change");
        let _ = other.line();
        other.tell("log/b");
        woken(&bystander, "the bystander's own change").await;
        let _ = other.line();
        other.finish();
        eprintln!(
            "{CHANGES} changes, {CHANGES} wakes, 0 of the bystander; woken {} µs after the change was answered (median)",
            median(delays)
        );
    });
}

const ROUNDS: u64 = 500;

/// Waits until a stream has an event: register, read, wait.
async fn wait_for(store: &Sqlite, name: &str, seq: u64) -> u64 {
    let mut waits = 0;
    loop {
        let waiter = register(store, name).await;
        if last_seq(store, name).await >= seq {
            return waits;
        }
        woken(&waiter, &format!("event {seq} of {name}")).await;
        waits += 1;
    }
}

/// Answers each event of one stream with one of another.
fn ponger() {
    let path = PathBuf::from(given("DATABASE"));
    block_on(async {
        let store = open(&path).await;
        say("open");
        let mut waits = 0;
        for round in 1..=ROUNDS {
            waits += wait_for(&store, "log/ping", round).await;
            append(&store, "log/pong").await;
        }
        say(&waits.to_string());
        drop(store);
    });
}

fn no_wake_is_lost_between_two_processes() {
    let folder = folder();
    let path = folder.path().join("state.db");
    block_on(async {
        let store = open(&path).await;
        let mut other = start("ponger", &path);
        let (mut waits, mut trips) = (0, Vec::new());
        for round in 1..=ROUNDS {
            let began = nanoseconds();
            append(&store, "log/ping").await;
            waits += wait_for(&store, "log/pong", round).await;
            trips.push((nanoseconds() - began) / 1_000);
        }
        let others: u64 = other.line().parse().expect("a number");
        other.finish();
        eprintln!(
            "{ROUNDS} rounds, {waits} and {others} waits; {} µs there and back with two commits (median)",
            median(trips)
        );
        assert!(
            waits > ROUNDS / 2 && others > ROUNDS / 2,
            "they have waited for each other: {waits}, {others}"
        );
    });
}

/// Waits for the parent's last change, and says whether something else woke it too.
fn waiter() {
    let path = PathBuf::from(given("DATABASE"));
    block_on(async {
        let store = open(&path).await;
        let (last, bystander) = (register(&store, "log/last").await, register(&store, "log/never").await);
        say("open");
        let mut awaited = lines();
        awaited.next().expect("it goes on");
        woken(&last, "the last change, made while this process was stopped").await;
        woken(&bystander, "it shall look at everything").await;
        say("woken for everything");
        drop(store);
    });
}

fn signal(process: &Process, signal: &str) {
    run_well(Command::new("kill").args([signal, &process.id().to_string()]));
}

fn who_was_stopped_and_fell_behind_is_woken() {
    let folder = folder();
    let path = folder.path().join("state.db");
    block_on(async {
        let store = open(&path).await;
        let mut other = start("waiter", &path);
        signal(&other, "-STOP");
        // More than any socket has room for; the change that counts is one for which there is none.
        for _ in 0..2_000 {
            append(&store, "log/noise").await;
        }
        append(&store, "log/last").await;
        signal(&other, "-CONT");
        other.tell("go on");
        other.expect("woken for everything");
        other.finish();
    });
}

/// The sockets beside a file.
fn sockets(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).expect("the folder is read").map(|entry| entry.expect("an entry"));
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket())).count()
}

fn a_killed_process_is_noticed_and_its_socket_goes() {
    let folder = folder();
    let path = folder.path().join("state.db");
    block_on(async {
        let store = open(&path).await;
        for round in 1..=3 {
            let mut other = start("changer", &path);
            assert_eq!(sockets(folder.path()), 2, "each process has one");
            let waiter = register(&store, "log/quiet").await;
            other.kill();
            assert_eq!(sockets(folder.path()), 2, "a killed process leaves its own");
            woken(&waiter, &format!("someone was killed, and may have changed anything ({round})")).await;
            assert_eq!(sockets(folder.path()), 1, "the survivor removes it");
            append(&store, "log/alone").await;
        }
        // Who comes later finds no dead ones, and wakes travel again.
        let mut other = start("changer", &path);
        let waiter = register(&store, "log/again").await;
        other.tell("log/again");
        woken(&waiter, "a change of the next process").await;
        let _ = other.line();
        other.finish();
        assert_eq!(sockets(folder.path()), 1, "who ends well removes its own");
        drop(store);
    });
    assert_eq!(sockets(folder.path()), 0);
}

/// How often the receiving thread of this process has gone to sleep.
fn naps() -> u64 {
    let threads =
        fs::read_dir("/proc/self/task").expect("the threads").map(|entry| entry.expect("a thread").path());
    let named = |path: &PathBuf| {
        fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "statehold-peers")
    };
    let found: Vec<_> = threads.filter(named).collect();
    let [thread] = &found[..] else { panic!("there is one such thread: {found:?}") };
    let status = fs::read_to_string(thread.join("status")).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).expect("a count")
}

/// Says how often its receiving thread has gone to sleep, whenever it is asked.
fn sleeper() {
    let path = PathBuf::from(given("DATABASE"));
    block_on(async {
        let store = open(&path).await;
        append(&store, "log/alone").await;
        say("open");
        for _ in lines() {
            append(&store, "log/alone").await;
            say(&naps().to_string());
        }
        drop(store);
    });
}

fn ask(other: &mut Process) -> u64 {
    other.tell("how often?");
    other.line().parse().expect("a count")
}

/// How often a thread went to sleep within a second.
fn naps_of_a_second(other: &mut Process) -> u64 {
    let before = ask(other);
    std::thread::sleep(Duration::from_secs(1));
    ask(other) - before
}

/// The same of the quieter of two seconds: it may have to get up for someone who has just come or gone.
fn quieter(other: &mut Process) -> u64 {
    let seconds: Vec<_> = (0..2).map(|_| naps_of_a_second(other)).collect();
    seconds.into_iter().min().expect("a second")
}

fn a_process_that_is_alone_sleeps() {
    let folder = folder();
    let path = folder.path().join("state.db");
    let mut other = start("sleeper", &path);
    let alone = quieter(&mut other);
    let together = block_on(async {
        let store = open(&path).await;
        let naps = quieter(&mut other);
        drop(store);
        naps
    });
    let again = quieter(&mut other);
    other.finish();
    eprintln!("naps within a second: {alone} alone, {together} beside another process, {again} alone again");
    assert!(together > 0, "the count moves if there is reason");
    assert_eq!((alone, again), (0, 0), "a process that is alone does not wake up");
}
