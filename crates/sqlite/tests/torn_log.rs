//! A log that breaks off or has a wrong byte anywhere opens at the last commit before the damage, exactly.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use common::{NAMESPACE, apply, beside, block_on, body, copy_to, folder, integrity, open, stream};
use futures_util::TryStreamExt as _;
use serde_json::json;
use statehold_conformance::named;
use statehold_conformance::process::{self};
use statehold_core::command::{DocumentPut, EntrySet, NewEvent, StreamAppend, TaskCreate};
use statehold_core::dump::Record;
use statehold_core::{Backend as _, Batch};
use statehold_sqlite::Sqlite;

const COMMITS: usize = 60;
const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

fn main() -> ExitCode {
    process::run(
        named![
            a_torn_log_opens_at_the_last_commit_before_the_damage,
            a_torn_log_that_began_anew_brings_nothing_old_back,
        ],
        &[],
    )
}

/// What was written: the files as they were while open, and what a dump said after each commit.
struct Written {
    database: Vec<u8>,
    log: Log,
    states: Vec<Vec<Record>>,
    /// Commits in the log before the first of ours: those that make the schema.
    before: usize,
    /// Our commits that are in the file and no longer in the log.
    taken_over: usize,
}

impl Written {
    /// How many of our commits are there if the log is sound up to this byte.
    fn prefix(&self, sound: usize) -> usize {
        let frames = sound.saturating_sub(HEADER) / self.log.frame;
        let commits = self.log.commits(frames.min(self.log.frames));
        self.taken_over + commits.saturating_sub(self.before)
    }
}

/// A log as SQLite writes it: a header, then frames of a header and a page each.
struct Log {
    bytes: Vec<u8>,
    frame: usize,
    /// How many of them belong to this log; behind them may be some of the log before it began anew.
    frames: usize,
}

impl Log {
    fn read(path: &Path) -> Self {
        let bytes = fs::read(beside(path, "-wal")).expect("the log is read");
        let page = usize::try_from(number(&bytes[8..])).expect("a size");
        assert!(page.is_power_of_two() && page >= 512, "the log has pages of {page} bytes");
        let frame = FRAME_HEADER + page;
        assert_eq!((bytes.len() - HEADER) % frame, 0, "the log has whole frames only");
        let frames = bytes[HEADER..].chunks(frame).take_while(|frame| frame[8..16] == bytes[16..24]).count();
        Self { bytes, frame, frames }
    }

    fn start(&self, frame: usize) -> usize {
        HEADER + frame * self.frame
    }

    /// How many commits lie wholly in the first frames.
    fn commits(&self, frames: usize) -> usize {
        (0..frames).filter(|at| number(&self.bytes[self.start(*at) + 4..]) != 0).count()
    }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"))
}

/// A way to damage a log.
#[derive(Clone, Copy, Debug)]
enum Damage {
    /// Nothing from here on.
    Cut(usize),
    /// One bit is wrong here.
    Flip(usize, u8),
}

/// How many damages of a kind there were, and how many of them cost at least the last commit.
#[derive(Debug, Default)]
struct Count {
    tried: usize,
    shortened: usize,
}

fn a_torn_log_opens_at_the_last_commit_before_the_damage() {
    let written = write(None);
    let (log, frames) = (&written.log, written.log.frames);
    assert_eq!(written.prefix(log.bytes.len()), COMMITS, "one commit for each batch");
    assert_eq!(log.start(frames), log.bytes.len(), "nothing was taken over into the file");
    assert!(frames > 2 * COMMITS, "commits of several frames each: {frames}");
    let (cuts, flips, prefixes) = judge_all(&written, &damages(log));
    eprintln!("{frames} frames; cuts: {cuts:?}; flips: {flips:?}; {} prefixes", prefixes.len());
    assert!(cuts.tried > 2 * frames && flips.tried > 2 * frames, "each frame was cut and flipped");
    assert_eq!(cuts.shortened + 1, cuts.tried, "every cut but the one at the very end costs a commit");
    assert_eq!(flips.shortened, flips.tried, "no flipped bit goes unnoticed");
    assert_eq!(prefixes, (0..=COMMITS).collect(), "every prefix was seen");
}

/// Behind the end of the log are whole commits from before it began anew. They do not come back, whatever is cut.
fn a_torn_log_that_began_anew_brings_nothing_old_back() {
    const TAKEN_OVER: usize = 50;
    let written = write(Some(TAKEN_OVER));
    let (log, frames) = (&written.log, written.log.frames);
    assert_eq!(written.prefix(log.bytes.len()), COMMITS, "one commit for each batch");
    let old = (log.bytes.len() - log.start(frames)) / log.frame;
    assert!(old > 100, "frames of the old log are left: {old}");
    let mut damages = damages(log);
    damages.extend((frames..frames + old).map(|at| Damage::Flip(log.start(at) + at % log.frame, 1)));
    let (cuts, flips, prefixes) = judge_all(&written, &damages);
    eprintln!("{frames} frames, {old} old; cuts: {cuts:?}; flips: {flips:?}; {} prefixes", prefixes.len());
    assert_eq!(cuts.shortened + 1, cuts.tried, "every cut but the one at the very end costs a commit");
    assert_eq!(flips.shortened + old, flips.tried, "only flips in the old part cost nothing");
    assert_eq!(prefixes, (TAKEN_OVER..=COMMITS).collect(), "every prefix was seen");
}

/// Writes commits of varied sizes, and takes the files while they are in the log: all of them, or those after the log
/// was taken over into the file and began anew.
fn write(taken_over: Option<usize>) -> Written {
    let folder = folder();
    let path = folder.path().join("state.db");
    block_on(async {
        let store = open(&path).await;
        let schema = Log::read(&path);
        let mut states = vec![dump(&store).await];
        for number in 1..=COMMITS {
            apply(&store, batch(number)).await.expect("a commit");
            states.push(dump(&store).await);
            if taken_over == Some(number) {
                begin_the_log_anew(&path);
            }
        }
        let copies = tempfile::tempdir_in(folder.path()).expect("a folder");
        let copy = copy_to(&path, copies.path());
        let distinct = states.windows(2).all(|pair| pair[0] != pair[1]);
        assert!(distinct, "each commit changes what is dumped");
        let before = if taken_over.is_some() { 0 } else { schema.commits(schema.frames) };
        let database = fs::read(&copy).expect("the database is read");
        Written { database, log: Log::read(&copy), states, before, taken_over: taken_over.unwrap_or(0) }
    })
}

fn begin_the_log_anew(path: &Path) {
    let connection = rusqlite::Connection::open(path).expect("a connection");
    let restart = "PRAGMA wal_checkpoint(RESTART)";
    let busy: i64 = connection.query_row(restart, [], |row| row.get(0)).expect("the log is taken over");
    assert_eq!(busy, 0, "all of it");
}

/// A batch of one to nine pages or so, that also replaces what earlier ones wrote.
fn batch(number: usize) -> Batch {
    let mut batch = Batch::new(NAMESPACE);
    let carried = body(&json!({ "number": number }));
    let event = NewEvent { kind: "written".into(), data: Some(carried.clone()) };
    let _ = batch.add(StreamAppend { stream: stream("log/all"), events: vec![event], expect_seq: None });
    if number.is_multiple_of(2) {
        let padded = body(&json!({ "number": number, "padding": "x".repeat(number * 397 % 9_000) }));
        let _ = batch.add(DocumentPut::json("numbered", format!("{}", number % 5), padded));
    }
    if number.is_multiple_of(3) {
        let _ = batch.add(EntrySet::new(format!("{}", number % 4), carried));
    }
    if number.is_multiple_of(5) {
        let _ = batch.add(TaskCreate::new("numbered"));
    }
    batch
}

async fn dump(store: &Sqlite) -> Vec<Record> {
    let records = store.dump(NAMESPACE).await.expect("the dump begins");
    records.try_collect().await.expect("the dump ends")
}

/// Cuts at each frame's start and in its middle, and at the end of the last; flips in each frame's header and page.
fn damages(log: &Log) -> Vec<Damage> {
    let mut damages = vec![Damage::Cut(0), Damage::Cut(HEADER / 2), Damage::Cut(log.start(log.frames))];
    damages.extend((0..HEADER).map(|at| Damage::Flip(at, 1)));
    for frame in 0..log.frames {
        let (start, bit) = (log.start(frame), 1 << (frame % 8));
        damages.extend([Damage::Cut(start), Damage::Cut(start + log.frame / 2)]);
        damages.push(Damage::Flip(start + frame * 7 % FRAME_HEADER, bit));
        let in_page = frame * 1_237 % (log.frame - FRAME_HEADER);
        damages.push(Damage::Flip(start + FRAME_HEADER + in_page, bit));
    }
    damages
}

/// Judges each damage, and counts cuts, flips and the prefixes that were seen.
fn judge_all(written: &Written, damages: &[Damage]) -> (Count, Count, BTreeSet<usize>) {
    let judge_some = |damages: &[Damage]| -> Vec<_> {
        let folder = common::scratch();
        let path = |at| folder.path().join(format!("{at}.db"));
        damages.iter().enumerate().map(|(at, damage)| (*damage, judge(written, *damage, &path(at)))).collect()
    };
    let opened: Vec<_> = std::thread::scope(|scope| {
        let parts = damages.chunks(damages.len().div_ceil(2));
        let running: Vec<_> = parts.map(|part| scope.spawn(|| judge_some(part))).collect();
        let opened =
            running.into_iter().map(|part| part.join().expect("every damaged log opens at its prefix"));
        opened.flatten().collect()
    });
    let (mut cuts, mut flips, mut prefixes) = (Count::default(), Count::default(), BTreeSet::new());
    for (damage, prefix) in opened {
        let count = if matches!(damage, Damage::Cut(_)) { &mut cuts } else { &mut flips };
        count.tried += 1;
        count.shortened += usize::from(prefix < COMMITS);
        prefixes.insert(prefix);
    }
    (cuts, flips, prefixes)
}

/// Opens a copy with a damaged log, compares it to the commits before the damage, and writes on.
fn judge(written: &Written, damage: Damage, path: &Path) -> usize {
    let mut log = written.log.bytes.clone();
    let at = match damage {
        Damage::Cut(at) => {
            log.truncate(at);
            at
        }
        Damage::Flip(at, bit) => {
            log[at] ^= bit;
            at
        }
    };
    let prefix = written.prefix(at);
    fs::write(path, &written.database).expect("the database is copied");
    fs::write(beside(path, "-wal"), log).expect("the log is copied");
    block_on(async {
        let store = open(path).await;
        assert!(
            dump(&store).await == written.states[prefix],
            "{damage:?} must show the first {prefix} commits"
        );
        apply(&store, batch(COMMITS + 1)).await.expect("it is written on");
        let events = common::events(&store, &stream("log/all")).await;
        assert_eq!(events.len(), prefix + 1, "{damage:?}");
    });
    assert_eq!(integrity(path), "ok", "{damage:?}");
    for suffix in ["", "-wal", "-shm", "-lock"] {
        let _ = fs::remove_file(beside(path, suffix));
    }
    prefix
}
