//! What operators, orchestrators and admins did, as events of category `audit`, written with the act itself.

use statehold::{Batch, Json, NewEvent, Result};
use statehold_core::command::{Command, StreamAppend};
use statehold_core::model::{AUDIT_CATEGORY, StreamName};

use super::{Caller, Rule, rule_of};

/// The events of the acts in a batch that are audited, if there are any. They say nothing that differs when the
/// request is repeated.
pub(crate) fn events(batch: &Batch, caller: &Caller, replica: &str) -> Result<Option<StreamAppend>> {
    let Some(grant) = caller.grant() else { return Ok(None) };
    let mut events = Vec::new();
    for command in batch.commands.iter().filter(|command| is_audited(command, caller)) {
        let data = serde_json::json!({ "role": grant.role, "token": grant.id, "about": about(command) });
        events.push(NewEvent::new(command.name()).data(Json::of(&data)?));
    }
    let stream = StreamName::new(AUDIT_CATEGORY, replica)?;
    Ok((!events.is_empty()).then_some(StreamAppend { stream, events, expect_seq: None }))
}

/// Agents work; what they do is told by the events of their tasks.
fn is_audited(command: &Command, caller: &Caller) -> bool {
    let works = caller.agent().is_some() || rule_of(command) == Rule::Work;
    !works
}

/// What a command is about: the keys that it names, without bodies.
fn about(command: &Command) -> serde_json::Value {
    const KEYS: [&str; 10] =
        ["id", "queue", "kind", "name", "key", "stream", "group", "idempotency_key", "parent", "force"];
    let mut fields = serde_json::to_value(command).unwrap_or_default();
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|name, _| KEYS.contains(&name.as_str()));
    }
    fields
}
