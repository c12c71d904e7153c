//! A namespace as records, in an order in which they can be loaded. Ids, tokens, revisions,
//! sequences and positions are kept.

use serde::{Deserialize, Serialize};

use crate::model::{Document, Entry, Event};
use crate::row::{
    AnswerRow, ChoreRow, DeliveryRow, ExclusiveRow, FloorRow, GroupRow, LockRow, PollerRow, QueueRow,
    SignalsRow, StreamRow, TaskRow, Trims,
};

/// One record of a dump: a row as stored, an event, or what was trimmed away from a category. One line of JSON
/// each, `{"record": "task", "data": {…}}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", content = "data", rename_all = "snake_case")]
#[allow(missing_docs, reason = "each variant is the row of its name")]
pub enum Record {
    Queue(QueueRow),
    Poller(PollerRow),
    Task(Box<TaskRow>),
    Signals(SignalsRow),
    Exclusive(ExclusiveRow),
    Stream(StreamRow),
    Event(Event),
    Category(CategoryMark),
    Group(GroupRow),
    Delivery(DeliveryRow),
    Document(Document),
    Floor(FloorRow),
    Entry(Entry),
    Lock(LockRow),
    Answer(AnswerRow),
    Chore(ChoreRow),
}

/// What was trimmed away from a category.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CategoryMark {
    /// Which category.
    pub category: String,
    /// What went.
    pub trims: Trims,
}
