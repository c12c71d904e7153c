//! Consumer groups: shared reading of a stream or category, with redelivery.

use serde::{Deserialize, Serialize};

use super::{Event, Position, StreamName, Token};
use crate::clock::Timestamp;

/// What a group reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// One stream, in the order of `seq`.
    Stream(StreamName),
    /// All streams of a category, in the order of `position`.
    Category(String),
}

impl Source {
    /// The category that the events come from.
    pub fn category(&self) -> &str {
        match self {
            Self::Stream(name) => name.category(),
            Self::Category(category) => category,
        }
    }
}

/// An event handed to a consumer, which must acknowledge it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Delivered {
    /// The event.
    #[serde(flatten)]
    pub event: Event,
    /// 1 the first time, 2 when delivered again, and so on.
    pub delivery: u32,
    /// The proof, for ack and nack.
    pub delivery_token: Token,
}

/// A delivery that was neither acknowledged nor given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// Its stream.
    pub stream: StreamName,
    /// Its sequence number there.
    pub seq: u64,
    /// Its place in the category.
    pub position: Position,
    /// Who got it last.
    pub consumer: String,
    /// How often it was delivered.
    pub delivery: u32,
    /// When it is given to someone else.
    pub visible_at: Timestamp,
}

/// How far a group is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupInfo {
    /// Its name.
    pub group: String,
    /// What it reads.
    pub source: Source,
    /// The cursor that the next read starts after: a sequence number for a stream, a position for a
    /// category; none before the first read.
    pub cursor: Option<String>,
    /// How many deliveries are neither acknowledged nor given up.
    pub pending: u64,
    /// The first of them, at most 100, in order.
    pub oldest: Vec<Pending>,
}
