//! Several commands at once, all or nothing.

use axum::http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;
use statehold::{Batch, Json};
use statehold_core::batch::Fence;
use utoipa::ToSchema;

use crate::access::Rule;
use crate::asked::{Asked, ok, replayed};
use crate::problem::Answer;
use crate::route::Route;

/// Commands that happen together or not at all.
#[derive(Deserialize, ToSchema)]
#[expect(dead_code, reason = "core reads it; this describes it")]
struct BatchBody {
    /// Makes it safe to repeat, as the header does.
    key: Option<String>,
    /// What the caller must still hold.
    #[serde(default)]
    fences: Vec<Fence>,
    /// At most 1000, each `{"op": name, …}` with the body of its route and what its path says.
    commands: Vec<Json>,
}

/// What a batch answers.
#[derive(ToSchema)]
#[expect(dead_code, reason = "core writes it; this describes it")]
struct BatchReplies {
    /// One for each command, in order: what its route answers.
    replies: Vec<Json>,
}

pub(super) fn routes() -> [Route; 1] {
    let example = json!({
        "key": "order-7",
        "commands": [
            { "op": "task.create", "kind": "answer", "thread": "42" },
            { "op": "stream.append", "stream": "thread/42", "events": [{ "type": "message", "data": { "role": "user", "content": "Where is my parcel?" } }] },
            { "op": "document.put", "kind": "order", "name": "7", "body": { "state": "asked" }, "expect": "any" },
        ],
    });
    [Route::new(Method::POST, "/batch", Rule::Commands, "Applies commands together or not at all.", apply)
        .takes::<BatchBody>()
        .example(example)
        .answers::<BatchReplies>(StatusCode::OK)]
}

async fn apply(asked: Asked) -> Answer {
    let mut batch = Batch::from_json(asked.hold.namespace(), asked.text()?)?;
    batch.actor = asked.hold.batch().actor;
    if let Some(key) = &mut batch.key {
        key.key = asked.own(&key.key);
    }
    let replies = asked.apply(batch).await?;
    Ok(replayed(ok(&replies)?, replies.replayed))
}
