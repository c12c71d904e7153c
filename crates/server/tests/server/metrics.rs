//! What is counted is what happened: each figure is provoked.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;
use statehold_server::Role;

use crate::harness::{Running, send};

impl Running {
    /// Waits until something is counted.
    async fn counts(&self, name: &str, wanted: &str) {
        let begun = Instant::now();
        loop {
            let is = self.metric(name).await;
            if is == wanted {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{name} is {is} and not {wanted}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn how_full_queues_are_and_how_long_tasks_were_due() {
    let server = Running::start().await;
    let tasks = json!({ "tasks": [{ "kind": "a" }, { "kind": "b" }, { "kind": "c", "queue": "q\"\\" }] });
    server.post("/tasks/bulk", tasks).await.is(200);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let of = |queue: &str| format!("namespace=\"default\",queue=\"{queue}\"");
    assert_eq!(
        server.metric(&format!("statehold_queue_tasks{{{},status=\"pending\"}}", of("default"))).await,
        "2"
    );
    assert_eq!(server.metric(&format!("statehold_queue_claimable{{{}}}", of("q\\\"\\\\"))).await, "1");
    let oldest = server.metric(&format!("statehold_queue_oldest_pending_seconds{{{}}}", of("default"))).await;
    assert!(oldest.parse::<f64>().expect("a number") > 0.04, "{oldest}");
    server.post("/tasks/claim", json!({ "queues": ["default"], "owner": "w", "limit": 5 })).await.is(200);
    assert_eq!(server.metric("statehold_tasks_claimed_total").await, "2");
    assert_eq!(server.metric("statehold_claim_latency_seconds_count").await, "2");
    let due = server.metric("statehold_claim_latency_seconds_sum").await;
    assert!(due.parse::<f64>().expect("a number") > 0.08, "{due}");
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_that_were_lost_whoever_finds_them() {
    let start = json!({ "owner": "gone", "lease_seconds": 0.05 });
    let supervised = Running::start().await;
    let id = supervised.task().await;
    supervised.post(&format!("/tasks/{id}/start"), start.clone()).await.is(200);
    supervised.counts("statehold_lease_losses_total", "1").await;
    // Nobody sweeps here, so whoever asks for work finds it.
    let server = Running::with(|config| config.role = Role::Web).await;
    let id = server.task().await;
    server.post(&format!("/tasks/{id}/start"), start).await.is(200);
    let claim = json!({ "queues": ["default"], "owner": "next", "wait_seconds": 60 });
    assert_eq!(server.post("/tasks/claim", claim).await.ok()["tasks"][0]["id"], json!(id));
    assert_eq!(server.metric("statehold_lease_losses_total").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn fenced_writes_batches_and_the_time_of_the_store() {
    let server = Running::with(|config| config.role = Role::Web).await;
    assert_eq!(server.metric("statehold_fenced_writes_total").await, "0");
    let (id, token) = server.leased().await;
    server.post(&format!("/tasks/{id}/complete"), json!({ "token": token - 1 })).await.refused(409, "fenced");
    assert_eq!(server.metric("statehold_fenced_writes_total").await, "1");
    let events: Vec<_> = (0..7)
        .map(|n| json!({ "op": "stream.append", "stream": format!("run/{n}"), "events": [{ "type": "t" }] }))
        .collect();
    server.post("/batch", json!({ "commands": events })).await.is(200);
    // A create, a start, a refused complete, and the batch.
    assert_eq!(server.metric("statehold_batch_commands_count").await, "4");
    assert_eq!(server.metric("statehold_batch_commands_bucket{le=\"5\"}").await, "3");
    assert_eq!(server.metric("statehold_batch_commands_bucket{le=\"10\"}").await, "4");
    server.get("/entries/none").await.refused(404, "not_found");
    assert_eq!(server.metric("statehold_store_seconds_count{call=\"entry_get\"}").await, "1");
    assert_eq!(server.metric("statehold_store_seconds_count{call=\"apply\"}").await, "4");
    let asked = "{method=\"GET\",route=\"/v1/{namespace}/entries/{key}\"";
    assert_eq!(server.metric(&format!("statehold_http_requests_total{asked},status=\"404\"}}")).await, "1");
    assert_eq!(server.metric(&format!("statehold_http_request_seconds_count{asked}}}")).await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_follows_who_waits_and_how_the_store_is() {
    let server = Running::start().await;
    let follow = server.request(Method::GET, "/streams/run/7/events").header("accept", "text/event-stream");
    let following = follow.send().await.expect("an answer");
    server.counts("statehold_sse_clients", "1").await;
    drop(following);
    server.counts("statehold_sse_clients", "0").await;
    let waiting = tokio::spawn(send(server.request(Method::GET, "/results/7?wait_seconds=60")));
    server.counts("statehold_waiting_requests", "1").await;
    server.ask(Method::PUT, "/results/7", json!({ "value": 1 })).await.is(200);
    waiting.await.expect("no panic").is(200);
    server.counts("statehold_waiting_requests", "0").await;
    assert_ne!(server.metric("statehold_connections").await, "0");
    assert_eq!(server.metric("statehold_store_up").await, "1");
    assert_eq!(server.metric("statehold_push{state=\"ok\"}").await, "1");
}
