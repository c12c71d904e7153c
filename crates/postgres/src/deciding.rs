//! How requests are decided: by what is known here, or by what is loaded for all of them together.

use std::collections::{BTreeSet, HashMap};

use statehold_core::plan::{Context, Needs, Rows, TaskSelect, TaskSet};
use statehold_core::wake::Mark;

use crate::absent::Guesses;
use crate::connection::Hold;
use crate::inbox::Inbox;
use crate::job::{Group, Job, Progress, Sight};
use crate::sets;
use crate::streams::Horizon;
use crate::transaction::{Scene, Transaction};
use crate::writer::{Desk, lock};

/// What a group learned from tries that came to nothing.
#[derive(Default)]
pub(crate) struct Learned {
    /// Rows to hold from the beginning.
    pub(crate) needs: Needs,
    /// Sets whose tasks are to be held from the beginning.
    pub(crate) sets: BTreeSet<TaskSelect>,
    /// Events that it reads waited for an older transaction, which may have nothing to do with them.
    pub(crate) withheld: bool,
    /// How far events can be read, if that was asked.
    pub(crate) horizon: Option<Horizon>,
}

/// Requests of a group, by how they are decided.
#[derive(Default)]
pub(crate) struct Sorted {
    /// By what is known here.
    pub(crate) foreseen: Group,
    /// By what the server says.
    pub(crate) rest: Group,
    /// Later, since another pen is about to write what they need.
    pub(crate) aside: Vec<(usize, Box<dyn Job>)>,
}

impl Sorted {
    /// Takes in a request that looks for what is not known by its key. One pen does so at a time.
    pub(crate) fn look_around(&mut self, job: Box<dyn Job>, inbox: &Inbox, pen: usize, namespace: &str) {
        match inbox.hold_all(pen, namespace) {
            Ok(()) => self.rest.push(job),
            Err(other) => self.aside.push((other, job)),
        }
    }
}

/// How one request came out that was to be decided by what is known here.
enum Foreseen {
    Decided(Vec<Mark>),
    /// What is known is not enough.
    Unknown,
    /// This pen is about to write what it needs.
    Met(usize),
}

/// A group that is decided by what is known here.
struct Foresight<'a, 's> {
    transaction: Transaction<'s>,
    desk: &'a Desk,
    pen: usize,
    guesses: Guesses,
    /// Nothing was read for a request that is decided otherwise, and whose rows nobody writes now.
    clean: bool,
}

impl Foresight<'_, '_> {
    /// Decides a request, if it may and can. Keeps the rows that it needs in any case.
    fn decide(&mut self, job: &mut Box<dyn Job>, namespace: &str, dares: bool) -> Foreseen {
        let replica = &self.desk.config.replica;
        let sight = Sight { context: Context { now: self.transaction.now, replica }, skipped: false };
        let mut first = true;
        loop {
            let needs = match job.step(&self.transaction.rows, &sight) {
                Progress::Done(_) if !dares || !self.clean => return Foreseen::Unknown,
                Progress::Done(effects) => return Foreseen::Decided(self.transaction.accept(*effects)),
                Progress::Need(needs) => needs,
            };
            if let Err(other) = self.desk.inbox.hold(self.pen, namespace, &needs) {
                self.clean &= first;
                return Foreseen::Met(other);
            }
            let recall = |transaction: &mut Transaction<'_>| {
                transaction.recall(*needs, &lock(&self.desk.known), self.guesses)
            };
            if !dares || !self.clean || recall(&mut self.transaction).is_none() {
                self.clean &= first;
                return Foreseen::Unknown;
            }
            first = false;
        }
    }
}

/// Decides those requests for which it is enough what is known here of the rows that they need. Keeps the rows of the others,
/// too, so that no other pen works on them.
pub(crate) fn foresee<'s>(
    group: Group,
    scene: &'s Scene<'s>,
    desk: &Desk,
    pen: usize,
    dares: bool,
) -> (Transaction<'s>, Vec<Mark>, Sorted) {
    let guesses = lock(&desk.luck).guesses();
    let mut foresight =
        Foresight { transaction: Transaction::foreseen(scene), desk, pen, guesses, clean: true };
    let (mut marks, mut sorted) = (Vec::new(), Sorted::default());
    for mut job in group {
        if job.looks_around() {
            sorted.look_around(job, &desk.inbox, pen, scene.namespace);
            continue;
        }
        match foresight.decide(&mut job, scene.namespace, dares) {
            Foreseen::Decided(woken) => {
                marks.extend(woken);
                sorted.foreseen.push(job);
            }
            Foreseen::Unknown => sorted.rest.push(job),
            Foreseen::Met(other) => sorted.aside.push((other, job)),
        }
    }
    if !foresight.clean || !foresight.transaction.holds_what_it_read() {
        sorted.rest.append(&mut sorted.foreseen);
    }
    (foresight.transaction, marks, sorted)
}

/// Loads what the requests need as long as each is looked at alone, for all of them together.
pub(crate) async fn gather(
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
pub(crate) async fn plan_all(
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
pub(crate) async fn learn_members(scene: &Scene<'_>, learned: &mut Learned) -> crate::error::Result<()> {
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
pub(crate) fn first_needs(
    group: &mut Group,
    context: Context<'_>,
    asked: &mut HashMap<TaskSet, usize>,
) -> Needs {
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
