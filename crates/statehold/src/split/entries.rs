//! Entries on two stores: which of two is the newer, and how one gets to where it is decided on.

use std::cmp::Ordering;

use statehold_core::command::{EntrySet, EntryTake, Op};
use statehold_core::model::Entry;
use statehold_core::query::{KeyList, Page, write_cursor};
use statehold_core::{Backend, Batch, Clock, Result, Timestamp};

/// Does one thing on one store.
pub(super) async fn run<O: Op>(store: &dyn Backend, namespace: &str, command: O) -> Result<O::Reply> {
    let (batch, reply) = Batch::of(namespace, command);
    store.apply(batch.prepare()?).await?.take(reply)
}

/// The newer of two entries with the same key. Of two that were set at the same instant it is the one on the ephemeral
/// store: whoever sets one on the durable store removes that.
pub(super) fn newer(durable: Option<Entry>, ephemeral: Option<Entry>) -> Option<Entry> {
    match (durable, ephemeral) {
        (Some(durable), Some(ephemeral)) if durable.set_at > ephemeral.set_at => Some(durable),
        (durable, ephemeral) => ephemeral.or(durable),
    }
}

/// A page from the same page of both stores.
pub(super) fn merge(list: &KeyList, durable: Page<Entry>, ephemeral: Page<Entry>) -> Page<Entry> {
    let more = durable.next_cursor.is_some() || ephemeral.next_cursor.is_some();
    let (mut left, mut right) =
        (durable.items.into_iter().peekable(), ephemeral.items.into_iter().peekable());
    let (mut items, limit) = (Vec::new(), list.limit as usize);
    while items.len() < limit {
        let order = match (left.peek(), right.peek()) {
            (Some(left), Some(right)) => left.key.cmp(&right.key),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        let entry = match order {
            Ordering::Less => left.next(),
            Ordering::Equal => newer(left.next(), right.next()),
            Ordering::Greater => right.next(),
        };
        let Some(entry) = entry else { break };
        items.push(entry);
    }
    let more = more || left.peek().is_some() || right.peek().is_some();
    let next_cursor = items.last().filter(|_| more).map(|last| write_cursor(&last.key));
    Page { items, next_cursor }
}

/// Moves an entry that was taken from the ephemeral store to the durable one, unless that has a newer one.
pub(super) async fn keep(durable: &dyn Backend, namespace: &str, entry: &Entry, clock: &Clock) -> Result<()> {
    let ttl_seconds = entry.expires_at.since(clock.now());
    if ttl_seconds.as_micros() == 0 {
        return Ok(());
    }
    let set = EntrySet { key: entry.key.clone(), value: entry.value.clone(), ttl_seconds, if_absent: true };
    match run(durable, namespace, set.clone()).await {
        Err(error) if error.code() == "conflict" => {}
        answer => return answer.map(drop),
    }
    let there = durable.entry_get(namespace, &entry.key).await?;
    if there.is_none_or(|there| there.set_at <= entry.set_at) {
        run(durable, namespace, EntrySet { if_absent: false, ..set }).await?;
    }
    Ok(())
}

/// Removes an entry that was set at this time or before.
pub(super) async fn forget(store: &dyn Backend, namespace: &str, key: &str, at: Timestamp) -> Result<()> {
    let old = |entry: &Entry| entry.set_at <= at;
    if !store.entry_get(namespace, key).await?.as_ref().is_some_and(old) {
        return Ok(());
    }
    let taken = run(store, namespace, EntryTake { key: key.to_owned() }).await?.entry;
    // Someone may have set it anew just now.
    if let Some(entry) = taken.filter(|entry| !old(entry)) {
        put_back(store, namespace, entry).await?;
    }
    Ok(())
}

/// Sets an entry that was taken, unless someone has set it meanwhile.
pub(super) async fn put_back(store: &dyn Backend, namespace: &str, entry: Entry) -> Result<()> {
    let ttl_seconds = entry.expires_at.since(entry.set_at);
    let set = EntrySet { key: entry.key, value: entry.value, ttl_seconds, if_absent: true };
    match run(store, namespace, set).await {
        Err(error) if error.code() == "conflict" => Ok(()),
        answer => answer.map(drop),
    }
}
