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

/// A page of tasks, with one more to tell that there is a next one.
pub(crate) async fn list(
    db: &Connection,
    ns: i64,
    list: &TaskList,
    after: Option<TaskPlace>,
) -> Result<Vec<Task>> {
    let sql = match (list.order, list.descending) {
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
