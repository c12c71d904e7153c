//! What the fault tests share: numbered batches that are there wholly or not at all, and short ways to look at files.

#![allow(dead_code, reason = "each target uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use statehold_core::batch::{Batch, Replies};
use statehold_core::command::{DocumentPut, EntrySet, NewEvent, StreamAppend, TaskCreate};
use statehold_core::model::{Event, StreamName};
use statehold_core::query::{
    CategoryFrom, CategoryRead, DocumentList, KeyList, Page, ReadFrom, StreamRead, TaskList,
};
use statehold_core::{Backend, Error, Json, Result, Status};
use statehold_sqlite::{Config, Sqlite};

/// Where everything happens.
pub(crate) const NAMESPACE: &str = "faults";

/// How long a process may be silent. It only keeps a broken store from hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs something to its end, on two threads.
pub(crate) fn block_on<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

/// What makes a namespace in which this user may mount, here and now. Panics with all that was tried.
pub(crate) fn mounting() -> &'static [&'static str] {
    const WAYS: &[&[&str]] = &[
        &["unshare", "--user", "--map-root-user", "--mount"],
        &["unshare", "--mount"],
        &["sudo", "-n", "unshare", "--mount"],
    ];
    let folder = folder();
    let mut tried = Vec::new();
    for way in WAYS {
        let mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs"];
        let done = Command::new(way[0]).args(&way[1..]).args(mount).arg(folder.path()).output();
        match done {
            Ok(done) if done.status.success() => return way,
            Ok(done) => tried.push(format!("{way:?}: {}", String::from_utf8_lossy(&done.stderr).trim())),
            Err(problem) => tried.push(format!("{way:?}: {problem}")),
        }
    }
    panic!("no tmpfs can be mounted, which this test cannot do without; tried:\n{}", tried.join("\n"));
}

/// Mounts a tmpfs of this size.
pub(crate) fn mount_tmpfs(at: &Path, size: &str) {
    run_well(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(at));
}

/// Runs a program that must end well.
pub(crate) fn run_well(command: &mut Command) {
    let done = command.output().unwrap_or_else(|e| panic!("{command:?} cannot be started: {e}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A folder of its own, on a disk.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// A folder of its own, in memory if there is such a place: for what does not depend on a disk.
pub(crate) fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).expect("a folder") } else { folder() }
}

/// Numbers that look random, and differ from run to run.
pub(crate) fn random(below: u64) -> u64 {
    RandomState::new().hash_one(0) % below
}

/// Opens a file that must open.
pub(crate) async fn open(path: &Path) -> Sqlite {
    let opened = Sqlite::open(Config::new(path)).await;
    opened.unwrap_or_else(|e| panic!("{} must open: {e}", path.display()))
}

/// Applies a batch.
pub(crate) async fn apply(store: &Sqlite, batch: Batch) -> Result<Replies> {
    store.apply(batch.prepare()?).await
}

/// The error of something that must be refused with this code, with a hint that says this.
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T>, code: &str, hint: &str) -> Error {
    let error = result.expect_err("refused");
    assert_eq!(error.code(), code, "{error}");
    assert!(error.hint_text().is_some_and(|text| text.contains(hint)), "the hint says `{hint}`: {error}");
    error
}

/// The name of a stream from its text.
pub(crate) fn stream(name: &str) -> StreamName {
    name.parse().expect("a stream's name")
}

/// A value as JSON.
pub(crate) fn body(value: &Value) -> Json {
    Json::of(value).expect("valid JSON")
}

/// How many streams numbered batches append to.
const STREAMS: u64 = 4;

/// A batch that writes in five places, each of which carries its number.
pub(crate) fn numbered(number: u64, padding: usize) -> Batch {
    let carried = body(&json!({ "number": number }));
    let mut batch = Batch::new(NAMESPACE);
    let input = Some(carried.clone());
    let _ = batch.add(TaskCreate { queue: Some("q".into()), input, ..TaskCreate::new("numbered") });
    let event = |kind: &str| NewEvent { kind: kind.into(), data: Some(carried.clone()) };
    let events = vec![event("first"), event("second")];
    let stream = stream(&format!("log/{}", number % STREAMS));
    let _ = batch.add(StreamAppend { stream, events, expect_seq: None });
    let padded = body(&json!({ "number": number, "padding": "x".repeat(padding) }));
    let _ = batch.add(DocumentPut::json("numbered", name_of(number), padded));
    let _ = batch.add(EntrySet::new(name_of(number), carried));
    batch
}

fn name_of(number: u64) -> String {
    format!("{number:012}")
}

fn number_of(json: Option<&Json>) -> u64 {
    let value: Value = json.expect("a body").to().expect("valid JSON");
    value["number"].as_u64().expect("a number")
}

/// The numbered batches that are there. Panics if one is there by half, a stream has a gap, or a count is wrong.
pub(crate) async fn whole_batches(store: &Sqlite) -> BTreeSet<u64> {
    let tasks = tasks(store).await;
    let of_tasks: BTreeMap<_, _> = tasks.iter().map(|(id, number)| (*number, id.clone())).collect();
    assert_eq!(of_tasks.len(), tasks.len(), "no batch has made two tasks");
    let numbers: BTreeSet<_> = of_tasks.keys().copied().collect();

    let created: BTreeSet<_> = category(store, "task").await.into_iter().map(|event| event.stream).collect();
    let expected = tasks.iter().map(|(id, _)| stream(&format!("task/{id}")));
    assert_eq!(created, expected.collect(), "each task has its event, and no event is without its task");

    same(&numbers, &documents(store).await, "documents");
    same(&numbers, &entries(store).await, "entries");
    same(&numbers, &appended(store).await, "pairs of events");

    let counted = store.task_count(NAMESPACE, None).await.expect("tasks are counted").counts;
    assert_eq!(counted.values().sum::<u64>(), tasks.len() as u64, "the counts are those of the tasks listed");
    assert_eq!(counted.get(&Status::Pending).copied().unwrap_or(0), tasks.len() as u64);
    numbers
}

fn same(tasks: &BTreeSet<u64>, others: &BTreeSet<u64>, what: &str) {
    let halves: Vec<_> = tasks.symmetric_difference(others).collect();
    assert!(halves.is_empty(), "batches of which only the task or only the {what} is there: {halves:?}");
}

/// All pages of a list.
async fn all<T, F: Future<Output = Result<Page<T>>>>(page: impl Fn(Option<String>) -> F) -> Vec<T> {
    let (mut items, mut cursor) = (Vec::new(), None);
    loop {
        let next = page(cursor).await.expect("a page is read");
        items.extend(next.items);
        cursor = next.next_cursor;
        if cursor.is_none() {
            return items;
        }
    }
}

async fn tasks(store: &Sqlite) -> Vec<(String, u64)> {
    let page = |cursor| async {
        store.task_list(NAMESPACE, &TaskList { limit: 1000, cursor, ..TaskList::default() }).await
    };
    all(page).await.iter().map(|task| (task.id.to_string(), number_of(task.input.as_ref()))).collect()
}

async fn documents(store: &Sqlite) -> BTreeSet<u64> {
    let page = |cursor| async {
        store
            .document_list(NAMESPACE, &DocumentList { limit: 100, cursor, ..DocumentList::new("numbered") })
            .await
    };
    let number = |document: &statehold_core::model::Document| {
        let number = number_of(document.body.as_ref());
        assert_eq!(document.name, name_of(number));
        number
    };
    all(page).await.iter().map(number).collect()
}

async fn entries(store: &Sqlite) -> BTreeSet<u64> {
    let page = |cursor| async {
        store.entry_list(NAMESPACE, &KeyList { limit: 1000, cursor, ..KeyList::default() }).await
    };
    let number = |entry: &statehold_core::model::Entry| {
        let number = number_of(Some(&entry.value));
        assert_eq!(entry.key, name_of(number));
        number
    };
    all(page).await.iter().map(number).collect()
}

/// The batches whose two events stand beside each other in a stream without a gap.
async fn appended(store: &Sqlite) -> BTreeSet<u64> {
    let mut numbers = BTreeSet::new();
    for index in 0..STREAMS {
        let name = stream(&format!("log/{index}"));
        let events = events(store, &name).await;
        for (pair, seq) in events.chunks(2).zip((1..).step_by(2)) {
            let [first, second] = pair else { panic!("{name} ends with half a pair: {pair:?}") };
            assert_eq!((first.seq, second.seq), (seq, seq + 1), "{name} has no gap");
            assert_eq!((first.kind.as_str(), second.kind.as_str()), ("first", "second"));
            let number = number_of(first.data.as_ref());
            assert_eq!(number_of(second.data.as_ref()), number, "a pair is not torn apart");
            assert_eq!(number % STREAMS, index);
            assert!(numbers.insert(number), "batch {number} appended twice");
        }
    }
    numbers
}

/// All events of a stream.
pub(crate) async fn events(store: &Sqlite, name: &StreamName) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    loop {
        let after = events.last().map_or(0, |event| event.seq);
        let read = StreamRead { stream: name.clone(), from: ReadFrom::After(after), limit: 1000 };
        let page = store.stream_read(NAMESPACE, &read).await.expect("the stream is read");
        if page.events.is_empty() {
            assert_eq!(page.last_seq, after, "the head of {name} is its last event");
            return events;
        }
        events.extend(page.events);
    }
}

async fn category(store: &Sqlite, category: &str) -> Vec<Event> {
    let (mut events, mut from) = (Vec::new(), CategoryFrom::Oldest);
    loop {
        let read = CategoryRead { category: category.into(), from, limit: 1000 };
        let page = store.category_read(NAMESPACE, &read).await.expect("the category is read");
        if page.events.is_empty() {
            return events;
        }
        events.extend(page.events);
        from = CategoryFrom::After(page.cursor);
    }
}

/// What SQLite itself finds wrong with a file: `ok` if nothing.
pub(crate) fn integrity(path: &Path) -> String {
    let connection = rusqlite::Connection::open(path).expect("a connection");
    connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("the file is checked")
}

/// The path of a file beside the database.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Copies a database and its log, as they are, to a folder.
pub(crate) fn copy_to(path: &Path, folder: &Path) -> PathBuf {
    let copy = folder.join(path.file_name().expect("a name"));
    for suffix in ["", "-wal"] {
        if beside(path, suffix).exists() {
            fs::copy(beside(path, suffix), beside(&copy, suffix)).expect("a file is copied");
        }
    }
    copy
}

/// Everything in a folder, byte for byte.
pub(crate) fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).expect("the folder is read").map(|entry| entry.expect("an entry"));
    let files = entries.filter(|entry| entry.file_type().expect("its type").is_file());
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().expect("a name in UTF-8");
        (name, fs::read(entry.path()).expect("a file is read"))
    };
    files.map(read).collect()
}
