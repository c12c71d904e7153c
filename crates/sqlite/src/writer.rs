//! The one thread that writes. It takes every request that waits, decides and writes each of them in one
//! transaction, commits, and then answers all of them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use statehold_core::model::{Document, Entry, Position, StreamName};
use statehold_core::plan::{Appending, Context, Effects, Expired, ExpiredKeys, Map, Needs, Rows, Step};
use statehold_core::query::POLLER_MEMORY;
use statehold_core::row::{
    AnswerRow, ChoreRow, DeliveryRow, ExclusiveRow, FloorRow, GroupRow, LockRow, PollerRow, QueueRow,
    SignalsRow, StreamRow, TaskRow,
};
use statehold_core::{Clock, Error, Result, Timestamp};
use tokio::sync::oneshot;

use crate::log::Log;
use crate::places::Absent;
use crate::rows::{Table as _, load, store};
use crate::statements::{Db, Kept, sql};
use crate::streams::Origin;
use crate::tasks::Counts;
use crate::wakes::Wakes;
use crate::{documents, entries, error, groups, keys as batch_keys, locks, places, queues, streams};

/// How long one transaction goes on taking requests, so that another process gets its turn.
const TURN: Duration = Duration::from_millis(5);

/// How long a transaction waits for the callers that the last one answered: whoever works in a loop is on the way.
const LINGER: Duration = Duration::from_micros(100);

/// How many positions a transaction sets apart for the next ones, so that not each has to write how far it got. What is
/// not used is left out.
const RESERVE: u64 = 64;

/// How long the writer stays awake after its work: a lone caller's next request comes sooner than a sleeper wakes.
const AWAKE: Duration = Duration::from_micros(50);

/// How long it takes until a writer without work forgets what it knows.
const IDLE: Duration = Duration::from_secs(2);

/// How long the writer stands back after a turn while other processes have the file open.
const COURTESY: Duration = Duration::from_millis(1);

/// Something to do within a transaction.
pub(crate) trait Job: Send {
    /// Does it. May be called again if the transaction came to nothing.
    fn decide(&mut self, transaction: &mut Transaction<'_, '_>) -> rusqlite::Result<()>;
    /// Answers what was decided, once it is committed.
    fn answer(self: Box<Self>);
    /// Answers that it came to nothing.
    fn fail(self: Box<Self>, error: Error);
}

/// A request that a plan decides.
pub(crate) struct Planned<T, P> {
    pub(crate) namespace: String,
    pub(crate) plan: P,
    pub(crate) reply: oneshot::Sender<Result<T>>,
    pub(crate) decided: Option<Result<T>>,
    /// Whether it is for nothing once its caller has gone.
    pub(crate) gives: bool,
}

impl<T, P> Job for Planned<T, P>
where
    T: Send,
    P: Fn(&Rows, &Context<'_>) -> Step<T> + Send,
{
    fn decide(&mut self, transaction: &mut Transaction<'_, '_>) -> rusqlite::Result<()> {
        self.decided = None;
        if !(self.gives && self.reply.is_closed()) {
            self.decided = Some(transaction.plan(&self.namespace, &self.plan)?);
        }
        Ok(())
    }

    fn answer(self: Box<Self>) {
        if let Some(decided) = self.decided {
            let _ = self.reply.send(decided);
        }
    }

    fn fail(self: Box<Self>, error: Error) {
        let _ = self.reply.send(Err(error));
    }
}

/// Where requests wait for the writer.
#[derive(Default)]
struct Inbox {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Box<dyn Job>>,
    /// The writer is asleep and must be woken.
    idle: bool,
    /// Nothing more will come.
    closed: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that waits; sleeps while nothing does, and calls `idle` if that takes long. None when nothing more will
    /// come.
    fn wait(&self, idle: impl FnOnce()) -> Option<VecDeque<Box<dyn Job>>> {
        let awake = Instant::now();
        while awake.elapsed() < AWAKE {
            let jobs = self.more();
            if !jobs.is_empty() {
                return Some(jobs);
            }
            std::thread::yield_now();
        }
        let mut waiting = self.lock();
        let mut idle = Some(idle);
        loop {
            if !waiting.jobs.is_empty() {
                return Some(std::mem::take(&mut waiting.jobs));
            }
            if waiting.closed {
                return None;
            }
            waiting.idle = true;
            let arrived = if idle.is_some() {
                let slept = self.arrived.wait_timeout(waiting, IDLE).unwrap_or_else(PoisonError::into_inner);
                if slept.1.timed_out()
                    && let Some(idle) = idle.take()
                {
                    idle();
                }
                slept.0
            } else {
                self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner)
            };
            waiting = arrived;
            waiting.idle = false;
        }
    }

    /// All that came meanwhile.
    fn more(&self) -> VecDeque<Box<dyn Job>> {
        std::mem::take(&mut self.lock().jobs)
    }
}

/// The writer, from outside.
pub(crate) struct Writer {
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread on its own connection.
    pub(crate) fn start(
        connection: Connection,
        log: Log,
        clock: Clock,
        replica: String,
        wakes: Wakes,
    ) -> Result<Self> {
        let inbox = Arc::<Inbox>::default();
        let known = RefCell::default();
        let desk = Desk { inbox: Arc::clone(&inbox), clock, replica, wakes, known, answered: Cell::new(0) };
        let thread = std::thread::Builder::new()
            .name("statehold-sqlite".into())
            .spawn(move || desk.run(connection, log))
            .map_err(|e| Error::unavailable("no thread can be started for the writer").caused_by(e))?;
        Ok(Self { inbox, thread: Some(thread) })
    }

    /// Hands a request to the writer.
    pub(crate) fn send(&self, job: Box<dyn Job>) {
        let mut waiting = self.inbox.lock();
        waiting.jobs.push_back(job);
        if waiting.idle {
            self.inbox.arrived.notify_one();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.inbox.lock().closed = true;
        self.inbox.arrived.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The writer, on its thread.
struct Desk {
    inbox: Arc<Inbox>,
    clock: Clock,
    replica: String,
    wakes: Wakes,
    known: RefCell<Known>,
    /// How many requests the last transaction had.
    answered: Cell<usize>,
}

/// What the last transaction knew, good for the next one unless another process has written since.
#[derive(Default)]
struct Known {
    spaces: Map<String, Space>,
    /// Changes when another connection writes.
    version: i64,
}

impl Known {
    /// The most bytes of rows that are kept.
    const MOST: usize = 64 << 20;

    /// What is still good, given the current version.
    fn take(&mut self, version: i64) -> Map<String, Space> {
        let spaces = std::mem::take(&mut self.spaces);
        let weight: usize = spaces.values().map(|space| space.rows.weight()).sum();
        let good = version == self.version && weight <= Self::MOST;
        self.version = version;
        if good {
            return spaces;
        }
        discard(spaces);
        Map::default()
    }
}

/// Lets go of rows that are no longer good. Of many that takes a while, for which nobody should wait.
fn discard(spaces: Map<String, Space>) {
    if !spaces.is_empty() {
        // If no thread can be had, they are dropped here.
        let _ = std::thread::Builder::new().name("statehold-discard".into()).spawn(move || drop(spaces));
    }
}

impl Desk {
    fn run(self, connection: Connection, mut log: Log) {
        let kept = Kept::new();
        let db = Db::keeping(&connection, &kept);
        let mut turn = Instant::now();
        while let Some(mut jobs) = self.inbox.wait(|| discard(self.known.take().spaces)) {
            while !jobs.is_empty() {
                if self.wakes.has_peers() && turn.elapsed() > TURN {
                    std::thread::sleep(COURTESY);
                    turn = Instant::now();
                }
                self.commit_some(db, &mut jobs);
                log.tend(&connection);
            }
        }
        drop((kept, log));
        // The last connection that closes takes the log over into the file; readers are gone by now.
        let _ = connection.close();
    }

    /// Takes requests into one transaction until none waits or its time is up. If it comes to nothing, each of
    /// them gets a transaction of its own, so that none suffers for another.
    fn commit_some(&self, db: Db<'_, '_>, jobs: &mut VecDeque<Box<dyn Job>>) {
        let began = Instant::now();
        let mut group = Vec::with_capacity(jobs.len());
        let committed = self.transact(db, |transaction| {
            loop {
                while jobs.is_empty() {
                    *jobs = self.inbox.more();
                    if !jobs.is_empty() || group.len() >= self.answered.get() || began.elapsed() > LINGER {
                        break;
                    }
                    std::thread::yield_now();
                }
                let Some(job) = jobs.pop_front() else { return Ok(()) };
                group.push(job);
                if let Some(job) = group.last_mut() {
                    job.decide(transaction)?;
                }
                if began.elapsed() > TURN {
                    return Ok(());
                }
            }
        });
        self.answered.set(group.len());
        match committed {
            Ok(()) => group.into_iter().for_each(Job::answer),
            Err(problem) if group.len() <= 1 => {
                let error = error::from(problem);
                // If not even a transaction could be begun, nobody who waits fares better.
                let failed = if group.is_empty() { jobs.drain(..).collect() } else { group };
                for job in failed {
                    job.fail(error.clone());
                }
            }
            Err(_) => group.into_iter().for_each(|job| self.commit_one(db, job)),
        }
    }

    fn commit_one(&self, db: Db<'_, '_>, mut job: Box<dyn Job>) {
        match self.transact(db, |transaction| job.decide(transaction)) {
            Ok(()) => job.answer(),
            Err(problem) => job.fail(error::from(problem)),
        }
    }

    /// Runs what is in a transaction, which may end either way.
    fn run_begun(
        &self,
        db: Db<'_, '_>,
        work: impl FnOnce(&mut Transaction<'_, '_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<Done> {
        let version = db.first(sql!("data_version"), [], |cells| cells.get())?.unwrap_or_default();
        let spaces = self.known.borrow_mut().take(version);
        let mut transaction =
            Transaction { db, clock: &self.clock, replica: &self.replica, spaces, accepted: Vec::new() };
        work(&mut transaction)?;
        transaction.finish()?;
        Ok(Done { spaces: transaction.spaces, accepted: transaction.accepted })
    }

    /// Runs a transaction, commits it, and wakes who waits for what it did.
    fn transact(
        &self,
        db: Db<'_, '_>,
        work: impl FnOnce(&mut Transaction<'_, '_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        db.run(sql!("begin_write"), [])?;
        let done = self.run_begun(db, work).and_then(|done| db.run(sql!("commit"), []).map(|_| done));
        let Done { spaces, accepted } = done.inspect_err(|_| {
            // Some failures have rolled back already; then there is nothing to roll back.
            let _ = db.run(sql!("rollback"), []);
        })?;
        self.known.borrow_mut().spaces = spaces;
        self.wakes.wake(|| accepted.iter().flat_map(|(namespace, effects)| effects.marks(namespace)));
        Ok(())
    }
}

/// What a transaction leaves.
struct Done {
    spaces: Map<String, Space>,
    accepted: Vec<(Arc<str>, Effects)>,
}

/// An open transaction.
pub(crate) struct Transaction<'t, 'c> {
    db: Db<'t, 'c>,
    clock: &'t Clock,
    replica: &'t str,
    spaces: Map<String, Space>,
    accepted: Vec<(Arc<str>, Effects)>,
}

/// What a transaction knows of a namespace.
pub(crate) struct Space {
    name: Arc<str>,
    /// 0 if it is not known to the store yet.
    ns: i64,
    rows: Rows,
    last_position: u64,
    /// What the store has: up to here no position is given by anyone else, nor again.
    reserved_position: u64,
    origin: Origin,
    /// The numbers of categories.
    categories: Map<String, i64>,
    /// Heads of streams that have moved: written once a transaction, however many events it appends.
    heads: Map<StreamName, Arc<StreamRow>>,
    absent: Absent,
    counts: Counts,
}

impl Transaction<'_, '_> {
    /// Plans a request, loads what the plan needs, and writes what it leaves.
    fn plan<T>(
        &mut self,
        namespace: &str,
        plan: impl Fn(&Rows, &Context<'_>) -> Step<T>,
    ) -> rusqlite::Result<Result<T>> {
        let db = self.db;
        let context = Context { now: self.clock.now(), replica: self.replica };
        let space = Self::space(db, &mut self.spaces, namespace)?;
        space.rows.forget_lookups();
        let independent = space.absent.independent(db, space.ns)?;
        space.rows.say_independent(independent);
        loop {
            match plan(&space.rows, &context) {
                Step::Need(needs) => {
                    if needs.reads_streams() {
                        space.store_heads(db)?;
                    }
                    load_needs(db, space, needs, context.now)?;
                }
                Step::Refuse(error) => return Ok(Err(error)),
                Step::Accept(answer, effects) => {
                    if !effects.is_empty() {
                        space.store(db, namespace, &effects)?;
                        space.rows.stored(&effects);
                        self.accepted.push((Arc::clone(&space.name), effects));
                    }
                    return Ok(Ok(answer));
                }
            }
        }
    }

    fn space<'s>(
        db: Db<'_, '_>,
        spaces: &'s mut Map<String, Space>,
        namespace: &str,
    ) -> rusqlite::Result<&'s mut Space> {
        if !spaces.contains_key(namespace) {
            let (ns, position, origin) = db.namespace(namespace)?.unwrap_or_default();
            let space = Space {
                name: namespace.into(),
                ns,
                rows: Rows::default(),
                last_position: position,
                reserved_position: position,
                origin,
                categories: Map::default(),
                heads: Map::default(),
                absent: Absent::default(),
                counts: Counts::default(),
            };
            spaces.insert(namespace.to_owned(), space);
        }
        spaces.get_mut(namespace).ok_or(rusqlite::Error::InvalidQuery)
    }

    /// Writes a namespace that must be empty, row by row.
    pub(crate) fn fill(
        &mut self,
        namespace: &str,
        fill: impl FnOnce(Db<'_, '_>, &mut Space, i64) -> rusqlite::Result<u64>,
    ) -> rusqlite::Result<Result<u64>> {
        let db = self.db;
        let used = db.first(sql!("namespace_used"), [namespace], |_| Ok(()))?.is_some();
        if used {
            let message = format!("namespace `{namespace}` is not empty");
            let error = Error::conflict(namespace, message).hint("load into a namespace with nothing in it");
            return Ok(Err(error));
        }
        let space = Self::space(db, &mut self.spaces, namespace)?;
        let ns = space.number(db, namespace)?;
        let filled = fill(db, space, ns)?;
        space.rows = Rows::default();
        space.absent = Absent::default();
        // What comes now stands above all that was loaded, and is numbered on.
        let loaded = u64::try_from(space.origin.loaded).unwrap_or_default();
        space.last_position = space.last_position.max(loaded);
        let ahead = i64::try_from(space.last_position - loaded).unwrap_or(i64::MAX);
        space.origin.ahead = ahead;
        db.run(sql!("namespace_loaded"), params![ns, loaded, ahead])?;
        Ok(Ok(filled))
    }

    /// Writes what is gathered over the transaction.
    fn finish(&mut self) -> rusqlite::Result<()> {
        for space in self.spaces.values_mut() {
            if space.last_position > space.reserved_position {
                space.reserved_position = space.last_position + RESERVE;
                self.db.run(sql!("namespace_position"), params![space.ns, space.reserved_position])?;
            }
            space.store_heads(self.db)?;
            space.counts.store(self.db, space.ns)?;
        }
        Ok(())
    }
}

impl Space {
    /// The number of the namespace, which is given now if it has none.
    fn number(&mut self, db: Db<'_, '_>, namespace: &str) -> rusqlite::Result<i64> {
        if self.ns == 0 {
            self.ns =
                db.first(sql!("namespace_insert"), [namespace], |cells| cells.get())?.unwrap_or_default();
        }
        Ok(self.ns)
    }

    /// Positions go on above everything that was restored.
    pub(crate) fn note_position(&mut self, position: &Position) {
        self.last_position = self.last_position.max(position.number().unwrap_or(0));
    }

    /// Writes an event of a dump, with the position that it had.
    pub(crate) fn restore(
        &mut self,
        db: Db<'_, '_>,
        event: &Appending,
        position: &Position,
    ) -> rusqlite::Result<()> {
        self.note_position(position);
        self.origin.loaded += 1;
        let category = self.category(db, event.stream.category())?;
        streams::insert(db, self.ns, category, self.origin.loaded, event, Some(position))
    }

    fn append(&mut self, db: Db<'_, '_>, event: &Appending) -> rusqlite::Result<()> {
        self.last_position += 1;
        let number = i64::try_from(self.last_position).unwrap_or(i64::MAX) - self.origin.ahead;
        let category = self.category(db, event.stream.category())?;
        streams::insert(db, self.ns, category, number, event, None)
    }

    fn category(&mut self, db: Db<'_, '_>, name: &str) -> rusqlite::Result<i64> {
        if let Some(number) = self.categories.get(name) {
            return Ok(*number);
        }
        let number = streams::category(db, self.ns, name)?;
        self.categories.insert(name.to_owned(), number);
        Ok(number)
    }

    fn store_heads(&mut self, db: Db<'_, '_>) -> rusqlite::Result<()> {
        self.heads.drain().try_for_each(|(_, row)| row.put(db, self.ns, None))
    }

    pub(crate) fn counts(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// Writes what a plan leaves.
    fn store(&mut self, db: Db<'_, '_>, namespace: &str, effects: &Effects) -> rusqlite::Result<()> {
        let ns = self.number(db, namespace)?;
        for group in &effects.cleared {
            groups::clear(db, ns, group)?;
        }
        store(db, ns, &effects.answers)?;
        store(db, ns, &effects.queues)?;
        store(db, ns, &effects.pollers)?;
        store(db, ns, &effects.tasks)?;
        store(db, ns, &effects.signals)?;
        store(db, ns, &effects.exclusives)?;
        store(db, ns, &effects.chores)?;
        store(db, ns, &effects.locks)?;
        store(db, ns, &effects.documents)?;
        store(db, ns, &effects.floors)?;
        store(db, ns, &effects.entries)?;
        store(db, ns, &effects.groups)?;
        store(db, ns, &effects.deliveries)?;
        for change in &effects.streams {
            if let Some(row) = &change.after {
                self.heads.insert(change.key.clone(), Arc::clone(row));
            } else {
                self.heads.remove(&change.key);
                store(db, ns, std::slice::from_ref(change))?;
            }
        }
        for event in &effects.events {
            self.append(db, event)?;
        }
        for trim in &effects.trims {
            streams::trim(db, ns, trim)?;
        }
        self.absent.note(&effects.tasks);
        self.counts.note(&effects.tasks);
        Ok(())
    }
}

/// Loads what a plan is missing.
fn load_needs(db: Db<'_, '_>, space: &mut Space, needs: Needs, now: Timestamp) -> rusqlite::Result<()> {
    let (ns, rows, absent) = (space.ns, &mut space.rows, &mut space.absent);
    load::<AnswerRow>(db, ns, needs.answers, rows)?;
    load::<QueueRow>(db, ns, needs.queues, rows)?;
    load::<PollerRow>(db, ns, needs.pollers, rows)?;
    load::<TaskRow>(db, ns, needs.tasks, rows)?;
    load::<SignalsRow>(db, ns, needs.signals, rows)?;
    load::<ExclusiveRow>(db, ns, needs.exclusives, rows)?;
    load::<ChoreRow>(db, ns, needs.chores, rows)?;
    load::<LockRow>(db, ns, needs.locks, rows)?;
    load::<Document>(db, ns, needs.documents, rows)?;
    load::<FloorRow>(db, ns, needs.floors, rows)?;
    load::<Entry>(db, ns, needs.entries, rows)?;
    load::<GroupRow>(db, ns, needs.groups, rows)?;
    load::<DeliveryRow>(db, ns, needs.deliveries, rows)?;
    load::<StreamRow>(db, ns, needs.streams, rows)?;
    for key in needs.idempotency_keys {
        let id = places::by_idempotency_key(db, ns, &key.0)?;
        rows.answer(key, id);
    }
    for key in needs.child_keys {
        let id = places::by_child_key(db, ns, key.parent, &key.key)?;
        rows.answer(key, id);
    }
    for set in needs.task_sets {
        places::select(db, ns, set, rows, absent, now)?;
    }
    for set in needs.delivery_sets {
        groups::select(db, ns, set, rows, now)?;
    }
    for cut in needs.cuts {
        let point = streams::cut(db, ns, &cut)?;
        rows.answer(cut, point);
    }
    for unread in needs.unread {
        let events = streams::unread(db, ns, &unread)?;
        rows.answer(unread, events);
    }
    for at in needs.events_at {
        let event = streams::event_at(db, ns, &at)?;
        rows.answer(at, event);
    }
    for latest in needs.latest {
        let position = streams::latest(db, ns, &latest.0)?;
        rows.answer(latest, position);
    }
    for polled in needs.polled {
        let at = db.first(sql!("polled"), params![ns, polled.0], |cells| cells.maybe_time())?.flatten();
        rows.answer(polled, at);
    }
    for overgrown in needs.overgrown {
        let streams = streams::overgrown(db, ns, &overgrown, now)?;
        rows.answer(overgrown, streams);
    }
    for limit in needs.expired {
        let keys = expired(db, ns, limit, rows, now)?;
        rows.answer(limit, keys);
    }
    Ok(())
}

/// What has expired or is left over, with its rows.
fn expired(
    db: Db<'_, '_>,
    ns: i64,
    expired: Expired,
    rows: &mut Rows,
    now: Timestamp,
) -> rusqlite::Result<ExpiredKeys> {
    fn keys<R: statehold_core::plan::Kept>(found: Vec<R>, rows: &mut Rows) -> Vec<R::Key> {
        let load = |row: R| {
            let key = row.key();
            rows.load(key.clone(), Some(Arc::new(row)));
            key
        };
        found.into_iter().map(load).collect()
    }
    let due = params![ns, now.as_micros(), expired.limit];
    let this_minute = params![ns, now.as_micros(), expired.limit, entries::minute(now)];
    let this_hour = params![ns, now.as_micros(), expired.limit, locks::hour(now)];
    let silent = params![ns, (now - POLLER_MEMORY).as_micros()];
    let mut pollers = db.all(sql!("pollers_expired"), silent, queues::read_poller)?;
    pollers.truncate(expired.limit);
    let mut chores = queues::chores(db, ns)?;
    chores.truncate(expired.limit);
    Ok(ExpiredKeys {
        documents: keys(db.all(sql!("documents_expired"), due, documents::read)?, rows),
        entries: keys(db.all(sql!("entries_expired"), this_minute, entries::read)?, rows),
        locks: keys(db.all(sql!("locks_forgotten"), this_hour, locks::read)?, rows),
        answers: keys(db.all(sql!("answers_expired"), due, batch_keys::read_answer)?, rows),
        pollers: keys(pollers, rows),
        chores: keys(chores, rows),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rusqlite::StatementStatus;
    use statehold_core::batch::Batch;
    use statehold_core::call::Claim;
    use statehold_core::command::{
        DocumentPut, EntrySet, Op, StreamAppend, TaskCancel, TaskComplete, TaskCreate,
    };
    use statehold_core::{Json, Seconds, plan};

    use super::*;

    /// A writer without a thread, on a database in memory.
    struct Bare<'c> {
        desk: Desk,
        kept: Kept<'c>,
        connection: &'c Connection,
    }

    impl<'c> Bare<'c> {
        fn new(connection: &'c Connection) -> Self {
            crate::migrations::run(connection, true, Timestamp::default()).expect("the schema is made");
            let desk = Desk {
                inbox: Arc::default(),
                clock: Clock::real(),
                replica: "local".into(),
                wakes: Wakes::join(Path::new("/nowhere/at/all.db")),
                known: RefCell::default(),
                answered: Cell::new(0),
            };
            Self { desk, kept: Kept::new(), connection }
        }

        fn decide<T: Send>(&self, plan: impl Fn(&Rows, &Context<'_>) -> Step<T> + Send) -> T {
            let (reply, mut answer) = oneshot::channel();
            let job = Planned { namespace: "n".into(), plan, reply, decided: None, gives: false };
            // What is kept in memory would hide what a statement costs.
            self.desk.known.take();
            let mut decided = None;
            let db = Db::keeping(self.connection, &self.kept);
            let mut job = job;
            let done = self.desk.transact(db, |transaction| {
                job.decide(transaction)?;
                decided = job.decided.take();
                Ok(())
            });
            done.expect("it is committed");
            assert!(answer.try_recv().is_err());
            decided.expect("it is decided").expect("it is accepted")
        }

        fn apply<O: Op>(&self, commands: Vec<O>) -> Vec<O::Reply> {
            let mut batch = Batch::new("n");
            let handles: Vec<_> = commands.into_iter().map(|command| batch.add(command)).collect();
            let batch = batch.prepare().expect("the batch is good");
            let mut replies = self.decide(move |rows, context| plan::apply(&batch, rows, context));
            handles.into_iter().map(|handle| replies.take(handle).expect("its reply")).collect()
        }

        /// How many steps SQLite's machine takes for some work.
        fn steps(&self, work: impl FnOnce(&Self)) -> i64 {
            self.kept.each(|statement| {
                statement.reset_status(StatementStatus::VmStep);
            });
            work(self);
            let mut steps = 0;
            self.kept.each(|statement| steps += i64::from(statement.get_status(StatementStatus::VmStep)));
            steps
        }
    }

    fn create() -> TaskCreate {
        TaskCreate { queue: Some("q".into()), ..TaskCreate::new("k") }
    }

    /// What a worker's day consists of.
    fn day(store: &Bare<'_>, number: usize) {
        store.apply(vec![create()]);
        let claim = Claim { limit: 1, ..Claim::new("n", "q", "worker") };
        let claimed = store.decide(move |rows, context| plan::claim(&claim, rows, context)).tasks.remove(0);
        let token = claimed.lease.as_ref().expect("a lease").token;
        store.apply(vec![TaskComplete { id: claimed.id, token, output: None }]);
        let event = |stream: &str| StreamAppend {
            stream: stream.parse().expect("a name"),
            events: vec![statehold_core::command::NewEvent { kind: "said".into(), data: None }],
            expect_seq: None,
        };
        store.apply(vec![event("thread/1")]);
        store.apply(vec![DocumentPut::json("kind", format!("day-{number}"), Json::null())]);
        store.apply(vec![EntrySet::new(format!("day-{number}"), Json::null())]);
    }

    /// Fills the same queue with tasks that are finished, future and blocked, and the rest with as many rows.
    fn fill(store: &Bare<'_>, count: usize) {
        for _ in 0..count / 500 {
            let first = store.apply((0..250).map(|_| create()).collect());
            let ids: Vec<_> = first.iter().map(|created| created.task.id).collect();
            let later = Clock::real().now() + Seconds::new(86_400);
            store.apply((0..125).map(|_| TaskCreate { run_at: Some(later), ..create() }).collect());
            let parked = store.apply(vec![TaskCreate { backlog: true, ..create() }]).remove(0).task.id;
            let blocked = || TaskCreate { depends_on: vec![parked], ..create() };
            store.apply((0..125).map(|_| blocked()).collect());
            store.apply(ids.iter().map(|id| TaskCancel { id: *id, force: false, children: false }).collect());
            let name = |prefix: &str, number: usize| format!("{prefix}-{number}-{}", ids[0]);
            store.apply((0..250).map(|n| DocumentPut::json("kind", name("d", n), Json::null())).collect());
            store.apply((0..250).map(|n| EntrySet::new(name("e", n), Json::null())).collect());
        }
    }

    #[test]
    fn what_is_there_does_not_make_work_slower() {
        let connection = Connection::open_in_memory().expect("a database in memory");
        let store = Bare::new(&connection);
        fill(&store, 500);
        day(&store, 0);
        let few = store.steps(|store| day(store, 1));
        fill(&store, 20_000);
        day(&store, 2);
        let many = store.steps(|store| day(store, 3));
        assert!(many <= few + few / 10, "{few} steps with few rows, {many} with many");
    }
}
