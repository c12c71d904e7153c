//! The suite on one prefix that two processes have open.

use std::process::ExitCode;

use statehold_conformance::redis;
use statehold_redis::{Config, Redis};

fn main() -> ExitCode {
    redis::with_server(|| {
        statehold_conformance::run_in_processes(2, |folder, clock| {
            // The folder is the same for both and new for each store, and so is the prefix.
            let words = folder.iter().rev().take(2).map(|part| part.to_string_lossy().into_owned());
            let prefix = words.collect::<Vec<_>>().join("-").replace("statehold-conformance-", "");
            let config = Config::from_url(&redis::url()).expect("a good URL");
            let config = config.with_clock(clock).with_prefix(prefix);
            async move { Redis::open(config).await.expect("the store opens") }
        })
    })
}
