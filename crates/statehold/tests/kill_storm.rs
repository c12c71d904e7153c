//! A storm of kills over workers on one file.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::process::ExitCode;

use common::storm::{self, worker};
use statehold_conformance::{named, process};

fn main() -> ExitCode {
    process::run(named![no_task_is_lost_or_completed_twice_while_workers_are_killed], named![worker])
}

fn no_task_is_lost_or_completed_twice_while_workers_are_killed() {
    let folder = common::folder();
    storm::no_task_is_lost_or_completed_twice(&format!(
        "sqlite:{}",
        folder.path().join("state.db").display()
    ));
}
