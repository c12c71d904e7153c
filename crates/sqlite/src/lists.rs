//! Lists of tasks.

use std::collections::BTreeMap;

use rusqlite::{Params, Result, params};
use statehold_core::Status;
use statehold_core::model::{Task, TaskId};
use statehold_core::query::{TaskList, TaskOrder, TaskPlace};
use uuid::Uuid;

use crate::rows::{More, id};
use crate::statements::{Db, Sql, sql};
use crate::tasks::read;

/// So many pending tasks are found sooner among all tasks than by gathering them.
const MANY: i64 = 10_000;

/// A page of tasks, with one more to tell that there is a next one.
pub(crate) fn list(db: Db<'_, '_>, ns: i64, list: &TaskList, after: Option<TaskPlace>) -> Result<Vec<Task>> {
    let mut page = Listing { list, after, tasks: BTreeMap::new() };
    let narrow = [
        ("idempotency", list.idempotency_key.clone()),
        ("child", list.parent.map(|parent| parent.to_string())),
        ("root", list.root.map(|root| root.to_string())),
        ("thread", list.thread.clone()),
        ("exclusive", list.exclusive_key.clone()),
    ];
    if let Some((by, key)) = narrow.into_iter().find_map(|(by, key)| Some((by, key?))) {
        let nil = id(TaskId(Uuid::nil()));
        let found = params![ns, by, key, i64::MIN, i64::MIN, nil, i64::MAX];
        page.gather(db, sql!("tasks_found"), found)?;
        if by == "root" {
            page.gather(db, sql!("task_get"), params![ns, key, None::<i64>])?;
        }
    } else {
        page.scan(db, ns)?;
    }
    let tasks = page.tasks.into_values();
    Ok(if list.descending { tasks.rev().collect() } else { tasks.collect() })
}

/// The tasks of a page, as far as they are found.
struct Listing<'a> {
    list: &'a TaskList,
    after: Option<TaskPlace>,
    tasks: BTreeMap<TaskPlace, Task>,
}

impl Listing<'_> {
    fn wants(&self, place: TaskPlace) -> bool {
        let beyond = |after: TaskPlace| if self.list.descending { place < after } else { place > after };
        self.after.is_none_or(beyond)
    }

    fn is_full(&self) -> bool {
        self.tasks.len() > self.list.limit as usize
    }

    /// Takes the first of whatever comes, in no order.
    fn gather(&mut self, db: Db<'_, '_>, sql: Sql, params: impl Params) -> Result<()> {
        db.each(sql, params, |cells| {
            let task = read(cells)?.task;
            let place = self.list.place_of(&task);
            if self.list.matches(&task) && self.wants(place) {
                if self.is_full() {
                    self.tasks.insert(place, task);
                    if self.list.descending {
                        self.tasks.pop_first()
                    } else {
                        self.tasks.pop_last()
                    };
                } else {
                    self.tasks.insert(place, task);
                }
            }
            Ok(More::Please)
        })
    }

    /// Takes tasks that have not ended by the indexes of what they are at; false if those are too many for that.
    fn gather_open(&mut self, db: Db<'_, '_>, ns: i64) -> Result<bool> {
        let leased = self.list.owner.is_some()
            || self.list.heartbeat_from.is_some()
            || self.list.heartbeat_before.is_some();
        let asked = if leased { &[Status::Running][..] } else { &self.list.status };
        if asked.is_empty() || asked.iter().any(|status| status.is_terminal()) {
            return Ok(false);
        }
        let asked = |status| asked.contains(&status);
        let mut found = Vec::new();
        if asked(Status::Pending) {
            let pending = db.first(sql!("count_pending"), [ns], |cells| cells.get::<i64>())?;
            if pending.unwrap_or_default() > MANY {
                return Ok(false);
            }
            self.gather(db, sql!("task_list_ready"), [ns])?;
            found.extend(["timer", "in_line"]);
        }
        if asked(Status::Running) {
            self.gather(db, sql!("task_list_leased"), [ns])?;
        }
        if asked(Status::Backlog) || asked(Status::Blocked) || asked(Status::Waiting) {
            found.push("parked");
        }
        for by in found {
            self.gather(db, sql!("tasks_found_all"), params![ns, by])?;
        }
        Ok(true)
    }

    /// Takes what comes in the order of creation, until the page is full.
    fn scan(&mut self, db: Db<'_, '_>, ns: i64) -> Result<()> {
        if self.gather_open(db, ns)? {
            return Ok(());
        }
        let ended_badly = |status: &Status| matches!(status, Status::Failed | Status::Cancelled);
        let badly = !self.list.status.is_empty() && self.list.status.iter().all(ended_badly);
        let descending = self.list.descending;
        let first = if self.list.descending {
            (i64::MAX, 0, TaskId(Uuid::max()))
        } else {
            (i64::MIN, 0, TaskId(Uuid::nil()))
        };
        let ordered = self.list.order == TaskOrder::Created;
        let start =
            self.after.filter(|_| ordered).or_else(|| self.bound().filter(|_| ordered)).unwrap_or(first);
        let (created_at, after) = (start.0, id(start.2));
        let listed = params![ns, created_at, after];
        let found = params![ns, "ended_badly", "", created_at, 0, after, i64::MAX];
        let (sql, params) = match (descending, badly) {
            (false, true) => (sql!("tasks_found"), found),
            (true, true) => (sql!("tasks_found_desc"), &found[..6]),
            (false, false) => (sql!("task_list_created"), listed),
            (true, false) => (sql!("task_list_created_desc"), listed),
        };
        if !ordered {
            return self.gather(db, sql, params);
        }
        db.each(sql, params, |cells| {
            let task = read(cells)?.task;
            if self.is_past(&task) {
                return Ok(More::Enough);
            }
            if self.list.matches(&task) {
                self.tasks.insert(self.list.place_of(&task), task);
            }
            Ok(if self.is_full() { More::Enough } else { More::Please })
        })
    }

    /// Where a list begins that asks for a time of creation.
    fn bound(&self) -> Option<TaskPlace> {
        if self.list.descending {
            self.list.created_before.map(|before| (before.as_micros(), 0, TaskId(Uuid::nil())))
        } else {
            let from = self.list.created_from.map(|from| from.as_micros().saturating_sub(1));
            from.map(|from| (from, 0, TaskId(Uuid::max())))
        }
    }

    /// Whether no later task can have the time of creation that was asked for.
    fn is_past(&self, task: &Task) -> bool {
        if self.list.descending {
            self.list.created_from.is_some_and(|from| task.created_at < from)
        } else {
            self.list.created_before.is_some_and(|before| task.created_at >= before)
        }
    }
}
