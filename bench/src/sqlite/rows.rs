//! The hard-coded statements, and what each job does with them. Kept statements and cached ones do the same.

use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension as _, Statement, params};

use crate::ops::LONG_SECONDS;
use crate::rival::{Answer, Completion, Job, Query, Started, TaskName};

macro_rules! statements {
    ($($name:ident: $file:literal),* $(,)?) => {
        /// A statement that a writer uses.
        #[derive(Clone, Copy, Debug)]
        pub(super) enum Sql { $($name),* }

        impl Sql {
            pub(super) const ALL: &[Self] = &[$(Self::$name),*];

            pub(super) const fn text(self) -> &'static str {
                match self { $(Self::$name => include_str!(concat!("../../sql/sqlite/", $file, ".sql"))),* }
            }
        }
    };
}

statements! {
    TaskInsert: "task_insert",
    TaskReady: "task_ready",
    TaskStart: "task_start",
    TaskComplete: "task_complete",
    EventInsert: "event_insert",
    HeadPut: "head_put",
    HeadNext: "head_next",
    HeadGet: "head_get",
    EntrySet: "entry_set",
    LockAcquire: "lock_acquire",
    LockRelease: "lock_release",
    DocumentPut: "document_put",
    DocumentUpdate: "document_update",
}

/// Where statements come from, and how a stream's numbers are given.
pub(super) trait Statements {
    fn with<T>(
        &mut self,
        sql: Sql,
        run: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T>;

    /// The number of a stream's next event, with its head moved, now or before the commit.
    fn next_seq(&mut self, stream: &std::sync::Arc<str>, now: Clock) -> rusqlite::Result<i64>;
}

/// Statements from a connection's cache.
pub(super) struct Cached<'c> {
    connection: &'c Connection,
}

impl<'c> Cached<'c> {
    pub(super) fn new(connection: &'c Connection) -> Self {
        Self { connection }
    }
}

impl Statements for Cached<'_> {
    fn with<T>(
        &mut self,
        sql: Sql,
        run: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        run(&mut *self.connection.prepare_cached(sql.text())?)
    }

    fn next_seq(&mut self, stream: &std::sync::Arc<str>, now: Clock) -> rusqlite::Result<i64> {
        self.with(Sql::HeadNext, |head| head.query_row(params![&**stream, now.0], |row| row.get(0)))
    }
}

/// Microseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(i64);

impl Clock {
    pub(super) fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    pub(super) fn micros(self) -> i64 {
        self.0
    }

    /// When what is taken now is over.
    fn later(self) -> i64 {
        self.0 + i64::try_from(LONG_SECONDS).unwrap_or(0) * 1_000_000
    }
}

/// Does a job. Whoever calls it has a transaction, or the job is one statement.
pub(super) fn perform<S: Statements>(rows: &mut S, job: &Job, now: Clock) -> rusqlite::Result<Answer> {
    match job {
        Job::TaskCreate { queue, task, input } => {
            let request = [7_u8; 32];
            rows.with(Sql::TaskInsert, |insert| {
                insert.execute(params![task.id(), &**queue, now.0, request.as_slice(), &**input])
            })?;
            lifecycle(rows, task, 1, "task.created", r#"{"status":"pending"}"#, now)?;
            Ok(Answer::Done)
        }
        Job::TaskClaim { queue, owner } => claim(rows, queue, owner, now),
        Job::TaskComplete(completion) => complete(rows, completion, now),
        Job::StreamAppend { stream, data } => {
            let seq = rows.next_seq(stream, now)?;
            event(rows, stream, seq, "message", data, now)?;
            Ok(Answer::Number(seq))
        }
        Job::EntrySet { key, value } => {
            rows.with(Sql::EntrySet, |set| set.execute(params![&**key, now.0, now.later(), &**value]))?;
            Ok(Answer::Done)
        }
        Job::LockAcquire { key, owner } => {
            let acquired = rows.with(Sql::LockAcquire, |acquire| {
                acquire.execute(params![&**key, now.0, &**owner, now.later()])
            })?;
            Ok(if acquired == 1 { Answer::Number(now.0) } else { Answer::Refused })
        }
        Job::LockRelease { key, token } => {
            let released = rows.with(Sql::LockRelease, |release| release.execute(params![&**key, token]))?;
            Ok(done(released))
        }
        Job::DocumentPut { kind, name, body } => {
            rows.with(Sql::DocumentPut, |put| put.execute(params![kind, &**name, now.0, &**body]))?;
            Ok(Answer::Done)
        }
        Job::DocumentUpdate { name, revision, body } => {
            let updated = rows.with(Sql::DocumentUpdate, |update| {
                update.execute(params![&**name, revision, now.0, &**body])
            })?;
            Ok(if updated == 1 { Answer::Number(revision + 1) } else { Answer::Refused })
        }
        Job::Together(jobs) => {
            for job in jobs {
                if matches!(perform(rows, job, now)?, Answer::Refused) {
                    return Ok(Answer::Refused);
                }
            }
            Ok(Answer::Done)
        }
    }
}

/// Whether a job needs no transaction around it.
pub(super) fn is_one_statement(job: &Job) -> bool {
    matches!(
        job,
        Job::EntrySet { .. }
            | Job::LockAcquire { .. }
            | Job::LockRelease { .. }
            | Job::DocumentPut { .. }
            | Job::DocumentUpdate { .. }
    )
}

fn done(changed: usize) -> Answer {
    if changed == 1 { Answer::Done } else { Answer::Refused }
}

fn claim<S: Statements>(rows: &mut S, queue: &str, owner: &str, now: Clock) -> rusqlite::Result<Answer> {
    let ready = rows.with(Sql::TaskReady, |ready| {
        ready
            .query_row(params![queue], |row| {
                let task = TaskName::parse(row.get_ref(1)?.as_str()?);
                Ok((row.get::<_, i64>(0)?, task, row.get::<_, Option<String>>(2)?))
            })
            .optional()
    })?;
    let Some((rowid, Some(task), input)) = ready else { return Ok(Answer::Refused) };
    let token = now.0;
    rows.with(Sql::TaskStart, |start| start.execute(params![rowid, now.0, owner, token, now.later()]))?;
    lifecycle(rows, &task, 2, "task.started", r#"{"attempt":1,"owner":"worker-0"}"#, now)?;
    Ok(Answer::Task(Started { task, token, input }))
}

fn complete<S: Statements>(rows: &mut S, end: &Completion, now: Clock) -> rusqlite::Result<Answer> {
    let completed = rows.with(Sql::TaskComplete, |complete| {
        complete.execute(params![end.task.id(), end.token, now.0, &*end.output])
    })?;
    lifecycle(rows, &end.task, 3, "task.completed", r#"{"attempt":1}"#, now)?;
    Ok(done(completed))
}

fn lifecycle<S: Statements>(
    rows: &mut S,
    task: &TaskName,
    seq: i64,
    kind: &str,
    data: &str,
    now: Clock,
) -> rusqlite::Result<()> {
    event(rows, task.stream(), seq, kind, data, now)
}

fn event<S: Statements>(
    rows: &mut S,
    stream: &str,
    seq: i64,
    kind: &str,
    data: &str,
    now: Clock,
) -> rusqlite::Result<()> {
    rows.with(Sql::EventInsert, |insert| insert.execute(params![stream, seq, now.0, kind, data]))?;
    Ok(())
}

/// An event as a reader gets it: number, position, time, type, actor, data.
type Event = (i64, String, i64, String, Option<String>, Option<String>);

fn read_event(row: &rusqlite::Row<'_>) -> rusqlite::Result<Event> {
    let position = format!("{:016x}", row.get::<_, i64>(1)?);
    Ok((row.get(0)?, position, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?))
}

/// Reads something into memory of its own and answers how many rows it had.
pub(super) fn read(connection: &Connection, query: &Query) -> rusqlite::Result<usize> {
    match query {
        Query::Entry(key) => {
            let mut get = connection.prepare_cached(include_str!("../../sql/sqlite/entry_get.sql"))?;
            let now = Clock::now().micros();
            let found = get.query_row(params![&**key, now], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
            });
            Ok(usize::from(std::hint::black_box(found.optional()?).is_some()))
        }
        Query::Messages(stream) => {
            let mut last = connection.prepare_cached(include_str!("../../sql/sqlite/events_last.sql"))?;
            let events: rusqlite::Result<Vec<Event>> =
                last.query_map(params![&**stream], read_event)?.collect();
            Ok(std::hint::black_box(events?).len())
        }
        Query::Checkpoint(name) => {
            let mut get = connection.prepare_cached(include_str!("../../sql/sqlite/document_get.sql"))?;
            let found = get.query_row(params![&**name], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(3)?))
            });
            Ok(usize::from(std::hint::black_box(found.optional()?).is_some()))
        }
    }
}
