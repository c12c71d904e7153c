//! Threads: a document of metadata, and a stream of messages.

use axum::http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;
use statehold::{DocumentPut, Error, Json, Message, Result, Said, StreamName, THREAD, Thread};
use statehold_core::command::{Appended, DocumentDelete, Existed, Expect, StreamAppend, StreamPurge};
use statehold_core::limits::Check;
use statehold_core::query::{DocumentList, Page, ReadFrom};
use utoipa::ToSchema;

use super::documents::{change, document};
use super::patch;
use super::streams::EventPage;
use super::work::{NewAccess, issue};
use crate::access::Rule;
use crate::access::tokens::{Issued, Scope};
use crate::asked::{Asked, Reply, json, ok, replayed};
use crate::live;
use crate::problem::Answer;
use crate::route::{ACCESS, AFTER, BEFORE, CURSOR, LIMIT, PREFIX, Route};

/// A thread to make, or to find.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewThread {
    /// Its id.
    id: String,
    /// What is known of it, an object.
    #[serde(default)]
    metadata: Option<Json>,
}

/// Changes of a thread.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ThreadChange {
    /// Members to set, or to remove with null.
    metadata: Json,
}

/// Messages to add.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewMessages {
    /// In order, at most 1000.
    messages: Vec<NewMessage>,
    /// Only if this is the number of the last message.
    #[serde(default)]
    expect_seq: Option<u64>,
}

/// A message to add. Unlike a message that was added, it may not have what is not known.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewMessage {
    /// Who speaks: user, assistant, tool…
    role: String,
    /// What is said: text, or any JSON.
    content: Json,
    /// The name of who speaks.
    #[serde(default)]
    name: Option<String>,
    /// Free data.
    #[serde(default)]
    metadata: Option<Json>,
}

pub(super) fn routes() -> Vec<Route> {
    let messages = "/threads/{id}/messages";
    vec![
        Route::new(
            Method::POST,
            "/threads",
            Rule::Write,
            "Makes a thread, or answers the one that is there.",
            create,
        )
        .takes::<NewThread>()
        .example(json!({ "id": "42", "metadata": { "topic": "billing" } }))
        .answers::<Thread>(StatusCode::CREATED)
        .answers::<Thread>(StatusCode::OK),
        Route::new(Method::GET, "/threads", Rule::Read, "Lists threads.", list)
            .query(&[PREFIX, LIMIT, CURSOR])
            .lists::<Page<Thread>, Thread>(),
        Route::new(Method::GET, "/threads/{id}", Rule::Read, "A thread.", get)
            .query(&[ACCESS])
            .answers::<Thread>(StatusCode::OK),
        Route::new(
            Method::PATCH,
            "/threads/{id}",
            Rule::Write,
            "Merges into the metadata of a thread; no change of others is lost.",
            update,
        )
        .takes::<ThreadChange>()
        .example(json!({ "metadata": { "topic": "refunds" } }))
        .answers::<Thread>(StatusCode::OK),
        Route::new(
            Method::DELETE,
            "/threads/{id}",
            Rule::Orchestrate,
            "Removes a thread with its messages.",
            delete,
        )
        .answers::<Existed>(StatusCode::OK),
        Route::new(Method::POST, messages, Rule::Write, "Adds messages.", append)
            .takes::<NewMessages>()
            .example(json!({ "messages": [{ "role": "user", "content": "Where is my parcel?" }] }))
            .answers::<Appended>(StatusCode::OK),
        Route::new(
            Method::GET,
            messages,
            Rule::Read,
            "The last messages, oldest first, or those before or after a number.",
            read,
        )
        .query(&[LIMIT, BEFORE, AFTER, ACCESS])
        .lists::<EventPage<Said>, Said>()
        .live(),
        Route::new(
            Method::POST,
            "/threads/{id}/access",
            Rule::Orchestrate,
            "Makes a short-lived token for this thread alone.",
            access,
        )
        .takes::<NewAccess>()
        .example(json!({ "role": "viewer", "ttl_seconds": 900 }))
        .answers::<Issued>(StatusCode::CREATED),
    ]
}

async fn create(asked: Asked) -> Answer {
    let NewThread { id, metadata } = asked.body()?;
    let metadata = metadata.map_or_else(|| Json::parse("{}"), Ok)?;
    let mut check = Check::default();
    check.object("metadata", Some(&metadata));
    check.finish()?;
    // A thread that is there stays as it is. With a key the first answer counts, whatever is there by now.
    if asked.key().is_none()
        && let Some(thread) = asked.hold.threads().get(&id).await?
    {
        return ok(&thread);
    }
    let put = DocumentPut { expect: Expect::Absent, ..DocumentPut::json(THREAD, &id, metadata) };
    let (status, replay) = match asked.run(put).await {
        Ok(Reply { replayed, .. }) => (StatusCode::CREATED, replayed),
        // Someone else made it meanwhile.
        Err(problem) if problem.code() == "precondition_failed" => (StatusCode::OK, false),
        Err(problem) => return Err(problem),
    };
    Ok(replayed(json(status, &thread(&asked, &id).await?)?, replay))
}

async fn thread(asked: &Asked, id: &str) -> Result<Thread> {
    asked.hold.threads().get(id).await?.ok_or_else(|| Error::not_found("thread", id))
}

async fn get(asked: Asked) -> Answer {
    ok(&thread(&asked, asked.path("id")).await?)
}

async fn list(asked: Asked) -> Answer {
    let prefix = asked.query("prefix").unwrap_or_default().to_owned();
    let list =
        DocumentList { prefix, limit: asked.limit()?, cursor: asked.cursor(), ..DocumentList::new(THREAD) };
    list.check()?;
    let page = asked.hold.documents().list(&list).await?;
    ok(&Page { items: page.items.into_iter().map(Thread::from).collect(), next_cursor: page.next_cursor })
}

async fn update(asked: Asked) -> Answer {
    let ThreadChange { metadata } = asked.body()?;
    let id = asked.path("id");
    let changed = change(&asked, THREAD, id, |body| patch::merge_members(body, &metadata)).await?;
    let thread = Thread::from(document(&asked, THREAD, id).await?);
    Ok(replayed(ok(&thread)?, changed.replayed))
}

async fn delete(asked: Asked) -> Answer {
    let id = asked.path("id");
    let stream = StreamName::new(THREAD, id)?;
    let mut batch = asked.hold.batch();
    let gone = DocumentDelete { kind: THREAD.to_owned(), name: id.to_owned(), expect: Expect::Any };
    let gone = batch.add(gone);
    let page = asked.hold.streams().read(&stream, ReadFrom::Last, 1).await?;
    if page.last_seq > 0 {
        batch.add(StreamPurge { stream });
    }
    let mut replies = asked.apply(batch).await?;
    let existed = replies.take(gone)?;
    Ok(replayed(ok(&existed)?, replies.replayed))
}

async fn append(asked: Asked) -> Answer {
    let NewMessages { messages, expect_seq } = asked.body()?;
    let event = |new: NewMessage| {
        let NewMessage { role, content, name, metadata } = new;
        Message { role, content, name, metadata }.event()
    };
    let events = messages.into_iter().map(event).collect::<Result<_>>()?;
    let stream = StreamName::new(THREAD, asked.path("id"))?;
    asked.run(StreamAppend { stream, events, expect_seq }).await?.answer(StatusCode::OK)
}

async fn read(asked: Asked) -> Answer {
    let stream = StreamName::new(THREAD, asked.path("id"))?;
    if asked.is_live() {
        return live::messages(&asked, &stream).await;
    }
    super::streams::page_from(&asked, &stream, ReadFrom::Last, Said::of).await
}

async fn access(asked: Asked) -> Answer {
    let (new, id) = (asked.body::<NewAccess>()?, asked.path("id").to_owned());
    issue(&asked, new, None, Scope::Thread(id)).await
}
