//! Statehold's core: the model, every rule, and the contract of a backend. It names no database, no
//! HTTP and no command line.
//!
//! # A tour
//!
//! Everything durable or shared is one of five things, plain data in [`model`]: a **task** (a unit of work with a
//! status, a lease and a fencing token), a **stream** (an append-only log), a **document** (a body with a revision),
//! an **entry** (a value with a time to live) and a **lock**.
//!
//! What changes them is a [`command`], plain data too. A [`batch`] is a list of commands with fences (what the
//! caller must still hold) and an optional key (which makes it safe to repeat); it happens as a whole or not at all.
//! Calls that choose their own rows stand beside it in [`call`]: claim, group read, sweep. What only reads is in
//! [`query`].
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use statehold_core::batch::Fence;
//! use statehold_core::call::Claim;
//! use statehold_core::command::{DocumentPut, TaskComplete, TaskCreate};
//! use statehold_core::memory::Memory;
//! use statehold_core::{Backend, Batch, Clock, Json};
//!
//! let store = Memory::new(Clock::real());
//!
//! // A webhook arrives, and arrives again: one task.
//! for created in [true, false] {
//!     let create = TaskCreate { idempotency_key: Some("hook-7".into()), ..TaskCreate::new("answer") };
//!     let (batch, reply) = Batch::of("default", create);
//!     assert_eq!(store.apply(batch.prepare()?).await?.take(reply)?.created, created);
//! }
//!
//! // A worker claims it and settles everything in one batch, fenced by its lease.
//! let claimed = store.claim(Claim::new("default", "default", "worker-1")).await?;
//! let task = &claimed.tasks[0];
//! let token = task.lease.as_ref().unwrap().token;
//! let mut settle = Batch::new("default").fence(Fence::Task { task: task.id, token });
//! settle.add(DocumentPut::json("thread", "42", Json::parse(r#"{"state": "answered"}"#)?));
//! let done = settle.add(TaskComplete { id: task.id, token, output: None });
//! let task = store.apply(settle.prepare()?).await?.take(done)?;
//! assert_eq!(task.status.as_str(), "completed");
//! # Ok::<(), statehold_core::Error>(())
//! # }).unwrap();
//! ```
//!
//! What a command does is decided in [`plan`]: pure functions that ask for rows and answer replies and effects, or
//! a refusal. The table of statuses is data in [`status`]. [`row`] is what stores keep.
//!
//! A [`backend`] runs plans atomically and holds no rule. [`memory`] is the smallest one. [`wake`] says who is woken
//! by what, [`session`] how a store knows that a process is gone, [`dump`] how a namespace is carried from one store to another.
//!
//! # Where is…
//!
//! | looking for | it is in |
//! |---|---|
//! | what a command promises | its type in [`command`], under *Behavior* |
//! | why a command was refused | [`plan`], in the file of its noun, functions `judge_…` |
//! | what a command does | the same file, the function of its name |
//! | what one task's end means for others | `plan/derived.rs`, `plan/exclusive.rs` |
//! | bounds of input | [`limits`] |
//! | error kinds and hints | [`error`] |
//! | times to live and retention | [`policy`] |
//! | time, and tests that move it | [`clock`] |

pub mod backend;
pub mod batch;
pub mod call;
pub mod clock;
pub mod command;
pub mod dump;
pub mod error;
pub mod json;
pub mod limits;
pub mod memory;
pub mod model;
mod names;
pub mod plan;
pub mod policy;
pub mod query;
pub mod row;
#[cfg(feature = "openapi")]
mod schema;
pub mod session;
pub mod status;
pub mod wake;

pub use backend::Backend;
pub use batch::Batch;
pub use clock::{Clock, Seconds, Timestamp};
pub use error::{Error, ErrorKind, Result};
pub use json::Json;
pub use status::Status;
