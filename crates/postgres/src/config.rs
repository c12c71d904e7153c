//! How a store is reached: what its URL says.

use std::fmt;
use std::time::Duration;

use statehold_core::{Clock, Error, Result};
use tokio_postgres::config::Host;

use crate::secret::Password;
use crate::tls::Tls;
use crate::url;

use crate::connection::{Connection, connect};
use crate::error::Trouble;

/// How long a server may take to answer a new connection, unless the URL says otherwise.
const CONNECT: Duration = Duration::from_secs(5);

/// What to connect to, and how.
///
/// Beside what libpq knows (`host`, `port`, `dbname`, `user`, `password`, `application_name`, `connect_timeout`,
/// `options`, `target_session_attrs`, `keepalives` and its kin, `tcp_user_timeout`, `channel_binding`,
/// `load_balance_hosts`), these parameters of the URL are understood:
///
/// | parameter | meaning | default |
/// |---|---|---|
/// | `sslmode` | `disable`, `allow`, `prefer`, `require`, `verify-ca` or `verify-full`, as libpq means them | `prefer` |
/// | `sslrootcert` | a file with the authorities to trust; `system` for those of this machine | `system` |
/// | `password_file` | a file with the password, read anew for each connection | |
/// | `password_command` | a command that prints the password, run anew for each connection | |
/// | `schema` | the schema that all tables are in | `statehold` |
/// | `pool_max` | how many connections this process has at most, 3 or more | 10 |
/// | `poll_only` | `true` does without LISTEN and NOTIFY | `false` |
/// | `pooled` | `true` if a pooler such as `PgBouncer` gives each transaction any connection | `false` |
/// | `statement_timeout` | how long the server works on a statement: milliseconds, or with `ms`, `s` or `min` | `25s` |
/// | `lock_timeout` | how long the server waits for a lock, written the same way | `10s` |
///
/// Any other is refused. Without a password in the URL, `PGPASSWORD` is used.
///
/// ```
/// use statehold_postgres::Config;
///
/// let config = Config::from_url("postgres://me:secret@localhost/state?schema=agents").unwrap();
/// assert_eq!(config.schema, "agents");
/// assert!(!format!("{config:?}").contains("secret"));
/// assert!(Config::from_url("mysql://localhost").is_err());
/// assert!(Config::from_url("postgres://localhost/state?colour=red").is_err());
/// ```
#[derive(Clone)]
pub struct Config {
    pub(crate) server: tokio_postgres::Config,
    pub(crate) tls: Tls,
    pub(crate) password: Password,
    /// The schema that all tables are in. It is made if it does not exist.
    pub schema: String,
    /// Where time comes from: the server's clock unless a test holds it.
    pub clock: Clock,
    /// The name of the audit stream that purges and forced releases are noted in.
    pub replica: String,
    /// Brings an older schema up to date at the start; otherwise an older one is refused.
    pub migrate: bool,
    /// How many connections read at most, beside those that write and the one for wakes.
    pub readers: usize,
    /// How many connections write at most.
    pub writers: usize,
    /// Does without LISTEN and NOTIFY: changes of other processes are found by looking.
    pub poll_only: bool,
    /// Goes through a pooler that gives each transaction any of its connections: nothing is kept in a session.
    pub pooled: bool,
    /// How long the server works on a statement.
    pub statement_timeout: Duration,
    /// How long the server waits for a lock.
    pub lock_timeout: Duration,
}

impl Config {
    /// From a URL `postgres://user:password@host/database`.
    pub fn from_url(url: &str) -> Result<Self> {
        let url::Parts { plain, own } = url::split(url)?;
        let mut server: tokio_postgres::Config =
            plain.parse().map_err(|problem: tokio_postgres::Error| {
                // The reason behind it names a parameter and none of the values.
                let reason =
                    std::error::Error::source(&problem).map_or(problem.to_string(), ToString::to_string);
                Error::invalid("store", reason).hint(url::HINT)
            })?;
        if server.get_application_name().is_none() {
            server.application_name("statehold");
        }
        if server.get_connect_timeout().is_none() {
            server.connect_timeout(CONNECT);
        }
        let pooled = own.flag("pooled")?;
        let connections = own.number("pool_max", 10, 3)?;
        let writers = if connections > 5 { 2 } else { 1 };
        let config = Self {
            tls: Tls::new(own.text("sslmode"), own.text("sslrootcert"))?,
            password: Password::new(&server, own.text("password_file"), own.text("password_command"))?,
            server,
            schema: own.text("schema").unwrap_or("statehold").to_owned(),
            clock: Clock::real(),
            replica: "local".into(),
            migrate: true,
            readers: connections - 1 - writers,
            writers,
            poll_only: own.flag("poll_only")? || pooled,
            pooled,
            statement_timeout: own.length("statement_timeout", Duration::from_secs(25))?,
            lock_timeout: own.length("lock_timeout", Duration::from_secs(10))?,
        };
        config.check()?;
        Ok(config)
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

    /// What every session, or every transaction of a pooled one, is told when it begins.
    pub(crate) fn settings(&self) -> Vec<String> {
        vec![
            format!("search_path = {}", self.schema),
            "synchronous_commit = on".into(),
            format!("lock_timeout = {}", self.lock_timeout.as_millis()),
            format!("statement_timeout = {}", self.statement_timeout.as_millis()),
            // Ours are never idle for long. One whose client has vanished lets go of its rows before others give up waiting.
            "idle_in_transaction_session_timeout = '5s'".into(),
            "plan_cache_mode = auto".into(),
            // Statements are short. Once tables are large, compiling one would take a hundred times as long as running it.
            "jit = off".into(),
            "timezone = 'UTC'".into(),
        ]
    }
}

/// Where it leads to, without secrets.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self.server.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(path) => path.display().to_string(),
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
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}
