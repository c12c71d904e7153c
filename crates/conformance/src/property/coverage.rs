//! What happened in a run. A test that does nothing proves nothing, so all of it must have.

use std::collections::BTreeMap;

use serde_json::Value;
use statehold_core::Result;
use statehold_core::batch::{Batch, Replies};
use statehold_core::call::{Claimed, Deliveries, Swept};
use statehold_core::command::{Command, Reply};
use statehold_core::error::Place;
use statehold_core::model::{Event, TaskId};

/// Commands that nothing refuses.
const UNGUARDED: [&str; 5] = ["queue.set", "group.seek", "entry.take", "entry.delete", "lock.force_release"];

/// What must happen beside commands being accepted and refused.
const EFFECTS: &[&str] = &[
    "event task.created",
    "event task.unblocked",
    "event task.started",
    "event task.retrying",
    "event task.retrying blocked",
    "event task.released",
    "event task.lease_lost",
    "event task.suspended",
    "event task.signalled",
    "event task.resumed signal",
    "event task.resumed children",
    "event task.resumed until",
    "event task.resumed timeout",
    "event task.cancel_requested",
    "event task.evicted",
    "event task.completed",
    "event task.failed broken",
    "event task.failed timeout",
    "event task.failed lease_lost",
    "event task.failed expired",
    "event task.failed dependency",
    "event task.failed wait_timeout",
    "event task.cancelled",
    "event task.promoted",
    "event task.parked",
    "event task.amended",
    "event task.purged",
    "event task.purged retention",
    "event stream.purged",
    "event lock.force_released",
    "event dead_letter max_deliveries",
    "event dead_letter compacted",
    "error not_found",
    "error invalid",
    "error conflict",
    "error held",
    "error fenced",
    "error invalid_transition",
    "error precondition_failed",
    "error compacted",
    "refused by its key",
    "refused by a fence",
    "replayed batch",
    "replayed claim",
    "replayed read",
    "known create",
    "claim of nothing",
    "claim of several",
    "redelivery",
    "nominee chosen",
    "nominee changed",
    "swept timers",
    "swept leases",
    "swept documents",
    "swept entries",
    "swept locks",
    "swept answers",
    "swept with more",
    "retention trimmed",
];

/// How often things happened.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    pub(crate) operations: u64,
    accepted: BTreeMap<&'static str, u64>,
    refused: BTreeMap<&'static str, u64>,
    effects: BTreeMap<String, u64>,
}

impl Coverage {
    fn effect(&mut self, name: impl Into<String>) {
        *self.effects.entry(name.into()).or_default() += 1;
    }

    pub(crate) fn batch(&mut self, batch: &Batch, answer: &Result<Replies>) {
        match answer {
            Ok(replies) if replies.replayed => self.effect("replayed batch"),
            Ok(replies) => {
                for command in &batch.commands {
                    *self.accepted.entry(command.name()).or_default() += 1;
                }
                let known = |reply: &&Reply| matches!(reply, Reply::Created(created) if !created.created);
                replies.replies.iter().filter(known).for_each(|_| self.effect("known create"));
            }
            Err(error) => {
                self.effect(format!("error {}", error.code()));
                match error.place() {
                    Some(Place::Command(index)) => {
                        *self.refused.entry(batch.commands[index].name()).or_default() += 1;
                    }
                    Some(Place::Fence(_)) => self.effect("refused by a fence"),
                    Some(Place::Key) => self.effect("refused by its key"),
                    None => self.effect("refused for no reason"),
                }
            }
        }
    }

    pub(crate) fn claim(&mut self, claimed: &Claimed, started: bool) {
        match claimed.tasks.len() {
            0 => self.effect("claim of nothing"),
            _ if !started => self.effect("replayed claim"),
            1 => self.effect("claim of one"),
            _ => self.effect("claim of several"),
        }
    }

    pub(crate) fn read(&mut self, read: &Result<Deliveries>, unchanged: bool) {
        match read {
            Err(error) => self.effect(format!("error {}", error.code())),
            Ok(deliveries) if !deliveries.events.is_empty() && unchanged => self.effect("replayed read"),
            Ok(deliveries) => {
                let again = deliveries.events.iter().filter(|event| event.delivery > 1);
                again.for_each(|_| self.effect("redelivery"));
            }
        }
    }

    pub(crate) fn sweep(&mut self, swept: &Swept) {
        let counts = [
            ("swept timers", swept.timers),
            ("swept leases", swept.leases),
            ("swept documents", swept.documents),
            ("swept entries", swept.entries),
            ("swept locks", swept.locks),
            ("swept answers", swept.answers),
            ("swept with more", u32::from(swept.more)),
            ("retention trimmed", swept.trimmed),
        ];
        counts.into_iter().filter(|(_, count)| *count > 0).for_each(|(name, _)| self.effect(name));
    }

    pub(crate) fn event(&mut self, event: &Event) {
        let data: Value = event.data.as_ref().and_then(|data| data.to().ok()).unwrap_or_default();
        let detail = match event.kind.as_str() {
            "task.failed" => data["error"]["code"].as_str(),
            "task.resumed" => data["by"].as_str(),
            "task.retrying" => data["run_at"].is_null().then_some("blocked"),
            "task.purged" => (data["retention"] == true).then_some("retention"),
            "dead_letter" => data["reason"].as_str(),
            _ => None,
        };
        let name = detail.map_or(event.kind.clone(), |detail| format!("{} {detail}", event.kind));
        self.effect(format!("event {name}"));
    }

    pub(crate) fn nominees(&mut self, before: &[(String, TaskId)], after: &[(String, TaskId)]) {
        for (key, id) in after {
            match before.iter().find(|(known, _)| known == key) {
                None => self.effect("nominee chosen"),
                Some((_, other)) if other != id => self.effect("nominee changed"),
                Some(_) => {}
            }
        }
    }

    /// What never happened although it should have.
    pub(crate) fn missing(&self) -> Vec<String> {
        let accepted = Command::NAMES.iter().filter(|name| !self.accepted.contains_key(*name));
        let guarded = Command::NAMES.iter().filter(|name| !UNGUARDED.contains(name));
        let refused = guarded.filter(|name| !self.refused.contains_key(*name));
        let effects = EFFECTS.iter().filter(|name| !self.effects.contains_key(**name));
        let accepted = accepted.map(|name| format!("{name} was never accepted"));
        let refused = refused.map(|name| format!("{name} was never refused"));
        accepted.chain(refused).chain(effects.map(|name| format!("never: {name}"))).collect()
    }
}
