//! Consumer groups and their deliveries.

use statehold_core::Timestamp;
use statehold_core::model::{GroupInfo, Pending, Source};
use statehold_core::plan::DeliverySet;
use statehold_core::row::{DeliveryKey, DeliveryRow, GroupKey, GroupRow};

use crate::connection::{RowKey, read_bytes, read_found};
use crate::error::{Result, odd};
use crate::rows::{Table, read, tail};
use crate::snapshot::Scene;
use crate::space::{Member, Range};

fn of_group(key: &GroupKey, member: Member) -> Member {
    let source = match &key.source {
        Source::Stream(stream) => format!("stream:{stream}"),
        Source::Category(category) => format!("category:{category}"),
    };
    member.name(&key.group).name(&source)
}

impl Table for GroupRow {
    const LETTER: u8 = b'g';

    fn find(key: &GroupKey, member: Member) -> Member {
        of_group(key, member)
    }
}

impl Table for DeliveryRow {
    const LETTER: u8 = b'y';

    fn find(key: &DeliveryKey, member: Member) -> Member {
        of_group(&key.group, member).bytes(key.position.0.as_bytes())
    }

    fn places(&self) -> Vec<Member> {
        vec![visible(&self.key.group).time(self.visible_at).bytes(self.key.position.0.as_bytes())]
    }

    fn alarms(&self) -> Vec<Timestamp> {
        vec![self.visible_at]
    }
}

/// The deliveries of a group, by position.
pub(crate) fn all(group: &GroupKey) -> Range {
    Range::of(&of_group(group, Member::new(DeliveryRow::LETTER)))
}

/// The deliveries of a group, by the time that they are visible.
pub(crate) fn visible(group: &GroupKey) -> Member {
    of_group(group, Member::new(b'V'))
}

/// Where the deliveries of a set are found.
pub(crate) fn places(set: &DeliverySet, now: Timestamp) -> (Range, RowKey) {
    let prefix = visible(set.group());
    // The time stands between what names the group and the position.
    let last = prefix.0.len();
    let rest = i64::try_from(last + 9).unwrap_or(i64::MAX);
    let row = RowKey::Of { letter: "y", first: 2, last, rest };
    let all = Range::of(&prefix);
    let at = prefix.time(now);
    match set {
        DeliverySet::Visible(_) => (all.up_to(&at), row),
        DeliverySet::Hidden(_) | DeliverySet::Read { .. } => (all.beyond(&at), row),
    }
}

/// How far a group is.
pub(crate) async fn info(scene: &Scene<'_>, key: &GroupKey) -> Result<Option<GroupInfo>> {
    let (db, space, range) = (scene.db, scene.space, all(key));
    let mut count = redis::cmd("ZLEXCOUNT");
    count.arg(space.index()).arg(&range.min).arg(&range.max);
    let mut get = redis::cmd("GET");
    get.arg(space.key(&tail::<GroupRow>(key)));
    let calls = [get, count, db.range(space, &range, 100, RowKey::OWN)];
    let [row, count, found] =
        <[_; 3]>::try_from(db.call_all(&calls).await?).map_err(|_| odd("three answers"))?;
    let Some(row) = read_bytes(row)?.map(|row| read::<GroupRow>(&row)).transpose()? else { return Ok(None) };
    let pending = redis::from_redis_value(count).map_err(|_| odd("a count"))?;
    let mut oldest = Vec::new();
    for stored in read_found(found)?.rows.into_iter().flatten() {
        let row: DeliveryRow = read(&stored)?;
        oldest.push(Pending {
            stream: row.stream,
            seq: row.seq,
            position: row.key.position,
            consumer: row.consumer,
            delivery: row.delivery,
            visible_at: row.visible_at,
        });
    }
    let cursor = row.cursor.as_ref().map(ToString::to_string);
    Ok(Some(GroupInfo { group: key.group.clone(), source: key.source.clone(), cursor, pending, oldest }))
}
