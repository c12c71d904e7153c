//! Creating tasks: who is known already, what must be there, and where a new one stands.

use serde_json::json;
use statehold_core::command::{Created, OnBusy, OnDuplicate, TaskCreate};
use statehold_core::limits;
use statehold_core::model::{Task, TaskId, Token};
use statehold_core::{Error, Result, Status};

use super::commit::Commit;
use super::state::{Record, State};
use super::tasks::held;

/// What two creates must have in common to be the same.
fn request_of(create: &TaskCreate) -> TaskCreate {
    let mut request = create.clone();
    request.id = None;
    request.run_at = None;
    request.expires_at = None;
    request.traceparent = None;
    request.on_duplicate = None;
    request.on_busy = None;
    request
}

impl State {
    /// The task that a create names: by idempotency key, then by child key, then by id.
    fn named(&self, create: &TaskCreate) -> Option<&Record> {
        let idempotent = |record: &&Record| {
            create.idempotency_key.is_some() && record.task.idempotency_key == create.idempotency_key
        };
        let child = |record: &&Record| {
            create.child_key.is_some()
                && record.task.parent == create.parent
                && record.task.child_key == create.child_key
        };
        let by_id = create.id.and_then(|id| self.tasks.get(&id));
        self.tasks.values().find(idempotent).or_else(|| self.tasks.values().find(child)).or(by_id)
    }

    /// The guard of a create. `view` is the state before the batch with what the batch created so far, which
    /// may be parent or dependency.
    pub(super) fn judge_create(&self, view: &Self, create: &TaskCreate) -> Result<()> {
        if let Some(known) = self.named(create) {
            let same = known.request == request_of(create);
            let good = same || create.on_duplicate == Some(OnDuplicate::Return);
            return if good {
                Ok(())
            } else {
                Err(Error::conflict(known.task.id, "known with another request"))
            };
        }
        let here = create.parent.is_none_or(|parent| self.tasks.contains_key(&parent));
        let lineage =
            create.parent.map(|parent| view.judge_parent(parent, here)).transpose()?.unwrap_or_default();
        for dependency in &create.depends_on {
            view.record(*dependency)?;
        }
        if create.depends_on.iter().any(|dependency| lineage.contains(dependency)) {
            return Err(Error::invalid("depends_on", "names an ancestor"));
        }
        let key = create.exclusive_key.as_deref().filter(|_| create.on_busy == Some(OnBusy::Reject));
        match key.filter(|key| self.tasks.values().any(|record| record.has_key(key) && record.is_open())) {
            Some(key) => Err(held(self.holder(key))),
            None => Ok(()),
        }
    }

    /// A parent must be open, unless this batch creates it.
    fn judge_parent(&self, parent: TaskId, here: bool) -> Result<Vec<TaskId>> {
        if !self.record(parent)?.is_open() && here {
            return Err(Error::conflict(parent, "the parent has ended"));
        }
        let lineage = self.lineage(parent);
        let deep = lineage.len() > usize::from(limits::FAMILY_DEPTH);
        if deep { Err(Error::invalid("parent", "too many levels")) } else { Ok(lineage) }
    }
}

impl Commit {
    pub(super) fn create(&mut self, create: &TaskCreate) -> Created {
        if let Some(known) = self.state.named(create).map(|record| record.task.id) {
            return self.known(known);
        }
        let id = create.id.expect("a prepared create has an id");
        let failed = self.state.failed_dependency(&create.depends_on).filter(|_| !create.backlog);
        let status = match failed {
            _ if create.backlog => Status::Backlog,
            Some(_) => Status::Failed,
            None if self.state.is_unblocked(&create.depends_on) => Status::Pending,
            None => Status::Blocked,
        };
        let task = self.new_task(id, create, status);
        let later = task.run_at > self.now;
        let created = json!({"queue": task.queue, "kind": task.kind, "status": status});
        self.state.tasks.insert(id, new_record(task, create, later));
        self.note(id, "task.created", Some(created));
        if let Some(failed) = failed {
            self.fail_for(id, failed);
        }
        Created { task: self.task(id).clone(), created: true }
    }

    fn new_task(&self, id: TaskId, create: &TaskCreate, status: Status) -> Task {
        let parent = create.parent.and_then(|parent| self.state.tasks.get(&parent));
        Task {
            id,
            queue: create.queue.clone().unwrap_or_else(|| "default".into()),
            kind: create.kind.clone(),
            status,
            priority: create.priority.unwrap_or(0),
            rank: create.rank.unwrap_or(0),
            input: create.input.clone(),
            output: None,
            error: None,
            metadata: create.metadata.clone(),
            labels: create.labels.clone(),
            thread: create.thread.clone(),
            parent: create.parent,
            root: parent.map_or(id, |parent| parent.task.root),
            child_key: create.child_key.clone(),
            depends_on: create.depends_on.clone(),
            idempotency_key: create.idempotency_key.clone(),
            exclusive_key: create.exclusive_key.clone(),
            run_at: create.run_at.unwrap_or(self.now),
            expires_at: create.expires_at,
            timeout_seconds: create.timeout_seconds,
            attempt: 0,
            failures: 0,
            lease_losses: 0,
            max_attempts: create.max_attempts.unwrap_or(3),
            max_lease_losses: create.max_lease_losses.unwrap_or(10),
            backoff: create.backoff.unwrap_or_default(),
            progress: None,
            waiting_for: None,
            resumed_by: None,
            cancel_requested: false,
            traceparent: create.traceparent.clone(),
            revision: 0,
            lease: None,
            created_at: self.now,
            updated_at: self.now,
            started_at: None,
            finished_at: None,
        }
    }
}

fn new_record(task: Task, create: &TaskCreate, later: bool) -> Record {
    Record {
        task,
        request: request_of(create),
        last_token: Token(0),
        lease_seconds: None,
        claim_key: None,
        signals: Vec::new(),
        later,
    }
}
