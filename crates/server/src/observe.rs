//! What is noted of every request: an id, a line in the log, and what is counted.

use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use statehold::TaskId;

use crate::app::App;
use crate::problem::Code;

/// The header with the id of a request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest id that is taken over from a caller.
const LONGEST: usize = 128;

/// Notes every request that a router is asked.
pub(crate) fn layer(router: Router<App>, app: &App) -> Router<App> {
    router.layer(from_fn_with_state(app.clone(), note))
}

async fn note(State(app): State<App>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let id =
        request.headers().get(&REQUEST_ID).filter(|id| id.len() <= LONGEST && id.to_str().is_ok()).cloned();
    let id = id.or_else(|| HeaderValue::from_str(&TaskId::generate().to_string()).ok());
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let method = request.method().clone();
    // The query is left out: a token may stand in it.
    let path = request.uri().path().to_owned();
    let trace = request.headers().get("traceparent").and_then(|trace| trace.to_str().ok()).map(str::to_owned);
    let mut response = next.run(request).await;
    let (status, took) = (response.status(), begun.elapsed());
    app.metrics.requests.with_label_values(&[method.as_str(), &route, status.as_str()]).inc();
    app.metrics.seconds.with_label_values(&[method.as_str(), &route]).observe(took.as_secs_f64());
    let shown = id.as_ref().and_then(|id| id.to_str().ok()).unwrap_or_default();
    let code = response.extensions().get::<Code>().map(|code| code.0.as_str()).unwrap_or_default();
    let status = status.as_u16();
    let millis = took.as_secs_f64() * 1000.0;
    if status >= 500 {
        tracing::error!(%method, path, status, code, millis, request_id = shown, trace, "request");
    } else {
        tracing::info!(%method, path, status, code, millis, request_id = shown, trace, "request");
    }
    if let Some(id) = id {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}
