//! Events as they come: Server-Sent Events, each with its cursor, so that a client that lost its connection goes on
//! exactly where it was. Nothing is kept for a slow reader but what its connection holds.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _, future, stream};
use serde::Serialize;
use statehold::{Error, From, Result, Said, Statehold, StreamName, TaskId};
use statehold_core::model::Event;
use statehold_core::query::{CategoryCursor, CategoryFrom, CategoryRead, ReadFrom, StreamPage};

use crate::asked::Asked;
use crate::problem::{Answer, Problem};

/// How often a comment shows that the connection is alive.
const ALIVE: Duration = Duration::from_secs(15);
/// How long a client should wait before it comes back to another server.
const RETRY: Duration = Duration::from_secs(1);
/// The events with which a task ends.
const ENDS: [&str; 3] = ["task.completed", "task.failed", "task.cancelled"];

type Events = Pin<Box<dyn Stream<Item = Result<Event>> + Send>>;

/// Follows a stream.
pub(crate) async fn stream(asked: &Asked, stream: &StreamName) -> Answer {
    let from = begin(asked)?;
    check(&asked.hold, stream, &from).await?;
    let events = asked.hold.streams().subscribe(stream, from);
    Ok(answer(asked, events.map(|event| numbered(event, Some))))
}

/// Follows the messages of a thread.
pub(crate) async fn messages(asked: &Asked, stream: &StreamName) -> Answer {
    let from = begin(asked)?;
    check(&asked.hold, stream, &from).await?;
    let events = asked.hold.streams().subscribe(stream, from);
    Ok(answer(asked, events.map(|event| numbered(event, Said::of))))
}

/// Follows a category.
pub(crate) async fn category(asked: &Asked, category: &str) -> Answer {
    let (from, check) = match cursor(asked) {
        None | Some("0") => (From::Oldest, CategoryFrom::Oldest),
        Some("latest") => (From::Now, CategoryFrom::Latest),
        Some(cursor) => {
            let cursor = CategoryCursor::from(cursor.to_owned());
            (From::After(cursor.clone()), CategoryFrom::After(cursor))
        }
    };
    let read = CategoryRead { category: category.to_owned(), from: check, limit: 1 };
    read.check()?;
    asked.hold.backend().category_read(asked.hold.namespace(), &read).await?;
    let events = asked.hold.streams().subscribe_category(category, from);
    Ok(answer(asked, events.map(|event| event.map(|event| frame(&event.position, &event)))))
}

/// Follows a task until it has ended.
pub(crate) async fn task(asked: &Asked, id: TaskId) -> Answer {
    let from = begin(asked)?;
    let stream = StreamName::of_task(id);
    let task = asked.hold.tasks().get(id).await?.ok_or_else(|| Error::not_found("task", id))?;
    let page = check(&asked.hold, &stream, &from).await?;
    let past = match from {
        From::Oldest => false,
        From::After(seq) => seq >= page.last_seq,
        From::Now => true,
    };
    let ended = task.status.is_terminal();
    if ended && past {
        // Nothing will come, and a browser that is told so does not ask again.
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Ok(response);
    }
    let events: Events = Box::pin(asked.hold.streams().subscribe(&stream, from));
    let following = Following { hold: asked.hold.clone(), id, events, ended, last: page.last_seq, end: None };
    Ok(answer(asked, stream::unfold(Some(following), Following::next)))
}

/// A task that is followed.
struct Following {
    hold: Statehold,
    id: TaskId,
    events: Events,
    /// Whether the task may have ended.
    ended: bool,
    /// The last event that is known of.
    last: u64,
    /// After which event the end is told.
    end: Option<u64>,
}

impl Following {
    async fn next(this: Option<Self>) -> Option<(Result<sse::Event>, Option<Self>)> {
        let mut this = this?;
        if let Some(seq) = this.end {
            return Some((Ok(sse::Event::default().id(seq.to_string()).event("end").data("{}")), None));
        }
        match this.events.next().await? {
            Ok(event) => {
                this.ended |= ENDS.contains(&event.kind.as_str());
                let seq = event.seq;
                if this.ended && seq >= this.last && this.is_over(seq).await {
                    this.end = Some(seq);
                }
                Some((Ok(frame(&seq, &event)), Some(this)))
            }
            Err(error) => Some((Err(error), None)),
        }
    }

    /// Whether the task has ended, and this was its last event. If that cannot be told, the next event tells.
    async fn is_over(&mut self, seq: u64) -> bool {
        let task = self.hold.tasks().get(self.id).await;
        let page = self.hold.streams().read(&StreamName::of_task(self.id), ReadFrom::Last, 1).await;
        self.last = page.map_or(self.last, |page| page.last_seq);
        self.last == seq && task.is_ok_and(|task| task.is_none_or(|task| task.status.is_terminal()))
    }
}

/// Where the client is: where its last connection ended, or where it says.
fn cursor(asked: &Asked) -> Option<&str> {
    asked.header("last-event-id").filter(|id| !id.is_empty()).or_else(|| asked.query("after"))
}

fn begin(asked: &Asked) -> Result<From<u64>> {
    match cursor(asked) {
        None | Some("0") => Ok(From::Oldest),
        Some("latest") => Ok(From::Now),
        Some(number) => number
            .parse()
            .map(From::After)
            .map_err(|_| Error::invalid("after", format!("`{number}` is neither a number nor latest"))),
    }
}

/// Looks whether the stream can be read from there, so that the client is told before its answer begins.
async fn check(hold: &Statehold, stream: &StreamName, from: &From<u64>) -> Result<StreamPage> {
    let from = match from {
        From::After(seq) => ReadFrom::After(*seq),
        From::Oldest | From::Now => ReadFrom::Last,
    };
    hold.streams().read(stream, from, 1).await
}

/// An event of a stream, or of it what `show` makes. What it makes nothing of is not shown.
fn numbered<T: Serialize>(event: Result<Event>, show: impl Fn(Event) -> Option<T>) -> Result<sse::Event> {
    let event = event?;
    let seq = event.seq;
    Ok(match show(event) {
        Some(shown) => frame(&seq, &shown),
        None => sse::Event::default().comment(""),
    })
}

fn frame<T: Serialize>(cursor: &impl std::fmt::Display, value: &T) -> sse::Event {
    // JSON text has no line breaks, and cursors are digits.
    let data = serde_json::to_string(value).unwrap_or_default();
    sse::Event::default().id(cursor.to_string()).data(data)
}

/// Sends events until they end, the client leaves or the server drains.
fn answer(asked: &Asked, events: impl Stream<Item = Result<sse::Event>> + Send + 'static) -> Response {
    let (client, draining) = (asked.app.metrics.live.guard(), asked.app.draining.clone());
    let goodbye = draining.clone();
    let goodbye = stream::once(async move {
        goodbye.is_cancelled().then(|| sse::Event::default().retry(RETRY).comment("the server is stopping"))
    });
    let frames = events
        .take_until(draining.cancelled_owned())
        .map(move |event| {
            let _ = &client;
            Some(event.unwrap_or_else(|error| {
                sse::Event::default().event("problem").data(Problem::from(error).to_json())
            }))
        })
        .chain(goodbye)
        .filter_map(future::ready)
        .map(Ok::<_, Infallible>);
    let mut response = Sse::new(frames).keep_alive(KeepAlive::new().interval(ALIVE)).into_response();
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
