//! How requests are written: segments of paths, and queries.

use std::fmt::{self, Display};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use statehold_core::query::{DocumentList, TaskList, TaskOrder};

/// What a key must not say literally within a path.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A name as a segment of a path. Dots alone would be taken for a way up.
pub(crate) fn segment(name: &str) -> String {
    match name {
        "." | ".." => name.replace('.', "%2E"),
        name => utf8_percent_encode(name, PLAIN).to_string(),
    }
}

/// The query of a request.
#[derive(Debug, Default)]
pub(crate) struct Query(Vec<String>);

impl Query {
    /// Adds a parameter, if there is something to say.
    pub(crate) fn text(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.0.push(format!("{name}={}", segment(&value.to_string())));
        }
    }

    /// Adds how much of a list is wanted.
    pub(crate) fn page(&mut self, limit: u32, cursor: Option<&String>) {
        self.text("limit", Some(limit));
        self.text("cursor", cursor);
    }

    /// The query of a list of tasks.
    pub(crate) fn tasks(list: &TaskList) -> Self {
        let mut query = Self::default();
        for status in &list.status {
            query.text("status", Some(status.as_str()));
        }
        for (key, value) in &list.labels {
            query.text("label", Some(format_args!("{key}:{value}")));
        }
        query.text("queue", list.queue.as_ref());
        query.text("kind", list.kind.as_ref());
        query.text("thread", list.thread.as_ref());
        query.text("parent", list.parent);
        query.text("root", list.root);
        query.text("owner", list.owner.as_ref());
        query.text("idempotency_key", list.idempotency_key.as_ref());
        query.text("exclusive_key", list.exclusive_key.as_ref());
        query.text("created_from", list.created_from);
        query.text("created_before", list.created_before);
        query.text("heartbeat_from", list.heartbeat_from);
        query.text("heartbeat_before", list.heartbeat_before);
        let order = match list.order {
            TaskOrder::Created => "created",
            TaskOrder::Rank => "rank",
            TaskOrder::Claim => "claim",
        };
        query.text("order", Some(order));
        query.text("descending", Some(list.descending));
        query.page(list.limit, list.cursor.as_ref());
        query
    }

    /// The query of a list of documents.
    pub(crate) fn documents(list: &DocumentList) -> Self {
        let mut query = Self::default();
        query.text("prefix", Some(&list.prefix).filter(|prefix| !prefix.is_empty()));
        for (key, value) in &list.labels {
            query.text("label", Some(format_args!("{key}:{value}")));
        }
        query.text("descending", Some(list.descending));
        query.page(list.limit, list.cursor.as_ref());
        query
    }
}

impl Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.0.is_empty() { "" } else { "?" };
        write!(f, "{mark}{}", self.0.join("&"))
    }
}
