//! Entries: values with a time to live, and the one taker of each.

use statehold_core::call::Sweep;
use statehold_core::command::{EntryDelete, EntryExpiry, EntrySet, EntryTake, Existed};
use statehold_core::dump::Record;
use statehold_core::error::Place;
use statehold_core::model::Entry;
use statehold_core::query::{KeyList, Page};
use statehold_core::{Batch, Result};

use crate::harness::{Store, at_once, json, refused};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    an_entry_carries_what_was_set,
    an_entry_stays_an_hour_unless_said_otherwise,
    setting_again_replaces_value_and_time,
    setting_only_if_absent_leaves_what_is_there,
    an_expired_entry_is_absent,
    an_entry_is_taken_once,
    an_expired_entry_is_neither_taken_nor_deleted,
    deleting_tells_whether_it_was_there,
    an_expired_entry_is_not_there_before_a_sweep,
    a_sweep_removes_expired_entries,
    entries_are_listed_by_prefix_in_the_order_of_bytes,
    entries_are_listed_page_by_page,
    of_many_takers_one_gets_it,
    of_many_who_set_if_absent_one_wins,
];

fn set(key: &str, value: &str) -> EntrySet {
    EntrySet { ttl_seconds: 60.into(), ..EntrySet::new(key, json(value)) }
}

async fn get(store: &Store, key: &str) -> Option<Entry> {
    store.backend.entry_get(&store.namespace, key).await.expect("the entry is read")
}

async fn take(store: &Store, key: &str) -> Option<Entry> {
    store.run(EntryTake { key: key.into() }).await.expect("the take is answered").entry
}

async fn list(store: &Store, list: KeyList) -> Page<Entry> {
    store.backend.entry_list(&store.namespace, &list).await.expect("listed")
}

async fn keys(store: &Store, prefix: &str) -> Vec<String> {
    let page = list(store, KeyList { prefix: prefix.into(), ..KeyList::default() }).await;
    page.items.into_iter().map(|entry| entry.key).collect()
}

async fn an_entry_carries_what_was_set(store: Store) {
    store.clock.advance(7);
    let expires_at = store.now() + 60.into();
    assert_eq!(store.run(set("result/7", r#"{"n":[1.10]}"#)).await, Ok(EntryExpiry { expires_at }));
    let value = json(r#"{"n":[1.10]}"#);
    let expected = Entry { key: "result/7".into(), value, set_at: store.now(), expires_at };
    assert_eq!(get(&store, "result/7").await, Some(expected));
    assert_eq!(get(&store, "result/8").await, None);
}

async fn an_entry_stays_an_hour_unless_said_otherwise(store: Store) {
    let text = r#"{"commands": [{"op": "entry.set", "key": "k", "value": null}]}"#;
    let batch = Batch::from_json(&store.namespace, text).expect("a good batch");
    store.apply(batch).await.expect("set");
    store.clock.advance(3599);
    assert_eq!(get(&store, "k").await.expect("it is there").value, json("null"));
    store.clock.advance(1);
    assert_eq!(get(&store, "k").await, None);
}

async fn setting_again_replaces_value_and_time(store: Store) {
    store.run(set("k", "1")).await.expect("set");
    store.clock.advance(50);
    store.run(set("k", "2")).await.expect("set");
    store.clock.advance(50);
    let entry = get(&store, "k").await.expect("its time began again");
    assert_eq!((entry.value, entry.set_at), (json("2"), store.now() - 50.into()));
    store.run(EntrySet { ttl_seconds: 1.into(), ..set("k", "3") }).await.expect("set");
    store.clock.advance(1);
    assert_eq!(get(&store, "k").await, None, "a shorter time counts as well");
}

async fn setting_only_if_absent_leaves_what_is_there(store: Store) {
    let absent = |value: &str| EntrySet { if_absent: true, ..set("k", value) };
    store.run(absent("1")).await.expect("nothing is there");
    let before = get(&store, "k").await;
    store.clock.advance(59);
    for value in ["2", "1"] {
        let error = refused(store.run(absent(value)).await, "conflict");
        assert_eq!((error.place(), error.key()), (Some(Place::Command(0)), Some("k")));
    }
    assert_eq!(get(&store, "k").await, before);
}

async fn an_expired_entry_is_absent(store: Store) {
    let absent = |value: &str| EntrySet { if_absent: true, ..set("k", value) };
    store.run(absent("1")).await.expect("nothing is there");
    store.clock.advance(60);
    store.run(absent("2")).await.expect("it has expired");
    assert_eq!(get(&store, "k").await.expect("it is there").value, json("2"));
    take(&store, "k").await;
    store.run(absent("3")).await.expect("it was taken");
}

async fn an_entry_is_taken_once(store: Store) {
    store.run(set("k", r#"{"code":[]}"#)).await.expect("set");
    let there = get(&store, "k").await;
    let taken = take(&store, "k").await;
    assert!(taken.is_some());
    assert_eq!(taken, there, "the whole entry");
    assert_eq!(take(&store, "k").await, None);
    assert_eq!(get(&store, "k").await, None);
    store.run(set("k", "2")).await.expect("set");
    assert_eq!(take(&store, "k").await.expect("set again").value, json("2"));
}

async fn an_expired_entry_is_neither_taken_nor_deleted(store: Store) {
    store.run(set("k", "1")).await.expect("set");
    store.run(set("l", "1")).await.expect("set");
    store.clock.advance(60);
    assert_eq!(take(&store, "k").await, None);
    assert_eq!(store.run(EntryDelete { key: "l".into() }).await, Ok(Existed { existed: false }));
}

async fn deleting_tells_whether_it_was_there(store: Store) {
    let delete = || EntryDelete { key: "k".into() };
    assert_eq!(store.run(delete()).await, Ok(Existed { existed: false }));
    store.run(set("k", "1")).await.expect("set");
    assert_eq!(store.run(delete()).await, Ok(Existed { existed: true }));
    assert_eq!(store.run(delete()).await, Ok(Existed { existed: false }));
    assert_eq!(get(&store, "k").await, None);
}

async fn an_expired_entry_is_not_there_before_a_sweep(store: Store) {
    store.run(set("a", "1")).await.expect("set");
    store.clock.advance(30);
    store.run(set("b", "1")).await.expect("set");
    store.clock.advance(30);
    assert_eq!(get(&store, "a").await, None);
    assert_eq!(keys(&store, "").await, ["b"]);
    let limited = list(&store, KeyList { limit: 1, ..KeyList::default() }).await;
    assert_eq!((limited.items.len(), limited.next_cursor), (1, None), "it takes no place on a page");
}

async fn a_sweep_removes_expired_entries(store: Store) {
    for n in 0..5 {
        store.run(set(&n.to_string(), "1")).await.expect("set");
    }
    store.clock.advance(59);
    store.run(set("stays", "1")).await.expect("set");
    assert_eq!(store.sweep().await.entries, 0);
    store.clock.advance(1);
    let sweep = Sweep { limit: 3, ..Sweep::new(&store.namespace) };
    let swept = store.backend.sweep(sweep.clone()).await.expect("swept");
    assert_eq!((swept.entries, swept.more), (3, true));
    let swept = store.backend.sweep(sweep).await.expect("swept");
    assert_eq!((swept.entries, swept.more), (2, false));
    let dump = store.dump().await;
    assert_eq!(dump.iter().filter(|record| matches!(record, Record::Entry(_))).count(), 1);
}

async fn entries_are_listed_by_prefix_in_the_order_of_bytes(store: Store) {
    for key in ["r/ä", "r/b", "r/B", "r/10", "r/9", "r_/1", "r%", "s/1", "r/*", "R/b"] {
        store.run(set(key, "1")).await.expect("set");
    }
    assert_eq!(keys(&store, "r/").await, ["r/*", "r/10", "r/9", "r/B", "r/b", "r/ä"]);
    assert_eq!(keys(&store, "r_").await, ["r_/1"], "a prefix is no pattern");
    assert_eq!(keys(&store, "r%").await, ["r%"]);
    assert_eq!(keys(&store, "r/*").await, ["r/*"]);
    assert_eq!(keys(&store, "").await.len(), 10);
    assert_eq!(keys(&store, "R").await, ["R/b"]);
}

async fn entries_are_listed_page_by_page(store: Store) {
    for n in 0..5 {
        store.run(set(&format!("k/{n}"), &n.to_string())).await.expect("set");
    }
    store.run(set("l", "1")).await.expect("set");
    let (mut pages, mut cursor) = (Vec::new(), None);
    loop {
        let page = list(&store, KeyList { prefix: "k/".into(), limit: 2, cursor }).await;
        pages.push(page.items.into_iter().map(|entry| entry.key).collect::<Vec<_>>());
        // The last key of a page may go before the next page is asked for.
        take(&store, &format!("k/{}", pages.len() * 2 - 1)).await;
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(pages, [vec!["k/0", "k/1"], vec!["k/2", "k/3"], vec!["k/4"]]);
}

async fn of_many_takers_one_gets_it(store: Store) {
    store.run(set("k", "1")).await.expect("set");
    let taken = at_once(100, |_| {
        let store = store.clone();
        async move { take(&store, "k").await }
    })
    .await;
    let winners: Vec<_> = taken.into_iter().flatten().collect();
    assert_eq!(winners.len(), 1);
    assert_eq!(winners[0].value, json("1"));
}

async fn of_many_who_set_if_absent_one_wins(store: Store) {
    let results: Vec<Result<_>> = at_once(100, |n| {
        let store = store.clone();
        let set = EntrySet { if_absent: true, ..set("k", &n.to_string()) };
        async move { store.run(set).await }
    })
    .await;
    let winners: Vec<_> = results.iter().enumerate().filter(|(_, result)| result.is_ok()).collect();
    assert_eq!(winners.len(), 1);
    assert_eq!(get(&store, "k").await.expect("it is there").value, json(&winners[0].0.to_string()));
    results.into_iter().filter_map(Result::err).for_each(|error| assert_eq!(error.code(), "conflict"));
}
