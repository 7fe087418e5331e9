//! The header `Idempotency-Key` (protocol, section 6).

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::{Api, error::ApiError};

/// The header's name, as problems tell it.
const NAME: &str = "Idempotency-Key";
/// The most characters that a key has.
const MAX_LENGTH: usize = 128;

/// The key, where the caller sent one: 1 to 128 visible ASCII characters.
#[derive(Debug)]
pub(crate) struct Idempotency(pub(crate) Option<String>);

impl FromRequestParts<Api> for Idempotency {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _api: &Api) -> Result<Self, ApiError> {
        let mut values = parts.headers.get_all(NAME).iter();
        let Some(value) = values.next() else {
            return Ok(Self(None));
        };
        let bytes = value.as_bytes();
        let legal = (1..=MAX_LENGTH).contains(&bytes.len())
            && bytes.iter().all(u8::is_ascii_graphic)
            && values.next().is_none();
        let key = value.to_str().ok().filter(|_| legal).map(str::to_owned);
        let detail = "the header is one key of 1 to 128 visible ASCII characters";
        key.map(|key| Self(Some(key)))
            .ok_or_else(|| ApiError::invalid(NAME, detail))
    }
}
