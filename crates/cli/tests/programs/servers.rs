//! Servers in processes of their own, and a load on them that notices whatever is lost, repeated or out of order.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use statehold::core::query::ReadFrom;
use statehold::worker::Stopping;
use statehold::{Statehold, StreamName};
use tokio::task::JoinHandle;

use super::{LIMIT, Place, Run, eventually};

/// A server that listens, and where.
pub(crate) async fn serve(place: &Place, listen: &str, args: &[&str]) -> (Run, String) {
    serve_with(place, listen, args, |_| {}).await
}

/// The same, with something else said about it.
pub(crate) async fn serve_with(
    place: &Place,
    listen: &str,
    args: &[&str],
    also: impl FnOnce(&mut Command),
) -> (Run, String) {
    let mut all = vec!["serve", "-o", "json", "--listen", listen];
    if !args.contains(&"--log") {
        all.extend(["--log", "none"]);
    }
    all.extend(args);
    let run = place.start_with(&all, also);
    eventually("it listens", || {
        assert!(!run.said().contains("error:"), "it ended: {}", run.said());
        run.printed().contains('\n')
    })
    .await;
    let said: Value = serde_json::from_str(&run.printed()).expect("one line of JSON");
    let url = said["listening"].as_str().expect("an address").to_owned();
    (run, url)
}

/// A server on another store than the place's own.
pub(crate) async fn serve_on(place: &Place, store: &str) -> (Run, String) {
    serve_with(place, "127.0.0.1:0", &[], |command| {
        command.env("STATEHOLD_STORE", store);
    })
    .await
}

pub(crate) fn client() -> reqwest::Client {
    provide_tls();
    reqwest::Client::builder().timeout(LIMIT).build().expect("a client")
}

/// A client that waits for as long as the test does, and for no connection for long.
pub(crate) fn patient_client() -> reqwest::Client {
    provide_tls();
    reqwest::Client::builder().connect_timeout(LIMIT).build().expect("a client")
}

/// The client of the command line speaks TLS too, and the tests' one is built with it.
fn provide_tls() {
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
}

/// What is counted under a name, and 0 if it is not there.
pub(crate) async fn metric(url: &str, name: &str) -> u64 {
    let page = client().get(format!("{url}/metrics")).send().await.expect("an answer");
    let page = page.text().await.expect("a body");
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0, |count| count.parse().expect("a number"))
}

/// A connection that follows a stream: the text of it that has come and has not been read.
pub(crate) struct Following {
    chunks: std::pin::Pin<Box<dyn futures_util::Stream<Item = reqwest::Result<Vec<u8>>> + Send>>,
    text: String,
}

impl Following {
    /// Follows a stream of the namespace `default` after an event; none if nobody answers.
    pub(crate) async fn new(client: &reqwest::Client, url: &str, stream: &str, after: u64) -> Option<Self> {
        let request = client.get(format!("{url}/v1/default/streams/{stream}/events"));
        let request =
            request.header("accept", "text/event-stream").header("last-event-id", after.to_string());
        let response = request.send().await.ok()?;
        assert!(response.status().is_success(), "{}", response.status());
        let chunks = response.bytes_stream().map(|chunk| chunk.map(|bytes| bytes.to_vec()));
        Some(Self { chunks: Box::pin(chunks), text: String::new() })
    }

    /// The number of the next event; none if the connection ends.
    pub(crate) async fn next(&mut self) -> Option<u64> {
        loop {
            while let Some((frame, rest)) = self.text.split_once("\n\n") {
                let id = frame.lines().find_map(|line| line.strip_prefix("id: ")?.parse().ok());
                self.text = rest.into();
                if id.is_some() {
                    return id;
                }
            }
            let chunk = self.chunks.next().await?.ok()?;
            self.text.push_str(&String::from_utf8_lossy(&chunk));
        }
    }
}

/// Writers and a follower of one stream, who go on through whatever server answers.
pub(crate) struct Load {
    told: Arc<Mutex<BTreeSet<String>>>,
    seen: Arc<Mutex<Vec<u64>>>,
    stop: Stopping,
    writers: Vec<JoinHandle<()>>,
    follower: JoinHandle<()>,
}

/// The stream that the load is on.
const STREAM: &str = "run/7";

impl Load {
    /// Begins at the first of some servers of one store.
    pub(crate) fn begin(urls: &[String]) -> Self {
        let (told, seen, stop) = (Arc::default(), Arc::default(), Stopping::new());
        let append = |n| append(urls.to_vec(), n, Arc::clone(&told), stop.clone());
        let writers = (0..4).map(|n| tokio::spawn(append(n))).collect();
        let follower = tokio::spawn(follow(urls.to_vec(), Arc::clone(&seen)));
        Self { told, seen, stop, writers, follower }
    }

    /// Waits until so many appends were acknowledged.
    pub(crate) async fn goes_on(&self, acknowledged: usize) {
        eventually("work goes on", || self.acknowledged() >= acknowledged).await;
    }

    /// How many appends were acknowledged.
    pub(crate) fn acknowledged(&self) -> usize {
        self.told.lock().expect("no panic").len()
    }

    /// Ends, and judges: what was acknowledged is there once, and the follower has seen all of it in order.
    pub(crate) async fn judge(self, hold: &Statehold) {
        self.stop.cancel();
        for writer in self.writers {
            tokio::time::timeout(LIMIT, writer).await.expect("in time").expect("no panic");
        }
        let kept = all_of(hold).await;
        let told = self.told.lock().expect("no panic").clone();
        assert_eq!(kept.iter().cloned().collect::<BTreeSet<_>>(), told, "what was acknowledged is there");
        assert_eq!(kept.len(), told.len(), "and is there once");
        eventually("the follower has all", || self.seen.lock().expect("no panic").len() >= kept.len()).await;
        self.follower.abort();
        let all: Vec<_> = (1..=kept.len() as u64).collect();
        assert_eq!(*self.seen.lock().expect("no panic"), all, "without gap or repeat");
    }
}

async fn all_of(hold: &Statehold) -> Vec<String> {
    let stream: StreamName = STREAM.parse().expect("a name");
    let mut kept = Vec::new();
    loop {
        let from = ReadFrom::After(kept.len() as u64);
        let page = hold.streams().read(&stream, from, 1000).await.expect("a page");
        if page.events.is_empty() {
            return kept;
        }
        let text = |data: Option<statehold::Json>| data.expect("data").to::<String>().expect("text");
        kept.extend(page.events.into_iter().map(|event| text(event.data)));
    }
}

/// Appends until it is told to stop, each surely and once, and notes what was acknowledged.
async fn append(urls: Vec<String>, writer: usize, told: Arc<Mutex<BTreeSet<String>>>, stop: Stopping) {
    let client = client();
    let mut urls = urls.iter().cycle();
    let mut url = urls.next().expect("a server");
    for n in 0.. {
        let key = format!("{writer}-{n}");
        let body = json!({ "events": [{ "type": "step", "data": key }] });
        loop {
            let request = client.post(format!("{url}/v1/default/streams/{STREAM}/events"));
            match request.header("idempotency-key", &key).json(&body).send().await {
                Ok(answer) if answer.status().is_success() => break,
                Ok(answer) => panic!("{}", answer.text().await.unwrap_or_default()),
                // Whether it happened is not known; the key makes it happen once.
                Err(_) => {
                    url = urls.next().expect("a server");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
        told.lock().expect("no panic").insert(key);
        if stop.is_cancelled() {
            return;
        }
    }
}

/// Follows the stream, over any number of connections, and notes every number that comes.
async fn follow(urls: Vec<String>, seen: Arc<Mutex<Vec<u64>>>) {
    let client = patient_client();
    for url in urls.iter().cycle() {
        let last = seen.lock().expect("no panic").last().copied().unwrap_or_default();
        match Following::new(&client, url, STREAM, last).await {
            Some(mut following) => {
                while let Some(number) = following.next().await {
                    seen.lock().expect("no panic").push(number);
                }
            }
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
