//! The suite on PostgreSQL for what must last and Redis for what is short-lived.

use std::process::ExitCode;
use std::sync::Arc;

use statehold::split::Split;
use statehold_conformance::{postgres, redis};
use statehold_postgres::{Config, Postgres};
use statehold_redis::Redis;

fn main() -> ExitCode {
    redis::with_server(|| {
        postgres::with_server(|| {
            statehold_conformance::run(|clock| async move {
                let config =
                    Config::from_url(&postgres::url()).expect("a good URL").with_clock(clock.clone());
                let durable = Postgres::open(config).await.expect("the store opens");
                let config = statehold_redis::Config::from_url(&redis::fresh_url()).expect("a good URL");
                let ephemeral = Redis::open(config.with_clock(clock.clone())).await.expect("the store opens");
                let split = Split::on(Arc::new(durable), Arc::new(ephemeral)).await.expect("both are there");
                split.with_clock(clock)
            })
        })
    })
}
