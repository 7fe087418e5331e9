//! Route 8: a new epoch begins.

use std::sync::Arc;

use argala_core::Relay;
use argala_wire::{
    Code,
    keys::{RotateRequest, RotateResponse},
    limits::Bucket,
};
use axum::{extract::State, response::Response};

use super::{BODY, EVERY, Endpoint, IN_GRAPH, NEGOTIATED, REGISTERED};
use crate::{
    error::ApiError,
    extract::{Accept, InGraph, KeysBody, Payload, Query},
    openapi::{GraphIdParam, Problems},
};

pub(crate) struct Rotate;

impl Endpoint for Rotate {
    const BUCKET: Bucket = Bucket::Keys;
    const PROBLEMS: &'static [&'static [Code]] = &[
        EVERY,
        REGISTERED,
        IN_GRAPH,
        NEGOTIATED,
        BODY,
        &[Code::EpochConflict, Code::RotationIncomplete],
    ];
}

/// Begin a graph's next epoch
///
/// With one wrap for each device of the roster, and for no other. The first rotate creates the
/// graph. The same device's same rotate again answers as it did the first time.
#[utoipa::path(
    post,
    path = "/graphs/{graphId}/rotate",
    operation_id = "rotate",
    tag = "keys",
    params(GraphIdParam),
    request_body(content(
        (RotateRequest = "application/json"),
        (RotateRequest = "application/cbor"),
    )),
    responses(
        (status = 200, description = "The epoch has begun", content(
            (RotateResponse = "application/json"),
            (RotateResponse = "application/cbor"),
        )),
        Problems<Rotate>,
    ),
)]
pub(crate) async fn rotate(
    State(relay): State<Arc<Relay>>,
    InGraph(access, ..): InGraph<Rotate>,
    Query(()): Query<()>,
    accept: Accept,
    Payload(request, ..): Payload<RotateRequest, KeysBody>,
) -> Result<Response, ApiError> {
    Ok(accept.ok(&relay.rotate(&access, request).await?))
}
