//! What is compared: something that can do the operations on a store.

use async_trait::async_trait;
use statehold_core::Result;

use crate::ops::Op;

/// One way to use a store.
#[async_trait]
pub trait Contender: Send + Sync {
    /// Makes everything ready for a slice of up to `calls` calls by `callers` callers, on rows that no other
    /// slice used. Not timed.
    async fn prepare(&self, op: Op, callers: usize, calls: u64) -> Result<Box<dyn Slice>>;
}

/// Calls of one operation, all prepared.
#[async_trait]
pub trait Slice: Send + Sync {
    /// Does the operation once and answers when the store has acknowledged it. `number` is another one for each
    /// call of the slice, counting from 0.
    async fn call(&self, caller: usize, number: u64) -> Result<Receipt>;

    /// How many calls of this slice the store shows traces of; none if it cannot tell.
    async fn traces(&self) -> Result<Option<u64>>;
}

/// What a call worked on: the task's id, the event's number. Tells whether two callers got the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Receipt(pub u128);
