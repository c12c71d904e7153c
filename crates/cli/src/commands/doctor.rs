//! `statehold doctor`: whether a store is sound.

use std::process::ExitCode;

use clap::Args;
use statehold::{Result, Store};
use statehold_sqlite::Sqlite;

/// The arguments of `statehold doctor`.
#[derive(Args)]
pub(crate) struct Doctor {
    /// Which store
    #[arg(long, value_name = "URL", env = "STATEHOLD_STORE", default_value = statehold::DEFAULT_STORE)]
    store: String,
    /// If the file is damaged, set it aside under a dated name and begin a new, empty one
    ///
    /// Refused while another process has the file open. The damaged file is kept as it is.
    #[arg(long)]
    recover: bool,
}

/// Examines the store and tells; fails if it is damaged and stays so.
pub(crate) async fn run(doctor: &Doctor) -> ExitCode {
    match examine(doctor).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn examine(doctor: &Doctor) -> Result<bool> {
    let mut config = match Store::parse(&doctor.store)? {
        Store::Memory => {
            println!("memory: holds nothing before it is used");
            return Ok(true);
        }
        Store::Sqlite(config) => config,
    };
    println!("{}", doctor.store);
    let sound = match Sqlite::examine(&config.path).await {
        Ok(found) => {
            found.facts.iter().for_each(|fact| println!("  {fact}"));
            found.damage.iter().for_each(|damage| println!("  damaged: {damage}"));
            found.damage.is_empty()
        }
        Err(error) if doctor.recover && error.code() == "corrupt" => {
            println!("  damaged: {}", error.message());
            false
        }
        Err(error) => return Err(error),
    };
    if sound {
        println!("  sound: every page and every row is as it should be");
    } else if doctor.recover {
        config.recover = true;
        let store = Store::Sqlite(config).open().await?;
        for note in store.health().await?.notes {
            println!("  {note}");
        }
        println!("  a new, empty database is in its place");
        return Ok(true);
    } else {
        println!(
            "hint: restore a backup, or run this again with --recover to set the file aside and begin a new one"
        );
    }
    Ok(sound)
}
