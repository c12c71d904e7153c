//! Every operation with few and with many tasks, events and documents present.

use std::sync::Arc;
use std::time::Duration;

use statehold_bench::{Op, Options, Report, Store};
use statehold_postgres::{Config, Postgres};

use super::Anything;

const FEW: u64 = 1000;
const MANY: u64 = 1_000_000;

pub(super) async fn measure(url: &str) -> Anything<()> {
    let few = run(url, FEW).await?;
    let many = run(url, MANY).await?;
    println!("{:<20} {:>10} {:>10} {:>7} {:>12}", "p50 µs, one caller", FEW, MANY, "times", "limit, times");
    for (few, many) in few.results.iter().zip(&many.results) {
        let limit = few.limit.zip(many.limit).map_or(0.0, |(few, many)| many.p50_us / few.p50_us);
        let (name, few, many) = (few.op, few.ours.p50_us, many.ours.p50_us);
        println!("{name:<20} {few:>10.0} {many:>10.0} {:>7.2} {limit:>12.2}", many / few);
    }
    Ok(())
}

/// The limit has nothing present either time: it tells how much the machine itself changed.
async fn run(url: &str, present: u64) -> Anything<Report> {
    let config = Config::from_url(url)?;
    let options = Options {
        ops: Op::ALL.to_vec(),
        concurrency: vec![1],
        rounds: 3,
        slice: Duration::from_millis(500),
        present,
        ..Options::default()
    };
    let backend = Arc::new(Postgres::open(config.clone()).await?);
    let store = Store::Postgres(Box::new(config));
    Ok(statehold_bench::run(backend, &store, &options, |line| eprintln!("{line}")).await?)
}
