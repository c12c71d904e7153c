//! The suite on SQLite for what must last and Redis for what is short-lived, which here are all entries. An entry that
//! moves from one to the other is set anew, which the naive model knows nothing of: `split_postgres` has the property test.

use std::process::ExitCode;
use std::sync::Arc;

use statehold::split::{Parts, Split};
use statehold_conformance::redis;
use statehold_redis::Redis;
use statehold_sqlite::{Config, Sqlite};

fn main() -> ExitCode {
    redis::with_server(|| {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder for the databases");
        let path = folder.path().to_owned();
        statehold_conformance::run_cases(move |clock| {
            let file = Config::new(path.join(format!("{}.db", statehold::TaskId::generate())));
            async move {
                let durable = Sqlite::open(file.with_clock(clock.clone())).await.expect("the database opens");
                let config = statehold_redis::Config::from_url(&redis::fresh_url()).expect("a good URL");
                let ephemeral = Redis::open(config.with_clock(clock.clone())).await.expect("the store opens");
                let split = Split::on(Arc::new(durable), Arc::new(ephemeral)).await.expect("both are there");
                let parts = Parts { entries: vec![String::new()], ..Parts::default() };
                split.with_parts(parts).with_clock(clock)
            }
        })
    })
}
