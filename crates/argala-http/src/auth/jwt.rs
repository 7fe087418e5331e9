//! Bearer tokens that a host signs: JWTs with static keys.

use std::{fmt, sync::Arc, time::Duration};

use argala_core::{Identity, ports::Clock};
use argala_wire::{DeviceId, MemberId, Timestamp, devices::DeviceRef};
use async_trait::async_trait;
use http::request::Parts;
pub use jsonwebtoken::Algorithm as JwtAlgorithm;
use jsonwebtoken::{AlgorithmFamily, DecodingKey, Validation, errors::ErrorKind};
use serde_json::{Map, Value};

use super::{AuthError, Authenticate, credential};

/// A key that tokens are verified with.
#[derive(Clone)]
pub enum JwtKey {
    /// A secret shared with the issuer, for the HS algorithms.
    Secret(Vec<u8>),
    /// A public key in PEM: RSA, EC or Ed25519, as the pinned algorithms ask.
    PublicPem(Vec<u8>),
}

impl fmt::Debug for JwtKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret(_) => "Secret(…)",
            Self::PublicPem(_) => "PublicPem(…)",
        })
    }
}

/// Which tokens are believed.
#[derive(Debug, Clone)]
pub struct JwtConfig {
    /// The keys; a token that any of them verifies is genuine.
    pub keys: Vec<JwtKey>,
    /// The algorithms that a token may be signed with. Pinned: what a token's header asks for
    /// decides nothing.
    pub algorithms: Vec<JwtAlgorithm>,
    /// Who may have issued a token (`iss`). Where there are none, the claim is not looked at.
    pub issuers: Vec<String>,
    /// Whom a token may be meant for (`aud`). Where there are none, a token must not say.
    pub audiences: Vec<String>,
    /// The claim that names the member; `sub` by custom.
    pub member_claim: String,
    /// The claim that names the device; `did` by custom.
    pub device_claim: String,
    /// How far the issuer's clock and ours may be apart.
    pub leeway: Duration,
}

impl Default for JwtConfig {
    /// HS256, `sub` and `did`, a minute of leeway; no keys, issuers or audiences.
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            algorithms: vec![JwtAlgorithm::HS256],
            issuers: Vec::new(),
            audiences: Vec::new(),
            member_claim: "sub".to_owned(),
            device_claim: "did".to_owned(),
            leeway: Duration::from_secs(60),
        }
    }
}

/// Why no tokens can be verified with a [`JwtConfig`]. Never repeats a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JwtConfigError {
    /// No algorithm is pinned.
    #[error("name at least one algorithm")]
    NoAlgorithms,
    /// An algorithm is pinned for which there is no key.
    #[error("no key fits the algorithm {0:?}")]
    NoKey(JwtAlgorithm),
    /// A key fits none of the pinned algorithms, or cannot be read.
    #[error("key {} of the list fits none of the algorithms, or cannot be read", .0 + 1)]
    UselessKey(usize),
    /// A secret is empty.
    #[error("key {} of the list is empty", .0 + 1)]
    EmptyKey(usize),
    /// A claim's name is empty, or both claims have the same name.
    #[error("the member's and the device's claims have two different names")]
    ClaimNames,
}

/// Believes JWTs in `Authorization: Bearer …`.
///
/// A token must be signed by one of the keys with one of the pinned algorithms, carry `exp`, be
/// valid now, come from one of the issuers, be meant for one of the audiences, and name both a
/// member and a device. `nbf` is looked at where it is there.
pub struct JwtAuth {
    keys: Vec<(JwtAlgorithm, DecodingKey)>,
    issuers: Vec<String>,
    audiences: Vec<String>,
    member_claim: String,
    device_claim: String,
    leeway: Duration,
    clock: Arc<dyn Clock>,
}

impl JwtAuth {
    /// Prepares the keys. `clock` decides what has expired.
    ///
    /// # Errors
    /// [`JwtConfigError`] where the keys and algorithms do not fit each other.
    pub fn new(config: JwtConfig, clock: Arc<dyn Clock>) -> Result<Self, JwtConfigError> {
        let JwtConfig {
            keys,
            algorithms,
            issuers,
            audiences,
            member_claim,
            device_claim,
            leeway,
        } = config;
        if algorithms.is_empty() {
            return Err(JwtConfigError::NoAlgorithms);
        }
        if member_claim.is_empty() || device_claim.is_empty() || member_claim == device_claim {
            return Err(JwtConfigError::ClaimNames);
        }
        let mut prepared = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            if matches!(key, JwtKey::Secret(secret) if secret.is_empty()) {
                return Err(JwtConfigError::EmptyKey(at));
            }
            let before = prepared.len();
            for algorithm in &algorithms {
                prepared.extend(prepare(key, *algorithm).map(|key| (*algorithm, key)));
            }
            if prepared.len() == before {
                return Err(JwtConfigError::UselessKey(at));
            }
        }
        let keyless = |algorithm: &&JwtAlgorithm| !prepared.iter().any(|(of, _)| of == *algorithm);
        if let Some(algorithm) = algorithms.iter().find(keyless) {
            return Err(JwtConfigError::NoKey(*algorithm));
        }
        Ok(Self {
            keys: prepared,
            issuers,
            audiences,
            member_claim,
            device_claim,
            leeway,
            clock,
        })
    }

    /// The identity that `token` proves.
    fn identity(&self, token: &str) -> Result<Identity, AuthError> {
        let claims = self.verified(token)?;
        let expires_at = self.check_times(&claims)?;
        self.check_parties(&claims)?;
        let member = text(
            &claims,
            &self.member_claim,
            "no_member_claim",
            "bad_member_id",
        )?;
        // A token that names a member alone would let any device fetch another's wraps.
        let device = text(
            &claims,
            &self.device_claim,
            "no_device_claim",
            "bad_device_id",
        )?;
        Ok(Identity {
            device: DeviceRef {
                member_id: MemberId::new(member)
                    .map_err(|_| AuthError::refused("bad_member_id"))?,
                device_id: DeviceId::new(device)
                    .map_err(|_| AuthError::refused("bad_device_id"))?,
            },
            expires_at: Some(expires_at),
        })
    }

    /// The claims of a token whose signature is good. Times and parties are ours to check: the
    /// library reads the system's clock and not the port.
    fn verified(&self, token: &str) -> Result<Map<String, Value>, AuthError> {
        let header =
            jsonwebtoken::decode_header(token).map_err(|_| AuthError::refused("malformed"))?;
        let mut refusal = AuthError::refused("wrong_algorithm");
        for (_, key) in self
            .keys
            .iter()
            .filter(|(algorithm, _)| *algorithm == header.alg)
        {
            let mut validation = Validation::new(header.alg);
            validation.required_spec_claims.clear();
            validation.validate_exp = false;
            validation.validate_aud = false;
            match jsonwebtoken::decode(token, key, &validation) {
                Ok(data) => return Ok(data.claims),
                Err(error) => {
                    refusal = AuthError::refused(match error.kind() {
                        ErrorKind::InvalidSignature => "bad_signature",
                        _ => "malformed",
                    });
                }
            }
        }
        Err(refusal)
    }

    /// Until when the token is good, the leeway included.
    fn check_times(&self, claims: &Map<String, Value>) -> Result<Timestamp, AuthError> {
        let now = self.clock.now();
        let expires_at = time(claims, "exp")?.ok_or(AuthError::refused("malformed"))?;
        let expires_at = expires_at.saturating_add(self.leeway);
        if expires_at <= now {
            return Err(AuthError::refused("expired"));
        }
        match time(claims, "nbf")? {
            Some(begins_at) if begins_at > now.saturating_add(self.leeway) => {
                Err(AuthError::refused("not_yet_valid"))
            }
            _ => Ok(expires_at),
        }
    }

    fn check_parties(&self, claims: &Map<String, Value>) -> Result<(), AuthError> {
        let issuer = claims.get("iss").and_then(Value::as_str);
        let known = |issuer: &str| self.issuers.iter().any(|known| known == issuer);
        if !self.issuers.is_empty() && !issuer.is_some_and(known) {
            return Err(AuthError::refused("wrong_issuer"));
        }
        let ours = |audience: &Value| {
            audience
                .as_str()
                .is_some_and(|text| self.audiences.iter().any(|ours| ours == text))
        };
        let meant_for_us = match claims.get("aud") {
            // RFC 7519, section 4.1.3: who does not know itself by the claim refuses the token.
            None => self.audiences.is_empty(),
            Some(Value::Array(audiences)) => audiences.iter().any(ours),
            Some(audience) => ours(audience),
        };
        if meant_for_us {
            Ok(())
        } else {
            Err(AuthError::refused("wrong_audience"))
        }
    }
}

#[async_trait]
impl Authenticate for JwtAuth {
    async fn authenticate(&self, parts: &Parts) -> Result<Identity, AuthError> {
        self.identity(credential(&parts.headers, "Bearer")?)
    }
}

/// `key` as `algorithm` uses it; `None` where it is of another kind.
fn prepare(key: &JwtKey, algorithm: JwtAlgorithm) -> Option<DecodingKey> {
    match (key, algorithm.family()) {
        (JwtKey::Secret(secret), AlgorithmFamily::Hmac) => DecodingKey::from_secret(secret).ok(),
        (JwtKey::PublicPem(pem), AlgorithmFamily::Rsa) => DecodingKey::from_rsa_pem(pem).ok(),
        (JwtKey::PublicPem(pem), AlgorithmFamily::Ec) => DecodingKey::from_ec_pem(pem).ok(),
        (JwtKey::PublicPem(pem), AlgorithmFamily::Ed) => DecodingKey::from_ed_pem(pem).ok(),
        (JwtKey::Secret(_), _) | (JwtKey::PublicPem(_), AlgorithmFamily::Hmac) => None,
    }
}

/// The claim `name`, which is a text.
fn text<'a>(
    claims: &'a Map<String, Value>,
    name: &str,
    absent: &'static str,
    malformed: &'static str,
) -> Result<&'a str, AuthError> {
    match claims.get(name) {
        None | Some(Value::Null) => Err(AuthError::refused(absent)),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(AuthError::refused(malformed)),
    }
}

/// The claim `name`, which is seconds since 1970, fractions allowed (RFC 7519, section 2).
fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<Timestamp>, AuthError> {
    match claims.get(name) {
        None => Ok(None),
        Some(Value::Number(number)) => {
            let seconds = number.as_f64().ok_or(AuthError::refused("malformed"))?;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a cast of a float saturates, and no clock gets that far"
            )]
            let millis = (seconds * 1_000.0) as i64;
            Ok(Some(Timestamp::from_millis(millis)))
        }
        Some(_) => Err(AuthError::refused("malformed")),
    }
}

#[cfg(test)]
#[path = "jwt_tests.rs"]
mod tests;
