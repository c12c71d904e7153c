//! Commands on tasks. "Leased" means: running, with this token, and the lease is not over;
//! otherwise the whole batch is refused as `fenced`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::{Seconds, Timestamp};
use crate::json::Json;
use crate::limits::{self, Check};
use crate::model::{Backoff, Labels, OnTimeout, Task, TaskError, TaskId, Token, WaitFor};
use crate::row::RequestHash;

/// Creates a task.
///
/// # Behavior
/// - The new task is `backlog` if asked, `failed` if a dependency failed or was cancelled, `blocked`
///   if a dependency is open, else `pending`.
/// - An `idempotency_key`, an `id`, or a `child_key` under the same parent that is already used
///   answers the existing task with `created: false` if the request was the same, and is refused as
///   `conflict` if it was another; with `on_duplicate: return` it answers the existing one either
///   way. They are looked up in this order: idempotency key, child key, id.
/// - Two requests are the same if all fields but `id`, `run_at`, `expires_at`, `traceparent`,
///   `on_duplicate` and `on_busy` are equal as JSON values, before defaults are filled in. A task that was
///   made inside the store, without a request, is the same as any.
/// - A dependency that does not exist, or a parent that does not exist, is `not_found`. A terminal
///   parent is `conflict`. A dependency on the task itself or on an ancestor is `invalid`; so are
///   more than 64 levels of parents. Both may have been created earlier in the same batch.
/// - With `on_busy: reject`, any non-terminal task with the same `exclusive_key` refuses it as `held`.
/// - The parent counts it among its open children.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct TaskCreate {
    /// The id, generated if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<TaskId>,
    /// Where workers look for it: `default` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// What kind of work it is.
    pub kind: String,
    /// What the worker gets.
    #[serde(deserialize_with = "crate::model::given", skip_serializing_if = "Option::is_none")]
    pub input: Option<Json>,
    /// Free data, an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
    /// Filterable text.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, String>))]
    pub labels: Labels,
    /// Lower goes first; 0 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i16>,
    /// Hand order in a backlog; 0 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<i64>,
    /// The conversation it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// The task that dispatches it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<TaskId>,
    /// Its name among the parent's children; needs a parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_key: Option<String>,
    /// What must be completed first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<TaskId>,
    /// Makes creating it safe to repeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// What to do when the key, child key or id is known with another request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_duplicate: Option<OnDuplicate>,
    /// At most one task of this key runs at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclusive_key: Option<String>,
    /// What to do when another task has the exclusive key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_busy: Option<OnBusy>,
    /// Not claimable before; now if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    /// Fails if it has not started by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Bounds one attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<Seconds>,
    /// Failures at which it fails for good; 3 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Lost leases at which it fails for good; 10 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_lease_losses: Option<u32>,
    /// How long it waits after a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// The trace that the request came with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Parks it instead of making it claimable.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub backlog: bool,
}

/// What a create does when its key is known with another request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnDuplicate {
    /// Refuses.
    #[default]
    Conflict,
    /// Answers the existing task.
    Return,
}

/// What a create does when its exclusive key is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnBusy {
    /// Waits in line.
    #[default]
    Enqueue,
    /// Refuses.
    Reject,
}

/// The reply of `task.create`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Created {
    /// The task, new or known.
    pub task: Task,
    /// Whether it is new.
    pub created: bool,
}

impl TaskCreate {
    /// A task of a kind.
    ///
    /// ```
    /// use statehold_core::command::TaskCreate;
    ///
    /// let create = TaskCreate { queue: Some("mail".into()), ..TaskCreate::new("send") };
    /// assert_eq!(create.kind, "send");
    /// ```
    pub fn new(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), ..Self::default() }
    }

    /// The queue, `default` unless said.
    #[must_use]
    pub fn queue(self, queue: impl Into<String>) -> Self {
        Self { queue: Some(queue.into()), ..self }
    }

    /// What the work is about.
    #[must_use]
    pub fn input(self, input: Json) -> Self {
        Self { input: Some(input), ..self }
    }

    /// Lower is claimed first; 0 unless said.
    #[must_use]
    pub fn priority(self, priority: i16) -> Self {
        Self { priority: Some(priority), ..self }
    }

    /// A label, to be found by.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// The thread it belongs to.
    #[must_use]
    pub fn thread(self, thread: impl Into<String>) -> Self {
        Self { thread: Some(thread.into()), ..self }
    }

    /// What makes it be created once.
    #[must_use]
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        Self { idempotency_key: Some(key.into()), ..self }
    }

    /// What makes a parent create it once.
    #[must_use]
    pub fn child_key(self, key: impl Into<String>) -> Self {
        Self { child_key: Some(key.into()), ..self }
    }

    /// Of the tasks with this key one runs at a time.
    #[must_use]
    pub fn exclusive_key(self, key: impl Into<String>) -> Self {
        Self { exclusive_key: Some(key.into()), ..self }
    }

    /// Something that must be completed before.
    #[must_use]
    pub fn depends_on(mut self, id: TaskId) -> Self {
        self.depends_on.push(id);
        self
    }

    /// When it can be claimed first.
    #[must_use]
    pub fn run_at(self, at: Timestamp) -> Self {
        Self { run_at: Some(at), ..self }
    }

    /// How long an attempt may take.
    #[must_use]
    pub fn timeout(self, timeout: impl Into<Seconds>) -> Self {
        Self { timeout_seconds: Some(timeout.into()), ..self }
    }

    /// The hash of what two requests must have in common to be the same. The rest is put aside meanwhile.
    pub(crate) fn request(&mut self) -> RequestHash {
        let (id, run_at, expires_at) = (self.id.take(), self.run_at.take(), self.expires_at.take());
        let traceparent = self.traceparent.take();
        let (on_duplicate, on_busy) = (self.on_duplicate.take(), self.on_busy.take());
        let request = RequestHash::of(self);
        (self.id, self.run_at, self.expires_at, self.traceparent) = (id, run_at, expires_at, traceparent);
        (self.on_duplicate, self.on_busy) = (on_duplicate, on_busy);
        request
    }

    pub(super) fn check(&self, check: &mut Check) {
        check.name("kind", &self.kind);
        check.maybe_name("queue", self.queue.as_ref());
        check.maybe_name("thread", self.thread.as_ref());
        check.maybe_name("child_key", self.child_key.as_ref());
        check.maybe_name("idempotency_key", self.idempotency_key.as_ref());
        check.maybe_name("exclusive_key", self.exclusive_key.as_ref());
        check.maybe_name("traceparent", self.traceparent.as_ref());
        check.body("input", self.input.as_ref(), limits::BODY);
        check.object("metadata", self.metadata.as_ref());
        check.labels(self.labels.iter().map(|(key, value)| (key, Some(value))));
        check.count("depends_on", self.depends_on.len(), 0, limits::LIST);
        check.length("timeout_seconds", self.timeout_seconds);
        check
            .that(self.child_key.is_none() || self.parent.is_some(), "child_key", || "needs a parent".into());
        check.that(self.max_attempts != Some(0), "max_attempts", || "must be at least 1".into());
        check.that(self.max_lease_losses != Some(0), "max_lease_losses", || "must be at least 1".into());
        let own = self.id.is_some_and(|id| self.depends_on.contains(&id) || self.parent == Some(id));
        check.that(!own, "depends_on", || "a task cannot depend on itself or be its own parent".into());
        let mut seen = std::collections::HashSet::new();
        let repeated = self.depends_on.iter().any(|id| !seen.insert(*id));
        check.that(!repeated, "depends_on", || "names a task twice".into());
        if let Some(backoff) = &self.backoff {
            check.length("backoff.max_seconds", Some(backoff.max_seconds));
            check.that(backoff.factor >= 1, "backoff.factor", || "must be at least 1".into());
        }
    }
}

/// Starts one named task, as a claim would.
///
/// # Behavior
/// - The task must be `pending`, due and not expired, otherwise `invalid_transition`; an exclusive
///   key that another task holds is `held`. A paused queue does not matter.
/// - The task is `running`, its attempt counts one more, and the reply carries a new token.
/// - Two starts of the same exclusive key in one batch are `invalid`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskStart {
    /// Which task.
    pub id: TaskId,
    /// For whom.
    pub owner: String,
    /// How long the lease is: 30 if left out, without end if null.
    #[serde(default = "default_lease")]
    pub lease_seconds: Option<Seconds>,
}

/// The length of a lease unless said otherwise.
#[expect(
    clippy::unnecessary_wraps,
    reason = "a lease may be without end, and this is a default of that type"
)]
pub(crate) fn default_lease() -> Option<Seconds> {
    Some(Seconds::new(30))
}

impl TaskStart {
    pub(super) fn check(&self, check: &mut Check) {
        check.name("owner", &self.owner);
        check.length("lease_seconds", self.lease_seconds);
    }
}

/// Keeps a lease.
///
/// # Behavior
/// - The task must be leased.
/// - The lease ends `lease_seconds` from now (as long as at its start if left out), but not after the
///   attempt's timeout. A lease without end stays without end unless a length is given.
/// - `progress` replaces the last one. `revision` does not change and no event is written.
/// - The reply tells whether someone asked the task to stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskRenew {
    /// Which task.
    pub id: TaskId,
    /// The holder's proof.
    pub token: Token,
    /// The new length from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_seconds: Option<Seconds>,
    /// How far the work is.
    #[serde(default, deserialize_with = "crate::model::given", skip_serializing_if = "Option::is_none")]
    pub progress: Option<Json>,
}

/// The reply of `task.renew`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Renewed {
    /// When the lease ends now.
    pub expires_at: Option<Timestamp>,
    /// Whether the worker should stop.
    pub cancel_requested: bool,
}

impl TaskRenew {
    pub(super) fn check(&self, check: &mut Check) {
        check.length("lease_seconds", self.lease_seconds);
        check.body("progress", self.progress.as_ref(), limits::BODY);
    }
}

/// Ends a task with success.
///
/// # Behavior
/// - The task must be leased; or be completed already with this token, which answers the same.
/// - The task is `completed` with the output, even if someone asked it to stop.
/// - Its exclusive key is freed, dependents without another open dependency become `pending`, and a
///   parent that waits for its children becomes `pending` when this was the last open one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskComplete {
    /// Which task.
    pub id: TaskId,
    /// The holder's proof.
    pub token: Token,
    /// What came out.
    #[serde(default, deserialize_with = "crate::model::given", skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
}

impl TaskComplete {
    pub(super) fn check(&self, check: &mut Check) {
        check.body("output", self.output.as_ref(), limits::BODY);
    }
}

/// Ends an attempt without success.
///
/// # Behavior
/// - The task must be leased.
/// - `failures` grows. While it is below `max_attempts` and `retry` is true, the task is `pending` at
///   now + backoff; else `failed`. If someone asked it to stop, it is `cancelled`.
/// - A failed or cancelled task fails its blocked dependents, and theirs, and counts as ended for a
///   parent that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskFail {
    /// Which task.
    pub id: TaskId,
    /// The holder's proof.
    pub token: Token,
    /// Why.
    pub error: TaskError,
    /// Whether another try makes sense.
    #[serde(default = "yes")]
    pub retry: bool,
}

fn yes() -> bool {
    true
}

impl TaskFail {
    pub(super) fn check(&self, check: &mut Check) {
        check.size("error.message", self.error.message.len(), limits::BODY);
        check.maybe_name("error.code", self.error.code.as_ref());
        check.body("error.details", self.error.details.as_ref(), limits::BODY);
        check.that(!self.error.message.contains('\0'), "error.message", || "must not contain NUL".into());
    }
}

/// Gives a task back without counting anything.
///
/// # Behavior
/// - The task must be leased.
/// - It is `pending` at `run_at`, or now; `cancelled` if someone asked it to stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskRelease {
    /// Which task.
    pub id: TaskId,
    /// The holder's proof.
    pub token: Token,
    /// Not claimable before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
}

/// Gives up the worker until something happens.
///
/// # Behavior
/// - The task must be leased. If someone asked it to stop, it is `cancelled`.
/// - It is `waiting`; or `pending` at once if a signal of that name is kept (the oldest is consumed),
///   if no child is open, or if the time has passed.
/// - It frees its exclusive key. It counts for nothing.
/// - After `timeout_seconds` it goes on, resumed by the timeout, or fails with code `wait_timeout`.
/// - `resumed_by` is cleared, and set when the wait ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskSuspend {
    /// Which task.
    pub id: TaskId,
    /// The holder's proof.
    pub token: Token,
    /// What it waits for.
    pub waiting_for: WaitFor,
    /// How long at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<Seconds>,
    /// What happens then.
    #[serde(default)]
    pub on_timeout: OnTimeout,
}

impl TaskSuspend {
    pub(super) fn check(&self, check: &mut Check) {
        check.length("timeout_seconds", self.timeout_seconds);
        if let WaitFor::Signal(name) = &self.waiting_for {
            check.name("waiting_for.signal", name);
        }
    }
}

/// Tells a task something from outside.
///
/// # Behavior
/// - A terminal task is `invalid_transition`; 100 kept signals are `too_large`.
/// - A task that waits for this name becomes `pending` with the signal as `resumed_by`. Otherwise the
///   signal is kept, first in first out per name, for a later suspend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskSignal {
    /// Which task.
    pub id: TaskId,
    /// The name of the signal.
    pub name: String,
    /// What it carries.
    #[serde(default, deserialize_with = "crate::model::given", skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
}

impl TaskSignal {
    pub(super) fn check(&self, check: &mut Check) {
        check.name("name", &self.name);
        check.body("data", self.data.as_ref(), limits::BODY);
    }
}

/// Ends a task by request.
///
/// # Behavior
/// - A terminal task is `invalid_transition`.
/// - A running task is only asked to stop (`cancel_requested`): however it leaves its owner after that,
///   it ends `cancelled`, except that a completion still wins. With `force` it is `cancelled` now, and
///   its owner is fenced. Any other task is `cancelled` now.
/// - With `children`, the same happens to every open descendant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskCancel {
    /// Which task.
    pub id: TaskId,
    /// Does not wait for a running task's owner.
    #[serde(default)]
    pub force: bool,
    /// Its descendants too.
    #[serde(default)]
    pub children: bool,
}

/// Takes a running task from its owner.
///
/// # Behavior
/// - A task that is not running is `invalid_transition`.
/// - It is `pending` now and its owner is fenced; it counts for nothing. If someone asked it to stop, it
///   is `cancelled`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskEvict {
    /// Which task.
    pub id: TaskId,
}

/// Opens a failed or cancelled task again.
///
/// # Behavior
/// - Any other status is `invalid_transition`.
/// - `failures` and `lease_losses` are 0, error and request to stop are gone, it runs from now. It is
///   `blocked` while a dependency is not completed (a failed one too: retry that one), else `pending`.
///   A dependency that was purged is not waited for.
/// - With `with_dependents`, every task that failed because this one did is `blocked` again, and so on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskRetry {
    /// Which task.
    pub id: TaskId,
    /// Also those that failed because of it.
    #[serde(default)]
    pub with_dependents: bool,
}

/// Takes a task out of the backlog.
///
/// # Behavior
/// - A task that is not in the backlog is `invalid_transition`.
/// - It is `pending`, or `blocked` while a dependency is not completed; if one failed or was cancelled
///   meanwhile, it then fails as its dependents do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskPromote {
    /// Which task.
    pub id: TaskId,
}

/// Puts a pending or blocked task into the backlog.
///
/// # Behavior
/// - Any other status is `invalid_transition`.
/// - A parked task does not expire and is not judged when its dependencies end; promoting it does both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskPark {
    /// Which task.
    pub id: TaskId,
    /// Its place in the backlog, unchanged if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<i64>,
}

/// Changes what a task carries, not where it stands.
///
/// # Behavior
/// - A terminal task is `invalid_transition`; another `revision` than the given one is
///   `precondition_failed`.
/// - `metadata` and `labels` are merged shallowly; null removes. Other fields replace what was there.
/// - More than 64 labels, or metadata of more than 1 MiB, after the merge are `too_large`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskAmend {
    /// Which task.
    pub id: TaskId,
    /// Only if the task is at this revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Members to set, or to remove with null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
    /// Labels to set, or to remove with null.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Option<String>>,
    /// A new priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i16>,
    /// A new place in the backlog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<i64>,
    /// A new earliest start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    /// A new expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl TaskAmend {
    pub(super) fn check(&self, check: &mut Check) {
        check.object("metadata", self.metadata.as_ref());
        check.labels(self.labels.iter().map(|(key, value)| (key, value.as_ref())));
    }
}

/// Removes a terminal task with its stream, for good.
///
/// # Behavior
/// - A task that is not terminal is `invalid_transition`. A parent or a dependent that is not terminal is
///   `conflict`.
/// - The task, its kept signals and its stream are gone; its idempotency and child keys are free. The act
///   is written to the audit stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskPurge {
    /// Which task.
    pub id: TaskId,
}

macro_rules! nothing_to_check {
    ($($name:ident),*) => {
        $(impl $name {
            pub(super) fn check(&self, _: &mut Check) {}
        })*
    };
}

nothing_to_check!(TaskRelease, TaskCancel, TaskEvict, TaskRetry, TaskPromote, TaskPark, TaskPurge);
