//! A storm of kills over workers on a file with a Redis server beside it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::process::ExitCode;

use common::storm::{self, worker};
use statehold_conformance::{named, process, redis};

fn main() -> ExitCode {
    let tests = named![no_task_is_lost_or_completed_twice_while_workers_are_killed];
    redis::with_server(|| process::run(tests, named![worker]))
}

fn no_task_is_lost_or_completed_twice_while_workers_are_killed() {
    let folder = common::folder();
    let file = folder.path().join("state.db");
    storm::no_task_is_lost_or_completed_twice(&format!("split:sqlite:{}|{}", file.display(), redis::url()));
}
