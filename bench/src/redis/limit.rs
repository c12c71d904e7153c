//! The limit: one connection for all callers, and one command or one small script for each job.

use async_trait::async_trait;
use futures_util::future::try_join_all;
use redis::aio::MultiplexedConnection;
use statehold_core::Result;

use super::script::Script;
use super::space::{Space, ended, event, input, lease, long, now, place, row, started};
use super::{Done, broken};
use crate::rival::{Answer, Completion, Engine, Job, Query, Started, TaskName, Trace};

/// How many jobs are on their way at once before a slice.
pub(super) const BULK: usize = 500;

/// The best that we know to do with a server.
pub(super) struct Limit {
    db: MultiplexedConnection,
    scripts: Scripts,
    /// Removed after the connection is of no more use.
    space: Space,
}

struct Scripts {
    create: Script,
    claim: Script,
    complete: Script,
    release: Script,
    put: Script,
    settle: Script,
}

impl Scripts {
    async fn load(db: &mut MultiplexedConnection) -> Done<Self> {
        Ok(Self {
            create: Script::load(db, include_str!("../../lua/create.lua")).await?,
            claim: Script::load(db, include_str!("../../lua/claim.lua")).await?,
            complete: Script::load(db, include_str!("../../lua/complete.lua")).await?,
            release: Script::load(db, include_str!("../../lua/release.lua")).await?,
            put: Script::load(db, include_str!("../../lua/put.lua")).await?,
            settle: Script::load(db, include_str!("../../lua/settle.lua")).await?,
        })
    }
}

impl Limit {
    pub(super) async fn open(space: Space) -> Result<Self> {
        let mut db = space.connect().await?;
        let scripts = Scripts::load(&mut db).await.map_err(broken)?;
        Ok(Self { db, scripts, space })
    }

    async fn perform(&self, job: &Job) -> Done<Answer> {
        let (mut db, space, scripts) = (self.db.clone(), &self.space, &self.scripts);
        match job {
            Job::TaskCreate { queue, task, input } => {
                let mut call = scripts.create.call(&[
                    space.key("t", task.id()),
                    space.key("q", queue),
                    space.key("E", task.stream()),
                ]);
                call.arg(row(queue, task, input)).arg(place(task));
                call.arg(event("task.created", r#"{"status":"pending"}"#));
                call.exec_async(&mut db).await.map(|()| Answer::Done)
            }
            Job::TaskClaim { queue, owner } => self.claim(queue, owner).await,
            Job::TaskComplete(end) => self.complete(end).await,
            Job::StreamAppend { stream, data } => {
                let mut call = redis::cmd("RPUSH");
                call.arg(space.key("E", stream)).arg(event("message", data));
                call.query_async(&mut db).await.map(Answer::Number)
            }
            Job::EntrySet { key, value } => {
                let mut call = redis::cmd("SET");
                call.arg(space.key("e", key)).arg(entry(value)).arg("PX").arg(long());
                call.exec_async(&mut db).await.map(|()| Answer::Done)
            }
            Job::LockAcquire { key, .. } => {
                let token = now();
                let mut call = redis::cmd("SET");
                call.arg(space.key("l", key)).arg(token).arg("NX").arg("PX").arg(long());
                let done: bool = call.query_async(&mut db).await?;
                Ok(if done { Answer::Number(token) } else { Answer::Refused })
            }
            Job::LockRelease { key, token } => {
                let freed: bool =
                    scripts.release.call(&[space.key("l", key)]).arg(*token).query_async(&mut db).await?;
                Ok(if freed { Answer::Done } else { Answer::Refused })
            }
            Job::DocumentPut { kind, name, body } => self.put(kind, name, body, None).await,
            Job::DocumentUpdate { name, revision, body } => {
                self.put("session", name, body, Some(*revision)).await
            }
            Job::Together(jobs) => self.settle(jobs).await,
        }
    }

    async fn claim(&self, queue: &str, owner: &str) -> Done<Answer> {
        let (space, token) = (&self.space, now());
        let mut call = self.scripts.claim.call(&[space.key("q", queue), space.key("r", "")]);
        call.arg(space.prefix()).arg(lease(owner, token)).arg(token);
        call.arg(token).arg(started(owner));
        let claimed: Option<(String, String)> = call.query_async(&mut self.db.clone()).await?;
        Ok(claimed.map_or(Answer::Refused, |(id, row)| task(&id, token, &row)))
    }

    async fn complete(&self, end: &Completion) -> Done<Answer> {
        let mut call = self.scripts.complete.call(&self.space.ending(&end.task));
        call.arg(end.token).arg(&*end.output).arg(ended()).arg(end.task.id()).arg(now());
        let done: bool = call.query_async(&mut self.db.clone()).await?;
        Ok(if done { Answer::Done } else { Answer::Refused })
    }

    async fn put(&self, kind: &str, name: &str, body: &str, expected: Option<i64>) -> Done<Answer> {
        let mut call = self.scripts.put.call(&[self.space.key("D", &format!("{kind}/{name}"))]);
        call.arg(body).arg(expected.map_or_else(String::new, |revision| revision.to_string()));
        let revision: i64 = call.query_async(&mut self.db.clone()).await?;
        Ok(match (revision, expected) {
            (0, _) => Answer::Refused,
            (_, None) => Answer::Done,
            (revision, Some(_)) => Answer::Number(revision),
        })
    }

    /// The four jobs of a settling: append, document, lock, task.
    async fn settle(&self, jobs: &[Job]) -> Done<Answer> {
        let [
            Job::StreamAppend { stream, data },
            Job::DocumentPut { kind, name, body },
            Job::LockRelease { key, token },
            Job::TaskComplete(end),
        ] = jobs
        else {
            return Ok(Answer::Refused);
        };
        let space = &self.space;
        let mut keys = space.ending(&end.task).to_vec();
        keys.extend([space.key("E", stream), space.key("D", &format!("{kind}/{name}")), space.key("l", key)]);
        let mut call = self.scripts.settle.call(&keys);
        call.arg(end.token).arg(&*end.output).arg(ended()).arg(end.task.id()).arg(now());
        call.arg(event("message", data)).arg(&**body).arg(*token);
        let done: bool = call.query_async(&mut self.db.clone()).await?;
        Ok(if done { Answer::Done } else { Answer::Refused })
    }
}

/// A started task from its id and row.
pub(super) fn task(id: &str, token: i64, row: &str) -> Answer {
    TaskName::parse(id)
        .map_or(Answer::Refused, |task| Answer::Task(Started { task, token, input: input(row) }))
}

/// An entry as it is stored.
pub(super) fn entry(value: &str) -> String {
    let at = now();
    format!(r#"{{"value":{value},"set_at":{at},"expires_at":{}}}"#, at + long() * 1000)
}

/// Reads something into memory of its own and answers how many rows it had.
pub(super) async fn read(db: &mut MultiplexedConnection, space: &Space, query: &Query) -> Done<usize> {
    match query {
        Query::Entry(key) => {
            let found: Option<String> = redis::cmd("GET").arg(space.key("e", key)).query_async(db).await?;
            Ok(usize::from(std::hint::black_box(found).is_some()))
        }
        Query::Messages(stream) => {
            let mut call = redis::cmd("LRANGE");
            call.arg(space.key("E", stream)).arg(-50).arg(-1);
            let found: Vec<String> = call.query_async(db).await?;
            Ok(std::hint::black_box(found).len())
        }
        Query::Checkpoint(name) => {
            let mut call = redis::cmd("HMGET");
            call.arg(space.key("D", &format!("checkpoint/{name}"))).arg("body").arg("revision");
            let (body, _): (Option<String>, Option<i64>) = call.query_async(db).await?;
            Ok(usize::from(std::hint::black_box(body).is_some()))
        }
    }
}

#[async_trait]
impl Engine for Limit {
    async fn write(&self, job: Job) -> Result<Answer> {
        self.perform(&job).await.map_err(broken)
    }

    async fn read(&self, query: Query) -> Result<usize> {
        read(&mut self.db.clone(), &self.space, &query).await.map_err(broken)
    }

    async fn fill(&self, jobs: Vec<Job>) -> Result<Vec<Answer>> {
        let mut answers = Vec::with_capacity(jobs.len());
        for jobs in jobs.chunks(BULK) {
            answers
                .append(&mut try_join_all(jobs.iter().map(|job| self.perform(job))).await.map_err(broken)?);
        }
        Ok(answers)
    }

    async fn mark(&self) -> Result<i64> {
        Ok(now())
    }

    async fn trace(&self, what: Trace) -> Result<u64> {
        self.space.trace(&mut self.db.clone(), &what).await.map_err(broken)
    }
}
