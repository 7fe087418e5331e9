//! Route 13: a blob is fetched.

use std::sync::Arc;

use argala_core::{
    Access, Relay, StoreError,
    ports::{ByteStream, store::Blob},
};
use argala_wire::{BlobId, Code, OCTET_STREAM, Sealed, limits::Bucket};
use axum::{body::Body, extract::State, response::Response};
use futures_util::TryStreamExt;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use super::{EVERY, Endpoint, IN_GRAPH, REGISTERED};
use crate::{
    error::{ApiError, Refusal},
    extract::{IfNoneMatch, InGraph, InPath, Query, Wanted, entity_tag, wanted},
    openapi::{
        BlobBytes, BlobIdParam, GraphIdParam, IfNoneMatchParam, IfRangeParam, Problems, RangeParam,
    },
};

pub(crate) struct GetBlob;

impl Endpoint for GetBlob {
    const BUCKET: Bucket = Bucket::Blobs;
    const PROBLEMS: &'static [&'static [Code]] = &[
        EVERY,
        REGISTERED,
        IN_GRAPH,
        &[Code::BlobNotFound, Code::RangeNotSatisfiable],
    ];
}

/// Fetch a blob
///
/// All of it, or one range. A blob of policy `deliver` counts as fetched once the last byte of a
/// whole answer is sent; a range, or `HEAD`, does not count.
///
/// Where the operator has chosen so, a blob of another policy is answered with where its bytes
/// are, whole or a range: a URL that is good for a minute and must be sent no credential.
#[utoipa::path(
    method(get, head),
    path = "/graphs/{graphId}/blobs/{blobId}",
    operation_id = "getBlob",
    tag = "blobs",
    params(GraphIdParam, BlobIdParam, RangeParam, IfRangeParam, IfNoneMatchParam),
    responses(
        (status = 200, description = "The blob's bytes", headers(
            ("ETag" = String, description = "Their SHA-256 as base64url"),
            ("Accept-Ranges" = String, description = "`bytes`"),
        ), content((inline(BlobBytes) = "application/octet-stream"))),
        (status = 206, description = "The bytes of the range", headers(
            ("ETag" = String, description = "The whole blob's SHA-256 as base64url"),
            ("Content-Range" = String, description = "Which bytes these are"),
        ), content((inline(BlobBytes) = "application/octet-stream"))),
        (status = 307, description = "The bytes are elsewhere, for a minute", headers(
            ("Location" = String, description = "Where; a secret while it lasts"),
        )),
        (status = 304, description = "The caller has the blob already", headers(
            ("ETag" = String, description = "The blob's SHA-256 as base64url"),
        )),
        Problems<GetBlob>,
    ),
)]
pub(crate) async fn get_blob(
    State(relay): State<Arc<Relay>>,
    InGraph(access, ..): InGraph<GetBlob>,
    InPath(id): InPath<BlobId>,
    Query(()): Query<()>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let blob = relay.blob(&access, &id).await?;
    let tag = Sealed::from(blob.sha256.as_slice()).to_base64url();
    let response = if IfNoneMatch::of(&headers).has(&tag) {
        empty(StatusCode::NOT_MODIFIED)
    } else if method == Method::HEAD {
        // A range is a matter of GET alone (RFC 9110, section 14.2).
        sized(empty(StatusCode::OK), blob.size)
    } else {
        let wanted = wanted(&headers, blob.size, &tag);
        if wanted != Wanted::Outside
            && let Some(url) = relay.link_blob(&blob).await?
        {
            return elsewhere(url);
        }
        read(&relay, &access, &blob, wanted).await?
    };
    Ok(described(response, &tag))
}

/// The part of the blob that is wanted.
async fn read(
    relay: &Arc<Relay>,
    access: &Access,
    blob: &Blob,
    wanted: Wanted,
) -> Result<Response, ApiError> {
    let size = blob.size;
    match wanted {
        Wanted::Outside => Err(Refusal::RangeNotSatisfiable { size }.into()),
        Wanted::Whole => {
            let bytes = watched(relay.read_blob(access, blob, None).await?);
            Ok(sized(Response::new(Body::from_stream(bytes)), size))
        }
        Wanted::Part(range) => {
            let bytes = watched(relay.read_blob(access, blob, Some(range.clone())).await?);
            let mut response = sized(
                Response::new(Body::from_stream(bytes)),
                range.end - range.start,
            );
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            let place = format!("bytes {}-{}/{size}", range.start, range.end - 1);
            let place = HeaderValue::try_from(place).expect("numbers are legal in a header");
            response.headers_mut().insert(header::CONTENT_RANGE, place);
            Ok(response)
        }
    }
}

/// Sends the caller to where the bytes are. A range goes with them: it is the store's to answer.
fn elsewhere(url: String) -> Result<Response, ApiError> {
    let mut url = HeaderValue::try_from(url)
        .map_err(|error| StoreError::internal("tell where a blob's bytes are", error))?;
    // Whoever has it has the bytes.
    url.set_sensitive(true);
    let mut response = empty(StatusCode::TEMPORARY_REDIRECT);
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, url);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Logs where the bytes break off: the answer has begun by then, and no problem can be told.
fn watched(bytes: ByteStream) -> ByteStream {
    let span = tracing::Span::current();
    Box::pin(bytes.inspect_err(move |error| {
        span.in_scope(|| tracing::error!(cause = %error, "a blob's bytes broke off"));
    }))
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::default();
    *response.status_mut() = status;
    response
}

fn sized(mut response: Response, length: u64) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, length.into());
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(OCTET_STREAM));
    response
}

/// The headers of every answer that is about the blob.
fn described(mut response: Response, tag: &str) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::ETAG, entity_tag(tag));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("private, no-cache"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}
