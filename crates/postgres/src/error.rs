//! What goes wrong with PostgreSQL, as ours: what happened, and what to do.

use statehold_core::{Error, ErrorKind};
use tokio_postgres::error::SqlState;

/// Why something came to nothing.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// PostgreSQL or the way to it failed.
    Database(tokio_postgres::Error),
    /// PostgreSQL did not answer in time.
    Silence,
    /// An error for the caller.
    Ours(Error),
    /// What was planned on is no longer so, or held by someone else: plan anew.
    Again,
    /// Events wait for an older transaction: look which, and plan anew.
    Withheld,
}

/// What a part of the store answers.
pub(crate) type Result<T> = std::result::Result<T, Trouble>;

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Ours(error)
    }
}

impl Trouble {
    fn state(&self) -> Option<&SqlState> {
        match self {
            Self::Database(error) => error.code(),
            Self::Silence | Self::Ours(_) | Self::Again | Self::Withheld => None,
        }
    }

    /// Whether planning anew can help: another transaction was in the way.
    pub(crate) fn is_race(&self) -> bool {
        const RACES: [SqlState; 4] = [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::UNIQUE_VIOLATION,
        ];
        matches!(self, Self::Again | Self::Withheld)
            || self.state().is_some_and(|state| RACES.contains(state))
    }

    /// Whether the connection is gone, or the server is about to go.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::Silence => true,
            Self::Ours(_) | Self::Again | Self::Withheld => false,
            Self::Database(error) => error.code().is_none_or(|state| {
                *state == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
                    || matches!(state.code().get(..3), Some("57P" | "080"))
            }),
        }
    }

    /// Whether the server does not let us in, which it will not do the next moment either.
    pub(crate) fn is_refusal(&self) -> bool {
        let login = |state: &SqlState| matches!(state.code().get(..2), Some("28" | "3D"));
        matches!(self, Self::Ours(_)) || self.state().is_some_and(login)
    }

    /// Whether a statement is not what the server understands.
    pub(crate) fn is_mistake(&self) -> bool {
        let rights_or_tables = [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::UNDEFINED_TABLE];
        self.state().is_some_and(|state| state.code().starts_with("42") && !rights_or_tables.contains(state))
    }

    /// What the caller is told.
    pub(crate) fn into_error(self) -> Error {
        let problem = match self {
            Self::Ours(error) => return error,
            Self::Again | Self::Withheld => {
                return Error::unavailable("other transactions were in the way again and again")
                    .hint("try again; if it lasts, look for a transaction that stays open");
            }
            Self::Silence => {
                return Error::unavailable("the database did not answer in time").hint(
                    "check that the server can be reached and is not overloaded; it goes on by itself",
                );
            }
            Self::Database(problem) => problem,
        };
        let error = match problem.as_db_error() {
            Some(refused) => of_state(refused.code(), refused.message()),
            None => Error::unavailable("the database cannot be reached, or the connection to it was lost")
                .hint("check that the server runs and can be reached; it goes on by itself"),
        };
        error.caused_by(problem)
    }
}

fn of_state(state: &SqlState, message: &str) -> Error {
    match state.code() {
        "28P01" | "28000" => Error::unavailable(format!("the database refused the login: {message}"))
            .hint("check user, password and pg_hba.conf; it is asked again when something is to be done"),
        "3D000" => Error::unavailable(format!("the database does not exist: {message}"))
            .hint("create it with createdb"),
        "42501" => Error::unavailable(format!("the user may not do that: {message}"))
            .hint("grant the user the schema, or let an administrator run `statehold migrate`"),
        "26000" | "42P01" | "42P05" => {
            Error::unavailable(format!("the session is not as it was left: {message}")).hint(
                "add pooled=true to the URL if a pooler such as PgBouncer is in transaction mode; \
                 if not, tables are missing: run `statehold migrate --dry-run`",
            )
        }
        "53300" => Error::unavailable("the server has no connection left")
            .hint("raise max_connections, or let fewer processes connect"),
        code if code.starts_with("53") => Error::unavailable(format!("the server is out of room: {message}"))
            .hint("make room on its disk or memory; it goes on by itself, nothing is lost"),
        code if code.starts_with("57") || code.starts_with("08") => {
            Error::unavailable(format!("the server ended the connection: {message}"))
                .hint("it goes on by itself when the server is back")
        }
        code if code.starts_with("40") || code == "55P03" || code == "25006" => {
            Error::unavailable(format!("the server could not do it now: {message}")).hint("try again")
        }
        "23505" => Error::new(ErrorKind::Conflict, format!("the rows contradict each other: {message}"))
            .hint("if this was a load, the dump is damaged; otherwise run `statehold doctor`"),
        "54000" | "22001" => Error::new(ErrorKind::TooLarge, "a value is larger than PostgreSQL can hold"),
        code => Error::corrupt(format!("PostgreSQL says {code}: {message}"))
            .hint("run `statehold doctor`, and report it with the server's log"),
    }
}
