//! What plans read: rows and lookups, loaded in one go, with the versions that are checked when the plans' effects are
//! written.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{Cmd, Value};
use statehold_core::model::{Document, Entry, TaskId};
use statehold_core::plan::{Asked, Child, Map, Needs, Rows, TaskSet};
use statehold_core::row::{
    AnswerRow, ChoreRow, DeliveryRow, ExclusiveRow, FloorRow, GroupRow, LockRow, PollerRow, QueueRow,
    SignalsRow, StreamRow, TaskRow,
};
use statehold_core::{Clock, Timestamp};

use crate::connection::{self, Connection, RowKey, read_bytes, read_found};
use crate::error::{Result, odd};
use crate::lookups;
use crate::memory::Memory;
use crate::rows::{Table, Version, body, read, tail, version};
use crate::search::Searches;
use crate::space::{Bytes, Range, Space};
use crate::tasks;

/// How long plans hold that went by a time that was not asked for, in microseconds.
const MOST_LATE: i64 = 1_000_000;

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
    /// What is known of the namespace; none if everything is to be loaded.
    pub(crate) memory: Option<&'a Mutex<Memory>>,
}

/// What was read, as far as it must not change before the commit.
#[derive(Default)]
pub(crate) struct Seen {
    /// Versions of rows by their keys.
    pub(crate) rows: Map<Bytes, Option<Version>>,
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
    /// The server's time that plans go by, in microseconds; later than `server` if its clock was set back.
    asked: i64,
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
    /// Something was remembered instead.
    recalled: bool,
    /// The time was not asked for.
    guessed_time: bool,
    /// Kinds of which unknown rows were taken for absent.
    pub(crate) guessed: BTreeSet<u8>,
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
    fn rows<R: Table>(&mut self, space: &Space, keys: &mut BTreeSet<R::Key>) {
        if keys.is_empty() {
            return;
        }
        let keys = std::mem::take(keys);
        let names: Vec<_> = keys.iter().map(|key| space.key(&tail::<R>(key))).collect();
        let mut call = redis::cmd("MGET");
        call.arg(&names);
        self.add(call, move |snapshot, answer| {
            let stored: Vec<Option<Bytes>> = redis::from_redis_value(answer).map_err(|_| odd("rows"))?;
            for ((key, name), stored) in keys.into_iter().zip(names).zip(stored) {
                snapshot.take::<R>(key.clone(), name.clone(), stored.as_deref())?;
                if let (Some(mut memory), Some(row)) = (snapshot.memory(), snapshot.rows.known::<R>(&key)) {
                    memory.learn::<R>(key, name, row.clone(), version(stored.as_deref()));
                }
            }
            Ok(())
        });
    }

    /// Answers lookups of a task by a key that no other has.
    fn unique<L>(&mut self, space: &Space, asked: &mut BTreeSet<L>, tail: impl Fn(&L) -> Bytes)
    where
        L: Asked<Answer = Option<TaskId>> + Send + 'a,
    {
        if asked.is_empty() {
            return;
        }
        let asked = std::mem::take(asked);
        let names: Vec<_> = asked.iter().map(|lookup| space.key(&tail(lookup))).collect();
        let mut call = redis::cmd("MGET");
        call.arg(&names);
        self.add(call, move |snapshot, answer| {
            let stored: Vec<Option<Bytes>> = redis::from_redis_value(answer).map_err(|_| odd("ids"))?;
            for ((lookup, name), stored) in asked.into_iter().zip(names).zip(stored) {
                snapshot.see(name, stored.as_deref());
                let id = stored.as_deref().map(body).and_then(read_id);
                if let Some(mut memory) = snapshot.memory() {
                    memory.note_luck(UNIQUE, id.is_none());
                }
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

/// Stands for the keys that no other task has, among the letters of kinds.
const UNIQUE: u8 = b'i';

/// Reads an id that is stored as such.
pub(crate) fn read_id(stored: &[u8]) -> Option<TaskId> {
    uuid::Uuid::from_slice(stored).ok().map(TaskId)
}

impl<'a> Snapshot<'a> {
    /// Nothing yet.
    pub(crate) fn new(scene: Scene<'a>, terms: &'a Terms<'a>) -> Self {
        let now = scene.db.about_now();
        Self {
            scene,
            terms,
            rows: Rows::default(),
            seen: Seen::default(),
            now: terms.clock.from_store(now),
            server: now.as_micros(),
            asked: now.as_micros(),
            alarm: None,
            skipped: false,
            reserved: BTreeSet::new(),
            ghosts: Vec::new(),
            loads: 0,
            recalled: false,
            guessed_time: false,
            guessed: BTreeSet::new(),
            independent: false,
        }
    }

    /// What is known of the namespace.
    pub(crate) fn memory(&self) -> Option<MutexGuard<'a, Memory>> {
        self.terms.memory.map(|memory| memory.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether all that was read was so at one instant, which the plans went by.
    pub(crate) fn is_of_one_instant(&self) -> bool {
        self.loads < 2 && !self.recalled && !self.guessed_time
    }

    /// The server's time that plans go by, in microseconds.
    pub(crate) fn asked(&self) -> i64 {
        self.asked
    }

    /// Whether that was not asked for.
    pub(crate) fn guessed_time(&self) -> bool {
        self.guessed_time
    }

    /// Loads what plans are missing, unless it is remembered. The time is that of the first load.
    pub(crate) async fn load(&mut self, mut needs: Needs) -> Result<()> {
        let space = self.scene.space;
        let mut independent = self.loads == 0 && self.terms.independent;
        if let Some(memory) = self.memory() {
            recall_rows(self, &memory, &mut needs);
            if independent && memory.independent {
                independent = false;
                self.be_independent();
            }
            if self.loads == 0 && needs.is_empty() && !independent {
                (self.loads, self.guessed_time) = (1, true);
                return Ok(());
            }
        }
        let mut loading = Loading::default();
        if self.loads == 0 {
            read_time(&mut loading, space);
        }
        if independent {
            ask_for_dependencies(&mut loading, self.scene);
        }
        self.loads += 1;
        load_rows(&mut loading, space, &mut needs);
        loading.unique(space, &mut needs.idempotency_keys, |lookup| tasks::idempotency(&lookup.0));
        loading.unique(space, &mut needs.child_keys, |lookup| tasks::child_key(lookup.parent, &lookup.key));
        lookups::streams(&mut loading, self.scene, &mut needs);
        let searches = Searches::new(self, needs).await?;
        let answers = loading.run(self, searches.calls(self)).await?;
        searches.finish(self, answers).await
    }

    /// Takes rows that are remembered, or probably absent, for what they are; the rest stays.
    fn recall<R: Table>(&mut self, memory: &Memory, keys: &mut BTreeSet<R::Key>) {
        if keys.is_empty() {
            return;
        }
        let guess = memory.guesses_absence(R::LETTER);
        keys.retain(|key| {
            let name = self.scene.space.key(&tail::<R>(key));
            let (row, version) = match memory.recall::<R>(key, &name) {
                Some(known) => known,
                None if guess => {
                    self.guessed.insert(R::LETTER);
                    (None, None)
                }
                None => return true,
            };
            self.recalled = true;
            self.seen.rows.entry(name).or_insert(version);
            self.take_read(key.clone(), row);
            false
        });
    }

    /// The same for lookups by a key that no other task has, of which none is remembered.
    fn guess_unique<L>(&mut self, memory: &Memory, asked: &mut BTreeSet<L>, tail: impl Fn(&L) -> Bytes)
    where
        L: Asked<Answer = Option<TaskId>>,
    {
        if asked.is_empty() || !memory.guesses_absence(UNIQUE) {
            return;
        }
        self.guessed.insert(UNIQUE);
        self.recalled = true;
        for lookup in std::mem::take(asked) {
            self.see(self.scene.space.key(&tail(&lookup)), None);
            self.rows.answer(lookup, None);
        }
    }

    /// Goes by it that no task depends on another, which the commit checks.
    fn be_independent(&mut self) {
        self.rows.say_independent(true);
        self.seen.ranges.push(SeenRange { range: tasks::all_dependents(), limit: 1, members: Bytes::new() });
        self.independent = true;
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
        self.seen.rows.entry(name).or_insert_with(|| version(stored));
    }

    /// Takes in rows that a part of the index led to; answers those that are there.
    pub(crate) fn take_found<R: Table>(&mut self, found: connection::Found) -> Result<Vec<Arc<R>>> {
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
        let alarm = self.alarm.and_then(|alarm| self.on_server(alarm));
        let late = self.guessed_time.then_some(self.asked + MOST_LATE);
        alarm.into_iter().chain(late).min().unwrap_or_default()
    }
}

/// Reads the time, which never goes back in a namespace.
fn read_time(loading: &mut Loading<'_>, space: &Space) {
    let mut last = redis::cmd("GET");
    last.arg(space.last());
    loading.add(redis::cmd("TIME"), |snapshot, answer| {
        snapshot.server = snapshot.scene.db.note_time(answer)?;
        Ok(())
    });
    loading.add(last, |snapshot, answer| {
        let last = read_bytes(answer)?.and_then(|last| last.first_chunk().copied()).map(i64::from_be_bytes);
        snapshot.asked = last.map_or(snapshot.server, |last| last.max(snapshot.server));
        snapshot.now = snapshot.terms.clock.from_store(Timestamp::from_micros(snapshot.asked));
        Ok(())
    });
}

/// Finds out whether any task depends on another. Most ends of tasks would ask for their dependents in vain.
fn ask_for_dependencies<'a>(loading: &mut Loading<'a>, scene: Scene<'a>) {
    let range = tasks::all_dependents();
    loading.add(scene.db.range(scene.space, &range, 1, RowKey::None), |snapshot, answer| {
        if read_found(answer)?.members.is_empty() {
            snapshot.be_independent();
            if let Some(mut memory) = snapshot.memory() {
                memory.independent = true;
            }
        }
        Ok(())
    });
}

fn load_rows(loading: &mut Loading<'_>, space: &Space, needs: &mut Needs) {
    loading.rows::<AnswerRow>(space, &mut needs.answers);
    loading.rows::<QueueRow>(space, &mut needs.queues);
    loading.rows::<PollerRow>(space, &mut needs.pollers);
    loading.rows::<TaskRow>(space, &mut needs.tasks);
    loading.rows::<SignalsRow>(space, &mut needs.signals);
    loading.rows::<ExclusiveRow>(space, &mut needs.exclusives);
    loading.rows::<ChoreRow>(space, &mut needs.chores);
    loading.rows::<LockRow>(space, &mut needs.locks);
    loading.rows::<Document>(space, &mut needs.documents);
    loading.rows::<FloorRow>(space, &mut needs.floors);
    loading.rows::<Entry>(space, &mut needs.entries);
    loading.rows::<GroupRow>(space, &mut needs.groups);
    loading.rows::<DeliveryRow>(space, &mut needs.deliveries);
    loading.rows::<StreamRow>(space, &mut needs.streams);
}

fn recall_rows(snapshot: &mut Snapshot<'_>, memory: &Memory, needs: &mut Needs) {
    snapshot.recall::<AnswerRow>(memory, &mut needs.answers);
    snapshot.recall::<QueueRow>(memory, &mut needs.queues);
    snapshot.recall::<PollerRow>(memory, &mut needs.pollers);
    snapshot.recall::<TaskRow>(memory, &mut needs.tasks);
    snapshot.recall::<SignalsRow>(memory, &mut needs.signals);
    snapshot.recall::<ExclusiveRow>(memory, &mut needs.exclusives);
    snapshot.recall::<ChoreRow>(memory, &mut needs.chores);
    snapshot.recall::<LockRow>(memory, &mut needs.locks);
    snapshot.recall::<Document>(memory, &mut needs.documents);
    snapshot.recall::<FloorRow>(memory, &mut needs.floors);
    snapshot.recall::<Entry>(memory, &mut needs.entries);
    snapshot.recall::<GroupRow>(memory, &mut needs.groups);
    snapshot.recall::<DeliveryRow>(memory, &mut needs.deliveries);
    snapshot.recall::<StreamRow>(memory, &mut needs.streams);
    snapshot.guess_unique(memory, &mut needs.idempotency_keys, |lookup| tasks::idempotency(&lookup.0));
    let child_key = |lookup: &Child| tasks::child_key(lookup.parent, &lookup.key);
    snapshot.guess_unique(memory, &mut needs.child_keys, child_key);
}
