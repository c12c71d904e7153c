//! `statehold entry`: values with a time to live.

use clap::{Args, Subcommand};
use statehold::{Error, Result, Seconds, Statehold};
use statehold_core::command::{EntryExpiry, EntrySet, Existed};
use statehold_core::model::Entry as Row;
use statehold_core::query::KeyList;

use super::paging::{Paging, each_page};
use crate::args::{self, Body};
use crate::show::{self, Show, Table};
use crate::trouble::Exit;

/// What can be done with entries.
#[derive(Subcommand, Debug)]
pub(crate) enum Entry {
    /// Shows a value; with -o json everything about it
    #[command(after_help = "\
Examples:
  statehold entry get code/7")]
    Get {
        /// Its key
        key: String,
    },
    /// Sets a value for a time
    #[command(after_help = "\
Examples:
  statehold entry set code/8 '\"1234\"' --ttl 5m
  statehold entry set seen/8 true --if-absent")]
    Set(Set),
    /// Takes a value away; of many takers one gets it
    #[command(after_help = "\
Examples:
  statehold entry take code/7")]
    Take {
        /// Its key
        key: String,
    },
    /// Removes a value
    #[command(after_help = "\
Examples:
  statehold entry delete code/7")]
    Delete {
        /// Its key
        key: String,
    },
    /// Lists values by the beginning of their keys
    #[command(after_help = "\
Examples:
  statehold entry list --prefix code/")]
    List {
        /// Only keys that begin with this
        #[arg(long, default_value = "", hide_default_value = true)]
        prefix: String,
        #[command(flatten)]
        paging: Paging,
    },
}

/// The arguments of `statehold entry set`.
#[derive(Args, Debug)]
pub(crate) struct Set {
    /// Its key
    key: String,
    /// The value: JSON, @FILE, or - for standard input
    #[arg(allow_negative_numbers = true)]
    value: Body,
    /// How long it stays, such as 90s or 5m
    #[arg(long, value_name = "LENGTH", default_value = "1h", value_parser = args::seconds)]
    ttl: Seconds,
    /// Only if nothing is there
    #[arg(long)]
    if_absent: bool,
}

/// Does it.
pub(crate) async fn run(hold: &Statehold, entry: &Entry, show: &Show) -> Result<Exit> {
    match entry {
        Entry::Get { key } => value(show, key, hold.entries().get(key).await?)?,
        Entry::Take { key } => value(show, key, hold.entries().take(key).await?)?,
        Entry::Set(Set { key, value, ttl, if_absent }) => {
            let value = value.read("value")?;
            let set = EntrySet { ttl_seconds: *ttl, if_absent: *if_absent, ..EntrySet::new(key, value) };
            let expires_at = hold.entries().set_with(set).await?;
            show.answer(&EntryExpiry { expires_at }, || format!("{key} goes {}", show::time(expires_at)))?;
        }
        Entry::Delete { key } => {
            let existed = hold.entries().delete(key).await?;
            show.answer(&Existed { existed }, || {
                format!("{key} {}", if existed { "is gone" } else { "was not there" })
            })?;
        }
        Entry::List { prefix, paging } => {
            let page = async |cursor, limit| {
                hold.entries().list(&KeyList { prefix: prefix.clone(), limit, cursor }).await
            };
            return each_page(paging, show, page, table).await;
        }
    }
    Ok(Exit::Success)
}

fn value(show: &Show, key: &str, entry: Option<Row>) -> Result<()> {
    let entry = entry.ok_or_else(|| {
        Error::not_found("entry", key).hint("it was never set, was taken, or its time is over")
    })?;
    show.answer(&entry, || show::pretty(&entry.value))
}

fn table(entries: &[Row]) -> Table {
    let mut table = Table::new(&["KEY", "EXPIRES", "VALUE"]);
    for entry in entries {
        table.row([
            (&entry.key).into(),
            show::relative(entry.expires_at).into(),
            show::compact(&entry.value).into(),
        ]);
    }
    table
}
