//! The suite on a Redis server, with a prefix for each case.

mod server;

use std::process::ExitCode;

use statehold_redis::Redis;

fn main() -> ExitCode {
    server::with_server(|| {
        statehold_conformance::run(|clock| {
            let config = server::config().with_clock(clock);
            async move { Redis::open(config).await.expect("the store opens") }
        })
    })
}
