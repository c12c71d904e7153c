//! Entries: values with a time to live.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::json::Json;

/// A value that goes by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Entry {
    /// Its key.
    pub key: String,
    /// The value.
    pub value: Json,
    /// When it was set; between two stores the newer one wins.
    pub set_at: Timestamp,
    /// When it goes.
    pub expires_at: Timestamp,
}
