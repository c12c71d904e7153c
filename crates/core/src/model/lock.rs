//! Locks: advisory, with an owner, a time to live and a fencing token.

use serde::{Deserialize, Serialize};

use super::Token;
use crate::clock::Timestamp;

/// A held lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lock {
    /// What is locked.
    pub key: String,
    /// Who holds it.
    pub owner: String,
    /// The proof, for the holder's writes; left out for others.
    #[serde(default, skip_serializing_if = "Token::is_hidden")]
    pub token: Token,
    /// Since when.
    pub acquired_at: Timestamp,
    /// Until when, unless renewed.
    pub expires_at: Timestamp,
}
