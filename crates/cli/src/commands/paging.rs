//! Lists that come in pages.

use clap::Args;
use serde::Serialize;
use statehold::Result;
use statehold_core::limits;
use statehold_core::query::Page;

use crate::show::{Show, Table};
use crate::trouble::Exit;

/// How much of a list to show.
#[derive(Args, Debug)]
pub(crate) struct Paging {
    /// How many at most
    #[arg(long, value_name = "COUNT", default_value = "50", conflicts_with = "all", value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// All of them
    #[arg(long)]
    all: bool,
}

/// Shows a list page by page, and says when there is more.
pub(crate) async fn each_page<T: Serialize>(
    paging: &Paging,
    show: &Show,
    read: impl AsyncFn(Option<String>, u32) -> Result<Page<T>>,
    table: impl Fn(&[T]) -> Table,
) -> Result<Exit> {
    let most = u32::try_from(limits::LIST).unwrap_or(u32::MAX);
    let mut left = if paging.all { u32::MAX } else { paging.limit };
    let (mut items, mut cursor) = (Vec::new(), None);
    loop {
        let page = read(cursor, left.min(most)).await?;
        left = left.saturating_sub(u32::try_from(page.items.len()).unwrap_or(u32::MAX));
        cursor = page.next_cursor;
        if show.is_json() {
            page.items.iter().try_for_each(|item| show.json(item))?;
        } else {
            items.extend(page.items);
        }
        if cursor.is_none() || left == 0 || show.is_closed() {
            break;
        }
    }
    if !show.is_json() {
        // One table, so that its columns stand under each other.
        if items.is_empty() {
            show.note("nothing found");
        } else {
            show.line(table(&items))?;
        }
    }
    if cursor.is_some() {
        show.note("there is more: --limit shows more of it, --all shows everything");
    }
    Ok(Exit::Success)
}
