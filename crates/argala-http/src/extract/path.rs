//! The variable parts of a path.
//!
//! They are read from the path itself and not by axum's extractor, which decodes all of them at
//! once: a graph id that is malformed is told before anything that follows it is looked at.

use std::str::FromStr;

use argala_wire::{BlobId, DeviceId, GraphAddress};
use axum::extract::FromRequestParts;
use http::request::Parts;

use super::percent_decode;
use crate::{Api, error::ApiError};

/// An identifier that stands in a path: under which name a problem tells of it, and where.
pub(crate) trait Named: FromStr<Err: std::fmt::Display> {
    /// The name in the route's template.
    const NAME: &'static str;
    /// Which segment of the path it is, counted from 0.
    const SEGMENT: usize;
}

impl Named for GraphAddress {
    const NAME: &'static str = "graphId";
    const SEGMENT: usize = 1;
}

impl Named for DeviceId {
    const NAME: &'static str = "deviceId";
    const SEGMENT: usize = 1;
}

impl Named for BlobId {
    const NAME: &'static str = "blobId";
    const SEGMENT: usize = 3;
}

/// The identifier of this type in the path.
pub(crate) fn segment<T: Named>(parts: &Parts) -> Result<T, ApiError> {
    let raw = parts
        .uri
        .path()
        .split('/')
        .nth(T::SEGMENT + 1)
        .unwrap_or_default();
    let text = percent_decode(raw)
        .ok_or_else(|| ApiError::invalid(T::NAME, "the path is not percent-encoded UTF-8"))?;
    text.parse()
        .map_err(|error: T::Err| ApiError::invalid(T::NAME, error.to_string()))
}

/// An identifier in the path, read once the caller has been admitted.
pub(crate) struct InPath<T>(pub(crate) T);

impl<T: Named> FromRequestParts<Api> for InPath<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _api: &Api) -> Result<Self, ApiError> {
        segment(parts).map(Self)
    }
}
