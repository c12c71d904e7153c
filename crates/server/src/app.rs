//! What every request needs: the store, who may ask, what is counted, and whether the server is about to stop.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use statehold::Statehold;
use statehold::worker::Stopping;

use crate::access::{Callers, Limiter};
use crate::counted::Counted;
use crate::metrics::Metrics;
use crate::openapi;
use crate::route::Route;

/// How the server is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens.
    pub listen: SocketAddr,
    /// What it does.
    pub role: Role,
    /// The certificate and key in PEM, to speak TLS.
    pub tls: Option<Tls>,
    /// A token that an admin can use from the start.
    pub bootstrap_token: Option<String>,
    /// How many connections there may be at once.
    pub max_connections: usize,
    /// How many bytes a request may have.
    pub max_body: usize,
    /// How many requests a second a caller may send; any number if none.
    pub rate: Option<u32>,
    /// How long requests may go on after the server was told to stop.
    pub grace: Duration,
    /// How long a client may take to read what was written, or to send what it has begun to.
    pub patience: Duration,
}

/// What a server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Answers requests.
    Web,
    /// Supervises, and tells how it is.
    Worker,
    /// Both.
    All,
}

/// How to speak TLS.
#[derive(Clone)]
pub struct Tls {
    /// The certificates, PEM.
    pub certificate: Vec<u8>,
    /// The private key, PEM.
    pub key: Vec<u8>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Config {
    /// A server that does everything, on an address.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            role: Role::All,
            tls: None,
            bootstrap_token: None,
            max_connections: 10_000,
            max_body: 32 << 20,
            rate: None,
            grace: Duration::from_secs(30),
            patience: Duration::from_secs(30),
        }
    }
}

/// What every request needs. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct App(Arc<Inner>);

/// See [`App`].
#[derive(Debug)]
pub(crate) struct Inner {
    /// The store, at no particular namespace, with what it is asked counted.
    pub(crate) hold: Statehold,
    pub(crate) config: Config,
    pub(crate) callers: Callers,
    pub(crate) limiter: Limiter,
    pub(crate) metrics: Arc<Metrics>,
    /// Set when the server is about to stop: nobody is kept waiting from then on.
    pub(crate) draining: Stopping,
    /// The name of this server's stream of audited acts.
    pub(crate) replica: String,
    /// Its routes.
    routes: fn() -> Vec<Route>,
    /// The description of them, from when someone wants to see it.
    openapi: OnceLock<String>,
}

impl std::ops::Deref for App {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl App {
    pub(crate) fn new(
        hold: &Statehold,
        config: Config,
        routes: fn() -> Vec<Route>,
    ) -> statehold::Result<Self> {
        let machine = statehold::default_owner();
        let machine = machine.split('/').next().unwrap_or_default();
        let metrics = Arc::new(Metrics::new()?);
        let counted = Counted { store: Arc::clone(hold.backend()), metrics: Arc::clone(&metrics) };
        let counted = Statehold::on(Arc::new(counted)).at(hold.namespace());
        let hold = match hold.batch().actor {
            Some(actor) => counted.acting_as(&actor),
            None => counted,
        };
        Ok(Self(Arc::new(Inner {
            callers: Callers::new(&hold, config.listen.ip().is_loopback()),
            hold,
            limiter: Limiter::new(config.rate),
            metrics,
            draining: Stopping::new(),
            replica: format!("{machine}:{}", config.listen.port()),
            routes,
            openapi: OnceLock::new(),
            config,
        })))
    }

    /// The description of all routes.
    pub(crate) fn openapi(&self) -> &str {
        self.openapi.get_or_init(|| openapi::describe(&(self.routes)()))
    }
}
