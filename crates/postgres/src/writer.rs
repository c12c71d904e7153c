//! The one task of this process that writes. It takes every request that waits, decides and writes those of a namespace
//! in one transaction, commits, and then answers all of them.

use std::collections::{BTreeSet, HashMap};
use std::mem::take;
use std::time::Duration;

use statehold_core::model::TaskId;
use statehold_core::plan::{Context, Effects, Needs, Rows, Step, TaskSelect, TaskSet};
use statehold_core::wake::Mark;
use statehold_core::{Error, ErrorKind, Result};
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;

use crate::clock::ServerClock;
use crate::config::Config;
use crate::connection::{Connection, Hold, connect, sql};
use crate::error::Trouble;
use crate::known::{Caution, Known};
use crate::namespaces::Namespaces;
use crate::rows::read_first;
use crate::sets;
use crate::streams::{Horizon, Withheld};
use crate::transaction::{Scene, Transaction};
use crate::values::Cells;
use crate::wakes::Wakes;

/// How many requests share a transaction at most.
const MOST: usize = 500;

/// How often a group tries together before each request of it has better luck in a smaller one.
const TRIES: u32 = 3;

/// How long one request is tried again and again while others are in its way or the server is away.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long events are waited for that an older transaction holds back. Everyone else waits meanwhile, so it is short.
const OLDER: Duration = Duration::from_millis(300);

/// The writer finds everything by a key. While tables are young the server knows nothing of their size, and would keep
/// plans that read them whole. Nor are plans made anew for each call: its statements have many parameters.
const BY_KEY: &[&str] = &[
    "enable_seqscan = off",
    "enable_hashjoin = off",
    "enable_mergejoin = off",
    "enable_bitmapscan = off",
    "enable_material = off",
    "plan_cache_mode = force_generic_plan",
];

/// After so many transactions, and then after twice as many, plans are made anew: they remember how small tables were.
/// The same so many transactions after a statement that was new.
const REPLAN: u64 = 64;

/// Something to do within a transaction.
pub(crate) trait Job: Send {
    /// Where it happens.
    fn namespace(&self) -> &str;
    /// Whether it reads what only the store knows, so that it shares its transaction with nobody.
    fn is_alone(&self) -> bool;
    /// Whether it looks for what is not known by its key.
    fn looks_around(&self) -> bool;
    /// The queues whose switch it sets.
    fn switches(&self) -> &[String];
    /// Goes on with it as far as the rows reach.
    fn step(&mut self, rows: &Rows, sight: &Sight<'_>) -> Progress;
    /// Answers what was decided, once it is committed.
    fn answer(self: Box<Self>);
    /// Answers that it came to nothing.
    fn fail(self: Box<Self>, error: Error);
}

/// What a request sees beside the rows.
pub(crate) struct Sight<'a> {
    pub(crate) context: Context<'a>,
    /// Ready tasks were left out because another transaction holds them.
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
    pub(crate) namespace: String,
    pub(crate) plan: P,
    pub(crate) reply: oneshot::Sender<Result<T>>,
    pub(crate) decided: Option<Result<T>>,
    /// Whether it is for nothing once its caller has gone.
    pub(crate) gives: bool,
    pub(crate) alone: bool,
    pub(crate) switches: Vec<String>,
}

impl<T, P> Job for Planned<T, P>
where
    T: Send,
    P: Fn(&Rows, &Sight<'_>) -> Step<T> + Send,
{
    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn is_alone(&self) -> bool {
        self.alone
    }

    fn looks_around(&self) -> bool {
        self.gives || self.alone
    }

    fn switches(&self) -> &[String] {
        &self.switches
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

/// The writer, from outside. It ends when this is dropped and all that waited is answered.
pub(crate) struct Writer(mpsc::UnboundedSender<Box<dyn Job>>);

impl Writer {
    /// Starts the task, with a connection to begin with.
    pub(crate) fn start(
        config: Config,
        client: Client,
        clock: ServerClock,
        namespaces: Namespaces,
        wakes: Wakes,
    ) -> Self {
        let (sender, inbox) = mpsc::unbounded_channel();
        let desk = Desk {
            config,
            clock,
            namespaces,
            wakes,
            client: Some(client),
            connection: None,
            transactions: 0,
            statements: 0,
            replan_at: None,
            known: Known::default(),
            caution: Caution::default(),
        };
        tokio::spawn(desk.run(inbox));
        Self(sender)
    }

    /// Hands a request to the writer.
    pub(crate) fn send(&self, job: Box<dyn Job>) {
        // If the task has ended, dropping the job tells its caller.
        let _ = self.0.send(job);
    }
}

/// The writer, in its task.
struct Desk {
    config: Config,
    namespaces: Namespaces,
    wakes: Wakes,
    /// What the store was opened by, until it is used.
    client: Option<Client>,
    connection: Option<Connection>,
    clock: ServerClock,
    /// How many transactions the connection has seen.
    transactions: u64,
    /// How many statements it knew by then, and when plans are to be made anew for those that came since.
    statements: usize,
    replan_at: Option<u64>,
    known: Known,
    caution: Caution,
}

/// What a group learned from tries that came to nothing.
#[derive(Default)]
struct Learned {
    /// Rows to hold from the beginning.
    needs: Needs,
    /// Sets whose tasks are to be held from the beginning.
    sets: BTreeSet<TaskSelect>,
    /// How far events can be read, if that was asked.
    horizon: Option<Horizon>,
}

/// Why a try came to nothing.
struct Failure {
    trouble: Trouble,
    /// The commit was under way, so that nobody knows whether it was done.
    committing: bool,
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        Self { trouble, committing: false }
    }
}

impl Desk {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Box<dyn Job>>) {
        let mut jobs = Vec::new();
        while inbox.recv_many(&mut jobs, MOST).await > 0 {
            let (many, jobs) = (jobs.len() > 1, take(&mut jobs));
            for group in groups(jobs) {
                self.settle(group).await;
            }
            if many {
                // They are about to ask again, and then go together.
                yield_now().await;
            }
        }
    }

    /// Commits a group. If that fails, each half of it is tried anew, so that none suffers for another.
    async fn settle(&mut self, group: Group) {
        let mut waiting = vec![group];
        while let Some(mut group) = waiting.pop() {
            match self.commit(&mut group).await {
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

    /// Tries to commit a group until it succeeds or has lost too often.
    async fn commit(&mut self, group: &mut Group) -> std::result::Result<(), Failure> {
        let began = Instant::now();
        let (mut tries, mut learned) = (0, Learned::default());
        loop {
            let failure = match self.attempt(group, &mut learned, began.elapsed() < OLDER, tries).await {
                Ok(marks) => {
                    self.wakes.wake(marks);
                    return Ok(());
                }
                Err(failure) => failure,
            };
            tries += 1;
            let lost = failure.trouble.is_lost();
            if lost {
                self.connection = None;
            } else if let Some(connection) = &self.connection
                && connection.run(sql!("rollback"), Vec::new()).await.is_err()
            {
                self.connection = None;
            }
            let again = (lost && !failure.committing) || failure.trouble.is_race();
            let alone = group.len() == 1 || lost;
            if !again || began.elapsed() > PATIENCE || (tries >= TRIES && !alone) {
                return Err(failure);
            }
            sleep(pause(tries, lost)).await;
        }
    }

    async fn attempt(
        &mut self,
        group: &mut Group,
        learned: &mut Learned,
        patient: bool,
        tries: u32,
    ) -> std::result::Result<Vec<Mark>, Failure> {
        if self.connection.as_ref().is_none_or(Connection::is_closed) {
            let connection = match self.client.take().filter(|client| !client.is_closed()) {
                Some(client) => Connection::of(client, &self.config).await?,
                None => connect(&self.config, drop).await?,
            };
            connection.set(BY_KEY).await?;
            let clock = connection.query(sql!("clock"), Vec::new()).await?;
            self.clock.hear(read_first(&clock, Cells::time)?.unwrap_or_default());
            self.connection = Some(connection);
            (self.transactions, self.statements, self.replan_at) = (0, 0, None);
            // Another server may have taken over, with fewer transactions and the same numbers.
            self.known = Known::default();
        }
        self.transactions += 1;
        let Some(db) = &self.connection else { return Err(Trouble::Again.into()) };
        let (now, statements) = (self.transactions, db.statements());
        if self.statements != statements {
            self.statements = statements;
            self.replan_at.get_or_insert(now + REPLAN);
        }
        if (now >= REPLAN && now.is_power_of_two()) || self.replan_at.is_some_and(|at| now >= at) {
            self.replan_at = None;
            db.replan().await?;
        }
        let namespace = group.first().map(|job| job.namespace().to_owned()).unwrap_or_default();
        let ns = self.namespaces.number(db, &namespace).await?;
        // Those who read what only the store knows may have been kept from it by others who have nothing to do with it.
        if tries > 0 && group.iter().any(|job| job.is_alone()) {
            learned.horizon = Some(Horizon::look(db, ns, learned.horizon).await?);
        }
        let mut scene = Scene {
            db,
            clock: &self.clock,
            schema: &self.config.schema,
            namespace: &namespace,
            ns,
            patience: Withheld::within(patient, learned.horizon),
            bound: learned.horizon.map(|horizon| horizon.below),
            switched: group.iter().flat_map(|job| job.switches()).cloned().collect(),
            asked: HashMap::new(),
        };
        if tries == 0 && ns != 0 && !db.is_pooled() && self.caution.dares() {
            let foreseen = foresee(group, &scene, &self.known, &self.config.replica);
            if let Some((transaction, marks)) = foreseen {
                match transaction.commit_at_once(&mut self.known).await {
                    Ok(()) => {
                        self.caution.was_right();
                        return Ok(marks);
                    }
                    Err(trouble) if trouble.is_lost() => return Err(Failure { trouble, committing: true }),
                    Err(_) => self.caution.was_wrong(),
                }
            }
        }
        let context = Context { now: self.clock.guess(), replica: &self.config.replica };
        let needs = first_needs(group, context, &mut scene.asked);
        learn_members(&scene, learned).await?;
        let mut first = learned.needs.clone();
        first.merge(needs);
        let mut transaction = Transaction::begin(&scene, first).await?;
        gather(group, &mut transaction, learned, &self.config.replica).await?;
        let marks = plan_all(group, &mut transaction, learned, &self.config.replica).await?;
        let unheld = transaction.unheld();
        if !unheld.is_empty() {
            learned.needs.tasks.extend(unheld);
            return Err(Trouble::Again.into());
        }
        let number = transaction.number().await?;
        let committed = transaction.commit(number, &mut self.known).await;
        committed.map_err(|trouble| Failure { trouble, committing: true })?;
        self.namespaces.note(&namespace, number);
        Ok(marks)
    }
}

/// Loads what the requests need as long as each is looked at alone, for all of them together.
async fn gather(
    group: &mut Group,
    transaction: &mut Transaction<'_>,
    learned: &mut Learned,
    replica: &str,
) -> crate::error::Result<()> {
    loop {
        let context = Context { now: transaction.now, replica };
        let sight = Sight { context, skipped: transaction.skipped };
        let mut missing = Needs::default();
        for job in group.iter_mut() {
            if let Progress::Need(needs) = job.step(&transaction.rows, &sight) {
                missing.merge(*needs);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        learned.note(&missing);
        transaction.load(missing, Hold::Now).await?;
    }
}

/// Plans each request on what those before it left, and loads what is missing, if it can be had at once.
async fn plan_all(
    group: &mut Group,
    transaction: &mut Transaction<'_>,
    learned: &mut Learned,
    replica: &str,
) -> crate::error::Result<Vec<Mark>> {
    let mut marks = Vec::new();
    for job in group {
        loop {
            let context = Context { now: transaction.now, replica };
            let skipped = transaction.skipped;
            match job.step(&transaction.rows, &Sight { context, skipped }) {
                Progress::Need(needs) => {
                    learned.note(&needs);
                    transaction.load(*needs, Hold::Now).await?;
                }
                Progress::Done(effects) => {
                    marks.extend(transaction.accept(*effects));
                    break;
                }
            }
        }
    }
    Ok(marks)
}

/// Decides requests by what is known here of the rows they need, if that is enough.
fn foresee<'a>(
    group: &mut Group,
    scene: &'a Scene<'a>,
    known: &Known,
    replica: &str,
) -> Option<(Transaction<'a>, Vec<Mark>)> {
    if group.iter().any(|job| job.looks_around()) {
        return None;
    }
    let (mut transaction, mut marks) = (Transaction::foreseen(scene), Vec::new());
    let sight = Sight { context: Context { now: transaction.now, replica }, skipped: false };
    for job in group {
        loop {
            match job.step(&transaction.rows, &sight) {
                Progress::Need(needs) => transaction.recall(*needs, known)?,
                Progress::Done(effects) => {
                    marks.extend(transaction.accept(*effects));
                    break;
                }
            }
        }
    }
    transaction.holds_what_it_read().then_some((transaction, marks))
}

impl Learned {
    /// Remembers what a plan asked for beyond its first needs.
    fn note(&mut self, needs: &Needs) {
        let mut rows = needs.clone();
        self.sets.append(&mut rows.task_sets);
        self.needs.merge(Needs {
            task_sets: BTreeSet::new(),
            delivery_sets: BTreeSet::new(),
            cuts: BTreeSet::new(),
            unread: BTreeSet::new(),
            events_at: BTreeSet::new(),
            latest: BTreeSet::new(),
            polled: BTreeSet::new(),
            overgrown: BTreeSet::new(),
            expired: BTreeSet::new(),
            idempotency_keys: BTreeSet::new(),
            child_keys: BTreeSet::new(),
            ..rows
        });
    }
}

/// Looks who is in the sets that were asked for in vain, so that they are held from the beginning, in order.
async fn learn_members(scene: &Scene<'_>, learned: &mut Learned) -> crate::error::Result<()> {
    let sets = std::mem::take(&mut learned.sets).into_iter();
    let sets = sets.filter(|select| !sets::leaves_out(&select.set) && !sets::is_loose(&select.set));
    let now = scene.clock.guess();
    for seek in sets::seek(scene.ns, sets.map(|select| (select.set, select.limit)).collect(), now, Hold::Not)
    {
        let found = scene.db.query(seek.call.sql, seek.call.params).await?;
        for (_, members) in seek.sets.read(&found, now)? {
            learned.needs.tasks.extend(members.rows.iter().map(|row| row.task.id));
        }
    }
    Ok(())
}

/// What the requests need before anything is known, and of how many tasks of each set they ask together.
fn first_needs(group: &mut Group, context: Context<'_>, asked: &mut HashMap<TaskSet, usize>) -> Needs {
    let (sight, rows, mut all) = (Sight { context, skipped: false }, Rows::default(), Needs::default());
    for job in group {
        if let Progress::Need(needs) = job.step(&rows, &sight) {
            for select in &needs.task_sets {
                *asked.entry(select.set.clone()).or_default() += select.limit;
            }
            all.merge(*needs);
        }
    }
    asked.retain(|set, _| matches!(set, TaskSet::Ready { .. }));
    all
}

/// Requests of one namespace share a transaction, in the order in which they came.
fn groups(jobs: Group) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut open: HashMap<String, usize> = HashMap::new();
    for job in jobs {
        let namespace = job.namespace().to_owned();
        match open.get(&namespace) {
            Some(place) if !job.is_alone() => groups[*place].push(job),
            _ => {
                if job.is_alone() {
                    open.remove(&namespace);
                } else {
                    open.insert(namespace, groups.len());
                }
                groups.push(vec![job]);
            }
        }
    }
    groups
}

fn fail_all(group: Group, error: &Error) {
    for job in group {
        job.fail(error.clone());
    }
}

fn unknown(trouble: Trouble) -> Error {
    let message = "the connection was lost while the commit was under way; whether it was done is not known";
    let error =
        Error::new(ErrorKind::Timeout, message).hint("repeat it with the same key: it is then done once");
    match trouble {
        Trouble::Database(problem) => error.caused_by(problem),
        Trouble::Silence | Trouble::Ours(_) | Trouble::Again => error,
    }
}

/// How long to wait before the next try: longer each time, and not as long as others do.
fn pause(tries: u32, lost: bool) -> Duration {
    let most = if lost { 500 } else { 2 << tries.min(5) };
    let chance = TaskId::generate().0.as_u128() % 1000;
    Duration::from_micros(most * u64::try_from(chance).unwrap_or(500))
}
