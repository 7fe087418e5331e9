//! Route 12: a blob is uploaded.

use std::sync::Arc;

use argala_core::{Relay, Upload};
use argala_wire::{
    BlobId, Code,
    blobs::{BlobPolicy, BlobResponse},
    codec::Format,
    limits::Bucket,
};
use axum::{
    body::Body,
    extract::{FromRequest, Request, State},
    response::Response,
};
use futures_util::StreamExt;
use http::{StatusCode, header};
use utoipa::IntoParams;

use super::{EVERY, Endpoint, IN_GRAPH, REGISTERED};
use crate::{
    Api,
    error::{ApiError, Refusal},
    extract::{
        Accept, InGraph, InPath, Query, QueryParams, Values, content_digest, content_length,
        entity_tag, require_octets,
    },
    openapi::{BlobBytes, BlobIdParam, ContentDigestParam, GraphIdParam, Problems},
};

pub(crate) struct PutBlob;

impl Endpoint for PutBlob {
    const BUCKET: Bucket = Bucket::Blobs;
    const PROBLEMS: &'static [&'static [Code]] = &[
        EVERY,
        REGISTERED,
        IN_GRAPH,
        &[
            Code::DigestMismatch,
            Code::QuotaExceeded,
            Code::GraphUnkeyed,
            Code::BlobExists,
            Code::LengthRequired,
            Code::BlobTooLarge,
            Code::UnsupportedMediaType,
        ],
    ];
}

/// How long the blob is to stay.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct LifeQuery {
    /// `keep` by default.
    policy: Option<BlobPolicy>,
    /// Seconds: required for `expire`, 30 days by default for `deliver`, none for `keep`.
    #[param(minimum = 60, maximum = 31_536_000)]
    ttl: Option<u64>,
}

impl QueryParams for LifeQuery {
    fn read(values: &mut Values) -> Result<Self, ApiError> {
        let parse = |text: String| text.parse::<BlobPolicy>();
        let policy = values
            .take("policy")
            .map(parse)
            .transpose()
            .map_err(|()| ApiError::invalid("policy", "policy is keep, expire or deliver"))?;
        Ok(Self {
            policy,
            ttl: values.number("ttl")?,
        })
    }
}

/// An upload's announcement and its bytes, none of which have been read.
pub(crate) struct Octets {
    size: u64,
    digest: Option<[u8; 32]>,
    body: Body,
}

impl FromRequest<Api> for Octets {
    type Rejection = ApiError;

    async fn from_request(request: Request, _api: &Api) -> Result<Self, ApiError> {
        let headers = request.headers();
        require_octets(headers)?;
        let digest = content_digest(headers)?;
        let size = content_length(headers)?.ok_or(Refusal::LengthRequired)?;
        Ok(Self {
            size,
            digest,
            body: request.into_body(),
        })
    }
}

/// Upload a blob
///
/// Streamed; `Content-Length` is required, `Content-Digest` is checked where it is sent. The same
/// bytes again change nothing; other bytes under the same id are refused.
#[utoipa::path(
    put,
    path = "/graphs/{graphId}/blobs/{blobId}",
    operation_id = "putBlob",
    tag = "blobs",
    params(GraphIdParam, BlobIdParam, LifeQuery, ContentDigestParam),
    request_body(content = inline(BlobBytes), content_type = "application/octet-stream"),
    responses(
        (status = 201, description = "The blob is stored", headers(
            ("ETag" = String, description = "Its SHA-256 as base64url"),
        ), content((BlobResponse = "application/json"))),
        (status = 200, description = "It was, with the same bytes", headers(
            ("ETag" = String, description = "Its SHA-256 as base64url"),
        ), content((BlobResponse = "application/json"))),
        Problems<PutBlob>,
    ),
)]
pub(crate) async fn put_blob(
    State(relay): State<Arc<Relay>>,
    InGraph(access, ..): InGraph<PutBlob>,
    InPath(id): InPath<BlobId>,
    Query(LifeQuery {
        policy,
        ttl: ttl_seconds,
    }): Query<LifeQuery>,
    Octets { size, digest, body }: Octets,
) -> Result<Response, ApiError> {
    let body = Box::pin(
        body.into_data_stream()
            .map(|piece| piece.map_err(std::io::Error::other)),
    );
    let policy = policy.unwrap_or_default();
    let upload = Upload {
        id,
        size,
        policy,
        ttl_seconds,
        digest,
        body,
    };
    let (blob, fresh) = relay.put_blob(&access, upload).await?;
    let status = if fresh {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    // Blob routes look at Accept for errors alone.
    let mut response = Accept(Format::Json).answer(status, &blob);
    response
        .headers_mut()
        .insert(header::ETAG, entity_tag(&blob.sha256.to_base64url()));
    Ok(response)
}
