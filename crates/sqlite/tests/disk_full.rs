//! No room on the disk: what is refused is not stored, what was acknowledged stays, and once there is room the same
//! process goes on by itself.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use common::{
    apply, block_on, folder, integrity, mount_tmpfs, mounting, numbered, open, refused, whole_batches,
};
use futures_util::future::join_all;
use statehold_conformance::named;
use statehold_conformance::process::{self, Process, given, say};
use statehold_core::batch::Replies;
use statehold_core::{Backend as _, Result};
use statehold_sqlite::{Config, Sqlite};

/// Requests made at the same time, so that many are in the transaction that finds no room.
const CALLERS: u64 = 32;
fn main() -> ExitCode {
    process::run(
        named![
            a_disk_that_fills_before_the_first_checkpoint_refuses_cleanly,
            a_disk_that_fills_after_checkpoints_refuses_cleanly,
            a_full_disk_at_the_start_is_told_and_harms_nothing,
            a_crash_on_a_full_disk_keeps_what_was_told,
            one_that_finds_no_room_does_not_fail_its_neighbours,
        ],
        named![fill_and_recover, start_on_a_full_disk, crash_while_full, neighbours],
    )
}

/// The log alone fills the disk: nothing of it has been taken over into the file.
fn a_disk_that_fills_before_the_first_checkpoint_refuses_cleanly() {
    let told = on_a_small_disk("fill_and_recover", "10");
    assert!(size_of_file(&told) < 1 << 20, "no checkpoint: {told:?}");
}

/// The file has grown by checkpoints when the next one, and then the log, finds no room.
fn a_disk_that_fills_after_checkpoints_refuses_cleanly() {
    let told = on_a_small_disk("fill_and_recover", "100");
    assert!(size_of_file(&told) > 8 << 20, "checkpoints: {told:?}");
}

fn size_of_file(told: &[String]) -> u64 {
    let size = told.iter().find_map(|line| line.strip_prefix("bytes of the file: "));
    size.and_then(|size| size.parse().ok()).expect("a size was told")
}

fn a_full_disk_at_the_start_is_told_and_harms_nothing() {
    on_a_small_disk("start_on_a_full_disk", "1");
}

/// Page by page, until there is room for a batch in the log, and then for the longer index that the log needs.
fn a_crash_on_a_full_disk_keeps_what_was_told() {
    on_a_small_disk("crash_while_full", "48");
}

fn one_that_finds_no_room_does_not_fail_its_neighbours() {
    on_a_small_disk("neighbours", "12");
}

/// Plays a role in a process that has a small disk of its own.
fn on_a_small_disk(role: &str, mebibytes: &str) -> Vec<String> {
    let (folder, elsewhere) = (folder(), common::scratch());
    let variables = [
        ("DISK", folder.path().as_os_str()),
        ("MEBIBYTES", mebibytes.as_ref()),
        ("ELSEWHERE", elsewhere.path().as_os_str()),
    ];
    let process = Process::start_behind(mounting(), role, &variables);
    let told = process.finish();
    eprintln!("{mebibytes} MiB: {}", told.join("; "));
    assert!(told.last().is_some_and(|line| line.starts_with("done")), "it went to its end: {told:?}");
    told
}

fn mebibytes() -> usize {
    given("MEBIBYTES").to_str().and_then(|text| text.parse().ok()).expect("a size")
}

fn disk() -> PathBuf {
    let disk = PathBuf::from(given("DISK"));
    mount_tmpfs(&disk, &format!("{}m", mebibytes()));
    disk
}

/// Puts away what can be deleted later to make room.
fn ballast(disk: &Path, name: &str, size: usize) -> PathBuf {
    let path = disk.join(name);
    fs::write(&path, vec![0; size]).expect("there is room for the ballast");
    path
}

/// What was asked of the store, and answered.
#[derive(Default)]
struct Asked {
    last: u64,
    acknowledged: BTreeSet<u64>,
    refused: BTreeSet<u64>,
}

impl Asked {
    fn note(&mut self, number: u64, answer: Result<Replies>) -> bool {
        let good = answer.is_ok();
        if good {
            self.acknowledged.insert(number);
        } else {
            let error = refused(answer, "unavailable", "make room");
            assert!(error.message().contains("disk is full"), "{error}");
            assert!(error.is_retryable(), "{error}");
            self.refused.insert(number);
        }
        good
    }

    async fn ask(&mut self, store: &Sqlite, padding: usize) -> bool {
        self.last += 1;
        let answer = apply(store, numbered(self.last, padding)).await;
        self.note(self.last, answer)
    }

    /// Asks many times at once; answers how many were refused.
    async fn ask_at_once(&mut self, store: &Sqlite, padding: usize) -> usize {
        self.ask_each(store, |_| padding).await
    }

    /// The same with a padding for each. All are handed over before the first is answered.
    async fn ask_each(&mut self, store: &Sqlite, padding: impl Fn(u64) -> usize) -> usize {
        let numbers = self.last + 1..=self.last + CALLERS;
        self.last += CALLERS;
        let prepare = |number| numbered(number, padding(number)).prepare().expect("a good batch");
        let batches: Vec<_> = numbers.clone().map(prepare).collect();
        let answers = join_all(batches.into_iter().map(|batch| store.apply(batch))).await;
        numbers.zip(answers).map(|(number, answer)| usize::from(!self.note(number, answer))).sum()
    }

    /// Asks one by one, then at once, large and small, until there is no room for any of them.
    async fn fill(&mut self, store: &Sqlite) {
        while self.ask(store, 20_000).await {}
        let before = (self.acknowledged.len(), self.refused.len());
        let mut groups_refused = 0;
        for padding in [10_000, 1_000, 0, 0, 0] {
            groups_refused += usize::from(self.ask_at_once(store, padding).await > 1);
        }
        while self.ask(store, 0).await {}
        let (more, refused) = (self.acknowledged.len() - before.0, self.refused.len() - before.1);
        say(&format!(
            "full: {more} small ones found room yet, {refused} refused, {groups_refused} groups failed"
        ));
        assert!(groups_refused > 1, "several requests failed together");
    }

    /// The store has what was acknowledged, and nothing else.
    async fn compare(&self, store: &Sqlite, when: &str) {
        let there = whole_batches(store).await;
        let lost: Vec<_> = self.acknowledged.difference(&there).collect();
        assert!(lost.is_empty(), "{when}: acknowledged and gone: {lost:?}");
        let false_refusals: Vec<_> = self.refused.intersection(&there).collect();
        assert!(false_refusals.is_empty(), "{when}: refused and there: {false_refusals:?}");
        assert_eq!(there, self.acknowledged, "{when}");
    }
}

fn fill_and_recover() {
    let disk = disk();
    // Each more than the log: a checkpoint that is overdue takes its room before anything else can.
    let room = mebibytes() * (3 << 20) / 10;
    let (first, second) = (ballast(&disk, "first", room), ballast(&disk, "second", room));
    let path = disk.join("state.db");
    block_on(async {
        let mut asked = Asked::default();
        let store = open(&path).await;
        asked.fill(&store).await;
        assert!(asked.acknowledged.len() > 20, "something was stored first");
        say(&format!("bytes of the file: {}", fs::metadata(&path).expect("the file").len()));
        asked.compare(&store, "while the disk is full").await;

        fs::remove_file(first).expect("room is made");
        for _ in 0..10 {
            assert!(asked.ask(&store, 1_000).await, "it goes on by itself once there is room");
        }
        assert_eq!(asked.ask_at_once(&store, 100).await, 0, "for all");
        asked.compare(&store, "after room was made").await;

        asked.fill(&store).await;
        asked.compare(&store, "while the disk is full again").await;
        drop(store);
        let log = common::beside(&path, "-wal");
        say(&format!("closed while full, the log is left: {}", log.exists()));

        fs::remove_file(second).expect("room is made");
        let store = open(&path).await;
        asked.compare(&store, "after it was opened again").await;
        assert!(asked.ask(&store, 1_000).await, "it is written on");
        drop(store);
        assert_eq!(integrity(&path), "ok");
        asked.compare(&open(&path).await, "in the end").await;
        say(&format!("done: {} acknowledged, {} refused", asked.acknowledged.len(), asked.refused.len()));
    });
}

/// Among many at once, one that is larger than the disk.
fn neighbours() {
    let path = disk().join("state.db");
    block_on(async {
        let mut asked = Asked::default();
        let store = open(&path).await;
        for round in 1..=2 {
            let large = asked.last + CALLERS / 2;
            let padding = |number| if number == large { 14 << 20 } else { 0 };
            assert_eq!(
                asked.ask_each(&store, padding).await,
                1,
                "round {round}: only the large one is refused"
            );
            assert!(asked.refused.contains(&large));
        }
        asked.compare(&store, "after large ones were refused").await;
        drop(store);
        asked.compare(&open(&path).await, "after it was opened again").await;
        say(&format!("done: {} acknowledged, {} refused", asked.acknowledged.len(), asked.refused.len()));
    });
}

/// Opens on disks with ever more room, from none to enough.
fn start_on_a_full_disk() {
    let disk = disk();
    let path = disk.join("state.db");
    let (mut refusals, mut room) = (0, 0);
    let filler = disk.join("filler");
    block_on(async {
        loop {
            fill_but(&filler, room);
            match Sqlite::open(Config::new(&path)).await {
                Ok(store) => {
                    drop(store);
                    break;
                }
                refusal => {
                    let error = refused(refusal, "unavailable", "room");
                    assert!(!error.message().contains("disk failed"), "{error}");
                }
            }
            refusals += 1;
            room += 4096;
        }
        fs::remove_file(&filler).expect("room is made");
        let mut asked = Asked::default();
        let store = open(&path).await;
        assert!(asked.ask(&store, 1_000).await);
        asked.compare(&store, "after starts without room").await;
    });
    assert!(refusals > 3, "it was started without room");
    say(&format!("done: {refusals} starts refused, the next with {room} bytes of room"));
}

/// The frames that the index of a log has room for before it must grow.
const FIRST_INDEX: u64 = 4062;

fn crash_while_full() {
    let disk = disk();
    let path = disk.join("state.db");
    block_on(async {
        let mut asked = Asked::default();
        let store = open(&path).await;
        // A reader that stays keeps the log from beginning anew.
        assert!(asked.ask(&store, 0).await);
        let reader = rusqlite::Connection::open(&path).expect("a connection");
        reader.execute_batch("BEGIN; SELECT count(*) FROM tasks").expect("it reads");
        let frames = || fs::metadata(common::beside(&path, "-wal")).expect("the log").len() / 4120;
        while frames() + 100 < FIRST_INDEX {
            assert!(asked.ask(&store, 20_000).await, "there is room");
        }
        while frames() + 30 < FIRST_INDEX {
            assert!(asked.ask(&store, 0).await, "there is room");
        }
        let filler = disk.join("filler");
        fill_but(&filler, 0);
        let mut counts = Crashes::default();
        loop {
            one_more_page(&filler);
            asked.last += 1;
            let answer = apply(&store, numbered(asked.last, 0)).await;
            let over = answer.is_ok() && frames() > FIRST_INDEX;
            counts.look(&path, asked.last, answer, &mut asked).await;
            if over {
                break;
            }
        }
        say(&format!("{counts:?}"));
        assert!(counts.refused > 5 && counts.acknowledged > 0, "the disk was full: {counts:?}");
        drop(reader);
        drop(store);
        fs::remove_file(&filler).expect("room is made");
        let there = whole_batches(&open(&path).await).await;
        assert!(asked.acknowledged.is_subset(&there));
        assert!(asked.refused.is_disjoint(&there), "told that nothing was stored");
        say("done");
    });
}

/// What crashes right after an answer left.
#[derive(Debug, Default)]
struct Crashes {
    acknowledged: u64,
    refused: u64,
    unknown: u64,
    unknown_and_there: u64,
}

impl Crashes {
    /// Looks what a crash would leave now: the files as they are, opened elsewhere.
    async fn look(&mut self, path: &Path, number: u64, answer: Result<Replies>, asked: &mut Asked) {
        let elsewhere = tempfile::tempdir_in(given("ELSEWHERE")).expect("a folder");
        let crashed = open(&common::copy_to(path, elsewhere.path())).await;
        let there = whole_batches(&crashed).await;
        let error = match answer {
            Ok(_) => {
                self.acknowledged += 1;
                asked.acknowledged.insert(number);
                assert!(asked.acknowledged.is_subset(&there), "acknowledged and gone after a crash");
                return;
            }
            refusal => refused(refusal, "unavailable", "room"),
        };
        if error.to_string().contains("not known") {
            self.unknown += 1;
            self.unknown_and_there += u64::from(there.contains(&number));
        } else {
            self.refused += 1;
            asked.refused.insert(number);
        }
        assert!(asked.acknowledged.is_subset(&there), "acknowledged and gone after a crash");
        let false_refusals: Vec<_> = asked.refused.intersection(&there).collect();
        assert!(
            false_refusals.is_empty(),
            "refused as not stored, and there after a crash: {false_refusals:?}: {error}"
        );
    }
}

/// Gives a page back to the disk.
fn one_more_page(filler: &Path) {
    let file = fs::File::options().write(true).open(filler).expect("the filler");
    let length = file.metadata().expect("its length").len();
    file.set_len(length.checked_sub(4096).expect("the filler is large")).expect("it can be cut");
}

/// Fills the disk but for some bytes.
fn fill_but(filler: &Path, room: u64) {
    use std::io::Write as _;
    let mut file = fs::File::options().append(true).create(true).open(filler).expect("the filler");
    while file.write_all(&[0; 4096]).is_ok() {}
    let length = file.metadata().expect("its length").len();
    file.set_len(length.saturating_sub(room)).expect("it can be cut");
}
