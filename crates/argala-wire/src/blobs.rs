//! Blobs (protocol, routes 12 to 14).

use serde::{Deserialize, Serialize};

use crate::{BlobId, Sealed, Timestamp};

/// How long a blob stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum BlobPolicy {
    /// Until it is deleted.
    #[default]
    Keep,
    /// Until its time to live has passed.
    Expire,
    /// Until every other device of the roster has fetched it, or its time to live has passed.
    Deliver,
}

impl BlobPolicy {
    /// The name on the wire and in events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Expire => "expire",
            Self::Deliver => "deliver",
        }
    }
}

impl std::str::FromStr for BlobPolicy {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Keep, Self::Expire, Self::Deliver]
            .into_iter()
            .find(|policy| policy.as_str() == text)
            .ok_or(())
    }
}

/// The least time to live of a blob, in seconds.
pub const MIN_TTL_SECONDS: u64 = 60;
/// The greatest, in seconds: 365 days.
pub const MAX_TTL_SECONDS: u64 = 365 * 24 * 60 * 60;
/// That of a `deliver` blob that names none, in seconds: 30 days.
pub const DEFAULT_DELIVER_TTL_SECONDS: u64 = 30 * 24 * 60 * 60;

/// Answer of `PUT /graphs/{graphId}/blobs/{blobId}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BlobResponse {
    /// The blob.
    pub blob_id: BlobId,
    /// Its bytes.
    pub size: u64,
    /// SHA-256 of its bytes; base64url of it, in quotes, is the `ETag`.
    pub sha256: Sealed,
    /// How long it stays; the first upload's policy stays.
    pub policy: BlobPolicy,
    /// When it is forgotten at the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}
