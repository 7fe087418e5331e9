//! Bodies: their size, and then their content.

use std::marker::PhantomData;

use argala_wire::{
    codec::Format,
    limits::{MAX_BODY_BYTES, MAX_KEYS_BYTES},
};
use axum::{
    body::Body,
    extract::{FromRequest, Request},
};
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;

use super::{media::body_format, query::decimal};
use crate::{
    Api,
    error::{ApiError, Refusal},
};

/// A body that nobody has read yet, of a media type that we read.
pub(crate) struct Entity {
    format: Format,
    announced: Option<u64>,
    body: Body,
}

impl FromRequest<Api> for Entity {
    type Rejection = ApiError;

    async fn from_request(request: Request, _api: &Api) -> Result<Self, ApiError> {
        let format = body_format(request.headers())?;
        let announced = content_length(request.headers())?;
        Ok(Self {
            format,
            announced,
            body: request.into_body(),
        })
    }
}

impl Entity {
    /// The body's bytes, of which there are at most `limit`. One that is announced to be larger is
    /// refused before it is read; one that turns out to be larger is cut there.
    ///
    /// # Errors
    /// [`Refusal::BodyTooLarge`]; a malformed request where the body ends early.
    pub(crate) async fn read(self, limit: u64) -> Result<Read, ApiError> {
        let too_large = || ApiError::from(Refusal::BodyTooLarge { limit });
        if self.announced.is_some_and(|announced| announced > limit) {
            return Err(too_large());
        }
        let mut body = self.body;
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| ApiError::malformed("the body ended early"))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if (bytes.len() + data.len()) as u64 > limit {
                return Err(too_large());
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Read {
            format: self.format,
            bytes: bytes.into(),
        })
    }
}

/// A body that has been read.
pub(crate) struct Read {
    format: Format,
    /// The bytes as they came.
    pub(crate) bytes: Bytes,
}

impl Read {
    /// What the bytes say.
    ///
    /// # Errors
    /// A malformed request, with the path of what is at fault.
    pub(crate) fn decode<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        self.format
            .decode(&self.bytes)
            .map_err(|error| match error.field {
                Some(field) => ApiError::invalid(field, error.detail),
                None => ApiError::malformed(error.detail),
            })
    }
}

/// How large a body may be.
pub(crate) trait BodyLimit {
    /// In bytes.
    const BYTES: u64;
}

/// The limit of rotate and grant.
pub(crate) struct KeysBody;

impl BodyLimit for KeysBody {
    const BYTES: u64 = MAX_KEYS_BYTES;
}

/// The limit of every other route that has none of its own.
pub(crate) struct SmallBody;

impl BodyLimit for SmallBody {
    const BYTES: u64 = MAX_BODY_BYTES;
}

/// A body of at most `L`, read as `T`.
pub(crate) struct Payload<T, L>(pub(crate) T, pub(crate) PhantomData<L>);

impl<T: DeserializeOwned, L: BodyLimit> FromRequest<Api> for Payload<T, L> {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Api) -> Result<Self, ApiError> {
        let entity = Entity::from_request(request, api).await?;
        let value = entity.read(L::BYTES).await?.decode()?;
        Ok(Self(value, PhantomData))
    }
}

/// What `Content-Length` says; `None` where there is none, or where a transfer coding overrules
/// it.
///
/// # Errors
/// A malformed request where it is no number, or several.
pub(crate) fn content_length(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let mut values = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return Ok(None);
    }
    let number = value.to_str().ok().and_then(decimal);
    match (number, values.next()) {
        (Some(number), None) => Ok(Some(number)),
        _ => Err(ApiError::invalid(
            "Content-Length",
            "Content-Length is one whole number",
        )),
    }
}
