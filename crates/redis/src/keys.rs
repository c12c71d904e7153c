//! Stored answers of batches with a key.

use statehold_core::Timestamp;
use statehold_core::row::{AnswerKey, AnswerRow};

use crate::rows::{Table, expiry};
use crate::space::Member;

impl Table for AnswerRow {
    const LETTER: u8 = b'a';

    fn find(key: &AnswerKey, member: Member) -> Member {
        member.name(&key.actor).bytes(key.key.as_bytes())
    }

    fn places(&self) -> Vec<Member> {
        vec![expiry::<Self>(&self.key, self.expires_at)]
    }

    fn alarms(&self) -> Vec<Timestamp> {
        vec![self.expires_at]
    }
}
