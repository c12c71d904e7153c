//! The state layer under agent orchestration, on a store you choose by one URL.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use statehold::{Message, Statehold, TaskCreate};
//!
//! // `sqlite:statehold.db` keeps it in a file.
//! let hold = Statehold::open("memory:").await?;
//!
//! // A webhook arrives, perhaps twice: one task.
//! let hook = TaskCreate::new("answer").thread("42").idempotency_key("hook-7");
//! let task = hold.tasks().create(hook).await?.task;
//!
//! // A worker takes it. Everything it writes is refused once its lease is lost.
//! let lease = hold.tasks().claim(&["default"], "worker-1", 1).await?.remove(0);
//! let mut settle = lease.settle();
//! settle.append("thread/42".parse()?, vec![Message::text("assistant", "Hello")?.event()?]);
//! settle.complete(None).await?;
//!
//! // Someone waits for it.
//! let task = hold.tasks().wait(task.id, None).await?;
//! assert_eq!(task.status.as_str(), "completed");
//! assert_eq!(hold.threads().messages("42", 50).await?.len(), 1);
//! # Ok::<(), statehold::Error>(())
//! # }).unwrap();
//! ```
//!
//! # A tour
//!
//! [`Statehold`] is a store and a namespace in it. Its nouns are handles: [`Tasks`], [`Queues`], [`Streams`],
//! [`Groups`], [`Documents`], [`Entries`], [`Locks`], [`Threads`], [`Results`]. A claim gives a [`Lease`], by which one
//! works on a task; [`Worker`](worker::Worker) does that with handlers, and [`Supervisor`](supervisor::Supervisor) sees
//! to what has run out of time. What is not here, such as everything that a command can say, is in [`core`].
//!
//! # The thirteen calls
//!
//! | of a state layer | here |
//! |---|---|
//! | `create_task`, `get_task`, `update_task`, `list_tasks` | [`Tasks::create`], [`Tasks::get`], [`Tasks::update`], [`Tasks::list`] |
//! | `get_or_create_thread`, `get_thread`, `update_thread` | [`Threads::get_or_create`], [`Threads::get`], [`Threads::update`] |
//! | `append_message`, `get_messages` | [`Threads::append`], [`Threads::messages`] |
//! | `try_lock`, `release_lock` | [`Locks::try_lock`], [`Locks::release`] |
//! | `set_result`, `get_result` | [`Results::set`], [`Results::get`] |

mod documents;
mod entries;
mod groups;
mod hold;
mod job;
mod lease;
mod locks;
mod owner;
mod queues;
mod renewal;
mod results;
pub mod split;
mod store;
mod streams;
pub mod supervisor;
pub mod taken;
mod tasks;
mod threads;
pub mod wait;
pub mod worker;

pub use documents::Documents;
pub use entries::Entries;
pub use groups::Groups;
pub use hold::Statehold;
pub use lease::{Lease, Settle};
pub use locks::{LockGuard, Locks, SessionLocks};
pub use owner::default_owner;
pub use queues::Queues;
pub use results::Results;
pub use statehold_core as core;
pub use statehold_core::command::{DocumentPut, NewEvent, TaskCreate};
pub use statehold_core::model::{StreamName, Task, TaskError, TaskId, Token, WaitFor};
pub use statehold_core::{Backend, Batch, Clock, Error, ErrorKind, Json, Result, Seconds, Status, Timestamp};
pub use store::{DEFAULT_STORE, Store};
pub use streams::{From, Streams};
pub use tasks::Tasks;
pub use threads::{Message, Said, THREAD, Thread, Threads};

/// The examples of the README and of the guide are run with the tests.
#[cfg(doctest)]
mod examples {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/tasks.md")]
    struct Tasks;
    #[doc = include_str!("../../../docs/workers.md")]
    struct Workers;
    #[doc = include_str!("../../../docs/streams.md")]
    struct Streams;
    #[doc = include_str!("../../../docs/locks.md")]
    struct Locks;
    #[doc = include_str!("../../../docs/documents.md")]
    struct Documents;
}
