//! Making the tokens that [`JwtAuth`](super::JwtAuth) believes, where the key is a shared secret.

use std::time::Duration;

use argala_wire::{Timestamp, devices::DeviceRef};
use jsonwebtoken::{AlgorithmFamily, EncodingKey, Header};
use serde_json::{Map, Value};

use super::{JwtConfig, JwtKey};

/// Why a token cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum MintError {
    /// There is no shared secret, or no HS algorithm is pinned: only who has the private key can
    /// sign.
    #[error("tokens are made with a shared secret and an HS algorithm, and there is none")]
    NoSecret,
    /// The signature failed.
    #[error("the token cannot be signed")]
    Signing(#[source] jsonwebtoken::errors::Error),
}

/// A token for `device`, good from `now` for `ttl` (whole seconds), that a
/// [`JwtAuth`](super::JwtAuth) of the same `config` believes.
///
/// It is signed with the config's first secret and first HS algorithm, for its first issuer and
/// audience.
///
/// # Errors
/// [`MintError`]; nothing else depends on the device or the time.
pub fn mint(
    config: &JwtConfig,
    device: &DeviceRef,
    now: Timestamp,
    ttl: Duration,
) -> Result<String, MintError> {
    let secret = config.keys.iter().find_map(|key| match key {
        JwtKey::Secret(secret) => Some(secret),
        JwtKey::PublicPem(_) => None,
    });
    let mut algorithms = config.algorithms.iter();
    let algorithm = algorithms.find(|algorithm| algorithm.family() == AlgorithmFamily::Hmac);
    let (Some(secret), Some(algorithm)) = (secret, algorithm) else {
        return Err(MintError::NoSecret);
    };
    let issued_at = now.as_millis().div_euclid(1_000);
    let expires_at = issued_at.saturating_add_unsigned(ttl.as_secs());
    let mut claims = Map::new();
    claims.insert("iat".to_owned(), issued_at.into());
    claims.insert("exp".to_owned(), expires_at.into());
    for (name, value) in [
        ("iss", config.issuers.first()),
        ("aud", config.audiences.first()),
    ] {
        if let Some(value) = value {
            claims.insert(name.to_owned(), Value::from(value.as_str()));
        }
    }
    claims.insert(
        config.member_claim.clone(),
        device.member_id.as_str().into(),
    );
    claims.insert(
        config.device_claim.clone(),
        device.device_id.as_str().into(),
    );
    let key = EncodingKey::from_secret(secret).map_err(MintError::Signing)?;
    jsonwebtoken::encode(&Header::new(*algorithm), &claims, &key).map_err(MintError::Signing)
}
