//! What a namespace's callers ask for at the same time is loaded, planned and written together, in the order in which it
//! came. The next group is planned while the last one is on its way.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use redis::Cmd;

use statehold_core::call::Claim;
use statehold_core::plan::{Context, Effects, Needs, Ready, Rows, Step, TaskSet};
use statehold_core::wake::Mark;
use statehold_core::{Clock, Error, Result};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use crate::claims::{self, Said};
use crate::commit::{Changed, Written, call, send};
use crate::connection::Connection;
use crate::error::{Trouble, unknown};
use crate::lanes::{Flights, Lanes, Seats};
use crate::memory::Memory;
use crate::namespaces::Registry;
use crate::snapshot::{Scene, Snapshot, Terms};
use crate::space::Space;
use crate::strokes::{Stroke, Strokes};
use crate::wakes::Wakes;

/// What is known before anything is loaded.
static NOTHING: LazyLock<Rows> = LazyLock::new(Rows::default);

/// How many requests are written together at most.
const MOST: usize = 256;

/// How many are together at least, if that many wait: a group costs something by itself.
const LEAST: usize = 8;

/// How many groups of a lane are on their way at most. Requests that come again as soon as they are answered are spread over
/// as many, so that the server is not idle while they are planned.
const FLIGHTS: usize = 3;

/// Of how many namespaces rows are remembered.
const REMEMBERED: usize = 16;

/// How often a group tries together before each half of it has better luck alone.
const TRIES: u32 = 3;

/// How long one request is tried again and again while others are faster or the server is away.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a request waits for a server that cannot be reached.
pub(crate) const OUTAGE: Duration = Duration::from_secs(3);

/// A request in a lane.
pub(crate) trait Job: Send {
    /// Whether it reads what only the store knows, so that it is written with nobody else's.
    fn is_alone(&self) -> bool;
    /// Whether it can be repeated although it may have been done.
    fn is_repeatable(&self) -> bool;
    /// Goes on with it as far as the rows reach.
    fn step(&mut self, rows: &Rows, sight: &Sight<'_>) -> Progress;
    /// Answers what was decided, once it is written.
    fn answer(self: Box<Self>);
    /// Answers that it came to nothing.
    fn fail(self: Box<Self>, error: Error);
}

/// What a request sees beside the rows.
pub(crate) struct Sight<'a> {
    pub(crate) context: Context<'a>,
    /// Ready tasks were left out because another process is about to take them.
    pub(crate) skipped: bool,
}

/// How far a request is.
pub(crate) enum Progress {
    /// These are missing.
    Need(Box<Needs>),
    /// It is decided and leaves this.
    Done(Box<Effects>),
}

/// A request that a plan decides.
pub(crate) struct Planned<T, P> {
    pub(crate) plan: P,
    pub(crate) reply: oneshot::Sender<Result<T>>,
    pub(crate) decided: Option<Result<T>>,
    /// Whether it is for nothing once its caller has gone.
    pub(crate) gives: bool,
    pub(crate) alone: bool,
    /// Whether its caller can repeat it although it may have been done.
    pub(crate) repeatable: bool,
}

impl<T, P> Job for Planned<T, P>
where
    T: Send,
    P: Fn(&Rows, &Sight<'_>) -> Step<T> + Send,
{
    fn is_alone(&self) -> bool {
        self.alone
    }

    fn is_repeatable(&self) -> bool {
        self.repeatable
    }

    fn step(&mut self, rows: &Rows, sight: &Sight<'_>) -> Progress {
        self.decided = None;
        if self.gives && self.reply.is_closed() {
            return Progress::Done(Box::default());
        }
        match (self.plan)(rows, sight) {
            Step::Need(needs) => Progress::Need(Box::new(needs)),
            Step::Accept(answer, effects) => {
                self.decided = Some(Ok(answer));
                Progress::Done(Box::new(effects))
            }
            Step::Refuse(error) => {
                self.decided = Some(Err(error));
                Progress::Done(Box::default())
            }
        }
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

type Group = Vec<Box<dyn Job>>;

/// The lanes of a store.
pub(crate) struct Writer {
    desk: Arc<Desk>,
    lanes: Lanes<Box<dyn Job>>,
    claims: Lanes<claims::Waiting>,
}

/// What every lane works with.
pub(crate) struct Desk {
    pub(crate) db: Connection,
    pub(crate) clock: Clock,
    pub(crate) replica: String,
    pub(crate) prefix: String,
    /// The name of this process among those that have the store open.
    pub(crate) me: String,
    pub(crate) wakes: Wakes,
    pub(crate) registry: Registry,
    pub(crate) strokes: Strokes,
    /// Namespaces in which tasks depend on others.
    pub(crate) dependent: Mutex<HashSet<String>>,
    /// What is known of namespaces.
    pub(crate) memories: Mutex<HashMap<String, Arc<Mutex<Memory>>>>,
    /// They share what there is room for.
    pub(crate) remembered: Arc<()>,
}

/// Why a try came to nothing.
struct Failure {
    trouble: Trouble,
    /// The commit was under way.
    committing: bool,
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        Self { trouble, committing: false }
    }
}

impl Failure {
    /// What the callers are told.
    fn into_error(self) -> Error {
        let unknown_end = self.committing && self.trouble.is_lost();
        if unknown_end { unknown(self.trouble) } else { self.trouble.into_error() }
    }
}

impl Writer {
    pub(crate) fn new(desk: Desk) -> Self {
        Self { desk: Arc::new(desk), lanes: Lanes::new(), claims: Lanes::new() }
    }

    /// What every lane works with.
    pub(crate) fn desk(&self) -> &Desk {
        &self.desk
    }

    /// Lets a request wait in the lane of its namespace until it is answered, and the lane go on when the caller is gone.
    pub(crate) async fn wait<T>(
        &self,
        namespace: &str,
        job: Box<dyn Job>,
        answer: oneshot::Receiver<T>,
    ) -> Option<T> {
        let run = |seats| run(Lane::new(&self.desk, namespace), seats).boxed();
        self.lanes.wait(namespace, job, answer, run).await
    }

    /// The same for a claim that the server decides.
    pub(crate) async fn claim(&self, claim: Arc<Claim>, ready: Option<Ready>) -> Option<Result<Said>> {
        let (reply, answer) = oneshot::channel();
        let namespace = &Arc::clone(&claim).namespace;
        let run = |seats| claims::run(claims::Lane::new(&self.desk, namespace), seats).boxed();
        self.claims.wait(namespace, claims::Waiting { claim, ready, reply }, answer, run).await
    }
}

/// One namespace at work.
struct Lane {
    desk: Arc<Desk>,
    namespace: String,
    space: Space,
    memory: Arc<Mutex<Memory>>,
    db: Connection,
    /// How many requests are on their way.
    aloft: AtomicUsize,
}

/// A group that was planned.
struct Decided {
    /// The call that writes it, unless there is nothing to write.
    call: Option<Cmd>,
    /// Whether it only checks what was read.
    idle: bool,
    /// How to learn what became of it, unless it can be repeated.
    stroke: Option<Stroke>,
    /// Whom to wake; everyone if that was not worked out.
    marks: Option<Vec<Mark>>,
    /// Kinds of which unknown rows were taken for absent.
    guessed: BTreeSet<u8>,
}

/// Moves a lane until nobody waits in it.
async fn run(lane: Lane, seats: Seats<Box<dyn Job>>) {
    let mut flights = Flights::new();
    loop {
        let Some(jobs) = seats.take(flights.is_empty()) else { return };
        let idle = jobs.is_empty();
        let share = (jobs.len() + lane.aloft.load(Ordering::Relaxed)).div_ceil(FLIGHTS);
        for mut group in groups(jobs, share.clamp(LEAST, MOST)) {
            if flights.len() >= FLIGHTS {
                lane.land(&mut flights).await;
            }
            match lane.desk.decide(&lane, &mut group, None).await {
                Ok(decided) => {
                    let mut flight = Box::pin(lane.fly(group, decided));
                    // It is sent before the next one is planned, which may read what it writes.
                    match (&mut flight).now_or_never() {
                        Some(landed) => lane.landed(landed, &mut flights).await,
                        None => flights.push(flight),
                    }
                }
                Err(_) => lane.settle(group).await,
            }
        }
        if flights.len() >= FLIGHTS {
            lane.land(&mut flights).await;
        } else if idle {
            tokio::select! {
                Some(landed) = flights.next() => lane.landed(landed, &mut flights).await,
                () = seats.someone() => {}
            }
        }
    }
}

/// A group that came back, and how.
type Landed = (Group, Decided, crate::error::Result<Written>);

impl Lane {
    fn new(desk: &Arc<Desk>, namespace: &str) -> Self {
        Self {
            space: Space::new(&desk.prefix, namespace),
            memory: desk.memory(namespace),
            db: desk.db.of_a_lane(),
            desk: Arc::clone(desk),
            namespace: namespace.to_owned(),
            aloft: AtomicUsize::new(0),
        }
    }

    /// Sends what a group leaves.
    async fn fly(&self, group: Group, mut decided: Decided) -> Landed {
        self.aloft.fetch_add(group.len(), Ordering::Relaxed);
        let written = self.desk.write(self, &mut decided).await;
        self.aloft.fetch_sub(group.len(), Ordering::Relaxed);
        (group, decided, written)
    }

    /// Waits for a group that is on its way.
    async fn land(&self, flights: &mut Flights<impl Future<Output = Landed>>) {
        if let Some(landed) = flights.next().await {
            self.landed(landed, flights).await;
        }
    }

    /// Answers a group that came back. If it came to nothing, so may those behind it: all of them are waited for, and then
    /// each is tried on what is loaded.
    async fn landed(&self, landed: Landed, flights: &mut Flights<impl Future<Output = Landed>>) {
        let Some(failed) = self.answer(landed).await else { return };
        let mut all = vec![failed];
        while let Some(landed) = flights.next().await {
            all.extend(self.answer(landed).await);
        }
        for group in all {
            self.settle(group).await;
        }
    }

    /// Answers a group that came back; gives it back if it is to be tried again.
    async fn answer(&self, (group, decided, written): Landed) -> Option<Group> {
        let Err(failure) = self.desk.conclude(self, decided, written).await else {
            let many = group.len() > 1;
            group.into_iter().for_each(Job::answer);
            if many {
                // They may come again at once, and then they go together.
                yield_now().await;
            }
            return None;
        };
        if failure.trouble.is_race() || failure.trouble.is_passing() {
            return Some(group);
        }
        fail_all(group, &failure.into_error());
        None
    }

    /// Writes a group on what is loaded. If that fails, each half of it is tried anew, so that none suffers for another.
    async fn settle(&self, group: Group) {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).forget_after(&BTreeSet::new());
        let mut waiting = vec![group];
        while let Some(mut group) = waiting.pop() {
            match self.desk.try_to_write(self, &mut group).await {
                Ok(()) => group.into_iter().for_each(Job::answer),
                Err(failure) if group.len() == 1 || failure.trouble.is_lost() => {
                    fail_all(group, &failure.into_error());
                }
                Err(_) => {
                    let half = group.split_off(group.len() / 2);
                    waiting.extend([half, group]);
                }
            }
        }
    }
}

impl Desk {
    /// What is known of a namespace.
    pub(crate) fn memory(&self, namespace: &str) -> Arc<Mutex<Memory>> {
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(memory) = memories.get(namespace) {
            return Arc::clone(memory);
        }
        // Any other goes: most processes have few namespaces.
        let other = memories.keys().next().filter(|_| memories.len() >= REMEMBERED).cloned();
        if let Some(other) = other {
            memories.remove(&other);
        }
        let memory = || Arc::new(Mutex::new(Memory::new(&self.remembered)));
        Arc::clone(memories.entry(namespace.to_owned()).or_insert_with(memory))
    }

    /// Tries to write a group until it succeeds or has lost too often.
    async fn try_to_write(&self, lane: &Lane, group: &mut Group) -> Result<(), Failure> {
        let began = Instant::now();
        let (mut tries, mut learned) = (0, Needs::default());
        loop {
            let Err(failure) = self.attempt(lane, group, &mut learned).await else {
                return Ok(());
            };
            tries += 1;
            let trouble = &failure.trouble;
            let lost = trouble.is_lost() || trouble.is_passing();
            let again = trouble.is_race() || (lost && !failure.committing) || trouble.is_passing();
            let alone = group.len() == 1 || lost;
            let patience = if lost { OUTAGE } else { PATIENCE };
            if !again || began.elapsed() > patience || (tries >= TRIES && !alone) {
                return Err(failure);
            }
            sleep(pause(tries, lost)).await;
        }
    }

    /// Loads, plans and writes a group once.
    async fn attempt(&self, lane: &Lane, group: &mut Group, learned: &mut Needs) -> Result<(), Failure> {
        let mut decided = self.decide(lane, group, Some(learned)).await?;
        let written = self.write(lane, &mut decided).await;
        self.conclude(lane, decided, written).await
    }

    /// Sends what a group leaves.
    async fn write(&self, lane: &Lane, decided: &mut Decided) -> crate::error::Result<Written> {
        let Some(call) = &decided.call else { return Ok(Written::Later) };
        match send(&lane.db, &self.wakes, &lane.space, call, decided.stroke.take()).await {
            Err(trouble) if decided.idle && trouble.is_lost() => Err(Trouble::Undone),
            said => said,
        }
    }

    /// Plans a group, on what is remembered, or on what is loaded, with what earlier tries have learned to load.
    async fn decide(
        &self,
        lane: &Lane,
        group: &mut Group,
        mut learned: Option<&mut Needs>,
    ) -> crate::error::Result<Decided> {
        let (mut needs, asked) = self.first_needs(group);
        let independent = self.leave_out_dependents(&lane.namespace, &mut needs);
        let memory = learned.is_none().then_some(&*lane.memory);
        let terms = Terms { clock: &self.clock, me: &self.me, asked, independent, memory };
        let mut snapshot = Snapshot::new(Scene { db: &lane.db, space: &lane.space }, &terms);
        if let Some(learned) = &mut learned {
            learned.merge(needs);
            needs = learned.clone();
        }
        snapshot.load(needs).await?;
        if independent && !snapshot.independent {
            let mut dependent = self.dependent.lock().unwrap_or_else(PoisonError::into_inner);
            dependent.insert(lane.namespace.clone());
        }
        let repeatable = group.iter().all(|job| job.is_repeatable());
        let (mut accepted, mut marks) = (Vec::new(), (!self.wakes.is_alone()).then(Vec::new));
        for job in group {
            let effects = self.plan(job, &mut snapshot, learned.as_deref_mut()).await?;
            if !effects.is_empty() {
                if let Some(marks) = &mut marks {
                    marks.extend(effects.marks(&lane.namespace));
                }
                snapshot.rows.accept(&effects);
                accepted.push(effects);
            }
        }
        if !accepted.is_empty() {
            self.registry.enter(&self.db, &lane.namespace).await?;
        }
        let (wake, version) =
            (self.wakes.message(marks.as_mut(), accepted.is_empty()), self.strokes.version());
        let mut memory = memory.map(|memory| memory.lock().unwrap_or_else(PoisonError::into_inner));
        let mut changed = Changed::default();
        for effects in accepted {
            if let Some(memory) = &mut memory {
                memory.accept(&effects);
            }
            changed.add(*effects);
        }
        let writing = changed.writing(&lane.space, version);
        if let Some(memory) = &mut memory {
            match &writing {
                Ok(writing) => {
                    memory.sent(writing.touched(), version);
                }
                Err(_) => memory.forget_after(&BTreeSet::new()),
            }
        }
        let writing = writing?;
        let stroke = (!repeatable && !writing.is_empty())
            .then(|| self.strokes.stroke(&self.db, &lane.space, &lane.namespace, version));
        let call = call(&snapshot, &writing, &wake, stroke.as_ref());
        Ok(Decided { call, idle: writing.is_empty(), stroke, marks, guessed: snapshot.guessed })
    }

    /// Sees to it that everyone knows what was written, and forgets what is remembered if it was not.
    async fn conclude(
        &self,
        lane: &Lane,
        decided: Decided,
        written: crate::error::Result<Written>,
    ) -> Result<(), Failure> {
        match written {
            Ok(Written::Later) => {}
            // What remembers it may be older than what is there now.
            Ok(Written::First) => {
                let entered = self.registry.enter_anew(&self.db, &lane.namespace).await;
                entered.map_err(|trouble| Failure { trouble, committing: true })?;
            }
            Err(trouble) => {
                let mut memory = lane.memory.lock().unwrap_or_else(PoisonError::into_inner);
                memory.forget_after(&decided.guessed);
                return Err(Failure { trouble, committing: true });
            }
        }
        match decided.marks {
            Some(marks) => self.wakes.hub.wake(marks),
            None => self.wakes.hub.wake_all(),
        }
        Ok(())
    }

    /// Leaves out the dependents of tasks where it was never seen that any task depends on another; answers whether it did.
    fn leave_out_dependents(&self, namespace: &str, needs: &mut Needs) -> bool {
        if self.dependent.lock().unwrap_or_else(PoisonError::into_inner).contains(namespace) {
            return false;
        }
        let before = needs.task_sets.len();
        needs.task_sets.retain(|select| !select.set.is_of_dependencies());
        needs.task_sets.len() < before
    }

    /// Lets a request decide on what those before it left, and loads what is missing.
    async fn plan(
        &self,
        job: &mut Box<dyn Job>,
        snapshot: &mut Snapshot<'_>,
        mut learned: Option<&mut Needs>,
    ) -> crate::error::Result<Box<Effects>> {
        loop {
            let context = Context { now: snapshot.now, replica: &self.replica };
            let sight = Sight { context, skipped: snapshot.skipped };
            match job.step(&snapshot.rows, &sight) {
                Progress::Need(needs) => {
                    if let Some(learned) = &mut learned {
                        learned.merge(Needs::clone(&needs));
                    }
                    snapshot.load(*needs).await?;
                }
                Progress::Done(effects) => return Ok(effects),
            }
        }
    }

    /// What the requests need before anything is known, and how many ready tasks they ask for together.
    fn first_needs(&self, group: &mut Group) -> (Needs, HashMap<TaskSet, usize>) {
        let now = self.clock.from_store(self.db.about_now());
        let sight = Sight { context: Context { now, replica: &self.replica }, skipped: false };
        let (mut all, mut asked) = (Needs::default(), HashMap::new());
        for job in group {
            if let Progress::Need(needs) = job.step(&NOTHING, &sight) {
                for select in
                    needs.task_sets.iter().filter(|select| matches!(select.set, TaskSet::Ready { .. }))
                {
                    *asked.entry(select.set.clone()).or_default() += select.limit;
                }
                all.merge(*needs);
            }
        }
        (all, asked)
    }
}

/// Requests are written together in the order in which they came, so many at most, except those that must be alone.
fn groups(jobs: Group, most: usize) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut open = false;
    for job in jobs {
        let alone = job.is_alone();
        match groups.last_mut() {
            Some(group) if open && !alone && group.len() < most => group.push(job),
            _ => groups.push(vec![job]),
        }
        open = !alone;
    }
    groups
}

fn fail_all(group: Group, error: &Error) {
    for job in group {
        job.fail(error.clone());
    }
}

/// How long to wait before the next try: longer each time, and not as long as others do.
pub(crate) fn pause(tries: u32, lost: bool) -> Duration {
    let (first, most) = if lost { (50_000, 1_000_000) } else { (200, 20_000) };
    let most = (first << tries.min(10)).min(most);
    // The clock's last digits are as good as a die.
    let die =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    Duration::from_micros(most / 2 + u64::from(die) % (most / 2 + 1))
}
