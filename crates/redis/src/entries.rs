//! Entries. They are written and read so often that they are not stored as JSON: times and the length of the key in a line, the
//! key, and the value as it came.

use std::io::Write as _;

use statehold_core::model::Entry;
use statehold_core::{Error, Json, Timestamp};

use crate::error::Result;
use crate::rows::{Table, expiry};
use crate::space::{Bytes, Member};

impl Table for Entry {
    const LETTER: u8 = b'e';

    fn find(key: &String, member: Member) -> Member {
        member.bytes(key.as_bytes())
    }

    fn places(&self) -> Vec<Member> {
        vec![expiry::<Self>(&self.key, self.expires_at)]
    }

    fn write(&self, stored: &mut Bytes) -> Result<()> {
        let (set_at, expires_at) = (self.set_at.as_micros(), self.expires_at.as_micros());
        let (key, value) = (&self.key, self.value.as_str());
        // Writing to memory does not fail.
        let _ = write!(stored, "{set_at} {expires_at} {}\n{key}{value}", key.len());
        Ok(())
    }

    fn read(body: &[u8]) -> Result<Self> {
        let entry = std::str::from_utf8(body).ok().and_then(parse);
        entry.ok_or_else(|| Error::corrupt("an entry cannot be read").into())
    }

    fn alarms(&self) -> Vec<Timestamp> {
        vec![self.expires_at]
    }

    fn gone_at(&self) -> Option<Timestamp> {
        Some(self.expires_at)
    }
}

fn parse(text: &str) -> Option<Entry> {
    let (line, rest) = text.split_once('\n')?;
    let mut words = line.split(' ');
    let (set_at, expires_at) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let (key, value) = rest.split_at_checked(words.next()?.parse().ok()?)?;
    Some(Entry {
        key: key.to_owned(),
        value: Json::stored(value),
        set_at: Timestamp::from_micros(set_at),
        expires_at: Timestamp::from_micros(expires_at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let entry = Entry {
            key: "a b\n1 é".into(),
            value: Json::parse(r#"{"n":1.10,"e":[],"k":"\n"}"#).expect("JSON"),
            set_at: Timestamp::from_micros(-7),
            expires_at: Timestamp::from_micros(1_700_000_000_000_009),
        };
        let mut stored = Bytes::new();
        entry.write(&mut stored).expect("it is written");
        assert_eq!(Entry::read(&stored).expect("it is read"), entry);
        assert!(Entry::read(&stored[..9]).is_err());
    }
}
