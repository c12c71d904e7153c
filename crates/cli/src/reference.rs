//! `statehold reference`: the help of every command, as a page of the book.

use std::fmt::Write as _;

use clap::{Arg, Command};

/// What stands before the commands.
const HEAD: &str = "\
# Command line reference

Made from the command's own help by `cargo run -- reference > docs/cli.md`; a test compares them.

Lengths of time are written `90`, `90s`, `5m`, `2h` or `1d`; times as in RFC 3339 or, from now, `+5m`. Where JSON is
wanted, `@FILE` reads a file and `-` standard input. Answers go to standard output, everything else to standard error.
With `-o json` an answer is one JSON value; lists and streams of events are one value a line.
";

/// The page `docs/cli.md`.
pub(crate) fn page(all: Command) -> String {
    let mut all = all.term_width(100);
    all.build();
    let mut page = HEAD.to_owned();
    if let Some(common) = all.find_subcommand("health") {
        section(&mut page, "Options of every command on a store", &options(common));
    }
    add(&mut page, &all);
    page
}

/// Adds a command, then those below it.
fn add(page: &mut String, command: &Command) {
    section(page, command.get_bin_name().unwrap_or(command.get_name()), &help(command));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
    {
        add(page, below);
    }
}

fn section(page: &mut String, title: &str, text: &str) {
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    let _ = write!(page, "\n## {title}\n\n```text\n{}\n```\n", lines.join("\n").trim());
}

/// Everything that the help says, without the options that every command has.
fn help(command: &Command) -> String {
    let about = command.get_long_about().or(command.get_about()).cloned().unwrap_or_default();
    let after = command.get_after_long_help().or(command.get_after_help()).cloned().unwrap_or_default();
    let command = command.clone().about(about).after_help(after);
    command
        .mut_args(|arg| if arg.is_global_set() { arg.hide(true) } else { without_help(arg) })
        .term_width(100)
        .render_help()
        .to_string()
}

/// The options of a command that has no others.
fn options(command: &Command) -> String {
    let command = command.clone().help_template("{all-args}");
    command.mut_args(without_help).term_width(100).render_help().to_string()
}

/// That every command can be asked for its help need not be said each time.
fn without_help(arg: Arg) -> Arg {
    if arg.get_id() == "help" { arg.hide(true) } else { arg }
}
