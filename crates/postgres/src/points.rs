//! Rows that are read by their keys. Whoever asks while a statement is under way is answered by the next one, together
//! with all others who wait; nobody waits when little is under way.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::{Arc, Mutex, PoisonError};

use statehold_core::model::{Document, Entry};
use statehold_core::row::{LockRow, TaskRow};
use statehold_core::{Error, Result};
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
    /// Adds a question. Answers whether somebody more is to see to it.
    fn add(&self, ask: Ask<R>) -> bool {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.asks.push(ask);
        let more = waiting.busy < LANES;
        waiting.busy += usize::from(more);
        more
    }

    /// What waits. If nothing does, whoever asked no longer sees to it.
    fn take(&self) -> Vec<Ask<R>> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Answers questions until none waits.
async fn see_to<R: Point>(store: Postgres) {
    loop {
        // Those who were answered are about to ask again.
        yield_now().await;
        let asks = R::points(&store.0).take();
        if asks.is_empty() {
            return;
        }
        let mut namespaces: BTreeMap<String, Vec<Ask<R>>> = BTreeMap::new();
        for ask in asks {
            namespaces.entry(ask.namespace.clone()).or_default().push(ask);
        }
        for (namespace, asks) in namespaces {
            answer(&store, &namespace, asks).await;
        }
    }
}

/// Answers questions about one namespace with one statement.
async fn answer<R: Point>(store: &Postgres, namespace: &str, asks: Vec<Ask<R>>) {
    let keys: BTreeSet<&R::Key> = asks.iter().flat_map(|ask| &ask.keys).collect();
    let keys: Vec<_> = keys.into_iter().collect();
    let found: Result<Vec<R>> = async {
        read!(store, namespace, |db, ns| async {
            let call = rows::get::<R>(ns, &keys, Hold::Not);
            read_all(&db.query(call.sql, call.params).await?, R::read)
        })
    }
    .await;
    let found: Result<BTreeMap<_, _>, Error> =
        found.map(|rows| rows.into_iter().map(|row| (row.key(), Arc::new(row))).collect());
    for ask in asks {
        let rows = found.clone().map(|found| ask.keys.iter().map(|key| found.get(key).cloned()).collect());
        let _ = ask.reply.send(rows);
    }
}
