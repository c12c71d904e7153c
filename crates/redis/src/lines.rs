//! Connections that lanes have to themselves. Whoever moves a lane also sends what it writes and reads what is answered, so that
//! no other task stands between, as with the connection that everyone shares.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, ConnectionAddr, ConnectionInfo, Pipeline, RedisResult, Value};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::config::Config;
use crate::wire::Wire;

/// How many lanes have a connection of their own at most.
const MOST: usize = 16;

/// How long a new connection may take.
const CONNECT: Duration = Duration::from_secs(5);

/// The lines of a store.
pub(crate) struct Lines {
    server: ConnectionInfo,
    /// How long the server may take to answer.
    patience: Duration,
    /// Where the store was opened. Lines live there, since whoever moves a lane may be of a runtime that ends before.
    home: Handle,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    idle: Vec<Arc<Wire>>,
    /// How many there are, in use or idle.
    count: usize,
    /// Whether another one is being opened.
    opening: bool,
}

/// The line of a lane, as long as it has one.
pub(crate) struct Own {
    lines: Arc<Lines>,
    line: Mutex<Option<Arc<Wire>>>,
}

impl Lines {
    /// The lines to a server; none if it is reached through TLS or a socket, which only the shared connection knows.
    pub(crate) fn new(config: &Config) -> Option<Arc<Self>> {
        let server = config.server.clone();
        matches!(server.addr(), ConnectionAddr::Tcp(..)).then(|| {
            let (patience, home) = (config.response_timeout, Handle::current());
            Arc::new(Self { server, patience, home, kept: Mutex::default() })
        })
    }

    /// A line that nobody uses; none if there is none yet. Nobody waits until another one is there.
    fn take(self: &Arc<Self>) -> Option<Arc<Wire>> {
        let mut kept = lock(&self.kept);
        while let Some(line) = kept.idle.pop() {
            if line.is_open() {
                return Some(line);
            }
            kept.count -= 1;
        }
        if kept.count < MOST && !kept.opening {
            (kept.count, kept.opening) = (kept.count + 1, true);
            let lines = Arc::clone(self);
            self.home.spawn(async move {
                let opened = timeout(CONNECT, open(&lines.server, lines.patience)).await;
                lock(&lines.kept).opening = false;
                lines.put_back(opened.ok().and_then(Result::ok).map(Arc::new));
            });
        }
        None
    }

    fn put_back(&self, line: Option<Arc<Wire>>) {
        let mut kept = lock(&self.kept);
        match line {
            Some(line) => kept.idle.push(line),
            None => kept.count -= 1,
        }
    }
}

impl Own {
    /// Nothing yet.
    pub(crate) fn new(lines: &Arc<Lines>) -> Self {
        Self { lines: Arc::clone(lines), line: Mutex::default() }
    }

    /// Asks something by the line; none if there is none at the moment.
    pub(crate) async fn call(&self, call: &Cmd) -> Option<RedisResult<Value>> {
        Some(ask(&*self.line()?, call).await)
    }

    /// The same for several commands that are done at one instant.
    pub(crate) async fn call_all(&self, calls: &Pipeline) -> Option<RedisResult<Vec<Value>>> {
        let line = self.line()?;
        let packed = calls.get_packed_pipeline();
        // It begins, each command is noted, and then all are done.
        let answers = line.ask(|out| out.extend_from_slice(&packed), calls.len() + 2).await;
        Some(answers.and_then(done_together))
    }

    fn line(&self) -> Option<Arc<Wire>> {
        let mut own = lock(&self.line);
        if own.as_ref().is_none_or(|line| line.is_lost()) {
            if own.take().is_some() {
                self.lines.put_back(None);
            }
            *own = self.lines.take();
        }
        own.clone()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(line) = lock(&self.line).take() {
            self.lines.put_back(Some(line).filter(|line| line.is_open()));
        }
    }
}

async fn open(server: &ConnectionInfo, patience: Duration) -> RedisResult<Wire> {
    let ConnectionAddr::Tcp(host, port) = server.addr() else {
        return Err(io::Error::from(io::ErrorKind::Unsupported).into());
    };
    let stream = TcpStream::connect((host.as_str(), *port)).await?;
    stream.set_nodelay(true)?;
    let (line, settings) = (Wire::new(stream, patience), server.redis_settings());
    if let Some(password) = settings.password() {
        ask(&line, redis::cmd("AUTH").arg(settings.username()).arg(password)).await?;
    }
    if settings.db() != 0 {
        ask(&line, redis::cmd("SELECT").arg(settings.db())).await?;
    }
    Ok(line)
}

async fn ask(line: &Wire, call: &Cmd) -> RedisResult<Value> {
    let mut answers = line.ask(|out| call.write_packed_command(out), 1).await?;
    answers.pop().unwrap_or(Value::Nil).extract_error()
}

/// What commands say that were done together, or the first thing that went wrong.
fn done_together(answers: Vec<Value>) -> RedisResult<Vec<Value>> {
    let mut said = Vec::new();
    for answer in answers {
        if let Value::Array(answers) = answer.extract_error()? {
            said = answers;
        }
    }
    Ok(said)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
