//! A namespace as records, in an order in which they can be loaded. Ids, tokens, revisions,
//! sequences and positions are kept.

use serde::{Deserialize, Serialize};

use crate::model::{Document, Entry, Event, Position};
use crate::row::{
    AnswerRow, ChoreRow, DeliveryRow, ExclusiveRow, FloorRow, GroupRow, LockRow, QueueRow, SignalsRow,
    StreamRow, TaskRow,
};

/// One record of a dump: a row as stored, an event, or how far a category was trimmed. One line of JSON
/// each, `{"record": "task", "data": {…}}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", content = "data", rename_all = "snake_case")]
#[allow(missing_docs, reason = "each variant is the row of its name")]
pub enum Record {
    Queue(QueueRow),
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

/// How far the events of a category were trimmed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CategoryMark {
    /// Which category.
    pub category: String,
    /// The highest position that was removed.
    pub trimmed: Position,
    /// How often something was removed.
    pub trims: u64,
}
