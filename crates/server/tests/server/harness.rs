//! A server of a test's own, on a store of its own, and a client.

use std::any::Any;
use std::time::Duration;

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;
use statehold::Statehold;
use statehold::worker::Stopping;
use statehold_server::{Config, Server};
use tokio::task::JoinHandle;

/// A store of a test's own, and what must stay for as long as it is used.
pub(crate) struct Store {
    pub(crate) url: String,
    _kept: Box<dyn Any + Send + Sync>,
}

impl Store {
    pub(crate) fn new(url: String, kept: impl Any + Send + Sync) -> Self {
        Self { url, _kept: Box::new(kept) }
    }
}

/// A server that is stopped with the test.
pub(crate) struct Running {
    pub(crate) hold: Statehold,
    pub(crate) url: String,
    pub(crate) client: reqwest::Client,
    pub(crate) stopping: Stopping,
    pub(crate) server: Option<JoinHandle<()>>,
    pub(crate) store: Store,
    pub(crate) token: Option<String>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Value,
}

impl Running {
    /// A server as it is without settings.
    pub(crate) async fn start() -> Self {
        Self::with(|_| ()).await
    }

    /// A server with settings.
    pub(crate) async fn with(set: impl FnOnce(&mut Config)) -> Self {
        let store = crate::store();
        let hold = Statehold::open(&store.url).await.expect("an answer");
        let mut config = Config::new(([127, 0, 0, 1], 0).into());
        config.grace = Duration::from_secs(20);
        set(&mut config);
        let server = Server::bind(&hold, config).await.expect("an answer");
        let url = format!("http://{}", server.address());
        let stopping = Stopping::new();
        let told = stopping.clone();
        let server = Some(tokio::spawn(async move { server.run(told).await.expect("an answer") }));
        // Built beside others that speak TLS, the client wants to know by what means.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().timeout(Duration::from_secs(60)).build().expect("good");
        Self { hold, url, client, stopping, server, store, token: None }
    }

    /// A request to a path of the namespace `default`, or to one that begins with two slashes.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let path =
            path.strip_prefix("//").map_or_else(|| format!("/v1/default{path}"), |path| format!("/{path}"));
        let request = self.client.request(method, format!("{}{path}", self.url));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        send(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        send(self.request(Method::POST, path).json(&body)).await
    }

    pub(crate) async fn ask(&self, method: Method, path: &str, body: Value) -> Answer {
        send(self.request(method, path).json(&body)).await
    }

    /// What is counted under a name with its labels.
    pub(crate) async fn metric(&self, name: &str) -> String {
        let page = self.get("//metrics").await.ok();
        let mut lines = page.as_str().expect("text").lines();
        let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("{name} is not in\n{page}")).to_owned()
    }

    /// A task of the queue `default`, by its id.
    pub(crate) async fn task(&self) -> String {
        self.post("/tasks", serde_json::json!({ "kind": "k" })).await.ok()["task"]["id"]
            .as_str()
            .expect("good")
            .to_owned()
    }

    /// A task that is leased to `worker`, and its token.
    pub(crate) async fn leased(&self) -> (String, i64) {
        let id = self.task().await;
        let task =
            self.post(&format!("/tasks/{id}/start"), serde_json::json!({ "owner": "worker" })).await.ok();
        (id, task["lease"]["token"].as_i64().expect("a number"))
    }

    /// Stops the server, and waits for its end.
    pub(crate) async fn stop(&mut self) {
        self.stopping.cancel();
        if let Some(server) = self.server.take() {
            tokio::time::timeout(Duration::from_secs(60), server).await.expect("drains").expect("good");
        }
    }
}

/// Sends a request and reads all of its answer.
pub(crate) async fn send(request: RequestBuilder) -> Answer {
    let response = request.send().await.expect("an answer");
    let (status, headers) = (response.status(), response.headers().clone());
    let text = response.text().await.expect("an answer");
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Answer { status, headers, body }
}

impl Answer {
    /// The body of an answer that went well.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!(self.status.is_success(), "{self:?}");
        self.body
    }

    /// An answer with a status.
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        self.body
    }

    /// A problem, with its status and code, and all that every problem has.
    #[track_caller]
    pub(crate) fn refused(self, status: u16, code: &str) -> Value {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        assert_eq!(self.body["code"], code, "{self:?}");
        assert_eq!(self.headers["content-type"], "application/problem+json");
        for member in ["detail", "hint", "title"] {
            assert!(self.body[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {self:?}");
        }
        self.body
    }
}
