//! The other side of the pipe: stores that are opened, asked and closed for another process.

use std::collections::HashMap;
use std::future::Future;
use std::io::{BufRead as _, Write as _};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use statehold_core::batch::Prepared;
use statehold_core::call::{Claim, Claimed, Deliveries, GroupRead};
use statehold_core::command::Reply;
use statehold_core::model::Document;
use statehold_core::query::{DocumentList, Page};
use statehold_core::wake::Topic;
use statehold_core::{Backend, Clock, Result, Timestamp};
use tokio::task::JoinSet;

use super::wire::{Dump, Message, Request, read, write};

/// Opens the store of a folder.
pub(super) type OpenAt = Arc<dyn Fn(PathBuf, Clock) -> BoxFuture<'static, Arc<dyn Backend>> + Send + Sync>;

/// Answers requests from stdin on stdout until there are no more.
pub(super) fn serve(open: &OpenAt) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let stores = Stores::default();
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("stdin can be read");
        let request: Request = serde_json::from_str(&line).expect("a request");
        let (now, stores) = (Timestamp::from_micros(request.now), stores.clone());
        if let Some(store) = stores.get(request.store) {
            set(&store.clock, now);
        }
        let open = Arc::clone(open);
        runtime.spawn(answer(request.id, async move {
            match &*request.call {
                "open" => {
                    let clock = Clock::manual(now);
                    let backend = open(read(&request.arguments), clock.clone()).await;
                    stores.open(request.store, Store { backend, clock, waiting: Mutex::default() });
                    Ok(write(&()))
                }
                "close" => {
                    stores.close(request.store);
                    Ok(write(&()))
                }
                call => {
                    let store = stores.get(request.store).expect("the store is open");
                    store.answer(call, &request.arguments).await
                }
            }
        }));
    }
    ExitCode::SUCCESS
}

/// Does what was asked and tells what came of it.
async fn answer(id: u64, work: impl Future<Output = Result<Box<RawValue>>>) {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(result) => tell(&Message::Answer(id, result)),
        Err(_) => tell(&Message::Panic(id)),
    }
}

fn tell(message: &Message) {
    let line = format!("{}\n", write(message));
    let mut stdout = std::io::stdout().lock();
    // If nobody listens, stdin ends too.
    let _ = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
}

/// Moves a clock, forward or back. Requests are read one after another, so nobody else moves it meanwhile.
fn set(clock: &Clock, now: Timestamp) {
    clock.advance(now.since(clock.now()));
    clock.rewind(clock.now().since(now));
}

/// The stores that are open.
#[derive(Clone, Default)]
struct Stores(Arc<Mutex<HashMap<u64, Arc<Store>>>>);

impl Stores {
    fn get(&self, number: u64) -> Option<Arc<Store>> {
        self.lock().get(&number).cloned()
    }

    fn open(&self, number: u64, store: Store) {
        self.lock().insert(number, Arc::new(store));
    }

    fn close(&self, number: u64) {
        let store = self.lock().remove(&number);
        drop(store);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Store>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store that is open, with the clock that it goes by.
pub(super) struct Store {
    pub(super) backend: Arc<dyn Backend>,
    clock: Clock,
    /// Who passes on wakes.
    waiting: Mutex<JoinSet<()>>,
}

impl Store {
    pub(super) async fn apply(&self, batch: Prepared) -> Result<(Vec<Reply>, bool)> {
        let replies = self.backend.apply(batch).await?;
        Ok((replies.replies, replies.replayed))
    }

    pub(super) async fn claim(&self, (namespace, claim): (String, Claim)) -> Result<Claimed> {
        self.backend.claim(Claim { namespace, ..claim }).await
    }

    pub(super) async fn group_read(
        &self,
        (namespace, group, read): (String, String, GroupRead),
    ) -> Result<Deliveries> {
        self.backend.group_read(GroupRead { namespace, group, ..read }).await
    }

    pub(super) async fn document_list(
        &self,
        (namespace, kind, list): (String, String, DocumentList),
    ) -> Result<Page<Document>> {
        self.backend.document_list(&namespace, &DocumentList { kind, ..list }).await
    }

    pub(super) async fn register(
        &self,
        (namespace, topics, number): (String, Vec<Topic>, u64),
    ) -> Result<()> {
        let waiter = self.backend.register(&namespace, &topics).await?;
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).spawn(async move {
            loop {
                waiter.wait().await;
                tell(&Message::Wake(number));
            }
        });
        Ok(())
    }

    pub(super) async fn dump(&self, namespace: String) -> Result<Dump> {
        Ok(Dump::collect(self.backend.dump(&namespace).await?).await)
    }

    pub(super) async fn load(&self, (namespace, dump): (String, Dump)) -> Result<u64> {
        self.backend.load(&namespace, dump.stream()).await
    }
}
