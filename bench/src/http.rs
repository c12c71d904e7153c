//! The same over HTTP, set against the library: one connection a caller, each waiting for its answer before it asks
//! again. The client does no more than it must, since it shares the processors with the server. What the way alone costs
//! is measured by somebody who sends the same bytes without looking at anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use memchr::memmem;
use statehold_core::batch::Batch;
use statehold_core::command::{EntrySet, TaskCreate};
use statehold_core::model::TaskId;
use statehold_core::{Backend, Error, Json, Result, Seconds, Status};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

use crate::contender::{Contender, Receipt, Slice};
use crate::ops::{Bodies, KEYS, LONG_SECONDS, Op, scatter};
use crate::ours::lost;
use crate::report::Row;

/// How many tasks one bulk request creates.
pub(crate) const BULK: u64 = 100;

/// What is set against each other over HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// One task a request.
    Create,
    /// One entry a request.
    Get,
    /// Many tasks a request.
    Bulk,
}

impl Ask {
    pub(crate) const ALL: [Self; 3] = [Self::Create, Self::Get, Self::Bulk];

    /// Its name in the report.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Create => "task.create",
            Self::Get => "entry.get",
            Self::Bulk => "task.create ×100",
        }
    }

    /// The operation that it is measured as.
    pub(crate) const fn op(self) -> Op {
        match self {
            Self::Create | Self::Bulk => Op::TaskCreate,
            Self::Get => Op::EntryGet,
        }
    }

    /// What a row misses: a part of the library's throughput at 64 connections. A read from memory is done many times
    /// over before any answer is through a socket, so it is set against the bare exchange instead.
    pub(crate) fn missed(self, row: &Row) -> Option<&'static str> {
        let (name, ratio, least) = match self {
            Self::Create => ("ratio_limit", row.ratio_limit, 0.5),
            Self::Get => ("ratio_naive", row.ratio_naive, 0.5),
            Self::Bulk => ("ratio_limit", row.ratio_limit, 0.8),
        };
        (row.concurrency == 64 && ratio.is_some_and(|ratio| ratio < least)).then_some(name)
    }

    /// How many tasks a call creates.
    const fn tasks(self) -> u64 {
        match self {
            Self::Create => 1,
            Self::Get => 0,
            Self::Bulk => BULK,
        }
    }
}

/// Where both work: a namespace of a store, and what they write there.
pub(crate) struct Ground {
    backend: Arc<dyn Backend>,
    namespace: String,
    input: Json,
    slices: AtomicU64,
}

impl Ground {
    /// A new namespace with entries to read.
    pub(crate) async fn new(backend: Arc<dyn Backend>) -> Result<Arc<Self>> {
        let namespace = format!("bench-{}", TaskId::generate());
        let bodies = Bodies::new();
        let mut batch = Batch::new(&namespace);
        for key in 0..KEYS {
            let set = EntrySet::new(format!("result/{key}"), Json::stored(&bodies.entry));
            let _ = batch.add(EntrySet { ttl_seconds: Seconds::new(LONG_SECONDS), ..set });
        }
        backend.apply(batch.prepare()?).await?;
        let (input, slices) = (Json::stored(&bodies.input), AtomicU64::new(0));
        Ok(Arc::new(Self { backend, namespace, input, slices }))
    }

    fn queue(&self) -> String {
        format!("queue-{}", self.slices.fetch_add(1, Ordering::Relaxed))
    }

    /// How many calls the tasks of a queue come from; none where calls leave nothing.
    async fn traces(&self, ask: Ask, queue: &str) -> Result<Option<u64>> {
        if ask.tasks() == 0 {
            return Ok(None);
        }
        let counts = self.backend.task_count(&self.namespace, Some(queue)).await?;
        Ok(Some(counts.counts.get(&Status::Pending).copied().unwrap_or(0) / ask.tasks()))
    }
}

/// The library.
pub(crate) struct Direct {
    pub(crate) ground: Arc<Ground>,
    pub(crate) ask: Ask,
}

#[async_trait]
impl Contender for Direct {
    async fn prepare(&self, _: Op, _: usize, _: u64) -> Result<Box<dyn Slice>> {
        let (ground, ask, queue) = (Arc::clone(&self.ground), self.ask, self.ground.queue());
        Ok(Box::new(DirectSlice { ground, ask, queue }))
    }
}

struct DirectSlice {
    ground: Arc<Ground>,
    ask: Ask,
    queue: String,
}

#[async_trait]
impl Slice for DirectSlice {
    async fn call(&self, caller: usize, number: u64) -> Result<Receipt> {
        let Ground { backend, namespace, input, .. } = &*self.ground;
        if self.ask == Ask::Get {
            let key = format!("result/{}", scatter(caller, number, KEYS));
            let entry = backend.entry_get(namespace, &key).await?;
            return entry.map(|_| Receipt::default()).ok_or_else(|| lost("an entry"));
        }
        let mut batch = Batch::new(namespace);
        let task = || TaskCreate::new("answer").queue(self.queue.as_str()).input(input.clone());
        let mut made: Vec<_> = (0..self.ask.tasks()).map(|_| batch.add(task())).collect();
        let first = made.swap_remove(0);
        let created = backend.apply(batch.prepare()?).await?.take(first)?;
        Ok(Receipt(created.task.id.0.as_u128()))
    }

    async fn traces(&self) -> Result<Option<u64>> {
        self.ground.traces(self.ask, &self.queue).await
    }
}

/// A server on the same store.
pub(crate) struct Served {
    pub(crate) ground: Arc<Ground>,
    pub(crate) ask: Ask,
    /// Where it listens, such as `127.0.0.1:7420`.
    pub(crate) address: String,
}

#[async_trait]
impl Contender for Served {
    async fn prepare(&self, _: Op, callers: usize, _: u64) -> Result<Box<dyn Slice>> {
        let connections = connect(&self.address, callers).await?;
        let (ground, ask, queue) = (Arc::clone(&self.ground), self.ask, self.ground.queue());
        let task = format!(r#"{{"kind":"answer","queue":"{queue}","input":{}}}"#, self.ground.input.as_str());
        let body = match ask {
            Ask::Create | Ask::Get => task,
            Ask::Bulk => {
                let tasks = vec![task; usize::try_from(BULK).unwrap_or_default()];
                format!(r#"{{"tasks":[{}]}}"#, tasks.join(","))
            }
        };
        let route = if ask == Ask::Bulk { "tasks/bulk" } else { "tasks" };
        let request = format!(
            "POST /v1/{}/{route} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.ground.namespace,
            body.len()
        );
        Ok(Box::new(ServedSlice { ground, ask, queue, request, connections }))
    }
}

struct ServedSlice {
    ground: Arc<Ground>,
    ask: Ask,
    queue: String,
    /// The request that creates, which is always the same.
    request: String,
    connections: Vec<Mutex<Connection>>,
}

#[async_trait]
impl Slice for ServedSlice {
    async fn call(&self, caller: usize, number: u64) -> Result<Receipt> {
        let mut connection = self.connections[caller].lock().await;
        if self.ask == Ask::Get {
            let request = entry_request(&self.ground.namespace, scatter(caller, number, KEYS));
            connection.ask(&request).await?;
            return Ok(Receipt::default());
        }
        let answer = connection.ask(&self.request).await?;
        let id = answer.split_once(r#""id":""#).and_then(|(_, rest)| rest.get(..36)?.parse::<TaskId>().ok());
        id.map(|id| Receipt(id.0.as_u128())).ok_or_else(|| lost("the id of a task"))
    }

    async fn traces(&self) -> Result<Option<u64>> {
        self.ground.traces(self.ask, &self.queue).await
    }
}

/// Somebody who answers every request with what a server once answered, to show what the exchange alone costs.
pub(crate) struct Parrot {
    address: String,
    request: String,
}

impl Parrot {
    /// Asks a server once for an entry, and listens.
    pub(crate) async fn start(ground: &Ground, server: &str) -> Result<Self> {
        let request = entry_request(&ground.namespace, 0);
        let mut connection = Connection::open(server).await?;
        connection.ask(&request).await?;
        let answer: Arc<[u8]> = connection.read.into();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(broken)?;
        let address = listener.local_addr().map_err(broken)?.to_string();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(repeat(stream, Arc::clone(&answer)));
            }
        });
        Ok(Self { address, request })
    }
}

/// Answers whatever comes, until the connection ends.
async fn repeat(mut stream: TcpStream, answer: Arc<[u8]>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = [0; 4096];
    while stream.read(&mut request).await? > 0 {
        stream.write_all(&answer).await?;
    }
    Ok(())
}

#[async_trait]
impl Contender for Parrot {
    async fn prepare(&self, _: Op, callers: usize, _: u64) -> Result<Box<dyn Slice>> {
        let connections = connect(&self.address, callers).await?;
        Ok(Box::new(ParrotSlice { request: self.request.clone(), connections }))
    }
}

struct ParrotSlice {
    request: String,
    connections: Vec<Mutex<Connection>>,
}

#[async_trait]
impl Slice for ParrotSlice {
    async fn call(&self, caller: usize, _: u64) -> Result<Receipt> {
        self.connections[caller].lock().await.ask(&self.request).await?;
        Ok(Receipt::default())
    }

    async fn traces(&self) -> Result<Option<u64>> {
        Ok(None)
    }
}

fn entry_request(namespace: &str, key: u64) -> String {
    format!("GET /v1/{namespace}/entries/result%2F{key} HTTP/1.1\r\nhost: localhost\r\n\r\n")
}

async fn connect(address: &str, callers: usize) -> Result<Vec<Mutex<Connection>>> {
    let mut connections = Vec::with_capacity(callers);
    for _ in 0..callers {
        connections.push(Mutex::new(Connection::open(address).await?));
    }
    Ok(connections)
}

/// A connection to a server.
struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

fn broken(error: std::io::Error) -> Error {
    Error::unavailable("the connection to the server broke").caused_by(error)
}

impl Connection {
    async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await.map_err(broken)?;
        stream.set_nodelay(true).map_err(broken)?;
        Ok(Self { stream, read: Vec::with_capacity(1 << 16) })
    }

    /// Sends a request, and answers the body of its answer, which must be a good one.
    async fn ask(&mut self, request: &str) -> Result<&str> {
        self.stream.write_all(request.as_bytes()).await.map_err(broken)?;
        self.read.clear();
        loop {
            if self.stream.read_buf(&mut self.read).await.map_err(broken)? == 0 {
                return Err(Error::unavailable("the server closed the connection"));
            }
            if let Some((head, body)) = head_and_length(&self.read)
                && self.read.len() >= head + body
            {
                let text = std::str::from_utf8(&self.read)
                    .map_err(|e| Error::corrupt("the answer is not text").caused_by(e))?;
                if !text.starts_with("HTTP/1.1 2") {
                    return Err(Error::corrupt(format!("the server answered {text}")));
                }
                return Ok(&text[head..]);
            }
        }
    }
}

/// How long the head of an answer is, and how long its body.
fn head_and_length(answer: &[u8]) -> Option<(usize, usize)> {
    const LENGTH: &[u8] = b"content-length: ";
    let head = memmem::find(answer, b"\r\n\r\n")? + 4;
    let length = &answer[memmem::find(&answer[..head], LENGTH)? + LENGTH.len()..head];
    let length = std::str::from_utf8(length).ok()?.lines().next()?;
    Some((head, length.parse().ok()?))
}
