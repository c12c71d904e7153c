//! How a process learns what became of a call whose answer was lost. With what it writes, a call leaves its version in a
//! field of a small hash, one for each call that is on its way at the same time. Whoever finds it there knows that all of it
//! was done. Otherwise the version is noted beside the last time of the namespace, which every call reads, so that it is never
//! done from then on.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{Cmd, Value};
use statehold_core::model::TaskId;
use tokio::time::{Instant, sleep, timeout};

use crate::connection::{Connection, read_bytes};
use crate::error::{Result, Trouble};
use crate::rows::{VERSION, Version};
use crate::space::{Bytes, Space};
use crate::writer::pause;

/// How long a call may take to be done, in microseconds. One that comes later is refused, so that nobody needs to remember
/// for longer that it must not be done.
const LATEST: i64 = 60_000_000;

/// For how long a server that does not answer is asked what became of a call.
const CURIOSITY: Duration = Duration::from_secs(10);

/// How long the server keeps what a process left, and how often that time begins anew while it writes.
const KEPT: Duration = Duration::from_secs(86_400);
const RENEWED: Duration = Duration::from_secs(3600);

/// Gives versions, of which none repeats: a number of this process, drawn by chance, and one that counts.
pub(crate) struct Strokes {
    process: [u8; 8],
    next: AtomicU64,
    slots: Arc<Mutex<Slots>>,
    renewed: Arc<Renewed>,
}

/// When the server last began to count the time that it keeps what was left in a namespace.
type Renewed = Mutex<HashMap<String, Instant>>;

/// Fields in which a call may leave its version.
#[derive(Default)]
struct Slots {
    free: Vec<u32>,
    made: u32,
}

/// A call that leaves its version.
pub(crate) struct Stroke {
    pub(crate) version: Version,
    /// The key of the hash.
    key: Bytes,
    slot: u32,
    /// From when on it is not done any more, in microseconds of the server's clock.
    until: i64,
    slots: Arc<Mutex<Slots>>,
    /// The namespace, if the server is to keep what is left there for another while.
    renews: Option<(String, Arc<Renewed>)>,
}

impl Strokes {
    pub(crate) fn new() -> Self {
        let mut process = [0; 8];
        process.copy_from_slice(&TaskId::generate().0.as_bytes()[8..]);
        Self { process, next: AtomicU64::new(0), slots: Arc::default(), renewed: Arc::default() }
    }

    /// The version of what is written next.
    pub(crate) fn version(&self) -> Version {
        let mut version = [0; VERSION];
        version[..8].copy_from_slice(&self.process);
        version[8..].copy_from_slice(&self.next.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        version
    }

    /// A call in a namespace that leaves a version.
    pub(crate) fn stroke(&self, db: &Connection, space: &Space, namespace: &str, version: Version) -> Stroke {
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.free.pop().unwrap_or_else(|| {
                slots.made += 1;
                slots.made
            })
        };
        Stroke {
            version,
            key: space.strokes(self.process),
            slot,
            until: db.about_now().as_micros() + LATEST,
            slots: Arc::clone(&self.slots),
            renews: self.is_to_renew(namespace).then(|| (namespace.to_owned(), Arc::clone(&self.renewed))),
        }
    }

    fn is_to_renew(&self, namespace: &str) -> bool {
        let renewed = self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        renewed.get(namespace).is_none_or(|at| at.elapsed() >= RENEWED)
    }
}

impl Stroke {
    /// The key of the hash.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// What a function needs to know: until when it may be done, its version, for how long to keep what it leaves or nothing
    /// if that is said already, and the field.
    pub(crate) fn arg(&self) -> Bytes {
        let until = u64::try_from(self.until).unwrap_or_default();
        let kept = if self.renews.is_some() { u32::try_from(KEPT.as_secs()).unwrap_or_default() } else { 0 };
        [&self.version, until.to_be_bytes().as_slice(), &kept.to_be_bytes(), &self.slot.to_be_bytes()]
            .concat()
    }

    /// Asks what became of it after its answer was lost: what it left if it was done; none if it was not, and never will
    /// be. If the server cannot be asked, it stays at what was wrong before, and the field is not used again: the call may be
    /// done yet.
    pub(crate) async fn learn(self, db: &Connection, space: &Space, lost: Trouble) -> Result<Option<Bytes>> {
        let mut call = db.function("fate");
        call.arg(b"2").arg(space.last()).arg(&self.key).arg(self.arg());
        let Ok(said) = insist(db, &call).await else { return Err(lost) };
        self.end(false);
        Ok(read_bytes(said)?.map(|mut left| left.split_off(VERSION.min(left.len()))))
    }

    /// It is known what became of it, and whether it surely left word: another one may use the field.
    pub(crate) fn end(self, left: bool) {
        if let Some((namespace, renewed)) = self.renews.filter(|_| left) {
            renewed.lock().unwrap_or_else(PoisonError::into_inner).insert(namespace, Instant::now());
        }
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).free.push(self.slot);
    }
}

/// Adds a stroke to a call of a function, as the last of its keys and the first of its arguments.
pub(crate) fn begin(call: &mut Cmd, space: &Space, stroke: Option<&Stroke>) {
    call.arg(if stroke.is_some() { b"3" } else { b"2" }).arg(space.last()).arg(space.index());
    if let Some(stroke) = stroke {
        call.arg(stroke.key()).arg(stroke.arg());
    } else {
        call.arg(b"");
    }
}

/// Sends something that may be done twice, until it is answered or that took too long.
pub(crate) async fn insist(db: &Connection, call: &Cmd) -> Result<Value> {
    let (began, mut tries) = (Instant::now(), 0);
    loop {
        let left = CURIOSITY.saturating_sub(began.elapsed());
        let trouble = match timeout(left, db.call(call)).await {
            Ok(Err(trouble)) if trouble.is_lost() || trouble.is_passing() => trouble,
            Ok(said) => return said,
            Err(elapsed) => return Err(Trouble::Redis(io::Error::from(elapsed).into())),
        };
        tries += 1;
        if began.elapsed() > CURIOSITY {
            return Err(trouble);
        }
        sleep(pause(tries, true)).await;
    }
}
