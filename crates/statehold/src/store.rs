//! Which store a URL means. This is the one place that knows.

use std::sync::Arc;

use statehold_core::memory::Memory;
use statehold_core::{Backend, Clock, Error, Result};
use statehold_redis::Redis;
use statehold_sqlite::{Config, Sqlite};

/// The store that is used when none is named.
pub const DEFAULT_STORE: &str = "sqlite:statehold.db";

/// A store by its URL.
#[derive(Clone, Debug)]
pub enum Store {
    /// `memory:`: everything is gone with the process.
    Memory,
    /// `sqlite:path`: one file on this machine.
    Sqlite(Config),
    /// `redis://host` or `rediss://host`: a Redis server or cluster.
    Redis(Box<statehold_redis::Config>),
}

impl Store {
    /// What a URL means.
    ///
    /// ```
    /// assert!(statehold::Store::parse("sqlite:statehold.db").is_ok());
    /// assert!(statehold::Store::parse("redis://me:secret@localhost:6379/0").is_ok());
    /// let error = statehold::Store::parse("mysql://localhost").unwrap_err();
    /// assert!(error.hint_text().unwrap().contains("sqlite:"));
    /// ```
    pub fn parse(url: &str) -> Result<Self> {
        match url.split_once(':') {
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("sqlite", _)) => Config::from_url(url).map(Self::Sqlite),
            Some(("redis" | "rediss", _)) => {
                statehold_redis::Config::from_url(url).map(|config| Self::Redis(Box::new(config)))
            }
            _ => Err(Error::invalid("store", format!("`{}` is not the URL of a store", Self::masked(url)))
                .hint("write sqlite:path, such as sqlite:statehold.db, redis://host, or memory:")),
        }
    }

    /// A URL without the password that may be in it.
    ///
    /// ```
    /// use statehold::Store;
    ///
    /// assert_eq!(Store::masked("postgres://me:se@cret@host:5432/db"), "postgres://me:***@host:5432/db");
    /// assert_eq!(Store::masked("redis://:secret@host"), "redis://:***@host");
    /// assert_eq!(Store::masked("sqlite:a@b:c.db"), "sqlite:a@b:c.db");
    /// ```
    pub fn masked(url: &str) -> String {
        let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let Some((user, host)) = authority.rsplit_once('@') else { return url.to_owned() };
        let user = user.split_once(':').map_or(user, |(name, _)| name);
        format!("{scheme}://{user}:***@{host}{path}")
    }

    /// Opens it.
    pub async fn open(self) -> Result<Arc<dyn Backend>> {
        Ok(match self {
            Self::Memory => Arc::new(Memory::new(Clock::real())),
            Self::Sqlite(config) => Arc::new(Sqlite::open(config).await?),
            Self::Redis(config) => Arc::new(Redis::open(*config).await?),
        })
    }
}
