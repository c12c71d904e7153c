//! How the server is, and what it can do.

use std::fmt::Write as _;

use axum::body::Body;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use serde::Serialize;
use statehold::Result;
use statehold_core::backend::Health;
use statehold_core::model::QueueInfo;
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
    let (store, problem) = match asked.app.metrics.timed("health", asked.hold.backend().health()).await {
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
    let mut page = asked.app.metrics.text()?;
    page.push_str("# TYPE statehold_queue_tasks gauge\n# TYPE statehold_queue_claimable gauge\n");
    page.push_str("# TYPE statehold_queue_oldest_pending_seconds gauge\n");
    let own = asked.caller.grant().and_then(|grant| grant.namespace.as_ref());
    for namespace in asked.hold.backend().namespaces().await? {
        if namespace != RESERVED && own.is_none_or(|own| *own == namespace) {
            queues(&mut page, &namespace, &asked.hold.at(&namespace).queues().list().await?);
        }
    }
    push_state(&mut page, &asked.hold.backend().health().await);
    Ok(text("text/plain; version=0.0.4", page))
}

/// How full the queues are, as of now.
fn queues(page: &mut String, namespace: &str, queues: &[QueueInfo]) {
    for queue in queues {
        let label = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels = format!("namespace=\"{}\",queue=\"{}\"", label(namespace), label(&queue.queue));
        for (status, count) in &queue.counts {
            let _ =
                writeln!(page, "statehold_queue_tasks{{{labels},status=\"{}\"}} {count}", status.as_str());
        }
        let _ = writeln!(page, "statehold_queue_claimable{{{labels}}} {}", queue.claimable);
        if let Some(oldest) = queue.oldest_pending_seconds {
            let _ = writeln!(page, "statehold_queue_oldest_pending_seconds{{{labels}}} {oldest}");
        }
    }
}

/// Whether the store answers, and whether wakes travel between processes.
fn push_state(page: &mut String, health: &Result<Health>) {
    let up = u8::from(health.is_ok());
    let _ = writeln!(page, "# TYPE statehold_store_up gauge\nstatehold_store_up {up}");
    if let Ok(health) = health {
        let state = serde_json::to_value(health.push).unwrap_or_default();
        let state = state.as_str().unwrap_or_default().to_owned();
        let _ = writeln!(page, "# TYPE statehold_push gauge\nstatehold_push{{state=\"{state}\"}} 1");
        if let Some(ephemeral) = &health.ephemeral {
            let up = u8::from(ephemeral.away.is_none());
            let _ = writeln!(page, "# TYPE statehold_ephemeral_up gauge\nstatehold_ephemeral_up {up}");
            let _ = writeln!(page, "# TYPE statehold_ephemeral_fallbacks_total counter");
            let _ = writeln!(page, "statehold_ephemeral_fallbacks_total {}", ephemeral.fallbacks);
        }
    }
}

async fn openapi(asked: Asked) -> Answer {
    Ok(text("application/json", asked.app.openapi.clone()))
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
