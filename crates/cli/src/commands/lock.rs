//! `statehold lock`: advisory locks.

use clap::{Args, Subcommand};
use statehold::{Error, Result, Seconds, Statehold, Token};
use statehold_core::command::{LockAcquire, LockFreed, LockRenewed};
use statehold_core::model::Lock as Row;
use statehold_core::query::KeyList;

use super::lock_run::{self, LockRun};
use super::paging::{Paging, each_page};
use crate::args;
use crate::settings::env;
use crate::show::{self, Card, Show, Table};
use crate::trouble::Exit;

/// What can be done with locks.
#[derive(Subcommand, Debug)]
pub(crate) enum Lock {
    /// Runs a program while holding a lock
    Run(LockRun),
    /// Lists the locks that are held
    #[command(after_help = "\
Examples:
  statehold lock list
  statehold lock list --prefix project/ -o json")]
    List {
        /// Only keys that begin with this
        #[arg(long, default_value = "", hide_default_value = true)]
        prefix: String,
        #[command(flatten)]
        paging: Paging,
    },
    /// Shows who has a lock
    #[command(after_help = "\
Examples:
  statehold lock show project/1")]
    Show {
        /// Which lock
        key: String,
        /// Also shows its token, which lets anyone act as its holder (JSON says 0 otherwise)
        #[arg(long)]
        token: bool,
    },
    /// Takes a lock and keeps it for its time; lock run is safer
    ///
    /// The lock is held until its time is over, whatever becomes of who took it. Whoever has the token can renew and
    /// release it. Exits with 4 when someone else has it.
    #[command(after_help = "\
Examples:
  statehold lock acquire project/2
  statehold lock acquire project/2 --owner me --ttl 10m --wait 30s")]
    Acquire(Acquire),
    /// Keeps a lock for longer
    #[command(after_help = "\
Examples:
  statehold lock renew project/1 --token $LOCK_TOKEN --ttl 10m")]
    Renew {
        #[command(flatten)]
        held: Held,
        /// How long from now, such as 90s or 5m
        #[arg(long, value_name = "LENGTH", default_value = "60s", value_parser = args::seconds)]
        ttl: Seconds,
    },
    /// Frees a lock by its token
    #[command(after_help = "\
Examples:
  statehold lock release project/1 --token $LOCK_TOKEN")]
    Release(Held),
    /// Frees a lock whoever has it; what its holder still writes with it is refused
    #[command(after_help = "\
Examples:
  statehold lock force-release project/1")]
    ForceRelease {
        /// Which lock
        key: String,
    },
}

/// The arguments of `statehold lock acquire`.
#[derive(Args, Debug)]
pub(crate) struct Acquire {
    /// What to lock
    key: String,
    /// For whom
    #[arg(long, default_value = "cli")]
    owner: String,
    /// How long it is held unless renewed, such as 90s or 5m
    #[arg(long, value_name = "LENGTH", default_value = "60s", value_parser = args::seconds)]
    ttl: Seconds,
    /// Waits this long for it to be free; not at all if left out
    #[arg(long, value_name = "LENGTH", value_parser = args::seconds)]
    wait: Option<Seconds>,
}

/// A lock and the proof that one holds it.
#[derive(Args, Debug)]
pub(crate) struct Held {
    /// Which lock
    #[arg(env = env::LOCK_KEY, hide_env_values = true)]
    key: String,
    /// The token that acquire gave
    #[arg(long, value_parser = args::token, env = env::LOCK_TOKEN, hide_env_values = true)]
    token: Token,
}

/// Does it.
pub(crate) async fn run(hold: &Statehold, lock: &Lock, show: &Show) -> Result<Exit> {
    match lock {
        Lock::Run(args) => return lock_run::run(hold, args, show.is_json()).await,
        Lock::List { prefix, paging } => return list(hold, prefix, paging, show).await,
        Lock::Show { key, token } => {
            let lock = get(hold, key).await?;
            tell(show, &if *token { lock } else { show::lock_without_token(lock) })?;
        }
        Lock::Acquire(args) => tell(show, &acquire(hold, args).await?)?,
        Lock::Renew { held: Held { key, token }, ttl } => {
            let expires_at = hold.locks().renew(key, *token, *ttl).await?;
            show.answer(&LockRenewed { expires_at }, || {
                format!("lock {key} ends {}", show::time(expires_at))
            })?;
        }
        Lock::Release(Held { key, token }) => {
            hold.locks().release(key, *token).await?;
            show.answer(&serde_json::json!({ "released": key }), || format!("lock {key} is free"))?;
        }
        Lock::ForceRelease { key } => {
            let previous = hold.locks().force_release(key).await?.map(show::lock_without_token);
            show.answer(&LockFreed { previous: previous.clone() }, || match &previous {
                Some(lock) => format!("lock {key} is free; {} had it", show::plain(&lock.owner)),
                None => format!("lock {key} was free"),
            })?;
        }
    }
    Ok(Exit::Success)
}

async fn get(hold: &Statehold, key: &str) -> Result<Row> {
    hold.locks().get(key).await?.ok_or_else(|| {
        Error::new(statehold::ErrorKind::NotFound, format!("nobody has lock `{key}`"))
            .about(key)
            .hint("statehold lock list shows the locks that are held")
    })
}

async fn acquire(hold: &Statehold, args: &Acquire) -> Result<Row> {
    let acquire = LockAcquire { ttl_seconds: args.ttl, ..LockAcquire::new(&args.key, &args.owner) };
    let guard = hold.locks().acquire_with(acquire, args.wait.map(Into::into)).await?;
    let lock = get(hold, &args.key).await;
    // The lock outlives this process: whoever has the token releases it.
    std::mem::forget(guard);
    lock
}

async fn list(hold: &Statehold, prefix: &str, paging: &Paging, show: &Show) -> Result<Exit> {
    let page = async |cursor, limit| {
        let mut page = hold.locks().list(&KeyList { prefix: prefix.to_owned(), limit, cursor }).await?;
        page.items = page.items.into_iter().map(show::lock_without_token).collect();
        Ok(page)
    };
    each_page(paging, show, page, table).await
}

fn table(locks: &[Row]) -> Table {
    let mut table = Table::new(&["KEY", "OWNER", "ACQUIRED", "EXPIRES"]);
    for lock in locks {
        let (since, until) = (show::relative(lock.acquired_at), show::relative(lock.expires_at));
        table.row([(&lock.key).into(), (&lock.owner).into(), since.into(), until.into()]);
    }
    table
}

fn tell(show: &Show, lock: &Row) -> Result<()> {
    show.answer(lock, || {
        let mut card = Card::default();
        card.add("lock", show::plain(&lock.key));
        card.add("owner", show::plain(&lock.owner));
        card.maybe("token", Some(lock.token.0).filter(|token| *token != 0));
        card.add("acquired", show::time(lock.acquired_at));
        card.add("expires", show::time(lock.expires_at));
        card.to_string()
    })
}
