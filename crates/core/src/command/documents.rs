//! Commands on documents.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::Seconds;
use crate::json::Json;
use crate::limits::{self, Check};
use crate::model::{Content, Labels};

/// What a document must be for the command to go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// Anything.
    #[default]
    Any,
    /// Not there.
    Absent,
    /// At this revision.
    Revision(u64),
}

/// Writes a document.
///
/// # Behavior
/// - An expectation that does not hold is `precondition_failed`. An expired document is not there.
/// - Body or content, labels, schema version and expiry replace what was there. `revision` grows by one; a
///   new document starts above every revision that a document of its kind had when it was deleted or
///   removed after its expiry, and above the expired one that it replaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DocumentPut {
    /// What kind.
    pub kind: String,
    /// Its name within the kind.
    pub name: String,
    /// A JSON body; either this or `content`.
    #[serde(default, deserialize_with = "crate::model::given", skip_serializing_if = "Option::is_none")]
    pub body: Option<Json>,
    /// A binary body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// What must be there.
    #[serde(default)]
    pub expect: Expect,
    /// Filterable text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, String>))]
    pub labels: Labels,
    /// The version of the schema that the body follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_version: Option<u32>,
    /// When it goes by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<Seconds>,
}

impl DocumentPut {
    /// A JSON document.
    pub fn json(kind: impl Into<String>, name: impl Into<String>, body: Json) -> Self {
        Self { kind: kind.into(), name: name.into(), body: Some(body), ..Self::default() }
    }

    /// A binary document.
    pub fn binary(kind: impl Into<String>, name: impl Into<String>, content: Content) -> Self {
        Self { kind: kind.into(), name: name.into(), content: Some(content), ..Self::default() }
    }

    pub(super) fn check(&self, check: &mut Check) {
        check_name(check, &self.kind, &self.name);
        let one = self.body.is_some() != self.content.is_some();
        check.that(one, "body", || "exactly one of body and content must be given".into());
        check.body("body", self.body.as_ref(), limits::DOCUMENT);
        if let Some(content) = &self.content {
            check.name("content.content_type", &content.content_type);
            check.size("content.data", content.data.len(), limits::DOCUMENT);
        }
        check.labels(self.labels.iter().map(|(key, value)| (key, Some(value))));
        check.length("ttl_seconds", self.ttl_seconds);
    }
}

fn check_name(check: &mut Check, kind: &str, name: &str) {
    check.name("kind", kind);
    check.name("name", name);
}

/// The reply of `document.put`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DocumentRevision {
    /// The new revision.
    pub revision: u64,
}

/// Removes a document.
///
/// # Behavior
/// - Guarded like `document.put`. Without expectation, a document that is not there is no error.
/// - A new document of this kind starts above its revision, so that a late writer never matches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DocumentDelete {
    /// What kind.
    pub kind: String,
    /// Its name within the kind.
    pub name: String,
    /// What must be there.
    #[serde(default)]
    pub expect: Expect,
}

/// The reply of `document.delete` and `entry.delete`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Existed {
    /// Whether it was there.
    pub existed: bool,
}

impl DocumentDelete {
    pub(super) fn check(&self, check: &mut Check) {
        check_name(check, &self.kind, &self.name);
    }
}
