//! Threads: a document of metadata and a stream of messages.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use statehold_core::command::{DocumentPut, Expect, NewEvent, StreamAppend};
use statehold_core::model::{Document, Event, StreamName};
use statehold_core::query::{ReadFrom, StreamRead};
use statehold_core::{Error, ErrorKind, Json, Result, Timestamp};

use crate::Statehold;

/// The kind of a thread's document, and the category of its messages.
pub const THREAD: &str = "thread";

/// The type of the events that are messages.
const MESSAGE: &str = "message";

/// Threads of a namespace.
#[derive(Clone, Copy, Debug)]
pub struct Threads<'a> {
    pub(crate) hold: &'a Statehold,
}

/// A conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Thread {
    /// Its id.
    pub id: String,
    /// What its users know of it, an object.
    pub metadata: Json,
    /// Grows with each change of the metadata.
    pub revision: u64,
    /// When the metadata last changed.
    pub updated_at: Timestamp,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Message {
    /// Who speaks: user, assistant, tool…
    pub role: String,
    /// What is said: text, or any JSON.
    pub content: Json,
    /// The name of who speaks, where a role has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Free data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

impl Message {
    /// A message of any content.
    pub fn new(role: &str, content: Json) -> Self {
        Self { role: role.to_owned(), content, name: None, metadata: None }
    }

    /// A message of text.
    pub fn text(role: &str, content: &str) -> Result<Self> {
        Ok(Self::new(role, Json::of(content)?))
    }

    /// The event that carries it, for a batch of one's own.
    pub fn event(&self) -> Result<NewEvent> {
        Ok(NewEvent { kind: MESSAGE.to_owned(), data: Some(Json::of(self)?) })
    }
}

/// A message as it was said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Said {
    /// Its number in the thread.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub message: Message,
}

impl Said {
    /// The message that an event is, if it is one: others may write to the stream what they like.
    pub fn of(event: Event) -> Option<Self> {
        let message = event.data.filter(|_| event.kind == MESSAGE)?.to().ok()?;
        Some(Self { seq: event.seq, at: event.at, message })
    }
}

impl Threads<'_> {
    /// A thread, made with this metadata if it is not there.
    pub async fn get_or_create(self, id: &str, metadata: &Json) -> Result<Thread> {
        loop {
            if let Some(thread) = self.get(id).await? {
                return Ok(thread);
            }
            let mut put = DocumentPut::json(THREAD, id, metadata.clone());
            put.expect = Expect::Absent;
            match self.hold.documents().put_with(put).await {
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::PreconditionFailed { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A thread.
    pub async fn get(self, id: &str) -> Result<Option<Thread>> {
        Ok(self.hold.documents().get(THREAD, id).await?.map(Thread::from))
    }

    /// Merges an object into the metadata of a thread, member by member; `null` removes one. No change of others is lost.
    pub async fn update(self, id: &str, changes: &Json) -> Result<Thread> {
        let changes: BTreeMap<String, Json> = changes.to()?;
        let merge = |body: Option<&Json>| {
            let body = body.ok_or_else(|| Error::not_found(THREAD, id))?;
            let mut members: BTreeMap<String, Json> = body.to()?;
            for (name, value) in &changes {
                if *value == Json::null() {
                    members.remove(name);
                } else {
                    members.insert(name.clone(), value.clone());
                }
            }
            Json::of(&members)
        };
        self.hold.documents().update(THREAD, id, merge).await.map(Thread::from)
    }

    /// Adds a message, and answers its number.
    pub async fn append(self, id: &str, message: &Message) -> Result<u64> {
        let (stream, events) = (StreamName::new(THREAD, id)?, vec![message.event()?]);
        Ok(self.hold.run(StreamAppend { stream, events, expect_seq: None }).await?.last_seq)
    }

    /// The last `limit` messages, oldest first.
    pub async fn messages(self, id: &str, limit: u32) -> Result<Vec<Said>> {
        let read = StreamRead { stream: StreamName::new(THREAD, id)?, from: ReadFrom::Last, limit };
        let page = self.hold.backend().stream_read(self.hold.namespace(), &read).await?;
        Ok(page.events.into_iter().filter_map(Said::of).collect())
    }
}

impl From<Document> for Thread {
    fn from(document: Document) -> Self {
        let Document { name, revision, updated_at, body, .. } = document;
        Self { id: name, metadata: body.unwrap_or_else(Json::null), revision, updated_at }
    }
}
