//! Graph keys: rotating to a new epoch, granting epochs to devices, fetching one's own wraps
//! (protocol, routes 7 to 9).

use serde::{Deserialize, Serialize};

use crate::{DeviceId, MemberId, Sealed, Timestamp, codec, devices::DeviceRef};

/// The most bytes a wrap may have.
pub const MAX_WRAP_BYTES: usize = 4_096;
/// The most wraps one rotate or grant may carry.
pub const MAX_WRAPS: usize = 20_000;

/// A graph key sealed for one device, as a rotate carries it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RotateWrap {
    /// Whose device it is sealed for.
    pub member_id: MemberId,
    /// The device it is sealed for.
    pub device_id: DeviceId,
    /// The sealed key; 1 to [`MAX_WRAP_BYTES`] bytes.
    pub wrap: Sealed,
}

/// Body of `POST /graphs/{graphId}/rotate`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RotateRequest {
    /// The epoch to begin: the current one plus one.
    pub epoch: u64,
    /// One wrap for each device on the roster, and for no other.
    #[serde(deserialize_with = "codec::objects")]
    pub wraps: Vec<RotateWrap>,
}

/// Answer of `POST /graphs/{graphId}/rotate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RotateResponse {
    /// The epoch that began.
    pub epoch: u64,
    /// The first seq that the epoch can carry.
    pub first_seq: u64,
    /// How many devices were given a wrap.
    pub devices: u64,
}

/// A graph key of one epoch sealed for one device, as a grant carries it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrantWrap {
    /// The key's epoch.
    pub epoch: u64,
    /// Whose device it is sealed for.
    pub member_id: MemberId,
    /// The device it is sealed for.
    pub device_id: DeviceId,
    /// The sealed key; 1 to [`MAX_WRAP_BYTES`] bytes.
    pub wrap: Sealed,
}

/// Body of `POST /graphs/{graphId}/grant`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GrantRequest {
    /// The wraps; each target (epoch, member, device) at most once.
    #[serde(deserialize_with = "codec::objects")]
    pub wraps: Vec<GrantWrap>,
}

/// Why one wrap of a grant was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum GrantReason {
    /// The device is not on the graph's roster.
    NotOnRoster,
    /// The graph has had no such epoch.
    UnknownEpoch,
    /// The granting device holds no wrap of that epoch itself.
    NotHolder,
    /// The device has another wrap of that epoch already.
    WrapExists,
}

/// One wrap of a grant that was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GrantRejection {
    /// The key's epoch.
    pub epoch: u64,
    /// Whose device it was sealed for.
    pub member_id: MemberId,
    /// The device it was sealed for.
    pub device_id: DeviceId,
    /// Why it was not taken.
    pub reason: GrantReason,
}

/// Answer of `POST /graphs/{graphId}/grant`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GrantResponse {
    /// How many wraps are in place, those that were there identically included.
    pub granted: u64,
    /// Those that are not, in the order sent.
    pub rejected: Vec<GrantRejection>,
}

/// One of the calling device's own wraps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Wrap {
    /// The key's epoch.
    pub epoch: u64,
    /// The sealed key.
    pub wrap: Sealed,
    /// The device that gave it.
    pub by: DeviceRef,
    /// When it was given.
    pub at: Timestamp,
    /// The first seq that the epoch could carry.
    pub first_seq: u64,
}

/// Answer of `GET /graphs/{graphId}/wraps`: one page, epochs ascending.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WrapsResponse {
    /// The graph's current epoch; 0 while it has no key.
    pub epoch: u64,
    /// The calling device's wraps, and no other device's.
    pub wraps: Vec<Wrap>,
    /// Where the next page begins.
    pub cursor: String,
    /// Whether there is a next page.
    pub more: bool,
}
