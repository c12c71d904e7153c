//! Statehold's core.
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
pub mod plan;
pub mod policy;
pub mod query;
pub mod row;
pub mod status;
pub mod wake;

pub use backend::Backend;
pub use batch::Batch;
pub use clock::{Clock, Seconds, Timestamp};
pub use error::{Error, ErrorKind, Result};
pub use json::Json;
pub use status::Status;
