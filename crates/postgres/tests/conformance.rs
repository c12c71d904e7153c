//! The suite on a PostgreSQL server, in a schema for each case.

mod common;

use std::process::ExitCode;

use statehold_conformance::postgres;
use statehold_postgres::Postgres;

fn main() -> ExitCode {
    postgres::with_server(|| {
        statehold_conformance::run(|clock| {
            let config = common::config().with_clock(clock);
            async move { Postgres::open(config).await.expect("the store opens") }
        })
    })
}
