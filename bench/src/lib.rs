//! Statehold's benchmark. It measures each operation three times, in turns, in one process, on one kind of store:
//! through the library (*ours*), by the best technique known to us with hard-coded statements (*limit*), and as a
//! careful engineer writes it first (*naive*). The ratios are what counts.
//!
//! ```no_run
//! use std::sync::Arc;
//! use statehold_bench::{Options, Store};
//! use statehold_core::{Clock, memory::Memory};
//!
//! # fn main() -> statehold_core::Result<()> {
//! let runtime = statehold_bench::runtime()?;
//! let backend = Arc::new(Memory::new(Clock::real()));
//! let options = Options::default();
//! let bench = statehold_bench::run(backend, &Store::Memory, &options, |line| eprintln!("{line}"));
//! println!("{}", runtime.block_on(bench)?.table());
//! # Ok(())
//! # }
//! ```
//!
//! A store gets rivals by one folder with two `Engine`s, beside `sqlite`, `postgres` and `redis`, and a line in `store.rs`.

mod contender;
mod http;
mod machine;
mod ops;
mod ours;
mod postgres;
mod redis;
mod report;
mod rival;
mod run;
mod sqlite;
mod stats;
mod store;

use std::sync::Arc;

use statehold_core::{Backend, Error, Result};
use tokio::runtime::{Builder, Runtime};

pub use contender::{Contender, Receipt, Slice};
pub use machine::Machine;
pub use ops::Op;
pub use report::{Report, Row, Side};
pub use run::Options;
pub use store::Store;

use run::Lane;

/// The runtime on which callers run: two workers, whatever the machine has, so that figures can be compared. Open the
/// backend on it too.
pub fn runtime() -> Result<Runtime> {
    let built = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    built.map_err(|e| Error::unavailable("the threads of the benchmark cannot be started").caused_by(e))
}

/// Measures a backend, and what can be set against it on the same kind of store, telling `progress` what it found
/// line by line. What it wrote to the backend stays there, in a namespace of its own.
pub async fn run(
    backend: Arc<dyn Backend>,
    store: &Store,
    options: &Options,
    progress: impl Fn(&str) + Send + Sync,
) -> Result<Report> {
    let ours = ours::Ours::new(backend);
    ours.fill(options.present, &progress).await?;
    let mut lanes = vec![Lane::new("ours", Arc::new(ours))];
    let rivals = store.rivals(options.indexes).await?;
    if let Some(rivals) = &rivals {
        lanes.push(Lane::new("limit", Arc::clone(&rivals.limit)));
        lanes.push(Lane::new("naive", Arc::clone(&rivals.naive)));
    }
    let mut report = Report::new(store, Machine::look(store));
    let total = options.ops.len() * options.concurrency.len();
    for op in &options.ops {
        for callers in &options.concurrency {
            let mut row = run::measure(&mut lanes, *op, *callers, options).await?;
            row.missed = report::missed(store, &row);
            report.results.push(row);
            if let Some(row) = report.results.last() {
                progress(&format!("[{}/{total}] {}", report.results.len(), row.summary()));
            }
        }
    }
    Ok(report)
}

/// Measures a server that listens at `address` on the store of `backend`, against the library on that store: in the
/// report *ours* is over HTTP, the *limit* is the library, and *naive* the same bytes from somebody who does no work.
pub async fn run_server(
    backend: Arc<dyn Backend>,
    address: &str,
    store: &Store,
    options: &Options,
    progress: impl Fn(&str) + Send + Sync,
) -> Result<Report> {
    let ground = http::Ground::new(backend).await?;
    let mut report = Report::new(store, Machine::look(store));
    for ask in http::Ask::ALL.into_iter().filter(|ask| options.ops.contains(&ask.op())) {
        let (served, direct) = (Arc::clone(&ground), Arc::clone(&ground));
        let served = http::Served { ground: served, ask, address: address.to_owned() };
        let direct = http::Direct { ground: direct, ask };
        let mut lanes =
            vec![Lane::new("over HTTP", Arc::new(served)), Lane::new("library", Arc::new(direct))];
        if ask == http::Ask::Get {
            lanes.push(Lane::new("exchange", Arc::new(http::Parrot::start(&ground, address).await?)));
        }
        for callers in &options.concurrency {
            let row = run::measure(&mut lanes, ask.op(), *callers, options).await?;
            let missed = Vec::from_iter(ask.missed(&row));
            let row = Row { op: ask.name(), missed, ..row };
            progress(&row.summary());
            report.results.push(row);
        }
    }
    Ok(report)
}
