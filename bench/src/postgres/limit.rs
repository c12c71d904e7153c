//! The limit: everything that waits goes into one statement a kind, over few connections.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use statehold_core::{Error, Result};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::db::{Db, Done, Json, Sql, Time, broken};
use super::{Schema, batch, fill, mark, trace};
use crate::rival::{Answer, Engine, Job, Query, Trace};

const SETTINGS: &str = include_str!("../../sql/postgres/limit_settings.sql");

/// How many go together at most.
const MOST: usize = 256;

/// How many connections write, and how many read: while one waits for the disk, another works.
const WRITERS: usize = 2;
const READERS: usize = 2;

/// The best that we know to do with a server.
pub(super) struct Limit {
    writes: mpsc::UnboundedSender<Request<Job, Answer>>,
    reads: mpsc::UnboundedSender<Request<Query, usize>>,
    readers: Vec<Arc<Db>>,
    turn: AtomicUsize,
    /// Removed after the connections are of no more use.
    _schema: Schema,
}

struct Request<J, A> {
    job: J,
    reply: oneshot::Sender<Result<A, String>>,
}

impl Limit {
    pub(super) async fn open(schema: Schema) -> Result<Self> {
        let (writes, inbox) = mpsc::unbounded_channel();
        let inbox = Arc::new(Mutex::new(inbox));
        for _ in 0..WRITERS {
            tokio::spawn(write_all(schema.connect(SETTINGS).await?, Arc::clone(&inbox)));
        }
        let (reads, inbox) = mpsc::unbounded_channel();
        let inbox = Arc::new(Mutex::new(inbox));
        let mut readers = Vec::new();
        for _ in 0..READERS {
            let db = Arc::new(schema.connect(SETTINGS).await?);
            tokio::spawn(read_all(Arc::clone(&db), Arc::clone(&inbox)));
            readers.push(db);
        }
        Ok(Self { writes, reads, readers, turn: AtomicUsize::new(0), _schema: schema })
    }

    /// The readers in turn.
    fn reader(&self) -> &Db {
        &self.readers[self.turn.fetch_add(1, Ordering::Relaxed) % READERS]
    }
}

#[async_trait]
impl Engine for Limit {
    async fn write(&self, job: Job) -> Result<Answer> {
        ask(&self.writes, job).await
    }

    async fn read(&self, query: Query) -> Result<usize> {
        match query {
            // Many rows each: statements of their own, one behind the other.
            Query::Messages(stream) => last_messages(self.reader(), &stream).await.map_err(broken),
            query => ask(&self.reads, query).await,
        }
    }

    async fn fill(&self, jobs: Vec<Job>) -> Result<Vec<Answer>> {
        fill(self.reader(), &jobs).await
    }

    async fn mark(&self) -> Result<i64> {
        Ok(mark())
    }

    async fn trace(&self, what: Trace) -> Result<u64> {
        trace(self.reader(), &what).await
    }
}

async fn ask<J, A>(inbox: &mpsc::UnboundedSender<Request<J, A>>, job: J) -> Result<A> {
    let gone = || Error::unavailable("the limit's connection is gone");
    let (reply, answer) = oneshot::channel();
    inbox.send(Request { job, reply }).map_err(|_| gone())?;
    answer.await.map_err(|_| gone())?.map_err(Error::unavailable)
}

type Inbox<J, A> = Arc<Mutex<mpsc::UnboundedReceiver<Request<J, A>>>>;

/// Takes everything that waits, once there is something; nothing when there never will be.
async fn take<J, A>(inbox: &Inbox<J, A>) -> (Vec<J>, Vec<oneshot::Sender<Result<A, String>>>) {
    let mut waiting = Vec::with_capacity(MOST);
    inbox.lock().await.recv_many(&mut waiting, MOST).await;
    waiting.into_iter().map(|request| (request.job, request.reply)).unzip()
}

/// Those who were answered are on their way back. For one alone it would only take longer.
async fn back(answered: usize) {
    if answered > 1 {
        tokio::task::yield_now().await;
    }
}

/// What failed is told to all; the run ends with it.
fn answer<A>(replies: Vec<oneshot::Sender<Result<A, String>>>, answers: Done<Vec<A>>) {
    match answers {
        Ok(answers) => {
            for (reply, answer) in replies.into_iter().zip(answers) {
                let _ = reply.send(Ok(answer));
            }
        }
        Err(error) => {
            let told = broken(error).to_string();
            for reply in replies {
                let _ = reply.send(Err(told.clone()));
            }
        }
    }
}

async fn write_all(db: Db, inbox: Inbox<Job, Answer>) {
    loop {
        let (jobs, replies) = take(&inbox).await;
        if jobs.is_empty() {
            return;
        }
        answer(replies, batch::perform(&db, &jobs).await);
        back(jobs.len()).await;
    }
}

async fn read_all(db: Arc<Db>, inbox: Inbox<Query, usize>) {
    loop {
        let (queries, replies) = take(&inbox).await;
        if queries.is_empty() {
            return;
        }
        answer(replies, read(&db, &queries).await);
        back(queries.len()).await;
    }
}

/// Reads entries and checkpoints, all of a kind at once.
async fn read(db: &Db, queries: &[Query]) -> Done<Vec<usize>> {
    let (mut keys, mut names) = (Vec::new(), Vec::new());
    for query in queries {
        match query {
            Query::Entry(key) => keys.push(&**key),
            Query::Checkpoint(name) => names.push(&**name),
            Query::Messages(_) => {}
        }
    }
    let mut entries: HashMap<String, (String, i64, i64)> = HashMap::new();
    if !keys.is_empty() {
        for row in db.query(Sql::EntriesGet, &[&keys]).await? {
            let entry =
                (row.get::<_, Json<'_>>(1).0.to_owned(), row.get::<_, Time>(2).0, row.get::<_, Time>(3).0);
            entries.insert(row.get(0), entry);
        }
    }
    let mut checkpoints: HashMap<String, (i64, i64, String)> = HashMap::new();
    if !names.is_empty() {
        for row in db.query(Sql::DocumentsGet, &[&names]).await? {
            let found = (row.get(1), row.get::<_, Time>(2).0, row.get::<_, Json<'_>>(3).0.to_owned());
            checkpoints.insert(row.get(0), found);
        }
    }
    let found = |query: &Query| match query {
        Query::Entry(key) => std::hint::black_box(entries.get(&**key).cloned()).is_some(),
        Query::Checkpoint(name) => std::hint::black_box(checkpoints.get(&**name).cloned()).is_some(),
        Query::Messages(_) => false,
    };
    Ok(queries.iter().map(|query| usize::from(found(query))).collect())
}

/// An event as a reader gets it: number, position, time, type, actor, data.
type Event = (i64, String, i64, String, Option<String>, Option<String>);

/// Reads the last 50 events of a stream into memory of their own and answers how many there were.
pub(super) async fn last_messages(db: &Db, stream: &str) -> Done<usize> {
    let rows = db.query(Sql::EventsLast, &[&stream]).await?;
    let event = |row: &tokio_postgres::Row| -> Event {
        let data = row.get::<_, Option<Json<'_>>>(5).map(|data| data.0.to_owned());
        (row.get(0), row.get(1), row.get::<_, Time>(2).0, row.get(3), row.get(4), data)
    };
    Ok(std::hint::black_box(rows.iter().map(event).collect::<Vec<_>>()).len())
}
