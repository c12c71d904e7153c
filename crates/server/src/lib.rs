//! Statehold over HTTP. The library does the work; here is who may ask for it, how it is asked, and how it is answered.
//!
//! The way of one request: `listen` accepts its connection; `route` finds its route, which was registered with a rule;
//! `asked` finds out who asks, judges whether it may, and reads what it sends; its handler in `routes` builds a batch
//! or asks the library; `problem` tells what went wrong. What changes anything goes through `Asked::apply`.
//!
//! ```no_run
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use statehold::Statehold;
//! use statehold_server::{Config, Server};
//!
//! let hold = Statehold::open("sqlite:statehold.db").await?;
//! let server = Server::bind(&hold, Config::new(([127, 0, 0, 1], 7420).into())).await?;
//! server.run(statehold::worker::Stopping::new()).await?;
//! # Ok::<(), statehold::Error>(())
//! # }).unwrap();
//! ```

pub mod access;
mod app;
mod asked;
mod counted;
mod listen;
mod live;
mod metrics;
mod observe;
mod openapi;
#[cfg(feature = "otel")]
pub mod otel;
mod patience;
mod problem;
mod route;
mod routes;

use std::net::SocketAddr;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use statehold::supervisor::Supervisor;
use statehold::worker::Stopping;
use statehold::{Error, Result, Statehold};
use tokio::net::TcpListener;

use app::App;
pub use app::{Config, Role, Tls};

/// A server that listens and has not answered anyone yet.
#[derive(Debug)]
pub struct Server {
    app: App,
    listener: TcpListener,
    address: SocketAddr,
    routes: Arc<route::Routes>,
}

impl Server {
    /// Listens. Beyond this machine only if tokens are needed.
    pub fn bind(hold: &Statehold, mut config: Config) -> BoxFuture<'_, Result<Self>> {
        Box::pin(async move {
            let tokens = access::tokens::Tokens::new(hold);
            if let Some(token) = &config.bootstrap_token {
                tokens.bootstrap(token).await?;
            }
            if !config.listen.ip().is_loopback() && !tokens.required().await? {
                let message =
                    format!("{} can be reached from elsewhere, and there are no tokens", config.listen);
                return Err(Error::invalid("listen", message).hint(
                    "make a token with `statehold token create --role admin`, or listen on 127.0.0.1",
                ));
            }
            let failed = |e: std::io::Error| {
                Error::unavailable(format!("cannot listen on {}: {e}", config.listen))
                    .hint("choose another address with --listen, or stop what has this one")
            };
            let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
            config.listen = listener.local_addr().map_err(failed)?;
            let address = config.listen;
            let listed: fn() -> Vec<route::Route> =
                if config.role == Role::Worker { routes::health } else { routes::all };
            let app = App::new(hold, config, listed)?;
            let routes = Arc::new(route::Routes::new(app.clone(), listed())?);
            Ok(Self { app, listener, address, routes })
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests, and supervises if that is its role, until it is told to stop. Then it drains.
    pub fn run(self, stopping: Stopping) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let supervisor = match self.app.config.role {
                Role::Web => None,
                Role::Worker | Role::All => {
                    let supervisor = Supervisor::new(&self.app.hold);
                    Some(tokio::spawn(supervisor.run(stopping.clone())))
                }
            };
            listen::serve(self.listener, &self.routes, &self.app, &stopping).await?;
            if let Some(supervisor) = supervisor {
                supervisor.await.map_err(|e| Error::unavailable(format!("the supervisor: {e}")))??;
            }
            Ok(())
        })
    }
}

/// The description of every route, OpenAPI 3.1 in JSON.
pub fn openapi() -> String {
    openapi::describe(&routes::all())
}

/// The table of routes and roles, in Markdown.
pub fn roles() -> String {
    route::table(&routes::all())
}
