//! Wakes within this process and between processes, by a channel of the server.
//!
//! The call that writes also publishes the marks of what changed, unless nobody else listens, so a wake never comes before
//! the change and costs no call of its own. A listener wakes for what others publish. When it had to connect anew it wakes
//! everyone, since it may have missed something; while nothing is heard, everyone looks once a second.

use std::fmt::Write as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use statehold_core::backend::Push;
use statehold_core::wake::{Hub, Mark};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::claims;
use crate::commit::Wake;
use crate::config::Config;
use crate::connection::{Connection, client};
use crate::error::Result;
use crate::snapshot::read_id;

/// How many marks a message has at most; with more, everyone is woken.
const MOST: usize = 1000;
/// How often a message to itself shows that the way is open.
const ROUND: Duration = Duration::from_secs(10);
/// How often everyone looks while nothing is heard.
const POLL: Duration = Duration::from_secs(1);
/// How long processes of another release may not know that this one listens: they look once a second.
const UNKNOWN: Duration = Duration::from_millis(1100);
/// How long to wait before connecting anew.
const AGAIN: Duration = Duration::from_millis(200);

/// Wakes whoever waits, here and in other processes.
pub(crate) struct Wakes {
    pub(crate) hub: Hub,
    channel: String,
    /// A channel of this process alone; empty in a cluster, where a member does not know who listens to others.
    own: String,
    heard: Arc<Heard>,
    /// Whether the server last saw nobody else who listens.
    alone: AtomicBool,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Wakes {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// When this process last heard itself, in milliseconds since it began.
struct Heard {
    began: Instant,
    own: AtomicU64,
    name: String,
}

impl Heard {
    fn note(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.own.store(now.max(1), Ordering::Relaxed);
    }

    fn is_recent(&self) -> bool {
        let heard = Duration::from_millis(self.own.load(Ordering::Relaxed));
        heard > Duration::ZERO && self.began.elapsed().saturating_sub(heard) < 3 * ROUND
    }
}

impl Wakes {
    /// Begins to listen, under the name of this process.
    pub(crate) async fn start(config: &Config, db: Connection, name: String) -> Self {
        let (hub, channel) = (Hub::new(), format!("{}:wakes", config.prefix));
        let own = if db.is_cluster() { String::new() } else { format!("{channel}:{name}") };
        let heard = Arc::new(Heard { began: Instant::now(), own: AtomicU64::new(0), name });
        let (ready, listening) = oneshot::channel();
        let channels = [channel.clone(), own.clone()];
        let listener = listen(config.clone(), db.clone(), channels, hub.clone(), Arc::clone(&heard), ready);
        let tasks = vec![
            tokio::spawn(listener),
            tokio::spawn(poll(hub.clone(), Arc::clone(&heard))),
            tokio::spawn(call_out(db, channel.clone(), Arc::clone(&heard))),
        ];
        // What changes from now on is heard, unless the server is away.
        let _ = timeout(Duration::from_secs(5), listening).await;
        Self { hub, channel, own, heard, alone: AtomicBool::new(false), tasks }
    }

    /// Whether wakes travel between processes.
    pub(crate) fn push(&self) -> Push {
        if self.heard.is_recent() { Push::Ok } else { Push::Broken }
    }

    /// Whether nobody waits for anything, here or, as far as is known, elsewhere. Then it is not worked out whom to wake:
    /// whoever turns up meanwhile is woken whatever the change is.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed) && self.hub.is_empty()
    }

    /// Notes whether the server saw other processes that listen.
    pub(crate) fn note_alone(&self, alone: bool) {
        self.alone.store(alone, Ordering::Relaxed);
    }

    /// The message that wakes other processes for what a commit changes, or for anything if it is not known what.
    pub(crate) fn message(&self, marks: Option<&mut Vec<Mark>>, idle: bool) -> Wake<'_> {
        let message = match marks {
            _ if idle => String::new(),
            Some(marks) => {
                marks.sort_unstable();
                marks.dedup();
                self.message_to(marks)
            }
            None => return self.message_to_all(),
        };
        self.wake(message)
    }

    fn message_to(&self, marks: &[Mark]) -> String {
        let name = &self.heard.name;
        if marks.len() > MOST {
            return format!("{name}:*");
        }
        let mut message = format!("{name}:");
        for mark in marks {
            let _ = write!(message, "{:016x}", mark.0);
        }
        message
    }

    /// The message that wakes other processes for tasks that were started; their ids come after it.
    pub(crate) fn start_of_started(&self, namespace: &str) -> Wake<'_> {
        self.wake(format!("{}:>{namespace}\n", self.heard.name))
    }

    /// The message that wakes everyone in other processes.
    pub(crate) fn message_to_all(&self) -> Wake<'_> {
        self.wake(format!("{}:*", self.heard.name))
    }

    fn wake(&self, message: String) -> Wake<'_> {
        Wake { channel: &self.channel, message, own: &self.own }
    }
}

/// Lets everyone look from time to time while nothing is heard from other processes.
async fn poll(hub: Hub, heard: Arc<Heard>) {
    loop {
        sleep(POLL).await;
        if !heard.is_recent() {
            hub.wake_all();
        }
    }
}

/// Shows from time to time that the way is open.
async fn call_out(db: Connection, channel: String, heard: Arc<Heard>) {
    let mut call = redis::cmd("PUBLISH");
    call.arg(channel).arg(format!("{}:", heard.name));
    loop {
        let said = db.call(&call).await;
        sleep(if said.is_ok() { ROUND } else { AGAIN }).await;
    }
}

/// Wakes for a message of another process.
fn hear(message: &[u8], hub: &Hub, heard: &Heard) {
    let Some((name, what)) = split(message, b':') else { return };
    if name == heard.name.as_bytes() {
        heard.note();
        return;
    }
    match what.first() {
        Some(b'*') => hub.wake_all(),
        Some(b'>') => hear_started(&what[1..], hub),
        _ => {
            let digits = what.chunks(16).filter_map(|digits| std::str::from_utf8(digits).ok());
            hub.wake(digits.filter_map(|digits| u64::from_str_radix(digits, 16).ok()).map(Mark));
        }
    }
}

/// Wakes for tasks that another process has started: the namespace, a line's end, and their ids.
fn hear_started(what: &[u8], hub: &Hub) {
    let Some((namespace, ids)) = split(what, b'\n') else { return };
    let namespace = String::from_utf8_lossy(namespace);
    hub.wake(ids.chunks(16).filter_map(read_id).flat_map(|id| claims::marks(&namespace, id)));
}

fn split(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == at)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

async fn listen(
    config: Config,
    db: Connection,
    channels: [String; 2],
    hub: Hub,
    heard: Arc<Heard>,
    ready: oneshot::Sender<()>,
) {
    let mut ready = Some(ready);
    loop {
        // It ends when the connection does.
        let _ = listen_once(&config, &db, &channels, &hub, &heard, &mut ready).await;
        heard.own.store(0, Ordering::Relaxed);
        hub.wake_all();
        sleep(AGAIN).await;
    }
}

async fn listen_once(
    config: &Config,
    db: &Connection,
    channels: &[String; 2],
    hub: &Hub,
    heard: &Heard,
    ready: &mut Option<oneshot::Sender<()>>,
) -> Result<()> {
    let mut listening = client(config)?.get_async_pubsub().await?;
    let [all, own] = channels;
    listening.subscribe(all).await?;
    if !own.is_empty() {
        // Who may not is woken by itself too.
        let _ = listening.subscribe(own).await;
        db.call(db.function("listen").arg(0)).await?;
    }
    if let Some(ready) = ready.take() {
        let _ = ready.send(());
    }
    hub.wake_all();
    let (mut messages, mut known) = (listening.into_on_message(), false);
    let mut unknown = pin!(sleep(UNKNOWN));
    loop {
        tokio::select! {
            message = messages.next() => match message {
                Some(message) => hear(message.get_payload_bytes(), hub, heard),
                None => return Ok(()),
            },
            () = &mut unknown, if !known => {
                known = true;
                hub.wake_all();
            }
        }
    }
}
