//! A store behind a bad line: calls do not reach it, or are done and their answers are lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use statehold::core::batch::{Prepared, Replies};
use statehold::core::call::{Claim, Claimed, Deliveries, GroupRead, Sweep, Swept};
use statehold::core::dump::Record;
use statehold::core::memory::Memory;
use statehold::core::model::Document;
use statehold::core::query::{DocumentList, Page};
use statehold::core::session::Session;
use statehold::core::wake::{Topic, Waiter};
use statehold::{Backend, Clock, Error, ErrorKind, Result};

use super::random;

/// A store in memory behind a bad line.
#[derive(Debug)]
pub(crate) struct Flaky {
    store: Memory,
    /// Of so many calls that change something one is cut off before and one after it is done; none if 0.
    one_in: u64,
    /// Whether nothing comes through at all.
    down: AtomicBool,
    /// How many calls have been cut off since the last one that was not.
    in_a_row: AtomicU64,
    /// How many calls did not reach the store.
    unreached: AtomicU64,
    /// How many were done and not answered.
    unanswered: AtomicU64,
}

impl Flaky {
    pub(crate) fn new(clock: Clock, one_in: u64) -> Self {
        Self {
            store: Memory::new(clock),
            one_in,
            down: false.into(),
            in_a_row: 0.into(),
            unreached: 0.into(),
            unanswered: 0.into(),
        }
    }

    /// Cuts the line, or mends it.
    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    /// How many calls did not reach the store, and how many were done and not answered.
    pub(crate) fn troubles(&self) -> (u64, u64) {
        (self.unreached.load(Ordering::SeqCst), self.unanswered.load(Ordering::SeqCst))
    }

    /// Whether to cut off this call; never so often that nobody would try again.
    fn strikes(&self) -> bool {
        let one_in = self.one_in;
        let strikes = one_in > 0 && random(one_in) == 0 && self.in_a_row.load(Ordering::SeqCst) < 4;
        if strikes {
            self.in_a_row.fetch_add(1, Ordering::SeqCst);
        }
        strikes
    }

    fn reach(&self) -> Result<()> {
        if self.down.load(Ordering::SeqCst) || self.strikes() {
            self.unreached.fetch_add(1, Ordering::SeqCst);
            return Err(Error::unavailable("the line is cut"));
        }
        Ok(())
    }

    fn answer<T>(&self, answer: Result<T>) -> Result<T> {
        if self.strikes() {
            self.unanswered.fetch_add(1, Ordering::SeqCst);
            return Err(Error::new(ErrorKind::Timeout, "the answer was lost"));
        }
        self.in_a_row.store(0, Ordering::SeqCst);
        answer
    }
}

/// Reads are passed on as they are.
macro_rules! passing_on {
    ($({ $($call:ident($($argument:ident: $type:ty),*) -> $answer:ty;)* })*) => {
        #[async_trait]
        impl Backend for Flaky {
            async fn apply(&self, batch: Prepared) -> Result<Replies> {
                self.reach()?;
                self.answer(self.store.apply(batch).await)
            }

            async fn claim(&self, claim: Claim) -> Result<Claimed> {
                self.reach()?;
                self.answer(self.store.claim(claim).await)
            }

            async fn group_read(&self, read: GroupRead) -> Result<Deliveries> {
                self.reach()?;
                self.answer(self.store.group_read(read).await)
            }

            fn can_lose_answers(&self) -> bool {
                true
            }

            $($(async fn $call(&self, $($argument: $type),*) -> Result<$answer> {
                self.store.$call($($argument),*).await
            })*)*
        }
    };
}

statehold::core::asking! {
    passing_on
    {
        sweep(sweep: Sweep) -> Swept;
        session() -> Session;
        document_list(namespace: &str, list: &DocumentList) -> Page<Document>;
        register(namespace: &str, topics: &[Topic]) -> Waiter;
        dump(namespace: &str) -> BoxStream<'static, Result<Record>>;
        load(namespace: &str, records: BoxStream<'static, Result<Record>>) -> u64;
    }
}
