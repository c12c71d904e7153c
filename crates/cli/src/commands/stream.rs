//! `statehold stream`: append-only logs of events.

use std::pin::pin;

use clap::{Args, Subcommand};
use futures_util::{Stream as Futures, StreamExt as _};
use statehold::{From, NewEvent, Result, Seconds, Statehold, StreamName};
use statehold_core::command::{StreamAppend, TrimTo, Trimmed};
use statehold_core::model::{Event, StreamInfo};
use statehold_core::query::{CategoryFrom, CategoryRead, KeyList, ReadFrom};

use super::paging::{Paging, each_page};
use crate::args::{self, Body, maybe};
use crate::show::{self, Show, Table};
use crate::trouble::Exit;

/// What can be done with streams.
#[derive(Subcommand, Debug)]
pub(crate) enum Stream {
    /// Appends an event
    #[command(after_help = "\
Examples:
  statehold stream append run/7 begun
  statehold stream append run/7 step --data '{\"number\": 1}' --expect-seq 1")]
    Append(Append),
    /// Reads events
    #[command(after_help = "\
Examples:
  statehold stream read run/7
  statehold stream read run/7 --last --limit 5
  statehold stream read --category run --limit 100 -o json")]
    Read(Read),
    /// Follows a stream or a category: what comes from now on, each event once and in order
    #[command(after_help = "\
Examples:
  statehold stream tail run/7 --from-start
  statehold stream tail --category run -o json")]
    Tail(Tail),
    /// Lists streams by the beginning of their names
    #[command(after_help = "\
Examples:
  statehold stream list --prefix run/")]
    List {
        /// Only names that begin with this
        #[arg(long, default_value = "", hide_default_value = true)]
        prefix: String,
        #[command(flatten)]
        paging: Paging,
    },
    /// Removes the oldest events
    #[command(after_help = "\
Examples:
  statehold stream trim run/7 --keep 1000
  statehold stream trim run/7 --older-than 30d")]
    Trim(Trim),
    /// Removes all events of a stream, for good
    #[command(after_help = "\
Examples:
  statehold stream purge run/7")]
    Purge {
        /// Which stream: category/id
        #[arg(value_parser = args::stream)]
        stream: StreamName,
    },
}

/// The arguments of `statehold stream append`.
#[derive(Args, Debug)]
pub(crate) struct Append {
    /// Which stream: category/id
    #[arg(value_parser = args::stream)]
    stream: StreamName,
    /// What happened
    #[arg(value_name = "TYPE")]
    kind: String,
    /// The rest: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    data: Option<Body>,
    /// Only if this is the number of the last event; 0 for a stream without events
    #[arg(long, value_name = "SEQ")]
    expect_seq: Option<u64>,
}

/// A stream or a category.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Which {
    /// Which stream: category/id
    #[arg(value_parser = args::stream)]
    stream: Option<StreamName>,
    /// All streams of a category
    #[arg(long)]
    category: Option<String>,
}

/// The arguments of `statehold stream read`.
#[derive(Args, Debug)]
pub(crate) struct Read {
    #[command(flatten)]
    which: Which,
    /// After this: the number of an event, or the position of one of a category
    #[arg(long, value_name = "CURSOR", conflicts_with_all = ["before", "last"])]
    after: Option<String>,
    /// The events just before the one with this number
    #[arg(long, value_name = "SEQ", conflicts_with_all = ["last", "category"])]
    before: Option<u64>,
    /// The last events
    #[arg(long, conflicts_with = "category")]
    last: bool,
    /// How many at most
    #[arg(long, value_name = "COUNT", default_value = "50")]
    limit: u32,
}

/// The arguments of `statehold stream tail`.
#[derive(Args, Debug)]
pub(crate) struct Tail {
    #[command(flatten)]
    which: Which,
    /// With everything that is there
    #[arg(long, conflicts_with = "after")]
    from_start: bool,
    /// With what comes after this: the number of an event, or the position of one of a category
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
}

/// The arguments of `statehold stream trim`.
#[derive(Args, Debug)]
pub(crate) struct Trim {
    /// Which stream: category/id
    #[arg(value_parser = args::stream)]
    stream: StreamName,
    #[command(flatten)]
    to: Extent,
}

/// How much to trim.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Extent {
    /// Keeps this many of the last events
    #[arg(long, value_name = "COUNT")]
    keep: Option<u64>,
    /// Removes what is older than this, such as 30d
    #[arg(long, value_name = "LENGTH", value_parser = args::seconds)]
    older_than: Option<Seconds>,
    /// Removes everything up to the event with this number
    #[arg(long, value_name = "SEQ")]
    up_to: Option<u64>,
}

/// Does it.
pub(crate) async fn run(hold: &Statehold, stream: &Stream, show: &Show) -> Result<Exit> {
    match stream {
        Stream::Append(args) => append(hold, args, show).await?,
        Stream::Read(args) => read(hold, args, show).await?,
        Stream::Tail(args) => tail(hold, args, show).await?,
        Stream::List { prefix, paging } => {
            let page = async |cursor, limit| {
                hold.streams().list(&KeyList { prefix: prefix.clone(), limit, cursor }).await
            };
            return each_page(paging, show, page, table).await;
        }
        Stream::Trim(Trim { stream, to }) => {
            let to = match (to.keep, to.older_than, to.up_to) {
                (Some(length), ..) => TrimTo::Length(length),
                (_, Some(age), _) => TrimTo::AgeSeconds(age),
                (.., up_to) => TrimTo::After(up_to.unwrap_or_default()),
            };
            trimmed(show, stream, hold.streams().trim(stream, to).await?)?;
        }
        Stream::Purge { stream } => trimmed(show, stream, hold.streams().purge(stream).await?)?,
    }
    Ok(Exit::Success)
}

fn trimmed(show: &Show, stream: &StreamName, oldest: u64) -> Result<()> {
    show.answer(&Trimmed { oldest }, || format!("{stream} begins after event {oldest}"))
}

async fn append(hold: &Statehold, append: &Append, show: &Show) -> Result<()> {
    let Append { stream, kind, expect_seq, .. } = append;
    let events = vec![NewEvent { kind: kind.clone(), data: maybe(append.data.as_ref(), "--data")? }];
    let done = hold.run(StreamAppend { stream: stream.clone(), events, expect_seq: *expect_seq }).await?;
    show.answer(&done, || format!("event {} of {stream}", done.last_seq))
}

/// The number of an event.
fn number(cursor: &str) -> Result<u64> {
    cursor.parse().map_err(|_| {
        statehold::Error::invalid("--after", format!("`{cursor}` is not the number of an event of a stream"))
    })
}

async fn read(hold: &Statehold, read: &Read, show: &Show) -> Result<()> {
    let events = match (&read.which.stream, &read.which.category) {
        (Some(stream), _) => {
            let from = match (&read.after, read.before) {
                (Some(after), _) => ReadFrom::After(number(after)?),
                (_, Some(before)) => ReadFrom::Before(before),
                _ if read.last => ReadFrom::Last,
                _ => ReadFrom::Oldest,
            };
            hold.streams().read(stream, from, read.limit).await?.events
        }
        (None, category) => {
            let from =
                read.after.clone().map_or(CategoryFrom::Oldest, |after| CategoryFrom::After(after.into()));
            let category = category.clone().unwrap_or_default();
            let read = CategoryRead { category, from, limit: read.limit };
            hold.backend().category_read(hold.namespace(), &read).await?.events
        }
    };
    let mixed = read.which.category.is_some();
    events.iter().try_for_each(|event| show.answer(event, || show::event(event, mixed)))
}

async fn tail(hold: &Statehold, tail: &Tail, show: &Show) -> Result<()> {
    match (&tail.which.stream, &tail.which.category) {
        (Some(stream), _) => {
            let from = match &tail.after {
                Some(after) => From::After(number(after)?),
                None if tail.from_start => From::Oldest,
                None => From::Now,
            };
            follow(hold.streams().subscribe(stream, from), false, show).await
        }
        (None, category) => {
            let from = match &tail.after {
                Some(after) => From::After(after.clone().into()),
                None if tail.from_start => From::Oldest,
                None => From::Now,
            };
            let category = category.as_deref().unwrap_or_default();
            follow(hold.streams().subscribe_category(category, from), true, show).await
        }
    }
}

async fn follow(events: impl Futures<Item = Result<Event>>, mixed: bool, show: &Show) -> Result<()> {
    let mut events = pin!(events);
    while let Some(event) = events.next().await.transpose()? {
        show.answer(&event, || show::event(&event, mixed))?;
        if show.is_closed() {
            break;
        }
    }
    Ok(())
}

fn table(streams: &[StreamInfo]) -> Table {
    let mut table = Table::new(&["STREAM", "LAST", "TRIMMED TO"]);
    for stream in streams {
        table.row([(&stream.stream).into(), stream.last_seq.into(), stream.oldest.into()]);
    }
    table
}
