//! What is noted of every request: an id, its trace, a line in the log, and what is counted.

use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use statehold::TaskId;
#[cfg(feature = "otel")]
use tracing::Instrument as _;

use crate::app::App;
#[cfg(feature = "otel")]
use crate::otel;
use crate::problem::Code;

/// The header with the id of a request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The header with the trace that a request is part of.
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The longest id that is taken over from a caller.
const LONGEST: usize = 128;

/// Notes every request that a router is asked.
pub(crate) fn layer(router: Router<App>, app: &App) -> Router<App> {
    router.layer(from_fn_with_state(app.clone(), note))
}

/// The trace that a request is part of. What is none, as W3C writes it, is passed over.
pub(crate) fn trace(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(TRACEPARENT)?.to_str().ok()?;
    let parts: Vec<_> = text.split('-').collect();
    let hex = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let said = |text: &str| text.bytes().any(|b| b != b'0');
    let [version, id, span, flags] = parts[..] else { return None };
    let lengths = [version.len(), id.len(), span.len(), flags.len()] == [2, 32, 16, 2];
    (lengths && parts.iter().all(|part| hex(part)) && version != "ff" && said(id) && said(span)).then_some(text)
}

#[cfg_attr(not(feature = "otel"), expect(unused_mut, reason = "only a span is noted in the request"))]
async fn note(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let id =
        request.headers().get(&REQUEST_ID).filter(|id| id.len() <= LONGEST && id.to_str().is_ok()).cloned();
    let id = id.or_else(|| HeaderValue::from_str(&TaskId::generate().to_string()).ok());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    #[cfg(feature = "otel")]
    let span = otel::begin(&mut request, route);
    // The query of it is not written: a token may stand there.
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let trace = trace(request.headers()).map(str::to_owned);
    let answering = next.run(request);
    #[cfg(feature = "otel")]
    let answering = answering.instrument(span.clone());
    let mut response = answering.await;
    let (status, took) = (response.status(), begun.elapsed());
    #[cfg(feature = "otel")]
    otel::end(&span, status);
    app.metrics.answered(method.as_str(), route, status.as_str(), took);
    let shown = id.as_ref().and_then(|id| id.to_str().ok()).unwrap_or_default();
    let code = response.extensions().get::<Code>().map(|code| code.0.as_str()).unwrap_or_default();
    let (status, path) = (status.as_u16(), uri.path());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_taken_over_only_as_it_is_defined() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        for (text, is) in [
            (good, true),
            ("", false),
            ("none", false),
            ("00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", false),
            ("00-00000000000000000000000000000000-b7ad6b7169203331-01", false),
            ("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", false),
            ("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false),
            ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331", false),
        ] {
            let headers = HeaderMap::from_iter([(TRACEPARENT, HeaderValue::from_str(text).expect("text"))]);
            assert_eq!(trace(&headers), is.then_some(text), "{text}");
        }
    }
}
