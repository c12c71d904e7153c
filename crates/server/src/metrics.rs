//! What is counted, for Prometheus.

use std::time::Instant;

use prometheus::{
    Encoder as _, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts,
    Registry, TextEncoder,
};
use statehold::{Error, Result};

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    /// Requests by route, method and status.
    pub(crate) requests: IntCounterVec,
    /// How long they took, by route.
    pub(crate) seconds: HistogramVec,
    /// How many commands batches have.
    batches: Histogram,
    /// How long the store took, by what it was asked.
    store: HistogramVec,
    /// Writes that were refused because their writer had lost its lease.
    pub(crate) fenced: IntCounter,
    /// Clients that follow events.
    pub(crate) live: Gauge,
    /// Clients that wait for an answer.
    pub(crate) waits: Gauge,
    /// Connections.
    pub(crate) connections: Gauge,
}

/// Something of which there are so many now.
#[derive(Clone, Debug)]
pub(crate) struct Gauge(IntGauge);

impl Gauge {
    /// One more, as long as the guard is there.
    pub(crate) fn guard(&self) -> Guard {
        self.0.inc();
        Guard(self.0.clone())
    }
}

/// One more of something.
#[derive(Debug)]
pub(crate) struct Guard(IntGauge);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::unsupported(format!("metrics: {error}"))
}

impl Metrics {
    pub(crate) fn new() -> Result<Self> {
        let registry = Registry::new();
        let counters = |name, help, labels: &[&str]| {
            let counters = IntCounterVec::new(Opts::new(name, help), labels).map_err(failed)?;
            registry.register(Box::new(counters.clone())).map_err(failed)?;
            Ok::<_, Error>(counters)
        };
        let times = |name, help, labels: &[&str]| {
            let times = HistogramVec::new(HistogramOpts::new(name, help), labels).map_err(failed)?;
            registry.register(Box::new(times.clone())).map_err(failed)?;
            Ok::<_, Error>(times)
        };
        let gauge = |name, help| {
            let gauge = IntGauge::new(name, help).map_err(failed)?;
            registry.register(Box::new(gauge.clone())).map_err(failed)?;
            Ok::<_, Error>(Gauge(gauge))
        };
        let sizes = vec![1.0, 2.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0];
        let batches = HistogramOpts::new("statehold_batch_commands", "Commands in a batch").buckets(sizes);
        let batches = Histogram::with_opts(batches).map_err(failed)?;
        registry.register(Box::new(batches.clone())).map_err(failed)?;
        let fenced =
            IntCounter::new("statehold_fenced_writes_total", "Writes refused as fenced").map_err(failed)?;
        registry.register(Box::new(fenced.clone())).map_err(failed)?;
        Ok(Self {
            requests: counters("statehold_http_requests_total", "Requests", &["method", "route", "status"])?,
            seconds: times("statehold_http_request_seconds", "How long requests took", &["method", "route"])?,
            store: times("statehold_store_seconds", "How long the store took", &["call"])?,
            live: gauge("statehold_sse_clients", "Clients that follow events")?,
            waits: gauge("statehold_waiting_requests", "Requests that wait for something")?,
            connections: gauge("statehold_connections", "Open connections")?,
            batches,
            fenced,
            registry,
        })
    }

    /// Counts a call of the store.
    pub(crate) async fn timed<T>(&self, call: &str, doing: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let done = doing.await;
        self.store.with_label_values(&[call]).observe(begun.elapsed().as_secs_f64());
        done
    }

    /// Counts a batch.
    pub(crate) async fn applied<T>(&self, commands: usize, applying: impl Future<Output = T>) -> T {
        self.batches.observe(f64::from(u32::try_from(commands).unwrap_or(u32::MAX)));
        self.timed("apply", applying).await
    }

    /// Everything, as Prometheus reads it.
    pub(crate) fn text(&self) -> Result<String> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).map_err(failed)?;
        String::from_utf8(text).map_err(failed)
    }
}
