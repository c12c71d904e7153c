//! Rows that are read by their keys. Whoever asks while nothing is under way reads by itself. Whoever asks while a
//! statement is, is answered by the next one, together with all others who wait.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use statehold_core::Result;
use statehold_core::model::{Document, Entry};
use statehold_core::row::{LockRow, TaskRow};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::yield_now;

use crate::connection::Hold;
use crate::readers::read;
use crate::rows::{self, Table, read_all};
use crate::{Inner, Postgres, stopped};

/// How many statements of a kind are under way at most.
const LANES: usize = 2;

/// The rows of some keys, those that are there.
type Rows<R> = Vec<Option<Arc<R>>>;

/// A question that waits.
struct Ask<R: Table> {
    namespace: String,
    keys: Vec<R::Key>,
    reply: oneshot::Sender<Result<Rows<R>>>,
}

/// Questions about rows of a kind.
pub(crate) struct Points<R: Table>(Mutex<Waiting<R>>);

struct Waiting<R: Table> {
    asks: Vec<Ask<R>>,
    /// How many see to them.
    busy: usize,
}

impl<R: Table> Default for Points<R> {
    fn default() -> Self {
        Self(Mutex::new(Waiting { asks: Vec::new(), busy: 0 }))
    }
}

impl<R: Table> Points<R> {
    fn lock(&self) -> MutexGuard<'_, Waiting<R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody was busy. The caller is then.
    fn begin(&self) -> bool {
        let mut waiting = self.lock();
        let alone = waiting.busy == 0;
        waiting.busy += usize::from(alone);
        alone
    }

    /// Adds a question. Answers whether somebody more is to see to it.
    fn add(&self, ask: Ask<R>) -> bool {
        let mut waiting = self.lock();
        waiting.asks.push(ask);
        let more = waiting.busy < LANES;
        waiting.busy += usize::from(more);
        more
    }

    /// What waits. If nothing does, whoever asked no longer sees to it.
    fn take(&self) -> Vec<Ask<R>> {
        let mut waiting = self.lock();
        waiting.busy -= usize::from(waiting.asks.is_empty());
        take(&mut waiting.asks)
    }
}

/// A kind of row that is read by its key.
pub(crate) trait Point: Table {
    /// Where questions about it wait.
    fn points(store: &Inner) -> &Points<Self>;
}

impl Point for TaskRow {
    fn points(store: &Inner) -> &Points<Self> {
        &store.tasks
    }
}

impl Point for Document {
    fn points(store: &Inner) -> &Points<Self> {
        &store.documents
    }
}

impl Point for Entry {
    fn points(store: &Inner) -> &Points<Self> {
        &store.entries
    }
}

impl Point for LockRow {
    fn points(store: &Inner) -> &Points<Self> {
        &store.locks
    }
}

impl Postgres {
    /// Rows by their keys.
    pub(crate) async fn rows<R: Point>(&self, namespace: &str, keys: Vec<R::Key>) -> Result<Rows<R>> {
        if R::points(&self.0).begin() {
            let _turn = Turn::<R> { store: self, kind: PhantomData };
            let found = find::<R>(self, namespace, &keys.iter().collect()).await?;
            return Ok(keys.iter().map(|key| found.get(key).cloned()).collect());
        }
        let (reply, answer) = oneshot::channel();
        let ask = Ask { namespace: namespace.to_owned(), keys, reply };
        if R::points(&self.0).add(ask) {
            tokio::spawn(see_to::<R>(self.clone()));
        }
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// One row by its key.
    pub(crate) async fn row<R: Point>(&self, namespace: &str, key: R::Key) -> Result<Option<R>> {
        let rows = self.rows::<R>(namespace, vec![key]).await?;
        Ok(rows.into_iter().flatten().next().map(Arc::unwrap_or_clone))
    }
}

/// The turn of somebody who reads by itself. At its end, also if nobody waits for the answer any more, others see to what
/// came meanwhile.
struct Turn<'a, R: Point> {
    store: &'a Postgres,
    kind: PhantomData<R>,
}

impl<R: Point> Drop for Turn<'_, R> {
    fn drop(&mut self) {
        let mut waiting = R::points(&self.store.0).lock();
        match Handle::try_current() {
            Ok(runtime) if !waiting.asks.is_empty() => drop(runtime.spawn(see_to::<R>(self.store.clone()))),
            _ => {
                waiting.busy -= 1;
                // Without a runtime nobody can see to them.
                waiting.asks.clear();
            }
        }
    }
}

/// Answers questions until none waits.
async fn see_to<R: Point>(store: Postgres) {
    loop {
        let asks = R::points(&store.0).take();
        if asks.is_empty() {
            return;
        }
        let many = asks.len() > 1;
        let mut namespaces: BTreeMap<String, Vec<Ask<R>>> = BTreeMap::new();
        for ask in asks {
            namespaces.entry(ask.namespace.clone()).or_default().push(ask);
        }
        for (namespace, asks) in namespaces {
            answer(&store, &namespace, asks).await;
        }
        if many {
            // They are about to ask again, and are then answered together.
            yield_now().await;
        }
    }
}

/// Reads rows by their keys with one statement.
async fn find<R: Point>(
    store: &Postgres,
    namespace: &str,
    keys: &BTreeSet<&R::Key>,
) -> Result<BTreeMap<R::Key, Arc<R>>> {
    let keys: Vec<_> = keys.iter().copied().collect();
    let found: Vec<R> = read!(store, namespace, |db, ns| async {
        let call = rows::get::<R>(ns, &keys, Hold::Not);
        read_all(&db.query(call.sql, call.params).await?, R::read)
    })?;
    Ok(found.into_iter().map(|row| (row.key(), Arc::new(row))).collect())
}

/// Answers questions about one namespace with one statement.
async fn answer<R: Point>(store: &Postgres, namespace: &str, asks: Vec<Ask<R>>) {
    let keys = asks.iter().flat_map(|ask| &ask.keys).collect();
    let found = find::<R>(store, namespace, &keys).await;
    for ask in asks {
        let rows = found.as_ref().map(|found| ask.keys.iter().map(|key| found.get(key).cloned()).collect());
        let rows = rows.map_err(Clone::clone);
        let _ = ask.reply.send(rows);
    }
}
