//! Every ceiling in force (protocol, section 6), so that no client guesses.

use serde::{Deserialize, Serialize};

use crate::devices::Suite;

/// Ceilings on what is stored, and on the size of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Quotas {
    /// Live records of a graph; tombstones are not counted, but live records and tombstones
    /// together never exceed twice this.
    pub max_records_per_graph: u64,
    /// Bytes of ciphertext of a graph.
    pub max_ciphertext_bytes_per_graph: u64,
    /// Bytes of one blob.
    pub max_blob_bytes: u64,
    /// Bytes of a graph's blobs.
    pub max_blob_bytes_per_graph: u64,
    /// Active devices of a member.
    pub max_devices_per_member: u64,
    /// Bytes of the body of a push.
    pub max_push_bytes: u64,
    /// Bytes of one record's ciphertext.
    pub max_record_bytes: u64,
    /// Records in one push.
    pub max_records_per_push: u64,
}

const MIB: u64 = 1024 * 1024;

impl Default for Quotas {
    fn default() -> Self {
        Self {
            max_records_per_graph: 250_000,
            max_ciphertext_bytes_per_graph: 512 * MIB,
            max_blob_bytes: 25 * MIB,
            max_blob_bytes_per_graph: 2_048 * MIB,
            max_devices_per_member: 32,
            max_push_bytes: 8 * MIB,
            max_record_bytes: MIB,
            max_records_per_push: 1_000,
        }
    }
}

/// Which of a member's allowances a route draws from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Bucket {
    /// Pushing records.
    Push,
    /// Pulling, listing graphs, opening a poke stream.
    Pull,
    /// Blobs.
    Blobs,
    /// Devices, rosters, wraps, rotating and granting.
    Keys,
}

impl Bucket {
    /// All four.
    pub const ALL: [Self; 4] = [Self::Push, Self::Pull, Self::Blobs, Self::Keys];

    /// The name on the wire, in metrics and in events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Pull => "pull",
            Self::Blobs => "blobs",
            Self::Keys => "keys",
        }
    }
}

/// How often a member may call the routes of one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Rate {
    /// Requests a minute, sustained; at least 1.
    pub per_minute: u32,
    /// Requests that may come at once after a rest; at least 1.
    pub burst: u32,
}

/// The rate of each bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RateLimits {
    /// Of pushes.
    pub push: Rate,
    /// Of pulls.
    pub pull: Rate,
    /// Of blob requests.
    pub blobs: Rate,
    /// Of requests about devices and keys.
    pub keys: Rate,
}

impl RateLimits {
    /// The rate of `bucket`.
    #[must_use]
    pub const fn of(&self, bucket: Bucket) -> Rate {
        match bucket {
            Bucket::Push => self.push,
            Bucket::Pull => self.pull,
            Bucket::Blobs => self.blobs,
            Bucket::Keys => self.keys,
        }
    }
}

impl Default for RateLimits {
    fn default() -> Self {
        Self {
            push: Rate {
                per_minute: 600,
                burst: 1_200,
            },
            pull: Rate {
                per_minute: 600,
                burst: 1_200,
            },
            blobs: Rate {
                per_minute: 120,
                burst: 240,
            },
            keys: Rate {
                per_minute: 300,
                burst: 600,
            },
        }
    }
}

/// Whether records must carry a signature.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Signatures {
    /// A record without a valid signature is refused.
    #[default]
    Required,
    /// A record may come without one; a wrong one is refused all the same.
    Optional,
}

/// How much of a list one page may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Pages {
    /// The most items any `limit` may ask for.
    pub max_limit: u64,
    /// Records of a pull that names no `limit`.
    pub default_pull_limit: u64,
    /// Items of any other list that names no `limit`.
    pub default_list_limit: u64,
    /// Bytes of ciphertext at which a page of a pull ends.
    pub max_pull_bytes: u64,
    /// Records that one page of a pull holds back at the most.
    pub max_filtered: u64,
}

impl Default for Pages {
    fn default() -> Self {
        Self {
            max_limit: 1_000,
            default_pull_limit: 500,
            default_list_limit: 1_000,
            max_pull_bytes: 4 * MIB,
            max_filtered: 10_000,
        }
    }
}

/// Answer of `GET /limits`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LimitsResponse {
    /// Ceilings on what is stored and sent.
    pub quotas: Quotas,
    /// Requests a minute and burst, by bucket.
    pub rate_limits: RateLimits,
    /// Page sizes.
    pub pages: Pages,
    /// Suites that a device may register with.
    pub suites: Vec<Suite>,
    /// Whether records must be signed.
    pub signatures: Signatures,
    /// Bytes of one wrap.
    pub max_wrap_bytes: u64,
    /// Wraps in one rotate or grant.
    pub max_wraps: u64,
    /// Bytes of the body of a rotate or grant.
    pub max_keys_bytes: u64,
    /// Bytes of any other body.
    pub max_body_bytes: u64,
    /// Bytes of a device's sealed label.
    pub max_label_bytes: u64,
    /// Poke streams that one member may have open at once.
    pub max_streams_per_member: u64,
}

/// Bytes of the body of a rotate or grant.
pub const MAX_KEYS_BYTES: u64 = 16 * MIB;
/// Bytes of any body that has no ceiling of its own.
pub const MAX_BODY_BYTES: u64 = 64 * 1024;
/// The most items that a list of what is owed holds.
pub const MAX_OWED: usize = 1_000;
