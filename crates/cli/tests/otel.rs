//! With the feature `otel`: spans of requests arrive at a collector, in the trace that the caller began.

mod programs;

use std::sync::{Arc, Mutex};

use programs::servers::{client, serve_with};
use programs::{Place, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What a collector was sent: the path of each request, and its body.
type Sent = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A collector that takes everything.
async fn collector() -> (String, Sent) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let sent = Sent::default();
    let kept = Arc::clone(&sent);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            tokio::spawn(take(stream, Arc::clone(&kept)));
        }
    });
    (url, sent)
}

/// Takes the requests of one connection.
async fn take(mut stream: TcpStream, sent: Sent) {
    let mut bytes = Vec::new();
    loop {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        let head = end.map(|end| String::from_utf8_lossy(&bytes[..end]).to_lowercase());
        let length = head.as_ref().map_or(0, |head| {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            length.expect("a length").trim().parse().expect("a number")
        });
        if let (Some(head), Some(end)) = (head, end.filter(|end| bytes.len() >= end + length)) {
            let path = head.split(' ').nth(1).expect("a path").to_owned();
            sent.lock().expect("no panic").push((path, bytes[end..end + length].to_vec()));
            bytes.drain(..end + length);
            let answer =
                b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer).await.expect("it reads");
        } else if stream.read_buf(&mut bytes).await.is_ok_and(|count| count == 0) {
            return;
        }
    }
}

fn hex(text: &str) -> Vec<u8> {
    let pairs = (0..text.len()).step_by(2).map(|at| &text[at..at + 2]);
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hex")).collect()
}

fn contains(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|some| some == part)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_a_span_of_its_callers_trace_and_the_task_carries_it_on() {
    let place = Place::new().await;
    let (endpoint, sent) = collector().await;
    let (run, url) = serve_with(&place, "127.0.0.1:0", &[], |command| {
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint).env("OTEL_SERVICE_NAME", "the-test");
    })
    .await;
    let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let create = client().post(format!("{url}/v1/default/tasks")).json(&json!({ "kind": "k" }));
    let create = create.header("traceparent", format!("00-{trace}-{parent}-01"));
    let answer = create.send().await.expect("an answer").text().await.expect("a body");
    let task: Value = serde_json::from_str(&answer).expect("JSON");
    let carried = task["task"]["traceparent"].as_str().expect("a trace");
    let parts: Vec<_> = carried.split('-').collect();
    assert_eq!(parts[1], trace, "the trace goes on");
    assert_ne!(parts[2], parent, "the span is the server's own");
    // What has not been sent yet is sent at the end.
    run.signal(Signal::TERM);
    run.ended_well().await;
    let of_the_create = || {
        let sent = sent.lock().expect("no panic");
        let has = |body: &Vec<u8>| {
            let ids = [hex(trace), hex(parent), hex(parts[2])];
            let names = ["POST /v1/{namespace}/tasks", "the-test", "http.response.status_code"];
            ids.iter().all(|id| contains(body, id))
                && names.iter().all(|name| contains(body, name.as_bytes()))
        };
        sent.iter().any(|(path, body)| path == "/v1/traces" && has(body))
    };
    eventually("the span arrives", of_the_create).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_collector_nothing_is_sent_and_nothing_is_missed() {
    let place = Place::new().await;
    let (run, url) = serve_with(&place, "127.0.0.1:0", &[], |_| {}).await;
    let create = client().post(format!("{url}/v1/default/tasks")).json(&json!({ "kind": "k" }));
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let create = create.header("traceparent", trace).send().await.expect("an answer");
    assert!(create.text().await.expect("a body").contains(trace));
    run.signal(Signal::TERM);
    run.ended_well().await;
}
