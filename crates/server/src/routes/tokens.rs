//! Tokens and namespaces, for admins; and who one is.

use axum::http::{Method, StatusCode};
use serde::Serialize;
use serde_json::json;
use statehold_core::query::Page;
use utoipa::ToSchema;

use crate::access::Rule;
use crate::access::tokens::{Grant, Issued, NewToken, RESERVED};
use crate::asked::{Asked, json, ok};
use crate::problem::Answer;
use crate::route::Route;

/// Who asks.
#[derive(Serialize, ToSchema)]
struct Whoami {
    /// Whether a token is needed, and one came with the request.
    authenticated: bool,
    /// What the token is for.
    grant: Option<Grant>,
}

/// A namespace.
#[derive(Serialize, ToSchema)]
struct Namespace {
    /// Its name.
    namespace: String,
}

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::outside(Method::GET, "/v1/whoami", Rule::Known, "Who asks, and what it may do.", whoami)
            .answers::<Whoami>(StatusCode::OK),
        Route::outside(
            Method::POST,
            "/v1/tokens",
            Rule::Administer,
            "Makes a token. This is the only time that it is shown.",
            create,
        )
        .takes::<NewToken>()
        .example(
            json!({ "role": "agent", "agent": "worker-1", "namespace": "default", "ttl_seconds": 86400 }),
        )
        .answers::<Issued>(StatusCode::CREATED),
        Route::outside(
            Method::GET,
            "/v1/tokens",
            Rule::Administer,
            "All tokens, without their secrets.",
            list,
        )
        .lists::<Page<Grant>, Grant>(),
        Route::outside(Method::DELETE, "/v1/tokens/{id}", Rule::Administer, "Ends a token.", revoke)
            .answers::<Grant>(StatusCode::OK),
        Route::outside(
            Method::GET,
            "/v1/namespaces",
            Rule::Administer,
            "All namespaces in which there is anything.",
            namespaces,
        )
        .lists::<Page<Namespace>, Namespace>(),
    ]
}

async fn whoami(asked: Asked) -> Answer {
    let grant = asked.caller.grant().cloned();
    ok(&Whoami { authenticated: grant.is_some(), grant })
}

async fn create(asked: Asked) -> Answer {
    asked.plain()?;
    let new: NewToken = asked.body()?;
    json(StatusCode::CREATED, &asked.app.callers.tokens().create(new, asked.caller.name()).await?)
}

async fn list(asked: Asked) -> Answer {
    ok(&Page { items: asked.app.callers.tokens().list().await?, next_cursor: None })
}

async fn revoke(asked: Asked) -> Answer {
    asked.plain()?;
    ok(&asked.app.callers.tokens().revoke(asked.path("id")).await?)
}

async fn namespaces(asked: Asked) -> Answer {
    let names = asked.hold.backend().namespaces().await?;
    let items = names.into_iter().filter(|name| name != RESERVED).map(|namespace| Namespace { namespace });
    ok(&Page { items: items.collect(), next_cursor: None })
}
