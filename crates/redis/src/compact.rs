//! Tasks in few bytes: what is as it mostly is is left out, names are short, times are numbers. Every byte of a row passes
//! through Lua, the server's file and its memory.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use statehold_core::clock::Seconds;
use statehold_core::model::{Backoff, Labels, Lease, ResumedBy, Task, TaskError, TaskId, Token, Waiting};
use statehold_core::row::{Head, RequestHash, TaskRow, Turn};
use statehold_core::{Json, Status, Timestamp};

/// What is left out where a task has it. These belong to what is stored, and stay when the defaults of tasks change.
const ATTEMPTS: u32 = 3;
const LEASE_LOSSES: u32 = 10;
const BACKOFF: Backoff =
    Backoff { initial_seconds: Seconds::new(1), factor: 2, max_seconds: Seconds::new(100) };

/// A time in microseconds.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Micros(i64);

impl From<Timestamp> for Micros {
    fn from(at: Timestamp) -> Self {
        Self(at.as_micros())
    }
}

impl From<Micros> for Timestamp {
    fn from(at: Micros) -> Self {
        Self::from_micros(at.0)
    }
}

/// User JSON, which was checked when it came.
struct Body(Json);

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|text| Self(Json::stored(text.get())))
    }
}

/// Reads a body that is there: null is one.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Body>, D::Error> {
    Body::deserialize(deserializer).map(Some)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A row as it is written.
#[derive(Serialize, Deserialize)]
pub(crate) struct Compact<'a> {
    #[serde(rename = "i")]
    id: TaskId,
    #[serde(rename = "q", borrow)]
    queue: Cow<'a, str>,
    #[serde(rename = "k", borrow)]
    kind: Cow<'a, str>,
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(rename = "p", default, skip_serializing_if = "is_default")]
    priority: i16,
    #[serde(rename = "rk", default, skip_serializing_if = "is_default")]
    rank: i64,
    #[serde(rename = "in", default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    input: Option<Body>,
    #[serde(rename = "o", default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    output: Option<Body>,
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    error: Option<Cow<'a, TaskError>>,
    #[serde(rename = "m", default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    metadata: Option<Body>,
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    labels: Option<Cow<'a, Labels>>,
    #[serde(rename = "th", default, skip_serializing_if = "Option::is_none")]
    thread: Option<Cow<'a, str>>,
    #[serde(rename = "pa", default, skip_serializing_if = "Option::is_none")]
    parent: Option<TaskId>,
    #[serde(rename = "ro", default, skip_serializing_if = "Option::is_none")]
    root: Option<TaskId>,
    #[serde(rename = "ck", default, skip_serializing_if = "Option::is_none")]
    child_key: Option<Cow<'a, str>>,
    #[serde(rename = "on", default, skip_serializing_if = "Option::is_none")]
    depends_on: Option<Cow<'a, [TaskId]>>,
    #[serde(rename = "ik", default, skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<Cow<'a, str>>,
    #[serde(rename = "xk", default, skip_serializing_if = "Option::is_none")]
    exclusive_key: Option<Cow<'a, str>>,
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    run_at: Option<Micros>,
    #[serde(rename = "x", default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<Micros>,
    #[serde(rename = "to", default, skip_serializing_if = "Option::is_none")]
    timeout_seconds: Option<Seconds>,
    #[serde(rename = "n", default, skip_serializing_if = "is_default")]
    attempt: u32,
    #[serde(rename = "f", default, skip_serializing_if = "is_default")]
    failures: u32,
    #[serde(rename = "ll", default, skip_serializing_if = "is_default")]
    lease_losses: u32,
    #[serde(rename = "ma", default, skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    #[serde(rename = "ml", default, skip_serializing_if = "Option::is_none")]
    max_lease_losses: Option<u32>,
    #[serde(rename = "b", default, skip_serializing_if = "Option::is_none")]
    backoff: Option<Backoff>,
    #[serde(rename = "pr", default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    progress: Option<Body>,
    #[serde(rename = "w", default, skip_serializing_if = "Option::is_none")]
    waiting_for: Option<Cow<'a, Waiting>>,
    #[serde(rename = "rb", default, skip_serializing_if = "Option::is_none")]
    resumed_by: Option<Cow<'a, ResumedBy>>,
    #[serde(rename = "cr", default, skip_serializing_if = "is_default")]
    cancel_requested: bool,
    #[serde(rename = "tp", default, skip_serializing_if = "Option::is_none")]
    traceparent: Option<Cow<'a, str>>,
    #[serde(rename = "v")]
    revision: u64,
    #[serde(rename = "le", default, skip_serializing_if = "Option::is_none")]
    lease: Option<Cow<'a, Lease>>,
    #[serde(rename = "c")]
    created_at: Micros,
    #[serde(rename = "u", default, skip_serializing_if = "Option::is_none")]
    updated_at: Option<Micros>,
    #[serde(rename = "st", default, skip_serializing_if = "Option::is_none")]
    started_at: Option<Micros>,
    #[serde(rename = "fi", default, skip_serializing_if = "Option::is_none")]
    finished_at: Option<Micros>,
    #[serde(rename = "h")]
    request: RequestHash,
    #[serde(rename = "t", default, skip_serializing_if = "is_default")]
    last_token: Token,
    #[serde(rename = "el")]
    last_event: u64,
    #[serde(rename = "eo", default, skip_serializing_if = "is_default")]
    oldest_event: u64,
    #[serde(rename = "ea", default, skip_serializing_if = "Option::is_none")]
    oldest_at: Option<Micros>,
    #[serde(rename = "tu", default, skip_serializing_if = "is_default")]
    turn: Turn,
    #[serde(rename = "od", default, skip_serializing_if = "Option::is_none")]
    open_dependencies: Option<Cow<'a, [TaskId]>>,
    #[serde(rename = "fb", default, skip_serializing_if = "Option::is_none")]
    failed_by: Option<TaskId>,
    #[serde(rename = "ch", default, skip_serializing_if = "is_default")]
    children: u32,
    #[serde(rename = "oc", default, skip_serializing_if = "is_default")]
    open_children: u32,
    #[serde(rename = "d", default, skip_serializing_if = "is_default")]
    depth: u16,
    #[serde(rename = "ls", default, skip_serializing_if = "Option::is_none")]
    lease_seconds: Option<Seconds>,
    #[serde(rename = "cl", default, skip_serializing_if = "Option::is_none")]
    claim_key: Option<Cow<'a, str>>,
}

/// A value, unless it is the usual one.
fn unless<T: PartialEq>(value: T, usual: &T) -> Option<T> {
    (value != *usual).then_some(value)
}

fn text(value: Option<&String>) -> Option<Cow<'_, str>> {
    value.map(|value| Cow::Borrowed(value.as_str()))
}

fn ids(value: &[TaskId]) -> Option<Cow<'_, [TaskId]>> {
    (!value.is_empty()).then_some(Cow::Borrowed(value))
}

fn body(value: Option<&Json>) -> Option<Body> {
    value.cloned().map(Body)
}

fn owned(value: Option<Cow<'_, str>>) -> Option<String> {
    value.map(Cow::into_owned)
}

impl<'a> From<&'a TaskRow> for Compact<'a> {
    fn from(row: &'a TaskRow) -> Self {
        let (task, created_at) = (&row.task, row.task.created_at);
        Self {
            id: task.id,
            queue: Cow::Borrowed(&task.queue),
            kind: Cow::Borrowed(&task.kind),
            status: unless(task.status, &Status::Pending),
            priority: task.priority,
            rank: task.rank,
            input: body(task.input.as_ref()),
            output: body(task.output.as_ref()),
            error: task.error.as_ref().map(Cow::Borrowed),
            metadata: body(task.metadata.as_ref()),
            labels: (!task.labels.is_empty()).then_some(Cow::Borrowed(&task.labels)),
            thread: text(task.thread.as_ref()),
            parent: task.parent,
            root: unless(task.root, &task.id),
            child_key: text(task.child_key.as_ref()),
            depends_on: ids(&task.depends_on),
            idempotency_key: text(task.idempotency_key.as_ref()),
            exclusive_key: text(task.exclusive_key.as_ref()),
            run_at: unless(task.run_at, &created_at).map(Micros::from),
            expires_at: task.expires_at.map(Micros::from),
            timeout_seconds: task.timeout_seconds,
            attempt: task.attempt,
            failures: task.failures,
            lease_losses: task.lease_losses,
            max_attempts: unless(task.max_attempts, &ATTEMPTS),
            max_lease_losses: unless(task.max_lease_losses, &LEASE_LOSSES),
            backoff: unless(task.backoff, &BACKOFF),
            progress: body(task.progress.as_ref()),
            waiting_for: task.waiting_for.as_ref().map(Cow::Borrowed),
            resumed_by: task.resumed_by.as_ref().map(Cow::Borrowed),
            cancel_requested: task.cancel_requested,
            traceparent: text(task.traceparent.as_ref()),
            revision: task.revision,
            lease: task.lease.as_ref().map(Cow::Borrowed),
            created_at: created_at.into(),
            updated_at: unless(task.updated_at, &created_at).map(Micros::from),
            started_at: task.started_at.map(Micros::from),
            finished_at: task.finished_at.map(Micros::from),
            request: row.request,
            last_token: row.last_token,
            last_event: row.head.last,
            oldest_event: row.head.oldest,
            oldest_at: row.head.oldest_at.map(Micros::from),
            turn: row.turn,
            open_dependencies: ids(&row.open_dependencies),
            failed_by: row.failed_by,
            children: row.children,
            open_children: row.open_children,
            depth: row.depth,
            lease_seconds: row.lease_seconds,
            claim_key: text(row.claim_key.as_ref()),
        }
    }
}

impl From<Compact<'_>> for TaskRow {
    fn from(row: Compact<'_>) -> Self {
        let created_at = Timestamp::from(row.created_at);
        let task = Task {
            id: row.id,
            queue: row.queue.into_owned(),
            kind: row.kind.into_owned(),
            status: row.status.unwrap_or(Status::Pending),
            priority: row.priority,
            rank: row.rank,
            input: row.input.map(|body| body.0),
            output: row.output.map(|body| body.0),
            error: row.error.map(Cow::into_owned),
            metadata: row.metadata.map(|body| body.0),
            labels: row.labels.map(Cow::into_owned).unwrap_or_default(),
            thread: owned(row.thread),
            parent: row.parent,
            root: row.root.unwrap_or(row.id),
            child_key: owned(row.child_key),
            depends_on: row.depends_on.map(Cow::into_owned).unwrap_or_default(),
            idempotency_key: owned(row.idempotency_key),
            exclusive_key: owned(row.exclusive_key),
            run_at: row.run_at.map_or(created_at, Timestamp::from),
            expires_at: row.expires_at.map(Timestamp::from),
            timeout_seconds: row.timeout_seconds,
            attempt: row.attempt,
            failures: row.failures,
            lease_losses: row.lease_losses,
            max_attempts: row.max_attempts.unwrap_or(ATTEMPTS),
            max_lease_losses: row.max_lease_losses.unwrap_or(LEASE_LOSSES),
            backoff: row.backoff.unwrap_or(BACKOFF),
            progress: row.progress.map(|body| body.0),
            waiting_for: row.waiting_for.map(Cow::into_owned),
            resumed_by: row.resumed_by.map(Cow::into_owned),
            cancel_requested: row.cancel_requested,
            traceparent: owned(row.traceparent),
            revision: row.revision,
            lease: row.lease.map(Cow::into_owned),
            created_at,
            updated_at: row.updated_at.map_or(created_at, Timestamp::from),
            started_at: row.started_at.map(Timestamp::from),
            finished_at: row.finished_at.map(Timestamp::from),
        };
        let oldest_at = row.oldest_at.map(Timestamp::from);
        Self {
            task,
            request: row.request,
            last_token: row.last_token,
            head: Head { last: row.last_event, oldest: row.oldest_event, oldest_at },
            turn: row.turn,
            open_dependencies: row.open_dependencies.map(Cow::into_owned).unwrap_or_default(),
            failed_by: row.failed_by,
            children: row.children,
            open_children: row.open_children,
            depth: row.depth,
            lease_seconds: row.lease_seconds,
            claim_key: owned(row.claim_key),
        }
    }
}
