//! Entries: values with a time to live, to be read. Batches change them.

use axum::http::{Method, StatusCode};
use statehold::Error;
use statehold_core::model::Entry;
use statehold_core::query::Page;

use crate::access::Rule;
use crate::asked::{Asked, ok};
use crate::problem::Answer;
use crate::route::{CURSOR, LIMIT, PREFIX, Route, WAIT};

pub(super) fn routes() -> [Route; 2] {
    [
        Route::new(Method::GET, "/entries", Rule::Read, "Lists entries.", list)
            .query(&[PREFIX, LIMIT, CURSOR])
            .lists::<Page<Entry>, Entry>(),
        Route::new(Method::GET, "/entries/{key}", Rule::Read, "An entry, as soon as it is there.", get)
            .query(&[WAIT])
            .answers::<Entry>(StatusCode::OK),
    ]
}

async fn list(asked: Asked) -> Answer {
    ok(&asked.hold.entries().list(&super::key_list(&asked)?).await?)
}

async fn get(asked: Asked) -> Answer {
    let key = asked.path("key");
    let entry = asked.waiting(asked.wait()?, |most| asked.hold.entries().wait(key, Some(most))).await?;
    ok(&entry.ok_or_else(|| Error::not_found("entry", key))?)
}
