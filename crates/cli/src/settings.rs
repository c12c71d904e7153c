//! What every command can be told: which store, which namespace, how to show things. Flags come before the environment,
//! the environment before `statehold.toml`, that before what is built in.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Deserialize;
use statehold::{DEFAULT_STORE, Error, Result, Statehold, Store};

use crate::show::Show;

/// The environment variables that Statehold reads.
pub(crate) mod env {
    /// Which store.
    pub(crate) const STORE: &str = "STATEHOLD_STORE";
    /// Which store for what is short-lived.
    pub(crate) const EPHEMERAL: &str = "STATEHOLD_EPHEMERAL";
    /// Which namespace.
    pub(crate) const NAMESPACE: &str = "STATEHOLD_NAMESPACE";
    /// Who acts, for the events that are written.
    pub(crate) const ACTOR: &str = "STATEHOLD_ACTOR";
    /// Where the configuration file is, if not `statehold.toml` in the current folder.
    pub(crate) const CONFIG: &str = "STATEHOLD_CONFIG";
    /// The token for a server.
    pub(crate) const TOKEN: &str = "STATEHOLD_TOKEN";
    /// A file with the token for a server.
    pub(crate) const TOKEN_FILE: &str = "STATEHOLD_TOKEN_FILE";
    /// Where the server listens.
    pub(crate) const LISTEN: &str = "STATEHOLD_LISTEN";
    /// A file with the first token of a server.
    pub(crate) const BOOTSTRAP: &str = "STATEHOLD_BOOTSTRAP_TOKEN_FILE";
    /// The task that the program which runs this works on.
    pub(crate) const TASK_ID: &str = "STATEHOLD_TASK_ID";
    /// The token of its lease.
    pub(crate) const TASK_TOKEN: &str = "STATEHOLD_TASK_TOKEN";
    /// The lock under which the program runs.
    pub(crate) const LOCK_KEY: &str = "STATEHOLD_LOCK_KEY";
    /// Its token.
    pub(crate) const LOCK_TOKEN: &str = "STATEHOLD_LOCK_TOKEN";
}

/// The configuration file that is read if it is there.
const FILE: &str = "statehold.toml";

/// The namespace that is used when none is named.
const NAMESPACE: &str = "default";

/// What every command on a store can be told.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// Which store: sqlite:PATH, memory:, or http://HOST:PORT of a server [default: sqlite:statehold.db]
    #[arg(long, global = true, value_name = "URL", env = env::STORE, hide_env_values = true, help_heading = "Store")]
    pub(crate) store: Option<String>,
    /// Which store for results, heartbeats and live streams, such as a Redis server [default: the same]
    #[arg(long, global = true, value_name = "URL", env = env::EPHEMERAL, hide_env_values = true, help_heading = "Store")]
    pub(crate) ephemeral: Option<String>,
    /// Which namespace [default: default]
    #[arg(long, global = true, value_name = "NAME", env = env::NAMESPACE, hide_env_values = true, help_heading = "Store")]
    pub(crate) namespace: Option<String>,
    /// Who acts, for the events that are written
    #[arg(long, global = true, value_name = "NAME", env = env::ACTOR, hide_env_values = true, help_heading = "Store")]
    pub(crate) actor: Option<String>,
    /// The configuration file [default: statehold.toml if it is there]
    #[arg(long, global = true, value_name = "FILE", env = env::CONFIG, hide_env_values = true, help_heading = "Store")]
    pub(crate) config: Option<PathBuf>,
    /// How to show it
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Text, help_heading = "Output")]
    pub(crate) output: Output,
}

/// How things are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    Text,
    /// For programs: one JSON value, or one a line where there may be many
    Json,
}

/// What `statehold.toml` can say.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) store: Option<String>,
    pub(crate) ephemeral: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) actor: Option<String>,
}

impl File {
    /// Reads a file that must be there.
    fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|e| {
            Error::invalid("config", format!("`{shown}` cannot be read: {e}"))
                .hint("check --config and STATEHOLD_CONFIG")
        })?;
        toml::from_str(&text).map_err(|e| {
            let message = e.message().replace('\n', " ");
            Error::invalid("config", format!("`{shown}`: {message}"))
                .hint("statehold config --help tells what it can say")
        })
    }
}

/// A secret, by an environment variable or by the file that another one names.
fn secret(name: &str, file: &str) -> Result<Option<String>> {
    if let Ok(secret) = std::env::var(name) {
        return Ok(Some(secret));
    }
    let Some(path) = std::env::var_os(file).map(PathBuf::from) else { return Ok(None) };
    let text = std::fs::read_to_string(&path).map_err(|e| crate::trouble::file(&path, &e))?;
    Ok(Some(text.trim().to_owned()))
}

impl Common {
    /// Where the configuration file is, if there is one.
    pub(crate) fn config_path(&self) -> Option<PathBuf> {
        self.config.clone().or_else(|| Path::new(FILE).exists().then(|| FILE.into()))
    }

    /// What the configuration file says; nothing if there is none.
    pub(crate) fn file(&self) -> Result<File> {
        self.config_path().map_or_else(|| Ok(File::default()), |path| File::read(&path))
    }

    /// The store's URL: that of both if there is another one for what is short-lived.
    pub(crate) fn url(&self) -> Result<String> {
        let (store, ephemeral) = match (&self.store, &self.ephemeral) {
            (Some(store), Some(ephemeral)) => (Some(store.clone()), Some(ephemeral.clone())),
            (store, ephemeral) => {
                let file = self.file()?;
                (store.clone().or(file.store), ephemeral.clone().or(file.ephemeral))
            }
        };
        let store = store.unwrap_or_else(|| DEFAULT_STORE.to_owned());
        // A program that a worker runs is given both as one.
        Ok(match ephemeral.filter(|_| !store.starts_with("split:")) {
            Some(ephemeral) => format!("split:{store}|{ephemeral}"),
            None => store,
        })
    }

    /// The store, not open yet.
    pub(crate) fn store(&self) -> Result<Store> {
        let mut store = Store::parse(&self.url()?)?;
        if let Store::Http { token, .. } = &mut store
            && token.is_none()
        {
            *token = secret(env::TOKEN, env::TOKEN_FILE)?;
        }
        Ok(store)
    }

    /// The namespace.
    pub(crate) fn namespace(&self) -> Result<String> {
        let named = match &self.namespace {
            Some(namespace) => Some(namespace.clone()),
            None => self.file()?.namespace,
        };
        Ok(named.unwrap_or_else(|| NAMESPACE.to_owned()))
    }

    /// Opens the store, at the namespace.
    pub(crate) async fn open(&self) -> Result<Statehold> {
        let store = self.store()?;
        let new = matches!(store.clone().durable(), Store::Sqlite(config) if !config.path.exists());
        let hold = Statehold::on(store.open().await?).at(&self.namespace()?);
        if new {
            // Whoever is in the wrong folder should not take an empty store for their own.
            self.show().note(format!("{} is new", Store::masked(&self.url()?)));
        }
        let actor = match &self.actor {
            Some(actor) => Some(actor.clone()),
            None => self.file()?.actor,
        };
        Ok(actor.map_or_else(|| hold.clone(), |actor| hold.acting_as(&actor)))
    }

    /// Whether output is for programs.
    pub(crate) fn is_json(&self) -> bool {
        self.output == Output::Json
    }

    /// Where answers go.
    pub(crate) fn show(&self) -> Show {
        Show::new(self.is_json())
    }
}
