//! Names of keys and places in the index of a namespace.
//!
//! All keys of a namespace begin with the same tag in braces, so that a cluster keeps them in one slot. A row's key is
//! the tag, a small letter for its kind, and what finds it. Everything else has a capital letter. The index is one sorted
//! set whose members all have the same score, so that they are in the order of their bytes: numbers are written with
//! their highest byte first, names end with a zero byte, which no name contains.

use statehold_core::Timestamp;
use statehold_core::model::{StreamName, TaskId};

/// Part of a key, or a member of the index.
pub(crate) type Bytes = Vec<u8>;

/// The keys of a namespace.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    tag: Bytes,
}

impl Space {
    /// The keys of a namespace under a prefix.
    pub(crate) fn new(prefix: &str, namespace: &str) -> Self {
        let mut tag = format!("{{{prefix}:").into_bytes();
        for byte in namespace.bytes() {
            // A brace would end the tag early, and two namespaces could meet.
            match byte {
                b'{' | b'}' | b'%' => tag.extend(format!("%{byte:02x}").bytes()),
                _ => tag.push(byte),
            }
        }
        tag.push(b'}');
        Self { tag }
    }

    /// What all keys begin with.
    pub(crate) fn tag(&self) -> &[u8] {
        &self.tag
    }

    /// A key.
    pub(crate) fn key(&self, tail: &[u8]) -> Bytes {
        [&self.tag, tail].concat()
    }

    /// The last time and the last position, in eight bytes each; after them, what is not to be done any more.
    pub(crate) fn last(&self) -> Bytes {
        self.key(b"P")
    }

    /// A hash: what was trimmed away from categories.
    pub(crate) fn meta(&self) -> Bytes {
        self.key(b"M")
    }

    /// The index.
    pub(crate) fn index(&self) -> Bytes {
        self.key(b"I")
    }

    /// A hash: how many tasks there are by queue and status.
    pub(crate) fn counts(&self) -> Bytes {
        self.key(b"N")
    }

    /// A hash: tasks that someone is about to claim.
    pub(crate) fn reservations(&self) -> Bytes {
        self.key(b"R")
    }

    /// A hash: calls of a process that were done.
    pub(crate) fn strokes(&self, process: [u8; 8]) -> Bytes {
        [&self.tag, b"S".as_slice(), &process].concat()
    }

    /// The list of a stream's events.
    pub(crate) fn events(&self, stream: &StreamName) -> Bytes {
        [&self.tag, b"E".as_slice(), stream.as_str().as_bytes()].concat()
    }
}

/// A member of the index, or the beginning of some, while it is put together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Member(pub(crate) Bytes);

impl Member {
    /// A member that begins with a letter.
    pub(crate) fn new(letter: u8) -> Self {
        Self(vec![letter])
    }

    /// A name, which ends with a zero byte.
    pub(crate) fn name(mut self, name: &str) -> Self {
        self.0.extend(name.bytes());
        self.0.push(0);
        self
    }

    /// Bytes as they are.
    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// The id of a task.
    pub(crate) fn id(self, id: TaskId) -> Self {
        self.bytes(id.0.as_bytes())
    }

    /// A time.
    pub(crate) fn time(self, at: Timestamp) -> Self {
        // With the first bit turned over, negative numbers come first.
        self.bytes(&(at.as_micros() ^ i64::MIN).to_be_bytes())
    }

    /// A priority.
    pub(crate) fn priority(self, priority: i16) -> Self {
        self.bytes(&(priority ^ i16::MIN).to_be_bytes())
    }
}

/// A range of the index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    pub(crate) min: Bytes,
    pub(crate) max: Bytes,
}

impl Range {
    /// All members that begin with this.
    pub(crate) fn of(prefix: &Member) -> Self {
        Self { min: at(&prefix.0), max: before(&successor(&prefix.0)) }
    }

    /// Only what is after a member.
    #[must_use]
    pub(crate) fn after(self, member: &[u8]) -> Self {
        let after = [b"(", member].concat();
        Self { min: later(self.min, after), ..self }
    }

    /// Only what is at a member or after it.
    #[must_use]
    pub(crate) fn from(self, member: &[u8]) -> Self {
        Self { min: later(self.min, at(member)), ..self }
    }

    /// Only what is after everything that begins with this.
    #[must_use]
    pub(crate) fn beyond(self, prefix: &Member) -> Self {
        Self { min: later(self.min, at(&successor(&prefix.0))), ..self }
    }

    /// Only what begins with this or comes before it.
    #[must_use]
    pub(crate) fn up_to(self, prefix: &Member) -> Self {
        Self { max: before(&successor(&prefix.0)).min(self.max), ..self }
    }

    /// Only what is before a member.
    #[must_use]
    pub(crate) fn before(self, member: &[u8]) -> Self {
        Self { max: before(member).min(self.max), ..self }
    }
}

fn at(member: &[u8]) -> Bytes {
    [b"[", member].concat()
}

fn before(member: &[u8]) -> Bytes {
    [b"(", member].concat()
}

/// The later one of two beginnings.
fn later(one: Bytes, two: Bytes) -> Bytes {
    // At the same member, the one that leaves it out is later.
    let place = |bound: &Bytes| (bound.get(1..).map(<[u8]>::to_vec), bound.first() == Some(&b'('));
    if place(&one) >= place(&two) { one } else { two }
}

/// The first member after all that begin with this.
fn successor(prefix: &[u8]) -> Bytes {
    let mut next = prefix.to_vec();
    while let Some(last) = next.pop() {
        if last < u8::MAX {
            next.push(last + 1);
            break;
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_never_share_a_key() {
        let (one, two) = (Space::new("s", "a"), Space::new("s", "a}e:x"));
        assert!(!two.key(b"e").starts_with(one.tag()));
        assert_eq!(two.tag(), b"{s:a%7de:x}");
    }

    #[test]
    fn members_sort_as_what_they_stand_for() {
        let times =
            [i64::MIN, -1, 0, 1, i64::MAX].map(|at| Member::new(b'T').time(Timestamp::from_micros(at)).0);
        assert!(times.is_sorted(), "{times:?}");
        let priorities = [i16::MIN, -1, 0, 1, i16::MAX].map(|number| Member::new(b'R').priority(number).0);
        assert!(priorities.is_sorted(), "{priorities:?}");
        assert!(Member::new(b'a').name("b").0 < Member::new(b'a').name("b!").0);
    }

    #[test]
    fn the_successor_is_after_every_member_with_the_prefix() {
        assert_eq!(successor(&[b'D', 255, 255]), b"E");
        assert_eq!(successor(b"ab"), b"ac");
    }
}
