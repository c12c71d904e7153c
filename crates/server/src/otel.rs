//! Spans of requests, sent to an OpenTelemetry collector. Only with the feature `otel`.
//!
//! The standard variables say where and how: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER`
//! and the rest. Without an endpoint nothing is sent.

use axum::http::{HeaderValue, StatusCode};
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState, TracerProvider as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use statehold::{Error, Result};
use tokio_rustls::rustls::crypto::ring;
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::{Layer, Registry};

use crate::observe::{TRACEPARENT, trace};
use crate::route::Request;

/// The target of the spans that are sent; those of others, such as the exporter's own client, are not.
const TARGET: &str = "statehold::request";

/// Sends what it is given, until it is ended.
#[derive(Debug)]
pub struct Export(SdkTracerProvider);

/// What sees the spans.
pub type Spans = Box<dyn Layer<Registry> + Send + Sync>;

/// Begins to send spans, if the environment says where to.
pub fn export() -> Result<Option<(Export, Spans)>> {
    let said = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let endpoint = said("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| said("OTEL_EXPORTER_OTLP_ENDPOINT"));
    let off = said("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || said("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
    if endpoint.is_none() || off {
        return Ok(None);
    }
    // The exporter's client wants to know by what means it speaks TLS; someone may have said so before.
    let _ = ring::default_provider().install_default();
    let exporter = SpanExporter::builder().with_http().build().map_err(|e| {
        Error::invalid("OTEL_EXPORTER_OTLP_ENDPOINT", e.to_string()).hint("check the OTEL_* variables")
    })?;
    let mut resource = Resource::builder();
    if said("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name("statehold");
    }
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = resource.with_attribute(version).build();
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
    let spans = layer(&provider);
    Ok(Some((Export(provider), spans)))
}

fn layer(provider: &SdkTracerProvider) -> Spans {
    let ours = filter_fn(|seen| seen.is_span() && seen.target() == TARGET);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("statehold"));
    let layer = layer.with_location(false).with_threads(false).with_tracked_inactivity(false);
    Box::new(layer.with_filter(ours.with_max_level_hint(LevelFilter::DEBUG)))
}

impl Export {
    /// Sends what is left.
    pub async fn end(self) {
        // It waits for the collector, on a thread where waiting hinders nobody.
        let ended = tokio::task::spawn_blocking(move || self.0.shutdown()).await;
        if let Ok(Err(error)) = ended {
            tracing::warn!(%error, "not all spans could be sent");
        }
    }
}

/// The span of a request, in the trace that its caller began. From here on it is what others follow: the tasks that the
/// request creates carry it.
pub(crate) fn begin(request: &mut Request, route: &str) -> Span {
    let (method, path) = (request.method().as_str(), request.uri().path());
    let span = tracing::debug_span!(
        target: TARGET,
        "request",
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method,
        http.route = route,
        url.path = path,
        http.response.status_code = Empty,
    );
    if let Some(parent) = trace(request.headers()).and_then(remote) {
        // It can only fail for a span that nobody sees.
        let _ = span.set_parent(Context::new().with_remote_span_context(parent));
    }
    let context = span.context();
    let own = context.span().span_context().clone();
    if own.is_valid() {
        let flags = own.trace_flags().to_u8();
        let text = format!("00-{}-{}-{flags:02x}", own.trace_id(), own.span_id());
        if let Ok(text) = HeaderValue::from_str(&text) {
            request.headers_mut().insert(TRACEPARENT, text);
        }
    }
    span
}

fn remote(trace: &str) -> Option<SpanContext> {
    let mut parts = trace.split('-').skip(1);
    let id = TraceId::from_hex(parts.next()?).ok()?;
    let span = SpanId::from_hex(parts.next()?).ok()?;
    let flags = TraceFlags::new(u8::from_str_radix(parts.next()?, 16).ok()?);
    Some(SpanContext::new(id, span, flags, true, TraceState::default()))
}

/// Notes in the span of a request how it ended.
pub(crate) fn end(span: &Span, status: StatusCode) {
    span.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}
