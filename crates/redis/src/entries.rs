//! Entries.

use statehold_core::Timestamp;
use statehold_core::model::Entry;

use crate::rows::{Table, expiry};
use crate::space::Member;

impl Table for Entry {
    const LETTER: u8 = b'e';

    fn find(key: &String, member: Member) -> Member {
        member.bytes(key.as_bytes())
    }

    fn places(&self) -> Vec<Member> {
        vec![expiry::<Self>(&self.key, self.expires_at)]
    }

    fn alarms(&self) -> Vec<Timestamp> {
        vec![self.expires_at]
    }

    fn gone_at(&self) -> Option<Timestamp> {
        Some(self.expires_at)
    }
}
