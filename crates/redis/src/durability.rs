//! What the server promises: whether it keeps what it acknowledged, and whether it may remove keys.

use redis::Value;
use statehold_core::backend::Durability;
use statehold_core::{Error, Result as Answer};

use crate::config::Config;
use crate::connection::Connection;
use crate::error::{Result, Trouble};

/// The only policy that removes nothing.
const KEEPS: &str = "noeviction";

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

/// Asks the server, or all of a cluster, of which the worst counts. What it does not let be asked counts as not promised.
pub(crate) async fn read(db: &Connection) -> Result<Kept> {
    let info = async |section: &str, key: &str| -> Result<Vec<String>> {
        let text = texts(db.call(redis::cmd("INFO").arg(section)).await?).join("\n");
        let value = |line: &str| {
            line.split_once(':').filter(|(name, _)| *name == key).map(|(_, value)| value.to_owned())
        };
        Ok(text.lines().filter_map(|line| value(line.trim())).collect())
    };
    let appends = info("persistence", "aof_enabled").await?;
    let appends = !appends.is_empty() && appends.iter().all(|on| on == "1");
    let policies = info("memory", "maxmemory_policy").await?;
    let policy =
        policies.iter().find(|policy| *policy != KEEPS).or(policies.first()).cloned().unwrap_or_default();
    let settings = match db.call(redis::cmd("CONFIG").arg("GET").arg("appendfsync")).await {
        Ok(answer) => texts(answer),
        Err(trouble) if trouble.is_lost() => return Err(trouble),
        // Managed servers often do not let it be asked.
        Err(_) => Vec::new(),
    };
    let mut syncs = settings.windows(2).filter(|pair| pair[0] == "appendfsync").map(|pair| pair[1].clone());
    let first = syncs.next();
    let syncs = syncs.find(|syncs| syncs != "always").or(first);
    Ok(Kept { appends, syncs, policy })
}

/// All texts of an answer, which several members of a cluster may have given.
fn texts(answer: Value) -> Vec<String> {
    match answer {
        Value::Array(values) => values.into_iter().flat_map(texts).collect(),
        Value::Map(pairs) => {
            pairs.into_iter().flat_map(|(key, value)| [texts(key), texts(value)].concat()).collect()
        }
        Value::VerbatimString { text, .. } => vec![text],
        value => redis::from_redis_value(value).into_iter().collect(),
    }
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
        self.policy != KEEPS
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
