//! Route 5: what one graph holds and owes.

use std::sync::Arc;

use argala_core::Relay;
use argala_wire::{Code, graphs::GraphResponse, limits::Bucket};
use axum::{extract::State, response::Response};

use super::{EVERY, Endpoint, IN_GRAPH, NEGOTIATED, REGISTERED};
use crate::{
    error::ApiError,
    extract::{Accept, InGraph, Query},
    openapi::{GraphIdParam, Problems},
};

pub(crate) struct Graph;

impl Endpoint for Graph {
    const BUCKET: Bucket = Bucket::Pull;
    const PROBLEMS: &'static [&'static [Code]] = &[EVERY, REGISTERED, IN_GRAPH, NEGOTIATED];
}

/// Tell what a graph holds and owes
///
/// Its counters and ceilings, the holders of its key that must be rotated out, and the devices
/// that still wait for it. A graph without a key yet answers with epoch 0 and head 0.
#[utoipa::path(
    get,
    path = "/graphs/{graphId}",
    operation_id = "getGraph",
    tag = "graphs",
    params(GraphIdParam),
    responses(
        (status = 200, description = "The graph", content(
            (GraphResponse = "application/json"),
            (GraphResponse = "application/cbor"),
        )),
        Problems<Graph>,
    ),
)]
pub(crate) async fn graph(
    State(relay): State<Arc<Relay>>,
    InGraph(access, ..): InGraph<Graph>,
    Query(()): Query<()>,
    accept: Accept,
) -> Result<Response, ApiError> {
    Ok(accept.ok(&relay.graph(&access).await?))
}
