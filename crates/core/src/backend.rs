//! The contract of a backend. A backend is a place that can run plans atomically; it holds no rule.
//! The conformance suite has a case for every `# Behavior` bullet here and on the commands.

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use serde::{Deserialize, Serialize};

use crate::batch::{Prepared, Replies};
use crate::call::{Claim, Claimed, Deliveries, GroupRead, Sweep, Swept};
use crate::dump::Record;
use crate::error::Result;
use crate::model::{Document, Entry, GroupInfo, Lock, QueueInfo, Source, StreamInfo, Task, TaskId};
use crate::query::{
    CategoryPage, CategoryRead, DocumentList, KeyList, Page, StreamPage, StreamRead, TaskCounts, TaskList,
    Why,
};
use crate::session::Session;
use crate::wake::{Topic, Waiter};

/// A store of Statehold's state.
///
/// Every call names a namespace, or carries one; namespaces know nothing of each other. The clock that
/// decides is the store's. A backend is shared behind an `Arc` and used from any number of tasks.
#[async_trait]
pub trait Backend: std::fmt::Debug + Send + Sync + 'static {
    /// Applies a batch: all of it or none of it.
    ///
    /// # Behavior
    /// - Answers one reply for each command, in order, after the commit: acknowledged is durable at the
    ///   level that [`health`](Self::health) declares.
    /// - Judges the key, then fences in order, then guards in the order of the commands, all on the state
    ///   before the batch; the first that fails refuses the batch and names its place. A refused batch
    ///   leaves nothing.
    /// - The key of an earlier batch of the same actor with the same request answers that batch's replies,
    ///   also when its fences have gone stale since; with another request it is `conflict`. Refusals are
    ///   not remembered. A batch that repeats safely by nature neither stores nor looks up anything for its
    ///   key.
    /// - Then come the effects in the order of the commands, appends to tasks' streams first, then derived
    ///   ones. Derived effects never refuse. Beyond 256 tasks they are left to [`sweep`](Self::sweep).
    /// - Every transition of a task appends a lifecycle event to `task/<id>` in the same commit. No event
    ///   and no error carries a token.
    /// - A batch whose caller goes away is still applied whole or not at all.
    async fn apply(&self, batch: Prepared) -> Result<Replies>;

    /// Starts the first ready tasks of some queues.
    ///
    /// # Behavior
    /// - Takes what is ready by priority, `run_at`, id; each task goes to exactly one claimer, with a new
    ///   token, one attempt more, and a `task.started` event.
    /// - What is due or expired in these queues is handled first, up to a bound.
    /// - A paused queue gives nothing. Future, blocked, parked and expired tasks are not given, and of an
    ///   exclusive key only one task at a time.
    /// - An empty answer carries `next_at`, the earliest time at which something in these queues that are
    ///   not paused becomes due, if there is one; now if the bound was reached or ready tasks were
    ///   skipped because another claimer holds them.
    /// - `lease_seconds: null` gives a lease without end.
    /// - With a `key`, what this owner's earlier claim with that key still holds is answered again, and
    ///   nothing new is taken; once nothing is held any more, it claims anew.
    /// - Records who polled, to about ten seconds.
    async fn claim(&self, claim: Claim) -> Result<Claimed>;

    /// Delivers events to a consumer of a group.
    ///
    /// # Behavior
    /// - A new group begins at the oldest event that is there.
    /// - First come deliveries whose visibility ran out or that were given back, then unread events, each
    ///   with its delivery number and a token; nobody else gets them until the visibility runs out.
    /// - A delivery that was made `max_deliveries` times goes to `dead/<group>` instead, as an event
    ///   `dead_letter` with the event and `reason: max_deliveries`; one whose event was trimmed, with
    ///   `reason: compacted`. From category `dead` nothing becomes a dead letter: it is delivered again,
    ///   or dropped if trimmed.
    /// - A group of which events were trimmed before it read them answers `compacted` until a seek.
    /// - With a `key`, what is still out from this consumer's earlier read with that key is answered again
    ///   with the same tokens.
    /// - An empty answer carries `next_at`, when the visibility of a delivery runs out, if there is one; now if
    ///   all that it looked at became dead letters and there may be more.
    async fn group_read(&self, read: GroupRead) -> Result<Deliveries>;

    /// Does what time brings, up to a bound. Any number of processes may sweep.
    ///
    /// # Behavior
    /// - An ended lease counts a loss: `pending` at once the first time, later with backoff, `failed` with
    ///   code `lease_lost` at `max_lease_losses`; `cancelled` if that was asked.
    /// - An attempt past its timeout counts a failure instead, with code `timeout`.
    /// - Tasks whose `run_at` has come are ready; waits that are over resume or fail; blocked, pending and
    ///   waiting tasks past `expires_at` fail with code `expired`.
    /// - Expired documents and entries, stored answers and forgotten locks are removed; a document's kind
    ///   remembers its revision. None of them was visible after its expiry even before the sweep.
    /// - Left-over derived work is taken up.
    /// - Retention purges terminal tasks whose parent and dependents are terminal, oldest first, and trims
    ///   streams. Purges are audited.
    async fn sweep(&self, sweep: Sweep) -> Result<Swept>;

    /// Reads tasks by id.
    ///
    /// # Behavior
    /// - Answers in the order of the ids, none for a task that does not exist.
    async fn task_get(&self, namespace: &str, ids: &[TaskId]) -> Result<Vec<Option<Task>>>;

    /// Lists tasks.
    ///
    /// # Behavior
    /// - Answers tasks that pass all filters, in the order asked for, ids breaking ties.
    /// - A cursor goes on exactly after the last task of its page, also when tasks came or went meanwhile.
    async fn task_list(&self, namespace: &str, list: &TaskList) -> Result<Page<Task>>;

    /// Counts the tasks of a queue, or of all.
    ///
    /// # Behavior
    /// - Counts by status; what could be claimed now is counted whether or not the queue is paused. A task with
    ///   an exclusive key counts while it is first in line.
    async fn task_count(&self, namespace: &str, queue: Option<&str>) -> Result<TaskCounts>;

    /// Says why a task is not moving.
    ///
    /// # Behavior
    /// - A task that does not exist is `not_found`. There is at least one reason, and every one that holds.
    async fn task_why(&self, namespace: &str, id: TaskId) -> Result<Why>;

    /// Reads a stream.
    ///
    /// # Behavior
    /// - Events come in the order of `seq` without a gap; a stream without events is empty.
    /// - Reading after a cursor that was trimmed away is `compacted` with the oldest cursor that can be
    ///   read after; reading from the oldest, before or last is not.
    async fn stream_read(&self, namespace: &str, read: &StreamRead) -> Result<StreamPage>;

    /// Reads all streams of a category.
    ///
    /// # Behavior
    /// - Events come in an order that is the same for every reader, in which each stream keeps its own, and
    ///   into which nothing is inserted behind a cursor that was given out.
    /// - Reading after a cursor of a page is `compacted` if events after it were trimmed since the page was
    ///   given; reading after the plain position of an event, if events after it were ever trimmed. Reading
    ///   from the oldest gives all that is there.
    async fn category_read(&self, namespace: &str, read: &CategoryRead) -> Result<CategoryPage>;

    /// Lists streams by name, the streams of tasks included.
    ///
    /// # Behavior
    /// - Answers streams that have or had events and begin with the prefix, ordered by bytes.
    async fn stream_list(&self, namespace: &str, list: &KeyList) -> Result<Page<StreamInfo>>;

    /// Says how far a group is.
    ///
    /// # Behavior
    /// - A group that never read and was never sought is `not_found`.
    async fn group_info(&self, namespace: &str, group: &str, source: &Source) -> Result<GroupInfo>;

    /// Reads a document; none if it is not there or expired.
    async fn document_get(&self, namespace: &str, kind: &str, name: &str) -> Result<Option<Document>>;

    /// Lists documents of a kind.
    ///
    /// # Behavior
    /// - Answers documents that have not expired, begin with the prefix and have all labels, ordered by the
    ///   bytes of their names, either way.
    async fn document_list(&self, namespace: &str, list: &DocumentList) -> Result<Page<Document>>;

    /// Reads an entry; none if it is not there or expired.
    async fn entry_get(&self, namespace: &str, key: &str) -> Result<Option<Entry>>;

    /// Lists entries that have not expired, ordered by the bytes of their keys.
    async fn entry_list(&self, namespace: &str, list: &KeyList) -> Result<Page<Entry>>;

    /// Reads a lock; none unless it is held and has not expired.
    async fn lock_get(&self, namespace: &str, key: &str) -> Result<Option<Lock>>;

    /// Lists held locks, ordered by the bytes of their keys.
    async fn lock_list(&self, namespace: &str, list: &KeyList) -> Result<Page<Lock>>;

    /// Lists queues with depth and pollers, by name.
    ///
    /// # Behavior
    /// - Lists every queue that has a task, is paused, or was polled in the last five minutes.
    async fn queue_list(&self, namespace: &str) -> Result<Vec<QueueInfo>>;

    /// The namespaces in which there is anything, by name.
    async fn namespaces(&self) -> Result<Vec<String>>;

    /// Registers for wakes.
    ///
    /// # Behavior
    /// - A change after the registration wakes it, in this process at once; from another process as soon as
    ///   the store's push path or the next poll brings it.
    /// - A wake may come for nothing.
    async fn register(&self, namespace: &str, topics: &[Topic]) -> Result<Waiter>;

    /// The session of this process with the store, for locks that are to be free as soon as the process is gone.
    ///
    /// # Behavior
    /// - It lasts until the store is closed, the process dies or its connection is lost; whoever has it is then told, and
    ///   the next call begins another, with another number.
    /// - A store without sessions answers `unsupported`, and so does one that is reached through a server or a pooler,
    ///   whose session it would be.
    async fn session(&self) -> Result<Session>;

    /// Whether an answer is lost when the connection is, although the call may have been done: then calls need keys, to be
    /// repeated. A store that asks afterwards what became of a call loses none.
    ///
    /// # Behavior
    /// - A store in the caller's own process loses no answers.
    /// - One that loses none still answers `timeout` if it cannot be asked any more.
    fn can_lose_answers(&self) -> bool;

    /// Says how the store is.
    async fn health(&self) -> Result<Health>;

    /// Brings the store's schema up to date.
    ///
    /// # Behavior
    /// - Repeating it does nothing. With `dry_run` it only tells. A newer schema is `unsupported`.
    async fn migrate(&self, dry_run: bool) -> Result<Migration>;

    /// Everything in a namespace, at one instant.
    ///
    /// # Behavior
    /// - Loading the records into an empty namespace of any backend gives the same dump there.
    async fn dump(&self, namespace: &str) -> Result<BoxStream<'static, Result<Record>>>;

    /// Fills an empty namespace from a dump and answers how many records there were.
    ///
    /// # Behavior
    /// - A namespace that has anything in it is `conflict`. A dump that breaks off leaves nothing.
    async fn load(&self, namespace: &str, records: BoxStream<'static, Result<Record>>) -> Result<u64>;
}

/// How the store is, and what it promises.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Health {
    /// Which store, without secrets.
    pub store: String,
    /// What an acknowledged batch survives.
    pub durability: Durability,
    /// The version of the schema.
    pub schema_version: u32,
    /// Whether wakes travel between processes.
    pub push: Push,
    /// Anything a person should know.
    pub notes: Vec<String>,
    /// How the store of what is short-lived is, if that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<Ephemeral>,
}

/// How the store of what is short-lived is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ephemeral {
    /// Which store, without secrets.
    pub store: String,
    /// Why it is not used at the moment; none while it is.
    pub away: Option<String>,
    /// How many requests did without it since this process began.
    pub fallbacks: u64,
}

/// What an acknowledged batch survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Nothing: it is gone with the process.
    None,
    /// Most crashes; the last moments may be lost.
    BoundedLoss,
    /// Any crash of process or machine.
    Durable,
}

/// Whether wakes travel between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Push {
    /// They do.
    Ok,
    /// They should and do not; polling delivers.
    Broken,
    /// By configuration, polling delivers.
    PollOnly,
    /// There is only this process.
    InProcess,
}

/// What a migration did, or would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migration {
    /// The version before.
    pub from: u32,
    /// The version after.
    pub to: u32,
    /// The steps.
    pub steps: Vec<String>,
}

/// Hands the calls that only ask to a macro, with more for it behind them, for those who pass them on to another
/// backend: `asking!(passed { … })` is `passed! { { task_get(namespace: &str, …) -> …; … } { … } }`.
#[macro_export]
macro_rules! asking {
    ($macro:ident $($more:tt)*) => {
        $macro! {
            {
                task_get(namespace: &str, ids: &[$crate::model::TaskId]) -> Vec<Option<$crate::model::Task>>;
                task_list(namespace: &str, list: &$crate::query::TaskList) -> $crate::query::Page<$crate::model::Task>;
                task_count(namespace: &str, queue: Option<&str>) -> $crate::query::TaskCounts;
                task_why(namespace: &str, id: $crate::model::TaskId) -> $crate::query::Why;
                stream_read(namespace: &str, read: &$crate::query::StreamRead) -> $crate::query::StreamPage;
                category_read(namespace: &str, read: &$crate::query::CategoryRead) -> $crate::query::CategoryPage;
                stream_list(namespace: &str, list: &$crate::query::KeyList)
                    -> $crate::query::Page<$crate::model::StreamInfo>;
                group_info(namespace: &str, group: &str, source: &$crate::model::Source) -> $crate::model::GroupInfo;
                document_get(namespace: &str, kind: &str, name: &str) -> Option<$crate::model::Document>;
                entry_get(namespace: &str, key: &str) -> Option<$crate::model::Entry>;
                entry_list(namespace: &str, list: &$crate::query::KeyList) -> $crate::query::Page<$crate::model::Entry>;
                lock_get(namespace: &str, key: &str) -> Option<$crate::model::Lock>;
                lock_list(namespace: &str, list: &$crate::query::KeyList) -> $crate::query::Page<$crate::model::Lock>;
                queue_list(namespace: &str) -> Vec<$crate::model::QueueInfo>;
                namespaces() -> Vec<String>;
                health() -> $crate::backend::Health;
                migrate(dry_run: bool) -> $crate::backend::Migration;
            }
            $($more)*
        }
    };
}
