//! What servers answer: values, or problems that become the errors that they were.

use reqwest::{RequestBuilder, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use statehold_core::error::{Error, ErrorKind, Result};

/// An answer that is none of a problem.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) text: String,
    /// Whether it was given before.
    pub(crate) replayed: bool,
}

/// Sends a request. Whoever cannot be reached was not asked; what gets no answer may have happened.
pub(crate) async fn send(request: RequestBuilder) -> Result<Answer> {
    let response = request.send().await.map_err(|e| failed(&e))?;
    let status = response.status();
    let replayed = response.headers().contains_key("idempotency-replayed");
    let text = response.text().await.map_err(|e| failed(&e))?;
    // Not being ready is an answer of its own.
    let told = status == StatusCode::SERVICE_UNAVAILABLE && text.contains("\"draining\"");
    if status.is_success() || told {
        return Ok(Answer { text, replayed });
    }
    Err(problem(status, &text))
}

fn failed(error: &reqwest::Error) -> Error {
    let url = error.url().map(|url| url.origin().ascii_serialization()).unwrap_or_default();
    let kind = if error.is_connect() { ErrorKind::Unavailable } else { ErrorKind::Timeout };
    let hint = "check that `statehold serve` runs there, and the URL";
    Error::new(kind, format!("the server at {url} does not answer")).hint(hint).caused_by(error_of(error))
}

/// What caused it, as text: the error itself names the whole URL.
fn error_of(error: &reqwest::Error) -> std::io::Error {
    std::io::Error::other(error.to_string())
}

/// The error that a problem was made from.
fn problem(status: StatusCode, text: &str) -> Error {
    let unknown = || Error::unavailable(format!("the server answered {status}"));
    let Ok(Value::Object(mut members)) = serde_json::from_str(text) else { return unknown() };
    if let Some(detail) = members.remove("detail") {
        members.insert("message".into(), detail);
    }
    for place in ["command", "fence"] {
        if let Some(index) = members.remove(place) {
            members.insert("place".into(), json!({ place: index }));
        }
    }
    let text = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (message, hint) = (text("message"), text("hint"));
    match text("code").as_str() {
        "unauthenticated" => {
            Error::invalid("token", message).hint("name a token with STATEHOLD_TOKEN or STATEHOLD_TOKEN_FILE")
        }
        "forbidden" => Error::invalid("token", message).hint(hint),
        "too_many_requests" => Error::unavailable(message).hint(hint),
        _ => serde_json::from_value(Value::Object(members)).unwrap_or_else(|_| unknown()),
    }
}

/// The value of an answer.
#[expect(clippy::needless_pass_by_value, reason = "an answer is read once")]
pub(crate) fn read<T: DeserializeOwned>(answer: Answer) -> Result<T> {
    parse(&answer.text)
}

/// The value of a text.
pub(crate) fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T> {
    serde_json::from_str(text).map_err(|e| {
        Error::corrupt(format!("the server's answer cannot be read: {e}")).hint("compare the versions")
    })
}

/// What is not there is none.
pub(crate) fn found<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
