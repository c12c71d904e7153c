//! Lists: parts of the index with their rows, page after page.

use statehold_core::model::Task;
use statehold_core::query::{KeyList, TaskList, TaskOrder, TaskPlace};
use statehold_core::row::TaskRow;
use statehold_core::{Status, Timestamp};

use crate::connection::{RowKey, read_bytes, read_found};
use crate::error::Result;
use crate::rows::{Table, body, read};
use crate::snapshot::Scene;
use crate::space::{Member, Range};
use crate::tasks;

/// How many rows are read in one go while most of them may not be wanted.
const SOME: usize = 500;

/// Which part of the index.
pub(crate) struct Page {
    pub(crate) range: Range,
    /// How many at most.
    pub(crate) limit: usize,
    pub(crate) backwards: bool,
}

/// The first rows of a range that match, where members are keys of rows.
pub(crate) async fn scan<R: Table>(
    scene: &Scene<'_>,
    page: Page,
    matches: impl Fn(&R) -> bool,
) -> Result<Vec<R>> {
    walk(scene, page, RowKey::OWN, matches).await
}

async fn walk<R: Table>(
    scene: &Scene<'_>,
    page: Page,
    key: RowKey,
    matches: impl Fn(&R) -> bool,
) -> Result<Vec<R>> {
    let Page { mut range, limit, backwards } = page;
    let (mut matching, mut some) = (Vec::new(), limit.min(SOME));
    loop {
        let call = scene.db.range_either_way(scene.space, &range, some, key, backwards);
        let found = read_found(scene.db.call(&call).await?)?;
        let last = found.members.last().filter(|_| found.members.len() == some);
        let next =
            last.map(|last| if backwards { range.clone().before(last) } else { range.clone().after(last) });
        for stored in found.rows.into_iter().flatten() {
            let row = read(&stored)?;
            if matches(&row) {
                matching.push(row);
            }
            if matching.len() == limit {
                return Ok(matching);
            }
        }
        let Some(next) = next else { return Ok(matching) };
        (range, some) = (next, SOME);
    }
}

/// The rows of a page of keys, and one more to tell that there is a next one.
pub(crate) async fn by_key<R: Table>(
    scene: &Scene<'_>,
    list: &KeyList,
    after: Option<String>,
    matches: impl Fn(&R) -> bool,
) -> Result<Vec<R>> {
    let prefix = Member::new(R::LETTER);
    let mut range = Range::of(&prefix.clone().bytes(list.prefix.as_bytes()));
    if let Some(after) = after {
        range = range.after(&prefix.bytes(after.as_bytes()).0);
    }
    scan(scene, Page { range, limit: list.limit as usize + 1, backwards: false }, matches).await
}

/// The tasks of a page, and one more to tell that there is a next one.
pub(crate) async fn tasks(scene: &Scene<'_>, list: &TaskList, after: Option<TaskPlace>) -> Result<Vec<Task>> {
    let place = |task: &Task| list.place_of(task);
    let matches = |row: &TaskRow| {
        let place = place(&row.task);
        let beyond = after.is_none_or(|after| if list.descending { place < after } else { place > after });
        list.matches(&row.task) && beyond
    };
    let mut found = Vec::new();
    if let Some(key) = &list.idempotency_key {
        found.extend(by_idempotency_key(scene, key).await?.filter(matches));
    } else {
        let in_order = list.order == TaskOrder::Created && list.parent.is_none();
        let limit = if in_order { list.limit as usize + 1 } else { usize::MAX };
        for range in ranges(list, after) {
            let page = Page { range, limit, backwards: in_order && list.descending };
            found.extend(walk(scene, page, RowKey::TASK, matches).await?);
        }
    }
    let mut found: Vec<_> = found.into_iter().map(|row: TaskRow| row.task).collect();
    found.sort_by_key(place);
    if list.descending {
        found.reverse();
    }
    found.truncate(list.limit as usize + 1);
    Ok(found)
}

async fn by_idempotency_key(scene: &Scene<'_>, key: &str) -> Result<Option<TaskRow>> {
    let get = |tail: &[u8]| {
        let mut get = redis::cmd("GET");
        get.arg(scene.space.key(tail));
        get
    };
    let Some(unique) = read_bytes(scene.db.call(&get(&tasks::idempotency(key))).await?)? else {
        return Ok(None);
    };
    let id = tail_of_id(body(&unique));
    read_bytes(scene.db.call(&get(&id)).await?)?.map(|row| read(&row)).transpose()
}

/// The key of the row of a task whose id was stored.
fn tail_of_id(id: &[u8]) -> Vec<u8> {
    [&[TaskRow::LETTER], id].concat()
}

/// Where the tasks of a list may be.
fn ranges(list: &TaskList, after: Option<TaskPlace>) -> Vec<Range> {
    if let Some(parent) = list.parent {
        return vec![Range::of(&tasks::child(parent))];
    }
    let wanted = |ended: bool| {
        list.status.is_empty() || list.status.iter().any(|status: &Status| status.is_terminal() == ended)
    };
    let mut ranges = Vec::new();
    for ended in [false, true].into_iter().filter(|ended| wanted(*ended)) {
        let prefix = tasks::created(ended);
        let at = |time: Timestamp| prefix.clone().time(time);
        let mut range = Range::of(&prefix);
        if let Some(before) = list.created_before {
            range = range.before(&at(before).0);
        }
        if let Some((time, _, id)) = after.filter(|_| list.order == TaskOrder::Created) {
            let end = at(Timestamp::from_micros(time)).id(id);
            range = if list.descending { range.before(&end.0) } else { range.after(&end.0) };
        }
        if let Some(from) = list.created_from {
            range = range.from(&at(from).0);
        }
        ranges.push(range);
    }
    ranges
}
