//! The suite on a cluster of three servers, with a prefix for each case.

use std::process::ExitCode;

use statehold_conformance::redis;
use statehold_redis::{Config, Redis};

fn main() -> ExitCode {
    redis::with_cluster(|| {
        statehold_conformance::run(|clock| async move {
            let config = Config::from_url(&redis::fresh_url()).expect("a good URL").with_clock(clock);
            Redis::open(config).await.expect("the store opens")
        })
    })
}
