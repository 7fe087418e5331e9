//! Records: pushing and pulling (protocol, routes 10 and 11).

use serde::{Deserialize, Serialize};

use crate::{RecordId, Sealed, Timestamp, codec, devices::DeviceRef};

/// One record of a push.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PushRecord {
    /// The item; a later push to the same id replaces it.
    pub id: RecordId,
    /// The epoch whose key sealed it.
    pub epoch: u64,
    /// The sealed item; empty only where `deleted`.
    pub ciphertext: Sealed,
    /// The pushing device's signature over [`crate::signing::record`]; 64 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sig: Option<Sealed>,
    /// Whether this is a tombstone.
    #[serde(
        default,
        deserialize_with = "codec::or_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub deleted: bool,
    /// The seq that the record must have now; 0: there must be none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<u64>,
}

/// Body of `POST /graphs/{graphId}/push`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PushRequest {
    /// The records, each id at most once.
    #[serde(deserialize_with = "codec::objects")]
    pub records: Vec<PushRecord>,
    /// The head that the graph must have now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_head: Option<u64>,
    /// Whether all records are to be taken, or none.
    #[serde(
        default,
        deserialize_with = "codec::or_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub atomic: bool,
}

/// Why one record of a push was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum PushReason {
    /// The ciphertext is larger than the quota allows.
    RecordTooLarge {
        /// Bytes of one ciphertext.
        limit: u64,
    },
    /// Sealed under an epoch that has passed.
    StaleEpoch {
        /// The current epoch.
        epoch: u64,
    },
    /// Sealed under an epoch that has not begun.
    UnknownEpoch {
        /// The current epoch.
        epoch: u64,
    },
    /// The device holds no wrap of the epoch.
    NotHolder,
    /// Signatures are required and there is none.
    SignatureMissing,
    /// The signature is not the device's over this record.
    SignatureInvalid,
    /// The record does not have the seq that `expect` names.
    Conflict {
        /// The seq that it has; 0 where there is no such record.
        seq: u64,
    },
    /// The graph has as many records as it may have.
    QuotaRecords {
        /// Live records of a graph.
        limit: u64,
    },
    /// The graph has as much ciphertext as it may have.
    QuotaBytes {
        /// Bytes of ciphertext of a graph.
        limit: u64,
    },
}

impl PushReason {
    /// The name on the wire and in metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::RecordTooLarge { .. } => "record_too_large",
            Self::StaleEpoch { .. } => "stale_epoch",
            Self::UnknownEpoch { .. } => "unknown_epoch",
            Self::NotHolder => "not_holder",
            Self::SignatureMissing => "signature_missing",
            Self::SignatureInvalid => "signature_invalid",
            Self::Conflict { .. } => "conflict",
            Self::QuotaRecords { .. } => "quota_records",
            Self::QuotaBytes { .. } => "quota_bytes",
        }
    }
}

/// What became of one record of a push.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum PushResult {
    /// It was not taken.
    Rejected {
        /// The record.
        id: RecordId,
        /// Why.
        #[serde(flatten)]
        reason: PushReason,
    },
    /// It is stored.
    Accepted {
        /// The record.
        id: RecordId,
        /// The seq that the graph gave it.
        seq: u64,
    },
    /// It would have been taken, had its neighbours in an atomic push been acceptable too.
    Acceptable {
        /// The record.
        id: RecordId,
    },
}

/// Answer of `POST /graphs/{graphId}/push`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PushResponse {
    /// The graph's newest seq.
    pub head: u64,
    /// How many records are stored.
    pub accepted: u64,
    /// How many are not.
    pub rejected: u64,
    /// What became of each, in the order sent.
    pub results: Vec<PushResult>,
}

/// One record of a pull.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PulledRecord {
    /// The item.
    pub id: RecordId,
    /// The seq of this, its newest version.
    pub seq: u64,
    /// The epoch whose key sealed it.
    pub epoch: u64,
    /// The device that pushed it, as its credential said.
    pub by: DeviceRef,
    /// When the relay took it.
    pub at: Timestamp,
    /// The sealed item.
    pub ciphertext: Sealed,
    /// The pushing device's signature, where it sent one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sig: Option<Sealed>,
    /// Whether this is a tombstone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

/// Answer of `GET /graphs/{graphId}/pull`: one page, seqs ascending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PullResponse {
    /// The page's records.
    pub records: Vec<PulledRecord>,
    /// Where the next page begins; good until the graph's tombstones are swept past it.
    pub cursor: String,
    /// Whether there is a next page.
    pub more: bool,
    /// The graph's newest seq.
    pub head: u64,
    /// The graph's current epoch.
    pub epoch: u64,
    /// Records of this page held back, the device having no wrap of their epoch.
    pub filtered: u64,
    /// Whether a holder of the current epoch is known to be off the roster.
    pub rotation_owed: bool,
}

/// Why a pull must start over without a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum CursorReason {
    /// It is not a cursor that a relay gave out.
    Malformed,
    /// It belongs to another list.
    Foreign,
    /// It points past the newest seq, or into a time that was lost.
    Ahead,
    /// Tombstones past it have been swept.
    Expired,
}
