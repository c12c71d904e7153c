//! `statehold config`: the effective settings, and where they come from.

use clap::ArgMatches;
use clap::parser::ValueSource;
use serde::Serialize;
use statehold::{DEFAULT_STORE, Result, Store};

use crate::settings::Common;
use crate::show::{Show, Table};
use crate::trouble::Exit;

/// What the file can say, for the help.
pub(crate) const HELP: &str = "\
A configuration file is TOML, such as:

  store = \"sqlite:/var/lib/statehold/state.db\"
  ephemeral = \"redis://localhost\"
  namespace = \"default\"
  actor = \"operator\"

It is statehold.toml in the current folder, or the file that --config or STATEHOLD_CONFIG names. Flags come before the
environment, the environment before the file. What the file does not know is refused.

Examples:
  statehold config
  STATEHOLD_NAMESPACE=test statehold config -o json";

/// One setting.
#[derive(Serialize)]
struct Setting {
    #[serde(rename = "setting")]
    name: &'static str,
    value: Option<String>,
    origin: String,
}

/// Shows every setting.
pub(crate) fn run(common: &Common, matches: &ArgMatches, show: &Show) -> Result<Exit> {
    let file = common.file()?;
    let settings = [
        setting(common, matches, "store", common.store.as_ref(), file.store, Some(DEFAULT_STORE)),
        setting(common, matches, "ephemeral", common.ephemeral.as_ref(), file.ephemeral, None),
        setting(common, matches, "namespace", common.namespace.as_ref(), file.namespace, Some("default")),
        setting(common, matches, "actor", common.actor.as_ref(), file.actor, None),
    ];
    show.list(&settings, |settings| {
        let mut table = Table::new(&["SETTING", "VALUE", "ORIGIN"]);
        for Setting { name, value, origin } in settings {
            table.row([name.into(), value.as_deref().unwrap_or("none").into(), origin.into()]);
        }
        table
    })?;
    Ok(Exit::Success)
}

/// The first that says something: flag, environment, file, what is built in.
fn setting(
    common: &Common,
    matches: &ArgMatches,
    name: &'static str,
    given: Option<&String>,
    file: Option<String>,
    built_in: Option<&str>,
) -> Setting {
    let (value, origin) = match (given, file) {
        (Some(given), _) if matches.value_source(name) == Some(ValueSource::EnvVariable) => {
            (Some(given.clone()), format!("environment, STATEHOLD_{}", name.to_uppercase()))
        }
        (Some(given), _) => (Some(given.clone()), format!("flag, --{name}")),
        (None, Some(said)) => {
            let path = common.config_path().unwrap_or_default();
            (Some(said), format!("file, {}", path.display()))
        }
        (None, None) => (built_in.map(str::to_owned), "built in".to_owned()),
    };
    Setting { name, value: value.map(|value| Store::masked(&value)), origin }
}
