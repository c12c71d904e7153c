//! What goes wrong with Redis, as ours: what happened, and what to do.

use redis::{ErrorKind as Kind, RedisError, ServerErrorKind};
use statehold_core::{Error, ErrorKind};

/// Why something came to nothing.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Redis or the way to it failed.
    Redis(RedisError),
    /// An error for the caller.
    Ours(Error),
    /// What was planned on is no longer so: plan anew.
    Again,
    /// The answer was lost, and nothing was done.
    Undone,
}

/// What a part of the store answers.
pub(crate) type Result<T> = std::result::Result<T, Trouble>;

impl From<RedisError> for Trouble {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Ours(error)
    }
}

impl Trouble {
    /// Whether planning anew can help: another process was faster.
    pub(crate) fn is_race(&self) -> bool {
        matches!(self, Self::Again)
    }

    /// Whether the connection is gone, or the server did not answer: what it did is not known.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            Self::Redis(error) => {
                matches!(error.kind(), Kind::Io | Kind::Parse | Kind::ClusterConnectionNotFound)
            }
            Self::Ours(_) | Self::Again | Self::Undone => false,
        }
    }

    /// Whether nothing was done, since the server refused for now or was lost before.
    pub(crate) fn is_passing(&self) -> bool {
        let Self::Redis(error) = self else { return matches!(self, Self::Undone) };
        let passing = matches!(
            error.kind(),
            Kind::Server(
                ServerErrorKind::BusyLoading
                    | ServerErrorKind::TryAgain
                    | ServerErrorKind::ClusterDown
                    | ServerErrorKind::MasterDown
            )
        );
        passing || error.code() == Some("BUSY")
    }

    /// Whether it went to a member of a cluster that is not, or not yet, the one to do it, so that nobody did it.
    pub(crate) fn is_misdirected(&self, cluster: bool) -> bool {
        let Self::Redis(error) = self else { return false };
        cluster
            && matches!(
                error.kind(),
                Kind::Server(
                    ServerErrorKind::Moved
                        | ServerErrorKind::Ask
                        | ServerErrorKind::ExecAbort
                        | ServerErrorKind::ReadOnly
                        | ServerErrorKind::TryAgain
                )
            )
    }

    /// Whether the server does not have our functions (any more).
    pub(crate) fn lacks_functions(&self) -> bool {
        matches!(self, Self::Redis(error) if error.to_string().contains("Function not found"))
    }

    /// What the caller is told.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Ours(error) => error,
            Self::Again => Error::unavailable("other processes were faster again and again")
                .hint("try again; if it lasts, let fewer processes write to the same keys"),
            Self::Undone => Error::unavailable("the connection was lost again and again; nothing was done")
                .hint("check that Redis runs and can be reached; it goes on by itself"),
            Self::Redis(problem) => of_redis(&problem).caused_by(problem),
        }
    }
}

fn of_redis(problem: &RedisError) -> Error {
    let text = problem.to_string();
    match problem.kind() {
        Kind::AuthenticationFailed => {
            Error::unavailable("the server refused the login").hint("check user and password in the URL")
        }
        Kind::Io | Kind::ClusterConnectionNotFound => {
            Error::unavailable("the server cannot be reached, or the connection to it was lost")
                .hint("check that Redis runs and can be reached; it goes on by itself")
        }
        Kind::Server(ServerErrorKind::ReadOnly) => {
            Error::unavailable("the server is a replica that takes no writes").hint("connect to the primary")
        }
        Kind::Server(ServerErrorKind::NoPerm) => {
            Error::unavailable(format!("the user may not do that: {text}"))
                .hint("let the user call FCALL, FUNCTION LOAD, and read and write keys that begin with `{`")
        }
        Kind::Server(ServerErrorKind::BusyLoading) => {
            Error::unavailable("the server is still loading its data").hint("it goes on by itself")
        }
        Kind::InvalidClientConfig => {
            Error::invalid("store", text).hint("write redis://user:password@host:6379/0")
        }
        _ => of_code(problem.code().unwrap_or_default(), &text),
    }
}

fn of_code(code: &str, text: &str) -> Error {
    match code {
        "NOAUTH" | "WRONGPASS" => {
            Error::unavailable("the server refused the login").hint("check user and password in the URL")
        }
        "OOM" => Error::unavailable("the server has no memory left")
            .hint("raise maxmemory, or let retention remove more; it goes on by itself, nothing is lost"),
        "MISCONF" => Error::unavailable(format!("the server cannot write to its disk: {text}"))
            .hint("make room on its disk; it goes on by itself"),
        "BUSY" => Error::unavailable("the server is busy with a long call").hint("try again"),
        "WRONGTYPE" => Error::corrupt("a key of this store holds something else")
            .hint("let nobody else write keys with this prefix, or choose another prefix"),
        _ => Error::unavailable(format!("Redis says: {text}")).hint("report it with the server's log"),
    }
}

/// An answer that does not look as it should.
pub(crate) fn odd(what: &str) -> Trouble {
    Trouble::Ours(Error::corrupt(format!("the server answered something else than {what}")))
}

/// The commit was under way, so that nobody knows whether it was done.
pub(crate) fn unknown(trouble: Trouble) -> Error {
    let message = "the connection was lost while the commit was under way; whether it was done is not known";
    let error =
        Error::new(ErrorKind::Timeout, message).hint("repeat it with the same key: it is then done once");
    match trouble {
        Trouble::Redis(problem) => error.caused_by(problem),
        Trouble::Ours(_) | Trouble::Again | Trouble::Undone => error,
    }
}
