//! The bounds of every input, in one place, and the checks of names. Bodies are counted where a
//! command is checked.

use crate::clock::Seconds;
use crate::error::{Error, Problem};
use crate::json::Json;

/// Keys and names, in bytes of UTF-8.
pub const NAME: usize = 256;
/// Inputs, outputs, metadata, signals and entries, in bytes.
pub const BODY: usize = 1 << 20;
/// One event.
pub const EVENT: usize = 1 << 20;
/// One document.
pub const DOCUMENT: usize = 16 << 20;
/// One batch.
pub const BATCH: usize = 16 << 20;
/// Commands in a batch.
pub const COMMANDS: usize = 1000;
/// Items of a list: a page, a claim, dependencies, events of one append.
pub const LIST: usize = 1000;
/// Labels of a task or document.
pub const LABELS: usize = 64;
/// Fences of a batch, and queues of a claim.
pub const FEW: usize = 100;
/// Signals that a task keeps.
pub const SIGNALS: usize = 100;
/// Levels of parents above a task.
pub const FAMILY_DEPTH: u16 = 64;

/// Whether `text` can be a key or a name; otherwise what is wrong with it.
pub fn name(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("must not be empty".into());
    }
    if text.len() > NAME {
        return Err(format!("is {} bytes long; at most {NAME} are allowed", text.len()));
    }
    if text.chars().any(char::is_control) {
        return Err("must not contain control characters".into());
    }
    Ok(())
}

/// Collects all that is wrong with a request, each with its path.
#[derive(Debug, Default)]
pub struct Check {
    problems: Vec<Problem>,
    oversize: Option<Error>,
    bytes: usize,
}

impl Check {
    /// Notes a problem unless `good`.
    pub fn that(&mut self, good: bool, path: &str, message: impl FnOnce() -> String) {
        if !good {
            self.problems.push(Problem { path: path.into(), message: message() });
        }
    }

    /// A key or name.
    pub fn name(&mut self, path: &str, text: &str) {
        self.bytes += text.len();
        if let Err(message) = name(text) {
            self.problems.push(Problem { path: path.into(), message });
        }
    }

    /// A key or name that may be left out.
    pub fn maybe_name(&mut self, path: &str, text: Option<&String>) {
        if let Some(text) = text {
            self.name(path, text);
        }
    }

    /// A JSON body of at most `most` bytes.
    pub fn body(&mut self, path: &str, body: Option<&Json>, most: usize) {
        self.size(path, body.map_or(0, Json::size), most);
    }

    /// Something of `size` bytes, where `most` are allowed.
    pub fn size(&mut self, path: &str, size: usize, most: usize) {
        self.bytes += size;
        if size > most {
            let message = format!("{path} is {size} bytes long; at most {most} are allowed");
            self.oversize.get_or_insert_with(|| Error::too_large(path, message));
        }
    }

    /// A list of `count` items, at least `least`, at most `most`.
    pub fn count(&mut self, path: &str, count: usize, least: usize, most: usize) {
        self.that((least..=most).contains(&count), path, || {
            format!("has {count} items; {least} to {most} are allowed")
        });
    }

    /// Labels of a task or a document.
    pub fn labels<'a>(&mut self, labels: impl ExactSizeIterator<Item = (&'a String, Option<&'a String>)>) {
        self.count("labels", labels.len(), 0, LABELS);
        for (key, value) in labels {
            self.name("labels", key);
            self.size("labels", value.map_or(0, String::len), NAME);
        }
    }

    /// A length of time: more than none, at most ten years.
    pub fn length(&mut self, path: &str, length: Option<Seconds>) {
        let Some(length) = length else { return };
        let good = length > Seconds::ZERO && length <= Seconds::MAX;
        self.that(good, path, || format!("{length} s is not between 0 and ten years"));
    }

    /// An object, or nothing.
    pub fn object(&mut self, path: &str, body: Option<&Json>) {
        self.that(body.is_none_or(Json::is_object), path, || "must be a JSON object".into());
        self.body(path, body, BODY);
    }

    /// Bytes seen so far.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// All that was found.
    pub fn finish(self) -> Result<(), Error> {
        match self.oversize {
            _ if !self.problems.is_empty() => Err(Error::problems(self.problems)),
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}
