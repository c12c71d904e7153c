//! What goes where: which part of the state is short-lived, and on which side a batch is settled.

use statehold_core::batch::{BatchKey, Fence};
use statehold_core::command::Command;
use statehold_core::model::Source;
use statehold_core::{Batch, Error, Result};

/// Which part of the state is short-lived.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Entries whose keys begin with one of these.
    pub entries: Vec<String>,
    /// Streams of these categories.
    pub categories: Vec<String>,
}

impl Default for Parts {
    /// Results, heartbeats, and live streams.
    fn default() -> Self {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Self { entries: owned(&["result/", "heartbeat/"]), categories: owned(&["live"]) }
    }
}

/// Where a batch is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// On the durable store.
    Durable,
    /// On the other one, or on the durable one while that is away.
    Either,
    /// On the other one, or not at all.
    Ephemeral,
}

impl Parts {
    /// Whether an entry is short-lived.
    pub(super) fn has_entry(&self, key: &str) -> bool {
        self.entries.iter().any(|prefix| key.starts_with(prefix))
    }

    /// Whether some entries with this prefix may be short-lived.
    pub(super) fn has_entries_under(&self, prefix: &str) -> bool {
        self.entries.iter().any(|own| own.starts_with(prefix) || prefix.starts_with(own.as_str()))
    }

    /// Whether a category is short-lived.
    pub(super) fn has_category(&self, category: &str) -> bool {
        self.categories.iter().any(|own| own == category)
    }

    /// Whether a fence is about a delivery from a short-lived stream.
    pub(super) fn has_fence(&self, fence: &Fence) -> bool {
        matches!(fence, Fence::Delivery { source, .. } if self.has_category(source.category()))
    }

    /// Where a batch is settled. What needs a decision that lasts (who takes it, whether it is the first, whether the
    /// writer still holds something, whether it was done before) is settled on the durable store.
    pub(super) fn side(&self, batch: &Batch) -> Result<Side> {
        let live = batch.commands.iter().filter(|command| self.is_live(command)).count();
        if live == batch.commands.len() {
            return Ok(Side::Ephemeral);
        }
        if live > 0 || batch.fences.iter().any(|fence| self.has_fence(fence)) {
            let message = "a batch cannot span short-lived streams and anything else: they are on two stores";
            return Err(
                Error::unsupported(message).hint("send what is about live streams in a batch of its own")
            );
        }
        let plain = batch.fences.is_empty()
            && batch.key.as_ref().is_none_or(BatchKey::is_for_retry)
            && batch.commands.iter().all(|command| self.is_plain_set(command));
        Ok(if plain { Side::Either } else { Side::Durable })
    }

    fn is_plain_set(&self, command: &Command) -> bool {
        matches!(command, Command::EntrySet(set) if !set.if_absent && self.has_entry(&set.key))
    }

    fn is_live(&self, command: &Command) -> bool {
        let of = |source: &Source| self.has_category(source.category());
        match command {
            Command::StreamAppend(c) => self.has_category(c.stream.category()),
            Command::StreamTrim(c) => self.has_category(c.stream.category()),
            Command::StreamPurge(c) => self.has_category(c.stream.category()),
            Command::GroupAck(c) => of(&c.source),
            Command::GroupNack(c) => of(&c.source),
            Command::GroupSeek(c) => of(&c.source),
            _ => false,
        }
    }
}
