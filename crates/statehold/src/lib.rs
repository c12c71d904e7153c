//! The state layer under agent orchestration, on a store you choose by one URL.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! # let folder = tempfile::tempdir().unwrap();
//! # std::env::set_current_dir(&folder).unwrap();
//! let store = statehold::open("sqlite:statehold.db").await?;
//! assert_eq!(store.health().await?.store, "sqlite:statehold.db");
//! # Ok::<(), statehold::Error>(())
//! # }).unwrap();
//! ```
//!
//! What a store does is the contract of [`Backend`]; commands, batches and queries are in [`statehold_core`].

use std::sync::Arc;

pub use statehold_core as core;
use statehold_core::memory::Memory;
pub use statehold_core::{Backend, Batch, Clock, Error, Json, Result};
use statehold_sqlite::{Config, Sqlite};

/// The store that is used when none is named.
pub const DEFAULT_STORE: &str = "sqlite:statehold.db";

/// A store by its URL: the one place that knows which backend a URL means.
#[derive(Clone, Debug)]
pub enum Store {
    /// `memory:`: everything is gone with the process.
    Memory,
    /// `sqlite:path`: one file on this machine.
    Sqlite(Config),
}

impl Store {
    /// What a URL means.
    ///
    /// ```
    /// assert!(statehold::Store::parse("sqlite:statehold.db").is_ok());
    /// let error = statehold::Store::parse("mysql://localhost").unwrap_err();
    /// assert!(error.hint_text().unwrap().contains("sqlite:"));
    /// ```
    pub fn parse(url: &str) -> Result<Self> {
        match url.split_once(':') {
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("sqlite", _)) => Config::from_url(url).map(Self::Sqlite),
            _ => Err(Error::invalid("store", format!("`{url}` is not the URL of a store"))
                .hint("write sqlite:path, such as sqlite:statehold.db, or memory:")),
        }
    }

    /// Opens it.
    pub async fn open(self) -> Result<Arc<dyn Backend>> {
        Ok(match self {
            Self::Memory => Arc::new(Memory::new(Clock::real())),
            Self::Sqlite(config) => Arc::new(Sqlite::open(config).await?),
        })
    }
}

/// Opens the store that a URL names.
pub async fn open(url: &str) -> Result<Arc<dyn Backend>> {
    Store::parse(url)?.open().await
}

/// The examples of the README are run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
