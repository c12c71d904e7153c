//! `statehold health`: how a store is, and what it promises.

use serde::Serialize;
use statehold::{Result, Statehold};

use crate::show::{self, Card, Show};
use crate::trouble::Exit;

/// Asks the store and tells.
pub(crate) async fn run(hold: &Statehold, show: &Show) -> Result<Exit> {
    let health = hold.backend().health().await?;
    show.answer(&health, || {
        let mut card = Card::default();
        card.add("store", show::plain(&health.store));
        card.add("durability", name(&health.durability));
        card.add("schema", health.schema_version);
        card.add("wakes", name(&health.push));
        if let Some(ephemeral) = &health.ephemeral {
            let away = ephemeral.away.is_some().then_some("away");
            card.add("short-lived", show::plain(away.unwrap_or(&ephemeral.store)));
        }
        for note in &health.notes {
            card.add("note", show::plain(note));
        }
        card.to_string()
    })?;
    Ok(Exit::Success)
}

/// The name that JSON has for it, in words.
fn name(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default().trim_matches('"').replace('_', " ")
}
