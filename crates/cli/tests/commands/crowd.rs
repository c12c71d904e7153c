//! Many clients that wait: they cost little, and each of them is served.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use crate::programs::servers::{Following, client, metric, patient_client, serve};
use crate::programs::{LIMIT, Place, Run};
use rustix::process::{Resource, Signal, getrlimit, setrlimit};
use serde_json::{Value, json};

/// How many follow events, and how many wait for a task.
const EACH: u64 = 1000;
const MEGABYTE: u64 = 1 << 20;

/// Asks for a task until there is one, and answers its id.
async fn claim(client: reqwest::Client, url: String, owner: u64) -> String {
    let claim = json!({ "queues": ["default"], "owner": owner.to_string(), "wait_seconds": 60 });
    loop {
        let answer = client.post(format!("{url}/v1/default/tasks/claim")).json(&claim).send().await;
        let text = answer.expect("an answer").text().await.expect("a body");
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        if let Some(id) = answer["tasks"][0]["id"].as_str() {
            return id.to_owned();
        }
    }
}

/// Waits until so many are counted.
async fn counted(url: &str, name: &str, wanted: u64) {
    let begun = Instant::now();
    loop {
        let is = metric(url, name).await;
        if is == wanted {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "{name} is {is} and not {wanted}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// How many connections to its database a process has.
fn databases(run: &Run) -> usize {
    let files = fs::read_dir(format!("/proc/{}/fd", run.id())).expect("it runs");
    let path = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    path.filter(|path| path.to_string_lossy().ends_with("state.db")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_waiting_clients_cost_little_and_all_are_served() {
    // Each connection is a file of this process too.
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).expect("as many files as allowed");
    let place = Place::new().await;
    let (run, url) = serve(&place, "127.0.0.1:0", &[]).await;
    assert_eq!(client().get(format!("{url}/health/ready")).send().await.expect("an answer").status(), 200);
    let (idle, connections) = (run.memory(), databases(&run));
    let client = patient_client();
    let following: Vec<_> = (0..EACH)
        .map(|_| {
            let (client, url) = (client.clone(), url.clone());
            tokio::spawn(async move {
                let mut following = Following::new(&client, &url, "run/7", 0).await.expect("an answer");
                following.next().await.expect("an event")
            })
        })
        .collect();
    let claiming: Vec<_> =
        (0..EACH).map(|owner| tokio::spawn(claim(client.clone(), url.clone(), owner))).collect();
    counted(&url, "statehold_sse_clients", EACH).await;
    counted(&url, "statehold_waiting_requests", EACH).await;
    let crowded = run.memory();
    println!("memory: {} MB idle, {} MB with {} clients", idle / MEGABYTE, crowded / MEGABYTE, 2 * EACH);
    assert!(idle < 40 * MEGABYTE, "an idle server has {idle} bytes");
    assert!(crowded < 200 * MEGABYTE, "with {EACH} clients of each kind a server has {crowded} bytes");
    assert_eq!(databases(&run), connections, "who waits has no connection to the database");
    let event = json!({ "events": [{ "type": "step" }] });
    let append = client.post(format!("{url}/v1/default/streams/run/7/events")).json(&event);
    assert!(append.send().await.expect("an answer").status().is_success());
    for following in following {
        assert_eq!(tokio::time::timeout(LIMIT, following).await.expect("in time").expect("no panic"), 1);
    }
    let tasks: Vec<_> = (0..EACH).map(|_| json!({ "kind": "k" })).collect();
    let create = client.post(format!("{url}/v1/default/tasks/bulk")).json(&json!({ "tasks": tasks }));
    assert!(create.send().await.expect("an answer").status().is_success());
    let mut claimed = BTreeSet::new();
    for claiming in claiming {
        claimed.insert(tokio::time::timeout(LIMIT, claiming).await.expect("in time").expect("no panic"));
    }
    assert_eq!(claimed.len() as u64, EACH, "each has a task of its own");
    run.signal(Signal::TERM);
    run.ended_well().await;
}
