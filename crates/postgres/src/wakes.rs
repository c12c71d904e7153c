//! Wakes within this process and between processes, by NOTIFY and LISTEN.
//!
//! Whoever commits wakes its own process at once and leaves the marks of what changed with a messenger, which gathers
//! them for a moment and sends them on a connection of its own: NOTIFY takes a lock on the whole database at commit, so
//! it never belongs into a transaction that writes. By the same connection it hears what others send. When it had to
//! connect anew it wakes everyone, since it may have missed something. Everyone looks from time to time anyway, and once a
//! second while nothing is heard.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use statehold_core::backend::Push;
use statehold_core::model::TaskId;
use statehold_core::wake::{Hub, Mark, Topic};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::AsyncMessage;

use crate::config::Config;
use crate::connection::{Connection, connect, sql};
use crate::error::{Result, Trouble};
use crate::values::param;

/// How long marks are gathered before they are sent.
const GATHER: Duration = Duration::from_millis(10);
/// How many marks fit into a message, which has room for 8000 bytes.
const MOST: usize = 450;
/// How often a message to itself shows that the way is open, and how long it may take.
const ROUND: Duration = Duration::from_secs(10);
/// How often everyone looks while nothing is heard.
const POLL: Duration = Duration::from_secs(1);
/// How many times that everyone looks anyway: nobody tells when a transaction ends that held events back.
const CATCH_UP: u32 = 5;
/// How long to wait before connecting anew, at first and at most.
const AGAIN: Duration = Duration::from_millis(200);
const LATER: Duration = Duration::from_secs(2);
/// How long to wait after the server refused; asking more often would look like an attack.
const REFUSED: Duration = Duration::from_secs(30);

/// Wakes whoever waits, here and in other processes.
#[derive(Clone)]
pub(crate) struct Wakes {
    pub(crate) hub: Hub,
    out: Option<mpsc::UnboundedSender<Vec<Mark>>>,
    heard: Arc<Heard>,
    _tasks: Arc<Tasks>,
}

/// The tasks of a store; they end with it.
#[derive(Default)]
struct Tasks(Vec<JoinHandle<()>>);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
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

    /// What was heard counts for nothing until something is heard again.
    fn forget(&self) {
        self.own.store(0, Ordering::Relaxed);
    }

    fn is_recent(&self) -> bool {
        let heard = Duration::from_millis(self.own.load(Ordering::Relaxed));
        heard > Duration::ZERO && self.began.elapsed().saturating_sub(heard) < 3 * ROUND
    }
}

impl Wakes {
    /// Begins to listen and to tell.
    pub(crate) async fn start(config: &Config) -> Self {
        let hub = Hub::new();
        let name = TaskId::generate().to_string();
        let heard = Arc::new(Heard { began: Instant::now(), own: AtomicU64::new(0), name });
        let poller = tokio::spawn(poll(hub.clone(), Arc::clone(&heard)));
        if config.poll_only {
            return Self { hub, out: None, heard, _tasks: Arc::new(Tasks(vec![poller])) };
        }
        let (out, marks) = mpsc::unbounded_channel();
        let (ready, listening) = oneshot::channel();
        let messenger = Messenger {
            config: config.clone(),
            hub: hub.clone(),
            heard: Arc::clone(&heard),
            marks,
            unsent: None,
        };
        let tasks = Tasks(vec![poller, tokio::spawn(messenger.run(ready))]);
        // What changes from now on is heard, unless the server is away.
        let _ = timeout(Duration::from_secs(5), listening).await;
        Self { hub, out: Some(out), heard, _tasks: Arc::new(tasks) }
    }

    /// Whether wakes travel between processes.
    pub(crate) fn push(&self) -> Push {
        match &self.out {
            None => Push::PollOnly,
            Some(_) if self.heard.is_recent() => Push::Ok,
            Some(_) => Push::Broken,
        }
    }

    /// Wakes for what a commit changed.
    pub(crate) fn wake(&self, marks: Vec<Mark>) {
        self.hub.wake(marks.iter().copied());
        if let Some(out) = self.out.as_ref().filter(|_| !marks.is_empty()) {
            let _ = out.send(marks);
        }
    }

    /// Wakes everyone everywhere.
    pub(crate) fn wake_all(&self) {
        self.hub.wake_all();
        if let Some(out) = &self.out {
            let _ = out.send(Vec::new());
        }
    }
}

/// Lets everyone look from time to time, and more often while nothing is heard from other processes.
async fn poll(hub: Hub, heard: Arc<Heard>) {
    for round in (1..=CATCH_UP).cycle() {
        sleep(POLL).await;
        if round == CATCH_UP || !heard.is_recent() {
            hub.wake_all();
        }
    }
}

/// The channel of a schema.
fn channel(config: &Config) -> String {
    format!("{}_wakes", config.schema)
}

/// What a message says: who sent it, then marks; a star for all of them.
fn write(name: &str, marks: Option<&BTreeSet<Mark>>) -> String {
    match marks {
        None => format!("{name}:*"),
        Some(marks) => {
            let marks: Vec<_> = marks.iter().map(|mark| format!("{:016x}", mark.0)).collect();
            format!("{name}:{}", marks.concat())
        }
    }
}

/// Wakes for a message of another process.
fn hear(text: &str, hub: &Hub, heard: &Heard) {
    let Some((name, marks)) = text.split_once(':') else { return };
    if name == heard.name {
        heard.note();
    } else if marks == "*" {
        hub.wake_all();
    } else if let Some((namespace, queue)) = marks.strip_prefix('+').and_then(|made| made.split_once('\n')) {
        // A task that SQL made.
        let topics = [Topic::Queue(queue.to_owned()), Topic::Category("task".to_owned())];
        hub.wake(topics.iter().map(|topic| Mark::of(namespace, topic)));
    } else {
        let digits = marks.as_bytes().chunks(16).filter_map(|digits| std::str::from_utf8(digits).ok());
        hub.wake(digits.filter_map(|digits| u64::from_str_radix(digits, 16).ok()).map(Mark));
    }
}

/// Hears what others send and sends what was changed here.
struct Messenger {
    config: Config,
    hub: Hub,
    heard: Arc<Heard>,
    marks: mpsc::UnboundedReceiver<Vec<Mark>>,
    /// A message that may not have been sent.
    unsent: Option<String>,
}

impl Messenger {
    /// Does so until the store is closed; says when it is ready for the first time.
    async fn run(mut self, ready: oneshot::Sender<()>) {
        let (mut ready, mut pause) = (Some(ready), AGAIN);
        loop {
            match self.open().await {
                Ok(connection) => {
                    if let Some(ready) = ready.take() {
                        let _ = ready.send(());
                    }
                    pause = AGAIN;
                    self.hub.wake_all();
                    if self.tell(&connection).await.is_ok() {
                        return;
                    }
                    // Until it is open again, everyone looks.
                    self.heard.forget();
                    self.hub.wake_all();
                }
                Err(trouble) => sleep(wait(&mut pause, &trouble)).await,
            }
        }
    }

    /// Listens, and sends a first message to itself, which shows that the way is open.
    async fn open(&self) -> Result<Connection> {
        let (hub, heard) = (self.hub.clone(), Arc::clone(&self.heard));
        let said = move |message: AsyncMessage| {
            if let AsyncMessage::Notification(note) = message {
                hear(note.payload(), &hub, &heard);
            }
        };
        let connection = connect(&self.config, said).await?;
        let listen = format!("LISTEN {}", channel(&self.config));
        connection.in_time(connection.client().batch_execute(&listen)).await?;
        self.send(&connection, self.message(Some(&BTreeSet::new()))).await?;
        Ok(connection)
    }

    /// Sends what was changed, and from time to time that nothing was, until the connection is lost or the store is closed.
    async fn tell(&mut self, connection: &Connection) -> Result<()> {
        let mut said = Instant::now();
        loop {
            if let Some(text) = &self.unsent {
                self.send(connection, text.clone()).await?;
                (said, self.unsent) = (Instant::now(), None);
            }
            self.unsent = match timeout(AGAIN, self.marks.recv()).await {
                Ok(None) => return Ok(()),
                Ok(Some(marks)) => {
                    sleep(GATHER).await;
                    let marks = gather(marks, &mut self.marks);
                    Some(self.message(marks.as_ref()))
                }
                Err(_) if connection.is_closed() => return Err(Trouble::Silence),
                Err(_) => (said.elapsed() > ROUND).then(|| self.message(Some(&BTreeSet::new()))),
            };
        }
    }

    fn message(&self, marks: Option<&BTreeSet<Mark>>) -> String {
        write(&self.heard.name, marks)
    }

    async fn send(&self, connection: &Connection, text: String) -> Result<()> {
        let params = vec![param(channel(&self.config)), param(text)];
        connection.query(sql!("notify"), params).await.map(drop)
    }
}

/// How long to wait after something came to nothing: longer each time.
fn wait(pause: &mut Duration, trouble: &Trouble) -> Duration {
    let now = *pause;
    *pause = (now * 2).min(LATER);
    if trouble.is_refusal() { REFUSED } else { now }
}

/// All marks that came meanwhile; none if they are too many, or everyone is to be woken.
fn gather(first: Vec<Mark>, out: &mut mpsc::UnboundedReceiver<Vec<Mark>>) -> Option<BTreeSet<Mark>> {
    let mut everyone = first.is_empty();
    let mut all: BTreeSet<_> = first.into_iter().collect();
    while let Ok(marks) = out.try_recv() {
        everyone |= marks.is_empty();
        all.extend(marks);
    }
    (!everyone && all.len() <= MOST).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_sql_made_wakes_its_queue_and_its_category_and_nobody_else() {
        let hub = Hub::new();
        let heard = Heard { began: Instant::now(), own: AtomicU64::new(0), name: "me".into() };
        let queue = hub.register("n", &[Topic::Queue("q".into())]);
        let category = hub.register("n", &[Topic::Category("task".into())]);
        let other = hub.register("n", &[Topic::Queue("other".into())]);
        hear("sql:+n\nq", &hub, &heard);
        for waiter in [queue, category] {
            timeout(Duration::from_secs(60), waiter.wait()).await.expect("it is woken");
        }
        let woken = timeout(Duration::from_millis(1), other.wait()).await;
        assert!(woken.is_err(), "another queue is woken");
        assert!(!heard.is_recent(), "that was not this process");
    }
}
