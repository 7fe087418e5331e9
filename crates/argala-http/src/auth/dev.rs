//! The dev server's credential: whoever says so is somebody.

use argala_core::Identity;
use argala_wire::{DeviceId, MemberId, devices::DeviceRef};
use async_trait::async_trait;
use http::request::Parts;

use super::{AuthError, Authenticate, credential};
use crate::extract::percent_decode;

/// Believes `Authorization: Dev <memberId>/<deviceId>`, each percent-encoded. For development
/// alone: it asks for no proof.
#[derive(Debug, Clone, Copy, Default)]
pub struct DevAuth;

impl DevAuth {
    pub(super) fn identity(self, credential: &str) -> Result<Identity, AuthError> {
        let malformed = || AuthError::refused("malformed");
        let (member, device) = credential.split_once('/').ok_or_else(malformed)?;
        if device.contains('/') {
            return Err(malformed());
        }
        let member = percent_decode(member).ok_or_else(malformed)?;
        let device = percent_decode(device).ok_or_else(malformed)?;
        Ok(Identity {
            device: DeviceRef {
                member_id: MemberId::new(member)
                    .map_err(|_| AuthError::refused("bad_member_id"))?,
                device_id: DeviceId::new(device)
                    .map_err(|_| AuthError::refused("bad_device_id"))?,
            },
            expires_at: None,
        })
    }
}

#[async_trait]
impl Authenticate for DevAuth {
    async fn authenticate(&self, parts: &Parts) -> Result<Identity, AuthError> {
        self.identity(credential(&parts.headers, "Dev")?)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{head, reason},
        *,
    };

    #[tokio::test]
    async fn ids_are_percent_encoded() {
        let parts = head(&["Dev auth0%7C42/user%3A7%2F%F0%9F%A6%80"]);
        let identity = DevAuth.authenticate(&parts).await.expect("well formed");
        assert_eq!(identity.device.member_id.as_str(), "auth0|42");
        assert_eq!(identity.device.device_id.as_str(), "user:7/🦀");
        assert_eq!(identity.expires_at, None);
    }

    #[tokio::test]
    async fn what_is_wrong_is_told_by_a_name() {
        for (value, want) in [
            ("Dev sam", "malformed"),
            ("Dev sam/a%2", "malformed"),
            ("Dev sam/%ff", "malformed"),
            ("Dev", "malformed"),
            ("Dev sam/a/b", "malformed"),
            ("Dev /laptop", "bad_member_id"),
            ("Dev sam/", "bad_device_id"),
            ("Dev sam/..", "bad_device_id"),
            ("Bearer sam/laptop", "missing"),
        ] {
            assert_eq!(
                reason(DevAuth.authenticate(&head(&[value])).await),
                want,
                "{value}"
            );
        }
    }
}
