//! The handle that everything begins with: a store, a namespace in it, and who acts.

use std::sync::Arc;
use std::time::Duration;

use statehold_core::batch::{BatchKey, Prepared, Replies};
use statehold_core::command::{Op, Reply};
use statehold_core::{Backend, Batch, Error, ErrorKind, Result};

use crate::{Documents, Entries, Groups, Locks, Queues, Results, Store, Streams, Tasks, Threads};

/// How long to wait before each repetition of a call that the store could not answer.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(2),
];

/// A store, a namespace in it, and who acts. Cheap to clone; clones share the store.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use statehold::{Statehold, TaskCreate};
///
/// let hold = Statehold::open("memory:").await?;
/// let created = hold.tasks().create(TaskCreate::new("answer").idempotency_key("hook-7")).await?;
/// let again = hold.tasks().create(TaskCreate::new("answer").idempotency_key("hook-7")).await?;
/// assert!(created.created && !again.created);
/// assert_eq!(created.task.id, again.task.id);
/// # Ok::<(), statehold::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Statehold {
    backend: Arc<dyn Backend>,
    namespace: Arc<str>,
    actor: Option<Arc<str>>,
}

impl Statehold {
    /// Opens the store that a URL names, at the namespace `default`.
    pub async fn open(url: &str) -> Result<Self> {
        Ok(Self::on(Store::parse(url)?.open().await?))
    }

    /// A store that is open already.
    pub fn on(backend: Arc<dyn Backend>) -> Self {
        Self { backend, namespace: "default".into(), actor: None }
    }

    /// The same store at another namespace. Namespaces share nothing.
    #[must_use]
    pub fn at(&self, namespace: &str) -> Self {
        Self { namespace: namespace.into(), ..self.clone() }
    }

    /// The same, with a name that goes into the events that it writes.
    #[must_use]
    pub fn acting_as(&self, actor: &str) -> Self {
        Self { actor: Some(actor.into()), ..self.clone() }
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The store itself: the contract without conveniences.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Tasks and their leases.
    pub fn tasks(&self) -> Tasks<'_> {
        Tasks { hold: self }
    }

    /// Queues: how full they are, who asks them for work, pausing.
    pub fn queues(&self) -> Queues<'_> {
        Queues { hold: self }
    }

    /// Streams and categories of events.
    pub fn streams(&self) -> Streams<'_> {
        Streams { hold: self }
    }

    /// Consumer groups.
    pub fn groups(&self) -> Groups<'_> {
        Groups { hold: self }
    }

    /// Documents.
    pub fn documents(&self) -> Documents<'_> {
        Documents { hold: self }
    }

    /// Entries: values with a time to live.
    pub fn entries(&self) -> Entries<'_> {
        Entries { hold: self }
    }

    /// Locks.
    pub fn locks(&self) -> Locks<'_> {
        Locks { hold: self }
    }

    /// Threads and their messages.
    pub fn threads(&self) -> Threads<'_> {
        Threads { hold: self }
    }

    /// Results that are handed from one who works to one who waits.
    pub fn results(&self) -> Results<'_> {
        Results { hold: self }
    }

    /// An empty batch of this namespace and actor, to be filled and given to [`apply`](Self::apply).
    pub fn batch(&self) -> Batch {
        let mut batch = Batch::new(&*self.namespace);
        batch.actor = self.actor.as_deref().map(str::to_owned);
        batch
    }

    /// Applies a batch: all of it or nothing. If the store does not answer, it is repeated, in such a way that it
    /// happens once; dropping the future leaves nothing half done.
    pub async fn apply(&self, batch: Batch) -> Result<Replies> {
        let mut prepared = batch.prepare()?;
        if self.backend.can_lose_answers() && !prepared.is_repeatable() {
            prepared = prepared.keyed(BatchKey::for_retry());
        }
        let mut tries = Tries::of(prepared.is_repeatable());
        let first = prepared.clone();
        loop {
            match self.backend.apply(prepared.clone()).await {
                Ok(replies) => return Ok(claim_created(replies, &first)),
                Err(error) => tries.pause(error).await?,
            }
            prepared = prepared.again();
        }
    }

    /// Applies one command.
    pub async fn run<O: Op>(&self, command: O) -> Result<O::Reply> {
        let mut batch = self.batch();
        let handle = batch.add(command);
        self.apply(batch).await?.take(handle)
    }
}

/// A repeated create finds the task that its first try made. Nobody else knows an id that was generated here, so that it
/// was made by this call.
fn claim_created(mut replies: Replies, first: &Prepared) -> Replies {
    for reply in &mut replies.replies {
        if let Reply::Created(created) = reply {
            created.created |= first.is_generated(created.task.id);
        }
    }
    replies
}

/// The tries of one call.
pub(crate) struct Tries {
    pauses: std::slice::Iter<'static, Duration>,
    repeatable: bool,
}

impl Tries {
    /// Of a call that can be repeated although it may have been done, or only if it surely was not.
    pub(crate) fn of(repeatable: bool) -> Self {
        Self { pauses: PAUSES.iter(), repeatable }
    }

    /// Waits before the next try, if there is to be one: the store could not be reached, or its answer was lost.
    pub(crate) async fn pause(&mut self, error: Error) -> Result<()> {
        let worth = match error.kind() {
            ErrorKind::Unavailable => true,
            ErrorKind::Timeout => self.repeatable,
            _ => false,
        };
        let Some(pause) = self.pauses.next().filter(|_| worth) else { return Err(error) };
        tokio::time::sleep(*pause).await;
        Ok(())
    }
}
