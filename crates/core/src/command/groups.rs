//! Commands on consumer groups.

use serde::{Deserialize, Serialize};

use crate::clock::Seconds;
use crate::limits::{self, Check};
use crate::model::{Delivered, Position, Source, Token};
use crate::query::CategoryCursor;

/// One delivery with its proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DeliveryRef {
    /// The event's position.
    pub position: Position,
    /// The proof that the delivery gave.
    pub delivery_token: Token,
}

impl From<&Delivered> for DeliveryRef {
    fn from(delivered: &Delivered) -> Self {
        Self { position: delivered.event.position.clone(), delivery_token: delivered.delivery_token }
    }
}

/// Says that deliveries are done.
///
/// # Behavior
/// - A delivery that was acknowledged, given up, delivered again or sought away is `fenced`; one whose
///   visibility ran out but that nobody else got is not.
/// - The events are not delivered again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GroupAck {
    /// Which group.
    pub group: String,
    /// What it reads.
    pub source: Source,
    /// Which deliveries.
    pub deliveries: Vec<DeliveryRef>,
}

/// Gives deliveries back.
///
/// # Behavior
/// - Guarded like `group.ack`.
/// - The events are visible again after `delay_seconds`, at once if left out; the token is spent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GroupNack {
    /// Which group.
    pub group: String,
    /// What it reads.
    pub source: Source,
    /// Which deliveries.
    pub deliveries: Vec<DeliveryRef>,
    /// How long they stay invisible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_seconds: Option<Seconds>,
}

/// Moves a group's cursor.
///
/// # Behavior
/// - The next read starts there. All deliveries that are still out are forgotten; their tokens are spent.
/// - The group need not exist before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GroupSeek {
    /// Which group.
    pub group: String,
    /// What it reads.
    pub source: Source,
    /// Where to.
    pub to: SeekTo,
}

/// Where a group goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SeekTo {
    /// At the oldest event that is there.
    Oldest,
    /// After the newest event that is there.
    Latest,
    /// After this cursor: a sequence number for a stream, a position for a category.
    After(String),
}

/// Deliveries and where they belong; shared by ack and nack.
#[derive(Clone, Copy, Debug)]
pub struct Ack<'a> {
    /// Which group.
    pub group: &'a str,
    /// What it reads.
    pub source: &'a Source,
    /// Which deliveries.
    pub deliveries: &'a [DeliveryRef],
}

impl Ack<'_> {
    fn check(self, check: &mut Check) {
        check_group(check, self.group, self.source);
        check.count("deliveries", self.deliveries.len(), 1, limits::LIST);
        let mut seen = std::collections::HashSet::new();
        let repeated = self.deliveries.iter().any(|delivery| !seen.insert(&delivery.position));
        check.that(!repeated, "deliveries", || "names a position twice".into());
    }
}

/// Checks the name of a group and its source.
pub(crate) fn check_group(check: &mut Check, group: &str, source: &Source) {
    check.name("group", group);
    check.that(group.len() <= limits::NAME - 8, "group", || {
        format!("is longer than {} bytes", limits::NAME - 8)
    });
    if let Source::Category(category) = source {
        check.name("source.category", category);
        check.that(!category.contains('/'), "source.category", || "must not contain a slash".into());
    }
}

impl GroupAck {
    /// The deliveries that it is about.
    pub fn deliveries(&self) -> Ack<'_> {
        Ack { group: &self.group, source: &self.source, deliveries: &self.deliveries }
    }

    pub(super) fn check(&self, check: &mut Check) {
        self.deliveries().check(check);
    }
}

impl GroupNack {
    /// The deliveries that it is about.
    pub fn deliveries(&self) -> Ack<'_> {
        Ack { group: &self.group, source: &self.source, deliveries: &self.deliveries }
    }

    pub(super) fn check(&self, check: &mut Check) {
        self.deliveries().check(check);
        check.length("delay_seconds", self.delay_seconds.filter(|delay| *delay > Seconds::ZERO));
    }
}

impl GroupSeek {
    pub(super) fn check(&self, check: &mut Check) {
        check_group(check, &self.group, &self.source);
        let SeekTo::After(cursor) = &self.to else { return };
        match &self.source {
            Source::Stream(_) => {
                check.that(cursor.parse::<u64>().is_ok(), "to.after", || "must be a sequence number".into());
            }
            Source::Category(_) => {
                let position = CategoryCursor::from(cursor.clone()).position;
                check.that(position.is_plausible(), "to.after", || "is not a cursor of a category".into());
            }
        }
    }
}
