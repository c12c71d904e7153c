//! What plans read: rows and lookups, loaded in one go, with the versions that are checked when the plans' effects are
//! written.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use redis::{Cmd, Value};
use statehold_core::model::{Document, Entry, TaskId};
use statehold_core::plan::{Asked, Needs, Rows, TaskSet};
use statehold_core::row::{
    AnswerRow, ChoreRow, DeliveryRow, ExclusiveRow, FloorRow, GroupRow, LockRow, PollerRow, QueueRow,
    SignalsRow, StreamRow, TaskRow,
};
use statehold_core::{Clock, Timestamp};

use crate::connection::{Connection, Found, RowKey, read_found};
use crate::error::{Result, odd};
use crate::lookups;
use crate::rows::{Table, VERSION, read, tail, version};
use crate::search::Searches;
use crate::space::{Bytes, Range, Space};
use crate::tasks;

/// Where something is read.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) space: &'a Space,
}

/// What is told apart while a snapshot is taken.
pub(crate) struct Terms<'a> {
    pub(crate) clock: &'a Clock,
    /// Who reserves what is ready.
    pub(crate) me: &'a str,
    /// How many ready tasks the requests ask for together.
    pub(crate) asked: HashMap<TaskSet, usize>,
    /// Whether to find out that no task depends on another, instead of asking for the dependents of each.
    pub(crate) independent: bool,
}

/// What was read, as far as it must not change before the commit.
#[derive(Default)]
pub(crate) struct Seen {
    /// Versions of rows by their keys.
    pub(crate) rows: BTreeMap<Bytes, Bytes>,
    pub(crate) ranges: Vec<SeenRange>,
    /// What was trimmed away from categories, as it is stored.
    pub(crate) trims: BTreeMap<String, Bytes>,
}

/// A part of the index as it was read.
pub(crate) struct SeenRange {
    pub(crate) range: Range,
    pub(crate) limit: usize,
    pub(crate) members: Bytes,
}

/// Everything that was read for a group of plans.
pub(crate) struct Snapshot<'a> {
    pub(crate) scene: Scene<'a>,
    pub(crate) terms: &'a Terms<'a>,
    pub(crate) rows: Rows,
    pub(crate) seen: Seen,
    /// The time that plans go by.
    pub(crate) now: Timestamp,
    /// The server's time when it was read, in microseconds.
    server: i64,
    /// When something that was read changes by itself.
    alarm: Option<Timestamp>,
    /// Ready tasks were left out because another process is about to take them.
    pub(crate) skipped: bool,
    /// Tasks that were reserved.
    pub(crate) reserved: BTreeSet<TaskId>,
    /// Members of the index that lead nowhere any more.
    pub(crate) ghosts: Vec<Bytes>,
    /// How often something was loaded.
    pub(crate) loads: u32,
    /// Whether it was found that no task depends on another.
    pub(crate) independent: bool,
}

/// What is done with answers.
type Then<'a> = Box<dyn FnOnce(&mut Snapshot<'a>, Vec<Value>) -> Result<()> + Send + 'a>;

/// Commands to send in one go, and what is done with their answers.
#[derive(Default)]
pub(crate) struct Loading<'a> {
    calls: Vec<Cmd>,
    /// How many answers each is about.
    then: Vec<(usize, Then<'a>)>,
}

impl<'a> Loading<'a> {
    /// Sends a command and does something with its answer.
    pub(crate) fn add(
        &mut self,
        call: Cmd,
        then: impl FnOnce(&mut Snapshot<'a>, Value) -> Result<()> + Send + 'a,
    ) {
        self.add_all([call], |snapshot, [answer]| then(snapshot, answer));
    }

    /// Sends commands and does something with their answers.
    pub(crate) fn add_all<const N: usize>(
        &mut self,
        calls: [Cmd; N],
        then: impl FnOnce(&mut Snapshot<'a>, [Value; N]) -> Result<()> + Send + 'a,
    ) {
        self.calls.extend(calls);
        let then = move |snapshot: &mut Snapshot<'a>, answers: Vec<Value>| {
            then(snapshot, answers.try_into().map_err(|_| odd("as many answers"))?)
        };
        self.then.push((N, Box::new(then)));
    }

    /// Loads rows by their keys.
    fn rows<R: Table>(&mut self, space: &Space, keys: BTreeSet<R::Key>) {
        if keys.is_empty() {
            return;
        }
        let names: Vec<_> = keys.iter().map(|key| space.key(&tail::<R>(key))).collect();
        let mut call = redis::cmd("MGET");
        call.arg(&names);
        self.add(call, move |snapshot, answer| {
            let stored: Vec<Option<Bytes>> = redis::from_redis_value(answer).map_err(|_| odd("rows"))?;
            for ((key, name), stored) in keys.into_iter().zip(names).zip(stored) {
                snapshot.take::<R>(key, name, stored.as_deref())?;
            }
            Ok(())
        });
    }

    /// Answers lookups of a task by a key that no other has.
    fn unique<L>(&mut self, space: &Space, asked: BTreeSet<L>, tail: impl Fn(&L) -> Bytes)
    where
        L: Asked<Answer = Option<TaskId>> + Send + 'a,
    {
        if asked.is_empty() {
            return;
        }
        let names: Vec<_> = asked.iter().map(|lookup| space.key(&tail(lookup))).collect();
        let mut call = redis::cmd("MGET");
        call.arg(&names);
        self.add(call, move |snapshot, answer| {
            let stored: Vec<Option<Bytes>> = redis::from_redis_value(answer).map_err(|_| odd("ids"))?;
            for ((lookup, name), stored) in asked.into_iter().zip(names).zip(stored) {
                snapshot.see(name, stored.as_deref());
                let id = stored.as_deref().and_then(|stored| stored.get(VERSION..)).and_then(read_id);
                snapshot.rows.answer(lookup, id);
            }
            Ok(())
        });
    }

    /// Sends the commands and some more; answers what was said to those.
    async fn run(mut self, snapshot: &mut Snapshot<'a>, more: Vec<Cmd>) -> Result<Vec<Value>> {
        self.calls.extend(more);
        if self.calls.is_empty() {
            return Ok(Vec::new());
        }
        let mut answers = snapshot.scene.db.call_all(&self.calls).await?.into_iter();
        for (count, then) in self.then {
            then(snapshot, answers.by_ref().take(count).collect())?;
        }
        Ok(answers.collect())
    }
}

/// Reads an id that is stored as such.
pub(crate) fn read_id(stored: &[u8]) -> Option<TaskId> {
    uuid::Uuid::from_slice(stored).ok().map(TaskId)
}

impl<'a> Snapshot<'a> {
    /// Nothing yet.
    pub(crate) fn new(scene: Scene<'a>, terms: &'a Terms<'a>) -> Self {
        Self {
            scene,
            terms,
            rows: Rows::default(),
            seen: Seen::default(),
            now: terms.clock.from_store(scene.db.about_now()),
            server: 0,
            alarm: None,
            skipped: false,
            reserved: BTreeSet::new(),
            ghosts: Vec::new(),
            loads: 0,
            independent: false,
        }
    }

    /// Loads what plans are missing. The time is that of the first load.
    pub(crate) async fn load(&mut self, mut needs: Needs) -> Result<()> {
        let space = self.scene.space;
        let mut loading = Loading::default();
        if self.loads == 0 {
            read_time(&mut loading, space);
            if self.terms.independent {
                ask_for_dependencies(&mut loading, self.scene);
            }
        }
        self.loads += 1;
        load_rows(&mut loading, space, &mut needs);
        let taken = std::mem::take(&mut needs.idempotency_keys);
        loading.unique(space, taken, |lookup| tasks::idempotency(&lookup.0));
        let taken = std::mem::take(&mut needs.child_keys);
        loading.unique(space, taken, |lookup| tasks::child_key(lookup.parent, &lookup.key));
        lookups::streams(&mut loading, self.scene, &mut needs);
        let searches = Searches::new(self, needs).await?;
        let answers = loading.run(self, searches.calls(self)).await?;
        searches.finish(self, answers).await
    }

    /// Takes in a row.
    pub(crate) fn take<R: Table>(&mut self, key: R::Key, name: Bytes, stored: Option<&[u8]>) -> Result<()> {
        self.see(name, stored);
        let row = stored.map(read::<R>).transpose()?;
        self.take_read(key, row.map(Arc::new));
        Ok(())
    }

    /// Takes in a row that was read.
    fn take_read<R: Table>(&mut self, key: R::Key, row: Option<Arc<R>>) {
        for at in row.iter().flat_map(|row| row.alarms()).filter(|at| *at > self.now) {
            self.alarm = Some(self.alarm.map_or(at, |alarm| alarm.min(at)));
        }
        self.rows.load(key, row);
    }

    /// Notes the version of a row. If it was read before, that version counts.
    pub(crate) fn see(&mut self, name: Bytes, stored: Option<&[u8]>) {
        self.seen.rows.entry(name).or_insert_with(|| version(stored).to_vec());
    }

    /// Takes in rows that a part of the index led to; answers those that are there.
    pub(crate) fn take_found<R: Table>(&mut self, found: Found) -> Result<Vec<Arc<R>>> {
        let mut rows = Vec::with_capacity(found.rows.len());
        for stored in found.rows.into_iter().flatten() {
            let row = Arc::new(read::<R>(&stored)?);
            let key = row.key();
            self.see(self.scene.space.key(&tail::<R>(&key)), Some(&stored));
            self.take_read(key, Some(Arc::clone(&row)));
            rows.push(row);
        }
        Ok(rows)
    }

    /// A time as the server's clock will show it, in microseconds; none if time stands still.
    pub(crate) fn on_server(&self, at: Timestamp) -> Option<i64> {
        let from_now = at.as_micros() - self.now.as_micros();
        (!self.terms.clock.is_manual()).then_some(self.server + from_now)
    }

    /// The server's time from which the plans no longer hold, in microseconds; 0 if they always do.
    pub(crate) fn holds_until(&self) -> i64 {
        self.alarm.and_then(|alarm| self.on_server(alarm)).unwrap_or_default()
    }
}

/// Reads the time, which never goes back in a namespace.
fn read_time(loading: &mut Loading<'_>, space: &Space) {
    let mut last = redis::cmd("HGET");
    last.arg(space.meta()).arg("time");
    loading.add(redis::cmd("TIME"), |snapshot, answer| {
        snapshot.server = snapshot.scene.db.note_time(answer)?;
        Ok(())
    });
    loading.add(last, |snapshot, answer| {
        let last: Option<i64> = redis::from_redis_value(answer).map_err(|_| odd("a time"))?;
        let stored = Timestamp::from_micros(last.map_or(snapshot.server, |last| last.max(snapshot.server)));
        snapshot.now = snapshot.terms.clock.from_store(stored);
        Ok(())
    });
}

/// Finds out whether any task depends on another. Most ends of tasks would ask for their dependents in vain.
fn ask_for_dependencies<'a>(loading: &mut Loading<'a>, scene: Scene<'a>) {
    let range = tasks::all_dependents();
    loading.add(scene.db.range(scene.space, &range, 1, RowKey::None), |snapshot, answer| {
        if read_found(answer)?.members.is_empty() {
            snapshot.rows.say_independent(true);
            snapshot.seen.ranges.push(SeenRange { range, limit: 1, members: Bytes::new() });
            snapshot.independent = true;
        }
        Ok(())
    });
}

fn load_rows(loading: &mut Loading<'_>, space: &Space, needs: &mut Needs) {
    use std::mem::take;
    loading.rows::<AnswerRow>(space, take(&mut needs.answers));
    loading.rows::<QueueRow>(space, take(&mut needs.queues));
    loading.rows::<PollerRow>(space, take(&mut needs.pollers));
    loading.rows::<TaskRow>(space, take(&mut needs.tasks));
    loading.rows::<SignalsRow>(space, take(&mut needs.signals));
    loading.rows::<ExclusiveRow>(space, take(&mut needs.exclusives));
    loading.rows::<ChoreRow>(space, take(&mut needs.chores));
    loading.rows::<LockRow>(space, take(&mut needs.locks));
    loading.rows::<Document>(space, take(&mut needs.documents));
    loading.rows::<FloorRow>(space, take(&mut needs.floors));
    loading.rows::<Entry>(space, take(&mut needs.entries));
    loading.rows::<GroupRow>(space, take(&mut needs.groups));
    loading.rows::<DeliveryRow>(space, take(&mut needs.deliveries));
    loading.rows::<StreamRow>(space, take(&mut needs.streams));
}
