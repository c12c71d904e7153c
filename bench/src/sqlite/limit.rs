//! The limit: one writer thread takes everything that waits into one transaction and answers after the commit;
//! readers read where they are.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _, Statement, params};
use statehold_core::{Error, Result};
use tokio::sync::oneshot;

use super::log::Log;
use super::rows::{self, Clock, Sql, Statements};
use super::{File, broken, fill, mark, trace};
use crate::rival::{Answer, Engine, Job, Query, Trace};

/// What the writer's connection is set to beyond the others.
const PRAGMAS: &str = include_str!("../../sql/sqlite/writer_pragmas.sql");
/// How long a transaction takes up newcomers.
const OPEN: Duration = Duration::from_millis(5);
/// How long a transaction waits for the callers that the last one answered: those of a closed loop are on their way.
const LINGER: Duration = Duration::from_micros(100);
/// How many connections read.
const READERS: usize = 4;

/// The best that we know to do with a file.
pub(super) struct Limit {
    inbox: Arc<Inbox>,
    writer: Option<JoinHandle<()>>,
    readers: Vec<Mutex<Connection>>,
    turn: AtomicUsize,
    file: File,
}

impl Limit {
    pub(super) fn open(file: File) -> Result<Self> {
        let inbox = Arc::new(Inbox::default());
        let mut connection = file.connect()?;
        connection.execute_batch(PRAGMAS).map_err(broken)?;
        let log = Log::start(&mut connection, file.connect()?).map_err(broken)?;
        let readers: Result<_> = (0..READERS).map(|_| file.connect().map(Mutex::new)).collect();
        let box_ = Arc::clone(&inbox);
        let writer = std::thread::Builder::new()
            .name("limit-writer".into())
            .spawn(move || write_all(&connection, &box_, log))
            .map_err(|e| Error::unavailable("the limit's writer cannot be started").caused_by(e))?;
        Ok(Self { inbox, writer: Some(writer), readers: readers?, turn: AtomicUsize::new(0), file })
    }

    /// A reader that nobody uses, the same one if possible, whose pages are warm; or the next one to be free.
    fn reader(&self) -> MutexGuard<'_, Connection> {
        let free = self.readers.iter().find_map(|reader| reader.try_lock().ok());
        free.unwrap_or_else(|| {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            self.readers[turn % READERS].lock().unwrap_or_else(PoisonError::into_inner)
        })
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        self.inbox.close();
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has left its callers without an answer, which they told.
            let _ = writer.join();
        }
    }
}

#[async_trait]
impl Engine for Limit {
    async fn write(&self, job: Job) -> Result<Answer> {
        let (reply, answer) = oneshot::channel();
        self.inbox.put(Request { job, reply });
        let gone = |_| Error::unavailable("the limit's writer is gone");
        answer.await.map_err(gone)?.map_err(Error::unavailable)
    }

    async fn read(&self, query: Query) -> Result<usize> {
        rows::read(&self.reader(), &query).map_err(broken)
    }

    async fn fill(&self, jobs: Vec<Job>) -> Result<Vec<Answer>> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        fill(&self.file.connect()?, &jobs).map_err(broken)
    }

    async fn mark(&self) -> Result<i64> {
        mark(&self.reader()).map_err(broken)
    }

    async fn trace(&self, what: Trace) -> Result<u64> {
        trace(&self.reader(), &what).map_err(broken)
    }
}

struct Request {
    job: Job,
    reply: oneshot::Sender<Result<Answer, String>>,
}

/// What waits for the writer.
#[derive(Default)]
struct Inbox {
    waiting: Mutex<Waiting>,
    filled: Condvar,
}

#[derive(Default)]
struct Waiting {
    requests: Vec<Request>,
    /// The writer sleeps and must be woken, which costs a system call.
    asleep: bool,
    closed: bool,
}

impl Inbox {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, request: Request) {
        let mut waiting = self.waiting();
        waiting.requests.push(request);
        let asleep = std::mem::take(&mut waiting.asleep);
        drop(waiting);
        if asleep {
            self.filled.notify_one();
        }
    }

    fn close(&self) {
        self.waiting().closed = true;
        self.filled.notify_one();
    }

    /// Takes everything that is there.
    fn take(&self, into: &mut Vec<Request>) {
        std::mem::swap(&mut self.waiting().requests, into);
    }

    /// Takes everything, once there is something; answers false when there never will be.
    fn wait(&self, into: &mut Vec<Request>) -> bool {
        let mut waiting = self.waiting();
        while waiting.requests.is_empty() && !waiting.closed {
            waiting.asleep = true;
            waiting = self.filled.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut waiting.requests, into);
        !into.is_empty()
    }
}

/// Prepared statements that stay, and the heads of streams, which only this writer moves.
struct Kept<'c> {
    statements: Vec<Statement<'c>>,
    heads: HashMap<Arc<str>, Head>,
    moved: Vec<Arc<str>>,
}

#[derive(Default)]
struct Head {
    last_seq: i64,
    moved: bool,
}

impl<'c> Kept<'c> {
    fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        let statements: rusqlite::Result<_> =
            Sql::ALL.iter().map(|sql| connection.prepare(sql.text())).collect();
        Ok(Self { statements: statements?, heads: HashMap::new(), moved: Vec::new() })
    }

    /// Writes the heads that moved, each once however often it did.
    fn write_heads(&mut self, now: Clock) -> rusqlite::Result<()> {
        for stream in std::mem::take(&mut self.moved) {
            let Some(head) = self.heads.get_mut(&stream) else { continue };
            head.moved = false;
            let last_seq = head.last_seq;
            self.with(Sql::HeadPut, |put| put.execute(params![&*stream, last_seq, now.micros()]))?;
        }
        Ok(())
    }
}

impl Statements for Kept<'_> {
    fn with<T>(
        &mut self,
        sql: Sql,
        run: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        run(&mut self.statements[sql as usize])
    }

    fn next_seq(&mut self, stream: &Arc<str>, _: Clock) -> rusqlite::Result<i64> {
        if !self.heads.contains_key(stream) {
            let known = self
                .with(Sql::HeadGet, |get| get.query_row(params![&**stream], |row| row.get(0)).optional())?;
            self.heads.insert(stream.clone(), Head { last_seq: known.unwrap_or(0), moved: false });
        }
        let head = self.heads.entry(stream.clone()).or_default();
        head.last_seq += 1;
        if !std::mem::replace(&mut head.moved, true) {
            self.moved.push(stream.clone());
        }
        Ok(head.last_seq)
    }
}

fn write_all(connection: &Connection, inbox: &Inbox, mut log: Log) {
    let Ok(mut writer) = Writer::new(connection) else { return };
    let mut waiting = Vec::new();
    while inbox.wait(&mut waiting) {
        match writer.transaction(inbox, &mut waiting) {
            Ok(()) => writer.answered.drain(..).for_each(|(reply, answer)| drop(reply.send(Ok(answer)))),
            Err(error) => {
                // What failed is told to all; the run ends with it.
                let _ = connection.execute_batch("ROLLBACK");
                let told = writer.answered.drain(..).map(|(reply, _)| reply);
                let replies = told.chain(waiting.drain(..).map(|request| request.reply));
                replies.for_each(|reply| drop(reply.send(Err(error.to_string()))));
            }
        }
        log.tend(connection);
    }
}

struct Writer<'c> {
    begin: Statement<'c>,
    commit: Statement<'c>,
    rows: Kept<'c>,
    answered: Vec<(oneshot::Sender<Result<Answer, String>>, Answer)>,
    /// How many the last transaction answered.
    before: usize,
}

impl<'c> Writer<'c> {
    fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        let begin = connection.prepare("BEGIN IMMEDIATE")?;
        let commit = connection.prepare("COMMIT")?;
        Ok(Self { begin, commit, rows: Kept::new(connection)?, answered: Vec::new(), before: 0 })
    }

    fn transaction(&mut self, inbox: &Inbox, waiting: &mut Vec<Request>) -> rusqlite::Result<()> {
        let (began, now) = (Instant::now(), Clock::now());
        self.begin.execute([])?;
        while !waiting.is_empty() {
            for request in waiting.drain(..) {
                let answer = rows::perform(&mut self.rows, &request.job, now)?;
                self.answered.push((request.reply, answer));
            }
            if began.elapsed() < OPEN {
                self.take_more(inbox, waiting);
            }
        }
        self.rows.write_heads(now)?;
        self.commit.execute([])?;
        self.before = self.answered.len();
        Ok(())
    }

    fn take_more(&self, inbox: &Inbox, waiting: &mut Vec<Request>) {
        inbox.take(waiting);
        let since = Instant::now();
        while waiting.is_empty() && self.answered.len() < self.before && since.elapsed() < LINGER {
            std::thread::yield_now();
            inbox.take(waiting);
        }
    }
}
