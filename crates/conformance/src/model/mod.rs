//! A naive model of every rule of the contract, written from its text alone: plain maps, linear scans, and
//! a copy of everything to undo a refused batch. It knows nothing of plans, rows or indexes.
//!
//! - `mod.rs` and `state.rs` hold what there is, and run batches; `commit.rs` is one commit in the making.
//! - `tasks.rs`, `create.rs`, `lifecycle.rs`, `derived.rs`, `keys.rs`, `time.rs` and `claims.rs` are the
//!   rules of tasks; the other nouns have a file each.
//! - `queries.rs` answers what can be asked, `facts.rs` tells all there is in a comparable form.
//!
//! Positions are a backend's own. The model gives none: it is told them by [`Model::learn`].

mod claims;
mod commit;
mod create;
mod derived;
mod documents;
mod entries;
mod facts;
mod fences;
mod groups;
mod keys;
mod lifecycle;
mod locks;
mod queries;
mod queues;
mod state;
mod streams;
mod tasks;
mod time;

pub use facts::{Facts, scrub, tell};

use statehold_core::batch::{Prepared, Replies};
use statehold_core::call::{Claim, Claimed, Deliveries, GroupRead, Sweep, Swept};
use statehold_core::error::Place;
use statehold_core::model::{AUDIT_CATEGORY, Position, StreamName, TaskId};
use statehold_core::row::AnswerKey;
use statehold_core::{Error, Result, Status, Timestamp};

use commit::Commit;
use state::{Answer, State};

/// A namespace as the contract describes it.
#[derive(Clone, Debug)]
pub struct Model {
    audit: StreamName,
    state: State,
}

impl Model {
    /// An empty namespace of a store whose replica has this name.
    ///
    /// # Panics
    /// If the name cannot be part of a stream's.
    pub fn new(replica: &str) -> Self {
        let audit = StreamName::new(AUDIT_CATEGORY, replica).expect("a replica's name can name a stream");
        Self { audit, state: State::default() }
    }

    /// Applies a batch: all of it or none of it.
    pub fn apply(&mut self, prepared: &Prepared, now: Timestamp) -> Result<Replies> {
        if let Some(replies) = self.stored(prepared, now).map_err(|error| error.at(Place::Key))? {
            return Ok(replies);
        }
        let batch = prepared.batch();
        self.state.judge(batch, now)?;
        let mut commit = self.begin(batch.actor.clone(), now);
        let replies = commit.run(&batch.commands);
        commit.derive();
        self.state = commit.state;
        let replies = Replies { replies, replayed: false };
        self.remember(prepared, &replies, now);
        Ok(replies)
    }

    /// Starts the first ready tasks of some queues.
    pub fn claim(&mut self, claim: &Claim, now: Timestamp) -> Claimed {
        let mut commit = self.begin(None, now);
        let claimed = commit.claim(claim);
        self.state = commit.state;
        claimed
    }

    /// Delivers events to a consumer of a group.
    pub fn group_read(&mut self, read: &GroupRead, now: Timestamp) -> Result<Deliveries> {
        let mut commit = self.begin(None, now);
        let deliveries = commit.group_read(read)?;
        self.state = commit.state;
        Ok(deliveries)
    }

    /// Does what time brings. `more` is true only if something is left.
    pub fn sweep(&mut self, sweep: &Sweep, now: Timestamp) -> Swept {
        let mut commit = self.begin(None, now);
        let swept = commit.sweep(sweep);
        self.state = commit.state;
        swept
    }

    /// Tells the model the position that the backend gave an event.
    pub fn learn(&mut self, stream: &StreamName, seq: u64, position: &Position) {
        if let Some(event) = self.state.event_mut(stream, seq) {
            event.position = position.clone();
        }
    }

    /// The categories of which events were trimmed before anyone saw their positions, so that the model
    /// does not know how far it was trimmed.
    pub fn unknown_marks(&self) -> Vec<String> {
        self.state.unknown_marks.iter().cloned().collect()
    }

    /// Tells the model how far a category was trimmed.
    pub fn learn_mark(&mut self, category: &str, position: &Position) {
        self.state.unknown_marks.remove(category);
        let unknown = self.state.trims.entry(category.to_owned()).or_default().iter_mut();
        unknown.filter(|mark| mark.0.is_empty()).for_each(|mark| *mark = position.clone());
    }

    /// Who is first in line for each exclusive key that nobody holds.
    pub fn nominees(&self) -> Vec<(String, TaskId)> {
        self.state.nominees.iter().map(|(key, id)| (key.clone(), *id)).collect()
    }

    /// The ids of all tasks, with where they stand.
    pub fn statuses(&self) -> Vec<(TaskId, Status)> {
        self.state.tasks.values().map(|record| (record.task.id, record.task.status)).collect()
    }

    /// All there is, in a comparable form.
    pub fn facts(&self, now: Timestamp) -> Facts {
        self.state.facts(now)
    }

    fn begin(&self, actor: Option<String>, now: Timestamp) -> Commit {
        Commit::new(self.state.clone(), self.audit.clone(), actor, now)
    }

    fn stored(&self, prepared: &Prepared, now: Timestamp) -> Result<Option<Replies>> {
        let Some(key) = answer_key(prepared).filter(|_| !prepared.repeats_by_nature()) else {
            return Ok(None);
        };
        let Some(answer) = self.state.answers.get(&key).filter(|answer| answer.expires_at > now) else {
            return Ok(None);
        };
        if Some(&answer.request) != prepared.request() {
            return Err(Error::conflict(&key.key, "the key was used for another request"));
        }
        Ok(Some(Replies { replies: answer.replies.clone(), replayed: true }))
    }

    fn remember(&mut self, prepared: &Prepared, replies: &Replies, now: Timestamp) {
        let keyed = answer_key(prepared).zip(prepared.request().copied()).zip(prepared.batch().key.as_ref());
        let Some(((key, request), batch_key)) = keyed.filter(|_| !prepared.repeats_by_nature()) else {
            return;
        };
        let replies = replies.replies.clone();
        self.state.answers.insert(key, Answer { request, replies, expires_at: now + batch_key.keep });
    }
}

fn answer_key(prepared: &Prepared) -> Option<AnswerKey> {
    let batch = prepared.batch();
    let actor = batch.actor.clone().unwrap_or_default();
    batch.key.as_ref().map(|key| AnswerKey { actor, key: key.key.clone() })
}
