//! Several servers on one store: what happens at one is seen at the others, and what one leaves the others take up.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::programs::servers::{Following, Load, client, patient_client, serve, serve_on};
use crate::programs::{LIMIT, Place, Run, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};
use statehold::core::query::{ReadFrom, TaskList};
use statehold::{Statehold, Status, StreamName, TaskCreate};
use statehold_conformance::{postgres, redis};

/// What is made at the first server arrives at who waits at the second.
async fn what_one_makes_arrives_at_the_other([(one, url), (other, second)]: [(Run, String); 2]) {
    let mut following = Following::new(&patient_client(), &second, "run/9", 0).await.expect("an answer");
    let result = client().get(format!("{second}/v1/default/results/7?wait_seconds=60"));
    let result = tokio::spawn(async move { result.send().await.expect("an answer").status() });
    let claim = json!({ "queues": ["replicas"], "owner": "w", "wait_seconds": 60 });
    let claim = client().post(format!("{second}/v1/default/tasks/claim")).json(&claim);
    let claim = tokio::spawn(async move { claim.send().await.expect("an answer").text().await });
    for number in 1..=50 {
        let event = json!({ "events": [{ "type": "step" }] });
        let append = client().post(format!("{url}/v1/default/streams/run/9/events")).json(&event);
        assert!(append.send().await.expect("an answer").status().is_success());
        let came = tokio::time::timeout(LIMIT, following.next()).await.expect("in time");
        assert_eq!(came, Some(number), "each once and in order");
    }
    let set = client().put(format!("{url}/v1/default/results/7")).json(&json!({ "value": 1 }));
    assert!(set.send().await.expect("an answer").status().is_success());
    assert_eq!(result.await.expect("no panic"), 200);
    let task = json!({ "kind": "k", "queue": "replicas" });
    let task = client().post(format!("{url}/v1/default/tasks")).json(&task);
    assert!(task.send().await.expect("an answer").status().is_success());
    let claimed = claim.await.expect("no panic").expect("a body");
    assert!(claimed.contains("\"status\":\"running\""), "{claimed}");
    for run in [one, other] {
        run.signal(Signal::TERM);
        run.ended_well().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_arrive_at_the_other_process_on_one_file() {
    let place = Place::new().await;
    let two = [serve(&place, "127.0.0.1:0", &[]).await, serve(&place, "127.0.0.1:0", &[]).await];
    what_one_makes_arrives_at_the_other(two).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_arrive_at_the_other_server_on_one_postgres() {
    let (place, store) = (Place::new().await, postgres::Server::start());
    let url = store.url();
    what_one_makes_arrives_at_the_other([serve_on(&place, &url).await, serve_on(&place, &url).await]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_arrive_at_the_other_server_on_one_redis() {
    let (place, store) = (Place::new().await, redis::Server::start(&[]));
    let url = store.url();
    what_one_makes_arrives_at_the_other([serve_on(&place, &url).await, serve_on(&place, &url).await]).await;
}

/// Claims and completes tasks through whatever server answers, until all are done.
async fn work(urls: Vec<String>, owner: String, done: Arc<Mutex<BTreeSet<String>>>, all: usize) {
    let client = client();
    let mut urls = urls.iter().cycle();
    let mut url = urls.next().expect("a server");
    while done.lock().expect("no panic").len() < all {
        // A lease that an answer did not come for ends soon.
        let claim = json!({ "queues": ["work"], "owner": owner, "lease_seconds": 2, "wait_seconds": 1 });
        let claimed = client.post(format!("{url}/v1/default/tasks/claim")).json(&claim).send().await;
        let Ok(claimed) = claimed else {
            url = urls.next().expect("a server");
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let Ok(text) = claimed.text().await else { continue };
        let claimed: Value = serde_json::from_str(&text).expect("JSON");
        let Some(task) = claimed["tasks"].get(0) else { continue };
        let id = task["id"].as_str().expect("an id").to_owned();
        let body = json!({ "token": task["lease"]["token"] });
        // Said again through the other server, if the first does not answer: the end is the same.
        let ended = loop {
            let complete = client.post(format!("{url}/v1/default/tasks/{id}/complete"));
            match complete.header("idempotency-key", &id).json(&body).send().await {
                Ok(ended) => break ended.status(),
                Err(_) => url = urls.next().expect("a server"),
            }
        };
        if ended.is_success() {
            done.lock().expect("no panic").insert(id);
        }
    }
}

/// How often a task was completed, by its events.
async fn completions(hold: &Statehold, id: statehold::TaskId) -> usize {
    let page = hold.streams().read(&StreamName::of_task(id), ReadFrom::Oldest, 1000).await.expect("a page");
    page.events.iter().filter(|event| event.kind == "task.completed").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn when_one_of_two_servers_is_killed_its_workers_and_followers_go_on_through_the_other() {
    const TASKS: usize = 300;
    let (place, store) = (Place::new().await, postgres::Server::start());
    let hold = Statehold::open(&store.url()).await.expect("a store");
    let (killed, first) = serve_on(&place, &store.url()).await;
    let (other, second) = serve_on(&place, &store.url()).await;
    let urls = [first, second];
    let load = Load::begin(&urls);
    for _ in 0..TASKS {
        hold.tasks().create(TaskCreate::new("k").queue("work")).await.expect("a task");
    }
    let done = Arc::new(Mutex::new(BTreeSet::new()));
    let working: Vec<_> = (0..4)
        .map(|n| tokio::spawn(work(urls.to_vec(), format!("w{n}"), Arc::clone(&done), TASKS)))
        .collect();
    load.goes_on(40).await;
    eventually("workers work", || done.lock().expect("no panic").len() >= 20).await;
    killed.signal(Signal::KILL);
    killed.ended().await;
    load.goes_on(load.acknowledged() + 40).await;
    for worker in working {
        tokio::time::timeout(LIMIT, worker).await.expect("in time").expect("no panic");
    }
    load.judge(&hold).await;
    let list = TaskList { limit: 1000, ..TaskList::default() };
    let tasks = hold.tasks().list(&list).await.expect("tasks").items;
    assert_eq!(tasks.len(), TASKS);
    for task in tasks {
        assert_eq!((task.status, completions(&hold, task.id).await), (Status::Completed, 1), "{task:?}");
    }
    other.signal(Signal::TERM);
    other.ended_well().await;
}
