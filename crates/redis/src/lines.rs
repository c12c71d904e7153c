//! Connections that lanes have to themselves. Whoever moves a lane also sends what it writes and reads what is answered, so that
//! no other task stands between, as with the connection that everyone shares.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::{BoxFuture, poll_fn};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisError, RedisResult};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::config::Config;

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
    idle: Vec<Line>,
    /// How many there are, in use or idle.
    count: usize,
    /// Whether another one is being opened.
    opening: bool,
}

/// A connection that is moved by whoever waits for an answer. All who wait at the same time must be of one task.
struct Line {
    connection: MultiplexedConnection,
    /// Sends and receives; none once the connection is lost.
    mover: Mutex<Option<BoxFuture<'static, ()>>>,
}

/// The line of a lane, as long as it has one.
pub(crate) struct Own {
    lines: Arc<Lines>,
    /// Whether several wait in the lane. One alone is served no worse by the connection that everyone shares.
    many: AtomicBool,
    line: Mutex<Option<Arc<Line>>>,
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
    fn take(self: &Arc<Self>) -> Option<Line> {
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
                let opened = timeout(CONNECT, Line::open(&lines.server, lines.patience)).await;
                lock(&lines.kept).opening = false;
                lines.put_back(opened.ok().and_then(Result::ok));
            });
        }
        None
    }

    fn put_back(&self, line: Option<Line>) {
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
        Self { lines: Arc::clone(lines), many: AtomicBool::new(false), line: Mutex::default() }
    }

    /// Notes that several wait in the lane.
    pub(crate) fn note_many(&self) {
        self.many.store(true, Ordering::Relaxed);
    }

    /// Asks something by the line; none if there is none at the moment.
    pub(crate) async fn ask<T>(
        &self,
        question: impl AsyncFnOnce(&mut MultiplexedConnection) -> RedisResult<T>,
    ) -> Option<RedisResult<T>> {
        if !self.many.load(Ordering::Relaxed) {
            return None;
        }
        let line = self.line()?;
        let said = line.ask(question).await;
        if said.as_ref().is_err_and(RedisError::is_timeout) {
            // Whatever is in its way, another one may get around it.
            *lock(&line.mover) = None;
        }
        Some(said)
    }

    fn line(&self) -> Option<Arc<Line>> {
        let mut own = lock(&self.line);
        if own.as_ref().is_none_or(|line| line.is_lost()) {
            if own.take().is_some() {
                self.lines.put_back(None);
            }
            *own = self.lines.take().map(Arc::new);
        }
        own.clone()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(line) = lock(&self.line).take() {
            // Whoever still waits for an answer loses it with the line.
            self.lines.put_back(Arc::into_inner(line).filter(Line::is_open));
        }
    }
}

impl Line {
    async fn open(server: &ConnectionInfo, patience: Duration) -> RedisResult<Self> {
        let ConnectionAddr::Tcp(host, port) = server.addr() else {
            return Err(RedisError::from(std::io::Error::from(std::io::ErrorKind::Unsupported)));
        };
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        stream.set_nodelay(true)?;
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(patience));
        let (connection, mover) =
            MultiplexedConnection::new_with_config(server.redis_settings(), stream, config).await?;
        Ok(Self { connection, mover: Mutex::new(Some(Box::pin(mover))) })
    }

    async fn ask<T>(
        &self,
        question: impl AsyncFnOnce(&mut MultiplexedConnection) -> RedisResult<T>,
    ) -> RedisResult<T> {
        let mut connection = self.connection.clone();
        let mut answer = std::pin::pin!(question(&mut connection));
        poll_fn(|context| match answer.as_mut().poll(context) {
            Poll::Pending => {
                self.go_on(context);
                answer.as_mut().poll(context)
            }
            answered @ Poll::Ready(_) => answered,
        })
        .await
    }

    fn go_on(&self, context: &mut Context<'_>) {
        let mut mover = lock(&self.mover);
        let over = mover.as_mut().is_some_and(|mover| Pin::new(mover).poll(context).is_ready());
        if over {
            // Whoever waits for an answer is told by this that none will come.
            *mover = None;
        }
    }

    /// Whether it is open, as far as that can be seen without sending anything. Nobody may wait for an answer.
    fn is_open(&self) -> bool {
        self.go_on(&mut Context::from_waker(Waker::noop()));
        !self.is_lost()
    }

    fn is_lost(&self) -> bool {
        lock(&self.mover).is_none()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
