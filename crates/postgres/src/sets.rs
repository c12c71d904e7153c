//! The sets of tasks that plans ask for, each from an index.

use std::collections::BTreeMap;
use std::sync::Arc;

use statehold_core::Timestamp;
use statehold_core::model::TaskId;
use statehold_core::plan::{Found, TaskSet};
use statehold_core::row::TaskRow;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::connection::{Call, Hold, Reading, reading, sql};
use crate::error::Result;
use crate::rows::{Table as _, read_all};
use crate::tasks::minute;
use crate::values::{At, Param, column, id, limit, param};

const CLAIMED: Reading = reading!("tasks_claimed");
const DEPENDENTS: Reading = reading!("tasks_dependents");
const LIVE_DEPENDENTS: Reading = reading!("tasks_live_dependents");
const FAILED_BY: Reading = reading!("tasks_failed_by");
const CHILDREN: Reading = reading!("tasks_children");
const CONTENDERS: Reading = reading!("tasks_contenders");
const KEYED: Reading = reading!("tasks_keyed");
const RETIRED: Reading = reading!("tasks_retired");

/// What was found of a set.
#[derive(Clone)]
pub(crate) struct Members {
    /// Rows in the order of the set.
    pub(crate) rows: Vec<Arc<TaskRow>>,
    /// How many were asked for.
    most: usize,
}

impl Members {
    /// What is in a set, of what a statement that was asked for one more than `most` answered.
    pub(crate) fn read(set: &TaskSet, found: &[Row], most: usize, now: Timestamp) -> Result<Self> {
        let rows = read_all(found, TaskRow::read)?.into_iter();
        let sorted: BTreeMap<_, _> =
            rows.filter(|row| set.contains(row, now)).map(|row| (set.place(&row), Arc::new(row))).collect();
        Ok(Self { rows: sorted.into_values().collect(), most })
    }

    /// The answer for so many, if enough were asked for.
    pub(crate) fn first(&self, limit: usize) -> Option<Found<TaskId>> {
        let complete = self.rows.len() <= self.most;
        if limit > self.most && !complete {
            return None;
        }
        let keys: Vec<_> = self.rows.iter().take(limit + 1).map(|row| row.task.id).collect();
        Some(Found::first(keys, limit))
    }
}

/// Whether the rows of a set are read without being held: nobody writes them for having found them there.
pub(crate) fn is_loose(set: &TaskSet) -> bool {
    matches!(set, TaskSet::Upcoming { .. })
}

/// The statement that finds the first `most` tasks of a set and one more. What is ready or due is left out if another
/// transaction holds it, which then sees to it.
pub(crate) fn select(ns: i64, set: &TaskSet, most: usize, now: Timestamp, hold: Hold) -> Call {
    let most = param(limit(most + 1));
    let after = |after: &Option<TaskId>| param(id(*after));
    match set {
        TaskSet::Ready { queues } => Call::new(sql!("tasks_ready"), by_queue(ns, queues, now, most)),
        TaskSet::Due { queues: Some(queues) } => {
            Call::new(sql!("tasks_due"), by_queue(ns, queues, now, most))
        }
        TaskSet::Due { queues: None } => {
            Call::new(sql!("tasks_due_any"), vec![param(ns), param(At(now)), most])
        }
        TaskSet::LeaseOver { queues: Some(queues) } => {
            Call::new(sql!("tasks_lease_over"), by_minute(ns, queues, now, most))
        }
        TaskSet::LeaseOver { queues: None } => {
            let params = vec![param(ns), param(At(now)), most, param(minute(now))];
            Call::new(sql!("tasks_lease_over_any"), params)
        }
        TaskSet::Upcoming { queues } => Call::new(sql!("tasks_upcoming"), by_minute(ns, queues, now, most)),
        TaskSet::Claimed { owner, key } => {
            let params = vec![param(ns), param(owner.clone()), param(key.clone()), most];
            Call::new(CLAIMED.holding(hold), params)
        }
        TaskSet::Dependents { of, after: last } => {
            Call::new(DEPENDENTS.holding(hold), vec![param(ns), param(of.0), after(last), most])
        }
        TaskSet::LiveDependents { of } => {
            Call::new(LIVE_DEPENDENTS.holding(hold), vec![param(ns), param(of.0), after(&None), most])
        }
        TaskSet::FailedBy { of, after: last } => {
            Call::new(FAILED_BY.holding(hold), vec![param(ns), param(of.0), after(last), most])
        }
        TaskSet::Children { of, after: last } => {
            Call::new(CHILDREN.holding(hold), vec![param(ns), param(of.0), after(last), most])
        }
        TaskSet::Contenders { key, skip } => {
            let params = vec![param(ns), param(key.clone()), param(skip.clone()), param(At(now)), most];
            Call::new(CONTENDERS.holding(hold), params)
        }
        TaskSet::Keyed { queue, after: last } => {
            Call::new(KEYED.holding(hold), vec![param(ns), param(queue.clone()), after(last), most])
        }
        TaskSet::Retired { rules, after } => {
            let place =
                after.map_or((Timestamp::from_micros(i64::MIN), Uuid::nil()), |at| (at.finished_at, at.id.0));
            let params = vec![
                param(ns),
                column(rules, |(status, _)| status.as_str()),
                column(rules, |(_, before)| At(*before)),
                param(At(place.0)),
                param(place.1),
                most,
            ];
            Call::new(RETIRED.holding(hold), params)
        }
    }
}

fn by_queue(ns: i64, queues: &[String], now: Timestamp, most: Param) -> Vec<Param> {
    vec![param(ns), param(queues.to_vec()), param(At(now)), most]
}

fn by_minute(ns: i64, queues: &[String], now: Timestamp, most: Param) -> Vec<Param> {
    let mut params = by_queue(ns, queues, now, most);
    params.push(param(minute(now)));
    params
}
