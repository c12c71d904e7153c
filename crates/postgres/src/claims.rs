//! Claims by one statement: the plain case, in which the first ready tasks of one queue are started and nothing else happens.
//! Whatever is not plain, it leaves to the plan.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::mem::take;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use statehold_core::Timestamp;
use statehold_core::call::{Claim, Claimed};
use statehold_core::plan::start_topics;
use statehold_core::query::POLL_PRECISION;
use statehold_core::row::{PollerKey, TaskRow};
use statehold_core::wake::Mark;
use tokio_postgres::Row;

use crate::connection::{Call, sql};
use crate::error::Result;
use crate::job::Group;
use crate::known::{Known, version_of};
use crate::namespaces::Era;
use crate::once::entering;
use crate::rows::{Table as _, read_all};
use crate::strokes::Stroke;
use crate::tasks::minute;
use crate::transaction::Scene;
use crate::values::{At, Cells, Param, column, length, param, value};

/// The statement, where it is known who asks and no claim has a key, and where not.
static CLAIM: LazyLock<String> = LazyLock::new(|| sql!("claim").replace("{asked}", ""));
static CLAIM_ASKED: LazyLock<String> =
    LazyLock::new(|| sql!("claim").replace("{asked}", sql!("claim_asked")));

/// Claims that may be plain, by their queue, and the others. One that repeats another of the group comes after it.
pub(crate) fn sort(group: Group) -> (BTreeMap<String, Group>, Group) {
    let (mut plain, mut others) = (BTreeMap::<_, Group>::new(), Group::new());
    let mut keys = HashSet::new();
    for job in group {
        let mut first = |claim: &Claim| {
            claim.key.as_ref().is_none_or(|key| keys.insert((claim.owner.clone(), key.clone())))
        };
        let queue = match job.claim() {
            Some(claim) if claim.queues.len() == 1 && first(claim) => claim.queues.first().cloned(),
            _ => None,
        };
        match queue {
            Some(queue) => plain.entry(queue).or_default().push(job),
            None => others.push(job),
        }
    }
    (plain, others)
}

/// What claims from one queue got, and whom that wakes. Nothing is done if they are not plain.
pub(crate) async fn claim(
    scene: &Scene<'_>,
    queue: &str,
    claims: &[&Claim],
    (era, stroke): (Era, Stroke),
    known: &Mutex<Known>,
) -> Result<(Vec<Claimed>, Vec<Mark>)> {
    let slots: Vec<_> = (0..).zip(claims).flat_map(|(place, claim)| slots(place, claim)).collect();
    let (now, shown) = scene.clock.foresee();
    let askers = strangers(scene, queue, claims, now, known);
    let mut params = params(scene, queue, &slots, (now, shown), (era, stroke));
    let asked = asked(scene, claims, askers, now);
    let sql = if asked.is_some() { &CLAIM_ASKED } else { &CLAIM };
    params.extend(asked.into_iter().flatten());
    let call = Call::new(sql.as_str(), params);
    let found = scene.db.query(call.sql, call.params).await?;
    // Tasks are large, and a vector that grows has room for four at once.
    let room = |claim: &&Claim| Vec::with_capacity(found.len().min(claim.limit as usize));
    let mut given: Vec<_> =
        claims.iter().map(|claim| Claimed { tasks: room(claim), ..Claimed::default() }).collect();
    let mut marks = Vec::with_capacity(found.len());
    let mut started = Vec::with_capacity(found.len());
    for row in &found {
        let mut cells = Cells::new(row);
        let (ord, stored, number) = (cells.get()?, cells.time()?, cells.get::<i64>()?);
        scene.clock.hear(stored);
        started.push((number, version_of(ord), Arc::new(TaskRow::read(&mut cells)?)));
    }
    started.sort_by_key(|(number, ..)| *number);
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    for (number, version, row) in started {
        let slot = usize::try_from(number - 1).ok().and_then(|number| slots.get(number));
        if let Some((place, _)) = slot {
            marks.extend(start_topics(row.task.id).map(|topic| Mark::of(scene.namespace, &topic)));
            given[*place].tasks.push(row.task.clone());
            if known.server() == scene.server {
                known.learn(scene.ns, [&row], version);
            }
        }
    }
    Ok((given, marks))
}

/// Who claims and was not noted lately as one who asks this queue, as far as it is known here.
fn strangers(
    scene: &Scene<'_>,
    queue: &str,
    claims: &[&Claim],
    now: Timestamp,
    known: &Mutex<Known>,
) -> Vec<String> {
    let known = known.lock().unwrap_or_else(PoisonError::into_inner);
    let owners: BTreeSet<_> = claims.iter().map(|claim| &claim.owner).collect();
    let owners = owners.into_iter().filter(|owner| {
        let key = PollerKey { queue: queue.to_owned(), owner: (*owner).clone() };
        !known.asked(scene.ns, key).is_some_and(|at| at <= now && at > now - POLL_PRECISION)
    });
    owners.cloned().collect()
}

/// A place for each task that a claim asks for.
fn slots(place: usize, claim: &Claim) -> impl Iterator<Item = (usize, &Claim)> {
    (0..claim.limit).map(move |_| (place, claim))
}

fn params(
    scene: &Scene<'_>,
    queue: &str,
    slots: &[(usize, &Claim)],
    (now, shown): (Timestamp, Option<Timestamp>),
    (era, stroke): (Era, Stroke),
) -> Vec<Param> {
    let end = |claim: &Claim| claim.lease_seconds.map(|length| now + length);
    let mut params = entering(scene.ns, shown, era);
    params.extend([
        param(At(now)),
        param(queue.to_owned()),
        param(minute(now)),
        column(slots, |(_, claim)| claim.owner.clone()),
        column(slots, |(_, claim)| value(&claim.owner).0),
        column(slots, |(_, claim)| claim.key.clone()),
        column(slots, |(_, claim)| length(claim.lease_seconds)),
        column(slots, |(_, claim)| end(claim).map(At)),
        column(slots, |(_, claim)| end(claim).map(minute)),
        param(now.as_micros()),
        param(stroke.pen),
        param(stroke.number),
    ]);
    params
}

/// What else must be looked at, if anything: who asks and is not known here, and which claims may have been made before.
fn asked(scene: &Scene<'_>, claims: &[&Claim], askers: Vec<String>, now: Timestamp) -> Option<[Param; 5]> {
    let keyed: Vec<_> = claims.iter().filter_map(|claim| Some((&claim.owner, claim.key.as_ref()?))).collect();
    if askers.is_empty() && keyed.is_empty() {
        return None;
    }
    let numbers: BTreeSet<_> = keyed.iter().map(|(owner, key)| scene.claim_key(owner, key)).collect();
    Some([
        param(At(now - POLL_PRECISION)),
        param(askers),
        column(&keyed, |(owner, _)| (*owner).clone()),
        column(&keyed, |(_, key)| (*key).clone()),
        param(numbers.into_iter().collect::<Vec<_>>()),
    ])
}

/// The call for what claims from one queue got by a transaction whose answer was lost.
pub(crate) fn ask_what_was_given(ns: i64, queue: &str, claims: &[Claim], ord: i64) -> Call {
    let owners: BTreeSet<_> = claims.iter().map(|claim| claim.owner.clone()).collect();
    let owners: Vec<_> = owners.into_iter().collect();
    let params = vec![param(ns), param(queue.to_owned()), param(owners), param(version_of(ord))];
    Call::new(sql!("tasks_given"), params)
}

/// Its answer, shared out: among claims of one owner it does not matter who gets what.
pub(crate) fn share_out(claims: &[Claim], found: &[Row]) -> Result<Vec<Claimed>> {
    let mut tasks = read_all(found, TaskRow::read)?;
    let share = |claim: &Claim| {
        let is_for = |row: &TaskRow| row.task.lease.as_ref().is_some_and(|lease| lease.owner == claim.owner);
        let (own, others): (Vec<_>, Vec<_>) = take(&mut tasks).into_iter().partition(is_for);
        let mut own = own.into_iter();
        let got = own.by_ref().take(claim.limit as usize).map(|row| row.task).collect();
        tasks = own.chain(others).collect();
        Claimed { tasks: got, ..Claimed::default() }
    };
    Ok(claims.iter().map(share).collect())
}
