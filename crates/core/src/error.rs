//! The one error type: what happened, to what, whether trying again can help, and what to do.

use std::error::Error as StdError;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::status::Status;

/// The result of everything that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A refused or failed request.
///
/// ```
/// use statehold_core::error::Error;
///
/// let error = Error::not_found("task", "0198").hint("list tasks with `task list`");
/// assert_eq!(error.code(), "not_found");
/// assert!(!error.is_retryable());
/// assert_eq!(error.to_string(), "task `0198` does not exist\nhint: list tasks with `task list`");
/// ```
///
/// It is written and read as `{"code", …, "message", "key", "hint", "place"}`, without what caused it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Inner {
    #[serde(flatten)]
    kind: ErrorKind,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<Place>,
    #[serde(skip)]
    source: Option<std::sync::Arc<dyn StdError + Send + Sync>>,
}

/// What kind of error it is, with what a program needs to react.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum ErrorKind {
    /// What the request names does not exist.
    NotFound,
    /// The request itself is wrong.
    Invalid {
        /// Each thing that is wrong, with where it is.
        problems: Vec<Problem>,
    },
    /// The key is already used for something else, or the stream's head has moved.
    Conflict,
    /// Someone else has it.
    Held {
        /// Who has it.
        owner: Option<String>,
        /// Until when, unless without end.
        expires_at: Option<Timestamp>,
    },
    /// The caller's token is not, or no longer, the current one.
    Fenced {
        /// When the caller lost it, if that is known.
        lost_at: Option<Timestamp>,
        /// Who has it now, if anyone.
        owner: Option<String>,
    },
    /// The status table has no such step.
    InvalidTransition {
        /// The current status.
        from: Status,
        /// The status that was asked for.
        to: Status,
        /// What the table allows from here.
        allowed: Vec<Status>,
    },
    /// The revision is not the one that was expected.
    PreconditionFailed {
        /// The current revision, if the thing exists.
        revision: Option<u64>,
    },
    /// The cursor points before what has been trimmed away.
    Compacted {
        /// The oldest cursor that can still be read after.
        oldest: String,
    },
    /// A bound was passed.
    TooLarge,
    /// The store cannot be reached now.
    Unavailable,
    /// No answer in time: the outcome is unknown.
    Timeout,
    /// The store holds something that cannot be read.
    Corrupt,
    /// This backend cannot do that.
    Unsupported,
}

/// One thing that is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// Where, such as `commands[2].input`; empty for the whole request.
    pub path: String,
    /// What.
    pub message: String,
}

/// Which part of a batch was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The batch's key.
    Key,
    /// The fence with this index.
    Fence(usize),
    /// The command with this index.
    Command(usize),
}

impl Error {
    /// An error of `kind` that says `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let hint = kind.usual_hint().map(str::to_owned);
        let (key, place, source) = (None, None, None);
        Self(Box::new(Inner { kind, message: message.into(), key, hint, place, source }))
    }

    /// `not_found` for a `noun` with a key.
    pub fn not_found(noun: &str, key: impl fmt::Display) -> Self {
        Self::new(ErrorKind::NotFound, format!("{noun} `{key}` does not exist")).about(key)
    }

    /// `invalid` with one problem.
    pub fn invalid(path: impl Into<String>, message: impl Into<String>) -> Self {
        let problem = Problem { path: path.into(), message: message.into() };
        Self::problems(vec![problem])
    }

    /// `invalid` with all that is wrong.
    pub fn problems(problems: Vec<Problem>) -> Self {
        let texts: Vec<_> = problems
            .iter()
            .map(|p| if p.path.is_empty() { p.message.clone() } else { format!("{}: {}", p.path, p.message) })
            .collect();
        Self::new(ErrorKind::Invalid { problems }, texts.join("; "))
    }

    /// `conflict` about a key.
    pub fn conflict(key: impl fmt::Display, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message).about(key)
    }

    /// `too_large` about a key.
    pub fn too_large(key: impl fmt::Display, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::TooLarge, message).about(key)
    }

    /// `compacted`: events after a cursor were trimmed.
    pub fn compacted(about: &str, oldest: &impl fmt::Display) -> Self {
        let kind = ErrorKind::Compacted { oldest: oldest.to_string() };
        Self::new(kind, format!("events of `{about}` after this cursor were trimmed")).about(about)
    }

    /// `unavailable`: the store cannot be reached.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// `corrupt`: the store holds something that cannot be read.
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// `unsupported` by this backend.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// Names the key it is about.
    #[must_use]
    pub fn about(mut self, key: impl fmt::Display) -> Self {
        self.0.key = Some(key.to_string());
        self
    }

    /// Says what a person can do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Says which part of the batch was refused.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.0.place = Some(place);
        self
    }

    /// Keeps what caused it.
    #[must_use]
    pub fn caused_by(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(std::sync::Arc::new(source));
        self
    }

    /// Puts `prefix` before the path of each problem.
    #[must_use]
    pub fn under(self, prefix: &str) -> Self {
        let ErrorKind::Invalid { problems } = &self.0.kind else { return self };
        let problems =
            problems.iter().map(|p| Problem { path: join(prefix, &p.path), message: p.message.clone() });
        let mut moved = Self::problems(problems.collect());
        moved.0.place = self.0.place;
        moved.0.hint = self.0.hint;
        moved
    }

    /// What kind it is.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The wire name of the kind, such as `fenced`.
    pub fn code(&self) -> &'static str {
        self.0.kind.code()
    }

    /// What happened, without the hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The key it is about.
    pub fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    /// What a person can do about it.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The part of the batch that was refused.
    pub fn place(&self) -> Option<Place> {
        self.0.place
    }

    /// Whether the same request may succeed later without anyone changing it. After a `timeout`
    /// the outcome is unknown: repeat it with the same key.
    pub fn is_retryable(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Held { .. } | ErrorKind::Unavailable | ErrorKind::Timeout)
    }

    /// Whether the caller lost its lease, lock or delivery and must stop.
    pub fn is_fenced(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Fenced { .. })
    }

    /// Whether what the request names does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self.0.kind, ErrorKind::NotFound)
    }

    /// Whether the request itself is wrong.
    pub fn is_invalid(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Invalid { .. })
    }
}

fn join(prefix: &str, path: &str) -> String {
    match (prefix, path) {
        ("", path) => path.to_owned(),
        (prefix, "") => prefix.to_owned(),
        (prefix, path) if path.starts_with('[') => format!("{prefix}{path}"),
        (prefix, path) => format!("{prefix}.{path}"),
    }
}

impl ErrorKind {
    /// The wire name.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Invalid { .. } => "invalid",
            Self::Conflict => "conflict",
            Self::Held { .. } => "held",
            Self::Fenced { .. } => "fenced",
            Self::InvalidTransition { .. } => "invalid_transition",
            Self::PreconditionFailed { .. } => "precondition_failed",
            Self::Compacted { .. } => "compacted",
            Self::TooLarge => "too_large",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Corrupt => "corrupt",
            Self::Unsupported => "unsupported",
        }
    }

    fn usual_hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NotFound => "check the id or key and the namespace",
            Self::Invalid { .. } => "correct the request; nothing was changed",
            Self::Conflict => "use another key, or send the same request as before",
            Self::Held { .. } => "wait for it to be freed, or try again after it expires",
            Self::Fenced { .. } => {
                "stop this work: someone else may have taken it over; claim again to continue"
            }
            Self::InvalidTransition { .. } => {
                "read the task's current status and choose one of the allowed steps"
            }
            Self::PreconditionFailed { .. } => "read it again and repeat the change on the current revision",
            Self::Compacted { .. } => "events before this cursor were trimmed; read again after `oldest`",
            Self::TooLarge => "send less at a time",
            Self::Unavailable => "the store cannot be reached; try again soon",
            Self::Timeout => "the outcome is unknown; repeat the request with the same key",
            Self::Corrupt => "run `statehold doctor` and restore from a backup if it confirms the damage",
            Self::Unsupported => return None,
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.place {
            Some(Place::Command(index)) => write!(f, "command {index}: ")?,
            Some(Place::Fence(index)) => write!(f, "fence {index}: ")?,
            Some(Place::Key) | None => {}
        }
        f.write_str(&self.0.message)?;
        match &self.0.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

/// Equal in what a caller can see: kind, key and place. Messages and hints are for people.
impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        self.0.kind == other.0.kind && self.0.key == other.0.key && self.0.place == other.0.place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_survives_being_written_and_read() {
        let held = ErrorKind::Held { owner: Some("me".into()), expires_at: Some(Timestamp::MAX) };
        let errors = [
            Error::new(held, "someone has it").about("k").at(Place::Command(3)),
            Error::invalid("commands[0].key", "must not be empty").at(Place::Key),
            Error::new(ErrorKind::PreconditionFailed { revision: Some(u64::MAX) }, "at another")
                .hint("read it"),
            Error::unsupported("not here"),
        ];
        for error in errors {
            let text = serde_json::to_string(&error).unwrap_or_default();
            assert!(text.starts_with(&format!(r#"{{"code":"{}""#, error.code())), "{text}");
            let Ok(read) = serde_json::from_str::<Error>(&text) else { panic!("cannot be read: {text}") };
            assert_eq!(read, error);
            assert_eq!((read.message(), read.hint_text()), (error.message(), error.hint_text()));
        }
    }
}
