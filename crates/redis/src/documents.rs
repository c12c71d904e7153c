//! Documents, and what new ones of a kind start above.

use statehold_core::Timestamp;
use statehold_core::model::Document;
use statehold_core::query::DocumentList;
use statehold_core::row::{DocumentKey, FloorRow};

use crate::error::Result;
use crate::lists::{Page, scan};
use crate::rows::{Table, expiry, tail};
use crate::snapshot::Scene;
use crate::space::{Member, Range};

impl Table for Document {
    const LETTER: u8 = b'd';

    fn find(key: &DocumentKey, member: Member) -> Member {
        member.name(&key.kind).bytes(key.name.as_bytes())
    }

    fn places(&self) -> Vec<Member> {
        let key = DocumentKey { kind: self.kind.clone(), name: self.name.clone() };
        self.expires_at.iter().map(|at| expiry::<Self>(&key, *at)).collect()
    }

    fn alarms(&self) -> Vec<Timestamp> {
        self.expires_at.into_iter().collect()
    }
}

impl Table for FloorRow {
    const LETTER: u8 = b'f';

    fn find(key: &String, member: Member) -> Member {
        member.bytes(key.as_bytes())
    }
}

/// The documents of a page, and one more to tell that there is a next one.
pub(crate) async fn list(
    scene: &Scene<'_>,
    list: &DocumentList,
    after: Option<String>,
    now: Timestamp,
) -> Result<Vec<Document>> {
    let kind = Member::new(Document::LETTER).name(&list.kind);
    let mut range = Range::of(&kind.bytes(list.prefix.as_bytes()));
    if let Some(name) = after {
        let end = tail::<Document>(&DocumentKey { kind: list.kind.clone(), name });
        range = if list.descending { range.before(&end) } else { range.after(&end) };
    }
    let page = Page { range, limit: list.limit as usize + 1, backwards: list.descending };
    let matches = |document: &Document| {
        document.expires_at.is_none_or(|at| at > now)
            && list.labels.iter().all(|(key, value)| document.labels.get(key) == Some(value))
    };
    scan(scene, page, matches).await
}
