//! Entries: values that go by themselves.

use std::sync::Arc;

use super::tx::{Planned, Tx};
use crate::command::{EntryExpiry, EntrySet, Existed, TakenEntry};
use crate::error::Error;
use crate::model::Entry;

/// An entry that has not expired.
fn live(tx: &mut Tx<'_>, key: &String) -> Planned<Option<Arc<Entry>>> {
    let now = tx.now;
    Ok(tx.get::<Entry>(key)?.filter(|entry| entry.expires_at > now))
}

pub(super) fn judge_set(tx: &mut Tx<'_>, set: &EntrySet) -> Planned<()> {
    match live(tx, &set.key)? {
        Some(entry) if set.if_absent => {
            let message = format!("entry `{}` is there until {}", set.key, entry.expires_at);
            Err(Error::conflict(&set.key, message).hint("read it, or wait until it is gone").into())
        }
        _ => Ok(()),
    }
}

pub(super) fn judge_key(tx: &mut Tx<'_>, key: &String) -> Planned<()> {
    tx.get::<Entry>(key).map(|_| ())
}

pub(super) fn set(tx: &mut Tx<'_>, set: &EntrySet) -> EntryExpiry {
    let expires_at = tx.now + set.ttl_seconds;
    tx.put(Entry { key: set.key.clone(), value: set.value.clone(), set_at: tx.now, expires_at });
    EntryExpiry { expires_at }
}

pub(super) fn take(tx: &mut Tx<'_>, key: &String) -> Planned<TakenEntry> {
    let entry = live(tx, key)?.map(Arc::unwrap_or_clone);
    remove(tx, key)?;
    Ok(TakenEntry { entry })
}

pub(super) fn delete(tx: &mut Tx<'_>, key: &String) -> Planned<Existed> {
    let existed = live(tx, key)?.is_some();
    remove(tx, key)?;
    Ok(Existed { existed })
}

fn remove(tx: &mut Tx<'_>, key: &String) -> Planned<()> {
    if tx.get::<Entry>(key)?.is_some() {
        tx.delete::<Entry>(key);
    }
    Ok(())
}

/// Removes an entry if it has expired.
pub(super) fn expire(tx: &mut Tx<'_>, key: &String) -> Planned<bool> {
    let expired = live(tx, key)?.is_none();
    if expired {
        remove(tx, key)?;
    }
    Ok(expired)
}
