//! How a store is reached.

use std::fmt;
use std::time::Duration;

use statehold_core::{Clock, Error, Result};

use crate::connection::{Connection, connect};
use crate::error::Trouble;

/// How long a server may take to answer a new connection, unless the URL says otherwise.
const CONNECT: Duration = Duration::from_secs(5);

/// What to connect to, and how.
///
/// ```
/// use statehold_postgres::Config;
///
/// let config = Config::from_url("postgres://me:secret@localhost/state").unwrap();
/// assert!(!format!("{config:?}").contains("secret"));
/// assert!(Config::from_url("mysql://localhost").is_err());
/// ```
#[derive(Clone)]
pub struct Config {
    pub(crate) server: tokio_postgres::Config,
    /// The schema that all tables are in. It is made if it does not exist.
    pub schema: String,
    /// Where time comes from: the server's clock unless a test holds it.
    pub clock: Clock,
    /// The name of the audit stream that purges and forced releases are noted in.
    pub replica: String,
    /// Brings an older schema up to date at the start; otherwise an older one is refused.
    pub migrate: bool,
    /// How many connections read at most, beside the one that writes and the one that listens.
    pub readers: usize,
    /// Does without LISTEN and NOTIFY: changes of other processes are found by looking.
    pub poll_only: bool,
}

impl Config {
    /// From a URL `postgres://user:password@host/database`.
    pub fn from_url(url: &str) -> Result<Self> {
        let hint = "write postgres://user:password@host:5432/database";
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(Error::invalid("store", "is not the URL of a PostgreSQL database").hint(hint));
        }
        let mut server: tokio_postgres::Config =
            url.parse().map_err(|e| Error::invalid("store", format!("{e}")).hint(hint))?;
        if server.get_application_name().is_none() {
            server.application_name("statehold");
        }
        if server.get_connect_timeout().is_none() {
            server.connect_timeout(CONNECT);
        }
        Ok(Self {
            server,
            schema: "statehold".into(),
            clock: Clock::real(),
            replica: "local".into(),
            migrate: true,
            readers: 4,
            poll_only: false,
        })
    }

    /// Goes by another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Keeps everything in another schema.
    #[must_use]
    pub fn with_schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// A connection for one's own statements, set like those of the store. It ends when it is dropped.
    pub async fn client(&self) -> Result<tokio_postgres::Client> {
        self.check()?;
        connect(self, drop).await.map(Connection::into_client).map_err(Trouble::into_error)
    }

    /// A schema's name goes into statements as it is, so it may only be a plain one.
    pub(crate) fn check(&self) -> Result<()> {
        let first = |c: char| c.is_ascii_lowercase() || c == '_';
        let good = self.schema.len() <= 63
            && self.schema.starts_with(first)
            && self.schema.chars().all(|c| first(c) || c.is_ascii_digit());
        if good {
            return Ok(());
        }
        let message = format!("`{}` is not the name of a schema", self.schema);
        Err(Error::invalid("schema", message).hint("use lowercase letters, digits and underscores"))
    }
}

/// Where it leads to, without secrets.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self.server.get_hosts().iter().map(|host| match host {
            tokio_postgres::config::Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
        });
        let hosts: Vec<_> = hosts.collect();
        let database = self.server.get_dbname().or(self.server.get_user()).unwrap_or("");
        write!(f, "postgres://{}/{database}", hosts.join(","))
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("server", &self.to_string())
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}
