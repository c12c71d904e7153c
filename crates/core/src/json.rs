//! User JSON: kept as it came, checked once, compared and hashed in a canonical form.
//!
//! A body is text all the way through. It is never turned into floating numbers and back, so that
//! `12345678901234567890` and `1.10` survive, and so do `[]` and `{}`.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::de::{self, DeserializeOwned};
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::{Error, Result};

/// How deeply arrays and objects may be nested.
pub const MAX_DEPTH: usize = 128;
/// The longest number, in characters, and the largest exponent.
const MAX_NUMBER: usize = 1000;
/// What `serde_json` knows text by that is JSON already.
const RAW: &str = "$serde_json::private::RawValue";

/// A JSON value, as compact text. Cheap to clone.
///
/// ```
/// use statehold_core::Json;
///
/// let body = Json::parse(r#"{ "big": 12345678901234567890, "none": [] }"#).unwrap();
/// assert_eq!(body.as_str(), r#"{"big":12345678901234567890,"none":[]}"#);
/// assert!(Json::parse(r#""\u0000""#).is_err());
/// ```
#[derive(Clone)]
pub struct Json(Arc<str>);

impl Json {
    /// Checks `text` and keeps it without insignificant white space.
    pub fn parse(text: &str) -> Result<Self> {
        let raw: &RawValue =
            serde_json::from_str(text).map_err(|e| Error::invalid("", format!("not JSON: {e}")))?;
        Self::check(raw).map_err(|problem| Error::invalid("", problem))
    }

    /// The JSON of a serializable value.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self> {
        let text = serde_json::to_string(value)
            .map_err(|e| Error::invalid("", format!("cannot be written as JSON: {e}")))?;
        Self::parse(&text)
    }

    /// For values built by this crate from parts that are valid by themselves.
    pub(crate) fn trusted<T: Serialize>(value: &T) -> Self {
        match serde_json::to_string(value) {
            Ok(text) => Self(text.into()),
            Err(_) => Self::null(),
        }
    }

    /// For stores that read back the text which [`as_str`](Self::as_str) gave them: it is not checked again.
    pub fn stored(text: &str) -> Self {
        Self(text.into())
    }

    /// `null`.
    pub fn null() -> Self {
        Self("null".into())
    }

    /// The compact text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads the value as a type.
    pub fn to<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(self.as_str()).map_err(|e| Error::invalid("", e.to_string()))
    }

    /// Whether the value is an object.
    pub fn is_object(&self) -> bool {
        self.as_str().starts_with('{')
    }

    /// The length of the compact text in bytes.
    pub fn size(&self) -> usize {
        self.as_str().len()
    }

    /// The same value with object members sorted, so that equal values have equal text.
    pub fn canonical(&self) -> String {
        Canonical::of(self.as_str())
    }

    /// The same of a value built by this crate.
    pub(crate) fn canonical_of<T: Serialize>(value: &T) -> String {
        Canonical::of(&serde_json::to_string(value).unwrap_or_default())
    }

    fn check(raw: &RawValue) -> std::result::Result<Self, String> {
        Ok(Self(compact(raw.get())?.map_or_else(|| raw.get().into(), Into::into)))
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Equal as values: the order of members and white space do not count.
impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str() || self.canonical() == other.canonical()
    }
}

impl Eq for Json {}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        // As `RawValue` does it, which could only be had by reading the text again.
        let mut raw = serializer.serialize_struct(RAW, 1)?;
        raw.serialize_field(RAW, self.as_str())?;
        raw.end()
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::check(&raw).map_err(de::Error::custom)
    }
}

/// Walks text that is known to be JSON. Answers the text without white space if it had any, or
/// what a store could not hold.
fn compact(text: &str) -> std::result::Result<Option<String>, String> {
    let bytes = text.as_bytes();
    let mut spaces = false;
    let mut depth = 0usize;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                at = string_end(text, at)?;
                continue;
            }
            b'-' | b'0'..=b'9' => {
                let end = number_end(bytes, at);
                check_number(&text[at..end])?;
                at = end;
                continue;
            }
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(format!("nested deeper than {MAX_DEPTH} levels"));
                }
            }
            b'}' | b']' => depth -= 1,
            b' ' | b'\t' | b'\n' | b'\r' => spaces = true,
            _ => {}
        }
        at += 1;
    }
    if spaces { without_spaces(text).map(Some) } else { Ok(None) }
}

fn without_spaces(text: &str) -> std::result::Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.as_bytes().get(at) {
        let end = if byte == b'"' { string_end(text, at)? } else { at + 1 };
        if !byte.is_ascii_whitespace() {
            out.push_str(&text[at..end]);
        }
        at = end;
    }
    Ok(out)
}

/// The index after the string that begins at `start`; refuses escapes that not every store can hold.
fn string_end(text: &str, start: usize) -> std::result::Result<usize, String> {
    let bytes = text.as_bytes();
    let mut at = start + 1;
    while let Some(plain) = memchr::memchr2(b'"', b'\\', &bytes[at..]) {
        at += plain;
        if bytes[at] == b'"' {
            return Ok(at + 1);
        }
        at = if bytes[at + 1] == b'u' { check_escape(text, at)? } else { at + 2 };
    }
    Err("contains a string without an end".into())
}

/// Checks the `\uXXXX` at `at` and answers the index after it, both halves of a pair included.
fn check_escape(text: &str, at: usize) -> std::result::Result<usize, String> {
    let unit = |at: usize| u16::from_str_radix(text.get(at + 2..at + 6)?, 16).ok();
    match unit(at) {
        Some(0) => Err("contains \\u0000, which not every store can hold".into()),
        Some(0xD800..=0xDBFF) => {
            let paired = text.get(at + 6..at + 8) == Some("\\u")
                && unit(at + 6).is_some_and(|low| (0xDC00..=0xDFFF).contains(&low));
            if paired { Ok(at + 12) } else { Err("contains half of a surrogate pair".into()) }
        }
        Some(0xDC00..=0xDFFF) => Err("contains half of a surrogate pair".into()),
        _ => Ok(at + 6),
    }
}

fn number_end(bytes: &[u8], start: usize) -> usize {
    let rest = &bytes[start..];
    let length = rest.iter().position(|b| !matches!(b, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9'));
    start + length.unwrap_or(rest.len())
}

fn check_number(text: &str) -> std::result::Result<(), String> {
    let exponent = text.split_once(['e', 'E']).map(|(_, exponent)| exponent.trim_start_matches(['+', '-']));
    let too_large = exponent.is_some_and(|e| e.parse::<usize>().map_or(true, |e| e > MAX_NUMBER));
    if text.len() > MAX_NUMBER || too_large {
        return Err(format!("contains a number of more than {MAX_NUMBER} digits"));
    }
    Ok(())
}

/// Copies checked, compact JSON with the members of objects sorted by key.
struct Canonical<'a> {
    text: &'a str,
    at: usize,
    /// The members of the objects that are open, by their keys and by where they are in the copy.
    members: Vec<(&'a str, Range<usize>)>,
}

impl<'a> Canonical<'a> {
    fn of(text: &'a str) -> String {
        let mut out = String::with_capacity(text.len());
        Self { text, at: 0, members: Vec::new() }.value(&mut out);
        out
    }

    fn value(&mut self, out: &mut String) {
        match self.text.as_bytes().get(self.at) {
            Some(b'{') => self.object(out),
            Some(b'[') => self.array(out),
            _ => out.push_str(self.scalar()),
        }
    }

    fn scalar(&mut self) -> &'a str {
        let start = self.at;
        let bytes = self.text.as_bytes();
        self.at = if bytes.get(start) == Some(&b'"') {
            string_end(self.text, start).unwrap_or(bytes.len())
        } else {
            let rest = &bytes[start..];
            start + rest.iter().position(|b| matches!(b, b',' | b'}' | b']')).unwrap_or(rest.len())
        };
        &self.text[start..self.at]
    }

    fn array(&mut self, out: &mut String) {
        self.at += 1;
        out.push('[');
        while !self.closes(b']') {
            if self.comma() {
                out.push(',');
            }
            self.value(out);
        }
        out.push(']');
    }

    fn object(&mut self, out: &mut String) {
        self.at += 1;
        out.push('{');
        let (first, start) = (self.members.len(), out.len());
        while !self.closes(b'}') {
            if self.comma() {
                out.push(',');
            }
            let member = out.len();
            let key = self.scalar();
            self.at += 1;
            out.push_str(key);
            out.push(':');
            self.value(out);
            self.members.push((key, member..out.len()));
        }
        let members = &mut self.members[first..];
        if !members.is_sorted_by(|(one, _), (two, _)| one < two) {
            let copied = out.split_off(start);
            let text = |member: &Range<usize>| &copied[member.start - start..member.end - start];
            // Of members with the same key, the values decide.
            members.sort_by(|(one, first), (two, second)| {
                one.cmp(two).then_with(|| text(first)[one.len()..].cmp(&text(second)[two.len()..]))
            });
            for (index, (_, member)) in members.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(text(member));
            }
        }
        self.members.truncate(first);
        out.push('}');
    }

    /// Steps over a comma; true if there was one.
    fn comma(&mut self) -> bool {
        let comma = self.text.as_bytes().get(self.at) == Some(&b',');
        self.at += usize::from(comma);
        comma
    }

    fn closes(&mut self, bracket: u8) -> bool {
        let closes = self.text.as_bytes().get(self.at).is_none_or(|&b| b == bracket);
        if closes {
            self.at += 1;
        }
        closes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_text_ignores_the_order_of_members_at_every_level() {
        let one = Json::parse(r#"{"b":[{"y":1,"x":"},{"}],"a":{}}"#);
        let two = Json::parse(r#"{ "a" : {}, "b" : [ { "x": "},{", "y": 1 } ] }"#);
        assert_eq!(one.as_ref().map(Json::canonical), Ok(r#"{"a":{},"b":[{"x":"},{","y":1}]}"#.into()));
        assert_eq!(one, two);
        let twice = Json::stored(r#"{"b":{"d":2,"c":1},"a":2,"a":1,"aa":0}"#);
        assert_eq!(twice.canonical(), r#"{"a":1,"a":2,"aa":0,"b":{"c":1,"d":2}}"#);
    }

    #[test]
    fn it_is_written_as_it_is_and_read_again() {
        let text = r#"[{"big":12345678901234567890,"text":"\"\\\u00e9"},[],1.10,null]"#;
        let json = Json::parse(text).expect("it is JSON");
        assert_eq!(serde_json::to_string(&[&json]).expect("it is written"), format!("[{text}]"));
        assert_eq!(serde_json::to_value(&json).expect("a value")[0]["text"], "\"\\\u{e9}");
        assert_eq!(serde_json::from_str::<Json>(text).expect("it is read").as_str(), text);
    }

    #[test]
    fn what_a_store_cannot_hold_is_refused() {
        for text in [r#""a\u0000""#, r#""\ud800""#, r#""\udc00x""#, "1e99999", r#"{"\u0000":1}"#] {
            assert!(Json::parse(text).is_err(), "{text}");
        }
        for text in [r#""a\\u0000""#, r#""\ud83d\ude00""#, "1e400", "-0.10", "[]", "{}"] {
            assert_eq!(Json::parse(text).map(|j| j.as_str().to_owned()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn depth_is_bounded_without_recursion() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(Json::parse(&nested(MAX_DEPTH)).is_ok());
        assert!(Json::parse(&nested(5000)).is_err());
        assert!(Json::parse(&nested(200_000)).is_err());
    }
}
