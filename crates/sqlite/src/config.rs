//! How a file is opened.

use std::path::PathBuf;

use statehold_core::{Clock, Error, Result};

/// What to open, and how.
///
/// ```
/// use statehold_sqlite::Config;
///
/// assert_eq!(Config::from_url("sqlite:data/state.db").unwrap().path.to_str(), Some("data/state.db"));
/// assert!(Config::from_url("sqlite:").is_err());
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// The file. It is made if it does not exist, in a folder that does.
    pub path: PathBuf,
    /// Where time comes from: this machine's clock unless a test holds it.
    pub clock: Clock,
    /// The name of the audit stream that purges and forced releases are noted in.
    pub replica: String,
    /// Brings an older schema up to date at the start; otherwise an older one is refused.
    pub migrate: bool,
    /// Sets a damaged file aside under a dated name and begins a new one, unless another process has it open.
    pub recover: bool,
}

impl Config {
    /// The defaults for a file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            clock: Clock::real(),
            replica: "local".into(),
            migrate: true,
            recover: false,
        }
    }

    /// From a URL `sqlite:path`.
    pub fn from_url(url: &str) -> Result<Self> {
        let path = url.strip_prefix("sqlite:").filter(|path| !path.is_empty() && *path != "//");
        let path = path.ok_or_else(|| {
            Error::invalid("store", format!("`{url}` does not name a file"))
                .hint("write sqlite:path, such as sqlite:statehold.db or sqlite:/var/lib/statehold/state.db")
        })?;
        if path.starts_with("//") && !path.starts_with("///") || path == ":memory:" {
            let message = format!("`{url}` is not the URL of a file");
            return Err(Error::invalid("store", message).hint(
                "write sqlite:path with a relative or absolute path; for a store in memory write memory:",
            ));
        }
        Ok(Self::new(path.strip_prefix("//").unwrap_or(path)))
    }

    /// Goes by another clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }
}
