//! Errors as callers get them: `application/problem+json` with a code, and a hint that a person can act on. This is
//! the one place that knows which status an error has.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use statehold::{Error, Timestamp};
use statehold_core::error::{ErrorKind, Place};
use utoipa::ToSchema;

/// What a caller gets instead of an answer.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    members: Map<String, Value>,
    retry_after: Option<u64>,
}

/// What handlers answer.
pub(crate) type Answer = Result<Response, Problem>;

/// A problem, as it is written.
#[derive(ToSchema)]
#[schema(as = ProblemDetails)]
#[expect(dead_code, reason = "only its description is used")]
pub(crate) struct Written {
    /// For programs: `not_found`, `invalid`, `unauthenticated`, `forbidden`, `conflict`, `held`, `fenced`,
    /// `invalid_transition`, `compacted`, `precondition_failed`, `too_large`, `too_many_requests`, `unavailable`,
    /// `timeout`, `method_not_allowed`, `corrupt`, `unsupported`.
    code: String,
    /// The status of the answer.
    status: u16,
    /// What the status means.
    title: String,
    /// What happened.
    detail: String,
    /// What a person can do about it.
    hint: String,
    /// The key that it is about.
    key: Option<String>,
    /// Each thing that is wrong with the request, with where it is.
    problems: Option<Vec<statehold_core::error::Problem>>,
    /// The command of a batch that was refused.
    command: Option<u32>,
    /// The fence that does not hold.
    fence: Option<u32>,
    /// Who has it.
    owner: Option<String>,
    /// Until when.
    expires_at: Option<Timestamp>,
    /// When it was lost.
    lost_at: Option<Timestamp>,
    /// The current status of the task.
    from: Option<statehold::Status>,
    /// The status that was asked for.
    to: Option<statehold::Status>,
    /// What is allowed instead.
    allowed: Option<Vec<statehold::Status>>,
    /// The current revision.
    revision: Option<u64>,
    /// The oldest cursor that can be read after.
    oldest: Option<String>,
}

impl Problem {
    fn new(status: StatusCode, code: &str, detail: &str, hint: &str) -> Self {
        let members = json!({ "code": code, "detail": detail, "hint": hint });
        let members = if let Value::Object(members) = members { members } else { Map::new() };
        Self { status, members, retry_after: None }
    }

    /// Nobody known asks.
    pub(crate) fn unauthenticated(detail: &str) -> Self {
        let hint = "send `Authorization: Bearer TOKEN`; `statehold token create` makes one";
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail, hint)
    }

    /// Who asks may not do this.
    pub(crate) fn forbidden(detail: impl AsRef<str>, hint: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail.as_ref(), hint)
    }

    /// Who asks has asked too much.
    pub(crate) fn too_many() -> Self {
        let detail = "this caller sends more requests than it is allowed to";
        let hint = "wait as long as `Retry-After` says, and send less at a time or put more into one batch";
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", detail, hint);
        Self { retry_after: Some(1), ..problem }
    }

    /// There is no such path.
    pub(crate) fn no_route(path: &str) -> Self {
        let detail = format!("there is nothing at `{path}`");
        Self::new(StatusCode::NOT_FOUND, "not_found", &detail, "`/docs` and `/openapi.json` list every route")
    }

    /// The path has no such method.
    pub(crate) fn no_method() -> Self {
        let hint = "`Allow` lists the methods of this path";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "not a method of this path", hint)
    }

    /// The same for the only command of a batch, whose place says nothing to the caller.
    pub(crate) fn single(mut self) -> Self {
        self.members.remove("command");
        self.members.values_mut().for_each(strip_place);
        self
    }

    /// The code.
    pub(crate) fn code(&self) -> &str {
        self.members.get("code").and_then(Value::as_str).unwrap_or_default()
    }

    /// What happened.
    pub(crate) fn detail(&self) -> &str {
        self.members.get("detail").and_then(Value::as_str).unwrap_or_default()
    }

    /// When what is held by another runs out, if it is known.
    pub(crate) fn held_until(&self) -> Option<Timestamp> {
        self.members.get("expires_at")?.as_str()?.parse().ok()
    }

    /// The document.
    pub(crate) fn to_json(&self) -> String {
        let mut members = self.members.clone();
        members.insert("status".into(), self.status.as_u16().into());
        members.insert("title".into(), self.status.canonical_reason().unwrap_or_default().into());
        Value::Object(members).to_string()
    }
}

fn strip_place(value: &mut Value) {
    match value {
        Value::String(text) => *text = text.replace("commands[0].", "").replace("commands[0]", "the request"),
        Value::Array(items) => items.iter_mut().for_each(strip_place),
        Value::Object(members) => members.values_mut().for_each(strip_place),
        _ => {}
    }
}

fn status(kind: &ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::NotFound => StatusCode::NOT_FOUND,
        ErrorKind::Invalid { .. } => StatusCode::BAD_REQUEST,
        ErrorKind::Conflict
        | ErrorKind::Held { .. }
        | ErrorKind::Fenced { .. }
        | ErrorKind::InvalidTransition { .. } => StatusCode::CONFLICT,
        ErrorKind::PreconditionFailed { .. } => StatusCode::PRECONDITION_FAILED,
        ErrorKind::Compacted { .. } => StatusCode::GONE,
        ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
        ErrorKind::Corrupt => StatusCode::INTERNAL_SERVER_ERROR,
        ErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let written = serde_json::to_value(&error).unwrap_or_default();
        let mut members = if let Value::Object(members) = written { members } else { Map::new() };
        if let Some(message) = members.remove("message") {
            members.insert("detail".into(), message);
        }
        members.remove("place");
        match error.place() {
            Some(Place::Command(index)) => drop(members.insert("command".into(), index.into())),
            Some(Place::Fence(index)) => drop(members.insert("fence".into(), index.into())),
            Some(Place::Key) | None => {}
        }
        members.entry("hint").or_insert_with(|| "this store cannot do it; choose another one".into());
        let retry_after = matches!(error.kind(), ErrorKind::Unavailable).then_some(1);
        Self { status: status(error.kind()), members, retry_after }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.to_json()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(Code(self.code().to_owned()));
        response
    }
}

/// The code of a problem, for who watches answers go by.
#[derive(Clone, Debug)]
pub(crate) struct Code(pub(crate) String);
