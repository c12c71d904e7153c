//! One transaction: rows are loaded and held, requests are planned one after the other, and what they leave is written
//! with one statement a table.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::mem::take;
use std::sync::{Arc, Mutex, PoisonError};

use statehold_core::Timestamp;
use statehold_core::model::{Document, Entry, TaskId};
use statehold_core::plan::{
    Appending, Child, Effects, Expired, ExpiredKeys, Idempotency, Needs, Polled, Rows, TaskSelect, TaskSet,
    Trim,
};
use statehold_core::query::POLLER_MEMORY;
use statehold_core::row::{
    AnswerRow, ChoreRow, DeliveryRow, DocumentKey, ExclusiveRow, FloorRow, GroupKey, GroupRow, LockRow,
    PollerRow, QueueRow, SignalsRow, StreamRow, TaskRow,
};
use statehold_core::wake::Mark;

use crate::absent::{Absent, Guesses};
use crate::clock::ServerClock;
use crate::connection::{Call, Connection, Hold, sql};
use crate::error::{Result, Trouble};
use crate::known::{Known, Recalled, each_kind, version_of};
use crate::namespaces::Era;
use crate::once::Once;
use crate::rows::{Changes, Loading, Writing, load_found, read_all, read_first};
use crate::sets::{self, Members, Seek};
use crate::streams::{self, Bound, Withheld};
use crate::strokes::Stroke;
use crate::values::{At, Cells, column, limit, param};
use crate::{groups, locks, tasks};

/// How many keys stand for the documents of a namespace while they are made.
const DOCUMENT_KEYS: i64 = 1024;

/// Where a transaction happens.
pub(crate) struct Scene<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) clock: &'a ServerClock,
    pub(crate) schema: &'a str,
    pub(crate) namespace: &'a str,
    /// 0 if the namespace is not known to the store yet.
    pub(crate) ns: i64,
    /// Whether events that wait for an older transaction are waited for.
    pub(crate) patience: Withheld,
    pub(crate) bound: Bound,
    /// Queues whose switch is set.
    pub(crate) switched: BTreeSet<String>,
    /// Of how many tasks of a set the requests ask together.
    pub(crate) asked: HashMap<TaskSet, usize>,
    /// Which server it is, for rows that are remembered.
    pub(crate) server: u64,
}

/// An open transaction.
pub(crate) struct Transaction<'a> {
    scene: &'a Scene<'a>,
    pub(crate) rows: Rows,
    pub(crate) now: Timestamp,
    members: HashMap<TaskSet, Members>,
    /// Tasks that were read without being held.
    loose: HashSet<TaskId>,
    /// Ready tasks were left out because another transaction holds them.
    pub(crate) skipped: bool,
    /// The sets of ready tasks of which that is known.
    counted: HashSet<TaskSet>,
    /// What was decided by without asking the server.
    recalled: Recalled,
    /// What the server's clock must show, if it was not asked.
    shown: Option<Timestamp>,
    changes: Changed,
}

/// What the accepted plans leave together.
#[derive(Default)]
struct Changed {
    answers: Changes<AnswerRow>,
    queues: Changes<QueueRow>,
    pollers: Changes<PollerRow>,
    tasks: Changes<TaskRow>,
    signals: Changes<SignalsRow>,
    exclusives: Changes<ExclusiveRow>,
    chores: Changes<ChoreRow>,
    locks: Changes<LockRow>,
    documents: Changes<Document>,
    floors: Changes<FloorRow>,
    entries: Changes<Entry>,
    groups: Changes<GroupRow>,
    deliveries: Changes<DeliveryRow>,
    streams: Changes<StreamRow>,
    events: Vec<Appending>,
    trims: Vec<Trim>,
    cleared: BTreeSet<GroupKey>,
    any: bool,
}

impl<'a> Transaction<'a> {
    /// Begins, and loads what the requests are known to need; waits for what others hold.
    pub(crate) async fn begin(scene: &'a Scene<'a>, needs: Needs) -> Result<Self> {
        let mut transaction = Self::on(scene);
        transaction.load_all(needs, Hold::Wait, true).await?;
        Ok(transaction)
    }

    /// One that only reads, in a transaction that is open already.
    pub(crate) fn on(scene: &'a Scene<'a>) -> Self {
        Self {
            scene,
            rows: Rows::default(),
            now: scene.clock.guess(),
            members: HashMap::new(),
            loose: HashSet::new(),
            skipped: false,
            counted: HashSet::new(),
            recalled: Recalled::default(),
            shown: None,
            changes: Changed::default(),
        }
    }

    /// One that is decided before it begins. Nobody depends on the tasks that it changes, or it will come to nothing.
    pub(crate) fn foreseen(scene: &'a Scene<'a>) -> Self {
        let (now, shown) = scene.clock.foresee();
        let mut transaction = Self { now, shown, ..Self::on(scene) };
        transaction.rows.say_independent(true);
        transaction
    }

    /// Takes what a plan is missing from what is known here.
    pub(crate) fn recall(&mut self, needs: Needs, known: &Known, guesses: Guesses) -> Option<()> {
        known.supply(self.scene.ns, needs, guesses, &mut self.rows, &mut self.recalled)
    }

    /// Whether all that was read without asking is written, so that it is seen whether it was right.
    pub(crate) fn holds_what_it_read(&self) -> bool {
        let (changed, mut written) = (&self.changes, 0);
        each_kind!(changed, |kind| written += kind.changed());
        changed.any
            && changed.trims.is_empty()
            && written == self.recalled.len()
            && self.makes_what_is_absent()
    }

    /// Whether all that was taken for absent is made.
    fn makes_what_is_absent(&self) -> bool {
        let (changed, absent) = (&self.changes, &self.recalled.absent);
        let rows = changed.answers.make(&absent.answers)
            && changed.locks.make(&absent.locks)
            && changed.documents.make(&absent.documents)
            && changed.entries.make(&absent.entries)
            && changed.streams.make(&absent.streams);
        let made = || -> HashSet<_> {
            changed.tasks.new_rows().iter().filter_map(|row| row.task.idempotency_key.as_ref()).collect()
        };
        rows && (absent.idempotency_keys.is_empty() || {
            let made = made();
            absent.idempotency_keys.iter().all(|key| made.contains(&key.0))
        })
    }

    /// Loads what a plan is missing.
    pub(crate) async fn load(&mut self, needs: Needs, hold: Hold) -> Result<()> {
        self.load_all(needs, hold, false).await
    }

    /// First what is found by its key, in one order for all transactions; then what is not; then the time, which is read
    /// after the last lock. All in one go, each by a statement of its own, which sees what was committed before it began.
    async fn load_all(&mut self, mut needs: Needs, hold: Hold, begin: bool) -> Result<()> {
        let (db, ns) = (self.scene.db, self.scene.ns);
        let later = if hold == Hold::Not { Hold::Not } else { Hold::Now };
        let mut loading = Loading::default();
        if begin {
            loading.add(Call::bare(sql!("begin")), |_, _| Ok(()));
        }
        self.hold_keys(&mut loading, &needs, hold);
        load_rows(&mut loading, ns, &mut needs, hold);
        by_unique_keys(&mut loading, ns, &mut needs);
        let (selects, expired) = (take(&mut needs.task_sets), take(&mut needs.expired));
        self.look(&mut loading, needs, later);
        let seeks = sets::seek(ns, self.wanted(&selects), self.now, later);
        let mut calls = take(&mut loading.calls);
        let first = calls.len();
        let mut sought = Vec::with_capacity(seeks.len());
        for Seek { call, sets } in seeks {
            calls.push(call);
            sought.push(sets);
        }
        if begin {
            calls.push(Call::bare(sql!("clock")));
        }
        let answers = db.query_all(&calls).await?;
        if let Some(clock) = answers.last().filter(|_| begin) {
            let stored = read_first(clock, Cells::time)?.unwrap_or_default();
            self.now = self.scene.clock.hear(stored);
        }
        loading.finish(&answers, &mut self.rows)?;
        for (sets, found) in sought.into_iter().zip(&answers[first..]) {
            self.keep(sets.read(found, self.now)?);
        }
        for set in expired {
            self.expire(set).await?;
        }
        self.note_skipped(&selects).await?;
        self.answer_all(selects)
    }

    /// Holds what has no row to hold: the namespace, queues, whose switch others may be about to set, and documents that are not there.
    fn hold_keys(&self, loading: &mut Loading, needs: &Needs, hold: Hold) {
        let (shared, own) = match hold {
            Hold::Not => return,
            Hold::Wait => (sql!("share_keys"), sql!("hold_keys")),
            Hold::Now => (sql!("try_share_keys"), sql!("try_hold_keys")),
        };
        let (set, read): (Vec<_>, Vec<_>) =
            needs.queues.iter().partition(|queue| self.scene.switched.contains(*queue));
        let key = |queue: &&String| self.scene.queue_key(queue);
        let claims = needs.task_sets.iter().filter_map(|select| match &select.set {
            TaskSet::Claimed { owner, key } => Some(self.scene.claim_key(owner, key)),
            _ => None,
        });
        let documents: BTreeSet<_> = needs.documents.iter().map(|key| self.scene.document_key(key)).collect();
        let read: BTreeSet<_> = read.iter().map(key).collect();
        if hold == Hold::Wait {
            let namespace = vec![param(self.scene.ns)];
            loading.add(Call::new(sql!("share_namespace"), namespace), |_, _| Ok(()));
        }
        let kinds =
            [(shared, read), (own, set.iter().map(key).collect()), (own, claims.collect()), (own, documents)];
        for (sql, keys) in kinds.into_iter().filter(|(_, keys)| !keys.is_empty()) {
            let keys: Vec<i64> = keys.into_iter().collect();
            loading.add(Call::new(sql, vec![param(keys)]), move |found, _| {
                let had = hold == Hold::Wait || read_first(found, Cells::get)?.unwrap_or_default();
                if had { Ok(()) } else { Err(Trouble::Again) }
            });
        }
    }

    /// Answers what is not found by a key, the sets of tasks apart.
    fn look(&self, loading: &mut Loading, needs: Needs, hold: Hold) {
        let (ns, now) = (self.scene.ns, self.now);
        let (patience, bound) = (self.scene.patience, self.scene.bound);
        needs.delivery_sets.into_iter().for_each(|set| groups::select(loading, ns, set, now, hold));
        needs.cuts.into_iter().for_each(|cut| streams::cut(loading, ns, cut));
        needs.unread.into_iter().for_each(|set| streams::unread(loading, ns, set, patience, bound));
        streams::events_at(loading, ns, needs.events_at);
        needs.latest.into_iter().for_each(|set| streams::latest(loading, ns, set, patience, bound));
        needs.polled.into_iter().for_each(|queue| polled(loading, ns, queue));
        needs.overgrown.into_iter().for_each(|set| streams::overgrown(loading, ns, set, now));
    }

    /// Answers what has expired or is left over, with its rows; without what another transaction is about to remove.
    async fn expire(&mut self, expired: Expired) -> Result<()> {
        let (ns, now, rows) = (self.scene.ns, self.now, &mut self.rows);
        let due = |at: Timestamp| vec![param(ns), param(At(at)), param(limit(expired.limit))];
        let coarse = |coarse: i64| due(now).into_iter().chain([param(coarse)]).collect();
        let calls = [
            Call::new(sql!("documents_expired"), due(now)),
            Call::new(sql!("entries_expired"), coarse(tasks::minute(now))),
            Call::new(sql!("locks_forgotten"), coarse(locks::hour(now))),
            Call::new(sql!("answers_expired"), due(now)),
            Call::new(sql!("pollers_expired"), due(now - POLLER_MEMORY)),
            Call::new(sql!("chores_left"), vec![param(ns)]),
        ];
        let found = self.scene.db.query_all(&calls).await?;
        let mut chores = load_found::<ChoreRow>(&found[5], rows)?;
        chores.sort();
        chores.truncate(expired.limit);
        let keys = ExpiredKeys {
            documents: load_found::<Document>(&found[0], rows)?,
            entries: load_found::<Entry>(&found[1], rows)?,
            locks: load_found::<LockRow>(&found[2], rows)?,
            answers: load_found::<AnswerRow>(&found[3], rows)?,
            pollers: load_found::<PollerRow>(&found[4], rows)?,
            chores,
        };
        rows.answer(expired, keys);
        Ok(())
    }

    /// Of how many tasks of each set is to be asked. What was found before answers for fewer, too.
    fn wanted(&self, selects: &BTreeSet<TaskSelect>) -> BTreeMap<TaskSet, usize> {
        let mut wanted: BTreeMap<TaskSet, usize> = BTreeMap::new();
        for TaskSelect { set, limit } in selects {
            let members = self.members.get(set);
            if members.is_none_or(|members| !members.are_enough(*limit, self.changes.tasks.len())) {
                let asked = self.scene.asked.get(set).copied().unwrap_or_default();
                let most = wanted.entry(set.clone()).or_default();
                *most = asked.max(*limit).max(*most);
            }
        }
        wanted
    }

    fn keep(&mut self, found: Vec<(TaskSet, Members)>) {
        for (set, members) in found {
            if sets::is_loose(&set) {
                let unknown =
                    members.rows.iter().filter(|row| self.rows.known::<TaskRow>(&row.task.id).is_none());
                self.loose.extend(unknown.map(|row| row.task.id));
            }
            self.members.insert(set, members);
        }
    }

    /// Where fewer are ready than all asked for together, there may be more that other transactions hold.
    async fn note_skipped(&mut self, selects: &BTreeSet<TaskSelect>) -> Result<()> {
        for TaskSelect { set, .. } in selects {
            let TaskSet::Ready { queues } = set else { continue };
            let Some(members) = self.members.get(set).filter(|members| members.complete) else { continue };
            let enough = self.scene.asked.get(set).is_some_and(|asked| members.rows.len() >= *asked);
            if enough || !self.counted.insert(set.clone()) {
                continue;
            }
            let most = limit(members.rows.len() + 1);
            let params = vec![param(self.scene.ns), param(queues.to_vec()), param(At(self.now)), param(most)];
            let found = self.scene.db.query(sql!("tasks_ready_count"), params).await?;
            let ready = read_first(&found, Cells::number::<usize>)?.unwrap_or_default();
            self.skipped |= ready > members.rows.len();
        }
        Ok(())
    }

    /// Answers sets of tasks from what was found, and loads their rows.
    fn answer_all(&mut self, selects: BTreeSet<TaskSelect>) -> Result<()> {
        for select in selects {
            let members = self.members.get(&select.set).ok_or(Trouble::Again)?;
            for row in &members.rows {
                self.rows.load(row.task.id, Some(Arc::clone(row)));
            }
            if !members.are_enough(select.limit, self.changes.tasks.len()) {
                return Err(Trouble::Again);
            }
            let found = members.found();
            self.rows.answer(select, found);
        }
        Ok(())
    }

    /// Takes over what an accepted plan leaves; answers whom that wakes.
    pub(crate) fn accept(&mut self, effects: Effects) -> Vec<Mark> {
        if effects.is_empty() {
            return Vec::new();
        }
        let marks = effects.marks(self.scene.namespace);
        self.rows.accept(&effects);
        let changed = &mut self.changes;
        changed.any = true;
        for group in effects.cleared {
            changed.deliveries.forget(|key| key.group == group);
            changed.cleared.insert(group);
        }
        changed.answers.add(effects.answers);
        changed.queues.add(effects.queues);
        changed.pollers.add(effects.pollers);
        changed.tasks.add(effects.tasks);
        changed.signals.add(effects.signals);
        changed.exclusives.add(effects.exclusives);
        changed.chores.add(effects.chores);
        changed.locks.add(effects.locks);
        changed.documents.add(effects.documents);
        changed.floors.add(effects.floors);
        changed.entries.add(effects.entries);
        changed.groups.add(effects.groups);
        changed.deliveries.add(effects.deliveries);
        changed.streams.add(effects.streams);
        changed.events.extend(effects.events);
        changed.trims.extend(effects.trims);
        let cleared = &changed.cleared;
        changed.deliveries.unstore(|key| cleared.contains(&key.group));
        marks
    }

    /// The tasks that are to be written although they were only looked at.
    pub(crate) fn unheld(&self) -> BTreeSet<TaskId> {
        self.changes.tasks.keys().filter(|id| self.loose.contains(id)).copied().collect()
    }

    /// Writes what the accepted plans leave, and commits, in one go: a statement that touches fewer rows than it must
    /// fails, and then nothing is committed. Answers the namespace's era, if there is one by now.
    pub(crate) async fn commit(
        &self,
        ns: i64,
        stroke: Option<Stroke>,
        known: &Mutex<Known>,
    ) -> Result<Option<Era>> {
        let mut calls = self.changes.write(ns, None);
        self.scene.db.shape(&mut calls);
        if !self.changes.trims.is_empty() {
            self.scene.db.run_all(&calls).await?;
            calls.clear();
            for trim in &self.changes.trims {
                streams::trim(self.scene.db, ns, trim).await?;
            }
        }
        self.changes.forget(ns, known);
        calls.extend(stroke.map(|stroke| stroke.call(ns)));
        calls.push(Call::new(sql!("version"), vec![param(ns)]));
        calls.push(Call::bare(sql!("commit")));
        let answers = self.scene.db.query_all(&calls).await?;
        // It is done by now, whatever can be read of the answer.
        let told = read_first(&answers[answers.len() - 2], |cells| {
            Ok((cells.get::<Option<i32>>()?, Era { epoch: cells.get()?, changes: cells.get()? }))
        });
        let Ok(Some((version, era))) = told else { return Ok(None) };
        if let Some(version) = version {
            self.changes.learn(ns, self.scene.server, version, known);
        }
        Ok(Some(era))
    }

    /// Writes and commits by one statement. If the time, the era or a row is not as it was thought to be, nothing is done.
    pub(crate) async fn commit_at_once(
        &self,
        era: Era,
        stroke: Option<Stroke>,
        known: &Mutex<Known>,
    ) -> Result<()> {
        let (ns, ended) = (self.scene.ns, self.changes.tasks.ended());
        let mut calls = self.changes.write(ns, Some(&self.recalled));
        self.scene.db.shape(&mut calls);
        calls.extend(stroke.map(|stroke| stroke.call(ns)));
        let once = Once {
            calls: &calls,
            ns,
            era,
            shown: self.shown,
            ended: (!ended.is_empty()).then(|| column(&ended, |id| id.0)),
            absent: (!self.recalled.absent.is_empty()).then(|| self.recalled.absent.params(self.scene)),
        };
        self.changes.forget(ns, known);
        let done = self.scene.db.query_once(once).await?;
        // It is done by now, whatever can be read of the answer, unless that says otherwise.
        if let Ok(Some((ord, stored))) =
            read_first(&done, |cells| Ok((cells.get::<Option<i64>>()?, cells.time()?)))
        {
            self.scene.clock.hear(stored);
            let version = ord.map(version_of).ok_or(Trouble::Again)?;
            self.changes.learn(ns, self.scene.server, version, known);
        }
        Ok(())
    }

    /// Whether there is anything to write.
    pub(crate) fn writes(&self) -> bool {
        self.changes.any
    }

    /// What it takes for absent.
    pub(crate) fn absent(&self) -> &Absent {
        &self.recalled.absent
    }

    /// The number of the namespace, which is given now if it has none.
    pub(crate) async fn number(&self) -> Result<i64> {
        if self.scene.ns != 0 || !self.changes.any {
            return Ok(self.scene.ns);
        }
        let name = vec![param(self.scene.namespace.to_owned())];
        let given = self.scene.db.query(sql!("namespace_insert"), name).await?;
        // If another process was faster, it may have written what was thought to be absent.
        read_first(&given, Cells::get)?.ok_or(Trouble::Again)
    }
}

impl Scene<'_> {
    /// A number that stands for a key, in this schema and namespace.
    fn key(&self, kind: &str, key: &str) -> i64 {
        number_of([self.schema, self.namespace, kind, key])
    }

    /// The number that stands for a queue, whose switch others may be about to set.
    pub(crate) fn queue_key(&self, queue: &str) -> i64 {
        self.key("queue", queue)
    }

    /// The number that stands for a claim with a key, which may be repeated while it is under way.
    pub(crate) fn claim_key(&self, owner: &str, key: &str) -> i64 {
        self.key("claim", &format!("{owner}\0{key}"))
    }

    /// The number that stands for a document and others. They are few, since the server has room for so many only.
    pub(crate) fn document_key(&self, key: &DocumentKey) -> i64 {
        let bucket = self.key(&key.kind, &key.name).rem_euclid(DOCUMENT_KEYS);
        self.key("documents", "").wrapping_add(bucket)
    }
}

/// The front of a hash that nobody can make collide on purpose.
fn number_of(parts: [&str; 4]) -> i64 {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part.as_bytes()).update(&[0]);
    }
    let bytes = hasher.finalize();
    bytes.as_bytes().iter().take(8).fold(0, |number, byte| number << 8 | i64::from(*byte))
}

impl Changed {
    /// Nothing is known of rows while they are being written.
    fn forget(&self, ns: i64, known: &Mutex<Known>) {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        each_kind!(self, |kind| known.forget(ns, kind));
    }

    fn learn(&self, ns: i64, server: u64, version: i32, known: &Mutex<Known>) {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.server() != server {
            return;
        }
        each_kind!(self, |kind| known.learn(ns, kind.left(), version));
        known.note_asking(ns, self.pollers.left());
    }

    fn write(&self, ns: i64, recalled: Option<&Recalled>) -> Vec<Call> {
        let mut writing = Writing::default();
        if !self.cleared.is_empty() {
            let groups: Vec<_> = self.cleared.iter().collect();
            let mut params = vec![param(ns)];
            params.push(column(&groups, |key| key.group.clone()));
            params.push(column(&groups, |key| groups::source_name(&key.source)));
            writing.any(sql!("deliveries_clear"), params);
        }
        self.answers.write(ns, None, &mut writing);
        self.queues.write(ns, None, &mut writing);
        self.pollers.write(ns, None, &mut writing);
        self.tasks.write(ns, recalled.map(|recalled| &recalled.tasks), &mut writing);
        tasks::write_beside(&self.tasks, ns, &mut writing);
        self.signals.write(ns, None, &mut writing);
        self.exclusives.write(ns, None, &mut writing);
        self.chores.write(ns, None, &mut writing);
        self.locks.write(ns, recalled.map(|recalled| &recalled.locks), &mut writing);
        self.documents.write(ns, recalled.map(|recalled| &recalled.documents), &mut writing);
        self.floors.write(ns, None, &mut writing);
        self.entries.write(ns, recalled.map(|recalled| &recalled.entries), &mut writing);
        self.groups.write(ns, None, &mut writing);
        self.deliveries.write(ns, None, &mut writing);
        self.streams.write(ns, recalled.map(|recalled| &recalled.streams), &mut writing);
        if !self.events.is_empty() {
            let (sql, params) = streams::append(ns, &self.events, recalled.is_some());
            writing.insert(sql, params);
        }
        writing.calls
    }
}

/// Loads rows by their keys, in the order in which every transaction takes its locks.
fn load_rows(loading: &mut Loading, ns: i64, needs: &mut Needs, hold: Hold) {
    loading.rows::<AnswerRow>(ns, take(&mut needs.answers), hold);
    // Whoever sets a queue's switch holds its key.
    loading.rows::<QueueRow>(ns, take(&mut needs.queues), Hold::Not);
    loading.rows::<PollerRow>(ns, take(&mut needs.pollers), hold);
    loading.rows::<TaskRow>(ns, take(&mut needs.tasks), hold);
    loading.rows::<SignalsRow>(ns, take(&mut needs.signals), hold);
    loading.rows::<ExclusiveRow>(ns, take(&mut needs.exclusives), hold);
    loading.rows::<ChoreRow>(ns, take(&mut needs.chores), hold);
    loading.rows::<LockRow>(ns, take(&mut needs.locks), hold);
    loading.rows::<Document>(ns, take(&mut needs.documents), hold);
    loading.rows::<FloorRow>(ns, take(&mut needs.floors), hold);
    loading.rows::<Entry>(ns, take(&mut needs.entries), hold);
    loading.rows::<GroupRow>(ns, take(&mut needs.groups), hold);
    loading.rows::<DeliveryRow>(ns, take(&mut needs.deliveries), hold);
    loading.rows::<StreamRow>(ns, take(&mut needs.streams), hold);
}

/// Answers who has idempotency keys and child keys. If nobody has, a unique index sees to it that it stays so.
fn by_unique_keys(loading: &mut Loading, ns: i64, needs: &mut Needs) {
    let keys = take(&mut needs.idempotency_keys);
    if !keys.is_empty() {
        let asked: Vec<_> = keys.iter().collect();
        let params = vec![param(ns), column(&asked, |key| key.0.clone())];
        loading.add(Call::new(sql!("by_idempotency_key"), params), move |found, rows| {
            let found = read_all(found, |cells| Ok((Idempotency(cells.text()?), cells.id()?)))?;
            let found: BTreeMap<_, _> = found.into_iter().collect();
            for key in keys {
                let id = found.get(&key).copied();
                rows.answer(key, id);
            }
            Ok(())
        });
    }
    let keys = take(&mut needs.child_keys);
    if !keys.is_empty() {
        let asked: Vec<_> = keys.iter().collect();
        let params = vec![
            param(ns),
            column(&asked, |child| child.parent.0),
            column(&asked, |child| child.key.clone()),
        ];
        loading.add(Call::new(sql!("by_child_key"), params), move |found, rows| {
            let read =
                |cells: &mut Cells<'_>| Ok((Child { parent: cells.id()?, key: cells.text()? }, cells.id()?));
            let found: BTreeMap<_, _> = read_all(found, read)?.into_iter().collect();
            for key in keys {
                let id = found.get(&key).copied();
                rows.answer(key, id);
            }
            Ok(())
        });
    }
}

fn polled(loading: &mut Loading, ns: i64, polled: Polled) {
    let params = vec![param(ns), param(polled.0.clone())];
    loading.add(Call::new(sql!("polled"), params), move |found, rows| {
        let at = read_first(found, Cells::maybe_time)?.flatten();
        rows.answer(polled, at);
        Ok(())
    });
}
