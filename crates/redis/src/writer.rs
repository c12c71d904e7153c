//! Lanes: what a namespace's callers ask for at the same time is loaded, planned and written together, in the order in
//! which it came. A lane is there while someone waits in it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use statehold_core::plan::{Context, Effects, Needs, Rows, Step, TaskSet};
use statehold_core::{Clock, Error, Result};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::commit::{Changed, Written, commit};
use crate::connection::Connection;
use crate::error::{Trouble, unknown};
use crate::namespaces::Registry;
use crate::snapshot::{Scene, Snapshot, Terms};
use crate::space::Space;
use crate::wakes::Wakes;

/// How many requests are written together at most.
const MOST: usize = 256;

/// How often a group tries together before each half of it has better luck alone.
const TRIES: u32 = 3;

/// How long one request is tried again and again while others are faster or the server is away.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a request waits for a server that cannot be reached.
const OUTAGE: Duration = Duration::from_secs(3);

/// A request in a lane.
pub(crate) trait Job: Send {
    /// Whether it reads what only the store knows, so that it is written with nobody else's.
    fn is_alone(&self) -> bool;
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
}

impl<T, P> Job for Planned<T, P>
where
    T: Send,
    P: Fn(&Rows, &Sight<'_>) -> Step<T> + Send,
{
    fn is_alone(&self) -> bool {
        self.alone
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
    lanes: Arc<Mutex<HashMap<String, Group>>>,
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
    /// Namespaces in which tasks depend on others.
    pub(crate) dependent: Mutex<HashSet<String>>,
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

impl Writer {
    pub(crate) fn new(desk: Desk) -> Self {
        Self { desk: Arc::new(desk), lanes: Arc::default() }
    }

    /// What every lane works with.
    pub(crate) fn desk(&self) -> &Desk {
        &self.desk
    }

    /// Puts a request into the lane of its namespace, which begins to move if it stood empty. Lanes go on when the caller
    /// is gone.
    pub(crate) fn send(&self, namespace: String, job: Box<dyn Job>) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get_mut(&namespace) {
            lane.push(job);
            return;
        }
        lanes.insert(namespace.clone(), vec![job]);
        tokio::spawn(run(Arc::clone(&self.desk), Arc::clone(&self.lanes), namespace));
    }
}

/// Moves a lane until nobody waits in it.
async fn run(desk: Arc<Desk>, lanes: Arc<Mutex<HashMap<String, Group>>>, namespace: String) {
    let space = Space::new(&desk.prefix, &namespace);
    loop {
        let jobs = {
            let mut lanes = lanes.lock().unwrap_or_else(PoisonError::into_inner);
            match lanes.get_mut(&namespace) {
                Some(lane) if !lane.is_empty() => std::mem::take(lane),
                _ => {
                    lanes.remove(&namespace);
                    return;
                }
            }
        };
        for group in groups(jobs) {
            desk.settle(&namespace, &space, group).await;
        }
    }
}

impl Desk {
    /// Writes a group. If that fails, each half of it is tried anew, so that none suffers for another.
    async fn settle(&self, namespace: &str, space: &Space, group: Group) {
        let mut waiting = vec![group];
        while let Some(mut group) = waiting.pop() {
            match self.try_to_write(namespace, space, &mut group).await {
                Ok(()) => group.into_iter().for_each(Job::answer),
                Err(failure) if failure.committing && failure.trouble.is_lost() => {
                    fail_all(group, &unknown(failure.trouble));
                }
                Err(failure) if group.len() == 1 || failure.trouble.is_lost() => {
                    fail_all(group, &failure.trouble.into_error());
                }
                Err(_) => {
                    let half = group.split_off(group.len() / 2);
                    waiting.extend([half, group]);
                }
            }
        }
    }

    /// Tries to write a group until it succeeds or has lost too often.
    async fn try_to_write(&self, namespace: &str, space: &Space, group: &mut Group) -> Result<(), Failure> {
        let began = Instant::now();
        let (mut tries, mut learned) = (0, Needs::default());
        loop {
            let Err(failure) = self.attempt(namespace, space, group, &mut learned).await else {
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
    async fn attempt(
        &self,
        namespace: &str,
        space: &Space,
        group: &mut Group,
        learned: &mut Needs,
    ) -> Result<(), Failure> {
        let (mut needs, asked) = self.first_needs(group);
        let independent = self.leave_out_dependents(namespace, &mut needs);
        let terms = Terms { clock: &self.clock, me: &self.me, asked, independent };
        let mut snapshot = Snapshot::new(Scene { db: &self.db, space }, &terms);
        learned.merge(needs);
        snapshot.load(learned.clone()).await?;
        if independent && !snapshot.independent {
            self.dependent.lock().unwrap_or_else(PoisonError::into_inner).insert(namespace.to_owned());
        }
        let (mut changed, mut marks) = (Changed::default(), Vec::new());
        for job in group {
            let effects = self.plan(job, &mut snapshot, learned).await?;
            if !effects.is_empty() {
                marks.extend(effects.marks(namespace));
                snapshot.rows.accept(&effects);
                changed.add(*effects);
            }
        }
        let writing = changed.writing(space)?;
        if !writing.is_empty() {
            self.registry.enter(&self.db, namespace).await?;
        }
        marks.sort_unstable();
        marks.dedup();
        let written = commit(&snapshot, writing, self.wakes.message(&marks)).await;
        if written.map_err(|trouble| Failure { trouble, committing: true })? == Written::First {
            // What remembers it may be older than what is there now.
            self.registry.enter_anew(&self.db, namespace).await?;
        }
        self.wakes.hub.wake(marks);
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
        learned: &mut Needs,
    ) -> crate::error::Result<Box<Effects>> {
        loop {
            let context = Context { now: snapshot.now, replica: &self.replica };
            let sight = Sight { context, skipped: snapshot.skipped };
            match job.step(&snapshot.rows, &sight) {
                Progress::Need(needs) => {
                    learned.merge(Needs::clone(&needs));
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
        let (rows, mut all, mut asked) = (Rows::default(), Needs::default(), HashMap::new());
        for job in group {
            if let Progress::Need(needs) = job.step(&rows, &sight) {
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

/// Requests are written together in the order in which they came, except those that must be alone.
fn groups(jobs: Group) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut open = false;
    for job in jobs {
        let alone = job.is_alone();
        match groups.last_mut() {
            Some(group) if open && !alone && group.len() < MOST => group.push(job),
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
fn pause(tries: u32, lost: bool) -> Duration {
    let (first, most) = if lost { (50_000, 1_000_000) } else { (200, 20_000) };
    let most = (first << tries.min(10)).min(most);
    // The clock's last digits are as good as a die.
    let die =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    Duration::from_micros(most / 2 + u64::from(die) % (most / 2 + 1))
}
