//! Who calls: credentials that bind a member and a device in one.

mod dev;
mod jwt;
mod mint;

use std::sync::Arc;

use argala_core::{Identity, StoreError};
use async_trait::async_trait;
use http::{HeaderMap, header, request::Parts};

pub use dev::DevAuth;
pub use jwt::{JwtAlgorithm, JwtAuth, JwtConfig, JwtConfigError, JwtKey};
pub use mint::{MintError, mint};

/// Tells who makes a request. A host that has sessions of its own implements it.
///
/// The identity names a member *and* a device: a credential that names a member alone would let
/// any device of theirs fetch another's keys.
#[async_trait]
pub trait Authenticate: Send + Sync + 'static {
    /// The identity that the request's head proves.
    ///
    /// `parts.uri` is relative to the router; the body has not been read.
    ///
    /// # Errors
    /// [`AuthError::Refused`] where there is none, [`AuthError::Failed`] where it cannot be told.
    async fn authenticate(&self, parts: &Parts) -> Result<Identity, AuthError>;
}

/// Why a request has no identity.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// It brings no valid credential: 401.
    #[error("no valid credential: {reason}")]
    Refused {
        /// Why, as one of a few fixed names: it becomes a metric's label and the reason of the
        /// event `auth.rejected`. [`AUTH_REASONS`] are those of this crate.
        reason: &'static str,
    },
    /// What decides on credentials is down or broken: 503 or 500, never "yes".
    #[error(transparent)]
    Failed(#[from] StoreError),
}

impl AuthError {
    /// No credential of a kind that is understood here. [`FirstOf`] asks the next.
    pub const MISSING: Self = Self::Refused { reason: MISSING };

    pub(crate) const fn refused(reason: &'static str) -> Self {
        Self::Refused { reason }
    }
}

const MISSING: &str = "missing";

/// Every reason for which this crate or the relay refuses a caller as such, so that a metric can
/// have each of its series from zero.
pub const AUTH_REASONS: &[&str] = &[
    MISSING,
    "malformed",
    "wrong_algorithm",
    "bad_signature",
    "expired",
    "not_yet_valid",
    "wrong_issuer",
    "wrong_audience",
    "no_member_claim",
    "no_device_claim",
    "bad_member_id",
    "bad_device_id",
    "device_unregistered",
    "device_revoked",
    "member_inactive",
];

/// Asks several in order; the first that knows the caller decides.
///
/// Where none does, the reason told is the first that says more than "missing"; a failure of one
/// counts only where no other knows the caller.
pub struct FirstOf(pub Vec<Arc<dyn Authenticate>>);

#[async_trait]
impl Authenticate for FirstOf {
    async fn authenticate(&self, parts: &Parts) -> Result<Identity, AuthError> {
        let mut told = AuthError::MISSING;
        for auth in &self.0 {
            match auth.authenticate(parts).await {
                Ok(identity) => return Ok(identity),
                Err(failed @ AuthError::Failed(_)) => told = failed,
                Err(refused) => {
                    if matches!(told, AuthError::Refused { reason: MISSING }) {
                        told = refused;
                    }
                }
            }
        }
        Err(told)
    }
}

/// The credential of `scheme` in the one `Authorization` header; schemes differ in nothing by case.
fn credential<'a>(headers: &'a HeaderMap, scheme: &str) -> Result<&'a str, AuthError> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next().ok_or(AuthError::MISSING)?;
    if values.next().is_some() {
        return Err(AuthError::refused("malformed"));
    }
    let value = value
        .to_str()
        .map_err(|_| AuthError::refused("malformed"))?;
    let (found, credential) = value.split_once(' ').unwrap_or((value, ""));
    if found.eq_ignore_ascii_case(scheme) {
        Ok(credential.trim_matches(' '))
    } else {
        Err(AuthError::MISSING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head of a request with these `Authorization` headers.
    pub(super) fn head(credentials: &[&str]) -> Parts {
        let mut request = http::Request::new(());
        for credential in credentials {
            let value = credential.parse().expect("a header's value");
            request.headers_mut().append(header::AUTHORIZATION, value);
        }
        request.into_parts().0
    }

    pub(super) fn reason(outcome: Result<Identity, AuthError>) -> &'static str {
        match outcome {
            Err(AuthError::Refused { reason }) => {
                assert!(AUTH_REASONS.contains(&reason), "{reason} is not listed");
                reason
            }
            Err(AuthError::Failed(error)) => panic!("{error}"),
            Ok(identity) => panic!("{identity:?} is known"),
        }
    }

    struct Always(fn() -> Result<Identity, AuthError>);

    #[async_trait]
    impl Authenticate for Always {
        async fn authenticate(&self, _parts: &Parts) -> Result<Identity, AuthError> {
            (self.0)()
        }
    }

    fn first_of(all: &[fn() -> Result<Identity, AuthError>]) -> FirstOf {
        FirstOf(
            all.iter()
                .map(|one| Arc::new(Always(*one)) as Arc<dyn Authenticate>)
                .collect(),
        )
    }

    fn down() -> Result<Identity, AuthError> {
        Err(StoreError::unavailable("asking for keys", "nobody there").into())
    }

    fn expired() -> Result<Identity, AuthError> {
        Err(AuthError::refused("expired"))
    }

    fn missing() -> Result<Identity, AuthError> {
        Err(AuthError::MISSING)
    }

    #[tokio::test]
    async fn the_first_that_says_more_than_missing_is_told() {
        let parts = head(&[]);
        let auth = first_of(&[missing, expired, missing]);
        assert_eq!(reason(auth.authenticate(&parts).await), "expired");
        assert_eq!(reason(first_of(&[]).authenticate(&parts).await), "missing");
        let auth = first_of(&[down, expired]);
        assert!(matches!(
            auth.authenticate(&parts).await,
            Err(AuthError::Failed(_))
        ));
    }

    #[tokio::test]
    async fn one_that_knows_the_caller_is_enough() {
        let known = || DevAuth.identity("sam/laptop");
        let auth = first_of(&[down, expired, known]);
        assert!(auth.authenticate(&head(&[])).await.is_ok());
    }

    #[test]
    fn the_scheme_is_found_whatever_its_case() {
        let token =
            |values: &[&str]| credential(&head(values).headers, "Bearer").map(str::to_owned);
        assert_eq!(token(&["bEARER  abc "]).ok().as_deref(), Some("abc"));
        assert!(matches!(
            token(&["Basic abc"]),
            Err(AuthError::Refused { reason: MISSING })
        ));
        let twice = token(&["Bearer a", "Bearer b"]);
        assert!(matches!(
            twice,
            Err(AuthError::Refused {
                reason: "malformed"
            })
        ));
    }
}
