//! A Statehold server as a store: `http://host:port`. Everything that the library and the command line do on a store of
//! their own, they do through a server too; what belongs to the store itself (sweeps, migrations, dumps) they leave to
//! it.

mod answer;
mod query;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use reqwest::{Method, RequestBuilder};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use statehold_core::backend::{Backend, Health, Migration};
use statehold_core::batch::{Prepared, Replies};
use statehold_core::call::{Claim, Claimed, Deliveries, GroupRead, Sweep, Swept};
use statehold_core::clock::Clock;
use statehold_core::dump::Record;
use statehold_core::error::{Error, ErrorKind, Result};
use statehold_core::model::{
    Document, Entry, Event, GroupInfo, Lock, QueueInfo, Source, StreamInfo, Task, TaskId,
};
use statehold_core::query::{
    CategoryCursor, CategoryFrom, CategoryPage, CategoryRead, DocumentList, KeyList, Page, ReadFrom,
    StreamPage, StreamRead, TaskCounts, TaskList, Why,
};
use statehold_core::session::Session;
use statehold_core::wake::{Hub, Topic, Waiter};

use answer::{found, parse, read, send};
use query::{Query, segment};

/// How often those who wait look again: a server pushes nothing to this side.
const POLL: Duration = Duration::from_millis(200);
/// How long an answer may take. No request here waits for anything but the store.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server, asked as a store.
#[derive(Clone, Debug)]
pub struct Http {
    client: reqwest::Client,
    url: String,
    token: Option<Secret>,
    hub: Hub,
    polls: Arc<AtomicBool>,
}

/// A token that does not show in `{:?}`.
#[derive(Clone)]
struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A page of a stream, as the server writes it.
#[derive(Deserialize)]
struct EventPage {
    items: Vec<Event>,
    last_seq: u64,
    oldest: u64,
}

/// How the server is.
#[derive(Deserialize)]
struct Readiness {
    store: Option<Health>,
    problem: Option<String>,
}

#[derive(Deserialize)]
struct Namespace {
    namespace: String,
}

impl Http {
    /// The server at a URL, asked with a token if it needs one.
    pub fn new(url: &str, token: Option<String>) -> Result<Self> {
        // Whoever has chosen another provider of cryptography keeps it.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().timeout(PATIENCE).build();
        let client = client.map_err(|e| Error::unavailable(format!("no client can be made: {e}")))?;
        let (url, token) = (url.trim_end_matches('/').to_owned(), token.map(Secret));
        Ok(Self { client, url, token, hub: Hub::new(), polls: Arc::default() })
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.url));
        match &self.token {
            Some(Secret(token)) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn get<T: DeserializeOwned>(&self, namespace: &str, path: &str, query: Query) -> Result<T> {
        let path = format!("/v1/{}{path}{query}", segment(namespace));
        read(send(self.request(Method::GET, &path)).await?)
    }

    async fn list<T: DeserializeOwned>(
        &self,
        namespace: &str,
        path: &str,
        list: &KeyList,
    ) -> Result<Page<T>> {
        let mut query = Query::default();
        query.text("prefix", Some(&list.prefix).filter(|prefix| !prefix.is_empty()));
        query.page(list.limit, list.cursor.as_ref());
        self.get(namespace, path, query).await
    }

    /// Wakes whoever waits, as long as anyone does.
    fn poll(&self) {
        if self.polls.swap(true, Ordering::AcqRel) {
            return;
        }
        let (hub, polls) = (self.hub.clone(), Arc::clone(&self.polls));
        tokio::spawn(async move {
            while !hub.is_empty() {
                tokio::time::sleep(POLL).await;
                hub.wake_all();
            }
            polls.store(false, Ordering::Release);
        });
    }
}

fn of_the_server(what: &str) -> Error {
    Error::unsupported(format!("{what} is the server's own, and not done over HTTP"))
        .hint("run it on the machine of the store, with the URL of the store itself")
}

#[async_trait]
impl Backend for Http {
    async fn apply(&self, batch: Prepared) -> Result<Replies> {
        #[derive(Deserialize)]
        struct Answered<'a> {
            #[serde(borrow)]
            replies: &'a RawValue,
        }
        let sent = batch.batch();
        let path = format!("/v1/{}/batch", segment(&sent.namespace));
        let mut request = self.request(Method::POST, &path).json(sent);
        if let Some(key) = &sent.key {
            request = request.header("idempotency-key", &key.key);
        }
        let answer = send(request).await?;
        let Answered { replies } = parse(&answer.text)?;
        Ok(Replies { replies: sent.read_replies(replies.get())?, replayed: answer.replayed })
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        let path = format!("/v1/{}/tasks/claim", segment(&claim.namespace));
        read(send(self.request(Method::POST, &path).json(&claim)).await?)
    }

    async fn group_read(&self, call: GroupRead) -> Result<Deliveries> {
        let path = format!("/v1/{}/groups/{}/read", segment(&call.namespace), segment(&call.group));
        read(send(self.request(Method::POST, &path).json(&call)).await?)
    }

    async fn sweep(&self, _: Sweep) -> Result<Swept> {
        Err(of_the_server("a sweep"))
    }

    async fn task_get(&self, namespace: &str, ids: &[TaskId]) -> Result<Vec<Option<Task>>> {
        let get =
            async |id: &TaskId| found(self.get(namespace, &format!("/tasks/{id}"), Query::default()).await);
        let mut tasks = Vec::new();
        for id in ids {
            tasks.push(get(id).await?);
        }
        Ok(tasks)
    }

    async fn task_list(&self, namespace: &str, list: &TaskList) -> Result<Page<Task>> {
        self.get(namespace, "/tasks", Query::tasks(list)).await
    }

    async fn task_count(&self, namespace: &str, queue: Option<&str>) -> Result<TaskCounts> {
        let mut all = TaskCounts::default();
        let now = Clock::real().now();
        for info in
            self.queue_list(namespace).await?.into_iter().filter(|info| queue.is_none_or(|q| q == info.queue))
        {
            for (status, count) in info.counts {
                *all.counts.entry(status).or_default() += count;
            }
            all.claimable += info.claimable;
            let oldest = info.oldest_pending_seconds.map(|age| now - age);
            all.oldest_claimable = all.oldest_claimable.into_iter().chain(oldest).min();
        }
        Ok(all)
    }

    async fn task_why(&self, namespace: &str, id: TaskId) -> Result<Why> {
        self.get(namespace, &format!("/tasks/{id}/why"), Query::default()).await
    }

    async fn stream_read(&self, namespace: &str, call: &StreamRead) -> Result<StreamPage> {
        let mut query = Query::default();
        match call.from {
            ReadFrom::Oldest => query.text("after", Some("0")),
            ReadFrom::After(seq) => query.text("after", Some(seq)),
            ReadFrom::Before(seq) => query.text("before", Some(seq)),
            ReadFrom::Last => query.text("after", Some("latest")),
        }
        query.page(call.limit, None);
        let (category, id) = (segment(call.stream.category()), segment(call.stream.id()));
        let page: EventPage = self.get(namespace, &format!("/streams/{category}/{id}/events"), query).await?;
        Ok(StreamPage { events: page.items, last_seq: page.last_seq, oldest: page.oldest })
    }

    async fn category_read(&self, namespace: &str, call: &CategoryRead) -> Result<CategoryPage> {
        let mut query = Query::default();
        match &call.from {
            CategoryFrom::Oldest => query.text("after", Some("0")),
            CategoryFrom::After(cursor) => query.text("after", Some(cursor)),
            CategoryFrom::Latest => query.text("after", Some("latest")),
        }
        query.page(call.limit, None);
        let path = format!("/categories/{}/events", segment(&call.category));
        let page: Page<Event> = self.get(namespace, &path, query).await?;
        let cursor = CategoryCursor::from(page.next_cursor.unwrap_or_default());
        Ok(CategoryPage { events: page.items, cursor })
    }

    async fn stream_list(&self, namespace: &str, list: &KeyList) -> Result<Page<StreamInfo>> {
        self.list(namespace, "/streams", list).await
    }

    async fn group_info(&self, namespace: &str, group: &str, source: &Source) -> Result<GroupInfo> {
        let mut query = Query::default();
        match source {
            Source::Stream(stream) => query.text("stream", Some(stream)),
            Source::Category(category) => query.text("category", Some(category)),
        }
        self.get(namespace, &format!("/groups/{}", segment(group)), query).await
    }

    async fn document_get(&self, namespace: &str, kind: &str, name: &str) -> Result<Option<Document>> {
        let path = format!("/documents/{}/{}", segment(kind), segment(name));
        found(self.get(namespace, &path, Query::default()).await)
    }

    async fn document_list(&self, namespace: &str, list: &DocumentList) -> Result<Page<Document>> {
        self.get(namespace, &format!("/documents/{}", segment(&list.kind)), Query::documents(list)).await
    }

    async fn entry_get(&self, namespace: &str, key: &str) -> Result<Option<Entry>> {
        found(self.get(namespace, &format!("/entries/{}", segment(key)), Query::default()).await)
    }

    async fn entry_list(&self, namespace: &str, list: &KeyList) -> Result<Page<Entry>> {
        self.list(namespace, "/entries", list).await
    }

    async fn lock_get(&self, namespace: &str, key: &str) -> Result<Option<Lock>> {
        found(self.get(namespace, &format!("/locks/{}", segment(key)), Query::default()).await)
    }

    async fn lock_list(&self, namespace: &str, list: &KeyList) -> Result<Page<Lock>> {
        self.list(namespace, "/locks", list).await
    }

    async fn queue_list(&self, namespace: &str) -> Result<Vec<QueueInfo>> {
        let page: Page<QueueInfo> = self.get(namespace, "/queues", Query::default()).await?;
        Ok(page.items)
    }

    async fn namespaces(&self) -> Result<Vec<String>> {
        let page: Page<Namespace> = read(send(self.request(Method::GET, "/v1/namespaces")).await?)?;
        Ok(page.items.into_iter().map(|item| item.namespace).collect())
    }

    async fn register(&self, namespace: &str, topics: &[Topic]) -> Result<Waiter> {
        let waiter = self.hub.register(namespace, topics);
        self.poll();
        Ok(waiter)
    }

    async fn session(&self) -> Result<Session> {
        Err(Session::none("a server, whose own the session would be,"))
    }

    fn can_lose_answers(&self) -> bool {
        true
    }

    async fn health(&self) -> Result<Health> {
        let ready: Readiness = read(send(self.request(Method::GET, "/health/ready")).await?)?;
        let mut health = ready.store.ok_or_else(|| {
            Error::new(
                ErrorKind::Unavailable,
                ready.problem.unwrap_or_else(|| "the store does not answer".into()),
            )
        })?;
        health.store = format!("{} ({})", self.url, health.store);
        Ok(health)
    }

    async fn migrate(&self, _: bool) -> Result<Migration> {
        Err(of_the_server("a migration"))
    }

    async fn dump(&self, _: &str) -> Result<BoxStream<'static, Result<Record>>> {
        Err(of_the_server("a dump"))
    }

    async fn load(&self, _: &str, _: BoxStream<'static, Result<Record>>) -> Result<u64> {
        Err(of_the_server("a load"))
    }
}
