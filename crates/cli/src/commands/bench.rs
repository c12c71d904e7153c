//! `statehold bench`: what a store gives through Statehold, at its limit, and by hand.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use statehold::worker::Stopping;
use statehold::{Error, Result, Statehold, Store};
use statehold_bench::{Op, Options, Report};
use statehold_server::{Config, Role, Server};

/// The arguments of `statehold bench`.
#[derive(Args)]
pub(crate) struct Bench {
    /// What to measure: `sqlite:PATH`, `postgres://…`, `redis://…`, `memory:`, or two, `split:DURABLE|EPHEMERAL`
    ///
    /// A path that does not exist yet, or an empty database, is best: what is written stays there. The files or schemas
    /// of those it is compared with stand beside it while it runs.
    #[arg(long, value_name = "URL", value_parser = Store::parse)]
    store: Store,
    /// Which operations, separated by commas; all if left out
    #[arg(long, value_name = "OP", value_delimiter = ',')]
    op: Vec<Op>,
    /// With how many callers at once
    #[arg(long, value_name = "CALLERS", value_delimiter = ',', default_value = "1,16,64", value_parser = at_least_one)]
    concurrency: Vec<usize>,
    /// How often each is measured
    #[arg(long, default_value = "3", value_parser = at_least_one)]
    rounds: usize,
    /// For how long each time
    #[arg(long, default_value = "0.5", value_parser = some_seconds)]
    seconds: Duration,
    /// How many tasks, events and documents are there before
    ///
    /// Compare the latencies of a run with few and one with many: they should hardly differ.
    #[arg(long, value_name = "ROWS", default_value = "0")]
    present: u64,
    /// Gives the rivals the indexes of tasks and events that ours has, on PostgreSQL
    ///
    /// Without it they have those of keys and of ready tasks, and no order of categories, and no leases or owners.
    #[arg(long, conflicts_with = "server")]
    indexes: bool,
    /// Measures a server on the store instead, against the library
    ///
    /// `task.create` and `entry.get` one a request, and 100 creates a request. What is shown as ours is over HTTP, the
    /// limit is the library, and naive the same bytes sent by somebody who does no work.
    #[arg(long)]
    server: bool,
    /// How to show it
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Bars instead of the table
    #[arg(long, conflicts_with = "output")]
    plot: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    /// A table
    Text,
    /// For programs
    Json,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number >= 1).ok_or_else(|| "must be a number, at least 1".into())
}

fn some_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "must be a number of seconds from 0.01 to 600".into())
}

/// Measures, shows what was found, and fails only if it could not be measured.
pub(crate) fn run(bench: &Bench) -> ExitCode {
    match measure(bench).and_then(|report| show(bench, &report)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(bench: &Bench) -> Result<Report> {
    let ops = if bench.op.is_empty() { Op::ALL.to_vec() } else { bench.op.clone() };
    let options = Options {
        ops,
        concurrency: bench.concurrency.clone(),
        rounds: bench.rounds,
        slice: bench.seconds,
        present: bench.present,
        indexes: bench.indexes,
    };
    // Two stores are set against the rivals of the durable one.
    let measured = match bench.store.clone().durable() {
        Store::Memory | Store::Split { .. } => statehold_bench::Store::Memory,
        Store::Sqlite(config) => statehold_bench::Store::Sqlite(config.path),
        Store::Postgres(config) => statehold_bench::Store::Postgres(config),
        Store::Http { .. } => {
            return Err(Error::unsupported("a server is measured by its store")
                .hint("name the store itself, such as sqlite:bench.db"));
        }
        Store::Redis(config) => statehold_bench::Store::Redis(config),
    };
    if bench.indexes && !matches!(measured, statehold_bench::Store::Postgres(_)) {
        return Err(Error::unsupported("`--indexes` is about PostgreSQL")
            .hint("leave it out, or measure a `postgres://` store"));
    }
    statehold_bench::runtime()?.block_on(async {
        let backend = bench.store.clone().open().await?;
        if bench.server {
            let config = Config { role: Role::Web, ..Config::new(([127, 0, 0, 1], 0).into()) };
            let server = Server::bind(&Statehold::on(Arc::clone(&backend)), config).await?;
            let address = server.address().to_string();
            let serving = tokio::spawn(server.run(Stopping::new()));
            let tell = |line: &str| eprintln!("{line}");
            let report = statehold_bench::run_server(backend, &address, &measured, &options, tell).await;
            serving.abort();
            return report;
        }
        statehold_bench::run(backend, &measured, &options, |line| eprintln!("{line}")).await
    })
}

fn show(bench: &Bench, report: &Report) -> Result<()> {
    let text = match bench.output {
        _ if bench.plot => report.plot(),
        Output::Text => report.table(),
        Output::Json => report.json()? + "\n",
    };
    // A reader that has seen enough is no reason to fail.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}
