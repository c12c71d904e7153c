//! One plan at work: it reads loaded rows through its own changes, notes what is missing, and gathers
//! effects. Nothing it does is seen by others until its effects are accepted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use super::lookup::{DeliverySelect, DeliverySet, Found, Place, TaskSelect, TaskSet};
use super::rows::{Appending, Asked, Effects, Kept, Needs, Places, Rows, Trim};
use super::{Context, Step};
use crate::clock::Timestamp;
use crate::error::Error;
use crate::json::Json;
use crate::model::{StreamName, TaskId};
use crate::row::{Change, Chore, DeliveryKey, DeliveryRow, GroupKey, TaskRow};

/// Up to how many changes of a kind are searched one by one: most plans have fewer.
const FEW: usize = 8;

/// Why a plan stopped before its end.
#[derive(Debug)]
pub(super) enum Halt {
    /// Rows are missing; they are noted.
    Missing,
    /// A guard refused.
    Refused(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// What a planning function answers.
pub(super) type Planned<T> = Result<T, Halt>;

/// One plan at work.
pub(super) struct Tx<'a> {
    rows: &'a Rows,
    effects: Effects,
    /// Where changes are, once they are many.
    places: Option<Box<Places>>,
    needs: Needs,
    pub(super) now: Timestamp,
    pub(super) replica: &'a str,
    pub(super) actor: Option<String>,
    pub(super) agenda: Agenda,
}

/// What is to be judged once the commands are done.
#[derive(Default)]
pub(super) struct Agenda {
    pub(super) chores: BTreeMap<Chore, Option<TaskId>>,
    pub(super) parents: BTreeSet<TaskId>,
    pub(super) keys: BTreeSet<String>,
}

/// Runs a plan on loaded rows.
pub(super) fn run<T>(
    rows: &Rows,
    context: &Context<'_>,
    actor: Option<&String>,
    plan: impl FnOnce(&mut Tx<'_>) -> Planned<T>,
) -> Step<T> {
    let mut tx = Tx {
        rows,
        effects: Effects::default(),
        places: None,
        needs: Needs::default(),
        now: context.now,
        replica: context.replica,
        actor: actor.cloned(),
        agenda: Agenda::default(),
    };
    let planned = plan(&mut tx);
    match planned {
        _ if !tx.needs.is_empty() => Step::Need(tx.needs),
        Ok(answer) => {
            tx.effects.drop_ghosts();
            Step::Accept(answer, tx.effects)
        }
        Err(Halt::Refused(error)) => Step::Refuse(error),
        Err(Halt::Missing) => Step::Need(tx.needs),
    }
}

impl<'a> Tx<'a> {
    /// A row as it is after this plan's changes so far.
    pub(super) fn get<R: Kept>(&mut self, key: &R::Key) -> Planned<Option<Arc<R>>> {
        if let Some(place) = self.place::<R>(key) {
            return Ok(R::changes(&mut self.effects)[place].after.clone());
        }
        if let Some(row) = R::loaded(self.rows).get(key) {
            return Ok(row.clone());
        }
        R::missing(&mut self.needs).insert(key.clone());
        Err(Halt::Missing)
    }

    /// Notes that a row will be wanted, so that it is loaded together with others.
    pub(super) fn want<R: Kept>(&mut self, key: &R::Key) {
        if !R::loaded(self.rows).contains_key(key) {
            R::missing(&mut self.needs).insert(key.clone());
        }
    }

    /// Writes a row.
    pub(super) fn put<R: Kept>(&mut self, row: R) {
        let key = row.key();
        self.change(key, Some(Arc::new(row)));
    }

    /// Removes a row.
    pub(super) fn delete<R: Kept>(&mut self, key: &R::Key) {
        self.change::<R>(key.clone(), None);
    }

    fn change<R: Kept>(&mut self, key: R::Key, after: Option<Arc<R>>) {
        let place = self.place::<R>(&key);
        let changes = R::changes(&mut self.effects);
        if let Some(place) = place {
            changes[place].after = after;
            return;
        }
        let before = R::loaded(self.rows).get(&key).cloned().flatten();
        changes.push(Change { key, before, after });
        if changes.len() > FEW {
            let places = R::places(self.places.get_or_insert_default());
            let known = places.len();
            places.extend(
                changes.iter().enumerate().skip(known).map(|(place, change)| (change.key.clone(), place)),
            );
        }
    }

    /// Where the change of a key is among those of its kind.
    fn place<R: Kept>(&mut self, key: &R::Key) -> Option<usize> {
        let changes = R::changes(&mut self.effects);
        if changes.len() <= FEW {
            return changes.iter().position(|change| change.key == *key);
        }
        self.places.as_mut().and_then(|places| R::places(places).get(key).copied())
    }

    /// The answer of a lookup, as the store gave it.
    pub(super) fn look<L: Asked>(&mut self, lookup: &L) -> Planned<L::Answer> {
        self.given(lookup).cloned()
    }

    /// The same where it is.
    fn given<L: Asked>(&mut self, lookup: &L) -> Planned<&'a L::Answer> {
        if let Some(answer) = L::answers(self.rows).get(lookup) {
            return Ok(answer);
        }
        L::asked(&mut self.needs).insert(lookup.clone());
        Err(Halt::Missing)
    }

    /// Notes that a lookup will be wanted.
    pub(super) fn want_look<L: Asked>(&mut self, lookup: L) {
        if !L::answers(self.rows).contains_key(&lookup) {
            L::asked(&mut self.needs).insert(lookup);
        }
    }

    /// Notes that the first tasks of a set will be wanted.
    pub(super) fn want_set(&mut self, set: TaskSet, limit: usize) {
        if !self.is_empty(&set) {
            self.want_look(TaskSelect { set, limit });
        }
    }

    /// Whether it is known that the store has no task of a set.
    fn is_empty(&self, set: &TaskSet) -> bool {
        self.rows.independent && set.is_of_dependencies()
    }

    /// Goes on although rows are missing, so that all of them are noted in one pass. A refusal still stops.
    pub(super) fn attempt<T>(
        &mut self,
        part: impl FnOnce(&mut Self) -> Planned<T>,
    ) -> Result<Option<T>, Halt> {
        match part(self) {
            Ok(answer) => Ok(Some(answer)),
            Err(Halt::Missing) => Ok(None),
            Err(refused) => Err(refused),
        }
    }

    /// Stops if something is missing.
    pub(super) fn all_loaded(&self) -> Planned<()> {
        if self.needs.is_empty() { Ok(()) } else { Err(Halt::Missing) }
    }

    /// The first tasks of a set, with this plan's changes and those before it in the same commit.
    pub(super) fn find(&mut self, set: &TaskSet, limit: usize) -> Planned<Found<Arc<TaskRow>>> {
        let mut ask = limit;
        loop {
            let stored = if self.is_empty(set) {
                &Found { keys: Vec::new(), complete: true }
            } else {
                self.given(&TaskSelect { set: set.clone(), limit: ask })?
            };
            let (mut rows, mut complete) = (self.changed_in(set), stored.complete);
            // Beyond the last row that is as the store gave it, there may be stored rows that were not given.
            let (mut bound, mut given) = (None, 0);
            for id in &stored.keys {
                if self.is_changed(*id) {
                    continue;
                }
                let Ok(row) = self.get::<TaskRow>(id) else { return Err(self.lack(&stored.keys)) };
                let Some(row) = row else { continue };
                let place = set.place(&row);
                bound = Some(place);
                if set.contains(&row, self.now) {
                    rows.insert(place, row);
                    given += 1;
                }
                if given > limit {
                    complete = false;
                    break;
                }
            }
            if !complete {
                rows.retain(|place, _| bound.is_some_and(|bound| *place <= bound));
            }
            if complete || rows.len() >= limit {
                complete &= rows.len() <= limit;
                let keys = rows.into_values().take(limit).collect();
                return Ok(Found { keys, complete });
            }
            ask = ask * 2 + self.effects.tasks.len() + self.rows.changed_tasks.len();
        }
    }

    /// Notes that tasks are missing, so that all of them are loaded in one go.
    fn lack(&mut self, ids: &[TaskId]) -> Halt {
        for id in ids {
            self.want::<TaskRow>(id);
        }
        Halt::Missing
    }

    /// Whether a task is not as the store has it.
    fn is_changed(&mut self, id: TaskId) -> bool {
        self.place::<TaskRow>(&id).is_some() || self.rows.changed_tasks.contains(&id)
    }

    /// The tasks of a set that are not as the store has them.
    fn changed_in(&mut self, set: &TaskSet) -> BTreeMap<Place, Arc<TaskRow>> {
        let rows = self.rows;
        let before = rows.changed_tasks.iter().filter(|id| self.place::<TaskRow>(id).is_none());
        let before: Vec<_> = before.filter_map(|id| TaskRow::loaded(rows).get(id)?.as_ref()).collect();
        let own = self.effects.tasks.iter().filter_map(|change| change.after.as_ref());
        let all = own.chain(before).filter(|row| set.contains(row, self.now));
        all.map(|row| (set.place(row), Arc::clone(row))).collect()
    }

    /// A delivery, unless a seek before this plan in the same commit has forgotten it.
    pub(super) fn delivery(&mut self, key: &DeliveryKey) -> Planned<Option<Arc<DeliveryRow>>> {
        let forgotten =
            self.rows.cleared_groups.contains(&key.group) && !self.rows.changed_deliveries.contains(key);
        if forgotten { Ok(None) } else { self.get(key) }
    }

    /// The first deliveries of a set, with the changes of plans before this one in the same commit.
    pub(super) fn find_deliveries(
        &mut self,
        set: &DeliverySet,
        limit: usize,
    ) -> Planned<Vec<Arc<DeliveryRow>>> {
        let changed: Vec<_> = self.rows.changed_deliveries.iter().cloned().collect();
        let ask = limit + changed.len();
        let stored = self.look(&DeliverySelect { set: set.clone(), limit: ask })?;
        let mut rows = BTreeMap::new();
        for key in stored.keys.iter().chain(&changed) {
            if let Some(row) = self.delivery(key)?.filter(|row| set.contains(row, self.now)) {
                rows.insert(DeliverySet::place(&row), row);
            }
        }
        Ok(rows.into_values().take(limit).collect())
    }

    /// Appends an event whose number was given by the stream's head.
    pub(super) fn append(&mut self, stream: StreamName, seq: u64, kind: &str, data: Option<Json>) {
        let (at, actor) = (self.now, self.actor.clone());
        self.effects.events.push(Appending { stream, seq, kind: kind.to_owned(), data, at, actor });
    }

    /// Removes a prefix of a stream.
    pub(super) fn trim(&mut self, stream: StreamName, up_to: u64) {
        self.effects.trims.push(Trim { stream, up_to });
    }

    /// Forgets all deliveries of a group.
    pub(super) fn clear(&mut self, group: GroupKey) {
        self.effects.cleared.push(group);
    }
}

/// The data of an event that this crate writes.
#[expect(clippy::unnecessary_wraps, reason = "the data of an event may be missing, and this is its type")]
pub(super) fn data<T: Serialize>(value: &T) -> Option<Json> {
    Some(Json::trusted(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::command::TaskCreate;
    use crate::plan;
    use crate::row::Turn;

    const CONTEXT: Context<'_> = Context { now: Timestamp::from_micros(1_000_000), replica: "here" };

    /// A ready task, as a plan makes it.
    fn ready(priority: i16) -> Arc<TaskRow> {
        let mut batch = Batch::new("n");
        let _ = batch.add(TaskCreate { priority: Some(priority), ..TaskCreate::new("k").queue("q") });
        let Ok(batch) = batch.prepare() else { panic!("a good batch") };
        let Step::Accept(_, effects) = plan::apply(&batch, &Rows::default(), &CONTEXT) else {
            panic!("made")
        };
        effects.tasks[0].after.clone().expect("it is there")
    }

    fn set() -> TaskSet {
        TaskSet::Ready { queues: ["q".to_owned()].into() }
    }

    /// What is known of a store that answers so for one ready task.
    fn answered(given: &[&Arc<TaskRow>], complete: bool) -> Rows {
        let mut rows = Rows::default();
        for row in given {
            rows.load(row.task.id, Some(Arc::clone(row)));
        }
        let keys = given.iter().map(|row| row.task.id).collect();
        rows.answer(TaskSelect { set: set(), limit: 1 }, Found { keys, complete });
        rows
    }

    fn change(rows: &mut Rows, before: Option<&Arc<TaskRow>>, after: TaskRow) {
        let change = Change { key: after.task.id, before: before.cloned(), after: Some(Arc::new(after)) };
        rows.accept(&Effects { tasks: vec![change], ..Effects::default() });
    }

    /// The first ready task; none if the store has to be asked for more.
    fn first(rows: &Rows) -> Option<TaskId> {
        match run(rows, &CONTEXT, None, |tx| tx.find(&set(), 1)) {
            Step::Accept(found, _) => found.keys.first().map(|row| row.task.id),
            Step::Need(needs) => {
                assert!(needs.task_sets.iter().all(|select| select.limit > 1), "{needs:?}");
                None
            }
            Step::Refuse(error) => panic!("{error}"),
        }
    }

    #[test]
    fn what_was_changed_before_does_not_hide_what_the_store_was_not_asked_for() {
        let (high, middle, low) = (ready(1), ready(2), ready(3));
        let taken = || {
            let mut row = TaskRow::clone(&high);
            row.turn = Turn::Off;
            row
        };
        let mut rows = answered(&[&high], false);
        change(&mut rows, Some(&high), taken());
        change(&mut rows, None, TaskRow::clone(&low));
        assert_eq!(first(&rows), None, "there may be others before the one that was made here");
        let mut rows = answered(&[&high, &middle], false);
        change(&mut rows, Some(&high), taken());
        change(&mut rows, None, TaskRow::clone(&low));
        assert_eq!(first(&rows), Some(middle.task.id), "more than were asked for are as good");
        let mut rows = answered(&[&high], true);
        change(&mut rows, Some(&high), taken());
        change(&mut rows, None, TaskRow::clone(&low));
        assert_eq!(first(&rows), Some(low.task.id), "there are no others");
    }

    #[test]
    fn a_task_that_was_put_back_before_says_nothing_of_what_comes_after_it() {
        let (high, low) = (ready(1), ready(3));
        let mut rows = answered(&[&high], false);
        let mut back = TaskRow::clone(&high);
        back.task.priority = 9;
        change(&mut rows, Some(&high), back);
        change(&mut rows, None, TaskRow::clone(&low));
        assert_eq!(first(&rows), None, "there may be others between");
    }
}
