//! The store, with what it is asked counted: how long each call took, what was claimed, which leases were lost.

use std::sync::Arc;

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use statehold::Result;
use statehold_core::Backend;
use statehold_core::batch::{Prepared, Replies};
use statehold_core::call::{Claim, Claimed, Deliveries, GroupRead, Sweep, Swept};
use statehold_core::dump::Record;
use statehold_core::model::Document;
use statehold_core::query::{DocumentList, Page};
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
    ($({ $($name:ident($($given:ident: $type:ty),*) -> $answer:ty;)* })* own { $($own:tt)* }) => {
        #[async_trait]
        impl Backend for Counted {
            $($(async fn $name(&self, $($given: $type),*) -> Result<$answer> {
                self.metrics.timed(stringify!($name), self.store.$name($($given),*)).await
            })*)*

            $($own)*
        }
    };
}

statehold_core::asking! {
    passed_on
    {
        apply(batch: Prepared) -> Replies;
        group_read(read: GroupRead) -> Deliveries;
        document_list(namespace: &str, list: &DocumentList) -> Page<Document>;
        dump(namespace: &str) -> BoxStream<'static, Result<Record>>;
        load(namespace: &str, records: BoxStream<'static, Result<Record>>) -> u64;
    }
    own {
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
