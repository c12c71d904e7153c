//! The suite on a PostgreSQL server. Each case has a namespace of its own, so one schema is enough.

mod common;

use std::process::ExitCode;

use statehold_conformance::postgres;
use statehold_postgres::Postgres;

fn main() -> ExitCode {
    postgres::with_server(|| {
        statehold_conformance::run(|clock| {
            let config = common::config().with_schema("suite").with_clock(clock);
            async move { Postgres::open(config).await.expect("the store opens") }
        })
    })
}
