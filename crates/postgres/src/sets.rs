//! The sets of tasks that plans ask for, each from an index.

use std::collections::BTreeMap;
use std::sync::Arc;

use statehold_core::Timestamp;
use statehold_core::model::TaskId;
use statehold_core::plan::{Found, TaskSet};
use statehold_core::row::TaskRow;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::connection::{Call, Hold, Reading, reading, sql};
use crate::error::Result;
use crate::rows::Table as _;
use crate::tasks::minute;
use crate::values::{At, Cells, Param, column, id, limit, param};

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
    /// Whether there are no others.
    pub(crate) complete: bool,
}

impl Members {
    /// What is in a set, of what a statement that was asked for one more than `most` answered.
    fn read(set: &TaskSet, found: Vec<TaskRow>, most: usize, now: Timestamp) -> Self {
        let complete = found.len() <= most;
        let rows = found.into_iter().filter(|row| set.contains(row, now));
        let sorted: BTreeMap<_, _> = rows.map(|row| (set.place(&row), Arc::new(row))).collect();
        Self { rows: sorted.into_values().collect(), most, complete }
    }

    /// Whether enough were asked for. A plan asks for more when plans before it in the same commit changed some of those
    /// that it was told of: then what is there may do, as long as it has not asked for twice as many.
    pub(crate) fn are_enough(&self, limit: usize, changed: usize) -> bool {
        limit <= self.most * 2 + changed || self.complete
    }

    /// All that were found.
    pub(crate) fn found(&self) -> Found<TaskId> {
        Found { keys: self.rows.iter().map(|row| row.task.id).collect(), complete: self.complete }
    }
}

/// Whether the rows of a set are read without being held: nobody writes them for having found them there.
pub(crate) fn is_loose(set: &TaskSet) -> bool {
    matches!(set, TaskSet::Upcoming { .. })
}

/// Whether a set leaves out what another transaction holds, which then sees to it.
pub(crate) fn leaves_out(set: &TaskSet) -> bool {
    matches!(set, TaskSet::Ready { .. } | TaskSet::Due { .. } | TaskSet::LeaseOver { .. })
}

/// A statement that looks for sets.
pub(crate) struct Seek {
    pub(crate) call: Call,
    pub(crate) sets: Sought,
}

/// The sets that a statement looks for, with how many of each.
pub(crate) struct Sought {
    sets: Vec<(TaskSet, usize)>,
    /// Whether the first column tells of which set a row is.
    numbered: bool,
}

impl Sought {
    /// The members that the statement found.
    pub(crate) fn read(self, found: &[Row], now: Timestamp) -> Result<Vec<(TaskSet, Members)>> {
        let mut rows: Vec<Vec<TaskRow>> = vec![Vec::new(); self.sets.len()];
        for row in found {
            let mut cells = Cells::new(row);
            let place = if self.numbered { cells.number::<usize>()? } else { 1 };
            if let Some(rows) = rows.get_mut(place - 1) {
                rows.push(TaskRow::read(&mut cells)?);
            }
        }
        let sets = self.sets.into_iter().zip(rows);
        Ok(sets
            .map(|((set, most), rows)| {
                let members = Members::read(&set, rows, most, now);
                (set, members)
            })
            .collect())
    }
}

/// The statements that find the first so many tasks of each set, and one more. Those that ask the same of several
/// tasks or claims are one.
pub(crate) fn seek(ns: i64, wanted: BTreeMap<TaskSet, usize>, now: Timestamp, hold: Hold) -> Vec<Seek> {
    let (mut seeks, mut claims, mut tasks) = (Vec::new(), Vec::new(), BTreeMap::<_, Vec<_>>::new());
    for (set, most) in wanted {
        match question(ns, &set, most, now, hold) {
            Question::Alone(call) => {
                seeks.push(Seek { call, sets: Sought { sets: vec![(set, most)], numbered: false } });
            }
            Question::OfClaim(owner, key) => claims.push((set, most, owner, key)),
            Question::OfTask(sql, of, after) => tasks.entry(sql).or_default().push((set, most, of, after)),
        }
    }
    if !claims.is_empty() {
        seeks.push(many(ns, CLAIMED.holding(hold), claims));
    }
    seeks.extend(tasks.into_iter().map(|(sql, questions)| many(ns, sql, questions)));
    seeks
}

/// The statement that asks several such questions.
fn many<A, B>(ns: i64, sql: &'static str, questions: Vec<(TaskSet, usize, A, B)>) -> Seek
where
    A: ToSql + Clone + PartialEq + Sync + Send + 'static,
    B: ToSql + Clone + PartialEq + Sync + Send + 'static,
{
    let params = vec![
        param(ns),
        column(&questions, |question| question.2.clone()),
        column(&questions, |question| question.3.clone()),
        column(&questions, |question| limit(question.1 + 1)),
    ];
    let sets = questions.into_iter().map(|(set, most, ..)| (set, most)).collect();
    Seek { call: Call::new(sql, params), sets: Sought { sets, numbered: true } }
}

/// How a set is asked for.
enum Question {
    /// By a statement of its own.
    Alone(Call),
    /// By whose claim and its key.
    OfClaim(String, String),
    /// By a statement, of which task, and after which one.
    OfTask(&'static str, Uuid, Option<Uuid>),
}

/// How the first `most` tasks of a set and one more are asked for. What is ready or due is left out if another
/// transaction holds it, which then sees to it.
fn question(ns: i64, set: &TaskSet, most: usize, now: Timestamp, hold: Hold) -> Question {
    let most = param(limit(most + 1));
    let of_task =
        |reading: Reading, of: TaskId, after| Question::OfTask(reading.holding(hold), of.0, id(after));
    let call = match set {
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
        TaskSet::Contenders { key, skip } => {
            let params = vec![param(ns), param(key.clone()), param(skip.clone()), param(At(now)), most];
            Call::new(CONTENDERS.holding(hold), params)
        }
        TaskSet::Keyed { queue, after } => {
            let params = vec![param(ns), param(queue.clone()), param(id(*after)), most];
            Call::new(KEYED.holding(hold), params)
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
        TaskSet::Claimed { owner, key } => return Question::OfClaim(owner.clone(), key.clone()),
        TaskSet::Dependents { of, after } => return of_task(DEPENDENTS, *of, *after),
        TaskSet::LiveDependents { of } => return of_task(LIVE_DEPENDENTS, *of, None),
        TaskSet::FailedBy { of, after } => return of_task(FAILED_BY, *of, *after),
        TaskSet::Children { of, after } => return of_task(CHILDREN, *of, *after),
    };
    Question::Alone(call)
}

fn by_queue(ns: i64, queues: &[String], now: Timestamp, most: Param) -> Vec<Param> {
    vec![param(ns), param(queues.to_vec()), param(At(now)), most]
}

fn by_minute(ns: i64, queues: &[String], now: Timestamp, most: Param) -> Vec<Param> {
    let mut params = by_queue(ns, queues, now, most);
    params.push(param(minute(now)));
    params
}
