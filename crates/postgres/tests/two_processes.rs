//! The suite on one schema that two processes have open.

mod common;

use std::process::ExitCode;

use statehold_conformance::postgres;
use statehold_postgres::Postgres;

fn main() -> ExitCode {
    postgres::with_server(|| {
        statehold_conformance::run_in_processes(2, |folder, clock| {
            // The folder is the same for both and new for each store, and so is the schema.
            let words = folder.iter().rev().take(2).map(|part| part.to_string_lossy().replace('-', "_"));
            let schema = words.collect::<Vec<_>>().join("_").replace("statehold_conformance_", "");
            let config = common::config().with_clock(clock).with_schema(schema);
            async move { Postgres::open(config).await.expect("the store opens") }
        })
    })
}
