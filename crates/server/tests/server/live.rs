//! Events arrive as they are made, and a client that comes back goes on exactly where it was.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use reqwest::Method;
use serde_json::{Value, json};
use statehold::{NewEvent, Statehold};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::harness::{Running, send};

/// A client that follows something.
struct Follower {
    chunks: std::pin::Pin<Box<dyn futures_util::Stream<Item = reqwest::Result<bytes::Bytes>> + Send>>,
    text: String,
}

/// One frame: its id, its name and its data.
#[derive(Debug, Default, PartialEq)]
struct Frame {
    id: String,
    event: String,
    data: Value,
    retry: String,
}

impl Follower {
    async fn new(request: reqwest::RequestBuilder) -> Self {
        let response = request.header("accept", "text/event-stream").send().await.expect("an answer");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { chunks: Box::pin(response.bytes_stream()), text: String::new() }
    }

    /// The next frame that is not a comment alone; none at the end.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let mut frame = Frame::default();
                for line in block.lines() {
                    match line.split_once(':').map(|(name, value)| (name, value.trim())) {
                        Some(("id", id)) => id.clone_into(&mut frame.id),
                        Some(("event", event)) => event.clone_into(&mut frame.event),
                        Some(("data", data)) => frame.data = serde_json::from_str(data).expect("good"),
                        Some(("retry", retry)) => retry.clone_into(&mut frame.retry),
                        _ => {}
                    }
                }
                self.text = rest.into();
                if frame != Frame::default() {
                    return Some(frame);
                }
            }
            let chunk =
                tokio::time::timeout(Duration::from_secs(60), self.chunks.next()).await.expect("comes");
            self.text.push_str(std::str::from_utf8(&chunk?.ok()?).expect("good"));
        }
    }
}

async fn append(hold: &Statehold, stream: &str, from: u64, count: u64) {
    let events =
        (from..from + count).map(|n| NewEvent::new("step").data(statehold::Json::of(&n).expect("good")));
    hold.streams().append(&stream.parse().expect("good"), events.collect()).await.expect("an answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_replayed_then_followed_and_resumed_without_gap_or_repeat() {
    let server = Running::start().await;
    append(&server.hold, "run/7", 1, 3).await;
    let path = "/streams/run/7/events";
    let mut follower = Follower::new(server.request(Method::GET, path)).await;
    for n in 1..=3 {
        let frame = follower.next().await.expect("a frame");
        assert_eq!((frame.id, &frame.data["data"]), (n.to_string(), &json!(n)));
    }
    append(&server.hold, "run/7", 4, 1).await;
    assert_eq!(follower.next().await.expect("a frame").id, "4");
    drop(follower);
    append(&server.hold, "run/7", 5, 2).await;
    let mut follower = Follower::new(server.request(Method::GET, path).header("last-event-id", "4")).await;
    assert_eq!(follower.next().await.expect("a frame").id, "5");
    assert_eq!(follower.next().await.expect("a frame").id, "6");
    let mut tail = Follower::new(server.request(Method::GET, &format!("{path}?after=latest"))).await;
    append(&server.hold, "run/7", 7, 1).await;
    assert_eq!(tail.next().await.expect("a frame").id, "7");
    server.post("/streams/run/7/trim", json!({ "to": { "after": 5 } })).await.is(200);
    let late = server.request(Method::GET, &format!("{path}?after=2")).header("accept", "text/event-stream");
    assert_eq!(send(late).await.refused(410, "compacted")["oldest"], "5");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_category_is_followed_by_its_positions() {
    let server = Running::start().await;
    append(&server.hold, "run/1", 1, 1).await;
    append(&server.hold, "run/2", 1, 1).await;
    let path = "/categories/run/events";
    let page = server.get(&format!("{path}?limit=1")).await.ok();
    let cursor = page["next_cursor"].as_str().expect("text");
    let mut follower = Follower::new(server.request(Method::GET, &format!("{path}?after={cursor}"))).await;
    let second = follower.next().await.expect("a frame");
    assert_eq!(second.data["stream"], "run/2");
    append(&server.hold, "run/1", 2, 1).await;
    let third = follower.next().await.expect("a frame");
    let mut again = Follower::new(server.request(Method::GET, path).header("last-event-id", second.id)).await;
    assert_eq!(again.next().await.expect("a frame"), third);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_a_task_end_with_it_and_past_the_end_there_is_nothing() {
    let server = Running::start().await;
    let (id, token) = server.leased().await;
    let path = format!("/tasks/{id}/events");
    let mut follower = Follower::new(server.request(Method::GET, &path)).await;
    assert_eq!(follower.next().await.expect("a frame").data["type"], "task.created");
    assert_eq!(follower.next().await.expect("a frame").data["type"], "task.started");
    server.post(&format!("/tasks/{id}/complete"), json!({ "token": token })).await.is(200);
    assert_eq!(follower.next().await.expect("a frame").data["type"], "task.completed");
    let end = follower.next().await.expect("a frame");
    assert_eq!((end.event.as_str(), end.id.as_str()), ("end", "3"));
    assert!(follower.next().await.is_none(), "it is over");
    let mut late = Follower::new(server.request(Method::GET, &format!("{path}?after=2"))).await;
    assert_eq!(late.next().await.expect("a frame").id, "3");
    assert_eq!(late.next().await.expect("a frame").event, "end");
    let past =
        server.request(Method::GET, &path).header("accept", "text/event-stream").header("last-event-id", "3");
    send(past).await.is(204);
    let none = server.request(Method::GET, "/tasks/0198c0de-0000-7000-8000-000000000000/events");
    send(none.header("accept", "text/event-stream")).await.refused(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_failed_and_was_retried_ends_when_it_ends() {
    let server = Running::start().await;
    let (id, token) = server.leased().await;
    let fail = json!({ "token": token, "error": { "message": "no" }, "retry": false });
    server.post(&format!("/tasks/{id}/fail"), fail).await.is(200);
    server.post(&format!("/tasks/{id}/retry"), json!({})).await.is(200);
    let mut follower = Follower::new(server.request(Method::GET, &format!("/tasks/{id}/events"))).await;
    let mut kinds = Vec::new();
    for _ in 0..4 {
        kinds.push(follower.next().await.expect("a frame").data["type"].as_str().expect("text").to_owned());
    }
    assert_eq!(kinds[2], "task.failed");
    server.post(&format!("/tasks/{id}/cancel"), json!({})).await.is(200);
    assert_eq!(follower.next().await.expect("a frame").data["type"], "task.cancelled");
    assert_eq!(follower.next().await.expect("a frame").event, "end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_drains_ends_streams_with_a_hint_when_to_come_back() {
    let mut server = Running::start().await;
    let mut messages = Follower::new(server.request(Method::GET, "/threads/42/messages")).await;
    server
        .post("/threads/42/messages", json!({ "messages": [{ "role": "user", "content": "hi" }] }))
        .await
        .is(200);
    assert_eq!(messages.next().await.expect("a frame").data["content"], "hi");
    server.stop().await;
    assert_eq!(messages.next().await.expect("a frame").retry, "1000");
    assert!(messages.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_process_appends_arrives() {
    let server = Running::start().await;
    let mut follower = Follower::new(server.request(Method::GET, "/streams/run/7/events")).await;
    // Another connection to the same store knows nothing of this process's wakes.
    append(&Statehold::open(&server.store.url).await.expect("an answer"), "run/7", 1, 1).await;
    assert_eq!(follower.next().await.expect("a frame").id, "1");
}

/// A reader that stalls: it asks, and takes nothing.
async fn stalled(address: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    // What the system would take in its stead is little.
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    let mut client = socket.connect(address.parse().expect("an address")).await.expect("a connection");
    let request = "GET /v1/default/streams/run/7/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n";
    client.write_all(request.as_bytes()).await.expect("it is sent");
    client
}

/// The number of the last whole event that a reader was sent before it was cut.
async fn last_before_the_cut(mut client: TcpStream) -> u64 {
    let mut bytes = Vec::new();
    let reading = client.read_to_end(&mut bytes);
    let _ = tokio::time::timeout(Duration::from_secs(60), reading).await.expect("it was cut");
    let text = String::from_utf8_lossy(&bytes);
    let whole = text.rsplit_once("\n\n").map_or("", |(whole, _)| whole);
    let ids = whole.lines().filter_map(|line| line.strip_prefix("id: ")?.parse::<u64>().ok());
    let ids: Vec<_> = ids.collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>(), "what came is the beginning");
    ids.len() as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_that_stall_are_cut_and_hinder_nobody_and_resume_exactly() {
    const STALLED: usize = 200;
    const EVENTS: u64 = 100;
    let server = Running::with(|config| config.patience = Duration::from_secs(1)).await;
    let body = statehold::Json::of(&"x".repeat(100_000)).expect("good");
    let stream = "run/7".parse().expect("good");
    let address = server.url.trim_start_matches("http://").to_owned();
    let mut slow = Vec::new();
    for _ in 0..STALLED {
        slow.push(stalled(&address).await);
    }
    let path = "/streams/run/7/events";
    let mut fast = Follower::new(server.request(Method::GET, path)).await;
    for n in 1..=EVENTS {
        let event = NewEvent::new("step").data(body.clone());
        server.hold.streams().append(&stream, vec![event]).await.expect("an answer");
        assert_eq!(fast.next().await.expect("a frame").id, n.to_string());
    }
    // One client is left, and it is the one that reads.
    let begun = Instant::now();
    while server.metric("statehold_sse_clients").await != "1" {
        assert!(begun.elapsed() < Duration::from_secs(60), "stalled readers are cut");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(server.metric("statehold_connections_cut_total").await, STALLED.to_string());
    append(&server.hold, "run/7", EVENTS + 1, 1).await;
    assert_eq!(fast.next().await.expect("a frame").id, (EVENTS + 1).to_string());
    for (which, client) in slow.into_iter().enumerate() {
        let last = last_before_the_cut(client).await;
        assert!(last < EVENTS, "it was cut before the end");
        let again = server.request(Method::GET, path).header("last-event-id", last.to_string());
        let mut again = Follower::new(again).await;
        // All go on exactly; that they also get to the end, some of them show.
        let until = if which % 20 == 0 { EVENTS + 1 } else { last + 1 };
        for n in last + 1..=until {
            assert_eq!(again.next().await.expect("a frame").id, n.to_string());
        }
    }
}

/// Sends something, and gives all that comes back until the connection ends.
async fn ask_until_the_end(client: &mut TcpStream, request: &str) -> String {
    client.write_all(request.as_bytes()).await.expect("it is sent");
    let mut text = String::new();
    let reading = tokio::time::timeout(Duration::from_secs(60), client.read_to_string(&mut text)).await;
    reading.expect("it is cut").expect("text");
    text
}

/// Asks whether the server lives, and takes the answer.
async fn ask_and_stay(client: &mut TcpStream) {
    client.write_all(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("it is sent");
    let mut some = [0; 4096];
    let count = client.read(&mut some).await.expect("an answer");
    assert!(some[..count].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&some[..count]));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_half_a_request_or_none_is_cut_and_who_waits_for_an_answer_is_not() {
    let server = Running::with(|config| config.patience = Duration::from_secs(1)).await;
    let address = server.url.trim_start_matches("http://");
    let path = "/v1/default/tasks";
    let half_a_head = format!("GET {path} HTTP/1.1\r\nhost: loc");
    let half_a_body = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{{\"kind\""
    );
    let wait = "{\"queues\": [\"q\"], \"owner\": \"w\", \"wait_seconds\": 3}";
    let long = format!(
        "POST {path}/claim HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{wait}",
        wait.len()
    );
    let requests =
        [(&half_a_head[..], ""), (&half_a_body, "HTTP/1.1 400"), ("", ""), (&long, "HTTP/1.1 200")];
    let one = async |(before, (request, answer)): (u32, (&str, &str))| {
        let mut client = TcpStream::connect(address).await.expect("a connection");
        for _ in 0..before {
            ask_and_stay(&mut client).await;
            tokio::time::sleep(Duration::from_millis(600)).await;
        }
        let said = ask_until_the_end(&mut client, request).await;
        assert!(said.starts_with(answer), "after {before}: {request} was answered {said}");
        assert_eq!(said.contains("did not come in time"), request == half_a_body, "{said}");
    };
    let all = (0..3).flat_map(|before| requests.map(|request| (before, request)));
    futures_util::future::join_all(all.map(one)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_on_which_nothing_happens_is_kept_alive_by_comments() {
    let server = Running::start().await;
    let address = server.url.trim_start_matches("http://").to_owned();
    let mut client = stalled(&address).await;
    let mut text = String::new();
    let comment = async {
        while !text.contains("\n:\n\n") {
            let mut some = [0; 1024];
            let count = client.read(&mut some).await.expect("it is read");
            assert_ne!(count, 0, "it stays open: {text}");
            text.push_str(std::str::from_utf8(&some[..count]).expect("text"));
        }
    };
    tokio::time::timeout(Duration::from_secs(60), comment).await.expect("a comment comes");
}
