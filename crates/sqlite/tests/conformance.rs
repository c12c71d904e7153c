//! The suite on SQLite files, one for each case.

use std::process::ExitCode;

use statehold_core::model::TaskId;
use statehold_sqlite::{Config, Sqlite};

fn main() -> ExitCode {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder for the databases");
    let path = folder.path().to_owned();
    statehold_conformance::run(move |clock| {
        let file = path.join(format!("{}.db", TaskId::generate()));
        async move { Sqlite::open(Config::new(file).with_clock(clock)).await.expect("the database opens") }
    })
}
