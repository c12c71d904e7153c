//! What PostgreSQL must stand in the long run: `cargo run --release -p statehold-bench --example postgres -- WHAT [URL]`.
//!
//! | WHAT | what is measured |
//! |---|---|
//! | `live` | how long an event takes from its commit to who subscribes, here and in another process, under load |
//! | `cycles` | claims at the beginning and at the end of 300,000 tasks, with autovacuum on |
//! | `growth` | every operation with 1,000 and with 1,000,000 tasks, events and documents present |
//! | `crowd` | claims beside 100,000 blocked, future and finished tasks each |
//! | `renewals` | what a heartbeat costs: index updates and log, with small and large inputs |
//!
//! Without a URL a server is started for it, in a folder of its own. What is written to a URL stays there.

mod crowd;
mod cycles;
mod growth;
mod live;
mod renewals;

use std::time::{Duration, Instant};

use statehold::{Statehold, TaskCreate};
use statehold_conformance::postgres::Server;
use statehold_postgres::Config;

/// Whatever went wrong ends the measurement.
type Anything<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Anything<()> {
    let mut arguments = std::env::args().skip(1);
    let (what, url) = (arguments.next().unwrap_or_default(), arguments.next());
    let server = if url.is_none() { Some(Server::start()) } else { None };
    let url = url.or_else(|| server.as_ref().map(Server::url)).unwrap_or_default();
    let runtime = statehold_bench::runtime()?;
    runtime.block_on(async {
        match what.as_str() {
            "live" => live::measure(&url).await,
            live::LISTEN => live::listen(&url).await,
            "cycles" => cycles::measure(&url).await,
            "growth" => growth::measure(&url).await,
            "crowd" => crowd::measure(&url).await,
            "renewals" => renewals::measure(&url).await,
            _ => Err("say what: live, cycles, growth, crowd or renewals".into()),
        }
    })
}

/// The first number that a statement answers.
async fn number(url: &str, sql: &str) -> Anything<i64> {
    let client = Config::from_url(url)?.client().await?;
    Ok(client.query_one(sql, &[]).await?.get(0))
}

/// The length below which so many of a thousand lie, in microseconds.
fn per_mille(lengths: &mut [Duration], part: usize) -> u128 {
    lengths.sort_unstable();
    let at = (lengths.len() * part / 1000).min(lengths.len().saturating_sub(1));
    lengths.get(at).map_or(0, Duration::as_micros)
}

/// Makes a task, claims one and completes it; answers how long the claim took.
async fn cycle(hold: &Statehold, queue: &str, owner: &str) -> Anything<Duration> {
    hold.tasks().create(TaskCreate::new("answer").queue(queue)).await?;
    let asked = Instant::now();
    let claimed = hold.tasks().claim(&[queue], owner, 1).await?;
    let took = asked.elapsed();
    let lease = claimed.first().ok_or("a ready task is not there")?;
    lease.complete(None).await?;
    Ok(took)
}
