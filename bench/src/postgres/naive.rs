//! The naive way: a pool of connections, and for each call one statement or one transaction.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use statehold_core::{Error, Result};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::db::{Db, Done, Json, Sql, Time, broken};
use super::limit::last_messages;
use super::{Clock, REQUEST, Schema, fill, mark, trace};
use crate::rival::{Answer, Completion, Engine, Job, Query, Started, TaskName, Trace};

/// How many connections there are.
const CONNECTIONS: usize = 16;

/// What a careful engineer writes first.
pub(super) struct Naive {
    idle: Mutex<Vec<Arc<Db>>>,
    permits: Semaphore,
    /// Removed after the connections are of no more use.
    _schema: Schema,
}

impl Naive {
    pub(super) async fn open(schema: Schema) -> Result<Self> {
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS {
            idle.push(Arc::new(schema.connect("").await?));
        }
        Ok(Self { idle: Mutex::new(idle), permits: Semaphore::new(CONNECTIONS), _schema: schema })
    }

    /// A connection of the pool, as soon as one is idle.
    async fn take(&self) -> Result<Taken<'_>> {
        let gone = |_| Error::unavailable("the naive pool is closed");
        let permit = self.permits.acquire().await.map_err(gone)?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let db = idle.ok_or_else(|| Error::unavailable("the naive pool is empty"))?;
        Ok(Taken { db, pool: self, _permit: permit })
    }
}

/// A connection, back in the pool when this goes.
struct Taken<'a> {
    db: Arc<Db>,
    pool: &'a Naive,
    /// Given back after the connection.
    _permit: SemaphorePermit<'a>,
}

impl Deref for Taken<'_> {
    type Target = Db;

    fn deref(&self) -> &Db {
        &self.db
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&self.db));
    }
}

#[async_trait]
impl Engine for Naive {
    async fn write(&self, job: Job) -> Result<Answer> {
        write(&*self.take().await?, &job).await.map_err(broken)
    }

    async fn read(&self, query: Query) -> Result<usize> {
        read(&*self.take().await?, &query).await.map_err(broken)
    }

    async fn fill(&self, jobs: Vec<Job>) -> Result<Vec<Answer>> {
        fill(&*self.take().await?, &jobs).await
    }

    async fn mark(&self) -> Result<i64> {
        Ok(mark())
    }

    async fn trace(&self, what: Trace) -> Result<u64> {
        trace(&*self.take().await?, &what).await
    }
}

/// Does a job: alone if it is one statement, otherwise in a transaction.
async fn write(db: &Db, job: &Job) -> Done<Answer> {
    let one_statement = matches!(
        job,
        Job::EntrySet { .. }
            | Job::LockAcquire { .. }
            | Job::LockRelease { .. }
            | Job::DocumentPut { .. }
            | Job::DocumentUpdate { .. }
    );
    if one_statement {
        return perform(db, job).await;
    }
    db.execute(Sql::Begin, &[]).await?;
    let answer = match job {
        Job::Together(jobs) => perform_all(db, jobs).await,
        job => perform(db, job).await,
    };
    db.execute(if answer.is_ok() { Sql::Commit } else { Sql::Rollback }, &[]).await?;
    answer
}

async fn perform_all(db: &Db, jobs: &[Job]) -> Done<Answer> {
    for job in jobs {
        if matches!(perform(db, job).await?, Answer::Refused) {
            return Ok(Answer::Refused);
        }
    }
    Ok(Answer::Done)
}

async fn perform(db: &Db, job: &Job) -> Done<Answer> {
    let now = Clock::now();
    match job {
        Job::TaskCreate { queue, task, input } => {
            db.execute(Sql::TaskInsert, &[&task.uuid(), &&**queue, &Json(input), &REQUEST]).await?;
            lifecycle(db, task, 1, "task.created", r#"{"status":"pending"}"#).await?;
            Ok(Answer::Done)
        }
        Job::TaskClaim { queue, owner } => claim(db, queue, owner, now).await,
        Job::TaskComplete(completion) => complete(db, completion).await,
        Job::StreamAppend { stream, data } => {
            let head = db.first(Sql::HeadNext, &[&&**stream]).await?;
            let seq: i64 = head.map_or(0, |row| row.get(0));
            event(db, stream, seq, "thread", "message", data).await?;
            Ok(Answer::Number(seq))
        }
        Job::EntrySet { key, value } => {
            db.execute(Sql::EntrySet, &[&&**key, &Json(value), &now.last_minute()]).await?;
            Ok(Answer::Done)
        }
        Job::LockAcquire { key, owner } => {
            let (token, hour) = (now.micros(), now.last_minute() / 60);
            let acquired = db.execute(Sql::LockAcquire, &[&&**key, &&**owner, &token, &hour]).await?;
            Ok(if acquired == 1 { Answer::Number(token) } else { Answer::Refused })
        }
        Job::LockRelease { key, token } => Ok(done(db.execute(Sql::LockRelease, &[&&**key, token]).await?)),
        Job::DocumentPut { kind, name, body } => {
            db.execute(Sql::DocumentPut, &[kind, &&**name, &Json(body)]).await?;
            Ok(Answer::Done)
        }
        Job::DocumentUpdate { name, revision, body } => {
            let updated = db.execute(Sql::DocumentUpdate, &[&&**name, revision, &Json(body)]).await?;
            Ok(if updated == 1 { Answer::Number(revision + 1) } else { Answer::Refused })
        }
        // One within another is not asked for.
        Job::Together(_) => Ok(Answer::Refused),
    }
}

fn done(changed: u64) -> Answer {
    if changed == 1 { Answer::Done } else { Answer::Refused }
}

async fn claim(db: &Db, queue: &str, owner: &str, now: Clock) -> Done<Answer> {
    let Some(ready) = db.first(Sql::TaskReady, &[&queue]).await? else { return Ok(Answer::Refused) };
    let (task, token) = (TaskName::of(ready.get(0)), now.micros());
    db.execute(Sql::TaskStart, &[&task.uuid(), &owner, &token, &now.last_minute()]).await?;
    lifecycle(db, &task, 2, "task.started", r#"{"attempt":1,"owner":"worker-0"}"#).await?;
    let input = ready.get::<_, Option<Json<'_>>>(1).map(|input| input.0.to_owned());
    Ok(Answer::Task(Started { task, token, input }))
}

async fn complete(db: &Db, end: &Completion) -> Done<Answer> {
    let completed =
        db.execute(Sql::TaskComplete, &[&end.task.uuid(), &end.token, &Json(&end.output)]).await?;
    lifecycle(db, &end.task, 3, "task.completed", r#"{"attempt":1}"#).await?;
    Ok(done(completed))
}

async fn lifecycle(db: &Db, task: &TaskName, seq: i64, kind: &str, data: &str) -> Done<()> {
    event(db, task.stream(), seq, "task", kind, data).await
}

async fn event(db: &Db, stream: &str, seq: i64, category: &str, kind: &str, data: &str) -> Done<()> {
    db.execute(Sql::EventInsert, &[&stream, &seq, &category, &kind, &Json(data)]).await?;
    Ok(())
}

/// Reads something into memory of its own and answers how many rows it had.
async fn read(db: &Db, query: &Query) -> Done<usize> {
    let found = match query {
        Query::Messages(stream) => return last_messages(db, stream).await,
        Query::Entry(key) => db.first(Sql::EntryGet, &[&&**key]).await?.map(|row| {
            (row.get::<_, Time>(1).0, row.get::<_, Time>(2).0, row.get::<_, Json<'_>>(0).0.to_owned())
        }),
        Query::Checkpoint(name) => db
            .first(Sql::DocumentGet, &[&&**name])
            .await?
            .map(|row| (row.get(0), row.get::<_, Time>(1).0, row.get::<_, Json<'_>>(2).0.to_owned())),
    };
    Ok(usize::from(std::hint::black_box(found).is_some()))
}
