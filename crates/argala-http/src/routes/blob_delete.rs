//! Route 14: a blob is deleted.

use std::sync::Arc;

use argala_core::Relay;
use argala_wire::{BlobId, Code, limits::Bucket};
use axum::extract::State;
use http::StatusCode;

use super::{EVERY, Endpoint, IN_GRAPH, REGISTERED};
use crate::{
    error::ApiError,
    extract::{InGraph, InPath, Query},
    openapi::{BlobIdParam, GraphIdParam, Problems},
};

pub(crate) struct DeleteBlob;

impl Endpoint for DeleteBlob {
    const BUCKET: Bucket = Bucket::Blobs;
    const PROBLEMS: &'static [&'static [Code]] =
        &[EVERY, REGISTERED, IN_GRAPH, &[Code::BlobNotFound]];
}

/// Delete a blob
///
/// Its bytes leave the quota at once.
#[utoipa::path(
    delete,
    path = "/graphs/{graphId}/blobs/{blobId}",
    operation_id = "deleteBlob",
    tag = "blobs",
    params(GraphIdParam, BlobIdParam),
    responses(
        (status = 204, description = "The blob is gone"),
        Problems<DeleteBlob>,
    ),
)]
pub(crate) async fn delete_blob(
    State(relay): State<Arc<Relay>>,
    InGraph(access, ..): InGraph<DeleteBlob>,
    InPath(id): InPath<BlobId>,
    Query(()): Query<()>,
) -> Result<StatusCode, ApiError> {
    relay.forget_blob(&access, id).await?;
    Ok(StatusCode::NO_CONTENT)
}
