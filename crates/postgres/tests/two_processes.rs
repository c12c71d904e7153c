//! The suite on one schema that two processes have open.

mod common;

use std::process::ExitCode;

use statehold_conformance::postgres;
use statehold_postgres::Postgres;

fn main() -> ExitCode {
    postgres::with_server(|| {
        statehold_conformance::run_in_processes(2, |_folder, clock| {
            let config = common::config().with_schema("suite").with_clock(clock);
            async move { Postgres::open(config).await.expect("the store opens") }
        })
    })
}
