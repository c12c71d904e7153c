//! Those who write: each takes its share of the requests that wait, decides and writes those of a namespace in one
//! transaction, commits, and then answers all of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{OptionFuture, join, join_all};
use statehold_core::call::{Claim, Claimed};
use statehold_core::model::TaskId;
use statehold_core::plan::Context;
use statehold_core::wake::Mark;
use statehold_core::{Error, ErrorKind};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};
use tokio_postgres::{Client, Row};

use crate::absent::Luck;
use crate::claims;
use crate::clock::ServerClock;
use crate::config::Config;
use crate::connection::{BY_KEY, Call, Connection, connect, sql};
use crate::deciding::{Learned, first_needs, foresee, gather, learn_members, plan_all};
use crate::error::Trouble;
use crate::inbox::Inbox;
use crate::job::{Group, Job};
use crate::known::{Caution, Known};
use crate::namespaces::{Era, Namespaces};
use crate::rows::read_first;
use crate::streams::{Horizon, Withheld};
use crate::strokes::{Stroke, Strokes};
use crate::transaction::{Scene, Transaction};
use crate::values::Cells;
use crate::wakes::Wakes;

/// How often a group tries together before each request of it has better luck in a smaller one.
const TRIES: u32 = 3;

/// How long one request is tried again and again while others are in its way.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long requests wait for a server that cannot be reached. Once it has been away for so long, they fail at once.
const OUTAGE: Duration = Duration::from_secs(3);

/// How long events are waited for that an older transaction holds back. Everyone else waits meanwhile, so it is short.
const OLDER: Duration = Duration::from_millis(300);

/// After so many transactions, and then after twice as many, plans are made anew: they remember how small tables were.
/// The same so many transactions after a statement that was new.
const REPLAN: u64 = 64;

/// The writer, from outside. It ends when this is dropped and all that waited is answered.
pub(crate) struct Writer(Arc<Desk>);

impl Writer {
    /// Starts the tasks, with a connection to begin with.
    pub(crate) fn start(
        config: Config,
        client: Client,
        clock: ServerClock,
        namespaces: Namespaces,
        wakes: Wakes,
    ) -> Self {
        let inbox = Inbox::new(config.writers);
        let (known, caution, luck, away) = Default::default();
        let desk = Arc::new(Desk { config, namespaces, wakes, clock, inbox, known, caution, luck, away });
        let mut client = Some(client);
        for number in 0..desk.config.writers {
            let pen = Pen {
                desk: Arc::clone(&desk),
                number,
                client: client.take(),
                connection: None,
                strokes: Arc::default(),
                transactions: 0,
                statements: 0,
                replan_at: None,
            };
            tokio::spawn(pen.run());
        }
        Self(desk)
    }

    /// Hands a request to the writer.
    pub(crate) fn send(&self, job: Box<dyn Job>) {
        self.0.inbox.send(job);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.inbox.close();
    }
}

/// What all who write share.
pub(crate) struct Desk {
    pub(crate) config: Config,
    namespaces: Namespaces,
    wakes: Wakes,
    clock: ServerClock,
    pub(crate) inbox: Inbox,
    pub(crate) known: Mutex<Known>,
    caution: Mutex<Caution>,
    pub(crate) luck: Mutex<Luck>,
    /// Since when the server cannot be reached.
    away: Mutex<Option<Instant>>,
}

impl Desk {
    /// Whether the server has been away for too long to wait for it.
    fn is_cut_off(&self) -> bool {
        lock(&self.away).is_some_and(|since| since.elapsed() > OUTAGE)
    }
}

/// One who writes, in its task, on a connection of its own. While one waits for the server, another decides.
struct Pen {
    desk: Arc<Desk>,
    number: usize,
    /// What the store was opened by, until it is used.
    client: Option<Client>,
    connection: Option<Connection>,
    strokes: Arc<Strokes>,
    /// How many transactions the connection has seen.
    transactions: u64,
    /// How many statements it knew by then, and when plans are to be made anew for those that came since.
    statements: usize,
    replan_at: Option<u64>,
}

/// Why a try came to nothing.
struct Failure {
    trouble: Trouble,
    /// The commit was under way, so that it may have been done.
    sent: Option<Sent>,
}

/// What was to be committed.
struct Sent {
    /// Tells what became of it, unless those who asked for it can repeat it.
    stroke: Option<Stroke>,
    /// Whom it wakes.
    marks: Vec<Mark>,
}

/// Requests that were decided here, sent, and not answered.
enum Unanswered {
    /// Together.
    Written(Group, Sent),
    /// Claims from a queue.
    Claimed(Group, String, Stroke),
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        Self { trouble, sent: None }
    }
}

impl Pen {
    async fn run(mut self) {
        while let Some(jobs) = self.desk.clone().inbox.take(self.number).await {
            let many = jobs.len() > 1;
            for group in groups(jobs) {
                let rest = self.write_at_once(group).await;
                if !rest.is_empty() {
                    self.settle(rest).await;
                }
            }
            self.tidy_up().await;
            self.desk.inbox.done(self.number);
            if many {
                // They are about to ask again, and then go together.
                yield_now().await;
            }
        }
    }

    /// Writes what can be decided by what is known here and what plain claims take, a statement each; answers the requests
    /// that are left.
    async fn write_at_once(&mut self, group: Group) -> Group {
        let (desk, pen, count) = (Arc::clone(&self.desk), self.number, group.len());
        let strokes = Arc::clone(&self.strokes);
        let Some(namespace) = group.first().map(|job| job.namespace().to_owned()) else { return group };
        let (db, ns) = match self.begin(&namespace).await {
            Ok(begun) => begun,
            Err(trouble) if trouble.is_lost() || trouble.is_race() => return group,
            Err(trouble) => {
                fail_all(group, &trouble.into_error());
                return Group::new();
            }
        };
        let scene = Scene::of(db, &desk, &namespace, ns);
        let era = desk.namespaces.era(&namespace, ns).filter(|_| !db.is_pooled());
        let (claims, group) = if era.is_some() { claims::sort(group) } else { (BTreeMap::new(), group) };
        let dares = era.is_some() && lock(&desk.caution).dares();
        let (transaction, marks, mut sorted) = foresee(group, &scene, &desk, pen, dares);
        let foreseen = take(&mut sorted.foreseen);
        let stroke = strokes.next_for(&foreseen);
        let (claiming, writing) = era
            .map(|era| {
                let claim = |(queue, jobs)| claim(&scene, queue, jobs, (era, strokes.next()), &desk);
                let write = || transaction.commit_at_once(era, stroke, &desk.known);
                (join_all(claims.into_iter().map(claim)), (!foreseen.is_empty()).then(write))
            })
            .unzip();
        let (claimed, written) =
            join(OptionFuture::from(claiming), OptionFuture::from(writing.flatten())).await;
        let mut unanswered = Vec::new();
        match written {
            None => {}
            Some(Ok(())) => {
                lock(&desk.caution).was_right();
                lock(&desk.luck).note(transaction.absent(), true);
                foreseen.into_iter().for_each(Job::answer);
                desk.wakes.wake(marks);
            }
            Some(Err(trouble)) if trouble.is_lost() => {
                unanswered.push((Unanswered::Written(foreseen, Sent { stroke, marks }), trouble));
            }
            Some(Err(_)) => {
                // If something was guessed, that is the likelier reason.
                if transaction.absent().is_empty() {
                    lock(&desk.caution).was_wrong();
                } else {
                    lock(&desk.luck).note(transaction.absent(), false);
                }
                sorted.rest.extend(foreseen);
            }
        }
        let mut short = Group::new();
        for claimed in claimed.into_iter().flatten() {
            match claimed {
                Err(Unclaimed { jobs, queue, stroke, trouble }) if trouble.is_lost() => {
                    unanswered.push((Unanswered::Claimed(jobs, queue, stroke), trouble));
                }
                Ok(jobs) | Err(Unclaimed { jobs, .. }) => short.extend(jobs),
            }
        }
        for (unanswered, trouble) in unanswered {
            self.connection = None;
            short.extend(self.find_out(unanswered, trouble, &namespace).await);
        }
        for job in short {
            if job.looks_around() {
                sorted.look_around(job, &desk.inbox, pen, &namespace);
            } else {
                sorted.rest.push(job);
            }
        }
        if !sorted.aside.is_empty() {
            desk.inbox.put_aside(sorted.aside, count);
        }
        sorted.rest
    }

    /// Commits a group. If that fails, each half of it is tried anew, so that none suffers for another.
    async fn settle(&mut self, group: Group) {
        let mut waiting = vec![group];
        while let Some(mut group) = waiting.pop() {
            match self.commit(&mut group).await {
                Ok(()) => group.into_iter().for_each(Job::answer),
                Err(failure) if failure.sent.is_some() && failure.trouble.is_lost() => {
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
            let mut failure = match self.attempt(group, &mut learned, began.elapsed() < OLDER).await {
                Ok(marks) => {
                    self.desk.wakes.wake(marks);
                    return Ok(());
                }
                Err(failure) => failure,
            };
            tries += 1;
            learned.withheld |= matches!(failure.trouble, Trouble::Withheld);
            let lost = failure.trouble.is_lost();
            if lost {
                self.connection = None;
                if let Some(Sent { stroke: Some(stroke), marks }) = &mut failure.sent {
                    let namespace = group.first().map(|job| job.namespace().to_owned()).unwrap_or_default();
                    match self.fate(*stroke, &namespace).await {
                        Ok(None) => failure.sent = None,
                        Ok(Some(_)) => {
                            self.desk.wakes.wake(take(marks));
                            return Ok(());
                        }
                        Err(_) => return Err(failure),
                    }
                }
            } else if let Some(connection) = &self.connection
                && connection.run(sql!("rollback"), Vec::new()).await.is_err()
            {
                self.connection = None;
            }
            let again =
                (lost && failure.sent.is_none() && !self.desk.is_cut_off()) || failure.trouble.is_race();
            let alone = group.len() == 1 || lost;
            if !again || began.elapsed() > PATIENCE || (tries >= TRIES && !alone) {
                return Err(failure);
            }
            sleep(pause(tries, lost)).await;
        }
    }

    /// Finds out what became of what was not answered, and answers it if it was done; gives back what came to nothing.
    async fn find_out(&mut self, unanswered: Unanswered, trouble: Trouble, namespace: &str) -> Group {
        match unanswered {
            Unanswered::Written(jobs, Sent { stroke: Some(stroke), marks }) => {
                match self.fate(stroke, namespace).await {
                    Ok(None) => return jobs,
                    Ok(Some(_)) => {
                        jobs.into_iter().for_each(Job::answer);
                        self.desk.wakes.wake(marks);
                    }
                    Err(_) => fail_all(jobs, &unknown(trouble)),
                }
            }
            Unanswered::Written(jobs, Sent { stroke: None, .. }) => fail_all(jobs, &unknown(trouble)),
            Unanswered::Claimed(jobs, queue, stroke) => {
                let claim = |job: Box<dyn Job>| Some((job.claim()?.clone(), job));
                let (claims, jobs): (Vec<_>, Group) = jobs.into_iter().filter_map(claim).unzip();
                match self.given(&claims, &queue, stroke, namespace).await {
                    Ok(None) => return jobs,
                    Ok(Some(given)) => return give(jobs, given),
                    Err(_) => fail_all(jobs, &unknown(trouble)),
                }
            }
        }
        Group::new()
    }

    /// What claims from a queue got, if that was committed.
    async fn given(
        &mut self,
        claims: &[Claim],
        queue: &str,
        stroke: Stroke,
        namespace: &str,
    ) -> crate::error::Result<Option<Vec<Claimed>>> {
        let Some(ord) = self.fate(stroke, namespace).await? else { return Ok(None) };
        let ask = |ns| vec![claims::ask_what_was_given(ns, queue, claims, ord)];
        let found = self.ask(namespace, ask).await?;
        claims::share_out(claims, found.first().map(Vec::as_slice).unwrap_or_default()).map(Some)
    }

    /// By which transaction a stroke was committed; none if it was not, and never will be.
    async fn fate(&mut self, stroke: Stroke, namespace: &str) -> crate::error::Result<Option<i64>> {
        Stroke::fate(&self.ask(namespace, |_| stroke.ask()).await?)
    }

    /// Asks for what is there in any case, again if the connection is lost over it.
    async fn ask(
        &mut self,
        namespace: &str,
        calls: impl Fn(i64) -> Vec<Call>,
    ) -> crate::error::Result<Vec<Vec<Row>>> {
        let (began, mut tries) = (Instant::now(), 0);
        loop {
            let asked = match self.begin(namespace).await {
                Ok((db, ns)) => db.query_all(&calls(ns)).await,
                Err(trouble) => Err(trouble),
            };
            let trouble = match asked {
                Ok(answers) => return Ok(answers),
                Err(trouble) => trouble,
            };
            let lost = trouble.is_lost();
            if lost {
                self.connection = None;
            }
            if !(lost || trouble.is_race()) || self.desk.is_cut_off() || began.elapsed() > PATIENCE {
                return Err(trouble);
            }
            tries += 1;
            sleep(pause(tries, lost)).await;
        }
    }

    /// Removes what tells of strokes that nobody asks about any more.
    async fn tidy_up(&mut self) {
        let remains = self.strokes.remains();
        if let Some(db) = self.connection.as_ref().filter(|_| !remains.is_empty()) {
            // What stays is removed with the rest of its time.
            let _ = db.run_all(&remains).await;
        }
    }

    /// The connection, made anew if it was lost and with plans made anew if it is time, and the number of a namespace.
    async fn begin(&mut self, namespace: &str) -> crate::error::Result<(&Connection, i64)> {
        if self.connection.as_ref().is_none_or(Connection::is_closed) {
            let connected = self.connect().await;
            let mut away = lock(&self.desk.away);
            match &connected {
                Ok(_) => *away = None,
                Err(_) => drop(away.get_or_insert_with(Instant::now)),
            }
            drop(away);
            self.connection = Some(connected?);
            (self.transactions, self.statements, self.replan_at) = (0, 0, None);
            // Another server may have taken over, with fewer transactions and the same numbers.
            lock(&self.desk.known).begin_anew();
            self.desk.namespaces.begin_anew();
        }
        self.transactions += 1;
        let Some(db) = &self.connection else { return Err(Trouble::Again) };
        let (now, statements) = (self.transactions, db.statements());
        if self.statements != statements {
            self.statements = statements;
            self.replan_at.get_or_insert(now + REPLAN);
        }
        if (now >= REPLAN && now.is_power_of_two()) || self.replan_at.is_some_and(|at| now >= at) {
            self.replan_at = None;
            db.replan().await?;
        }
        Ok((db, self.desk.namespaces.number(db, namespace).await?))
    }

    async fn connect(&mut self) -> crate::error::Result<Connection> {
        let config = &self.desk.config;
        let connection = match self.client.take().filter(|client| !client.is_closed()) {
            Some(client) => Connection::of(client, config).await?,
            None => connect(config, drop).await?,
        };
        connection.set(BY_KEY).await?;
        let clock = connection.query(sql!("clock"), Vec::new()).await?;
        self.desk.clock.hear(read_first(&clock, Cells::time)?.unwrap_or_default());
        Ok(connection)
    }

    async fn attempt(
        &mut self,
        group: &mut Group,
        learned: &mut Learned,
        patient: bool,
    ) -> std::result::Result<Vec<Mark>, Failure> {
        let (desk, strokes) = (Arc::clone(&self.desk), Arc::clone(&self.strokes));
        let namespace = group.first().map(|job| job.namespace().to_owned()).unwrap_or_default();
        let (db, ns) = self.begin(&namespace).await?;
        if learned.withheld {
            learned.horizon = Some(Horizon::look(db, ns, learned.horizon).await?);
        }
        let mut scene = Scene {
            patience: Withheld::within(patient, learned.horizon),
            bound: learned.horizon.map(|horizon| horizon.below),
            switched: group.iter().flat_map(|job| job.switches()).cloned().collect(),
            ..Scene::of(db, &desk, &namespace, ns)
        };
        let replica = &desk.config.replica;
        let context = Context { now: desk.clock.guess(), replica };
        let needs = first_needs(group, context, &mut scene.asked);
        learn_members(&scene, learned).await?;
        let mut first = learned.needs.clone();
        first.merge(needs);
        let mut transaction = Transaction::begin(&scene, first).await?;
        gather(group, &mut transaction, learned, replica).await?;
        let marks = plan_all(group, &mut transaction, learned, replica).await?;
        let unheld = transaction.unheld();
        if !unheld.is_empty() {
            learned.needs.tasks.extend(unheld);
            return Err(Trouble::Again.into());
        }
        let number = transaction.number().await?;
        let stroke = if transaction.writes() { strokes.next_for(group) } else { None };
        match transaction.commit(number, stroke, &desk.known).await {
            Ok(era) => {
                desk.namespaces.note(&namespace, number, era);
                Ok(marks)
            }
            Err(trouble) => {
                let sent = transaction.writes().then_some(Sent { stroke, marks });
                Err(Failure { trouble, sent })
            }
        }
    }
}

impl<'a> Scene<'a> {
    /// Where nothing is known of what a transaction is for.
    fn of(db: &'a Connection, desk: &'a Desk, namespace: &'a str, ns: i64) -> Self {
        Self {
            db,
            clock: &desk.clock,
            schema: &desk.config.schema,
            namespace,
            ns,
            patience: Withheld::Fine,
            bound: None,
            switched: BTreeSet::new(),
            asked: HashMap::new(),
            server: lock(&desk.known).server(),
        }
    }
}

pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Claims from a queue that came to nothing, as far as is known.
struct Unclaimed {
    jobs: Group,
    queue: String,
    stroke: Stroke,
    trouble: Trouble,
}

/// Lets claims from one queue take what is there; answers those who got something, and gives back the others.
async fn claim(
    scene: &Scene<'_>,
    queue: String,
    jobs: Group,
    (era, stroke): (Era, Stroke),
    desk: &Desk,
) -> std::result::Result<Group, Unclaimed> {
    let claims: Vec<_> = jobs.iter().filter_map(|job| job.claim()).collect();
    if claims.len() < jobs.len() {
        return Ok(jobs);
    }
    match claims::claim(scene, &queue, &claims, (era, stroke), &desk.known).await {
        Ok((given, marks)) => {
            desk.wakes.wake(marks);
            Ok(give(jobs, given))
        }
        Err(trouble) => Err(Unclaimed { jobs, queue, stroke, trouble }),
    }
}

/// Answers claims that got something; gives back the others.
fn give(jobs: Group, given: Vec<Claimed>) -> Group {
    let mut short = Group::new();
    for (job, claimed) in jobs.into_iter().zip(given) {
        if claimed.tasks.is_empty() {
            short.push(job);
        } else {
            job.give(claimed);
        }
    }
    short
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
        Trouble::Silence | Trouble::Ours(_) | Trouble::Again | Trouble::Withheld => error,
    }
}

/// How long to wait before the next try: longer each time, and not as long as others do.
fn pause(tries: u32, lost: bool) -> Duration {
    let most = if lost { 500 } else { 2 << tries.min(5) };
    let chance = TaskId::generate().0.as_u128() % 1000;
    Duration::from_micros(most * u64::try_from(chance).unwrap_or(500))
}
