//! What the tests share: stores to run a case on, a store that loses answers.

#![allow(dead_code, reason = "each target uses a part of it")]

pub(crate) mod flaky;
pub(crate) mod storm;

use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use serde::Serialize;
use statehold::core::dump::Record;
use statehold::core::memory::Memory;
use statehold::core::model::Event;
use statehold::core::query::{Page, ReadFrom, TaskList};
use statehold::{Clock, Json, Lease, Result, Statehold, StreamName, Task};
use statehold_sqlite::{Config, Sqlite};

/// How long anything may take. It only keeps a broken library from hanging.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs something to its end, on two threads.
pub(crate) fn block_on<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(soon(work))
}

/// Waits for something that must come.
pub(crate) async fn soon<F: Future>(work: F) -> F::Output {
    tokio::time::timeout(PATIENCE, work).await.expect("it comes before patience ends")
}

/// Begins to wait, lets it sleep, does something, and answers what the wait brought.
pub(crate) async fn while_waiting<W, T>(wait: W, act: impl Future<Output = Result<T>>) -> W::Output
where
    W: Future + Send + 'static,
    W::Output: Send,
{
    let waiting = tokio::spawn(wait);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished(), "there is nothing yet");
    act.await.expect("it is done");
    soon(waiting).await.unwrap()
}

/// Runs a case on a store in memory and on a file, each with a clock that the case can move on.
pub(crate) fn on_every_store(case: impl AsyncFn(Statehold, Clock)) {
    block_on(async {
        eprintln!("memory:");
        let clock = Clock::real();
        case(Statehold::on(Arc::new(Memory::new(clock.clone()))), clock).await;
    });
    block_on(async {
        eprintln!("sqlite:");
        let (folder, clock) = (folder(), Clock::real());
        let config = Config::new(folder.path().join("state.db")).with_clock(clock.clone());
        let store = Sqlite::open(config).await.expect("the file opens");
        case(Statehold::on(Arc::new(store)), clock).await;
    });
}

/// Opens a file that must open.
pub(crate) async fn open(path: &Path) -> Statehold {
    open_url(&format!("sqlite:{}", path.display())).await
}

/// Opens a store that must open.
pub(crate) async fn open_url(url: &str) -> Statehold {
    Statehold::open(url).await.unwrap_or_else(|e| panic!("{url} must open: {e}"))
}

/// A folder of its own.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// A number that looks random, and differs from call to call.
pub(crate) fn random(below: u64) -> u64 {
    RandomState::new().hash_one(0) % below
}

/// A value as JSON.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> Json {
    Json::of(value).expect("valid JSON")
}

/// The name of a stream from its text.
pub(crate) fn stream(name: &str) -> StreamName {
    name.parse().expect("a stream's name")
}

/// The one task that a claim of the queue `default` gives.
pub(crate) async fn claim(hold: &Statehold, owner: &str) -> Lease {
    let mut leases = hold.tasks().claim(&["default"], owner, 1).await.expect("a claim is answered");
    leases.pop().expect("there is a task to claim")
}

/// Everything that is in the namespace.
pub(crate) async fn everything(hold: &Statehold) -> Vec<Record> {
    let records = hold.backend().dump(hold.namespace()).await.expect("a dump begins");
    records.try_collect().await.expect("a dump ends")
}

/// All events of a stream.
pub(crate) async fn events(hold: &Statehold, name: &StreamName) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    loop {
        let after = events.last().map_or(0, |event| event.seq);
        let page = hold.streams().read(name, ReadFrom::After(after), 1000).await.expect("the stream is read");
        if page.events.is_empty() {
            return events;
        }
        events.extend(page.events);
    }
}

/// The types of the events of a task.
pub(crate) async fn story(hold: &Statehold, task: &Task) -> Vec<String> {
    let events = events(hold, &StreamName::of_task(task.id)).await;
    events.into_iter().map(|event| event.kind).collect()
}

/// All tasks.
pub(crate) async fn tasks(hold: &Statehold) -> Vec<Task> {
    let (mut tasks, mut cursor) = (Vec::new(), None);
    loop {
        let list = TaskList { limit: 1000, cursor, ..TaskList::default() };
        let Page { items, next_cursor } = hold.tasks().list(&list).await.expect("tasks are listed");
        tasks.extend(items);
        cursor = next_cursor;
        if cursor.is_none() {
            return tasks;
        }
    }
}

/// The code of an error that must be one.
pub(crate) fn code<T: std::fmt::Debug>(result: Result<T>) -> &'static str {
    result.expect_err("it is refused").code()
}
