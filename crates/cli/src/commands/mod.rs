//! One file a command, or a noun with what can be done to it.

pub(crate) mod bench;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod doc;
pub(crate) mod doctor;
pub(crate) mod dump;
pub(crate) mod entry;
pub(crate) mod group;
pub(crate) mod health;
pub(crate) mod lock;
pub(crate) mod lock_run;
pub(crate) mod man;
pub(crate) mod migrate;
pub(crate) mod paging;
pub(crate) mod queue;
pub(crate) mod result;
pub(crate) mod serve;
pub(crate) mod stream;
pub(crate) mod sweep;
pub(crate) mod task;
pub(crate) mod thread;
pub(crate) mod token;
pub(crate) mod work;
