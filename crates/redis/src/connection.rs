//! The connection: one for all callers, which comes back by itself, with another for each lane where that is faster; and the
//! library of functions on the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::{Client, Cmd, Pipeline, TlsCertificates, Value};
use statehold_core::Timestamp;
use tokio::time::sleep;

use crate::config::Config;
use crate::error::{Result, Trouble, odd};
use crate::lines::{Lines, Own};
use crate::space::{Bytes, Space};

/// The functions, one a file, in an order in which each knows those it uses.
const PARTS: [&str; 9] = [
    include_str!("../lua/range.lua"),
    include_str!("../lua/reserve.lua"),
    include_str!("../lua/events.lua"),
    include_str!("../lua/category.lua"),
    include_str!("../lua/since.lua"),
    include_str!("../lua/strokes.lua"),
    include_str!("../lua/commit.lua"),
    include_str!("../lua/claim.lua"),
    include_str!("../lua/register.lua"),
];

/// How long a new connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How often a lost connection is tried again before those who wait for it are told.
const RETRIES: usize = 2;

/// How often something is sent again that nobody has done, while a cluster changes its mind about who does what.
const DETOURS: u32 = 40;
/// How long to wait before that.
const DETOUR: Duration = Duration::from_millis(50);

/// A connection that everyone shares, or that of a lane.
#[derive(Clone)]
pub(crate) struct Connection {
    link: Link,
    lines: Option<Arc<Lines>>,
    /// What goes before the link, for a lane.
    own: Option<Arc<Own>>,
    library: Arc<Library>,
    /// How far the server's clock is ahead of this machine's, in microseconds.
    ahead: Arc<AtomicI64>,
}

/// A server, or a cluster of them.
#[derive(Clone)]
enum Link {
    Server(ConnectionManager),
    Cluster(ClusterConnection),
}

/// The functions as the server gets them.
struct Library {
    code: String,
    version: String,
}

impl Library {
    fn new() -> Self {
        let text = PARTS.concat();
        // The version is that of the text, so that what is called is always what is meant.
        let version = blake3::hash(text.as_bytes()).to_hex()[..12].to_owned();
        let code = format!("#!lua name=statehold_{version}\n{}", text.replace("VERSION", &version));
        Self { code, version }
    }
}

/// The client of a server.
pub(crate) fn client(config: &Config) -> Result<Client> {
    // TLS needs to be told whose ciphers to use, unless this program has said so already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tcp = TcpSettings::default().set_nodelay(true);
    let server = config.server.clone().set_tcp_settings(tcp);
    Ok(match &config.root_certificate {
        Some(certificate) => {
            let root_cert = Some(certificate.clone());
            Client::build_with_tls(server, TlsCertificates { client_tls: None, root_cert })?
        }
        None => Client::open(server)?,
    })
}

/// A connection to all members of a cluster. It sends nothing twice by itself: what was lost may have been done.
async fn cluster(config: &Config) -> Result<ClusterConnection> {
    let mut builder = ClusterClientBuilder::new([config.server.clone()])
        .retries(0)
        .connection_timeout(CONNECT)
        .response_timeout(config.response_timeout)
        .tcp_settings(TcpSettings::default().set_nodelay(true));
    if let Some(certificate) = &config.root_certificate {
        let root_cert = Some(certificate.clone());
        builder = builder.certs(TlsCertificates { client_tls: None, root_cert });
    }
    Ok(builder.build()?.get_async_connection().await?)
}

impl Connection {
    /// Connects, and gives the server the functions.
    pub(crate) async fn open(config: &Config) -> Result<Self> {
        let settings = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(config.response_timeout))
            .set_number_of_retries(RETRIES)
            .set_min_delay(Duration::from_millis(50))
            .set_max_delay(Duration::from_secs(1));
        let manager = client(config)?.get_connection_manager_with_config(settings).await?;
        let (library, ahead) = (Arc::new(Library::new()), Arc::default());
        let (lines, own) = (Lines::new(config), None);
        let mut connection = Self { link: Link::Server(manager), lines, own, library, ahead };
        if connection.is_in_a_cluster().await? {
            connection.link = Link::Cluster(cluster(config).await?);
            connection.lines = None;
        }
        connection.provide().await?;
        connection.time().await?;
        Ok(connection)
    }

    /// The connection of a lane: what is asked by it comes to the server in order, as long as its line is open. Only those who
    /// move the lane may use it.
    pub(crate) fn of_a_lane(&self) -> Self {
        Self { own: self.lines.as_ref().map(|lines| Arc::new(Own::new(lines))), ..self.clone() }
    }

    /// Gives the server the functions, unless it has them.
    pub(crate) async fn provide(&self) -> Result<()> {
        let loaded = self.send(redis::cmd("FUNCTION").arg("LOAD").arg(&self.library.code)).await;
        match loaded {
            Err(Trouble::Redis(error)) if error.to_string().contains("already exists") => Ok(()),
            loaded => loaded.map(drop),
        }
    }

    /// A call of one of the functions.
    pub(crate) fn function(&self, name: &str) -> Cmd {
        let mut call = redis::cmd("FCALL");
        call.arg(format!("statehold_{}_{name}", self.library.version));
        call
    }

    /// A call of one of the functions that only read.
    pub(crate) fn reading(&self, name: &str, keys: &[Bytes]) -> Cmd {
        let mut call = redis::cmd("FCALL_RO");
        call.arg(format!("statehold_{}_{name}", self.library.version)).arg(keys.len()).arg(keys);
        call
    }

    async fn is_in_a_cluster(&self) -> Result<bool> {
        let answer = self.send(redis::cmd("INFO").arg("cluster")).await?;
        Ok(redis::from_redis_value::<String>(answer).is_ok_and(|text| text.contains("cluster_enabled:1")))
    }

    async fn send(&self, call: &Cmd) -> Result<Value> {
        if let Some(own) = &self.own
            && let Some(said) = own.call(call).await
        {
            return Ok(said?);
        }
        Ok(match self.link.clone() {
            Link::Server(mut link) => call.query_async(&mut link).await?,
            Link::Cluster(mut link) => call.query_async(&mut link).await?,
        })
    }

    /// Sends a command, again as long as nobody has done it.
    pub(crate) async fn call(&self, call: &Cmd) -> Result<Value> {
        for _ in 0..DETOURS {
            match self.send(call).await {
                Err(trouble) => self.prepare_anew(trouble).await?,
                answer => return answer,
            }
        }
        self.send(call).await
    }

    /// Sees to it that something can be sent again that nobody has done: the functions were missing, or it went to the
    /// wrong member of a cluster. Anything else stays a trouble.
    async fn prepare_anew(&self, trouble: Trouble) -> Result<()> {
        if trouble.lacks_functions() {
            return self.provide().await;
        }
        if trouble.is_misdirected(self.is_cluster()) {
            sleep(DETOUR).await;
            return Ok(());
        }
        Err(trouble)
    }

    /// Whether it leads to a cluster.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.link, Link::Cluster(_))
    }

    /// Sends commands that are answered at one instant.
    pub(crate) async fn call_all(&self, calls: &[Cmd]) -> Result<Vec<Value>> {
        match calls {
            [] => return Ok(Vec::new()),
            [call] => return Ok(vec![self.call(call).await?]),
            _ => {}
        }
        for _ in 0..DETOURS {
            match self.send_all(calls).await {
                Err(trouble) => self.prepare_anew(trouble).await?,
                answers => return answers,
            }
        }
        self.send_all(calls).await
    }

    async fn send_all(&self, calls: &[Cmd]) -> Result<Vec<Value>> {
        let mut pipeline = Pipeline::with_capacity(calls.len());
        pipeline.atomic();
        for call in calls {
            pipeline.add_command(call.clone());
        }
        if let Some(own) = &self.own
            && let Some(said) = own.call_all(&pipeline).await
        {
            return Ok(said?);
        }
        Ok(match self.link.clone() {
            Link::Server(mut link) => pipeline.query_async(&mut link).await?,
            Link::Cluster(mut link) => pipeline.query_async(&mut link).await?,
        })
    }

    /// The server's time, asked now.
    pub(crate) async fn time(&self) -> Result<i64> {
        let answer = self.call(&redis::cmd("TIME")).await?;
        self.note_time(answer)
    }

    /// Reads the answer of TIME, and remembers how far the server's clock is ahead.
    pub(crate) fn note_time(&self, answer: Value) -> Result<i64> {
        let (seconds, micros): (i64, i64) = redis::from_redis_value(answer).map_err(|_| odd("the time"))?;
        let time = seconds * 1_000_000 + micros;
        self.ahead.store(time - machine_time(), Ordering::Relaxed);
        Ok(time)
    }

    /// Takes in a time that the server has told beside something else. It was told before it came here, so the clock is at
    /// least that far ahead.
    pub(crate) fn note_late_time(&self, time: i64) {
        self.ahead.fetch_max(time - machine_time(), Ordering::Relaxed);
    }

    /// About the server's time, without asking, and hardly ever later than it is.
    pub(crate) fn about_now(&self) -> Timestamp {
        Timestamp::from_micros(machine_time() + self.ahead.load(Ordering::Relaxed))
    }

    /// A part of the index, with the rows that it leads to.
    pub(crate) fn range(&self, space: &Space, range: &crate::space::Range, limit: usize, row: RowKey) -> Cmd {
        self.range_either_way(space, range, limit, row, false)
    }

    /// The same, or backwards.
    pub(crate) fn range_either_way(
        &self,
        space: &Space,
        range: &crate::space::Range,
        limit: usize,
        row: RowKey,
        backwards: bool,
    ) -> Cmd {
        let mut call = self.reading("range", &[space.index()]);
        call.arg(space.tag()).arg(&range.min).arg(&range.max).arg(limit).arg(u8::from(backwards));
        if let RowKey::Of { letter, first, last, rest } = row {
            call.arg(letter).arg(first).arg(last).arg(rest);
        }
        call
    }
}

/// How a member of the index leads to a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RowKey {
    /// It does not.
    None,
    /// By the letter of the row's kind, the member's bytes from `first` to `last`, and those from `rest` on, counted from 1.
    Of { letter: &'static str, first: usize, last: usize, rest: i64 },
}

impl RowKey {
    /// The member is the row's key without the tag.
    pub(crate) const OWN: Self = Self::Of { letter: "", first: 1, last: 0, rest: 1 };
    /// The member ends with the id of a task.
    pub(crate) const TASK: Self = Self::Of { letter: "t", first: 1, last: 0, rest: -16 };
}

/// A part of the index: members, and the rows that they lead to.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) members: Vec<Bytes>,
    pub(crate) rows: Vec<Option<Bytes>>,
}

/// Reads the answer of a range.
pub(crate) fn read_found(answer: Value) -> Result<Found> {
    let (members, rows) = redis::from_redis_value(answer).map_err(|_| odd("a part of the index"))?;
    Ok(Found { members, rows })
}

/// Reads bytes that may be missing.
pub(crate) fn read_bytes(answer: Value) -> Result<Option<Bytes>> {
    redis::from_redis_value(answer).map_err(|_| odd("a value"))
}

fn machine_time() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX)
}
