//! `statehold result`: what one who works hands to one who waits.

use clap::Subcommand;
use statehold::{Error, Json, Result, Seconds, Statehold};
use statehold_core::command::EntryExpiry;

use crate::args::{self, Body};
use crate::show::{self, Show};
use crate::trouble::{Exit, too_late};

/// What can be done with results.
#[derive(Subcommand, Debug)]
pub(crate) enum ResultOf {
    /// Shows a result
    #[command(after_help = "\
Examples:
  statehold result get 42")]
    Get {
        /// Its key
        key: String,
    },
    /// Hands over a result
    #[command(after_help = "\
Examples:
  statehold result set 43 '{\"answer\": 42}'
  statehold result set 43 @result.json --ttl 1d")]
    Set {
        /// Its key
        key: String,
        /// The result: JSON, @FILE, or - for standard input
        #[arg(allow_negative_numbers = true)]
        value: Body,
        /// How long it is kept, such as 5m or 1d
        #[arg(long, value_name = "LENGTH", default_value = "1h", value_parser = args::seconds)]
        ttl: Seconds,
    },
    /// Takes a result away; of many takers one gets it
    #[command(after_help = "\
Examples:
  statehold result take 42")]
    Take {
        /// Its key
        key: String,
    },
    /// Waits for a result
    ///
    /// Exits with 6 when it did not come in time.
    #[command(after_help = "\
Examples:
  statehold result wait 42 --timeout 5m")]
    Wait {
        /// Its key
        key: String,
        /// How long at most, such as 90s or 5m; forever if left out
        #[arg(long, value_name = "LENGTH", value_parser = args::seconds)]
        timeout: Option<Seconds>,
    },
}

/// Does it.
pub(crate) async fn run(hold: &Statehold, result: &ResultOf, show: &Show) -> Result<Exit> {
    match result {
        ResultOf::Get { key } => tell(show, key, hold.results().get(key).await?)?,
        ResultOf::Take { key } => tell(show, key, hold.results().take(key).await?)?,
        ResultOf::Set { key, value, ttl } => {
            let expires_at = hold.results().set_for(key, value.read("value")?, (*ttl).into()).await?;
            show.answer(&EntryExpiry { expires_at }, || {
                format!("result {key} goes {}", show::time(expires_at))
            })?;
        }
        ResultOf::Wait { key, timeout } => {
            let value = hold.results().wait(key, timeout.map(Into::into)).await?;
            let hint = "statehold result wait without --timeout waits forever";
            let value = value.ok_or_else(|| too_late(format!("result `{key}` has not come"), hint))?;
            tell(show, key, Some(value))?;
        }
    }
    Ok(Exit::Success)
}

fn tell(show: &Show, key: &str, value: Option<Json>) -> Result<()> {
    let hint = "it was never set, was taken, or its time is over; statehold result wait waits for it";
    let value = value.ok_or_else(|| Error::not_found("result", key).hint(hint))?;
    show.answer(&value, || show::pretty(&value))
}
