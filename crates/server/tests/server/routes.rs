//! Every route does what the reference says.

use std::sync::Arc;

use reqwest::Method;
use serde_json::{Value, json};
use statehold_server::Tls;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::harness::{Running, send};

#[tokio::test(flavor = "multi_thread")]
async fn a_task_created_twice_is_made_once() {
    let server = Running::start().await;
    let create = json!({ "kind": "answer", "idempotency_key": "hook-7", "input": { "n": 1 } });
    let first = server.post("/tasks", create.clone()).await.is(201);
    let again = server.post("/tasks", create).await.is(200);
    assert_eq!((&first["created"], &again["created"]), (&json!(true), &json!(false)));
    assert_eq!(first["task"]["id"], again["task"]["id"]);
    let other = server.post("/tasks", json!({ "kind": "other", "idempotency_key": "hook-7" })).await;
    other.refused(409, "conflict");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_goes_from_create_to_completed_and_tells_its_story() {
    let server = Running::start().await;
    let id = server.task().await;
    assert_eq!(server.get(&format!("/tasks/{id}/why")).await.ok()["reasons"][0]["code"], "nobody_polls");
    let claim = json!({ "queues": ["default"], "owner": "w", "limit": 5, "wait_seconds": 1 });
    let claimed = server.post("/tasks/claim", claim.clone()).await.ok();
    assert_eq!(claimed["tasks"][0]["id"], json!(id));
    let token = claimed["tasks"][0]["lease"]["token"].clone();
    assert_eq!(
        server.post("/tasks/claim", json!({ "queues": ["default"], "owner": "w" })).await.ok()["tasks"],
        json!([])
    );
    let renewed =
        server.post(&format!("/tasks/{id}/renew"), json!({ "token": token, "progress": 0.5 })).await.ok();
    assert_eq!(renewed["cancel_requested"], false);
    let events = json!({ "token": token, "events": [{ "type": "thought", "data": "hm" }] });
    assert_eq!(server.post(&format!("/tasks/{id}/events"), events).await.ok()["first_seq"], 3);
    let done = server
        .post(&format!("/tasks/{id}/complete"), json!({ "token": token, "output": { "a": 1 } }))
        .await
        .ok();
    assert_eq!((&done["status"], &done["output"]), (&json!("completed"), &json!({ "a": 1 })));
    assert_eq!(server.get(&format!("/tasks/{id}/wait?wait_seconds=60")).await.ok()["status"], "completed");
    let events = server.get(&format!("/tasks/{id}/events")).await.ok();
    let kinds: Vec<_> =
        events["items"].as_array().expect("a list").iter().map(|event| event["type"].clone()).collect();
    assert_eq!(kinds, ["task.created", "task.started", "thought", "task.completed"]);
    let late =
        server.post(&format!("/tasks/{id}/renew"), json!({ "token": token })).await.refused(409, "fenced");
    assert!(!late.to_string().contains(&token.to_string()), "a token is told to nobody");
    server.ask(Method::DELETE, &format!("/tasks/{id}"), json!({})).await.is(200);
    server.get(&format!("/tasks/{id}")).await.refused(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_known_is_refused_with_its_name() {
    let server = Running::start().await;
    let problem = server.post("/tasks", json!({ "kind": "k", "kindd": 1 })).await.refused(400, "invalid");
    assert!(problem["detail"].as_str().expect("text").contains("kindd"), "{problem}");
    let problem = server.get("/tasks?statuss=pending").await.refused(400, "invalid");
    assert!(problem["detail"].as_str().expect("text").contains("statuss"), "{problem}");
    let problem = server
        .post("/locks/k/acquire", json!({ "owner": "me", "key": "other" }))
        .await
        .refused(400, "invalid");
    assert_eq!(problem["problems"][0]["path"], "key");
    let problem = server.post("/tasks", json!({ "kind": "" })).await.refused(400, "invalid");
    assert_eq!(problem["problems"], json!([{ "path": "kind", "message": "must not be empty" }]), "{problem}");
    server.get("//v1/default/nothing").await.refused(404, "not_found");
    let refused = server.ask(Method::PUT, "/tasks", json!({})).await;
    assert_eq!(refused.headers["allow"], "POST,GET,HEAD");
    refused.refused(405, "method_not_allowed");
    server.get("/tasks/%FF").await.refused(400, "invalid");
    server.get("/results/%FF").await.refused(400, "invalid");
    server.get("//v1/_statehold/documents/token").await.refused(400, "invalid");
    server.get("/tasks?limit=1001").await.refused(400, "invalid");
    server.get("/tasks/7").await.refused(400, "invalid");
    server.get("/tasks?cursor=x").await.refused(400, "invalid");
    server.get("/results/k?wait_seconds=61").await.refused(400, "invalid");
    send(server.request(Method::POST, "/tasks").body("{\"kind\":\"k\"}")).await.refused(400, "invalid");
    for body in ["[]", "[\"k\"]", "\"k\"", "null", "{\"kind\":\"k\"}{}", "{\"kind\":\"k\",\"kind\":\"l\"}"] {
        let request = server.request(Method::POST, "/tasks").header("content-type", "application/json");
        send(request.body(body)).await.refused(400, "invalid");
    }
    send(server.request(Method::POST, "/tasks").header("content-type", "application/json").body("{"))
        .await
        .refused(400, "invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_head_of_an_answer_can_be_had_alone() {
    let server = Running::start().await;
    server.post("/tasks", json!({ "kind": "k" })).await.is(201);
    let (whole, head) = (server.get("/tasks").await, send(server.request(Method::HEAD, "/tasks")).await);
    assert_eq!((head.status, head.body), (whole.status, json!("")));
    for name in ["content-length", "content-type"] {
        assert_eq!(head.headers[name], whole.headers[name], "{name}");
    }
    assert_eq!(send(server.request(Method::HEAD, "/tasks/bulk")).await.status, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_have_a_bound() {
    let server = Running::with(|config| config.max_body = 1000).await;
    server.post("/tasks", json!({ "kind": "k", "input": "x".repeat(2000) })).await.refused(413, "too_large");
    server.post("/tasks", json!({ "kind": "k", "input": "x".repeat(500) })).await.is(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_fence_refuses_any_change() {
    let server = Running::start().await;
    let (id, token) = server.leased().await;
    let fence = format!("task={id};token={token}");
    let put = |fence: &str| {
        let request = server.request(Method::PUT, "/documents/note/1").header("statehold-fence", fence);
        send(request.json(&json!({ "body": 1 })))
    };
    put(&fence).await.is(200);
    server.post(&format!("/tasks/{id}/evict"), json!({})).await.is(200);
    let problem = put(&fence).await.refused(409, "fenced");
    assert_eq!(problem["fence"], 0);
    assert_eq!(server.get("/documents/note/1").await.ok()["revision"], 1);
    put("task=7;token=x").await.refused(400, "invalid");
    let lock = server.post("/locks/a%2Fb/acquire", json!({ "owner": "me" })).await.ok();
    put(&format!("lock=a%2Fb;token={}", lock["token"])).await.is(200);
    put("lock=a%2Fb;token=1").await.refused(409, "fenced");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_change_answers_what_it_answered_first() {
    let server = Running::start().await;
    let append = |key: &'static str, n: u32| {
        let request = server.request(Method::POST, "/streams/run/7/events").header("idempotency-key", key);
        send(request.json(&json!({ "events": [{ "type": "step", "data": n }] })))
    };
    let first = append("k", 1).await;
    let again = append("k", 1).await;
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert!(!first.headers.contains_key("idempotency-replayed"));
    assert_eq!(first.ok(), again.ok());
    append("k", 2).await.refused(409, "conflict");
    assert_eq!(append("other", 2).await.ok()["last_seq"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_patch_is_made_once_also_when_others_wrote_meanwhile() {
    let server = Running::start().await;
    server
        .ask(Method::PUT, "/documents/project/1", json!({ "body": { "n": 1.10, "list": [1] } }))
        .await
        .is(200);
    let patch = |key: &'static str, media: &'static str, body: Value| {
        let request = server.request(Method::PATCH, "/documents/project/1").header("idempotency-key", key);
        send(request.header("content-type", media).body(body.to_string()))
    };
    let steps = json!([{ "op": "add", "path": "/list/-", "value": 2 }]);
    let first = patch("k", "application/json-patch+json", steps.clone()).await.is(200);
    server.ask(Method::PATCH, "/documents/project/1", json!({ "other": true })).await.is(200);
    let again = patch("k", "application/json-patch+json", steps).await;
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(again.is(200), first);
    patch("k", "application/json", json!({ "x": 1 })).await.refused(409, "conflict");
    let body = server.get("/documents/project/1").await.ok()["body"].clone();
    assert_eq!(body, json!({ "n": 1.10, "list": [1, 2], "other": true }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_is_written_only_as_it_is_expected() {
    let server = Running::start().await;
    let put = |name: &'static str, value: &'static str, body: Value| {
        send(
            server
                .request(Method::PUT, "/documents/project/1")
                .header(name, value)
                .json(&json!({ "body": body })),
        )
    };
    let first = put("if-none-match", "*", json!(1)).await;
    assert_eq!(first.headers["etag"], "\"1\"");
    assert_eq!(put("if-none-match", "*", json!(1)).await.refused(412, "precondition_failed")["revision"], 1);
    put("if-match", "\"1\"", json!(2)).await.is(200);
    put("if-match", "\"1\"", json!(3)).await.refused(412, "precondition_failed");
    put("if-match", "1", json!(3)).await.refused(400, "invalid");
    let known = server.request(Method::GET, "/documents/project/1").header("if-none-match", "\"2\"");
    assert_eq!(send(known).await.is(304), json!(""));
    let watching = server.request(Method::GET, "/documents/project/1?after_revision=2&wait_seconds=60");
    let watching = tokio::spawn(send(watching));
    server.ask(Method::PUT, "/documents/project/1", json!({ "body": 4 })).await.is(200);
    assert_eq!(watching.await.expect("an answer").ok()["body"], 4);
    let listed = server.get("/documents/project?prefix=1").await.ok();
    assert_eq!(listed["items"][0]["revision"], 3);
    assert_eq!(
        server.ask(Method::DELETE, "/documents/project/1", json!({})).await.ok(),
        json!({ "existed": true })
    );
    server.get("/documents/project/1").await.refused(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_come_back_as_they_were_sent_and_harm_no_browser() {
    let server = Running::start().await;
    let path = "/documents/picture/a%2Fb/content";
    let put =
        server.request(Method::PUT, path).header("content-type", "text/html").body(vec![0, 159, 146, 150]);
    send(put).await.is(200);
    let got = server.request(Method::GET, path).send().await.expect("an answer");
    assert_eq!(got.headers()["content-type"], "text/html");
    assert!(got.headers()["content-security-policy"].to_str().expect("good").contains("sandbox"));
    assert_eq!(got.bytes().await.expect("an answer").as_ref(), [0, 159, 146, 150]);
    server.ask(Method::PATCH, "/documents/picture/a%2Fb", json!({})).await.refused(409, "conflict");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_happens_as_a_whole_and_names_what_refused_it() {
    let server = Running::start().await;
    let (id, token) = server.leased().await;
    let batch = json!({
        "key": "b",
        "fences": [{ "task": id, "token": token }],
        "commands": [
            { "op": "task.complete", "id": id, "token": token, "output": 12_345_678_901_234_567_890_u64 },
            { "op": "stream.append", "stream": "thread/42", "events": [{ "type": "message" }] },
            { "op": "entry.set", "key": "result/7", "value": [], "ttl_seconds": 60 },
        ],
    });
    let replies = server.post("/batch", batch.clone()).await.ok();
    assert_eq!(replies["replies"][0]["status"], "completed");
    assert_eq!(replies["replies"][1], json!({ "first_seq": 1, "last_seq": 1 }));
    let again = server.post("/batch", batch).await;
    assert_eq!(again.headers["idempotency-replayed"], "true");
    let refused = json!({ "commands": [
        { "op": "entry.set", "key": "a", "value": 1 },
        { "op": "stream.append", "stream": "thread/42", "events": [{ "type": "m" }], "expect_seq": 9 },
    ] });
    assert_eq!(server.post("/batch", refused).await.refused(409, "conflict")["command"], 1);
    server.get("/entries/a").await.refused(404, "not_found");
    server.post("/batch", json!({ "commands": [{ "op": "no.such" }] })).await.refused(400, "invalid");
    assert_eq!(server.get("/results?key=7").await.ok()["value"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn children_are_dispatched_once_by_who_holds_the_parent() {
    let server = Running::start().await;
    let (id, token) = server.leased().await;
    let dispatch = json!({ "token": token, "children": [{ "kind": "look", "child_key": "a" }, { "kind": "look", "child_key": "b" }] });
    let path = format!("/tasks/{id}/children");
    let first = server.post(&path, dispatch.clone()).await.ok();
    let again = server.post(&path, dispatch).await.ok();
    assert_eq!(first["results"][1]["created"], true);
    assert_eq!(again["results"][1]["created"], false);
    assert_eq!(first["results"][1]["task"]["id"], again["results"][1]["task"]["id"]);
    server
        .post(&path, json!({ "token": 1, "children": [{ "kind": "look", "child_key": "c" }] }))
        .await
        .refused(409, "fenced");
    server
        .post(&path, json!({ "token": token, "children": [{ "kind": "look" }] }))
        .await
        .refused(400, "invalid");
    assert_eq!(
        server.get(&format!("/tasks?parent={id}")).await.ok()["items"].as_array().expect("a list").len(),
        2
    );
    let suspend = json!({ "token": token, "waiting_for": { "children": "all" } });
    assert_eq!(server.post(&format!("/tasks/{id}/suspend"), suspend).await.ok()["status"], "waiting");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_are_acted_on_and_counted() {
    let server = Running::start().await;
    let tasks: Vec<_> = (0..5).map(|n| json!({ "kind": "k", "labels": { "n": n.to_string() } })).collect();
    let made = server.post("/tasks/bulk", json!({ "tasks": tasks })).await.ok();
    let first = made["results"][0]["task"]["id"].clone();
    let act = |body: Value| server.post("/tasks/actions", body);
    let dry = act(json!({ "action": "park", "filter": {}, "dry_run": true })).await.ok();
    assert_eq!((&dry["matched"], &dry["done"]), (&json!(5), &json!(0)));
    assert_eq!(act(json!({ "action": "park", "filter": { "labels": { "n": "3" } } })).await.ok()["done"], 1);
    assert_eq!(act(json!({ "action": "cancel", "filter": { "status": ["pending"] } })).await.ok()["done"], 4);
    let refused = act(json!({ "action": "cancel", "ids": [first] })).await.ok();
    assert_eq!(refused["refused"][0]["code"], "invalid_transition");
    act(json!({ "action": "cancel" })).await.refused(400, "invalid");
    let listed = server.get("/tasks?status=cancelled&status=backlog&label=n:3").await.ok();
    assert_eq!(listed["items"].as_array().expect("a list").len(), 1);
    let page = server.get("/tasks?limit=2&order=created").await.ok();
    let next = server
        .get(&format!("/tasks?limit=2&cursor={}", page["next_cursor"].as_str().expect("text")))
        .await
        .ok();
    assert_ne!(page["items"][1]["id"], next["items"][0]["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_keep_what_is_said() {
    let server = Running::start().await;
    let made =
        server.post("/threads", json!({ "id": "42", "metadata": { "topic": "billing" } })).await.is(201);
    assert_eq!(server.post("/threads", json!({ "id": "42", "metadata": {} })).await.is(200), made);
    let say = json!({ "messages": [{ "role": "user", "content": "hi" }, { "role": "tool", "content": { "n": 1 }, "name": "t" }] });
    assert_eq!(server.post("/threads/42/messages", say).await.ok()["last_seq"], 2);
    let late = json!({ "messages": [{ "role": "user", "content": "x" }], "expect_seq": 1 });
    server.post("/threads/42/messages", late).await.refused(409, "conflict");
    let last = server.get("/threads/42/messages?limit=1").await.ok();
    assert_eq!((&last["items"][0]["name"], &last["next_cursor"]), (&json!("t"), &json!("2")));
    let before = server.get("/threads/42/messages?before=2").await.ok();
    assert_eq!(before["items"][0]["content"], "hi");
    let patched =
        server.ask(Method::PATCH, "/threads/42", json!({ "metadata": { "topic": null, "x": 1 } })).await.ok();
    assert_eq!(patched["metadata"], json!({ "x": 1 }));
    assert_eq!(server.get("/threads").await.ok()["items"][0]["id"], "42");
    server.ask(Method::DELETE, "/threads/42", json!({})).await.is(200);
    server.get("/threads/42").await.refused(404, "not_found");
    server.get("/threads/42/messages?after=1").await.refused(410, "compacted");
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_hand_out_each_event_until_it_is_acknowledged() {
    let server = Running::start().await;
    server
        .post("/streams/run/7/events", json!({ "events": [{ "type": "a" }, { "type": "b" }] }))
        .await
        .is(200);
    let source = json!({ "stream": "run/7" });
    let read = json!({ "source": source, "consumer": "c", "limit": 1 });
    let got = server.post("/groups/g/read", read).await.ok();
    let event = &got["events"][0];
    let delivery = json!([{ "position": event["position"], "delivery_token": event["delivery_token"] }]);
    let ack = json!({ "source": source, "deliveries": delivery });
    server.post("/groups/g/ack", ack.clone()).await.is(200);
    server.post("/groups/g/ack", ack).await.refused(409, "fenced");
    assert_eq!(server.get("/groups/g?stream=run/7").await.ok()["pending"], 0);
    server.post("/groups/g/seek", json!({ "source": source, "to": "oldest" })).await.is(200);
    server.get("/groups/none?category=run").await.refused(404, "not_found");
    server.get("/groups/g").await.refused(400, "invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_listed_and_paused() {
    let server = Running::start().await;
    server.task().await;
    assert_eq!(server.get("/queues").await.ok()["items"][0]["counts"]["pending"], 1);
    server.ask(Method::PATCH, "/queues/default", json!({ "paused": true })).await.is(200);
    assert_eq!(server.get("/queues/default").await.ok()["paused"], true);
    let claim = json!({ "queues": ["default"], "owner": "w" });
    assert_eq!(server.post("/tasks/claim", claim).await.ok()["tasks"], json!([]));
    server.get("/queues/none").await.refused(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_answered_as_soon_as_it_is_there() {
    let server = Running::start().await;
    let result = tokio::spawn(send(server.request(Method::GET, "/results/a%2Fb?wait_seconds=60")));
    let claim = json!({ "queues": ["default"], "owner": "w", "wait_seconds": 60 });
    let claimed = tokio::spawn(send(server.request(Method::POST, "/tasks/claim").json(&claim)));
    let lock = server.post("/locks/k/acquire", json!({ "owner": "a" })).await.ok();
    let wanted = json!({ "owner": "b", "wait_seconds": 60 });
    let acquired = tokio::spawn(send(server.request(Method::POST, "/locks/k/acquire").json(&wanted)));
    server.ask(Method::PUT, "/results/a%2Fb", json!({ "value": 7 })).await.is(200);
    assert_eq!(result.await.expect("an answer").ok()["value"], 7);
    let id = server.task().await;
    assert_eq!(claimed.await.expect("an answer").ok()["tasks"][0]["id"], json!(id));
    server.post("/locks/k/release", json!({ "token": lock["token"] })).await.is(200);
    assert!(acquired.await.expect("an answer").ok()["token"].as_i64() > lock["token"].as_i64());
    assert_eq!(server.get("/locks/k").await.ok()["owner"], "b");
    server.post("/locks/k/acquire", json!({ "owner": "c", "wait_seconds": 0.01 })).await.refused(409, "held");
    server.get("/results/none?wait_seconds=0.01").await.refused(404, "not_found");
    assert_eq!(server.post("/results/a%2Fb/take", json!({})).await.ok()["value"], 7);
    server.post("/results/a%2Fb/take", json!({})).await.refused(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_left_takes_nothing() {
    let server = Running::start().await;
    for _ in 0..20 {
        let claim = json!({ "queues": ["default"], "owner": "gone", "wait_seconds": 60 });
        let claiming = tokio::spawn(server.request(Method::POST, "/tasks/claim").json(&claim).send());
        while server.get("/queues").await.ok()["items"][0]["pollers"][0]["owner"] != "gone" {
            tokio::task::yield_now().await;
        }
        claiming.abort();
        let _ = claiming.await;
    }
    let id = server.task().await;
    let claim = json!({ "queues": ["default"], "owner": "here", "wait_seconds": 60 });
    assert_eq!(server.post("/tasks/claim", claim).await.ok()["tasks"][0]["id"], json!(id));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_goes_from_the_request_to_the_worker() {
    let server = Running::start().await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let create =
        server.request(Method::POST, "/tasks").header("traceparent", trace).json(&json!({ "kind": "k" }));
    assert_eq!(send(create).await.ok()["task"]["traceparent"], trace);
    let claimed = server.post("/tasks/claim", json!({ "queues": ["default"], "owner": "w" })).await;
    assert_eq!(claimed.headers["traceparent"], trace);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_tells_how_it_is() {
    let server = Running::start().await;
    server.task().await;
    assert_eq!(server.get("//health/live").await.ok()["status"], "live");
    let ready = server.get("//health/ready").await.ok();
    assert_eq!((&ready["ready"], &ready["store"]["durability"]), (&json!(true), &json!("durable")));
    let metrics = server.get("//metrics").await.ok().as_str().expect("text").to_owned();
    for line in [
        "statehold_queue_tasks{namespace=\"default\",queue=\"default\",status=\"pending\"} 1",
        "statehold_http_requests_total{method=\"POST\",route=\"/v1/{namespace}/tasks\",status=\"201\"} 1",
        "statehold_batch_commands_count 1",
        "statehold_store_up 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    let asked = server.request(Method::GET, "/queues").header("x-request-id", "mine");
    assert_eq!(send(asked).await.headers["x-request-id"], "mine");
    assert!(server.get("//docs").await.ok().as_str().expect("text").contains("<title>Statehold"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_told_to_stop_answers_who_waits_and_frees_its_leadership() {
    let mut server = Running::start().await;
    let claim = json!({ "queues": ["default"], "owner": "w", "wait_seconds": 60 });
    let claiming = tokio::spawn(send(server.request(Method::POST, "/tasks/claim").json(&claim)));
    let leads =
        async || server.hold.locks().get(statehold::supervisor::LEADER).await.expect("an answer").is_some();
    while !leads().await || server.get("/queues").await.ok()["items"] == json!([]) {
        tokio::task::yield_now().await;
    }
    server.stop().await;
    assert_eq!(claiming.await.expect("an answer").ok()["tasks"], json!([]));
    assert!(server.hold.locks().get(statehold::supervisor::LEADER).await.expect("an answer").is_none());
    assert!(server.request(Method::GET, "/queues").send().await.is_err(), "nobody listens any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_speaks_tls_with_the_certificate_that_it_is_given() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("good");
    let (certificate, key) = (made.cert.pem().into_bytes(), made.signing_key.serialize_pem().into_bytes());
    let server = Running::with(|config| config.tls = Some(Tls { certificate, key })).await;
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("good");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("good");
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let address = server.url.trim_start_matches("http://");
    let stream = tokio::net::TcpStream::connect(address).await.expect("an answer");
    let name = "localhost".try_into().expect("good");
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("an answer");
    stream
        .write_all(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await
        .expect("good");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("live"), "{answer}");
    assert!(server.request(Method::GET, "/tasks").send().await.is_err(), "without TLS there is no answer");
}
