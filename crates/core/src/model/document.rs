//! Documents: JSON or binary bodies with a revision.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::sync::Arc;

use super::Labels;
use crate::clock::Timestamp;
use crate::json::Json;

/// A document as a caller sees it: either `body` or `content` is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Document {
    /// What kind of document.
    pub kind: String,
    /// Its name within the kind.
    pub name: String,
    /// Grows with every put; after a delete the next one starts above.
    pub revision: u64,
    /// The version of the schema that the body follows.
    pub schema_version: Option<u32>,
    /// Filterable text.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, String>))]
    pub labels: Labels,
    /// A JSON body.
    #[serde(default, deserialize_with = "super::given", skip_serializing_if = "Option::is_none")]
    pub body: Option<Json>,
    /// A binary body.
    pub content: Option<Content>,
    /// When this revision was written.
    pub updated_at: Timestamp,
    /// When it goes by itself.
    pub expires_at: Option<Timestamp>,
}

/// A binary body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Content {
    /// Its media type.
    pub content_type: String,
    /// The bytes, base64 in JSON.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = Byte))]
    #[serde(serialize_with = "to_base64", deserialize_with = "from_base64")]
    pub data: Arc<[u8]>,
}

fn to_base64<S: Serializer>(data: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(data))
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<[u8]>, D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
    STANDARD.decode(text.as_bytes()).map(Into::into).map_err(|_| de::Error::custom("not base64"))
}
