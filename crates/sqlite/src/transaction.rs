//! One transaction: requests planned and written one after the other, on what the last one knew.

use std::sync::Arc;

use rusqlite::params;
use statehold_core::model::{Document, Entry, Position, StreamName};
use statehold_core::plan::{Appending, Context, Effects, Expired, ExpiredKeys, Map, Needs, Rows, Step};
use statehold_core::query::POLLER_MEMORY;
use statehold_core::row::{
    AnswerRow, ChoreRow, DeliveryRow, ExclusiveRow, FloorRow, GroupRow, LockRow, PollerRow, QueueRow,
    SignalsRow, StreamRow, TaskRow,
};
use statehold_core::{Clock, Error, Result, Timestamp};

use crate::places::Absent;
use crate::rows::{Table as _, load, store};
use crate::statements::{Db, sql};
use crate::streams::Origin;
use crate::tasks::Counts;
use crate::{documents, entries, groups, keys as batch_keys, locks, places, queues, streams};

/// How many positions a transaction sets apart for the next ones, so that not each has to write how far it got. What is
/// not used is left out.
const RESERVE: u64 = 64;

/// What was accepted, in its namespace.
pub(crate) type Accepted = Vec<(Arc<str>, Effects)>;

/// An open transaction.
pub(crate) struct Transaction<'t, 'c> {
    pub(crate) db: Db<'t, 'c>,
    pub(crate) clock: &'t Clock,
    pub(crate) replica: &'t str,
    /// What is known of each namespace.
    pub(crate) spaces: Map<String, Space>,
    /// What it will have done.
    pub(crate) accepted: Accepted,
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
    pub(crate) fn plan<T>(
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
    pub(crate) fn finish(&mut self) -> rusqlite::Result<()> {
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
    /// About how many bytes the rows take that are kept of it.
    pub(crate) fn weight(&self) -> usize {
        self.rows.weight()
    }

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
