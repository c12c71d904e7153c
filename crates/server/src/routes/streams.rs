//! Streams and categories: appended to, read, followed, trimmed.

use axum::http::Method;
use serde::Serialize;
use serde_json::json;
use statehold::{Error, Result, StreamName};
use statehold_core::command::{StreamAppend, StreamPurge, StreamTrim};
use statehold_core::model::{Event, StreamInfo};
use statehold_core::query::{CategoryCursor, CategoryFrom, CategoryRead, Page, ReadFrom, StreamRead};
use utoipa::ToSchema;

use crate::access::Rule;
use crate::asked::{Asked, ok};
use crate::live;
use crate::problem::Answer;
use crate::route::{AFTER, BEFORE, CURSOR, LIMIT, PREFIX, Route};

/// A part of a stream.
#[derive(Serialize, ToSchema)]
pub(super) struct EventPage<T> {
    /// In the order of their numbers.
    items: Vec<T>,
    /// The next page, with `after`, or with `before` where it was read backwards; none at the end.
    next_cursor: Option<String>,
    /// The number of the last event of the stream.
    last_seq: u64,
    /// The oldest cursor that can be read after.
    oldest: u64,
}

pub(super) fn routes() -> Vec<Route> {
    let events = "/streams/{category}/{id}/events";
    vec![
        Route::command::<StreamAppend>(Method::POST, events)
            .example(json!({ "events": [{ "type": "step", "data": { "n": 1 } }], "expect_seq": 0 })),
        Route::new(Method::GET, events, Rule::Read, "The events of a stream.", read)
            .query(&[AFTER, BEFORE, LIMIT])
            .lists::<EventPage<Event>, Event>()
            .live(),
        Route::command::<StreamPurge>(Method::DELETE, "/streams/{category}/{id}"),
        Route::command::<StreamTrim>(Method::POST, "/streams/{category}/{id}/trim")
            .example(json!({ "to": { "length": 1000 } })),
        Route::new(Method::GET, "/streams", Rule::Read, "Lists streams by the prefix of their names.", list)
            .query(&[PREFIX, LIMIT, CURSOR])
            .lists::<Page<StreamInfo>, StreamInfo>(),
        Route::new(
            Method::GET,
            "/categories/{category}/events",
            Rule::Read,
            "The events of all streams of a category.",
            category,
        )
        .query(&[AFTER, LIMIT])
        .lists::<Page<Event>, Event>()
        .live(),
    ]
}

async fn read(asked: Asked) -> Answer {
    let stream = StreamName::new(asked.path("category"), asked.path("id"))?;
    if asked.is_live() {
        return live::stream(&asked, &stream).await;
    }
    page(&asked, &stream).await
}

/// A page of a stream, from the oldest unless the query says otherwise.
pub(super) async fn page(asked: &Asked, stream: &StreamName) -> Answer {
    page_from(asked, stream, ReadFrom::Oldest, Some).await
}

/// A page of a stream, of the events that `show` makes something of.
pub(super) async fn page_from<T: Serialize>(
    asked: &Asked,
    stream: &StreamName,
    unless_said: ReadFrom,
    show: impl Fn(Event) -> Option<T>,
) -> Answer {
    let (from, limit) = (from(asked)?.unwrap_or(unless_said), asked.limit()?);
    let read = StreamRead { stream: stream.clone(), from, limit };
    read.check()?;
    let page = asked.hold.backend().stream_read(asked.hold.namespace(), &read).await?;
    let edge = match from {
        // Backwards: the page before this one.
        ReadFrom::Before(_) | ReadFrom::Last => {
            page.events.first().map(|first| first.seq).filter(|seq| *seq > page.oldest + 1)
        }
        _ => page.events.last().map(|last| last.seq).filter(|seq| *seq < page.last_seq),
    };
    ok(&EventPage {
        items: page.events.into_iter().filter_map(show).collect(),
        next_cursor: edge.map(|seq| seq.to_string()),
        last_seq: page.last_seq,
        oldest: page.oldest,
    })
}

fn from(asked: &Asked) -> Result<Option<ReadFrom>> {
    match (asked.query("after"), asked.parsed("before")?) {
        (None, None) => Ok(None),
        (None, Some(before)) => Ok(Some(ReadFrom::Before(before))),
        (Some("0"), None) => Ok(Some(ReadFrom::Oldest)),
        (Some("latest"), None) => Ok(Some(ReadFrom::Last)),
        (Some(after), None) => match after.parse() {
            Ok(number) => Ok(Some(ReadFrom::After(number))),
            Err(_) => Err(Error::invalid("after", "is neither a number nor latest")),
        },
        (Some(_), Some(_)) => Err(Error::invalid("after", "and `before` exclude each other")),
    }
}

async fn list(asked: Asked) -> Answer {
    ok(&asked.hold.streams().list(&super::key_list(&asked)?).await?)
}

async fn category(asked: Asked) -> Answer {
    let category = asked.path("category").to_owned();
    read_category(&asked, category).await
}

/// A page of a category, or its events as they come.
pub(super) async fn read_category(asked: &Asked, category: String) -> Answer {
    if asked.is_live() {
        return live::category(asked, &category).await;
    }
    let from = match asked.query("after") {
        None | Some("0") => CategoryFrom::Oldest,
        Some("latest") => CategoryFrom::Latest,
        Some(cursor) => CategoryFrom::After(CategoryCursor::from(cursor.to_owned())),
    };
    let read = CategoryRead { category, from, limit: asked.limit()? };
    read.check()?;
    let page = asked.hold.backend().category_read(asked.hold.namespace(), &read).await?;
    ok(&Page { items: page.events, next_cursor: Some(page.cursor.to_string()) })
}
