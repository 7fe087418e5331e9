//! Route 9: devices are given keys.

use std::sync::Arc;

use argala_core::Relay;
use argala_wire::{
    Code,
    keys::{GrantRequest, GrantResponse},
    limits::Bucket,
};
use axum::{extract::State, response::Response};

use super::{BODY, EVERY, Endpoint, IN_GRAPH, NEGOTIATED, REGISTERED};
use crate::{
    error::ApiError,
    extract::{Accept, InGraph, KeysBody, Payload, Query},
    openapi::{GraphIdParam, Problems},
};

pub(crate) struct Grant;

impl Endpoint for Grant {
    const BUCKET: Bucket = Bucket::Keys;
    const PROBLEMS: &'static [&'static [Code]] = &[
        EVERY,
        REGISTERED,
        IN_GRAPH,
        NEGOTIATED,
        BODY,
        &[Code::GraphUnkeyed],
    ];
}

/// Give wraps to devices of a graph's roster
///
/// Of epochs of which the calling device itself holds one. A wrap is never overwritten.
#[utoipa::path(
    post,
    path = "/graphs/{graphId}/grant",
    operation_id = "grant",
    tag = "keys",
    params(GraphIdParam),
    request_body(content(
        (GrantRequest = "application/json"),
        (GrantRequest = "application/cbor"),
    )),
    responses(
        (status = 200, description = "What became of each wrap", content(
            (GrantResponse = "application/json"),
            (GrantResponse = "application/cbor"),
        )),
        Problems<Grant>,
    ),
)]
pub(crate) async fn grant(
    State(relay): State<Arc<Relay>>,
    InGraph(access, ..): InGraph<Grant>,
    Query(()): Query<()>,
    accept: Accept,
    Payload(request, ..): Payload<GrantRequest, KeysBody>,
) -> Result<Response, ApiError> {
    Ok(accept.ok(&relay.grant(&access, request).await?))
}
