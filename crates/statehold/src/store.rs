//! Which store a URL means. This is the one place that knows.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use statehold_core::memory::Memory;
use statehold_core::{Backend, Clock, Error, Result};
#[cfg(feature = "http")]
use statehold_http::Http;
use statehold_postgres::Postgres;
use statehold_redis::Redis;
use statehold_sqlite::Sqlite;

use crate::split::{Opener, Split};

/// The store that is used when none is named.
pub const DEFAULT_STORE: &str = "sqlite:statehold.db";

/// A store by its URL.
#[derive(Clone, Debug)]
pub enum Store {
    /// `memory:`: everything is gone with the process.
    Memory,
    /// `sqlite:path`: one file on this machine.
    Sqlite(statehold_sqlite::Config),
    /// `postgres://user:password@host/database`: a server that many processes share.
    Postgres(Box<statehold_postgres::Config>),
    /// `redis://host` or `rediss://host`: a Redis server or cluster.
    Redis(Box<statehold_redis::Config>),
    /// `split:DURABLE|EPHEMERAL`, of two URLs: what must last on one store, what is short-lived on the other.
    Split {
        /// For what must last.
        durable: Box<Store>,
        /// For results, heartbeats and live streams.
        ephemeral: Box<Store>,
    },
    /// `http://host:port` or `https://…`: a server of Statehold.
    #[cfg(feature = "http")]
    Http {
        /// Where it is.
        url: String,
        /// The token that it needs; in the URL it is the password, `https://:TOKEN@host`.
        token: Option<String>,
    },
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
            Some(("sqlite", _)) => statehold_sqlite::Config::from_url(url).map(Self::Sqlite),
            Some(("postgres" | "postgresql", _)) => {
                statehold_postgres::Config::from_url(url).map(Box::new).map(Self::Postgres)
            }
            Some(("redis" | "rediss", _)) => {
                statehold_redis::Config::from_url(url).map(Box::new).map(Self::Redis)
            }
            #[cfg(feature = "http")]
            Some(("http" | "https", _)) => Ok(Self::server(url)),
            Some(("split", both)) if both.contains('|') => {
                let (durable, ephemeral) = both.rsplit_once('|').unwrap_or_default();
                Self::parse(durable)?.with_ephemeral(ephemeral)
            }
            _ => Err(Error::invalid("store", format!("`{}` is not the URL of a store", Self::masked(url)))
                .hint("write sqlite:path, such as sqlite:statehold.db, postgres://user:password@host/database, redis://host, memory:, or \
                    http://host:port of a server")),
        }
    }

    /// The same with another store for what is short-lived: results, heartbeats and live streams.
    ///
    /// ```
    /// use statehold::Store;
    ///
    /// let store = Store::parse("sqlite:statehold.db").unwrap();
    /// assert!(store.clone().with_ephemeral("redis://localhost").is_ok());
    /// assert!(store.with_ephemeral("http://localhost:7420").is_err());
    /// ```
    pub fn with_ephemeral(self, url: &str) -> Result<Self> {
        let refused = |message: &str| {
            Err(Error::invalid("ephemeral", message).hint("write redis://host, or leave --ephemeral out"))
        };
        match (self, Self::parse(url)?) {
            (Self::Split { .. }, _) => refused("there is one already"),
            #[cfg(feature = "http")]
            (Self::Http { .. }, _) | (_, Self::Http { .. }) => {
                refused("a server has its own: the setting is for the server")
            }
            (durable, ephemeral) => {
                let ephemeral = match ephemeral {
                    Self::Redis(config) => Self::Redis(Box::new(config.ephemeral())),
                    other => other,
                };
                Ok(Self::Split { durable: Box::new(durable), ephemeral: Box::new(ephemeral) })
            }
        }
    }

    /// The store for what must last: this one, unless it is two.
    #[must_use]
    pub fn durable(self) -> Self {
        match self {
            Self::Split { durable, .. } => *durable,
            store => store,
        }
    }

    #[cfg(feature = "http")]
    fn server(url: &str) -> Self {
        let with_user =
            url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?)));
        match with_user {
            Some((scheme, (user, host))) => {
                let token = user.split_once(':').map_or(user, |(_, token)| token).to_owned();
                Self::Http { url: format!("{scheme}://{host}"), token: Some(token) }
            }
            None => Self::Http { url: url.to_owned(), token: None },
        }
    }

    /// A URL without the password that may be in it, or the command that prints one. What looks odd is rather hidden.
    ///
    /// ```
    /// use statehold::Store;
    ///
    /// assert_eq!(Store::masked("postgres://me:se@cret@host:5432/db"), "postgres://me:***@host:5432/db");
    /// assert_eq!(Store::masked("postgres://me:sec/r?t@host/db"), "postgres://me:***@host/db");
    /// assert_eq!(Store::masked("postgres://host/db?password=secret&a=b"), "postgres://host/db?password=***&a=b");
    /// assert_eq!(Store::masked("redis://:secret@host"), "redis://:***@host");
    /// assert_eq!(Store::masked("sqlite:a@b:c.db"), "sqlite:a@b:c.db");
    /// assert_eq!(Store::masked("split:sqlite:a|redis://:secret@host"), "split:sqlite:a|redis://:***@host");
    /// ```
    pub fn masked(url: &str) -> String {
        if let Some((durable, ephemeral)) = url.strip_prefix("split:").and_then(|both| both.rsplit_once('|'))
        {
            return format!("split:{}|{}", Self::masked(durable), Self::masked(ephemeral));
        }
        let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
        let user = rest.find('@').map_or(0, |first| {
            let host = &rest[first..];
            first + host[..host.find(['/', '?']).unwrap_or(host.len())].rfind('@').unwrap_or(0)
        });
        let (user, place) = rest.split_at(user);
        let user = match user.split_once(':') {
            _ if user.is_empty() => String::new(),
            Some((name, _)) => format!("{name}:***"),
            None => format!("{}:***", masked_query(user)),
        };
        format!("{scheme}://{user}{}", masked_query(place))
    }

    /// Opens it.
    // Boxed, so that it is compiled here and not in every program that calls it.
    pub fn open(self) -> BoxFuture<'static, Result<Arc<dyn Backend>>> {
        Box::pin(async move {
            match self {
                Self::Split { durable, ephemeral } => {
                    let open: Opener = Box::new(move || Box::pin(ephemeral.clone().open_one()));
                    let split = Split::open(durable.open_one().await?, open).await?;
                    Ok(Arc::new(split) as Arc<dyn Backend>)
                }
                store => store.open_one().await,
            }
        })
    }

    /// Opens one that is not two.
    async fn open_one(self) -> Result<Arc<dyn Backend>> {
        Ok(match self {
            Self::Memory => Arc::new(Memory::new(Clock::real())),
            Self::Sqlite(config) => Arc::new(Sqlite::open(config).await?),
            Self::Postgres(config) => Arc::new(Postgres::open(*config).await?),
            #[cfg(feature = "http")]
            Self::Http { url, token } => Arc::new(Http::new(&url, token)?),
            Self::Redis(config) => Arc::new(Redis::open(*config).await?),
            Self::Split { .. } => return Err(Error::invalid("store", "a part of two stores is two itself")),
        })
    }
}

/// The rest of a URL, without the values of parameters that are about passwords, but for the file that one is in.
fn masked_query(text: &str) -> String {
    let Some((place, query)) = text.split_once('?') else { return text.to_owned() };
    let masked = query.split('&').map(|parameter| match parameter.split_once('=') {
        Some((name, _)) if name != "password_file" && (name.contains("pass") || name.contains('%')) => {
            format!("{name}=***")
        }
        _ => parameter.to_owned(),
    });
    format!("{place}?{}", masked.collect::<Vec<_>>().join("&"))
}
