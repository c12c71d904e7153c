//! How the server is, and what it can do.

use axum::body::Body;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use serde::Serialize;
use statehold_core::backend::Health;
use utoipa::ToSchema;

use crate::access::Rule;
use crate::access::tokens::RESERVED;
use crate::asked::{Asked, json, ok};
use crate::problem::Answer;
use crate::route::Route;

/// That the process answers.
#[derive(Serialize, ToSchema)]
struct Live {
    /// Always `live`.
    status: &'static str,
}

/// Whether the server can do its work, part by part.
#[derive(Serialize, ToSchema)]
struct Readiness {
    /// Whether it can.
    ready: bool,
    /// The store, with its schema and push path; none if it cannot be reached.
    store: Option<Health>,
    /// Why the store cannot be reached.
    problem: Option<String>,
    /// Whether the server is about to stop.
    draining: bool,
}

pub(super) fn routes() -> Vec<Route> {
    let get = Method::GET;
    vec![
        Route::outside(
            get.clone(),
            "/health/live",
            Rule::Open,
            "Whether the process answers; asks no store.",
            live,
        )
        .answers::<Live>(StatusCode::OK),
        Route::outside(
            get.clone(),
            "/health/ready",
            Rule::Open,
            "Whether requests can be answered, part by part.",
            ready,
        )
        .answers::<Readiness>(StatusCode::OK)
        .answers::<Readiness>(StatusCode::SERVICE_UNAVAILABLE),
        Route::outside(get.clone(), "/metrics", Rule::Known, "What is counted, for Prometheus.", metrics)
            .raw("text/plain"),
        Route::outside(get.clone(), "/openapi.json", Rule::Open, "This description.", openapi)
            .answers::<statehold::Json>(StatusCode::OK),
        Route::outside(get, "/docs", Rule::Open, "The reference, as a page.", docs).raw("text/html"),
    ]
}

async fn live(_: Asked) -> Answer {
    ok(&Live { status: "live" })
}

async fn ready(asked: Asked) -> Answer {
    let draining = asked.app.draining.is_cancelled();
    let (store, problem) = match asked.hold.backend().health().await {
        Ok(health) => (Some(health), None),
        Err(error) => (None, Some(error.message().to_owned())),
    };
    let ready = store.is_some() && !draining;
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json(status, &Readiness { ready, store, problem, draining })
}

fn text(media: &'static str, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

async fn metrics(asked: Asked) -> Answer {
    let own = asked.caller.grant().and_then(|grant| grant.namespace.as_ref());
    let health = asked.hold.backend().health().await;
    let mut queues = Vec::new();
    // A store that does not answer is told of too.
    let namespaces = if health.is_ok() { asked.hold.backend().namespaces().await? } else { Vec::new() };
    for namespace in namespaces {
        if namespace != RESERVED && own.is_none_or(|own| *own == namespace) {
            let found = asked.hold.at(&namespace).queues().list().await?;
            queues.push((namespace, found));
        }
    }
    Ok(text("text/plain; version=0.0.4", asked.app.metrics.text(&queues, &health)?))
}

async fn openapi(asked: Asked) -> Answer {
    Ok(text("application/json", asked.app.openapi().to_owned()))
}

/// The page, which reads `/openapi.json`; nothing comes from elsewhere.
const PAGE: &str = include_str!("../../assets/docs.html");

async fn docs(_: Asked) -> Answer {
    let mut page = text("text/html; charset=utf-8", PAGE.to_owned());
    let policy =
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";
    page.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    Ok(page)
}
