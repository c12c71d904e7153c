//! Consumer groups: shared reading of a stream or category, with redelivery.

use serde::{Deserialize, Serialize};

use super::{Event, Position, StreamName, Token};
use crate::clock::Timestamp;
use crate::json::Json;

/// What a group reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(from = "DeliveredWire")]
pub struct Delivered {
    /// The event.
    #[serde(flatten)]
    pub event: Event,
    /// 1 the first time, 2 when delivered again, and so on.
    pub delivery: u32,
    /// The proof, for ack and nack.
    pub delivery_token: Token,
}

/// How [`Delivered`] is read. A flattened event would have to be buffered, and lose numbers.
#[derive(Deserialize)]
struct DeliveredWire {
    stream: StreamName,
    seq: u64,
    position: Position,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, deserialize_with = "super::given")]
    data: Option<Json>,
    at: Timestamp,
    actor: Option<String>,
    delivery: u32,
    delivery_token: Token,
}

impl From<DeliveredWire> for Delivered {
    fn from(wire: DeliveredWire) -> Self {
        let DeliveredWire { stream, seq, position, kind, data, at, actor, delivery, delivery_token } = wire;
        Self { event: Event { stream, seq, position, kind, data, at, actor }, delivery, delivery_token }
    }
}

/// A delivery that was neither acknowledged nor given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivered_event_keeps_its_data() {
        for data in ["", r#""data":12345678901234567890.10,"#, r#""data":null,"#] {
            let text = format!(
                r#"{{"stream":"s/1","seq":1,"position":"00","type":"t",{data}"at":"2026-01-01T00:00:00.000000Z","actor":null,"delivery":1,"delivery_token":7}}"#
            );
            let read: Result<Delivered, _> = serde_json::from_str(&text);
            assert_eq!(read.and_then(|delivered| serde_json::to_string(&delivered)).ok(), Some(text));
        }
    }
}
