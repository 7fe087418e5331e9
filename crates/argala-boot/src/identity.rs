//! How callers say who they are, as the configuration chooses it.

use std::sync::Arc;

use argala_core::ports::Clock;
use argala_http::{Authenticate, DevAuth, FirstOf, JwtAuth, JwtConfig, JwtConfigError, JwtKey};
use secrecy::ExposeSecret;

use crate::config::{Auth, AuthKind, Jwt, OneOrMany, secret_bytes};

/// What `[auth.jwt]` means to the HTTP layer.
#[must_use]
pub(crate) fn jwt_config(jwt: &Jwt) -> JwtConfig {
    let names = |names: &Option<OneOrMany<String>>| {
        names
            .as_ref()
            .map_or_else(Vec::new, |names| names.0.clone())
    };
    let secret = jwt
        .secret
        .as_ref()
        .map(|secret| JwtKey::Secret(secret.expose_secret().as_bytes().to_vec()));
    let public_key = jwt
        .public_key
        .as_ref()
        .map(|key| JwtKey::PublicPem(key.as_bytes().to_vec()));
    JwtConfig {
        keys: secret.into_iter().chain(public_key).collect(),
        algorithms: jwt.algorithms.clone(),
        issuers: names(&jwt.issuer),
        audiences: names(&jwt.audience),
        member_claim: jwt.member_claim.clone(),
        device_claim: jwt.device_claim.clone(),
        leeway: jwt.leeway.0,
    }
}

/// Every kind of credential that `auth` names, in its order.
pub(crate) fn authenticate(
    auth: &Auth,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<dyn Authenticate>, JwtConfigError> {
    let one = |kind: &AuthKind| -> Result<Arc<dyn Authenticate>, JwtConfigError> {
        Ok(match kind {
            AuthKind::Jwt => {
                warn_of_short_secret(&auth.jwt);
                Arc::new(JwtAuth::new(jwt_config(&auth.jwt), Arc::clone(clock))?)
            }
            AuthKind::Dev => Arc::new(DevAuth),
        })
    };
    if let [only] = auth.kind.0.as_slice() {
        return one(only);
    }
    let all: Result<_, _> = auth.kind.0.iter().map(one).collect();
    Ok(Arc::new(FirstOf(all?)))
}

/// Says at every start that tokens could be forged by guessing, where they could.
fn warn_of_short_secret(jwt: &Jwt) {
    let Some(secret) = &jwt.secret else { return };
    let bytes = secret.expose_secret().len();
    let needed = jwt
        .algorithms
        .iter()
        .copied()
        .map(secret_bytes)
        .max()
        .unwrap_or_default();
    if bytes < needed {
        tracing::warn!(
            bytes,
            needed,
            "auth.jwt.secret is shorter than its algorithm asks for: tokens may be forged by guessing"
        );
    }
}
