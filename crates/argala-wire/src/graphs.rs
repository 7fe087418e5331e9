//! What a member is told of graphs (protocol, routes 4 and 5).

use serde::{Deserialize, Serialize};

use crate::{DeviceId, GraphId, MemberId, devices::DeviceRef, limits::Quotas};

/// One graph in the list of a member's graphs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GraphSummary {
    /// The graph, as the caller addresses it.
    pub graph_id: GraphId,
    /// Its current epoch.
    pub epoch: u64,
    /// Its newest seq.
    pub head: u64,
    /// Whether a holder of the current epoch is known to be off the roster.
    pub rotation_owed: bool,
    /// Whether the calling device has no wrap of the current epoch.
    pub behind: bool,
}

/// Answer of `GET /graphs`: one page.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GraphsResponse {
    /// The page's graphs.
    pub graphs: Vec<GraphSummary>,
    /// Where the next page begins.
    pub cursor: String,
    /// Whether there is a next page.
    pub more: bool,
}

/// Why a holder of the current epoch must be rotated out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RotationReason {
    /// The device was revoked.
    DeviceRevoked,
    /// The directory no longer counts the member among the graph's.
    MemberRemoved,
    /// The directory no longer counts the member as active.
    MemberInactive,
}

/// A holder of the current epoch that is off the roster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct OwedRotation {
    /// Whose device it is.
    pub member_id: MemberId,
    /// The device.
    pub device_id: DeviceId,
    /// Why it is off the roster.
    pub reason: RotationReason,
}

/// Answer of `GET /graphs/{graphId}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GraphResponse {
    /// The graph, as the caller addresses it.
    pub graph_id: GraphId,
    /// Its current epoch; 0 while it has no key.
    pub epoch: u64,
    /// Its newest seq; 0 while it has none.
    pub head: u64,
    /// Records that are not tombstones.
    pub records: u64,
    /// Bytes of the ciphertext of every record.
    pub ciphertext_bytes: u64,
    /// Bytes of every blob, uploads in progress included.
    pub blob_bytes: u64,
    /// The ceilings in force.
    pub quotas: Quotas,
    /// Whether a holder of the current epoch is off the roster, as of this request.
    pub rotation_owed: bool,
    /// Those holders; at most 1,000 of them.
    pub rotation_reasons: Vec<OwedRotation>,
    /// Devices on the roster without a wrap of the current epoch; at most 1,000 of them.
    pub grants_owed: Vec<DeviceRef>,
}
