//! The one thread that writes. It takes every request that waits, decides and writes each of them in one
//! transaction, commits, and then answers all of them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use statehold_core::plan::{Context, Map, Rows, Step};
use statehold_core::{Clock, Error, Result};
use tokio::sync::oneshot;

use crate::error;
use crate::log::Log;
use crate::statements::{Db, Kept, sql};
use crate::transaction::{Accepted, Space, Transaction};
use crate::wakes::Wakes;

/// How long one transaction goes on taking requests, so that another process gets its turn.
const TURN: Duration = Duration::from_millis(5);

/// How long a transaction waits for the callers that the last one answered: whoever works in a loop is on the way.
const LINGER: Duration = Duration::from_micros(100);

/// From how many callers on a transaction may go without half of them, if those are long in coming back: they are
/// answered and ask again while it is written.
const MANY: usize = 32;

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
        let (answered, callers) = (Cell::new(0), Cell::new(0));
        let desk = Desk { inbox: Arc::clone(&inbox), clock, replica, wakes, known, answered, callers };
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
    /// How many callers there were before it.
    callers: Cell<usize>,
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
    const MOST: usize = 16 << 20;

    /// What is still good, given the current version.
    fn take(&mut self, version: i64) -> Map<String, Space> {
        let spaces = std::mem::take(&mut self.spaces);
        let weight: usize = spaces.values().map(|space| space.weight()).sum();
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
        let (began, waited) = (Instant::now(), jobs.len());
        let mut group = Vec::with_capacity(waited);
        let callers = self.callers(waited);
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
                if group.len() == callers / 2 && callers >= MANY {
                    jobs.extend(self.inbox.more());
                    let back = group.len() + jobs.len() - waited;
                    if back < self.answered.get() / 4 * 3 {
                        return Ok(());
                    }
                }
                if began.elapsed() > TURN {
                    return Ok(());
                }
            }
        });
        self.answered.set(group.len());
        match committed {
            Ok(accepted) => {
                group.into_iter().for_each(Job::answer);
                self.wake(&accepted);
            }
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

    /// About how many callers there are: those who wait, those who were answered last, and some who are on their way.
    fn callers(&self, waiting: usize) -> usize {
        let before = self.callers.get();
        let callers = (self.answered.get() + waiting).max(before - before / 32);
        self.callers.set(callers);
        callers
    }

    fn commit_one(&self, db: Db<'_, '_>, mut job: Box<dyn Job>) {
        match self.transact(db, |transaction| job.decide(transaction)) {
            Ok(accepted) => {
                job.answer();
                self.wake(&accepted);
            }
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

    /// Wakes who waits for what was done. Those who asked for it have their answers first.
    fn wake(&self, accepted: &Accepted) {
        self.wakes.wake(|| accepted.iter().flat_map(|(namespace, effects)| effects.marks(namespace)));
    }

    /// Runs a transaction and commits it.
    fn transact(
        &self,
        db: Db<'_, '_>,
        work: impl FnOnce(&mut Transaction<'_, '_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<Accepted> {
        db.run(sql!("begin_write"), [])?;
        let done = self.run_begun(db, work).and_then(|done| db.run(sql!("commit"), []).map(|_| done));
        let Done { spaces, accepted } = done.inspect_err(|_| {
            // Some failures have rolled back already; then there is nothing to roll back.
            let _ = db.run(sql!("rollback"), []);
        })?;
        self.known.borrow_mut().spaces = spaces;
        Ok(accepted)
    }
}

/// What a transaction leaves.
struct Done {
    spaces: Map<String, Space>,
    accepted: Accepted,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rusqlite::StatementStatus;
    use statehold_core::batch::Batch;
    use statehold_core::call::Claim;
    use statehold_core::command::{
        DocumentPut, EntrySet, Op, StreamAppend, TaskCancel, TaskComplete, TaskCreate, TaskPurge,
    };
    use statehold_core::{Json, Seconds, Timestamp, plan};

    use super::*;

    /// A writer without a thread.
    struct Bare<'c> {
        desk: Desk,
        kept: Kept<'c>,
        connection: &'c Connection,
        /// Whether it forgets all rows at once: what is kept in memory would hide what a statement costs.
        forgetful: bool,
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
                callers: Cell::new(0),
            };
            Self { desk, kept: Kept::new(), connection, forgetful: true }
        }

        fn decide<T: Send>(&self, plan: impl Fn(&Rows, &Context<'_>) -> Step<T> + Send) -> T {
            let (reply, mut answer) = oneshot::channel();
            let job = Planned { namespace: "n".into(), plan, reply, decided: None, gives: false };
            if self.forgetful {
                self.desk.known.take();
            }
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
        let event = |stream: &str| StreamAppend {
            stream: stream.parse().expect("a name"),
            events: vec![statehold_core::command::NewEvent { kind: "said".into(), data: None }],
            expect_seq: None,
        };
        store.apply(vec![event(&format!("task/{}", claimed.id))]);
        store.apply(vec![TaskComplete { id: claimed.id, token, output: None }]);
        store.apply(vec![TaskPurge { id: claimed.id }]);
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
    fn tasks_that_have_ended_leave_nothing_in_memory() {
        let folder = tempfile::tempdir().expect("a folder");
        let connection = Connection::open(folder.path().join("a.db")).expect("a database");
        let store = Bare { forgetful: false, ..Bare::new(&connection) };
        let weight = || store.desk.known.borrow().spaces.values().map(Space::weight).sum::<usize>();
        store.apply(vec![EntrySet::new("a", Json::null())]);
        let first = weight();
        day(&store, 0);
        let before = weight();
        assert!(before > first && first > 0, "what is there is remembered: {first}, then {before}");
        (0..50).for_each(|_| day(&store, 0));
        assert_eq!(weight(), before);
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
