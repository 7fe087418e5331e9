//! Devices: how one publishes its keys, and how others see it (protocol, routes 1 to 3 and 6).

use serde::{Deserialize, Serialize};

use crate::{DeviceId, GraphId, MemberId, Sealed, Timestamp, codec};

/// One device of one member: the pair that a credential binds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DeviceRef {
    /// The member.
    pub member_id: MemberId,
    /// The member's device.
    pub device_id: DeviceId,
}

/// Which algorithms a device's two keys are for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(try_from = "String")]
pub enum Suite {
    /// X25519 for encryption, Ed25519 for signatures; 32 bytes each.
    #[default]
    #[serde(rename = "x25519-ed25519")]
    X25519Ed25519,
}

impl Suite {
    /// Every suite that this build accepts.
    pub const ALL: [Self; 1] = [Self::X25519Ed25519];

    /// The name on the wire and in signed bytes.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::X25519Ed25519 => "x25519-ed25519",
        }
    }

    /// The length of each public key, in bytes.
    #[must_use]
    pub const fn key_bytes(self) -> usize {
        match self {
            Self::X25519Ed25519 => 32,
        }
    }
}

// By way of a text: what serde derives for an enum also takes a map of one entry.
impl TryFrom<String> for Suite {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse().map_err(|()| "unknown")
    }
}

impl std::str::FromStr for Suite {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL
            .into_iter()
            .find(|suite| suite.as_str() == text)
            .ok_or(())
    }
}

/// What stands behind a device id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase", try_from = "String")]
pub enum DeviceKind {
    /// An installation of the application.
    #[default]
    Device,
    /// Keys that come from a recovery code.
    Recovery,
}

impl DeviceKind {
    /// The name on the wire and in signed bytes.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Recovery => "recovery",
        }
    }
}

// By way of a text: what serde derives for an enum also takes a map of one entry.
impl TryFrom<String> for DeviceKind {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse().map_err(|()| "unknown")
    }
}

impl std::str::FromStr for DeviceKind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Device, Self::Recovery]
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or(())
    }
}

/// The most bytes a device's sealed label may have.
pub const MAX_LABEL_BYTES: usize = 1_024;

/// Body of `POST /devices`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RegisterRequest {
    /// Which algorithms the keys are for.
    #[serde(default, deserialize_with = "codec::or_default")]
    pub suite: Suite,
    /// The public key that others seal wraps for; 32 bytes.
    pub encryption_key: Sealed,
    /// The public key that verifies this device's signatures; 32 bytes.
    pub signing_key: Sealed,
    /// An installation, or the keys of a recovery code.
    #[serde(default, deserialize_with = "codec::or_default")]
    pub kind: DeviceKind,
    /// A sealed name for people to tell devices apart; at most [`MAX_LABEL_BYTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Sealed>,
    /// The signing key's signature over [`crate::signing::device_proof`]; 64 bytes.
    pub proof: Sealed,
}

/// A device as the relay tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// Whose device it is.
    pub member_id: MemberId,
    /// Which of the member's devices.
    pub device_id: DeviceId,
    /// An installation, or the keys of a recovery code.
    pub kind: DeviceKind,
    /// Which algorithms the keys are for.
    pub suite: Suite,
    /// The public key that others seal wraps for.
    pub encryption_key: Sealed,
    /// The public key that verifies this device's signatures.
    pub signing_key: Sealed,
    /// The sealed name, where one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Sealed>,
    /// When it was first registered.
    pub registered_at: Timestamp,
    /// When it was revoked; absent while it is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// When a request of it was last seen, within two minutes; told only to the device's own
    /// member, in `GET /devices`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen_at: Option<Timestamp>,
}

impl Device {
    /// Whose device it is, and which.
    #[must_use]
    pub fn to_ref(&self) -> DeviceRef {
        DeviceRef {
            member_id: self.member_id.clone(),
            device_id: self.device_id.clone(),
        }
    }

    /// Whether the device has not been revoked.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.revoked_at.is_none()
    }
}

/// Answer of `POST /devices`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RegisterResponse {
    /// The device as it now stands.
    pub device: Device,
    /// Whether this request registered it (201), or it was there with the same keys (200).
    pub fresh: bool,
}

/// Answer of `GET /devices` and of `GET /graphs/{graphId}/devices`: one page.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DevicesResponse {
    /// The page's devices.
    pub devices: Vec<Device>,
    /// Where the next page begins.
    pub cursor: String,
    /// Whether there is a next page.
    pub more: bool,
}

/// Answer of `DELETE /devices/{deviceId}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RevokeResponse {
    /// How many graphs now owe a rotation because of this revocation.
    pub graphs_flagged: u64,
    /// Those graphs; at most 1,000 of them.
    pub graphs: Vec<GraphId>,
}
