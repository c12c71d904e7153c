//! The store, with what it is asked counted: how long each call took, what was claimed, which leases were lost.

use std::sync::Arc;

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use statehold::Result;
use statehold_core::backend::{Backend, Health, Migration};
use statehold_core::batch::{Prepared, Replies};
use statehold_core::call::{Claim, Claimed, Deliveries, GroupRead, Sweep, Swept};
use statehold_core::dump::Record;
use statehold_core::model::{Document, Entry, GroupInfo, Lock, QueueInfo, Source, StreamInfo, Task, TaskId};
use statehold_core::query::{
    CategoryPage, CategoryRead, DocumentList, KeyList, Page, StreamPage, StreamRead, TaskCounts, TaskList,
    Why,
};
use statehold_core::session::Session;
use statehold_core::wake::{Topic, Waiter};

use crate::metrics::Metrics;

/// A store that is counted.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) store: Arc<dyn Backend>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Passes calls on and takes their time, beside those that are written out.
macro_rules! passed_on {
    ({ $($name:ident($($given:ident: $type:ty),*) -> $answer:ty;)* } { $($own:tt)* }) => {
        #[async_trait]
        impl Backend for Counted {
            $(async fn $name(&self, $($given: $type),*) -> Result<$answer> {
                self.metrics.timed(stringify!($name), self.store.$name($($given),*)).await
            })*

            $($own)*
        }
    };
}

passed_on! {
    {
        apply(batch: Prepared) -> Replies;
        group_read(read: GroupRead) -> Deliveries;
        task_get(namespace: &str, ids: &[TaskId]) -> Vec<Option<Task>>;
        task_list(namespace: &str, list: &TaskList) -> Page<Task>;
        task_count(namespace: &str, queue: Option<&str>) -> TaskCounts;
        task_why(namespace: &str, id: TaskId) -> Why;
        stream_read(namespace: &str, read: &StreamRead) -> StreamPage;
        category_read(namespace: &str, read: &CategoryRead) -> CategoryPage;
        stream_list(namespace: &str, list: &KeyList) -> Page<StreamInfo>;
        group_info(namespace: &str, group: &str, source: &Source) -> GroupInfo;
        document_get(namespace: &str, kind: &str, name: &str) -> Option<Document>;
        document_list(namespace: &str, list: &DocumentList) -> Page<Document>;
        entry_get(namespace: &str, key: &str) -> Option<Entry>;
        entry_list(namespace: &str, list: &KeyList) -> Page<Entry>;
        lock_get(namespace: &str, key: &str) -> Option<Lock>;
        lock_list(namespace: &str, list: &KeyList) -> Page<Lock>;
        queue_list(namespace: &str) -> Vec<QueueInfo>;
        namespaces() -> Vec<String>;
        health() -> Health;
        migrate(dry_run: bool) -> Migration;
        dump(namespace: &str) -> BoxStream<'static, Result<Record>>;
        load(namespace: &str, records: BoxStream<'static, Result<Record>>) -> u64;
    }
    {
        async fn claim(&self, claim: Claim) -> Result<Claimed> {
            let claimed = self.metrics.timed("claim", self.store.claim(claim)).await?;
            claimed.tasks.iter().for_each(|task| self.metrics.claimed(task));
            Ok(claimed)
        }

        async fn sweep(&self, sweep: Sweep) -> Result<Swept> {
            let swept = self.metrics.timed("sweep", self.store.sweep(sweep)).await?;
            self.metrics.lost.inc_by(swept.leases.into());
            Ok(swept)
        }

        async fn register(&self, namespace: &str, topics: &[Topic]) -> Result<Waiter> {
            self.store.register(namespace, topics).await
        }

        async fn session(&self) -> Result<Session> {
            Err(Session::none("a server, whose own the session would be,"))
        }

        fn can_lose_answers(&self) -> bool {
            self.store.can_lose_answers()
        }
    }
}
