//! How the command ends: codes that mean something, and errors that say what to do.

use std::io::Write as _;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use statehold::{Error, ErrorKind};

/// What the command ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All is well.
    Success,
    /// The store did not do it: it cannot be reached, or is damaged.
    Failure,
    /// What was asked makes no sense.
    Usage,
    /// What it is about is not there.
    NotFound,
    /// What is there does not allow it: held by another, changed meanwhile, in another status.
    Refused,
    /// The lease, lock or delivery is no longer the caller's.
    Fenced,
    /// What was waited for did not come in time.
    TimedOut,
    /// The task that was waited for ended badly.
    TaskFailed,
    /// As a program ended, or as the caller chose.
    Code(u8),
}

/// The codes, for the help.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  all is well
  1  the store did not do it: it cannot be reached, or is damaged
  2  what was asked makes no sense
  3  what it is about is not there
  4  what is there does not allow it: held by another, changed meanwhile, in another status
  5  the lease, lock or delivery is no longer the caller's
  6  what was waited for did not come in time
  7  the task that was waited for failed or was cancelled";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

impl Exit {
    /// The code of it.
    fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Refused => 4,
            Self::Fenced => 5,
            Self::TimedOut => 6,
            Self::TaskFailed => 7,
            Self::Code(code) => code,
        }
    }

    /// What an error ends with.
    pub(crate) fn of(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::Invalid { .. } | ErrorKind::TooLarge | ErrorKind::Unsupported => Self::Usage,
            ErrorKind::Conflict
            | ErrorKind::Held { .. }
            | ErrorKind::InvalidTransition { .. }
            | ErrorKind::PreconditionFailed { .. }
            | ErrorKind::Compacted { .. } => Self::Refused,
            ErrorKind::Fenced { .. } => Self::Fenced,
            ErrorKind::Timeout => Self::TimedOut,
            _ => Self::Failure,
        }
    }
}

/// What was waited for did not come in time.
pub(crate) fn too_late(message: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::new(ErrorKind::Timeout, message).hint(hint)
}

/// A file that cannot be read or written.
pub(crate) fn file(path: &std::path::Path, e: &std::io::Error) -> Error {
    let hint = match e.kind() {
        std::io::ErrorKind::AlreadyExists => "remove it, or choose another name",
        _ => "check the path and its permissions",
    };
    Error::invalid("", format!("`{}`: {e}", path.display())).hint(hint)
}

/// Tells an error, to people or, with `json`, to programs, and what the command ends with.
pub(crate) fn tell(error: &Error, json: bool) -> Exit {
    let mut out = anstream::stderr();
    // There is nobody else to tell if this cannot be written.
    let _ = if json {
        let text = serde_json::to_string(&serde_json::json!({ "error": error })).unwrap_or_default();
        writeln!(out, "{text}")
    } else {
        let (red, blue) = (AnsiColor::Red.on_default().bold(), AnsiColor::Blue.on_default().bold());
        let hint = hint(error).map(|hint| line("hint", blue, &hint)).unwrap_or_default();
        // A command line is one command, so its place in a batch says nothing.
        let message = error.message().replace("commands[0].", "");
        write!(out, "{}{hint}", line("error", red, &message))
    };
    Exit::of(error)
}

/// What can be done about it, with the cursor where it speaks of one.
fn hint(error: &Error) -> Option<String> {
    let hint = error.hint_text()?.to_owned();
    Some(match error.kind() {
        ErrorKind::Compacted { oldest } => hint.replace("`oldest`", oldest),
        _ => hint,
    })
}

/// A line with a mark, the text made harmless for terminals.
fn line(mark: &str, style: Style, text: &str) -> String {
    let text: Vec<_> = text.lines().map(crate::show::plain).collect();
    format!("{style}{mark:>5}:{style:#} {}\n", text.join("\n       "))
}
