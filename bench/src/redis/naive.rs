//! The naive way: a pool of connections, and for each call a command, or a transaction that watches what it read.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::future::try_join_all;
use redis::Pipeline;
use redis::aio::MultiplexedConnection;
use statehold_core::{Error, Result};
use tokio::sync::Semaphore;

use super::limit::{BULK, entry, read, task};
use super::script::Script;
use super::space::{Space, ended, event, lease, long, now, place, row, started};
use super::{Done, broken};
use crate::rival::{Answer, Completion, Engine, Job, Query, Trace};

/// How many connections there are.
const CONNECTIONS: usize = 16;

/// What a careful engineer writes first.
pub(super) struct Naive {
    idle: Mutex<Vec<MultiplexedConnection>>,
    permits: Semaphore,
    release: Script,
    /// Removed after the connections are of no more use.
    space: Space,
}

impl Naive {
    pub(super) async fn open(space: Space) -> Result<Self> {
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS {
            idle.push(space.connect().await?);
        }
        let release = include_str!("../../lua/release.lua");
        let release = Script::load(&mut space.connect().await?, release).await.map_err(broken)?;
        Ok(Self { idle: Mutex::new(idle), permits: Semaphore::new(CONNECTIONS), release, space })
    }

    /// Does something with a connection of the pool, as soon as one is idle.
    async fn with<T>(&self, work: impl AsyncFnOnce(&mut MultiplexedConnection) -> Done<T>) -> Result<T> {
        let gone = || Error::unavailable("the naive pool is empty");
        let _permit = self.permits.acquire().await.map_err(|_| gone())?;
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = idle().pop();
        let mut db = taken.ok_or_else(gone)?;
        let done = work(&mut db).await;
        idle().push(db);
        done.map_err(broken)
    }

    async fn perform(&self, db: &mut MultiplexedConnection, job: &Job) -> Done<Answer> {
        let space = &self.space;
        match job {
            Job::TaskCreate { queue, task, input } => {
                let mut calls = redis::pipe();
                calls.atomic();
                calls.hset_multiple(
                    space.key("t", task.id()),
                    &[("row", row(queue, task, input)), ("status", "pending".to_owned())],
                );
                calls.zadd(space.key("q", queue), place(task), 0);
                calls.rpush(space.key("E", task.stream()), event("task.created", r#"{"status":"pending"}"#));
                calls.exec_async(db).await.map(|()| Answer::Done)
            }
            Job::TaskClaim { queue, owner } => self.claim(db, queue, owner).await,
            Job::TaskComplete(end) => {
                if !self.holds(db, end).await? {
                    return Ok(Answer::Refused);
                }
                let mut calls = redis::pipe();
                calls.atomic();
                self.add_end(&mut calls, end);
                committed(db, &calls).await
            }
            Job::StreamAppend { stream, data } => {
                let mut call = redis::cmd("RPUSH");
                call.arg(space.key("E", stream)).arg(event("message", data));
                call.query_async(db).await.map(Answer::Number)
            }
            Job::EntrySet { key, value } => {
                let mut call = redis::cmd("SET");
                call.arg(space.key("e", key)).arg(entry(value)).arg("PX").arg(long());
                call.exec_async(db).await.map(|()| Answer::Done)
            }
            Job::LockAcquire { key, .. } => {
                let token = now();
                let mut call = redis::cmd("SET");
                call.arg(space.key("l", key)).arg(token).arg("NX").arg("PX").arg(long());
                let done: bool = call.query_async(db).await?;
                Ok(if done { Answer::Number(token) } else { Answer::Refused })
            }
            Job::LockRelease { key, token } => {
                let freed: bool =
                    self.release.call(&[space.key("l", key)]).arg(*token).query_async(db).await?;
                Ok(if freed { Answer::Done } else { Answer::Refused })
            }
            Job::DocumentPut { kind, name, body } => {
                let mut calls = redis::pipe();
                calls.atomic();
                self.add_document(&mut calls, kind, name, body);
                calls.exec_async(db).await.map(|()| Answer::Done)
            }
            Job::DocumentUpdate { name, revision, body } => self.update(db, name, *revision, body).await,
            Job::Together(jobs) => self.settle(db, jobs).await,
        }
    }

    async fn claim(&self, db: &mut MultiplexedConnection, queue: &str, owner: &str) -> Done<Answer> {
        let (space, token) = (&self.space, now());
        let popped: Vec<(String, i64)> =
            redis::cmd("ZPOPMIN").arg(space.key("q", queue)).query_async(db).await?;
        let Some(id) = popped.first().and_then(|(place, _)| place.get(20..)) else {
            return Ok(Answer::Refused);
        };
        let key = space.key("t", id);
        let row: String = redis::cmd("HGET").arg(&key).arg("row").query_async(db).await?;
        let mut calls = redis::pipe();
        calls.atomic();
        calls.hset_multiple(
            key,
            &[("status", "running".to_owned()), ("lease", lease(owner, token)), ("token", token.to_string())],
        );
        calls.zadd(space.key("r", ""), id, token);
        calls.rpush(space.key("E", &format!("task/{id}")), started(owner));
        calls.exec_async(db).await?;
        Ok(task(id, token, &row))
    }

    /// Watches a task, and whether it is running with this token.
    async fn holds(&self, db: &mut MultiplexedConnection, end: &Completion) -> Done<bool> {
        let key = self.space.key("t", end.task.id());
        redis::cmd("WATCH").arg(&key).exec_async(db).await?;
        let token: Option<i64> = redis::cmd("HGET").arg(&key).arg("token").query_async(db).await?;
        Ok(token == Some(end.token))
    }

    fn add_end(&self, calls: &mut Pipeline, end: &Completion) {
        let [task, running, done, events] = self.space.ending(&end.task);
        calls.hset_multiple(&task, &[("status", "completed"), ("output", &*end.output)]);
        calls.hdel(&task, &["token", "lease"]);
        calls.zrem(running, end.task.id());
        calls.zadd(done, end.task.id(), now());
        calls.rpush(events, ended());
    }

    fn add_document(&self, calls: &mut Pipeline, kind: &str, name: &str, body: &str) {
        let key = self.space.key("D", &format!("{kind}/{name}"));
        calls.hset(&key, "body", body);
        calls.hincr(&key, "revision", 1);
    }

    async fn update(
        &self,
        db: &mut MultiplexedConnection,
        name: &str,
        revision: i64,
        body: &str,
    ) -> Done<Answer> {
        let key = self.space.key("D", &format!("session/{name}"));
        redis::cmd("WATCH").arg(&key).exec_async(db).await?;
        let there: Option<i64> = redis::cmd("HGET").arg(&key).arg("revision").query_async(db).await?;
        if there != Some(revision) {
            return Ok(Answer::Refused);
        }
        let mut calls = redis::pipe();
        calls.atomic();
        self.add_document(&mut calls, "session", name, body);
        Ok(match committed(db, &calls).await? {
            Answer::Done => Answer::Number(revision + 1),
            answer => answer,
        })
    }

    /// The four jobs of a settling: append, document, lock, task.
    async fn settle(&self, db: &mut MultiplexedConnection, jobs: &[Job]) -> Done<Answer> {
        let [
            Job::StreamAppend { stream, data },
            Job::DocumentPut { kind, name, body },
            Job::LockRelease { key, token },
            Job::TaskComplete(end),
        ] = jobs
        else {
            return Ok(Answer::Refused);
        };
        let lock = self.space.key("l", key);
        redis::cmd("WATCH").arg(&lock).exec_async(db).await?;
        let held: Option<i64> = redis::cmd("GET").arg(&lock).query_async(db).await?;
        if held != Some(*token) || !self.holds(db, end).await? {
            return Ok(Answer::Refused);
        }
        let mut calls = redis::pipe();
        calls.atomic();
        calls.rpush(self.space.key("E", stream), event("message", data));
        self.add_document(&mut calls, kind, name, body);
        calls.del(lock);
        self.add_end(&mut calls, end);
        committed(db, &calls).await
    }
}

/// Sends a transaction that came to nothing if what was watched has changed.
async fn committed(db: &mut MultiplexedConnection, calls: &Pipeline) -> Done<Answer> {
    let answer: redis::Value = calls.query_async(db).await?;
    Ok(if answer == redis::Value::Nil { Answer::Refused } else { Answer::Done })
}

#[async_trait]
impl Engine for Naive {
    async fn write(&self, job: Job) -> Result<Answer> {
        self.with(async |db| self.perform(db, &job).await).await
    }

    async fn read(&self, query: Query) -> Result<usize> {
        self.with(async |db| read(db, &self.space, &query).await).await
    }

    async fn fill(&self, jobs: Vec<Job>) -> Result<Vec<Answer>> {
        let mut answers = Vec::with_capacity(jobs.len());
        for jobs in jobs.chunks(BULK) {
            answers.append(&mut try_join_all(jobs.iter().map(|job| self.write(job.clone()))).await?);
        }
        Ok(answers)
    }

    async fn mark(&self) -> Result<i64> {
        Ok(now())
    }

    async fn trace(&self, what: Trace) -> Result<u64> {
        self.with(async |db| self.space.trace(db, &what).await).await
    }
}
