//! What the server promises: whether it keeps what it acknowledged, and whether it may remove keys.

use std::collections::HashMap;

use statehold_core::backend::Durability;
use statehold_core::{Error, Result as Answer};

use crate::config::Config;
use crate::connection::Connection;
use crate::error::{Result, Trouble};

/// How the server keeps what it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Whether every write goes into a file.
    appends: bool,
    /// When that file is brought to the disk; none if the server does not tell.
    syncs: Option<String>,
    /// What the server does when its memory is full.
    policy: String,
}

/// Asks the server. What it does not let be asked counts as not promised.
pub(crate) async fn read(db: &Connection) -> Result<Kept> {
    let info = async |section: &str| -> Result<HashMap<String, String>> {
        let mut call = redis::cmd("INFO");
        call.arg(section);
        let text: String = redis::from_redis_value(db.call(&call).await?).unwrap_or_default();
        let pair =
            |line: &str| line.split_once(':').map(|(key, value)| (key.to_owned(), value.trim().to_owned()));
        Ok(text.lines().filter_map(pair).collect())
    };
    let appends = info("persistence").await?.get("aof_enabled").is_some_and(|on| on == "1");
    let policy = info("memory").await?.remove("maxmemory_policy").unwrap_or_default();
    let mut call = redis::cmd("CONFIG");
    call.arg("GET").arg("appendfsync");
    let syncs: Option<HashMap<String, String>> = match db.call(&call).await {
        Ok(answer) => redis::from_redis_value(answer).ok(),
        Err(trouble) if trouble.is_lost() => return Err(trouble),
        // Managed servers often do not let it be asked.
        Err(_) => None,
    };
    let syncs = syncs.and_then(|mut settings| settings.remove("appendfsync"));
    Ok(Kept { appends, syncs, policy })
}

impl Kept {
    /// What an acknowledged batch survives.
    pub(crate) fn durability(&self) -> Durability {
        match self.syncs.as_deref() {
            _ if !self.appends => Durability::None,
            Some("always") => Durability::Durable,
            _ => Durability::BoundedLoss,
        }
    }

    /// What a person should know.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        match (self.appends, self.syncs.as_deref()) {
            (false, _) => {
                notes.push("appendonly is off: what is in the server's memory is gone with it".into());
            }
            (true, Some("always")) => {}
            (true, Some(syncs)) => {
                notes.push(format!(
                    "appendfsync is {syncs}: a crash may lose the last moments; `always` loses nothing"
                ));
            }
            (true, None) => {
                notes.push("the server does not tell appendfsync; a crash may lose the last moments".into());
            }
        }
        if self.evicts() {
            notes.push(format!("maxmemory-policy is {}: the server may remove anything", self.policy));
        }
        notes
    }

    fn evicts(&self) -> bool {
        self.policy != "noeviction"
    }
}

/// Refuses a server that may remove what it was given to keep.
pub(crate) async fn check(db: &Connection, config: &Config) -> Answer<()> {
    let kept = read(db).await.map_err(Trouble::into_error)?;
    if config.ephemeral || !kept.evicts() {
        return Ok(());
    }
    let message =
        format!("maxmemory-policy of the server is `{}`: it may remove tasks and locks", kept.policy);
    Err(Error::unsupported(message)
        .hint("set `maxmemory-policy noeviction`, or use the server for ephemeral state only"))
}
