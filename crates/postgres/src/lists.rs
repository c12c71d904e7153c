//! Lists of tasks.

use statehold_core::Timestamp;
use statehold_core::model::Task;
use statehold_core::query::{TaskList, TaskOrder, TaskPlace};
use statehold_core::row::TaskRow;

use crate::connection::{Connection, sql};
use crate::error::Result;
use crate::rows::{Table as _, read_all};
use crate::values::{At, Param, at, id, param, value};

/// The tasks that pass the filters, in the order of some columns and then of their ids, after a place if there is one.
macro_rules! listed {
    ($than:literal, $way:literal, $column:literal: $place:literal) => {
        listed!(@ $than, $way, $place, concat!("t.", $column), $place, concat!("t.", $column, " ", $way), "$18")
    };
    ($than:literal, $way:literal, $column:literal: $place:literal, $second:literal: $then:literal) => {
        listed!(@ $than, $way, $place, concat!("t.", $column, ", t.", $second), concat!($place, ", ", $then),
            concat!("t.", $column, " ", $way, ", t.", $second, " ", $way), "$19")
    };
    (@ $than:literal, $way:literal, $first:literal, $columns:expr, $places:expr, $order:expr, $id:literal) => {
        concat!(
            sql!("task_list"),
            "    AND (", $first, " IS NULL OR (", $columns, ", t.id) ", $than, " (", $places, ", ", $id, "::uuid))\n",
            "ORDER BY ", $order, ", t.id ", $way, " LIMIT $16"
        )
    };
}

/// The same in the order of creation, which has a table of its own: each task is looked at when its turn comes.
macro_rules! by_age {
    ($than:literal, $way:literal) => {
        concat!(
            "SELECT t.* FROM task_ages a CROSS JOIN LATERAL (\n",
            sql!("task_list"),
            "    AND t.id = a.id OFFSET 0\n) t\n",
            "WHERE a.ns = $1\n",
            "    AND ($12::timestamptz IS NULL OR a.created_at >= $12)\n",
            "    AND ($13::timestamptz IS NULL OR a.created_at < $13)\n",
            "    AND ($17::timestamptz IS NULL OR (a.created_at, a.id) ",
            $than,
            " ($17, $18::uuid))\n",
            "ORDER BY a.created_at ",
            $way,
            ", a.id ",
            $way,
            " LIMIT $16"
        )
    };
}

/// Whether few tasks pass, so that an index leads to them, and they are put in order afterwards.
fn is_narrow(list: &TaskList) -> bool {
    let TaskList { thread, parent, root, owner, idempotency_key, exclusive_key, .. } = list;
    let family = parent.is_some() || root.is_some();
    let key = idempotency_key.is_some() || exclusive_key.is_some();
    let leased = owner.is_some() || list.heartbeat_from.is_some() || list.heartbeat_before.is_some();
    thread.is_some() || family || key || leased
}

/// A page of tasks, with one more to tell that there is a next one.
pub(crate) async fn list(
    db: &Connection,
    ns: i64,
    list: &TaskList,
    after: Option<TaskPlace>,
) -> Result<Vec<Task>> {
    let sql = match (list.order, list.descending) {
        (TaskOrder::Created, false) if !is_narrow(list) => by_age!(">", "ASC"),
        (TaskOrder::Created, true) if !is_narrow(list) => by_age!("<", "DESC"),
        (TaskOrder::Created, false) => listed!(">", "ASC", "created_at": "$17::timestamptz"),
        (TaskOrder::Created, true) => listed!("<", "DESC", "created_at": "$17::timestamptz"),
        (TaskOrder::Rank, false) => listed!(">", "ASC", "rank": "$17::bigint"),
        (TaskOrder::Rank, true) => listed!("<", "DESC", "rank": "$17::bigint"),
        (TaskOrder::Claim, false) => {
            listed!(">", "ASC", "priority": "$17::bigint", "run_at": "$18::timestamptz")
        }
        (TaskOrder::Claim, true) => {
            listed!("<", "DESC", "priority": "$17::bigint", "run_at": "$18::timestamptz")
        }
    };
    let mut params = filters(ns, list);
    params.extend(place(list.order, after));
    let found = read_all(&db.query(sql, params).await?, TaskRow::read)?;
    Ok(found.into_iter().map(|row| row.task).collect())
}

fn filters(ns: i64, list: &TaskList) -> Vec<Param> {
    let status: Vec<_> = list.status.iter().map(|status| status.as_str()).collect();
    vec![
        param(ns),
        param((!status.is_empty()).then_some(status)),
        param(list.queue.clone()),
        param(list.kind.clone()),
        param(list.thread.clone()),
        param(id(list.parent)),
        param(id(list.root)),
        param(list.owner.clone()),
        param(list.idempotency_key.clone()),
        param(list.exclusive_key.clone()),
        param((!list.labels.is_empty()).then(|| value(&list.labels))),
        param(at(list.created_from)),
        param(at(list.created_before)),
        param(at(list.heartbeat_from)),
        param(at(list.heartbeat_before)),
        param(i64::from(list.limit) + 1),
    ]
}

/// Where the last page ended, in the columns of the order.
fn place(order: TaskOrder, after: Option<TaskPlace>) -> Vec<Param> {
    let time = |micros| At(Timestamp::from_micros(micros));
    let last = param(after.map(|after| after.2.0));
    match order {
        TaskOrder::Created => vec![param(after.map(|after| time(after.0))), last],
        TaskOrder::Rank => vec![param(after.map(|after| after.0)), last],
        TaskOrder::Claim => {
            vec![param(after.map(|after| after.0)), param(after.map(|after| time(after.1))), last]
        }
    }
}
