//! The `statehold` command.

mod demo;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Demo => demo::run().await,
    }
}
