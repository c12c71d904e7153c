//! Categories: one order over all streams of a category, and cursors that miss nothing.

use std::collections::BTreeMap;

use statehold_core::command::{StreamTrim, TaskPurge, TrimTo};
use statehold_core::model::{Event, Position, StreamName};
use statehold_core::query::{CategoryFrom, CategoryPage, CategoryRead};
use statehold_core::{ErrorKind, Result};

use crate::harness::{Store, appending, at_once, refused, stream};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_category_holds_all_its_streams_in_one_order,
    a_category_holds_no_other_streams,
    a_cursor_goes_on_exactly_after_its_page,
    an_empty_category_gives_a_cursor_to_tail_from,
    latest_answers_no_events_and_a_cursor,
    a_cursor_at_the_end_stays_good,
    positions_put_events_in_the_order_that_is_read,
    lifecycle_events_are_in_category_task,
    reading_after_a_trimmed_cursor_is_compacted,
    a_page_that_began_after_a_trim_is_read_to_its_end,
    a_trim_behind_a_cursor_does_not_disturb_it,
    a_trim_after_a_cursor_is_told_whatever_was_trimmed_later,
    the_latest_of_a_trimmed_category_can_be_tailed,
    a_purged_task_compacts_the_category,
    a_batch_is_in_the_category_as_a_whole,
    many_writers_and_a_tailing_reader_miss_nothing,
];

async fn read(store: &Store, category: &str, from: CategoryFrom, limit: u32) -> Result<CategoryPage> {
    let read = CategoryRead { category: category.into(), from, limit };
    store.backend.category_read(&store.namespace, &read).await
}

async fn all(store: &Store, category: &str) -> Vec<Event> {
    read(store, category, CategoryFrom::Oldest, 1000).await.expect("the category is read").events
}

/// Goes through a category page by page until a page is empty.
async fn walk(store: &Store, category: &str, limit: u32) -> Vec<Event> {
    let mut page = read(store, category, CategoryFrom::Oldest, limit).await.expect("read");
    let mut events = Vec::new();
    while !page.events.is_empty() {
        assert!(page.events.len() <= limit as usize);
        events.append(&mut page.events);
        page = read(store, category, CategoryFrom::After(page.cursor), limit).await.expect("read");
    }
    events
}

/// Whether each stream is in its own order, from its first event on and without a gap.
fn in_order(events: &[Event]) -> bool {
    let mut heads: BTreeMap<&StreamName, u64> = BTreeMap::new();
    events.iter().all(|event| {
        let head = heads.entry(&event.stream).or_default();
        *head += 1;
        *head == event.seq
    })
}

async fn a_category_holds_all_its_streams_in_one_order(store: Store) {
    for kind in ["a", "b", "c"] {
        for name in ["run/2", "run/1", "run/3/4"] {
            store.append(name, &[kind, kind]).await;
        }
    }
    let events = all(&store, "run").await;
    assert_eq!(events.len(), 18);
    assert!(in_order(&events), "{events:?}");
    for limit in [1, 5, 18] {
        assert_eq!(walk(&store, "run", limit).await, events, "the order is the same for every reader");
    }
    let own: Vec<_> = events.into_iter().filter(|event| event.stream == stream("run/1")).collect();
    assert_eq!(
        own,
        store.events(&stream("run/1")).await,
        "an event is the same in its stream and its category"
    );
}

async fn a_category_holds_no_other_streams(store: Store) {
    for name in ["run/1", "runs/1", "ru/n", "RUN/1", "r/run", "run-1/1", "run.x/1", "run /1"] {
        store.append(name, &["a"]).await;
    }
    let events = all(&store, "run").await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].stream, stream("run/1"));
    assert_eq!(all(&store, "none").await, []);
}

async fn a_cursor_goes_on_exactly_after_its_page(store: Store) {
    store.append("run/1", &["a", "b", "c"]).await;
    let page = read(&store, "run", CategoryFrom::Oldest, 2).await.expect("read");
    store.append("run/0", &["d"]).await;
    let next = read(&store, "run", CategoryFrom::After(page.cursor.clone()), 10).await.expect("read");
    let kinds: Vec<_> = next.events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["c", "d"]);
    let by_event = CategoryFrom::After(page.events[1].position.clone().into());
    assert_eq!(read(&store, "run", by_event, 10).await.expect("read").events, next.events);
}

async fn an_empty_category_gives_a_cursor_to_tail_from(store: Store) {
    for from in [CategoryFrom::Oldest, CategoryFrom::Latest, CategoryFrom::After(Position::default().into())]
    {
        let category = format!("run{}", store.now().as_micros());
        let page = read(&store, &category, from, 10).await.expect("read");
        assert_eq!(page.events, []);
        store.append(&format!("{category}/1"), &["a"]).await;
        let next = read(&store, &category, CategoryFrom::After(page.cursor), 10).await.expect("read");
        assert_eq!(next.events.len(), 1, "what comes later is not missed");
        store.clock.advance(1);
    }
}

async fn latest_answers_no_events_and_a_cursor(store: Store) {
    store.append("run/1", &["a", "b"]).await;
    let page = read(&store, "run", CategoryFrom::Latest, 10).await.expect("read");
    assert_eq!(page.events, []);
    store.append("run/2", &["c"]).await;
    let next = read(&store, "run", CategoryFrom::After(page.cursor), 10).await.expect("read");
    assert_eq!(next.events.len(), 1);
    assert_eq!(next.events[0].kind, "c");
}

async fn a_cursor_at_the_end_stays_good(store: Store) {
    store.append("run/1", &["a"]).await;
    let mut cursor = read(&store, "run", CategoryFrom::Oldest, 10).await.expect("read").cursor;
    for _ in 0..3 {
        let page = read(&store, "run", CategoryFrom::After(cursor), 10).await.expect("read");
        assert_eq!(page.events, []);
        cursor = page.cursor;
    }
    store.append("other/1", &["x"]).await;
    store.append("run/1", &["b"]).await;
    let page = read(&store, "run", CategoryFrom::After(cursor), 10).await.expect("read");
    assert_eq!(page.events.len(), 1);
    assert_eq!((page.events[0].seq, page.events[0].kind.as_str()), (2, "b"));
}

async fn positions_put_events_in_the_order_that_is_read(store: Store) {
    for name in ["run/b", "run/a", "run/b", "run/c"] {
        store.append(name, &["x", "y"]).await;
        store.clock.rewind(10);
    }
    let events = all(&store, "run").await;
    assert_eq!(events.len(), 8);
    assert!(events.windows(2).all(|pair| pair[0].position.0.as_bytes() < pair[1].position.0.as_bytes()));
}

async fn lifecycle_events_are_in_category_task(store: Store) {
    let one = store.plain().await;
    let two = store.plain().await;
    store.finish(one.id).await;
    let events = all(&store, "task").await;
    let kinds = |stream: StreamName| -> Vec<_> {
        events.iter().filter(|event| event.stream == stream).map(|event| event.kind.as_str()).collect()
    };
    assert_eq!(kinds(StreamName::of_task(one.id)), ["task.created", "task.started", "task.completed"]);
    assert_eq!(kinds(StreamName::of_task(two.id)), ["task.created"]);
    assert!(in_order(&events));
}

async fn reading_after_a_trimmed_cursor_is_compacted(store: Store) {
    let before = read(&store, "run", CategoryFrom::Latest, 10).await.expect("read").cursor;
    store.append("run/1", &["a"]).await;
    store.append("run/2", &["b"]).await;
    store.append("run/1", &["c"]).await;
    store.append("run/2", &["d"]).await;
    let events = all(&store, "run").await;
    store.run(StreamTrim { stream: stream("run/1"), to: TrimTo::Length(0) }).await.expect("trimmed");
    let trimmed = events[2].position.clone();
    for cursor in [before, events[0].position.clone().into(), events[1].position.clone().into()] {
        let error = refused(read(&store, "run", CategoryFrom::After(cursor), 10).await, "compacted");
        assert_eq!(error.kind(), &ErrorKind::Compacted { oldest: trimmed.0.clone() });
    }
    let page = read(&store, "run", CategoryFrom::After(trimmed.into()), 10)
        .await
        .expect("nothing is missing after that");
    assert_eq!(page.events, events[3..]);
    let page =
        read(&store, "run", CategoryFrom::After(events[3].position.clone().into()), 10).await.expect("read");
    assert_eq!(page.events, []);
}

async fn a_page_that_began_after_a_trim_is_read_to_its_end(store: Store) {
    store.append("run/1", &["a"]).await;
    store.append("run/2", &["b", "c"]).await;
    store.append("run/1", &["d"]).await;
    store.run(StreamTrim { stream: stream("run/1"), to: TrimTo::Length(0) }).await.expect("trimmed");
    let first = read(&store, "run", CategoryFrom::Oldest, 1).await.expect("read");
    let second = read(&store, "run", CategoryFrom::After(first.cursor.clone()), 1).await.expect("read on");
    assert_eq!((first.events[0].kind.as_str(), second.events[0].kind.as_str()), ("b", "c"));
    store.append("run/2", &["e"]).await;
    store.run(StreamTrim { stream: stream("run/2"), to: TrimTo::Length(0) }).await.expect("trimmed");
    refused(read(&store, "run", CategoryFrom::After(second.cursor), 1).await, "compacted");
}

async fn a_trim_behind_a_cursor_does_not_disturb_it(store: Store) {
    for name in ["run/1", "run/2", "run/2", "run/3"] {
        store.append(name, &["a"]).await;
    }
    let trim = |name: &str| StreamTrim { stream: stream(name), to: TrimTo::Length(0) };
    store.run(trim("run/3")).await.expect("trimmed");
    let page = read(&store, "run", CategoryFrom::Oldest, 2).await.expect("read");
    store.run(trim("run/1")).await.expect("trimmed");
    let next = read(&store, "run", CategoryFrom::After(page.cursor), 2).await;
    let next = next.expect("what was trimmed since stood before the cursor").events;
    assert_eq!(next.len(), 1);
    assert_eq!((&next[0].stream, next[0].seq), (&stream("run/2"), 2));
}

async fn a_trim_after_a_cursor_is_told_whatever_was_trimmed_later(store: Store) {
    store.append("run/1", &["a"]).await;
    let cursor = read(&store, "run", CategoryFrom::Oldest, 1).await.expect("read").cursor;
    store.append("run/2", &["b"]).await;
    let missed = store.events(&stream("run/2")).await.remove(0).position;
    for name in ["run/2", "run/1"] {
        let trim = StreamTrim { stream: stream(name), to: TrimTo::Length(0) };
        store.run(trim).await.expect("trimmed");
        let error = refused(read(&store, "run", CategoryFrom::After(cursor.clone()), 1).await, "compacted");
        assert_eq!(error.kind(), &ErrorKind::Compacted { oldest: missed.0.clone() });
    }
}

async fn the_latest_of_a_trimmed_category_can_be_tailed(store: Store) {
    store.append("run/1", &["a", "b"]).await;
    store.run(StreamTrim { stream: stream("run/1"), to: TrimTo::Length(0) }).await.expect("trimmed");
    let cursor = read(&store, "run", CategoryFrom::Latest, 1).await.expect("read").cursor;
    let strict = CategoryFrom::After(cursor.position.clone().into());
    assert_eq!(read(&store, "run", strict, 1).await.expect("nothing after it was ever trimmed").events, []);
    store.append("run/2", &["c"]).await;
    let page = read(&store, "run", CategoryFrom::After(cursor), 1).await.expect("read");
    assert_eq!(page.events[0].kind, "c");
}

async fn a_purged_task_compacts_the_category(store: Store) {
    let task = store.plain().await;
    let other = store.plain().await;
    let first = all(&store, "task").await.remove(0).position;
    store.finish(task.id).await;
    store.run(TaskPurge { id: task.id }).await.expect("purged");
    refused(read(&store, "task", CategoryFrom::After(first.into()), 10).await, "compacted");
    let left = all(&store, "task").await;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].stream, StreamName::of_task(other.id));
}

async fn a_batch_is_in_the_category_as_a_whole(store: Store) {
    let tailing = store.clone();
    let reader = tokio::spawn(async move {
        let mut most = 0;
        while most < 40 {
            let events = all(&tailing, "run").await;
            assert_eq!(events.len() % 4, 0, "a batch is there whole or not at all");
            most = events.len();
            tokio::task::yield_now().await;
        }
    });
    for _ in 0..10 {
        let mut batch = store.batch();
        batch.add(appending("run/1", &["a", "b"]));
        batch.add(appending("run/2", &["c", "d"]));
        store.apply(batch).await.expect("appended");
    }
    reader.await.expect("the reader ends");
}

async fn many_writers_and_a_tailing_reader_miss_nothing(store: Store) {
    const WRITERS: usize = 12;
    const EACH: usize = 20;
    let mut cursor = read(&store, "run", CategoryFrom::Latest, 1).await.expect("read").cursor;
    let tailing = store.clone();
    let reader = tokio::spawn(async move {
        let mut seen = Vec::new();
        while seen.len() < WRITERS * EACH {
            let page = read(&tailing, "run", CategoryFrom::After(cursor), 7).await.expect("read");
            seen.extend(page.events);
            cursor = page.cursor;
            tokio::task::yield_now().await;
        }
        seen
    });
    at_once(WRITERS, |writer| {
        let store = store.clone();
        async move {
            for n in 0..EACH {
                store.append(&format!("run/{}", writer % 4), &[&format!("{writer}/{n}")]).await;
            }
        }
    })
    .await;
    let written = all(&store, "run").await;
    let seen = reader.await.expect("the reader ends");
    assert_eq!(seen.len(), WRITERS * EACH);
    assert!(in_order(&seen));
    assert_eq!(seen, written, "nothing was inserted behind the reader");
}
