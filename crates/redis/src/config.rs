//! How a store is reached.

use std::fmt;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _};
use statehold_core::{Clock, Error, Result};

use crate::error::Trouble;

/// What to connect to, and how.
///
/// ```
/// use statehold_redis::Config;
///
/// let config = Config::from_url("redis://me:secret@localhost:6379/0").unwrap();
/// assert!(!format!("{config:?}").contains("secret"));
/// assert_eq!(Config::from_url("redis://localhost?prefix=mine").unwrap().prefix, "mine");
/// assert!(Config::from_url("mysql://localhost").is_err());
/// ```
#[derive(Clone)]
pub struct Config {
    pub(crate) server: ConnectionInfo,
    /// What all keys begin with, after a brace.
    pub prefix: String,
    /// Where time comes from: the server's clock unless a test holds it.
    pub clock: Clock,
    /// The name of the audit stream that purges and forced releases are noted in.
    pub replica: String,
    /// Is used for what may be lost: a server that evicts keys or keeps nothing on its disk is accepted.
    pub ephemeral: bool,
    /// A certificate authority, in PEM, for `rediss://`; those of the system if none.
    pub root_certificate: Option<Vec<u8>>,
    /// How long the server may take to answer.
    pub response_timeout: Duration,
}

impl Config {
    /// From a URL `redis://user:password@host:6379/database`, or `rediss://` for TLS. It may end with `?prefix=` and what
    /// all keys begin with, and `ca=` and a file with the certificate of an authority.
    pub fn from_url(url: &str) -> Result<Self> {
        let hint = "write redis://user:password@host:6379/0, or rediss:// for TLS";
        if !url.starts_with("redis://") && !url.starts_with("rediss://") {
            return Err(Error::invalid("store", "is not the URL of a Redis server").hint(hint));
        }
        let (address, own) = split(url);
        let server = address.as_str().into_connection_info();
        let server = server.map_err(|e| Error::invalid("store", e.to_string()).hint(hint))?;
        let config = Self {
            server,
            prefix: "statehold".into(),
            clock: Clock::real(),
            replica: "local".into(),
            ephemeral: false,
            root_certificate: None,
            response_timeout: Duration::from_secs(10),
        };
        own.into_iter().try_fold(config, |config, (key, value)| config.with_parameter(key, value))
    }

    fn with_parameter(self, key: Parameter, value: &str) -> Result<Self> {
        match key {
            Parameter::Prefix => Ok(self.with_prefix(value)),
            Parameter::Ca => {
                let unreadable = |e| {
                    Error::invalid("store", format!("`{value}` cannot be read: {e}"))
                        .hint("name a file with the certificate of the authority, in PEM")
                };
                let certificate = std::fs::read(value).map_err(unreadable)?;
                Ok(Self { root_certificate: Some(certificate), ..self })
            }
        }
    }

    /// Goes by another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Keeps everything under another prefix.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Accepts a server that may forget.
    #[must_use]
    pub fn ephemeral(mut self) -> Self {
        self.ephemeral = true;
        self
    }

    /// A client of the server, for what is beside the store.
    pub fn client(&self) -> Result<redis::Client> {
        crate::connection::client(self).map_err(Trouble::into_error)
    }

    /// A prefix is part of the tag in braces.
    pub(crate) fn check(&self) -> Result<()> {
        let good = !self.prefix.is_empty()
            && self.prefix.len() <= 64
            && self.prefix.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}' | b':'));
        if good {
            return Ok(());
        }
        let message = format!("`{}` cannot be the prefix of keys", self.prefix);
        Err(Error::invalid("prefix", message).hint("use letters, digits, dots and dashes"))
    }
}

/// What a URL says beside the address.
#[derive(Clone, Copy)]
enum Parameter {
    Prefix,
    Ca,
}

/// The address of a URL, and what it says beside it.
fn split(url: &str) -> (String, Vec<(Parameter, &str)>) {
    let Some((address, query)) = url.split_once('?') else { return (url.to_owned(), Vec::new()) };
    let (mut own, mut rest) = (Vec::new(), Vec::new());
    for parameter in query.split('&') {
        match parameter.split_once('=') {
            Some(("prefix", value)) => own.push((Parameter::Prefix, value)),
            Some(("ca", value)) => own.push((Parameter::Ca, value)),
            _ => rest.push(parameter),
        }
    }
    let mark = if rest.is_empty() { "" } else { "?" };
    (format!("{address}{mark}{}", rest.join("&")), own)
}

/// Where it leads to, without secrets.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.server.addr() {
            ConnectionAddr::TcpTls { .. } => "rediss",
            _ => "redis",
        };
        write!(f, "{scheme}://{}/{}", self.server.addr(), self.server.redis_settings().db())
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("server", &self.to_string())
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
