//! The suite through several real processes that have one store open.
//!
//! The test program starts itself again, as many times as asked, and sends every call of a case to the next of
//! those processes. So a store is judged by what one process sees of another's changes, and a case that races a
//! hundred callers races them from different processes.
//!
//! - `calls.rs` lists the calls of a backend once, and makes of them a [`Remote`] in this process, a [`Several`]
//!   over many, and the answers in the other.
//! - `process.rs` is this side of the pipe, `serve.rs` the other, `wire.rs` what goes through it: a line of JSON
//!   for each request, answer and wake.
//!
//! Processes are started once and open a new store for each case.

#![allow(clippy::missing_panics_doc, reason = "what panics here is a case that fails")]

mod calls;
mod process;
mod serve;
mod wire;

use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::future::join_all;
use statehold_core::model::TaskId;
use statehold_core::{Backend, Clock};

pub use process::{Folder, Process, Remote};
use serve::{OpenAt, serve};

/// The environment variable that tells a test program to serve instead of testing.
pub const SERVE_VARIABLE: &str = "STATEHOLD_CONFORMANCE_SERVE";

/// Runs all cases as tests of a store that so many processes have open; for a test target without a harness.
/// `open` is called in each of them, at once, with a folder that is the same for all and new for each store.
pub fn run_in_processes<F, B>(
    processes: usize,
    open: impl Fn(PathBuf, Clock) -> F + Send + Sync + 'static,
) -> ExitCode
where
    F: Future<Output = B> + Send + 'static,
    B: Backend,
{
    if std::env::var_os(SERVE_VARIABLE).is_some() {
        let open: OpenAt = Arc::new(move |folder, clock| {
            let opening = open(folder, clock);
            Box::pin(async move { Arc::new(opening.await) as Arc<dyn Backend> })
        });
        return serve(&open);
    }
    let crew = Arc::new(Crew::new(processes));
    crate::run(move |clock| {
        let crew = Arc::clone(&crew);
        async move { crew.open(clock).await }
    })
}

/// The processes of a run and the folder of their stores, which the first case starts.
#[derive(Debug)]
struct Crew {
    size: usize,
    started: OnceLock<(Vec<Arc<Process>>, Folder)>,
    stores: AtomicUsize,
}

impl Crew {
    fn new(size: usize) -> Self {
        Self { size, started: OnceLock::new(), stores: AtomicUsize::new(0) }
    }

    fn start(&self) -> (Vec<Arc<Process>>, Folder) {
        let name = format!("statehold-conformance-{}", TaskId::generate());
        let folder = Folder::create(std::env::temp_dir().join(name));
        let start = |number| Arc::new(Process::start(folder.path().join(format!("stderr-{number}"))));
        ((0..self.size).map(start).collect(), folder)
    }

    async fn open(&self, clock: Clock) -> Several<Remote> {
        let (processes, folder) = self.started.get_or_init(|| self.start());
        let store = format!("store-{}", self.stores.fetch_add(1, Ordering::Relaxed));
        let folder = Arc::new(Folder::create(folder.path().join(store)));
        let open = |process| Remote::open(Arc::clone(process), Arc::clone(&folder), clock.clone());
        Several::new(join_all(processes.iter().map(open)).await)
    }
}

/// A store that several backends have open: each call goes to the next of them.
#[derive(Debug)]
pub struct Several<B> {
    backends: Vec<B>,
    turn: AtomicUsize,
}

impl<B> Several<B> {
    /// The store that all these backends have open.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(backends: Vec<B>) -> Self {
        assert!(!backends.is_empty(), "a store that nobody has open");
        Self { backends, turn: AtomicUsize::new(0) }
    }

    /// The next backend. Each round begins one further, so that a caller who writes and reads by turns does both
    /// everywhere.
    fn next(&self) -> &B {
        let (turn, count) = (self.turn.fetch_add(1, Ordering::Relaxed), self.backends.len());
        &self.backends[(turn + turn / count) % count]
    }
}
