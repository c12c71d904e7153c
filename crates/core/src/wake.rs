//! Wakes: hints that something may have changed. Whoever waits registers, reads, then sleeps; a lost
//! wake costs time and nothing else. The [`Hub`] wakes within a process; how a hint travels between
//! processes is each backend's own.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Notify;

use crate::model::{StreamName, TaskId};

/// What a wake is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// A task of this queue became ready, or the queue was paused or not.
    Queue(String),
    /// This task changed.
    Task(TaskId),
    /// This stream grew or was trimmed.
    Stream(StreamName),
    /// A stream of this category grew or was trimmed.
    Category(String),
    /// This group has a delivery to give again.
    Group(String),
    /// This entry was set, taken or deleted.
    Entry(String),
    /// This lock was freed.
    Lock(String),
    /// This document was written or deleted.
    Document {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(queue) => write!(f, "queue/{queue}"),
            Self::Task(id) => write!(f, "task/{id}"),
            Self::Stream(name) => write!(f, "stream/{name}"),
            Self::Category(category) => write!(f, "category/{category}"),
            Self::Group(group) => write!(f, "group/{group}"),
            Self::Entry(key) => write!(f, "entry/{key}"),
            Self::Lock(key) => write!(f, "lock/{key}"),
            Self::Document { kind, name } => write!(f, "document/{kind}/{name}"),
        }
    }
}

/// Who waits for what, within one process.
#[derive(Clone, Default)]
pub struct Hub(Arc<Mutex<Waiting>>);

type Waiting = HashMap<(String, Topic), Vec<Weak<Notify>>>;

impl Hub {
    /// A hub that nobody waits at.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers for topics. A wake after this is not missed, however late the wait begins.
    pub fn register(&self, namespace: &str, topics: &[Topic]) -> Waiter {
        let notify = Arc::new(Notify::new());
        let keys: Vec<_> = topics.iter().map(|topic| (namespace.to_owned(), topic.clone())).collect();
        let mut waiting = self.lock();
        for key in &keys {
            waiting.entry(key.clone()).or_default().push(Arc::downgrade(&notify));
        }
        Waiter { hub: self.clone(), keys, notify }
    }

    /// Wakes whoever registered for any of these.
    pub fn wake<'a>(&self, namespace: &str, topics: impl IntoIterator<Item = &'a Topic>) {
        let waiting = self.lock();
        if waiting.is_empty() {
            return;
        }
        for topic in topics {
            let waiters = waiting.get(&(namespace.to_owned(), topic.clone()));
            waiters.into_iter().flatten().filter_map(Weak::upgrade).for_each(|waiter| waiter.notify_one());
        }
    }

    /// Wakes everyone, for a backend that lost track of what changed.
    pub fn wake_all(&self) {
        self.lock().values().flatten().filter_map(Weak::upgrade).for_each(|waiter| waiter.notify_one());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").finish_non_exhaustive()
    }
}

/// A registration. Dropping it ends it.
#[derive(Debug)]
pub struct Waiter {
    hub: Hub,
    keys: Vec<(String, Topic)>,
    notify: Arc<Notify>,
}

impl Waiter {
    /// Sleeps until something may have changed since the registration or the last wake.
    pub async fn wait(&self) {
        self.notify.notified().await;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let own = Arc::downgrade(&self.notify);
        let mut waiting = self.hub.lock();
        for key in &self.keys {
            if let Some(waiters) = waiting.get_mut(key) {
                waiters.retain(|waiter| !waiter.ptr_eq(&own));
                if waiters.is_empty() {
                    waiting.remove(key);
                }
            }
        }
    }
}
