//! `statehold serve` in processes of its own, ended gently and killed.

use crate::programs::Place;
use crate::programs::servers::{Load, client, serve, serve_with};
use rustix::process::Signal;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_drains_when_it_is_told_to_end() {
    let place = Place::new().await;
    let (run, url) = serve(&place, "127.0.0.1:0", &["--grace", "20s"]).await;
    let follow =
        client().get(format!("{url}/v1/default/streams/run/7/events")).header("accept", "text/event-stream");
    let events = follow.send().await.expect("an answer");
    let claim = json!({ "queues": ["default"], "owner": "w", "wait_seconds": 60 });
    let claim = client().post(format!("{url}/v1/default/tasks/claim")).json(&claim);
    let claiming =
        tokio::spawn(async move { claim.send().await.expect("an answer").text().await.expect("a body") });
    let polled = async || !place.hold.queues().list().await.expect("queues").is_empty();
    while !polled().await {
        tokio::task::yield_now().await;
    }
    run.signal(Signal::TERM);
    assert!(events.text().await.expect("the rest").contains("retry: 1000"));
    assert!(claiming.await.expect("an end").contains("\"tasks\":[]"));
    run.ended_well().await;
    let leader = place.hold.locks().get(statehold::supervisor::LEADER).await.expect("an answer");
    assert!(leader.is_none(), "its leadership is free");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_of_its_own_takes_back_what_its_worker_lost() {
    let place = Place::new().await;
    let (web, url) = serve(&place, "127.0.0.1:0", &["--role", "web"]).await;
    let (worker, health) = serve(&place, "127.0.0.1:0", &["--role", "worker"]).await;
    let id = place.create(statehold::TaskCreate::new("k")).await;
    let start = json!({ "owner": "gone", "lease_seconds": 0.05 });
    let started = client().post(format!("{url}/v1/default/tasks/{id}/start")).json(&start).send().await;
    assert!(started.expect("an answer").status().is_success());
    place.until(id, "taken back", |task| task.lease_losses == 1).await;
    assert_eq!(client().get(format!("{health}/health/ready")).send().await.expect("an answer").status(), 200);
    assert_eq!(
        client().get(format!("{health}/v1/default/tasks")).send().await.expect("an answer").status(),
        404
    );
    for run in [web, worker] {
        run.signal(Signal::TERM);
        run.ended_well().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_nothing_that_it_acknowledged_and_its_clients_go_on_exactly() {
    let place = Place::new().await;
    let (mut run, url) = serve(&place, "127.0.0.1:0", &[]).await;
    let address = url.trim_start_matches("http://").to_owned();
    let load = Load::begin(&[url]);
    for round in 1..=3 {
        load.goes_on(round * 40).await;
        run.signal(Signal::KILL);
        run.ended().await;
        (run, _) = serve(&place, &address, &[]).await;
    }
    load.goes_on(160).await;
    load.judge(&place.hold).await;
    run.signal(Signal::TERM);
    run.ended_well().await;
    place.assert_nothing_left().await;
}

/// A pipe holds 64 KB; the lines of these requests are several times that.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_reads_keeps_no_request_waiting() {
    let place = Place::new().await;
    let piped = |command: &mut std::process::Command| {
        command.stderr(std::process::Stdio::piped());
    };
    let (run, url) = serve_with(&place, "127.0.0.1:0", &["--log", "text"], piped).await;
    let client = client();
    let ready = format!("{url}/health/live");
    for _ in 0..2000 {
        assert_eq!(client.get(&ready).send().await.expect("an answer").status(), 200);
    }
    run.signal(Signal::TERM);
    run.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_refuses_what_would_open_it_to_everyone() {
    let place = Place::new().await;
    let refused = place.start(&["serve", "--listen", "0.0.0.0:0"]).ended().await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("statehold token create"), "{refused:?}");
    let made = place.start(&["token", "create", "--role", "orchestrator", "-o", "json"]).ended_well().await;
    let made: Value = serde_json::from_str(&made.out).expect("JSON");
    let (run, url) = serve(&place, "127.0.0.1:0", &[]).await;
    let tasks = client().get(format!("{url}/v1/default/tasks"));
    assert_eq!(tasks.try_clone().expect("no body").send().await.expect("an answer").status(), 401);
    let token = made["token"].as_str().expect("a token");
    assert_eq!(tasks.bearer_auth(token).send().await.expect("an answer").status(), 200);
    place.start(&["token", "revoke", made["id"].as_str().expect("an id")]).ended_well().await;
    assert!(place.start(&["token", "list"]).ended_well().await.out.lines().count() <= 1, "none is left");
    run.signal(Signal::TERM);
    run.ended_well().await;
}

/// The command line, asking a server.
async fn told(place: &Place, url: &str, args: &[&str]) -> crate::programs::Ran {
    let also = |command: &mut std::process::Command| {
        command.env("STATEHOLD_STORE", url);
    };
    place.start_with(args, also).ended().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_does_through_a_server_what_it_does_on_a_file() {
    let place = Place::new().await;
    let (run, url) = serve(&place, "127.0.0.1:0", &[]).await;
    let commands: &[&[&str]] = &[
        &["task", "create", "greet", "--input", "{\"n\": 12345678901234567890}", "--idempotency-key", "k"],
        &["task", "create", "greet", "--input", "{\"n\": 12345678901234567890}", "--idempotency-key", "k"],
        &["work", "--queue", "default", "--until-empty", "--", "cat"],
        &["task", "list", "--status", "completed"],
        &["queue", "list"],
        &["doc", "put", "project", "a/b", "{\"state\": \"new\"}", "--expect", "absent"],
        &["doc", "get", "project", "a/b"],
        &["doc", "list", "project"],
        &["stream", "append", "run/7", "begun"],
        &["stream", "read", "run/7"],
        &["thread", "create", "42"],
        &["thread", "say", "42", "user", "hi"],
        &["thread", "messages", "42"],
        &["entry", "set", "code/7", "1"],
        &["entry", "list"],
        &["result", "set", "42", "1"],
        &["result", "get", "42"],
        &["lock", "run", "deploy", "--", "true"],
        &["health"],
    ];
    for args in commands {
        let ran = told(&place, &url, args).await;
        assert_eq!(ran.code, Some(0), "{args:?}: {ran:?}");
    }
    let tasks =
        place.hold.tasks().list(&statehold::core::query::TaskList::default()).await.expect("tasks").items;
    assert_eq!(tasks.len(), 1, "created twice, made once");
    let output = tasks[0].output.as_ref().expect("an output");
    assert_eq!(output.as_str(), "{\"n\":12345678901234567890}", "numbers survive the way");
    assert_eq!(
        told(&place, &url, &["task", "show", "0198c0de-0000-7000-8000-000000000000"]).await.code,
        Some(3)
    );
    assert_eq!(
        told(&place, &url, &["doc", "put", "project", "a/b", "1", "--expect", "absent"]).await.code,
        Some(4)
    );
    assert_eq!(told(&place, &url, &["dump"]).await.code, Some(2));
    run.signal(Signal::TERM);
    run.ended_well().await;
    assert_eq!(told(&place, &url, &["task", "list"]).await.code, Some(1), "nobody answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_measured_against_the_library() {
    let place = Place::new().await;
    let measure = ["bench", "--server", "--store", "sqlite:bench.db", "--concurrency", "2", "--rounds", "1"];
    let measured =
        place.start(&[&measure[..], &["--seconds", "0.05", "-o", "json"]].concat()).ended_well().await;
    let report: Value = serde_json::from_str(&measured.out).expect("JSON");
    let rows = report["results"].as_array().expect("rows");
    assert_eq!(rows.len(), 3, "{report}");
    for row in rows {
        assert!(row["ratio_limit"].as_f64().is_some_and(|ratio| ratio > 0.0), "{row}");
    }
}
