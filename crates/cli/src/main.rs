//! The `statehold` command.

mod commands;
mod demo;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Requests are many small pieces of memory that one thread makes and another lets go of; the system's allocator
/// takes a tenth of the writer's time for them.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

use commands::bench::{self, Bench};
use commands::doctor::{self, Doctor};

/// The state layer under agent orchestration.
#[derive(Parser)]
#[command(name = "statehold", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Shows on a store in memory what Statehold is for
    ///
    /// A webhook that arrives twice makes one task, a stalled worker's task is taken over, and its late writes
    /// are refused. Exits with 0 if all of it held.
    Demo,
    /// Measures a store through Statehold, at its limit, and by hand
    ///
    /// Each operation is done in turns through Statehold (ours), by the best technique known with hard-coded
    /// statements (limit), and as one writes it first (naive). The ratios are what counts; `!` marks those that miss
    /// their target.
    Bench(Bench),
    /// Tells whether a store is sound
    ///
    /// Examines every page and compares what the rows say of each other; changes nothing unless told to recover.
    Doctor(Doctor),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Demo => demonstrate(),
        Command::Bench(args) => bench::run(&args),
        Command::Doctor(args) => examine(&args),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn examine(args: &Doctor) -> ExitCode {
    doctor::run(args).await
}

#[tokio::main(flavor = "current_thread")]
async fn demonstrate() -> ExitCode {
    demo::run().await
}
