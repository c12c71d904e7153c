//! What operators, orchestrators and admins did.

use axum::http::Method;
use statehold_core::model::{AUDIT_CATEGORY, Event};
use statehold_core::query::Page;

use super::streams::read_category;
use crate::access::Rule;
use crate::asked::Asked;
use crate::problem::Answer;
use crate::route::{AFTER, LIMIT, Route};

pub(super) fn routes() -> [Route; 2] {
    [
        Route::new(
            Method::GET,
            "/audit",
            Rule::Read,
            "What operators and orchestrators did in this namespace.",
            read,
        )
        .query(&[AFTER, LIMIT])
        .lists::<Page<Event>, Event>()
        .live(),
        Route::outside(Method::GET, "/v1/audit", Rule::Administer, "What was done to tokens.", read)
            .query(&[AFTER, LIMIT])
            .lists::<Page<Event>, Event>()
            .live(),
    ]
}

async fn read(asked: Asked) -> Answer {
    read_category(&asked, AUDIT_CATEGORY.to_owned()).await
}
