//! `statehold migrate`: brings the schema of a store up to date.

use clap::Args;
use statehold::{Error, Result, Statehold, Store};

use crate::settings::Common;
use crate::trouble::Exit;

/// The arguments of `statehold migrate`.
#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct Migrate {
    /// Only tells whether there is something to do; exits with 2 if there is
    #[arg(long)]
    dry_run: bool,
}

/// Opens the store, which may bring it up to date already, and tells its version.
pub(crate) async fn run(common: &Common, args: &Migrate) -> Result<Exit> {
    let url = common.url()?;
    let mut store = common.store()?.durable();
    match &mut store {
        Store::Memory | Store::Redis(_) | Store::Http { .. } | Store::Split { .. } => {}
        Store::Postgres(config) => config.migrate = !args.dry_run,
        Store::Sqlite(config) => {
            config.migrate = !args.dry_run;
            if args.dry_run && !config.path.exists() {
                let message = format!("{} is not there yet", Store::masked(&url));
                return Err(Error::new(statehold::ErrorKind::NotFound, message)
                    .hint("run it without --dry-run to make it"));
            }
        }
    }
    let hold = Statehold::on(store.open().await?);
    let migration = hold.backend().migrate(args.dry_run).await?;
    common.show().answer(&migration, || {
        let steps: Vec<_> = migration.steps.iter().map(|step| format!("\n  {step}")).collect();
        format!(
            "{} has schema version {}, which is current{}",
            Store::masked(&url),
            migration.to,
            steps.concat()
        )
    })?;
    Ok(Exit::Success)
}
