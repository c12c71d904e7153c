//! What is counted, for Prometheus.

use std::time::{Duration, Instant};

use prometheus::core::Collector;
use prometheus::{
    Encoder as _, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    Opts, Registry, TextEncoder,
};
use statehold::{Error, Result};
use statehold_core::backend::Health;
use statehold_core::model::{QueueInfo, Task};

/// The bounds of times that are told apart, in seconds.
const TIMES: [f64; 16] =
    [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// The same of times that tasks wait for.
const WAITS: [f64; 12] = [1e-3, 5e-3, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 600.0, 3600.0];
/// The sizes of batches that are told apart.
const SIZES: [f64; 8] = [1.0, 2.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0];

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    seconds: HistogramVec,
    batches: Histogram,
    store: HistogramVec,
    claimed: IntCounter,
    latency: Histogram,
    /// Leases that ended without a word.
    pub(crate) lost: IntCounter,
    /// Writes that were refused because their writer had lost its lease.
    pub(crate) fenced: IntCounter,
    /// Clients that follow events.
    pub(crate) live: Gauge,
    /// Clients that wait for an answer.
    pub(crate) waits: Gauge,
    /// Connections.
    pub(crate) connections: Gauge,
    /// Connections that were cut because their reader took nothing.
    pub(crate) cut: IntCounter,
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

fn kept<C: Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<C>) -> Result<C> {
    let made = made.map_err(failed)?;
    registry.register(Box::new(made.clone())).map_err(failed)?;
    Ok(made)
}

impl Metrics {
    pub(crate) fn new() -> Result<Self> {
        let registry = Registry::new();
        let count = |name, help| kept(&registry, IntCounter::new(name, help));
        let gauge = |name, help| kept(&registry, IntGauge::new(name, help)).map(Gauge);
        let spread = |name, help, bounds: &[f64]| {
            let made = Histogram::with_opts(HistogramOpts::new(name, help).buckets(bounds.to_vec()));
            kept(&registry, made)
        };
        let times = |name, help, labels: &[&str]| {
            kept(&registry, HistogramVec::new(HistogramOpts::new(name, help).buckets(TIMES.to_vec()), labels))
        };
        let requests = Opts::new("statehold_http_requests_total", "Requests that were answered");
        let requests = IntCounterVec::new(requests, &["method", "route", "status"]);
        Ok(Self {
            requests: kept(&registry, requests)?,
            seconds: times("statehold_http_request_seconds", "How long requests took", &["method", "route"])?,
            batches: spread("statehold_batch_commands", "Commands in a batch", &SIZES)?,
            store: times("statehold_store_seconds", "How long the store took", &["call"])?,
            claimed: count("statehold_tasks_claimed_total", "Tasks that were claimed")?,
            latency: spread(
                "statehold_claim_latency_seconds",
                "How long claimed tasks had been due",
                &WAITS,
            )?,
            lost: count("statehold_lease_losses_total", "Leases found to have ended without a word")?,
            fenced: count("statehold_fenced_writes_total", "Writes refused as fenced")?,
            live: gauge("statehold_sse_clients", "Clients that follow events")?,
            waits: gauge("statehold_waiting_requests", "Requests that wait for something")?,
            connections: gauge("statehold_connections", "Open connections")?,
            cut: count("statehold_connections_cut_total", "Connections cut because nobody read")?,
            registry,
        })
    }

    /// Counts a request that was answered.
    pub(crate) fn answered(&self, method: &str, route: &str, status: &str, took: Duration) {
        self.requests.with_label_values(&[method, route, status]).inc();
        self.seconds.with_label_values(&[method, route]).observe(took.as_secs_f64());
    }

    /// Counts a call of the store.
    pub(crate) async fn timed<T>(&self, call: &str, doing: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let done = doing.await;
        self.store.with_label_values(&[call]).observe(begun.elapsed().as_secs_f64());
        done
    }

    /// Counts a batch that a caller sent.
    pub(crate) fn applied(&self, commands: usize) {
        self.batches.observe(f64::from(u32::try_from(commands).unwrap_or(u32::MAX)));
    }

    /// Counts a task that was claimed.
    pub(crate) fn claimed(&self, task: &Task) {
        self.claimed.inc();
        let Some(lease) = &task.lease else { return };
        self.latency.observe(Duration::from(lease.started_at.since(task.run_at)).as_secs_f64());
        // Its lease had ended, this claim found it, and took the task over at once.
        let taken_over =
            task.lease_losses > 0 && task.run_at == lease.started_at && task.resumed_by.is_none();
        self.lost.inc_by(taken_over.into());
    }

    /// Everything, as Prometheus reads it.
    pub(crate) fn text(
        &self,
        queues: &[(String, Vec<QueueInfo>)],
        health: &Result<Health>,
    ) -> Result<String> {
        let now = Registry::new();
        depths(&now, queues)?;
        push_state(&now, health)?;
        let mut text = Vec::new();
        for registry in [&self.registry, &now] {
            TextEncoder::new().encode(&registry.gather(), &mut text).map_err(failed)?;
        }
        String::from_utf8(text).map_err(failed)
    }
}

fn gauges(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<GaugeVec> {
    kept(registry, GaugeVec::new(Opts::new(name, help), labels))
}

/// How full the queues are, as of now.
fn depths(now: &Registry, queues: &[(String, Vec<QueueInfo>)]) -> Result<()> {
    let of = ["namespace", "queue"];
    let tasks = gauges(now, "statehold_queue_tasks", "Tasks by status", &["namespace", "queue", "status"])?;
    let claimable = gauges(now, "statehold_queue_claimable", "Tasks that can be claimed now", &of)?;
    let help = "How long the oldest of them has been due";
    let oldest = gauges(now, "statehold_queue_oldest_pending_seconds", help, &of)?;
    for (namespace, queue) in queues.iter().flat_map(|(name, all)| all.iter().map(move |q| (name, q))) {
        for (status, count) in &queue.counts {
            let labels = [namespace.as_str(), &queue.queue, status.as_str()];
            tasks.with_label_values(&labels).set(number(*count));
        }
        let labels = [namespace.as_str(), &queue.queue];
        claimable.with_label_values(&labels).set(number(queue.claimable));
        let age = queue.oldest_pending_seconds.map_or(0.0, |age| Duration::from(age).as_secs_f64());
        oldest.with_label_values(&labels).set(age);
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a float; what is lost is far below a percent")]
fn number(count: u64) -> f64 {
    count as f64
}

/// Whether the store answers, and whether wakes travel between processes.
fn push_state(now: &Registry, health: &Result<Health>) -> Result<()> {
    let up = gauges(now, "statehold_store_up", "Whether the store answers", &[])?;
    up.with_label_values::<&str>(&[]).set(f64::from(u8::from(health.is_ok())));
    let push = gauges(now, "statehold_push", "How wakes travel between processes", &["state"])?;
    if let Ok(health) = health {
        let state = serde_json::to_value(health.push).unwrap_or_default();
        push.with_label_values(&[state.as_str().unwrap_or_default()]).set(1.0);
        if let Some(ephemeral) = &health.ephemeral {
            let up = gauges(
                now,
                "statehold_ephemeral_up",
                "Whether the store of short-lived things answers",
                &[],
            )?;
            up.with_label_values::<&str>(&[]).set(f64::from(u8::from(ephemeral.away.is_none())));
            let help = "How often the durable store was taken instead of it";
            let fallbacks = kept(now, IntCounter::new("statehold_ephemeral_fallbacks_total", help))?;
            fallbacks.inc_by(ephemeral.fallbacks);
        }
    }
    Ok(())
}
