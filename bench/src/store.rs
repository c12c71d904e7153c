//! Which store is measured, and who else is measured on it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use statehold_core::Result;

use crate::contender::Contender;
use crate::{postgres, redis, sqlite};

/// A store, as far as the benchmark must know it.
#[derive(Clone, Debug)]
pub enum Store {
    /// `memory:`, without rivals.
    Memory,
    /// `sqlite:PATH`; the rivals have files beside it.
    Sqlite(PathBuf),
    /// `postgres://…`; the rivals have schemas beside it.
    Postgres(Box<statehold_postgres::Config>),
    /// `redis://…`; the rivals have prefixes beside it.
    Redis(Box<statehold_redis::Config>),
}

/// What ours is set against. Their files and schemas go when this goes.
pub(crate) struct Rivals {
    pub(crate) limit: Arc<dyn Contender>,
    pub(crate) naive: Arc<dyn Contender>,
}

impl Store {
    pub(crate) async fn rivals(&self, indexes: bool) -> Result<Option<Rivals>> {
        match self {
            Self::Memory => Ok(None),
            Self::Sqlite(path) => sqlite::rivals(path).map(Some),
            Self::Postgres(config) => postgres::rivals(config, indexes).await.map(Some),
            Self::Redis(config) => redis::rivals(config).await.map(Some),
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            Self::Redis(config) => write!(f, "{config}"),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(config) => write!(f, "{config}"),
        }
    }
}

/// A file beside the store's, with a longer name.
pub(crate) fn beside(store: &Path, suffix: &str) -> PathBuf {
    let mut name = store.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(suffix);
    store.with_file_name(name)
}
