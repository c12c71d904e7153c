//! The same server on PostgreSQL: routes, live events, metrics, draining.

#[path = "server/examples.rs"]
mod examples;
#[path = "server/harness.rs"]
mod harness;
#[path = "server/live.rs"]
mod live;
#[path = "server/metrics.rs"]
mod metrics;
#[path = "server/routes.rs"]
mod routes;

use std::sync::{Arc, Mutex, PoisonError, Weak};

use harness::Store;
use statehold_conformance::postgres::Server;

/// The server that tests share; it is stopped with the last of those that use it.
static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());

/// A schema of a test's own.
fn store() -> Store {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let server = shared.upgrade().unwrap_or_else(|| Arc::new(Server::start()));
    *shared = Arc::downgrade(&server);
    let schema = statehold::TaskId::generate().to_string().replace('-', "_");
    Store::new(format!("{}?schema=test_{schema}", server.url()), server)
}
