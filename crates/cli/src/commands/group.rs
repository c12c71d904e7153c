//! `statehold group`: events handed out, each to one consumer at a time, until it is acknowledged.

use clap::{Args, Subcommand};
use statehold::{Result, Seconds, Statehold};
use statehold_core::call::GroupRead;
use statehold_core::command::{DeliveryRef, SeekTo};
use statehold_core::model::{Delivered, GroupInfo, Position, Source};

use crate::args;
use crate::show::{self, Card, Show, Table};
use crate::trouble::{Exit, too_late};

/// What can be done with consumer groups.
#[derive(Subcommand, Debug)]
pub(crate) enum Group {
    /// Reads events for a consumer
    ///
    /// Nobody else gets them until they are given back or their time is over. Exits with 6 when there is nothing.
    #[command(after_help = "\
Examples:
  statehold group read mailer run/7
  statehold group read mailer run --consumer me --limit 100 --wait 30s -o json")]
    Read(Read),
    /// Says that events are dealt with
    #[command(after_help = "\
Examples:
  statehold group ack mailer run/7 $DELIVERY")]
    Ack(Deliveries),
    /// Gives events back, to be read again
    #[command(after_help = "\
Examples:
  statehold group nack mailer run/7 $DELIVERY --delay 1m")]
    Nack {
        #[command(flatten)]
        deliveries: Deliveries,
        /// Not before this has passed, such as 90s or 5m
        #[arg(long, value_name = "LENGTH", value_parser = args::seconds)]
        delay: Option<Seconds>,
    },
    /// Says where the next read begins; what was read before is forgotten
    #[command(after_help = "\
Examples:
  statehold group seek mailer run/7 oldest
  statehold group seek mailer run/7 12")]
    Seek {
        #[command(flatten)]
        which: Which,
        /// oldest, latest, or after this: the number of an event, or the position of one of a category
        to: String,
    },
    /// Tells where a group is, and what it waits for
    #[command(after_help = "\
Examples:
  statehold group info mailer run/7")]
    Info(Which),
}

/// A group and what it reads.
#[derive(Args, Debug)]
pub(crate) struct Which {
    /// Which group
    group: String,
    /// What it reads: a stream category/id, or a category
    #[arg(value_parser = args::source)]
    source: Source,
}

/// The arguments of `statehold group read`.
#[derive(Args, Debug)]
pub(crate) struct Read {
    #[command(flatten)]
    which: Which,
    /// For whom
    #[arg(long, default_value = "cli")]
    consumer: String,
    /// How many at most
    #[arg(long, value_name = "COUNT", default_value = "10")]
    limit: u32,
    /// How long nobody else gets them, such as 90s or 5m
    #[arg(long, value_name = "LENGTH", default_value = "30s", value_parser = args::seconds)]
    visibility: Seconds,
    /// How often an event is given out before it becomes a dead letter
    #[arg(long, value_name = "COUNT", default_value = "5")]
    max_deliveries: u32,
    /// Waits this long for something to come; not at all if left out
    #[arg(long, value_name = "LENGTH", value_parser = args::seconds)]
    wait: Option<Seconds>,
}

/// Events that were read.
#[derive(Args, Debug)]
pub(crate) struct Deliveries {
    #[command(flatten)]
    which: Which,
    /// What read gave in the column DELIVERY: position:token
    #[arg(required = true, value_name = "DELIVERY", value_parser = delivery)]
    deliveries: Vec<DeliveryRef>,
}

fn delivery(text: &str) -> Result<DeliveryRef, String> {
    let (position, token) = text.rsplit_once(':').ok_or("a delivery is of the form position:token")?;
    Ok(DeliveryRef { position: Position(position.to_owned()), delivery_token: args::token(token)? })
}

/// Does it.
pub(crate) async fn run(hold: &Statehold, group: &Group, show: &Show) -> Result<Exit> {
    match group {
        Group::Read(args) => read(hold, args, show).await?,
        Group::Ack(Deliveries { which, deliveries }) => {
            hold.groups().ack(&which.group, &which.source, deliveries.clone()).await?;
            done(show, "acknowledged", deliveries.len())?;
        }
        Group::Nack { deliveries: Deliveries { which, deliveries }, delay } => {
            hold.groups().nack(&which.group, &which.source, deliveries.clone(), *delay).await?;
            done(show, "given_back", deliveries.len())?;
        }
        Group::Seek { which, to } => {
            let place = match to.as_str() {
                "oldest" => SeekTo::Oldest,
                "latest" => SeekTo::Latest,
                cursor => SeekTo::After(cursor.to_owned()),
            };
            hold.groups().seek(&which.group, &which.source, place).await?;
            info(&hold.groups().info(&which.group, &which.source).await?, show)?;
        }
        Group::Info(which) => info(&hold.groups().info(&which.group, &which.source).await?, show)?,
    }
    Ok(Exit::Success)
}

fn done(show: &Show, what: &'static str, count: usize) -> Result<()> {
    show.answer(&serde_json::json!({ what: count }), || format!("{count} {}", what.replace('_', " ")))
}

async fn read(hold: &Statehold, args: &Read, show: &Show) -> Result<()> {
    let Which { group, source } = &args.which;
    let mut read = GroupRead::new(hold.namespace(), group, source.clone(), &args.consumer);
    read.limit = args.limit;
    read.visibility_seconds = args.visibility;
    read.max_deliveries = args.max_deliveries;
    let events = hold.groups().read(read, args.wait.map(Into::into)).await?;
    if events.is_empty() {
        let hint = "statehold group info shows what is out; --wait 30s waits for something";
        return Err(too_late(format!("there is nothing for group `{group}` to read"), hint));
    }
    show.list(&events, table)
}

fn table(events: &[Delivered]) -> Table {
    let mut table = Table::new(&["STREAM", "SEQ", "TYPE", "TIMES", "DELIVERY", "DATA"]);
    for Delivered { event, delivery, delivery_token } in events {
        table.row([
            (&event.stream).into(),
            event.seq.into(),
            (&event.kind).into(),
            delivery.into(),
            format!("{}:{}", event.position, delivery_token.0).into(),
            event.data.as_ref().map(show::compact).unwrap_or_default().into(),
        ]);
    }
    table
}

fn info(info: &GroupInfo, show: &Show) -> Result<()> {
    show.answer(info, || {
        let mut card = Card::default();
        card.add("group", show::plain(&info.group));
        card.add(
            "reads",
            match &info.source {
                Source::Stream(stream) => stream.to_string(),
                Source::Category(category) => format!("category {category}"),
            },
        );
        card.add("is after", info.cursor.as_deref().unwrap_or("nothing yet"));
        card.add("out", info.pending);
        for pending in &info.oldest {
            let back = show::relative(pending.visible_at);
            let consumer = show::plain(&pending.consumer);
            let times = pending.delivery;
            card.add(
                "",
                format_args!("{} {} with {consumer}, time {times}, back {back}", pending.stream, pending.seq),
            );
        }
        card.to_string()
    })
}
