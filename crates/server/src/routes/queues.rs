//! Queues: how full they are, who asks them for work, pausing.

use axum::http::{Method, StatusCode};
use serde_json::json;
use statehold::Error;
use statehold_core::command::QueueSet;
use statehold_core::model::QueueInfo;
use statehold_core::query::Page;

use crate::access::Rule;
use crate::asked::{Asked, ok};
use crate::problem::Answer;
use crate::route::Route;

pub(super) fn routes() -> [Route; 3] {
    [
        Route::new(Method::GET, "/queues", Rule::Read, "All queues, with depth, rate and who polls.", list)
            .lists::<Page<QueueInfo>, QueueInfo>(),
        Route::new(Method::GET, "/queues/{queue}", Rule::Read, "A queue.", get)
            .answers::<QueueInfo>(StatusCode::OK),
        Route::command::<QueueSet>(Method::PATCH, "/queues/{queue}").example(json!({ "paused": true })),
    ]
}

async fn list(asked: Asked) -> Answer {
    ok(&Page { items: asked.hold.queues().list().await?, next_cursor: None })
}

async fn get(asked: Asked) -> Answer {
    let name = asked.path("queue");
    let found = asked.hold.queues().list().await?.into_iter().find(|queue| queue.queue == name);
    ok(&found.ok_or_else(|| Error::not_found("queue", name))?)
}
