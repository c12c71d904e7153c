//! Lists of tasks.

use statehold_core::Timestamp;
use statehold_core::model::Task;
use statehold_core::query::{TaskList, TaskOrder, TaskPlace};
use statehold_core::row::TaskRow;

use crate::connection::{Connection, sql};
use crate::error::Result;
use crate::rows::{Table as _, read_all};
use crate::values::{At, Param, at, id, param, value};

/// A page of tasks, with one more to tell that there is a next one.
pub(crate) async fn list(
    db: &Connection,
    ns: i64,
    list: &TaskList,
    after: Option<TaskPlace>,
) -> Result<Vec<Task>> {
    let sql = match (list.order, list.descending) {
        (TaskOrder::Created, false) => sql!("task_list_created"),
        (TaskOrder::Created, true) => sql!("task_list_created_desc"),
        (TaskOrder::Rank, false) => sql!("task_list_rank"),
        (TaskOrder::Rank, true) => sql!("task_list_rank_desc"),
        (TaskOrder::Claim, false) => sql!("task_list_claim"),
        (TaskOrder::Claim, true) => sql!("task_list_claim_desc"),
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
