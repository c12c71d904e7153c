//! `statehold serve`: the store over HTTP, and a supervisor.

mod log;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;
use statehold::worker::Stopping;
use statehold::{Error, Result, Seconds, Statehold};
use statehold_server::{Config, Role as Part, Server, Tls};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry};

use crate::args;
use crate::process::Signals;
use crate::settings::env;
use crate::show::Show;
use crate::trouble::{self, Exit};

/// The arguments of `statehold serve`.
#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct Serve {
    /// Where to listen; beyond this machine only once there are tokens
    #[arg(long, value_name = "ADDRESS", env = env::LISTEN, hide_env_values = true, default_value = "127.0.0.1:7420")]
    listen: SocketAddr,
    /// What to do
    #[arg(long, value_enum, default_value_t = Role::All)]
    role: Role,
    /// A file with a token that an admin can use from the start
    #[arg(long, value_name = "FILE", env = env::BOOTSTRAP, hide_env_values = true)]
    bootstrap_token_file: Option<PathBuf>,
    /// The certificate chain in PEM, to speak TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The private key in PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// How many connections there may be at once
    #[arg(long, value_name = "COUNT", default_value = "10000", value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: u32,
    /// How many bytes a request may have
    #[arg(long, value_name = "BYTES", default_value = "33554432")]
    max_body: usize,
    /// How many requests a second each caller may send; any number if left out
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    rate_limit: Option<u32>,
    /// How long requests may go on after SIGTERM
    #[arg(long, value_name = "LENGTH", default_value = "30s", value_parser = args::seconds)]
    grace: Seconds,
    /// How the log is written, to standard error
    #[arg(long, value_enum, default_value_t = Log::Text)]
    log: Log,
}

/// What a server does.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Role {
    /// Answers requests
    Web,
    /// Supervises: sweeps what has run out of time
    Worker,
    /// Both
    All,
}

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Log {
    /// For people
    Text,
    /// One JSON object a line
    Json,
    /// Not at all
    None,
}

/// Serves until it is told to stop; then drains.
pub(crate) async fn run(hold: &Statehold, args: &Serve, show: &Show) -> Result<Exit> {
    #[cfg(feature = "otel")]
    let (export, spans) = statehold_server::otel::export()?.unzip();
    #[cfg(not(feature = "otel"))]
    let spans = None;
    let _log = observe(args.log, spans)?;
    allow_connections();
    let mut signals = Signals::listen()?;
    let server = Server::bind(hold, config(args)?).await?;
    let scheme = if args.tls_certificate.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}", server.address());
    show.answer(&json!({ "listening": url }), || format!("listening on {url}, reference at {url}/docs"))?;
    let stopping = Stopping::new();
    let told = stopping.clone();
    tokio::spawn(async move {
        signals.next().await;
        told.cancel();
    });
    let ran = server.run(stopping).await;
    #[cfg(feature = "otel")]
    if let Some(export) = export {
        export.end().await;
    }
    ran.map(|()| Exit::Success)
}

fn config(args: &Serve) -> Result<Config> {
    let read = |path: &Path| std::fs::read(path).map_err(|e| trouble::file(path, &e));
    let tls = match (&args.tls_certificate, &args.tls_key) {
        (Some(certificate), Some(key)) => Some(Tls { certificate: read(certificate)?, key: read(key)? }),
        _ => None,
    };
    let token = args.bootstrap_token_file.as_deref().map(read).transpose()?;
    let token = token.map(String::from_utf8).transpose();
    let token = token.map_err(|_| Error::invalid("bootstrap token", "is not text"))?;
    Ok(Config {
        role: match args.role {
            Role::Web => Part::Web,
            Role::Worker => Part::Worker,
            Role::All => Part::All,
        },
        tls,
        bootstrap_token: token.map(|token| token.trim().to_owned()),
        max_connections: args.max_connections as usize,
        max_body: args.max_body,
        rate: args.rate_limit,
        grace: Duration::from(args.grace),
        ..Config::new(args.listen)
    })
}

/// What sees what happens in requests.
type Seer<S> = Box<dyn Layer<S> + Send + Sync>;

/// Writes the log as long as what this answers is there, and sends spans if there is someone who does.
fn observe(kind: Log, spans: Option<Seer<Registry>>) -> Result<Option<log::Log>> {
    let started = (kind != Log::None).then(|| log::Log::to(std::io::stderr(), kind == Log::Json)).transpose();
    let log = started.map_err(|e| Error::unavailable("no thread can be started for the log").caused_by(e))?;
    if log.is_some() || spans.is_some() {
        let lines = log.as_ref().map(|log| lines(kind, log.lines()));
        // It can only have been set up before.
        let _ = tracing_subscriber::registry().with(spans).with(lines).try_init();
    }
    Ok(log)
}

fn lines<S>(kind: Log, log: log::Lines) -> Seer<S>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(log).with_target(false).with_ansi(false);
    if kind == Log::Json {
        lines.json().flatten_event(true).with_filter(LevelFilter::INFO).boxed()
    } else {
        lines.with_filter(LevelFilter::INFO).boxed()
    }
}

/// As many files may be open as the system allows at most: each connection is one.
fn allow_connections() {
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    // If it cannot be, there is room for fewer.
    let _ = setrlimit(Resource::Nofile, files);
}
