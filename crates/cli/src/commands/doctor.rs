//! `statehold doctor`: whether a store is sound.

use clap::Args;
use serde::Serialize;
use statehold::{Result, Store};
use statehold_sqlite::{Config, Sqlite};

use crate::settings::Common;
use crate::show::{BAD, GOOD};
use crate::trouble::Exit;

/// The arguments of `statehold doctor`.
#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct Doctor {
    /// If the file is damaged, set it aside under a dated name and begin a new, empty one
    ///
    /// Refused while another process has the file open. The damaged file is kept as it is.
    #[arg(long)]
    recover: bool,
}

/// What was found.
#[derive(Debug, Default, Serialize)]
struct Findings {
    store: String,
    sound: bool,
    facts: Vec<String>,
    damage: Vec<String>,
    /// What was done about it.
    recovered: Vec<String>,
}

/// Examines the store and tells; fails if it is damaged and stays so.
pub(crate) async fn run(common: &Common, doctor: &Doctor) -> Result<Exit> {
    let url = common.url()?;
    let mut findings = Findings { store: Store::masked(&url), ..Findings::default() };
    match common.store()?.durable() {
        Store::Memory => {
            findings.facts.push("holds nothing before it is used".to_owned());
            findings.sound = true;
        }
        Store::Redis(config) => {
            let health = Store::Redis(config).open().await?.health().await?;
            findings.facts = health.notes;
            findings.sound = true;
        }
        Store::Sqlite(config) => examine(config, doctor, &mut findings).await?,
        store @ (Store::Postgres(_) | Store::Split { .. }) => {
            findings.facts = store.open().await?.health().await?.notes;
            findings.sound = true;
        }
        Store::Http { .. } => {
            return Err(statehold::Error::unsupported("a server's store is examined where it is")
                .hint("run it with the URL of the store itself"));
        }
    }
    common.show().answer(&findings, || findings.in_words())?;
    let well = findings.sound || !findings.recovered.is_empty();
    Ok(if well { Exit::Success } else { Exit::Failure })
}

async fn examine(mut config: Config, doctor: &Doctor, findings: &mut Findings) -> Result<()> {
    match Sqlite::examine(&config.path).await {
        Ok(found) => {
            findings.sound = found.damage.is_empty();
            findings.facts = found.facts;
            findings.damage = found.damage;
        }
        Err(error) if doctor.recover && error.code() == "corrupt" => {
            findings.damage.push(error.message().to_owned());
        }
        Err(error) => return Err(error),
    }
    if !findings.sound && doctor.recover {
        config.recover = true;
        let store = Store::Sqlite(config).open().await?;
        findings.recovered = store.health().await?.notes;
        findings.recovered.push("a new, empty database is in its place".to_owned());
    }
    Ok(())
}

impl Findings {
    fn in_words(&self) -> String {
        let mut lines = vec![self.store.clone()];
        lines.extend(self.facts.iter().map(|fact| format!("  {fact}")));
        lines.extend(self.damage.iter().map(|damage| format!("  {BAD}damaged:{BAD:#} {damage}")));
        lines.extend(self.recovered.iter().map(|note| format!("  {note}")));
        if self.sound {
            lines.push(format!("  {GOOD}sound{GOOD:#}: every page and every row is as it should be"));
        } else if self.recovered.is_empty() {
            let hint = "restore a backup, or run this again with --recover to set the file aside and begin a new one";
            lines.push(format!("hint: {hint}"));
        }
        lines.join("\n")
    }
}
