//! A rival's keys: how they are named, what they hold, how many there are, and their end.

use std::time::{SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;
use statehold_core::{Error, Result};
use statehold_redis::Config;

use super::{Done, broken};
use crate::ops::{LONG_SECONDS, OWN, STREAMS};
use crate::rival::{TaskName, Trace};

/// What a row has beside what the benchmark asks for, so that it is about as long as ours.
const ROW: &str = r#""kind":"bench","priority":0,"rank":0,"run_at":"2026-01-01T00:00:00.000000Z","attempt":0,"failures":0,"lease_losses":0,"max_attempts":3,"max_lease_losses":10,"revision":1,"created_at":"2026-01-01T00:00:00.000000Z","updated_at":"2026-01-01T00:00:00.000000Z""#;

/// The keys of a rival, gone when this goes.
pub(super) struct Space {
    config: Config,
    prefix: String,
}

impl Space {
    /// What a run left that was killed goes.
    pub(super) async fn create(store: &Config, rival: &str) -> Result<Self> {
        let space = Self { config: store.clone(), prefix: format!("{{{}:bench-{rival}}}", store.prefix) };
        space.clear().await?;
        Ok(space)
    }

    pub(super) async fn connect(&self) -> Result<MultiplexedConnection> {
        self.config.client()?.get_multiplexed_async_connection().await.map_err(broken)
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The key of something of a kind.
    pub(super) fn key(&self, kind: &str, name: &str) -> String {
        format!("{}{kind}{name}", self.prefix)
    }

    /// The keys of a task's end: the task, who runs, who has ended, its events.
    pub(super) fn ending(&self, task: &TaskName) -> [String; 4] {
        [self.key("t", task.id()), self.key("r", ""), self.key("d", ""), self.key("E", task.stream())]
    }

    async fn clear(&self) -> Result<()> {
        let mut db = self.connect().await?;
        for keys in self.keys(&mut db).await.map_err(broken)?.chunks(1000) {
            redis::cmd("UNLINK").arg(keys).exec_async(&mut db).await.map_err(broken)?;
        }
        Ok(())
    }

    /// All keys.
    async fn keys(&self, db: &mut MultiplexedConnection) -> Done<Vec<String>> {
        let pattern = format!("{}*", self.prefix);
        let (mut cursor, mut all) = (0_u64, Vec::new());
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(5000);
            let (next, mut keys): (u64, Vec<String>) = scan.query_async(db).await?;
            all.append(&mut keys);
            cursor = next;
            if cursor == 0 {
                return Ok(all);
            }
        }
    }

    /// Counts what a slice left.
    pub(super) async fn trace(&self, db: &mut MultiplexedConnection, trace: &Trace) -> Done<u64> {
        match trace {
            Trace::Tasks { queue, status, mark } => self.tasks(db, queue, status, *mark).await,
            Trace::Events(prefix) => self.events(db, prefix).await,
            Trace::Updates(prefix) => self.updates(db, prefix).await,
        }
    }

    /// The events of all streams that a slice may have written to. To look for their names would take longer with each slice.
    async fn events(&self, db: &mut MultiplexedConnection, prefix: &str) -> Done<u64> {
        let mut calls = redis::pipe();
        for place in 0..STREAMS {
            calls.cmd("LLEN").arg(self.key("E", &format!("{prefix}{place}")));
        }
        let counts: Vec<u64> = calls.query_async(db).await?;
        Ok(counts.iter().sum())
    }

    /// How often the documents of all callers were replaced.
    async fn updates(&self, db: &mut MultiplexedConnection, prefix: &str) -> Done<u64> {
        let mut updates = 0;
        for caller in 0.. {
            let mut calls = redis::pipe();
            for place in 0..OWN {
                let name = self.key("D", &format!("session/{prefix}{caller}/{place}"));
                calls.cmd("HGET").arg(name).arg("revision");
            }
            let revisions: Vec<Option<u64>> = calls.query_async(db).await?;
            if revisions.iter().all(Option::is_none) {
                break;
            }
            updates += revisions.iter().flatten().map(|revision| revision - 1).sum::<u64>();
        }
        Ok(updates)
    }

    /// The tasks that were created after a mark, by where they are.
    async fn tasks(&self, db: &mut MultiplexedConnection, queue: &str, status: &str, mark: i64) -> Done<u64> {
        if status == "pending" {
            return redis::cmd("ZCARD").arg(self.key("q", queue)).query_async(db).await;
        }
        let key = self.key(if status == "running" { "r" } else { "d" }, "");
        redis::cmd("ZCOUNT").arg(key).arg(mark).arg("+inf").query_async(db).await
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // On a thread of its own, since this one may belong to a runtime. What stays is removed by the next run.
        std::thread::scope(|scope| drop(scope.spawn(|| remove(self)).join()));
    }
}

fn remove(space: &Space) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| Error::unavailable("no runtime").caused_by(e))?.block_on(space.clear())
}

/// Microseconds since 1970.
pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// How long a lease, a lock and an entry last, in milliseconds.
pub(super) fn long() -> i64 {
    i64::try_from(LONG_SECONDS).unwrap_or(0) * 1000
}

/// A task's row.
pub(super) fn row(queue: &str, task: &TaskName, input: &str) -> String {
    format!(r#"{{"id":"{}","queue":"{queue}",{ROW},"input":{input}}}"#, task.id())
}

/// The input in a row; none if there is none.
pub(super) fn input(row: &str) -> Option<String> {
    row.split_once(r#","input":"#).and_then(|(_, input)| Some(input.strip_suffix('}')?.to_owned()))
}

/// Where a task is among the ready ones: priority, time, id.
pub(super) fn place(task: &TaskName) -> String {
    format!("{:04x}{:016x}{}", 0x8000, now(), task.id())
}

/// An event as it is stored: time, position, type, data.
pub(super) fn event(kind: &str, data: &str) -> String {
    let at = now();
    format!(r#"{at} {at:020}{{"type":"{kind}","data":{data},"actor":null}}"#)
}

/// The event of a start.
pub(super) fn started(owner: &str) -> String {
    event("task.started", &format!(r#"{{"attempt":1,"owner":"{owner}"}}"#))
}

/// The event of a task's end.
pub(super) fn ended() -> String {
    event("task.completed", r#"{"attempt":1}"#)
}

/// A lease, as it is stored.
pub(super) fn lease(owner: &str, token: i64) -> String {
    format!(r#"{{"owner":"{owner}","started_at":{token},"heartbeat_at":{token},"seconds":30}}"#)
}
