//! `statehold man` and `statehold completions`: what a system wants to know of the command.

use std::path::PathBuf;

use clap::{Args, Command};
use statehold::{Error, Result};

use crate::show::Show;
use crate::trouble::{self, Exit};

/// The arguments of `statehold man`.
#[derive(Args, Debug)]
pub(crate) struct Man {
    /// The page of which command, such as: task create
    command: Vec<String>,
    /// Writes all pages into a folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    to: Option<PathBuf>,
}

/// Writes a page, or all.
pub(crate) fn man(mut all: Command, args: &Man, show: &Show) -> Result<Exit> {
    if let Some(folder) = &args.to {
        std::fs::create_dir_all(folder).map_err(|e| trouble::file(folder, &e))?;
        clap_mangen::generate_to(all, folder).map_err(|e| trouble::file(folder, &e))?;
        show.line(format_args!("the pages are in {}", folder.display()))?;
        return Ok(Exit::Success);
    }
    all.build();
    let mut command = &all;
    for name in &args.command {
        let unknown =
            || Error::not_found("command", args.command.join(" ")).hint("statehold help lists the commands");
        command = command.find_subcommand(name).ok_or_else(unknown)?;
    }
    let mut page = Vec::new();
    let failed = |e: std::io::Error| Error::unavailable(format!("the page cannot be written: {e}"));
    clap_mangen::Man::new(command.clone()).render(&mut page).map_err(failed)?;
    show.bytes(&page)?;
    Ok(Exit::Success)
}

/// The arguments of `statehold completions`.
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// For which shell
    shell: clap_complete::Shell,
}

/// Writes the script that completes arguments.
pub(crate) fn completions(mut all: Command, args: &Completions, show: &Show) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut all, "statehold", &mut script);
    show.bytes(&script)?;
    Ok(Exit::Success)
}
