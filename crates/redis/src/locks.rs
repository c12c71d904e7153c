//! Locks.

use statehold_core::Timestamp;
use statehold_core::row::LockRow;

use crate::rows::{Table, expiry};
use crate::space::Member;

impl Table for LockRow {
    const LETTER: u8 = b'l';

    fn find(key: &String, member: Member) -> Member {
        member.bytes(key.as_bytes())
    }

    fn places(&self) -> Vec<Member> {
        vec![expiry::<Self>(&self.key, self.forget_at)]
    }

    fn alarms(&self) -> Vec<Timestamp> {
        self.holder.iter().map(|holder| holder.expires_at).chain([self.forget_at]).collect()
    }
}
