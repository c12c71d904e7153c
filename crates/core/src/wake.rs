//! Wakes: hints that something may have changed. Whoever waits registers, reads, then sleeps; a lost
//! wake costs time and nothing else. The [`Hub`] wakes within a process; how a hint travels between
//! processes is each backend's own, and a [`Mark`] is all that has to travel.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures_util::future::select_all;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::model::{StreamName, TaskId};

/// What a wake is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

/// A topic of a namespace as a number that is the same in every process. Two topics may share one; then one
/// wakes the other's waiters for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark(pub u64);

impl Mark {
    /// The mark of a topic.
    pub fn of(namespace: &str, topic: &Topic) -> Self {
        let mut text = Fnv(0xcbf2_9ce4_8422_2325);
        let _ = write!(text, "{namespace}\n{topic}");
        Self(text.0)
    }
}

/// The FNV-1a hash of what is written to it: short, and the same on every machine.
struct Fnv(u64);

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        self.0 = text.bytes().fold(self.0, step);
        Ok(())
    }
}

/// Who waits for what, within one process.
#[derive(Clone, Default)]
pub struct Hub(Arc<Mutex<Waiting>>);

type Waiting = HashMap<Mark, Vec<Weak<Notify>>>;

impl Hub {
    /// A hub that nobody waits at.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers for topics. A wake after this is not missed, however late the wait begins.
    pub fn register(&self, namespace: &str, topics: &[Topic]) -> Waiter {
        let notify = Arc::new(Notify::new());
        let marks: Vec<_> = topics.iter().map(|topic| Mark::of(namespace, topic)).collect();
        let mut waiting = self.lock();
        for mark in &marks {
            waiting.entry(*mark).or_default().push(Arc::downgrade(&notify));
        }
        drop(waiting);
        Waiter { places: vec![Place { hub: self.clone(), marks, notify }] }
    }

    /// Whether nobody waits for anything.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Wakes whoever registered for any of these.
    pub fn wake(&self, marks: impl IntoIterator<Item = Mark>) {
        let waiting = self.lock();
        if waiting.is_empty() {
            return;
        }
        for mark in marks {
            let waiters = waiting.get(&mark).into_iter().flatten();
            waiters.filter_map(Weak::upgrade).for_each(|waiter| waiter.notify_one());
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
    /// One at each hub.
    places: Vec<Place>,
}

/// A registration at one hub.
#[derive(Debug)]
struct Place {
    hub: Hub,
    marks: Vec<Mark>,
    notify: Arc<Notify>,
}

impl Waiter {
    /// Sleeps until something may have changed since the registration or the last wake.
    pub async fn wait(&self) {
        match &*self.places {
            [place] => place.notify.notified().await,
            places => {
                select_all(places.iter().map(|place| Box::pin(place.notify.notified()))).await;
            }
        }
    }

    /// Is woken for what wakes another one too.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.places.extend(other.places);
        self
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let own = Arc::downgrade(&self.notify);
        let mut waiting = self.hub.lock();
        for mark in &self.marks {
            if let Some(waiters) = waiting.get_mut(mark) {
                waiters.retain(|waiter| !waiter.ptr_eq(&own));
                if waiters.is_empty() {
                    waiting.remove(mark);
                }
            }
        }
    }
}
