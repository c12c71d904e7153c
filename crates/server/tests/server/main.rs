//! A real server on a loopback port, asked as any client would.

mod access;
mod examples;
mod harness;
mod live;
mod metrics;
mod reference;
mod routes;

use harness::Store;

/// A file of a test's own.
fn store() -> Store {
    let folder = tempfile::tempdir().expect("a folder");
    Store::new(format!("sqlite:{}", folder.path().join("state.db").display()), folder)
}
