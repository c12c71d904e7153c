//! Wakes: hints that something may have changed. Whoever waits registers, reads, then sleeps; a lost
//! wake costs time and nothing else. The [`Hub`] wakes within a process; how a hint travels between
//! processes is each backend's own, and a [`Mark`] is all that has to travel.

use std::collections::HashMap;
use std::fmt;
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

/// A topic whose parts are elsewhere.
#[derive(Clone, Copy)]
pub(crate) enum TopicRef<'a> {
    Queue(&'a str),
    Task(TaskId),
    Stream(&'a StreamName),
    Category(&'a str),
    Group(&'a str),
    Entry(&'a str),
    Lock(&'a str),
    Document { kind: &'a str, name: &'a str },
}

impl Topic {
    fn by_ref(&self) -> TopicRef<'_> {
        match self {
            Self::Queue(queue) => TopicRef::Queue(queue),
            Self::Task(id) => TopicRef::Task(*id),
            Self::Stream(name) => TopicRef::Stream(name),
            Self::Category(category) => TopicRef::Category(category),
            Self::Group(group) => TopicRef::Group(group),
            Self::Entry(key) => TopicRef::Entry(key),
            Self::Lock(key) => TopicRef::Lock(key),
            Self::Document { kind, name } => TopicRef::Document { kind, name },
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
        Marks::of(namespace).mark(topic.by_ref())
    }
}

/// The marks of the topics of a namespace.
pub(crate) struct Marks(Hash);

impl Marks {
    pub(crate) fn of(namespace: &str) -> Self {
        Self(Hash::default().text(namespace))
    }

    pub(crate) fn mark(&self, topic: TopicRef<'_>) -> Mark {
        let hash = match topic {
            TopicRef::Queue(queue) => self.0.number(1).text(queue),
            TopicRef::Task(id) => self.0.number(2).bytes(id.0.as_bytes()),
            TopicRef::Stream(name) => self.0.number(3).text(name.as_str()),
            TopicRef::Category(category) => self.0.number(4).text(category),
            TopicRef::Group(group) => self.0.number(5).text(group),
            TopicRef::Entry(key) => self.0.number(6).text(key),
            TopicRef::Lock(key) => self.0.number(7).text(key),
            TopicRef::Document { kind, name } => self.0.number(8).text(kind).text(name),
        };
        Mark(hash.0)
    }
}

/// A hash of what is put into it: quick for short texts, and the same on every machine. It need not withstand anybody.
#[derive(Clone, Copy, Default)]
struct Hash(u64);

impl Hash {
    #[must_use]
    fn number(self, number: u64) -> Self {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(mixed ^ (mixed >> 29))
    }

    #[must_use]
    fn bytes(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks();
        let hash = words.iter().fold(self, |hash, word| hash.number(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash.number(u64::from_le_bytes(last))
    }

    /// A text and its length, so that what comes after it is no part of it.
    #[must_use]
    fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes()).number(text.len() as u64)
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
