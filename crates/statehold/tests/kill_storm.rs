//! A storm of kills over workers, on each store that several processes can have open.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::path::Path;
use std::process::ExitCode;

use common::storm::{no_task_is_lost_or_completed_twice, worker};
use statehold_conformance::{named, postgres, process, redis};

fn main() -> ExitCode {
    let tests = named![on_postgres, on_redis, on_a_file, on_a_file_and_redis];
    postgres::with_server(|| redis::with_server(|| process::run(tests, named![worker])))
}

fn on_postgres() {
    no_task_is_lost_or_completed_twice(&postgres::url());
}

fn on_redis() {
    no_task_is_lost_or_completed_twice(&redis::fresh_url());
}

fn on_a_file() {
    let folder = common::folder();
    no_task_is_lost_or_completed_twice(&file_in(folder.path()));
}

fn on_a_file_and_redis() {
    let folder = common::folder();
    no_task_is_lost_or_completed_twice(&format!("split:{}|{}", file_in(folder.path()), redis::fresh_url()));
}

fn file_in(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("state.db").display())
}
