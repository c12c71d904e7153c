//! Working on tasks: claimed or started, renewed, ended; what a worker appends and dispatches.

use axum::http::{HeaderValue, Method, StatusCode};
use serde::Deserialize;
use serde_json::json;
use statehold::wait::Wait;
use statehold::{Error, NewEvent, Seconds, StreamName, Task, TaskCreate, TaskId, Token};
use statehold_core::batch::Fence;
use statehold_core::call::{Claim, Claimed};
use statehold_core::command::{
    Appended, StreamAppend, TaskComplete, TaskFail, TaskRelease, TaskRenew, TaskStart, TaskSuspend,
};
use statehold_core::model::Event;
use statehold_core::wake::Topic;
use utoipa::ToSchema;

use super::streams::EventPage;
use super::tasks::{BulkReply, create_many};
use crate::access::tokens::{Issued, NewToken, Scope};
use crate::access::{Role, Rule};
use crate::asked::{Asked, json, ok};
use crate::live;
use crate::observe::TRACEPARENT;
use crate::problem::Answer;
use crate::route::{ACCESS, AFTER, BEFORE, LIMIT, Route};

/// Events that the owner of a task appends to its stream.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct OwnEvents {
    /// The token of the lease; those who orchestrate can do without.
    #[serde(default)]
    token: Option<Token>,
    /// What to append.
    events: Vec<NewEvent>,
    /// Only if this is the last sequence number.
    #[serde(default)]
    expect_seq: Option<u64>,
}

/// Tasks that a coordinator dispatches, each once.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Family {
    /// The token of the coordinator's lease.
    token: Token,
    /// Each with a `child_key` of its own, and without a parent.
    children: Vec<TaskCreate>,
}

/// A token for one thing alone.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewAccess {
    /// What it may do there: `viewer` or `agent`.
    role: Role,
    /// How long; 900 if left out, at most a day.
    #[serde(default)]
    ttl_seconds: Option<Seconds>,
    /// Which agent it is; the owner of the task's lease if left out.
    #[serde(default)]
    agent: Option<String>,
}

/// What can be said of a claim.
#[derive(ToSchema)]
#[schema(as = Claim)]
#[expect(dead_code, reason = "core reads it; this describes it")]
struct ClaimBody {
    /// From which queues, at most 100.
    queues: Vec<String>,
    /// For whom.
    owner: String,
    /// How many at most; 1 if left out.
    limit: Option<u32>,
    /// How long the leases are: 30 if left out, without end if null.
    lease_seconds: Option<Seconds>,
    /// How long to wait for something, at most 60.
    wait_seconds: Option<Seconds>,
}

pub(super) fn routes() -> Vec<Route> {
    let token = 1_769_846_400_000_000_i64;
    vec![
        Route::new(Method::POST, "/tasks/claim", Rule::Work, "Starts the first ready tasks of some queues.", claim)
            .takes::<ClaimBody>()
            .example(json!({ "queues": ["default"], "owner": "worker-1", "limit": 1, "lease_seconds": 30, "wait_seconds": 0 }))
            .answers::<Claimed>(StatusCode::OK),
        Route::command::<TaskStart>(Method::POST, "/tasks/{id}/start").example(json!({ "owner": "worker-1" })),
        Route::command::<TaskRenew>(Method::POST, "/tasks/{id}/renew")
            .example(json!({ "token": token, "progress": { "done": 3, "of": 7 } })),
        Route::command::<TaskComplete>(Method::POST, "/tasks/{id}/complete")
            .example(json!({ "token": token, "output": { "answer": 42 } })),
        Route::command::<TaskFail>(Method::POST, "/tasks/{id}/fail")
            .example(json!({ "token": token, "error": { "message": "the model did not answer", "code": "model" }, "retry": true })),
        Route::command::<TaskRelease>(Method::POST, "/tasks/{id}/release").example(json!({ "token": token })),
        Route::command::<TaskSuspend>(Method::POST, "/tasks/{id}/suspend")
            .example(json!({ "token": token, "waiting_for": { "signal": "approval" }, "timeout_seconds": 3600 })),
        Route::new(Method::POST, "/tasks/{id}/children", Rule::Write, "Dispatches subtasks, each once however often it is said.", children)
            .takes::<Family>()
            .example(json!({ "token": token, "children": [{ "child_key": "sources", "kind": "look-up" }] }))
            .answers::<BulkReply>(StatusCode::OK),
        Route::new(Method::POST, "/tasks/{id}/events", Rule::Write, "Appends to the stream of a task.", append)
            .takes::<OwnEvents>()
            .example(json!({ "token": token, "events": [{ "type": "thought", "data": "looking up the parcel" }] }))
            .answers::<Appended>(StatusCode::OK),
        Route::new(Method::GET, "/tasks/{id}/events", Rule::Read, "What happened to a task, and what its worker appended.", events)
            .query(&[AFTER, BEFORE, LIMIT, ACCESS])
            .lists::<EventPage<Event>, Event>()
            .answers_nothing(StatusCode::NO_CONTENT)
            .live(),
        Route::new(Method::POST, "/tasks/{id}/access", Rule::Orchestrate, "Makes a short-lived token for this task alone.", access)
            .takes::<NewAccess>()
            .example(json!({ "role": "viewer", "ttl_seconds": 900 }))
            .answers::<Issued>(StatusCode::CREATED),
    ]
}

async fn claim(asked: Asked) -> Answer {
    asked.unfenced()?;
    let mut fields = asked.fields()?;
    let most = Asked::wait_in(&mut fields)?;
    let mut claim: Claim = fields.read()?;
    claim.namespace = asked.hold.namespace().to_owned();
    claim.key = claim.key.map(|key| asked.own(&key)).or_else(|| asked.key());
    claim.check()?;
    asked.caller.is_itself(&claim.owner)?;
    let topics: Vec<_> = claim.queues.iter().cloned().map(Topic::Queue).collect();
    let (hold, claim, topics) = (&asked.hold, &claim, &topics);
    let taking = |most| async move {
        let mut wait = Wait::begin(hold, topics, Some(most)).await?;
        loop {
            let (leases, next_at) = hold.tasks().claim_now(claim.clone()).await?;
            if !leases.is_empty() || !wait.sleep(next_at).await {
                let tasks: Vec<_> = leases.iter().map(|lease| lease.task().clone()).collect();
                return Ok::<_, Error>((tasks, next_at));
            }
        }
    };
    let (tasks, next_at) = asked.waiting(most, taking).await?;
    let trace = match tasks.as_slice() {
        [task] => task.traceparent.as_deref().and_then(|trace| HeaderValue::from_str(trace).ok()),
        _ => None,
    };
    let mut response = ok(&Claimed { tasks, next_at })?;
    if let Some(trace) = trace {
        response.headers_mut().insert(TRACEPARENT, trace);
    }
    Ok(response)
}

async fn children(asked: Asked) -> Answer {
    let id = asked.task()?;
    let Family { token, mut children } = asked.body()?;
    for (index, child) in children.iter_mut().enumerate() {
        if child.parent.replace(id).is_some() || child.child_key.is_none() {
            let path = format!("children[{index}].child_key");
            return Err(
                Error::invalid(path, "a child has a child_key, and no parent: the path says it").into()
            );
        }
    }
    create_many(&asked, children, Some(Fence::Task { task: id, token })).await
}

async fn append(asked: Asked) -> Answer {
    let id = asked.task()?;
    let OwnEvents { token, events, expect_seq } = asked.body()?;
    let mut batch = asked.hold.batch();
    batch.fences.extend(token.map(|token| Fence::Task { task: id, token }));
    let append = StreamAppend { stream: StreamName::of_task(id), events, expect_seq };
    asked.run_in(batch, append).await?.answer(StatusCode::OK)
}

async fn events(asked: Asked) -> Answer {
    let id = asked.task()?;
    if asked.is_live() {
        return live::task(&asked, id).await;
    }
    existing(&asked, id).await?;
    super::streams::page(&asked, &StreamName::of_task(id)).await
}

async fn existing(asked: &Asked, id: TaskId) -> statehold::Result<Task> {
    asked.hold.tasks().get(id).await?.ok_or_else(|| Error::not_found("task", id))
}

async fn access(asked: Asked) -> Answer {
    let id = asked.task()?;
    let new: NewAccess = asked.body()?;
    let task = existing(&asked, id).await?;
    let agent = task.lease.map(|lease| lease.owner);
    issue(&asked, new, agent, Scope::Task(id)).await
}

/// How long a token for one thing is good unless said otherwise, and at most.
const ACCESS_LENGTH: (Seconds, Seconds) = (Seconds::new(900), Seconds::new(86_400));

/// Makes a token for one thing alone.
pub(super) async fn issue(asked: &Asked, new: NewAccess, agent: Option<String>, scope: Scope) -> Answer {
    asked.plain()?;
    let NewAccess { role, ttl_seconds, agent: named } = new;
    if !matches!(role, Role::Viewer | Role::Agent) {
        return Err(Error::invalid("role", "must be viewer or agent").into());
    }
    let ttl = ttl_seconds.unwrap_or(ACCESS_LENGTH.0);
    if ttl > ACCESS_LENGTH.1 {
        return Err(Error::invalid("ttl_seconds", format!("{ttl} s is more than a day")).into());
    }
    let agent = (role == Role::Agent).then(|| named.or(agent)).flatten();
    if role == Role::Agent && agent.is_none() {
        let hint = "start the task first, or say which agent the token is for";
        return Err(Error::invalid("agent", "nobody has the task").hint(hint).into());
    }
    let namespace = Some(asked.hold.namespace().to_owned());
    let new = NewToken { role, namespace, agent, name: None, ttl_seconds: Some(ttl), scope: Some(scope) };
    json(StatusCode::CREATED, &asked.app.callers.tokens().create(new, asked.caller.name()).await?)
}
