//! The library's tests that need no other process: one program, since each takes its time to be linked.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod cancel_safety;
mod leases;
mod retries;
mod split;
mod subscriptions;
mod supervisor;
mod waits;
mod worker;
