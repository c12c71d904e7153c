//! Patches of JSON: merge patches (RFC 7396) and JSON patches (RFC 6902). What a patch does not touch stays as it came,
//! numbers included, so bodies are not turned into floating numbers and back.

use std::collections::BTreeMap;

use serde::Deserialize;
use statehold::{Error, Json, Result};

type Members = BTreeMap<String, Json>;

fn members(json: &Json) -> Option<Members> {
    if json.is_object() { json.to().ok() } else { None }
}

/// Merges a patch into a body, at every level; null removes a member.
pub(super) fn merge(body: Option<&Json>, patch: &Json) -> Result<Json> {
    let Some(changes) = members(patch) else { return Ok(patch.clone()) };
    let mut merged = body.and_then(members).unwrap_or_default();
    for (name, change) in changes {
        if change == Json::null() {
            merged.remove(&name);
        } else {
            let value = merge(merged.get(&name), &change)?;
            merged.insert(name, value);
        }
    }
    Json::of(&merged)
}

/// Merges the members of an object into a body, at the first level only; null removes one.
pub(super) fn merge_members(body: &Json, changes: &Json) -> Result<Json> {
    let changes = members(changes).ok_or_else(|| Error::invalid("metadata", "must be a JSON object"))?;
    let mut merged = members(body).unwrap_or_default();
    for (name, change) in changes {
        if change == Json::null() {
            merged.remove(&name);
        } else {
            merged.insert(name, change);
        }
    }
    Json::of(&merged)
}

/// One step of a JSON patch.
#[derive(Debug, Deserialize)]
struct Step {
    op: String,
    path: String,
    #[serde(default)]
    from: Option<String>,
    #[serde(default, deserialize_with = "given")]
    value: Option<Json>,
}

/// A value that is there and null is a value.
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

/// Applies a JSON patch, all of it or nothing.
pub(super) fn apply(body: &Json, patch: &Json) -> Result<Json> {
    let steps: Vec<Step> = patch.to()?;
    let mut body = body.clone();
    for (index, step) in steps.iter().enumerate() {
        body = step.apply(&body).map_err(|error| error.under(&format!("[{index}]")))?;
    }
    Ok(body)
}

impl Step {
    fn apply(&self, body: &Json) -> Result<Json> {
        let path = pointer(&self.path)?;
        match self.op.as_str() {
            "add" => put(body, &path, self.value()?, true),
            "replace" => put(body, &path, self.value()?, false),
            "remove" => Ok(remove(body, &path)?.0),
            "copy" => put(body, &path, &get(body, &pointer(self.from()?)?)?, true),
            "move" => {
                let (body, value) = remove(body, &pointer(self.from()?)?)?;
                put(&body, &path, &value, true)
            }
            "test" if get(body, &path)? == *self.value()? => Ok(body.clone()),
            "test" => {
                Err(Error::conflict(&self.path, format!("what is at `{}` is something else", self.path))
                    .hint("read the document again and make the patch anew"))
            }
            op => Err(Error::invalid(
                "op",
                format!("`{op}` is not one of add, remove, replace, move, copy, test"),
            )),
        }
    }

    fn value(&self) -> Result<&Json> {
        self.value.as_ref().ok_or_else(|| Error::invalid("value", "is missing"))
    }

    fn from(&self) -> Result<&str> {
        self.from.as_deref().ok_or_else(|| Error::invalid("from", "is missing"))
    }
}

fn pointer(text: &str) -> Result<Vec<String>> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let rest = text.strip_prefix('/').ok_or_else(|| Error::invalid("path", "must begin with a slash"))?;
    Ok(rest.split('/').map(|part| part.replace("~1", "/").replace("~0", "~")).collect())
}

fn nothing_at(part: &str) -> Error {
    Error::conflict(part, format!("there is no `{part}` to be changed"))
        .hint("read the document again and make the patch anew")
}

/// A level of a body: the parts that a pointer can go into.
enum Level {
    Object(Members),
    Array(Vec<Json>),
}

fn open(body: &Json, part: &str) -> Result<Level> {
    match body.as_str().as_bytes().first() {
        Some(b'{') => body.to().map(Level::Object),
        Some(b'[') => body.to().map(Level::Array),
        _ => Err(nothing_at(part)),
    }
}

impl Level {
    fn close(&self) -> Result<Json> {
        match self {
            Self::Object(members) => Json::of(members),
            Self::Array(items) => Json::of(items),
        }
    }

    fn get(&self, part: &str) -> Result<&Json> {
        let found = match self {
            Self::Object(members) => members.get(part),
            Self::Array(items) => index(part).and_then(|index| items.get(index)),
        };
        found.ok_or_else(|| nothing_at(part))
    }

    fn set(&mut self, part: &str, value: Json) -> Result<()> {
        match self {
            Self::Object(members) => drop(members.insert(part.to_owned(), value)),
            Self::Array(items) => {
                let place = index(part).and_then(|index| items.get_mut(index));
                *place.ok_or_else(|| nothing_at(part))? = value;
            }
        }
        Ok(())
    }

    fn insert(&mut self, part: &str, value: Json) -> Result<()> {
        match self {
            Self::Object(_) => return self.set(part, value),
            Self::Array(items) if part == "-" => items.push(value),
            Self::Array(items) => {
                let index = index(part).filter(|index| *index <= items.len());
                items.insert(index.ok_or_else(|| nothing_at(part))?, value);
            }
        }
        Ok(())
    }

    fn remove(&mut self, part: &str) -> Result<Json> {
        match self {
            Self::Object(members) => members.remove(part).ok_or_else(|| nothing_at(part)),
            Self::Array(items) => {
                let index = index(part).filter(|index| *index < items.len());
                Ok(items.remove(index.ok_or_else(|| nothing_at(part))?))
            }
        }
    }
}

/// A place in an array: digits without a leading zero.
fn index(part: &str) -> Option<usize> {
    let plain = part == "0" || !part.starts_with(['0', '+']);
    part.parse().ok().filter(|_| plain)
}

fn get(body: &Json, path: &[String]) -> Result<Json> {
    let Some((part, rest)) = path.split_first() else { return Ok(body.clone()) };
    get(open(body, part)?.get(part)?, rest)
}

/// Puts a value at a path: as a new item or member with `add`, else in place of one that is there.
fn put(body: &Json, path: &[String], value: &Json, add: bool) -> Result<Json> {
    let Some((part, rest)) = path.split_first() else { return Ok(value.clone()) };
    let mut level = open(body, part)?;
    if rest.is_empty() && add {
        level.insert(part, value.clone())?;
    } else {
        let inner = put(level.get(part)?, rest, value, add)?;
        level.set(part, inner)?;
    }
    level.close()
}

/// The body without what is at a path, and that.
fn remove(body: &Json, path: &[String]) -> Result<(Json, Json)> {
    let Some((part, rest)) = path.split_first() else { return Ok((Json::null(), body.clone())) };
    let mut level = open(body, part)?;
    let removed = if rest.is_empty() {
        level.remove(part)?
    } else {
        let (inner, removed) = remove(level.get(part)?, rest)?;
        level.set(part, inner)?;
        removed
    };
    Ok((level.close()?, removed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text).expect("good")
    }

    #[test]
    fn a_merge_patch_goes_into_every_level_and_keeps_numbers() {
        let body = json(r#"{"a":{"b":1.10,"c":2},"n":12345678901234567890,"x":[1]}"#);
        let merged =
            merge(Some(&body), &json(r#"{"a":{"c":null,"d":{"e":null,"f":1}},"x":{"y":1}}"#)).expect("good");
        assert_eq!(merged.as_str(), r#"{"a":{"b":1.10,"d":{"f":1}},"n":12345678901234567890,"x":{"y":1}}"#);
        assert_eq!(merge(Some(&body), &json("[1]")).expect("good").as_str(), "[1]");
    }

    #[test]
    fn a_json_patch_does_each_step_in_order() {
        let body = json(r#"{"a":[1,2,3],"b":{"c/d":1.50}}"#);
        let patch = json(
            r#"[{"op":"test","path":"/a/0","value":1},{"op":"add","path":"/a/-","value":4},
                {"op":"remove","path":"/a/0"},{"op":"move","from":"/b/c~1d","path":"/e"},
                {"op":"copy","from":"/a","path":"/f"},{"op":"replace","path":"/a","value":null},
                {"op":"add","path":"/f/1","value":9}]"#,
        );
        assert_eq!(
            apply(&body, &patch).expect("good").as_str(),
            r#"{"a":null,"b":{},"e":1.50,"f":[2,9,3,4]}"#
        );
    }

    #[test]
    fn a_json_patch_that_does_not_fit_changes_nothing() {
        let body = json(r#"{"a":[1]}"#);
        for (patch, code) in [
            (r#"[{"op":"test","path":"/a/0","value":2}]"#, "conflict"),
            (r#"[{"op":"replace","path":"/b","value":2}]"#, "conflict"),
            (r#"[{"op":"remove","path":"/a/1"}]"#, "conflict"),
            (r#"[{"op":"add","path":"/a/01","value":1}]"#, "conflict"),
            (r#"[{"op":"add","path":"a","value":1}]"#, "invalid"),
            (r#"[{"op":"add","path":"/a"}]"#, "invalid"),
            (r#"[{"op":"grow","path":"/a"}]"#, "invalid"),
            ("{}", "invalid"),
        ] {
            assert_eq!(apply(&body, &json(patch)).expect_err("refused").code(), code, "{patch}");
        }
    }
}
