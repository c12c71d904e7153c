//! Sets that plans ask for: parts of the index, whose rows are asked again whether they belong to the set.

use std::collections::BTreeMap;
use std::sync::Arc;

use redis::{Cmd, Value};
use statehold_core::Timestamp;
use statehold_core::clock::Seconds;
use statehold_core::model::{Document, Entry, Position};
use statehold_core::plan::{
    DeliverySelect, DeliverySet, Expired, ExpiredKeys, Found, Needs, Overgrown, Place, TaskSelect, TaskSet,
};
use statehold_core::query::POLLER_MEMORY;
use statehold_core::row::{
    AnswerRow, ChoreRow, DeliveryRow, LockRow, PollerRow, Record as _, StreamRow, TaskRow,
};

use crate::connection::{self, RowKey, read_found};
use crate::error::{Result, odd};
use crate::groups;
use crate::lists::{Page, scan};
use crate::rows::{Table, read, tail};
use crate::snapshot::{SeenRange, Snapshot};
use crate::space::{Bytes, Member, Range};
use crate::tasks;

/// The time is asked in the same load as what depends on it, so a search goes this far beyond the time that is expected.
const SLACK: Seconds = Seconds::new(1);

/// How long what is ready is reserved for whoever is about to take it, in milliseconds. Longer than it takes to plan and
/// to write, and no longer than a caller can wait if that process dies meanwhile.
const RESERVED: u64 = 2000;

/// The kind of set that a search is for.
trait Set {
    type Row: Table;
    type Place: Ord;

    fn holds(&self, row: &Self::Row, now: Timestamp) -> bool;
    fn place_of(&self, row: &Self::Row) -> Self::Place;
}

impl Set for TaskSet {
    type Row = TaskRow;
    type Place = Place;

    fn holds(&self, row: &TaskRow, now: Timestamp) -> bool {
        self.contains(row, now)
    }

    fn place_of(&self, row: &TaskRow) -> Place {
        self.place(row)
    }
}

impl Set for DeliverySet {
    type Row = DeliveryRow;
    type Place = (Timestamp, Position);

    fn holds(&self, row: &DeliveryRow, now: Timestamp) -> bool {
        self.contains(row, now)
    }

    fn place_of(&self, row: &DeliveryRow) -> Self::Place {
        Self::place(row)
    }
}

/// A search for the first rows of a set.
struct Search<S: Set> {
    set: S,
    /// How many were asked for, by each who asked.
    limits: Vec<usize>,
    /// How many are looked for.
    most: usize,
    parts: Vec<Part<S::Row>>,
    row: RowKey,
    exact: bool,
}

/// A range of the index that a search goes through.
struct Part<R> {
    /// What is left of it.
    range: Range,
    open: bool,
    /// Whether it goes on although enough was found.
    more: bool,
    rows: Vec<Arc<R>>,
}

impl<R> Part<R> {
    fn new(range: Range) -> Self {
        Self { range, open: true, more: false, rows: Vec::new() }
    }
}

impl<S: Set> Search<S> {
    fn calls(&self, snapshot: &Snapshot<'_>) -> Vec<Cmd> {
        let scene = snapshot.scene;
        let call = |part: &Part<S::Row>| scene.db.range(scene.space, &part.range, self.most + 1, self.row);
        self.parts.iter().filter(|part| part.open).map(call).collect()
    }

    /// Takes in what was found in the parts that are open.
    fn absorb(
        &mut self,
        snapshot: &mut Snapshot<'_>,
        answers: &mut impl Iterator<Item = Value>,
    ) -> Result<()> {
        for part in self.parts.iter_mut().filter(|part| part.open) {
            let found = read_found(answers.next().ok_or_else(|| odd("a part of the index"))?)?;
            let limit = self.most + 1;
            if self.exact {
                let (range, members) = (part.range.clone(), found.members.concat());
                snapshot.seen.ranges.push(SeenRange { range, limit, members });
            }
            let last = found.members.last().filter(|_| found.members.len() == limit).cloned();
            let rows = snapshot.take_found::<S::Row>(found)?;
            part.rows.extend(rows.into_iter().filter(|row| self.set.holds(row, snapshot.now)));
            part.more = part.rows.len() > self.most;
            part.open = last.is_some() && !part.more;
            if let Some(last) = last {
                part.range = part.range.clone().after(&last);
            }
        }
        Ok(())
    }

    /// Everything that was found, in the order of the set.
    fn found(&self) -> Found<<S::Row as statehold_core::row::Record>::Key> {
        let rows = self.parts.iter().flat_map(|part| &part.rows);
        let rows: BTreeMap<_, _> = rows.map(|row| (self.set.place_of(row), row.key())).collect();
        let more = self.parts.iter().any(|part| part.more);
        let found = Found::first(rows.into_values().collect(), self.most);
        Found { complete: found.complete && !more, ..found }
    }
}

/// All searches of a load.
#[derive(Default)]
pub(crate) struct Searches {
    tasks: Vec<Search<TaskSet>>,
    /// Ready tasks, which are reserved.
    ready: Vec<Search<TaskSet>>,
    deliveries: Vec<Search<DeliverySet>>,
    expired: Vec<Expired>,
    overgrown: Vec<Overgrown>,
    /// The time that it was made for.
    made_for: Timestamp,
    needs: Needs,
}

impl Searches {
    /// The searches for what plans are missing.
    pub(crate) async fn new(snapshot: &Snapshot<'_>, needs: Needs) -> Result<Self> {
        let queues = queues(snapshot, &needs).await?;
        let mut searches = Self { made_for: snapshot.now, needs: needs.clone(), ..Self::default() };
        let mut sets: BTreeMap<TaskSet, Vec<usize>> = BTreeMap::new();
        for TaskSelect { set, limit } in needs.task_sets {
            sets.entry(set).or_default().push(limit);
        }
        for (set, limits) in sets {
            let at = slack(&set, snapshot.now);
            let tasks::Places { ranges, row, exact } = tasks::places(&set, at, &queues);
            let asked = snapshot.terms.asked.get(&set).copied().unwrap_or_default();
            let most = limits.iter().copied().max().unwrap_or_default().max(asked);
            let parts = ranges.into_iter().map(Part::new).collect();
            let reserve = matches!(set, TaskSet::Ready { .. });
            let search = Search { set, limits, most, parts, row, exact };
            if reserve { searches.ready.push(search) } else { searches.tasks.push(search) }
        }
        for DeliverySelect { set, limit } in needs.delivery_sets {
            let at = match set {
                DeliverySet::Visible(_) => snapshot.now + SLACK,
                DeliverySet::Hidden(_) | DeliverySet::Read { .. } => snapshot.now - SLACK,
            };
            let (range, row) = groups::places(&set, at);
            let (limits, parts) = (vec![limit], vec![Part::new(range)]);
            searches.deliveries.push(Search { set, limits, most: limit, parts, row, exact: false });
        }
        searches.expired = needs.expired.into_iter().collect();
        searches.overgrown = needs.overgrown.into_iter().collect();
        Ok(searches)
    }

    /// What is asked in the first go.
    pub(crate) fn calls(&self, snapshot: &Snapshot<'_>) -> Vec<Cmd> {
        let ready = self.ready.iter().map(|search| reserve(search, snapshot));
        let tasks = self.tasks.iter().flat_map(|search| search.calls(snapshot));
        let deliveries = self.deliveries.iter().flat_map(|search| search.calls(snapshot));
        let expired = self.expired.iter().flat_map(|expired| expired_calls(*expired, snapshot));
        ready.chain(tasks).chain(deliveries).chain(expired).collect()
    }

    /// Takes in the answers, goes on where that is not enough, and answers the plans' lookups.
    pub(crate) async fn finish(mut self, snapshot: &mut Snapshot<'_>, answers: Vec<Value>) -> Result<()> {
        let far = snapshot.now.since(self.made_for).max(self.made_for.since(snapshot.now));
        let mut answers = answers;
        if far >= SLACK {
            self = Self::new(snapshot, self.needs).await?;
            snapshot.loads += 1;
            answers = snapshot.scene.db.call_all(&self.calls(snapshot)).await?;
        }
        let mut answers = answers.into_iter();
        for search in &mut self.ready {
            let answer = answers.next().ok_or_else(|| odd("ready tasks"))?;
            take_reserved(search, snapshot, answer)?;
        }
        for search in &mut self.tasks {
            search.absorb(snapshot, &mut answers)?;
        }
        for search in &mut self.deliveries {
            search.absorb(snapshot, &mut answers)?;
        }
        for expired in std::mem::take(&mut self.expired) {
            let keys = read_expired(expired, snapshot, &mut answers)?;
            snapshot.rows.answer(expired, keys);
        }
        go_on(&mut self.tasks, snapshot).await?;
        go_on(&mut self.deliveries, snapshot).await?;
        for search in self.tasks.iter().chain(&self.ready) {
            for limit in &search.limits {
                let select = TaskSelect { set: search.set.clone(), limit: *limit };
                snapshot.rows.answer(select, search.found());
            }
        }
        for search in &self.deliveries {
            let select = DeliverySelect { set: search.set.clone(), limit: search.most };
            snapshot.rows.answer(select, search.found());
        }
        for overgrown in self.overgrown {
            let streams = find_overgrown(&overgrown, snapshot).await?;
            snapshot.rows.answer(overgrown, streams);
        }
        Ok(())
    }
}

/// Goes on until every search has found enough.
async fn go_on<S: Set>(searches: &mut [Search<S>], snapshot: &mut Snapshot<'_>) -> Result<()> {
    loop {
        let calls: Vec<_> = searches.iter().flat_map(|search| search.calls(snapshot)).collect();
        if calls.is_empty() {
            return Ok(());
        }
        snapshot.loads += 1;
        let mut answers = snapshot.scene.db.call_all(&calls).await?.into_iter();
        for search in &mut *searches {
            search.absorb(snapshot, &mut answers)?;
        }
    }
}

/// The time to look by, so that nothing is missed whatever the time turns out to be.
fn slack(set: &TaskSet, now: Timestamp) -> Timestamp {
    match set {
        TaskSet::Due { .. } | TaskSet::LeaseOver { .. } => now + SLACK,
        TaskSet::Upcoming { .. } => now - SLACK,
        _ => now,
    }
}

/// The queues that have tasks, if a set is about all of them.
async fn queues(snapshot: &Snapshot<'_>, needs: &Needs) -> Result<Vec<String>> {
    let about_all = |select: &TaskSelect| {
        matches!(select.set, TaskSet::Due { queues: None } | TaskSet::LeaseOver { queues: None })
    };
    if !needs.task_sets.iter().any(about_all) {
        return Ok(Vec::new());
    }
    let mut call = redis::cmd("HGETALL");
    call.arg(snapshot.scene.space.counts());
    let fields = redis::from_redis_value(snapshot.scene.db.call(&call).await?).map_err(|_| odd("counts"))?;
    Ok(tasks::read_counts(fields).into_keys().collect())
}

fn reserve(search: &Search<TaskSet>, snapshot: &Snapshot<'_>) -> Cmd {
    let (db, space) = (snapshot.scene.db, snapshot.scene.space);
    let mut call = db.function("reserve");
    call.arg(2).arg(space.index()).arg(space.reservations());
    call.arg(space.tag()).arg(snapshot.terms.me).arg(RESERVED).arg(search.most);
    for part in &search.parts {
        call.arg(&part.range.min).arg(&part.range.max);
    }
    call
}

fn take_reserved(search: &mut Search<TaskSet>, snapshot: &mut Snapshot<'_>, answer: Value) -> Result<()> {
    type Reserved = (Vec<Bytes>, Vec<Option<Bytes>>, u8, u8);
    let queues: Vec<Reserved> = redis::from_redis_value(answer).map_err(|_| odd("ready tasks"))?;
    for (part, (members, rows, skipped, more)) in search.parts.iter_mut().zip(queues) {
        let rows = snapshot.take_found::<TaskRow>(connection::Found { members, rows })?;
        snapshot.reserved.extend(rows.iter().map(|row| row.task.id));
        snapshot.skipped |= skipped == 1;
        part.more = more == 1;
        part.rows.extend(rows.into_iter().filter(|row| search.set.holds(row, snapshot.now)));
    }
    Ok(())
}

fn expired_calls(expired: Expired, snapshot: &Snapshot<'_>) -> [Cmd; 6] {
    let (db, space, until) = (snapshot.scene.db, snapshot.scene.space, snapshot.now + SLACK);
    let call = |letter: &'static str| {
        let prefix = Member::new(b'Z').bytes(letter.as_bytes());
        let range = Range::of(&prefix.clone()).up_to(&prefix.time(until));
        db.range(space, &range, expired.limit, RowKey::Of { letter, first: 1, last: 0, rest: 11 })
    };
    let chores = Range::of(&Member::new(ChoreRow::LETTER));
    let chores = db.range(space, &chores, expired.limit, RowKey::OWN);
    [call("d"), call("e"), call("l"), call("a"), call("p"), chores]
}

fn read_expired(
    expired: Expired,
    snapshot: &mut Snapshot<'_>,
    answers: &mut impl Iterator<Item = Value>,
) -> Result<ExpiredKeys> {
    let now = snapshot.now;
    let mut next = || answers.next().ok_or_else(|| odd("a part of the index"));
    let documents = over::<Document>(snapshot, next()?, |row| row.expires_at.is_some_and(|at| at <= now))?;
    let entries = over::<Entry>(snapshot, next()?, |row| row.expires_at <= now)?;
    let locks = over::<LockRow>(snapshot, next()?, |row| row.forget_at <= now)?;
    let answers_over = over::<AnswerRow>(snapshot, next()?, |row| row.expires_at <= now)?;
    let pollers = over::<PollerRow>(snapshot, next()?, |row| row.at + POLLER_MEMORY <= now)?;
    let mut chores: Vec<_> =
        snapshot.take_found::<ChoreRow>(read_found(next()?)?)?.iter().map(|row| row.key()).collect();
    chores.sort();
    chores.truncate(expired.limit);
    Ok(ExpiredKeys { documents, entries, locks, answers: answers_over, pollers, chores })
}

/// Keys of rows that are over. A place that no longer leads to its row is a ghost: the server has removed the row by
/// itself, and perhaps it was made anew since.
fn over<R: Table>(
    snapshot: &mut Snapshot<'_>,
    answer: Value,
    is_over: impl Fn(&R) -> bool,
) -> Result<Vec<R::Key>> {
    let found = read_found(answer)?;
    let mut keys = Vec::new();
    for (member, stored) in found.members.into_iter().zip(found.rows) {
        let own = [&[R::LETTER], member.get(10..).unwrap_or_default()].concat();
        snapshot.see(snapshot.scene.space.key(&own), stored.as_deref());
        let Some(stored) = stored else {
            snapshot.ghosts.extend([member, own]);
            continue;
        };
        let row: R = read(&stored)?;
        if !row.places().iter().any(|place| place.0 == member) {
            snapshot.ghosts.push(member);
        } else if is_over(&row) {
            keys.push(row.key());
            let name = snapshot.scene.space.key(&tail::<R>(&row.key()));
            snapshot.take::<R>(row.key(), name, Some(&stored))?;
        }
    }
    Ok(keys)
}

/// Streams that hold more than they may. Their heads are read again when they are trimmed.
async fn find_overgrown(
    overgrown: &Overgrown,
    snapshot: &Snapshot<'_>,
) -> Result<Vec<statehold_core::model::StreamName>> {
    let (keep, now) = (&overgrown.keep, snapshot.now);
    let category = format!("{}/", overgrown.category);
    let range = Range::of(&Member::new(StreamRow::LETTER).bytes(category.as_bytes()));
    let too_much = |row: &StreamRow| {
        let too_long = keep.max_length.is_some_and(|most| row.head.last - row.head.oldest > most);
        let too_old = keep.max_age_seconds.zip(row.head.oldest_at).is_some_and(|(age, at)| at < now - age);
        too_long || too_old
    };
    let page = Page { range, limit: overgrown.limit, backwards: false };
    Ok(scan(&snapshot.scene, page, too_much).await?.into_iter().map(|row| row.stream).collect())
}
