//! How arguments are read: lengths of time, times, ids, labels, JSON.

use std::io::Read as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use statehold::{Error, Json, Result, Seconds, Status, StreamName, TaskId, Timestamp, Token};
use statehold_core::model::{Labels, Source};

/// The time by this machine's clock.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// A length of time: `90`, `90s`, `5m`, `2h`, `1d`, also `0.5` and `500ms`.
pub(crate) fn seconds(text: &str) -> Result<Seconds, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let length = match unit {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => f64::NAN,
    };
    let length = number.parse().map_or(f64::NAN, |number: f64| number * length);
    Duration::try_from_secs_f64(length)
        .map(Seconds::from)
        .map_err(|_| format!("`{text}` is not a length of time such as 90, 90s, 5m, 2h or 1d"))
}

/// A time: RFC 3339, or `+` and a length of time from now.
pub(crate) fn time(text: &str) -> Result<Timestamp, String> {
    match text.strip_prefix('+') {
        Some(length) => Ok(now() + seconds(length)?),
        None => text.parse().map_err(|_| {
            format!("`{text}` is not a time such as 2026-01-31T08:00:00Z, or +5m for five minutes from now")
        }),
    }
}

/// The id of a task.
pub(crate) fn task_id(text: &str) -> Result<TaskId, String> {
    text.parse().map_err(|_| {
        format!("`{text}` is not the id of a task, such as 0198c0de-0000-7000-8000-000000000000")
    })
}

/// The status of a task.
pub(crate) fn status(text: &str) -> Result<Status, String> {
    text.parse().map_err(|_| format!("`{text}` is not one of {}", Status::ALL.map(Status::as_str).join(", ")))
}

/// A fencing token.
pub(crate) fn token(text: &str) -> Result<Token, String> {
    text.parse().map(Token).map_err(|_| "a token is a number, as claim, start or acquire gave it".to_owned())
}

/// A stream by its name.
pub(crate) fn stream(text: &str) -> Result<StreamName, String> {
    text.to_owned().try_into()
}

/// What a group reads: a stream `category/id`, or a whole category.
pub(crate) fn source(text: &str) -> Result<Source, String> {
    if text.contains('/') { stream(text).map(Source::Stream) } else { Ok(Source::Category(text.to_owned())) }
}

/// A label `key=value`.
pub(crate) fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) =
        text.split_once('=').ok_or_else(|| format!("`{text}` is not of the form key=value"))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Labels as they were given, the last of a key counts.
pub(crate) fn labels(given: &[(String, String)]) -> Labels {
    given.iter().cloned().collect()
}

/// A JSON argument: the text itself, `@FILE`, or `-` for standard input.
#[derive(Clone, Debug)]
pub(crate) struct Body(String);

impl From<&str> for Body {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl Body {
    /// Reads it where it is.
    pub(crate) fn read(&self, what: &str) -> Result<Json> {
        let bytes = self.bytes(what)?;
        let text = String::from_utf8(bytes).map_err(|_| Error::invalid(what, "is not text"))?;
        Json::parse(&text).map_err(|error| {
            error
                .under(what)
                .hint("text needs its quotes: '\"hello\"'; @FILE reads a file, - reads standard input")
        })
    }

    /// The same as it is, for bodies that are not JSON.
    pub(crate) fn bytes(&self, what: &str) -> Result<Vec<u8>> {
        let failed =
            |from: &str, e: &std::io::Error| Error::invalid(what, format!("`{from}` cannot be read: {e}"));
        match self.0.strip_prefix('@') {
            Some(path) => std::fs::read(path).map_err(|e| failed(path, &e)),
            None if self.0 == "-" => {
                let mut bytes = Vec::new();
                std::io::stdin().read_to_end(&mut bytes).map_err(|e| failed("-", &e))?;
                Ok(bytes)
            }
            None => Ok(self.0.clone().into_bytes()),
        }
    }
}

/// Reads a body that may be left out.
pub(crate) fn maybe(body: Option<&Body>, what: &str) -> Result<Option<Json>> {
    body.map(|body| body.read(what)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read_in_every_unit() {
        let read = |text| seconds(text).map(|length| length.to_string());
        for (text, length) in [
            ("90", "90"),
            ("90s", "90"),
            ("5m", "300"),
            ("2h", "7200"),
            ("1d", "86400"),
            ("0.5", "0.5"),
            ("500ms", "0.5"),
        ] {
            assert_eq!(read(text), Ok(length.into()), "{text}");
        }
        for text in ["", "s", "-1", "5 m", "5x", "1.2.3", "inf", "1e9", "99999999999999999999d"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_instants_or_from_now() {
        assert_eq!(
            time("2026-01-31T08:00:00Z").map(|at| at.to_string()),
            Ok("2026-01-31T08:00:00.000000Z".into())
        );
        assert!(
            time("+5m").is_ok_and(|at| at > now() + Seconds::new(290) && at <= now() + Seconds::new(300))
        );
        assert!(time("5m").is_err() && time("tomorrow").is_err());
    }
}
