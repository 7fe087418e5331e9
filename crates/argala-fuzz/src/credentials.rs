//! Credentials: who is believed, and for what.

use std::sync::Arc;

use argala_http::{Authenticate, DevAuth, FirstOf, JwtAuth, JwtConfig, JwtKey};
use argala_testkit::{EPOCH, TestClock};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderValue, Request, header, request::Parts};
use serde_json::Value;
use sha2::Sha256;

use crate::{Verdict, relay::wait};

const SECRET: &[u8] = b"the host's secret, thirty-two bytes and more";

/// A JWT whose head and claims are these bytes, truly signed.
fn signed(head: &[u8], claims: &[u8]) -> String {
    let part = |bytes: &[u8]| argala_wire::Sealed::from(bytes).to_base64url();
    let text = format!("{}.{}", part(head), part(claims));
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET).expect("any length is a key");
    mac.update(text.as_bytes());
    let signature = part(&mac.finalize().into_bytes());
    format!("{text}.{signature}")
}

fn head(value: &[u8]) -> Option<Parts> {
    let mut request = Request::new(());
    let value = HeaderValue::from_bytes(value).ok()?;
    request.headers_mut().insert(header::AUTHORIZATION, value);
    Some(request.into_parts().0)
}

/// A header as it comes; a token's head and claims, in two lines, that are then signed; a
/// development credential.
pub fn credentials(bytes: &[u8]) -> Verdict {
    let Some((kind, rest)) = bytes.split_first() else {
        return Verdict::Refused;
    };
    let config = JwtConfig {
        keys: vec![JwtKey::Secret(SECRET.to_vec())],
        issuers: vec!["https://host.test".to_owned()],
        audiences: vec!["argala".to_owned()],
        ..JwtConfig::default()
    };
    let jwt = JwtAuth::new(config, Arc::new(TestClock::new())).expect("a good config");
    match kind % 3 {
        0 => {
            let all = FirstOf(vec![Arc::new(jwt), Arc::new(DevAuth)]);
            let Some(parts) = head(rest) else {
                return Verdict::Refused;
            };
            let Ok(identity) = wait(all.authenticate(&parts)) else {
                return Verdict::Refused;
            };
            // Nobody guesses a signature; so it is a development credential.
            assert!(identity.expires_at.is_none(), "a token that nobody signed");
        }
        1 => {
            let at = rest
                .iter()
                .position(|byte| *byte == b'\n')
                .unwrap_or(rest.len());
            let (first, claims) = (&rest[..at], rest.get(at + 1..).unwrap_or_default());
            let token = format!("Bearer {}", signed(first, claims));
            let Some(parts) = head(token.as_bytes()) else {
                return Verdict::Refused;
            };
            let Ok(identity) = wait(jwt.authenticate(&parts)) else {
                return Verdict::Refused;
            };
            // What was believed stands in the claims, as the protocol reads them.
            let value: Value = serde_json::from_slice(claims).expect("claims are JSON");
            assert_eq!(value["sub"], identity.device.member_id.as_str());
            assert_eq!(value["did"], identity.device.device_id.as_str());
            assert_eq!(value["iss"], "https://host.test");
            let audience = &value["aud"];
            let meant = |value: &Value| *value == "argala";
            assert!(
                meant(audience) || audience.as_array().is_some_and(|all| all.iter().any(meant))
            );
            let expires = identity.expires_at.expect("a token expires");
            assert!(expires > EPOCH, "{expires}");
            let head: Value = serde_json::from_slice(first).expect("a head is JSON");
            assert_eq!(head["alg"], "HS256");
        }
        _ => {
            let credential = [b"Dev ", rest].concat();
            let Some(parts) = head(&credential) else {
                return Verdict::Refused;
            };
            let Ok(identity) = wait(DevAuth.authenticate(&parts)) else {
                return Verdict::Refused;
            };
            assert!(identity.expires_at.is_none());
            assert_eq!(rest.iter().filter(|byte| **byte == b'/').count(), 1);
        }
    }
    Verdict::Taken
}
