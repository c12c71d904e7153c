//! Reading and listing tasks: every filter, every order, and cursors that neither skip nor repeat.

use statehold_core::command::{TaskCreate, TaskPark, TaskPurge, TaskRenew};
use statehold_core::model::{Task, TaskId};
use statehold_core::query::{Page, TaskList, TaskOrder};
use statehold_core::{Seconds, Status};

use crate::harness::{plain_create, refused};
use crate::{Case, Store, cases};

pub(super) const CASES: &[Case] = cases![
    tasks_are_read_in_the_order_of_the_ids,
    a_list_without_filters_has_every_task,
    a_list_goes_by_status,
    a_list_goes_by_names_and_keys,
    a_list_goes_by_family,
    a_list_goes_by_labels,
    a_list_goes_by_owner,
    a_list_goes_by_the_time_of_creation,
    a_list_goes_by_the_last_heartbeat,
    filters_hold_together,
    a_list_is_in_the_order_of_creation,
    a_backlog_is_in_the_order_of_rank,
    a_list_can_be_in_claim_order,
    pages_cover_everything_once_in_every_order,
    a_cursor_goes_on_when_tasks_come_and_go,
    a_cursor_goes_on_backwards_when_tasks_come_and_go,
    a_last_page_has_no_cursor,
    a_wrong_list_is_refused,
];

async fn page(store: &Store, list: &TaskList) -> Page<Task> {
    store.backend.task_list(&store.namespace, list).await.expect("the tasks are listed")
}

fn ids(page: &Page<Task>) -> Vec<TaskId> {
    page.items.iter().map(|task| task.id).collect()
}

async fn list(store: &Store, list: TaskList) -> Vec<TaskId> {
    ids(&page(store, &list).await)
}

fn every() -> TaskList {
    TaskList::default()
}

/// Creates tasks one second after another.
async fn tasks(store: &Store, count: usize) -> Vec<TaskId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(store.plain().await.id);
        store.clock.advance(1);
    }
    ids
}

async fn tasks_are_read_in_the_order_of_the_ids(store: Store) {
    let (one, two, missing) = (store.plain().await, store.plain().await, TaskId::generate());
    let ids = [two.id, missing, one.id, two.id];
    let read = store.backend.task_get(&store.namespace, &ids).await.expect("the tasks are read");
    assert_eq!(read, [Some(two.clone()), None, Some(one), Some(two)]);
    assert_eq!(store.backend.task_get(&store.namespace, &[]).await.expect("nothing is read"), []);
}

async fn a_list_without_filters_has_every_task(store: Store) {
    assert_eq!(page(&store, &every()).await, Page { items: Vec::new(), next_cursor: None });
    let expected = tasks(&store, 3).await;
    let found = page(&store, &every()).await;
    assert_eq!((ids(&found), &found.next_cursor), (expected, &None));
    for task in found.items {
        assert_eq!(store.task(task.id).await, task);
    }
}

async fn a_list_goes_by_status(store: Store) {
    let pending = store.plain().await;
    let (running, _) = store.started("w").await;
    let done = store.finish(store.plain().await.id).await;
    let of = |status: &[Status]| TaskList { status: status.to_vec(), ..every() };
    assert_eq!(list(&store, of(&[Status::Pending])).await, [pending.id]);
    assert_eq!(list(&store, of(&[Status::Completed, Status::Running])).await, [running.id, done.id]);
    assert!(list(&store, of(&[Status::Failed])).await.is_empty());
}

async fn a_list_goes_by_names_and_keys(store: Store) {
    let text = |text: &str| Some(text.to_owned());
    let create = TaskCreate {
        queue: text("special"),
        thread: text("t"),
        idempotency_key: text("i"),
        exclusive_key: text("e"),
        ..TaskCreate::new("rare")
    };
    let task = store.create(create).await;
    let other = TaskCreate { thread: text("tt"), exclusive_key: text("ee"), ..plain_create() };
    store.create(TaskCreate { idempotency_key: text("ii"), ..other }).await;
    store.plain().await;
    let lists = [
        TaskList { queue: text("special"), ..every() },
        TaskList { kind: text("rare"), ..every() },
        TaskList { thread: text("t"), ..every() },
        TaskList { idempotency_key: text("i"), ..every() },
        TaskList { exclusive_key: text("e"), ..every() },
    ];
    for asked in lists {
        assert_eq!(list(&store, asked.clone()).await, [task.id], "{asked:?}");
    }
    assert!(list(&store, TaskList { queue: text("specia"), ..every() }).await.is_empty());
    assert!(list(&store, TaskList { kind: text("RARE"), ..every() }).await.is_empty());
}

async fn a_list_goes_by_family(store: Store) {
    let top = store.plain().await;
    let child = store.child(top.id, "a").await;
    let grandchild = store.child(child.id, "b").await;
    store.plain().await;
    let of = |parent| TaskList { parent: Some(parent), ..every() };
    assert_eq!(list(&store, of(top.id)).await, [child.id]);
    assert_eq!(list(&store, of(child.id)).await, [grandchild.id]);
    assert!(list(&store, of(grandchild.id)).await.is_empty());
    let mut family = vec![top.id, child.id, grandchild.id];
    family.sort();
    assert_eq!(list(&store, TaskList { root: Some(top.id), ..every() }).await, family);
    assert!(list(&store, TaskList { root: Some(child.id), ..every() }).await.is_empty());
}

async fn a_list_goes_by_labels(store: Store) {
    let labels = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
    let both = store.create(TaskCreate { labels: labels(&[("a", "1"), ("b", "2")]), ..plain_create() }).await;
    store.clock.advance(1);
    let one = store.create(TaskCreate { labels: labels(&[("a", "1"), ("b", "3")]), ..plain_create() }).await;
    store.plain().await;
    let with = |pairs: &[(&str, &str)]| TaskList { labels: labels(pairs), ..every() };
    assert_eq!(list(&store, with(&[("a", "1")])).await, [both.id, one.id]);
    assert_eq!(list(&store, with(&[("a", "1"), ("b", "2")])).await, [both.id]);
    assert!(list(&store, with(&[("a", "2")])).await.is_empty());
    assert!(list(&store, with(&[("c", "1")])).await.is_empty());
}

async fn a_list_goes_by_owner(store: Store) {
    let (mine, token) = store.started("me").await;
    store.started("you").await;
    store.plain().await;
    let owned = TaskList { owner: Some("me".into()), ..every() };
    assert_eq!(list(&store, owned.clone()).await, [mine.id]);
    store.complete(mine.id, token).await.expect("completed");
    assert!(list(&store, owned).await.is_empty());
}

async fn a_list_goes_by_the_time_of_creation(store: Store) {
    let start = store.now();
    let ids = tasks(&store, 4).await;
    let at = |seconds| Some(start + Seconds::new(seconds));
    let from = TaskList { created_from: at(1), ..every() };
    assert_eq!(list(&store, from.clone()).await, ids[1..]);
    assert_eq!(list(&store, TaskList { created_before: at(3), ..every() }).await, ids[..3]);
    assert_eq!(list(&store, TaskList { created_before: at(3), ..from }).await, ids[1..3]);
}

async fn a_list_goes_by_the_last_heartbeat(store: Store) {
    let start = store.now();
    let (silent, _) = store.started("w").await;
    let (alive, token) = store.started("w").await;
    store.plain().await;
    store.clock.advance(20);
    let renew = TaskRenew { id: alive.id, token, lease_seconds: None, progress: None };
    store.run(renew).await.expect("the lease is renewed");
    let at = |seconds| Some(start + Seconds::new(seconds));
    assert_eq!(list(&store, TaskList { heartbeat_before: at(20), ..every() }).await, [silent.id]);
    assert_eq!(list(&store, TaskList { heartbeat_from: at(20), ..every() }).await, [alive.id]);
    assert_eq!(list(&store, TaskList { heartbeat_from: at(0), ..every() }).await.len(), 2);
    assert!(list(&store, TaskList { heartbeat_from: at(21), ..every() }).await.is_empty());
}

async fn filters_hold_together(store: Store) {
    let labels = [("a".to_owned(), "1".to_owned())];
    let create = TaskCreate { labels: labels.clone().into(), ..plain_create() };
    let task = store.create(create.clone()).await;
    store.create(TaskCreate { queue: Some("other".into()), ..create.clone() }).await;
    store.create(TaskCreate { kind: "other".into(), ..create.clone() }).await;
    store.create(TaskCreate { backlog: true, ..create }).await;
    store.plain().await;
    let asked = TaskList {
        status: vec![Status::Pending],
        queue: Some("q".into()),
        kind: Some("k".into()),
        labels: labels.into(),
        ..every()
    };
    assert_eq!(list(&store, asked).await, [task.id]);
}

async fn a_list_is_in_the_order_of_creation(store: Store) {
    let mut ids = tasks(&store, 3).await;
    // Two of one instant: ids break the tie.
    let mut same = vec![store.plain().await.id, store.plain().await.id];
    same.sort();
    ids.extend(same);
    assert_eq!(list(&store, every()).await, ids);
    ids.reverse();
    assert_eq!(list(&store, TaskList { descending: true, ..every() }).await, ids);
    assert_eq!(list(&store, TaskList { limit: 2, ..every() }).await, [ids[4], ids[3]]);
}

async fn a_backlog_is_in_the_order_of_rank(store: Store) {
    let mut expected = Vec::new();
    for rank in [5, -3, i64::MAX, 0, 5, i64::MIN] {
        let task = store.create(TaskCreate { rank: Some(rank), backlog: true, ..plain_create() }).await;
        expected.push((rank, task.id));
    }
    let task = store.plain().await;
    store.run(TaskPark { id: task.id, rank: Some(1) }).await.expect("parked");
    expected.push((1, task.id));
    expected.sort();
    let expected: Vec<_> = expected.into_iter().map(|(_, id)| id).collect();
    let backlog = TaskList { status: vec![Status::Backlog], order: TaskOrder::Rank, ..every() };
    assert_eq!(list(&store, backlog).await, expected);
}

async fn a_list_can_be_in_claim_order(store: Store) {
    let mut expected = Vec::new();
    for (priority, age) in [(2, 0), (1, 5), (-1, 0), (1, 9), (1, 5)] {
        let run_at = store.now() - Seconds::new(age);
        let create = TaskCreate { priority: Some(priority), run_at: Some(run_at), ..plain_create() };
        expected.push((priority, run_at, store.create(create).await.id));
    }
    expected.sort();
    let expected: Vec<_> = expected.into_iter().map(|(_, _, id)| id).collect();
    assert_eq!(list(&store, TaskList { order: TaskOrder::Claim, ..every() }).await, expected);
    let claimed: Vec<_> = store.claim("w", 10).await.tasks.iter().map(|task| task.id).collect();
    assert_eq!(claimed, expected);
}

async fn pages_cover_everything_once_in_every_order(store: Store) {
    for (rank, priority) in [(1, 1), (1, 0), (0, 1), (0, 0), (1, 1), (0, 0), (2, 0)] {
        let create = TaskCreate { rank: Some(rank), priority: Some(priority), ..plain_create() };
        store.create(create).await;
    }
    for order in [TaskOrder::Created, TaskOrder::Rank, TaskOrder::Claim] {
        for descending in [false, true] {
            let whole = list(&store, TaskList { order, descending, ..every() }).await;
            assert_eq!(whole.len(), 7);
            let (mut found, mut cursor) = (Vec::new(), None);
            for _ in 0..4 {
                let next = page(&store, &TaskList { order, descending, limit: 2, cursor, ..every() }).await;
                found.extend(ids(&next));
                cursor = next.next_cursor;
            }
            assert_eq!((found, cursor), (whole, None), "{order:?}, descending: {descending}");
        }
    }
}

async fn a_cursor_goes_on_when_tasks_come_and_go(store: Store) {
    let mut all = tasks(&store, 6).await;
    let first = page(&store, &TaskList { limit: 2, ..every() }).await;
    assert_eq!(ids(&first), all[..2]);
    for gone in [all[0], all[1], all[3]] {
        store.finish(gone).await;
        store.run(TaskPurge { id: gone }).await.expect("purged");
    }
    all.push(store.plain().await.id);
    let second = page(&store, &TaskList { limit: 2, cursor: first.next_cursor, ..every() }).await;
    assert_eq!(ids(&second), [all[2], all[4]]);
    let third = page(&store, &TaskList { limit: 2, cursor: second.next_cursor, ..every() }).await;
    assert_eq!((ids(&third), third.next_cursor), (vec![all[5], all[6]], None));
}

async fn a_cursor_goes_on_backwards_when_tasks_come_and_go(store: Store) {
    let all = tasks(&store, 5).await;
    let newest = TaskList { limit: 2, descending: true, ..every() };
    let first = page(&store, &newest).await;
    assert_eq!(ids(&first), [all[4], all[3]]);
    store.plain().await;
    store.cancel(all[3]).await.expect("cancelled");
    store.run(TaskPurge { id: all[3] }).await.expect("purged");
    let second = page(&store, &TaskList { cursor: first.next_cursor, ..newest }).await;
    assert_eq!(ids(&second), [all[2], all[1]]);
}

async fn a_last_page_has_no_cursor(store: Store) {
    tasks(&store, 2).await;
    assert_eq!(page(&store, &TaskList { limit: 2, ..every() }).await.next_cursor, None);
    assert!(page(&store, &TaskList { limit: 1, ..every() }).await.next_cursor.is_some());
}

async fn a_wrong_list_is_refused(store: Store) {
    let wrong = [
        TaskList { limit: 0, ..every() },
        TaskList { limit: 1001, ..every() },
        TaskList { cursor: Some("not a cursor".into()), ..every() },
    ];
    for asked in wrong {
        refused(store.backend.task_list(&store.namespace, &asked).await, "invalid");
    }
}
