//! The names of the small universe.

use statehold_core::model::Source;

use super::ops::Src;

/// The names of documents: two of one kind, one of another.
pub(crate) fn document(n: u8) -> (&'static str, &'static str) {
    [("note", "a"), ("note", "ab"), ("plan", "a")][usize::from(n) % 3]
}

pub(crate) fn queue(n: u8) -> String {
    format!("q{}", n % 3)
}

pub(crate) fn owner(n: u8) -> String {
    format!("owner-{}", n % 3)
}

pub(crate) fn group(n: u8) -> String {
    format!("g{}", n % 2)
}

pub(crate) fn named(noun: &str, n: u8) -> String {
    format!("{noun}/{}", n % 3)
}

/// The categories that there are events in.
pub(crate) const CATEGORIES: [&str; 4] = ["room", "task", "dead", "audit"];

pub(crate) fn source(source: Src) -> Source {
    match source {
        Src::Room(n) => Source::Stream(named("room", n).parse().expect("a stream")),
        Src::Rooms => Source::Category("room".into()),
        Src::Tasks => Source::Category("task".into()),
        Src::Dead => Source::Category("dead".into()),
    }
}
