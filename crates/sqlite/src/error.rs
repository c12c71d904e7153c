//! SQLite's errors as ours: what happened, and what to do.

use rusqlite::ErrorCode;
use statehold_core::{Error, ErrorKind};

/// What a failure of SQLite means to the caller.
pub(crate) fn from(problem: rusqlite::Error) -> Error {
    let error = match &problem {
        // An error of ours that passed through.
        rusqlite::Error::ToSqlConversionFailure(error) if error.is::<Error>() => {
            return error
                .downcast_ref::<Error>()
                .cloned()
                .unwrap_or_else(|| Error::corrupt(problem.to_string()));
        }
        // The log has it, perhaps whole, but the longer index that the log needs finds no room.
        rusqlite::Error::SqliteFailure(failure, _)
            if failure.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE =>
        {
            Error::unavailable("the disk is full; whether the request was stored is not known")
                .hint("make room on the disk of the database; it goes on by itself")
        }
        rusqlite::Error::SqliteFailure(failure, _) => of_code(failure.code, &problem),
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..) => {
            Error::corrupt(format!("a row cannot be read: {problem}"))
        }
        _ => Error::corrupt(format!("SQLite: {problem}")),
    };
    error.caused_by(problem)
}

fn of_code(code: ErrorCode, problem: &rusqlite::Error) -> Error {
    match code {
        ErrorCode::DiskFull => Error::unavailable("the disk is full; nothing of this request was stored")
            .hint("make room on the disk of the database; it goes on by itself, nothing is lost"),
        ErrorCode::ReadOnly => Error::unavailable("the database cannot be written: it is read-only")
            .hint("check the mode and owner of the file, of its folder, and how the disk is mounted"),
        ErrorCode::PermissionDenied | ErrorCode::CannotOpen => {
            Error::unavailable(format!("the database cannot be opened: {problem}"))
                .hint("check that the folder exists and that this user may write in it")
        }
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            Error::unavailable("another process has been writing to the database for too long")
                .hint("look for a program that keeps a transaction open, such as a sqlite3 shell, and end it")
        }
        ErrorCode::DatabaseCorrupt => Error::corrupt(format!("the database is damaged: {problem}")),
        ErrorCode::NotADatabase => Error::corrupt("the file is not a SQLite database")
            .hint("give the path of a file that Statehold made, or of one that does not exist yet"),
        ErrorCode::SystemIoFailure => Error::unavailable(format!("the disk failed: {problem}")).hint(
            "look at the system's log for errors of the disk; whether the request was stored is not known",
        ),
        ErrorCode::OutOfMemory => Error::unavailable("there is not enough memory"),
        ErrorCode::TooBig => Error::new(ErrorKind::TooLarge, "a value is larger than SQLite can hold"),
        ErrorCode::ConstraintViolation => {
            Error::new(ErrorKind::Conflict, format!("the rows contradict each other: {problem}"))
                .hint("if this was a load, the dump is damaged; otherwise run `statehold doctor`")
        }
        _ => Error::corrupt(format!("SQLite: {problem}")),
    }
}
