//! `statehold task list`.

use clap::{Args, ValueEnum};
use statehold::{Result, Statehold, Status, Task, TaskId, Timestamp};
use statehold_core::query::{TaskList, TaskOrder};

use crate::args;
use crate::commands::paging::{Paging, each_page};
use crate::show::{self, Field, Show, Table};
use crate::trouble::Exit;

/// The arguments of `statehold task list`.
#[derive(Args, Debug)]
pub(crate) struct List {
    /// In one of these, separated by commas
    #[arg(short, long, value_delimiter = ',', value_parser = args::status)]
    status: Vec<Status>,
    /// In this queue
    #[arg(short, long)]
    queue: Option<String>,
    /// Of this kind
    #[arg(short, long)]
    kind: Option<String>,
    /// Of this conversation
    #[arg(long)]
    thread: Option<String>,
    /// Children of this task
    #[arg(long, value_name = "ID", value_parser = args::task_id)]
    parent: Option<TaskId>,
    /// This task and everything that came of it
    #[arg(long, value_name = "ID", value_parser = args::task_id)]
    root: Option<TaskId>,
    /// Leased to this owner
    #[arg(long)]
    owner: Option<String>,
    /// With this label; can be said several times
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = args::label)]
    labels: Vec<(String, String)>,
    /// With this idempotency key
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// With this exclusive key
    #[arg(long, value_name = "KEY")]
    exclusive_key: Option<String>,
    /// Created at this time or later
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    created_from: Option<Timestamp>,
    /// Created before this time
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    created_before: Option<Timestamp>,
    /// Leased, with a sign of life at this time or later
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    heartbeat_from: Option<Timestamp>,
    /// Leased, with the last sign of life before this time
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    heartbeat_before: Option<Timestamp>,
    /// In which order
    #[arg(long, value_enum, default_value_t = Order::Created)]
    order: Order,
    /// The other way round
    #[arg(short, long)]
    descending: bool,
    #[command(flatten)]
    paging: Paging,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Order {
    /// By the time of creation
    Created,
    /// By hand, as in a backlog
    Rank,
    /// As claims take them
    Claim,
}

impl List {
    /// Lists page by page.
    pub(super) async fn run(&self, hold: &Statehold, show: &Show) -> Result<Exit> {
        let list = self.query();
        let page = async |cursor, limit| {
            let mut page = hold.tasks().list(&TaskList { cursor, limit, ..list.clone() }).await?;
            page.items = page.items.into_iter().map(show::without_token).collect();
            Ok(page)
        };
        each_page(&self.paging, show, page, table).await
    }

    fn query(&self) -> TaskList {
        TaskList {
            status: self.status.clone(),
            queue: self.queue.clone(),
            kind: self.kind.clone(),
            thread: self.thread.clone(),
            parent: self.parent,
            root: self.root,
            owner: self.owner.clone(),
            labels: args::labels(&self.labels),
            idempotency_key: self.idempotency_key.clone(),
            exclusive_key: self.exclusive_key.clone(),
            created_from: self.created_from,
            created_before: self.created_before,
            heartbeat_from: self.heartbeat_from,
            heartbeat_before: self.heartbeat_before,
            order: match self.order {
                Order::Created => TaskOrder::Created,
                Order::Rank => TaskOrder::Rank,
                Order::Claim => TaskOrder::Claim,
            },
            descending: self.descending,
            ..TaskList::default()
        }
    }
}

fn table(tasks: &[Task]) -> Table {
    let mut table = Table::new(&["ID", "STATUS", "QUEUE", "KIND", "ATTEMPT", "CREATED", "OWNER", "LABELS"]);
    for task in tasks {
        table.row([
            task.id.into(),
            show::status(task.status),
            (&task.queue).into(),
            (&task.kind).into(),
            task.attempt.into(),
            show::relative(task.created_at).into(),
            Field::from(task.lease.as_ref().map_or("", |lease| &lease.owner)),
            show::labels(&task.labels).into(),
        ]);
    }
    table
}
