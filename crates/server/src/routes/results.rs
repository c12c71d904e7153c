//! Results: what one who works hands to one who waits. They are entries under `result/`.

use axum::http::{Method, StatusCode};
use serde::Serialize;
use serde_json::json;
use statehold::{Error, Json, Timestamp};
use statehold_core::command::{EntryDelete, EntryExpiry, EntrySet, EntryTake, Existed};
use statehold_core::model::Entry;
use utoipa::ToSchema;

use crate::access::Rule;
use crate::asked::{Asked, Reply, ok};
use crate::problem::Answer;
use crate::route::{Kind, Param, Route, WAIT};

/// A result.
#[derive(Serialize, ToSchema)]
struct ResultValue {
    /// Its key.
    key: String,
    /// What was handed over.
    value: Json,
    /// When it goes.
    expires_at: Timestamp,
}

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::PUT,
            "/results/{key}",
            Rule::Work,
            "Hands over a result, for an hour unless said otherwise.",
            put,
        )
        .takes_without::<EntrySet>(&["key"])
        .example(json!({ "value": { "answer": 42 }, "ttl_seconds": 3600, "if_absent": false }))
        .answers::<EntryExpiry>(StatusCode::OK),
        Route::new(Method::GET, "/results/{key}", Rule::Read, "A result, as soon as it is there.", get)
            .query(&[WAIT])
            .answers::<ResultValue>(StatusCode::OK),
        Route::new(Method::GET, "/results", Rule::Read, "A result by its key in the query.", get)
            .query(const { &[Param::new("key", Kind::Text, "Which result."), WAIT] })
            .answers::<ResultValue>(StatusCode::OK),
        Route::new(
            Method::POST,
            "/results/{key}/take",
            Rule::Write,
            "Takes a result away; of many takers one gets it.",
            take,
        )
        .answers::<ResultValue>(StatusCode::OK),
        Route::new(Method::DELETE, "/results/{key}", Rule::Write, "Removes a result.", delete)
            .answers::<Existed>(StatusCode::OK),
    ]
}

const PREFIX: &str = "result/";

fn name(asked: &Asked) -> String {
    format!("{PREFIX}{}", asked.query("key").unwrap_or_else(|| asked.path("key")))
}

fn result(entry: Entry) -> ResultValue {
    let Entry { key, value, expires_at, .. } = entry;
    ResultValue { key: key.trim_start_matches(PREFIX).to_owned(), value, expires_at }
}

fn missing(asked: &Asked) -> Error {
    Error::not_found("result", name(asked).trim_start_matches(PREFIX)).hint("wait for it with wait_seconds")
}

async fn put(asked: Asked) -> Answer {
    let mut fields = asked.fields()?;
    fields.give("key", &name(&asked))?;
    asked.run(fields.read::<EntrySet>()?).await?.answer(StatusCode::OK)
}

async fn get(asked: Asked) -> Answer {
    let key = name(&asked);
    let entry = asked.waiting(asked.wait()?, |most| asked.hold.entries().wait(&key, Some(most))).await?;
    ok(&result(entry.ok_or_else(|| missing(&asked))?))
}

async fn take(asked: Asked) -> Answer {
    let Reply { value, replayed } = asked.run(EntryTake { key: name(&asked) }).await?;
    let value = result(value.entry.ok_or_else(|| missing(&asked))?);
    Reply { value, replayed }.answer(StatusCode::OK)
}

async fn delete(asked: Asked) -> Answer {
    asked.run(EntryDelete { key: name(&asked) }).await?.answer(StatusCode::OK)
}
