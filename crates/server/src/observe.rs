//! What is noted of every request: an id, its trace, a line in the log, and what is counted.

use std::time::Instant;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use axum::response::Response;
use statehold::TaskId;

use crate::app::App;
#[cfg(feature = "otel")]
use crate::otel;
use crate::problem::Code;
use crate::route::Request;

/// The header with the id of a request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The header with the trace that a request is part of.
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The longest id that is taken over from a caller.
const LONGEST: usize = 128;

/// The trace that a request is part of. What is none, as W3C writes it, is passed over.
pub(crate) fn trace(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(TRACEPARENT)?.to_str().ok()?;
    let parts: Vec<_> = text.split('-').collect();
    let hex = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let said = |text: &str| text.bytes().any(|b| b != b'0');
    let [version, id, span, flags] = parts[..] else { return None };
    let lengths = [version.len(), id.len(), span.len(), flags.len()] == [2, 32, 16, 2];
    (lengths && parts.iter().all(|part| hex(part)) && version != "ff" && said(id) && said(span))
        .then_some(text)
}

/// What is known of a request before it is answered.
pub(crate) struct Noted {
    begun: Instant,
    id: Option<HeaderValue>,
    method: Method,
    uri: Uri,
    trace: Option<String>,
    #[cfg(feature = "otel")]
    span: tracing::Span,
}

impl Noted {
    /// Notes a request to a route.
    #[cfg_attr(not(feature = "otel"), expect(unused_variables, reason = "a span alone has its name"))]
    pub(crate) fn begin(request: &mut Request, route: &str) -> Self {
        let begun = Instant::now();
        #[cfg(feature = "otel")]
        let span = otel::begin(request, route);
        let headers = request.headers();
        let id = headers.get(&REQUEST_ID).filter(|id| id.len() <= LONGEST && id.to_str().is_ok()).cloned();
        let id = id.or_else(|| {
            let mut text = [0; 36];
            HeaderValue::from_str(TaskId::generate().0.as_hyphenated().encode_lower(&mut text)).ok()
        });
        let trace = trace(headers).map(str::to_owned);
        let (method, uri) = (request.method().clone(), request.uri().clone());
        Self {
            begun,
            id,
            method,
            uri,
            trace,
            #[cfg(feature = "otel")]
            span,
        }
    }

    /// The answering of the request, as a part of its span.
    #[cfg(feature = "otel")]
    pub(crate) fn within<F: Future>(&self, answering: F) -> tracing::instrument::Instrumented<F> {
        tracing::Instrument::instrument(answering, self.span.clone())
    }

    /// The answering of the request.
    #[cfg(not(feature = "otel"))]
    #[expect(clippy::unused_self, reason = "there is a span with the feature `otel`")]
    pub(crate) fn within<F: Future>(&self, answering: F) -> F {
        answering
    }

    /// Counts and logs how the request was answered, and gives the answer its id.
    pub(crate) fn end(self, app: &App, route: &str, mut response: Response) -> Response {
        let (status, took) = (response.status(), self.begun.elapsed());
        #[cfg(feature = "otel")]
        otel::end(&self.span, status);
        app.metrics.answered(self.method.as_str(), route, status.as_str(), took);
        let request_id = self.id.as_ref().and_then(|id| id.to_str().ok()).unwrap_or_default();
        let code = response.extensions().get::<Code>().map(|code| code.0.as_str()).unwrap_or_default();
        let Self { method, trace, .. } = &self;
        // The query is left out: a token may stand in it.
        let (status, path) = (status.as_u16(), self.uri.path());
        let millis = (took.as_secs_f64() * 1e6).round() / 1e3;
        if status >= 500 {
            tracing::error!(%method, path, status, code, millis, request_id, trace, "request");
        } else {
            tracing::info!(%method, path, status, code, millis, request_id, trace, "request");
        }
        if let Some(id) = self.id {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        response
    }
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
