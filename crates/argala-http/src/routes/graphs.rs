//! Route 4: the graphs that the caller may read.

use std::sync::Arc;

use argala_core::Relay;
use argala_wire::{Code, graphs::GraphsResponse, limits::Bucket};
use axum::{extract::State, response::Response};

use super::{EVERY, Endpoint, NEGOTIATED, PAGED, REGISTERED};
use crate::{
    error::ApiError,
    extract::{Accept, Admitted, Page, Query},
    openapi::Problems,
};

pub(crate) struct Graphs;

impl Endpoint for Graphs {
    const BUCKET: Bucket = Bucket::Pull;
    const PROBLEMS: &'static [&'static [Code]] = &[EVERY, REGISTERED, NEGOTIATED, PAGED];
}

/// List the graphs that the caller may read
///
/// Those that exist, with epoch and head: one call finds what a lost poke would have told.
#[utoipa::path(
    get,
    path = "/graphs",
    operation_id = "listGraphs",
    tag = "graphs",
    params(Page),
    responses(
        (status = 200, description = "One page of graphs", content(
            (GraphsResponse = "application/json"),
            (GraphsResponse = "application/cbor"),
        )),
        Problems<Graphs>,
    ),
)]
pub(crate) async fn graphs(
    State(relay): State<Arc<Relay>>,
    Admitted(caller, ..): Admitted<Graphs>,
    Query(page): Query<Page>,
    accept: Accept,
) -> Result<Response, ApiError> {
    Ok(accept.ok(&relay.graphs(&caller, page.into()).await?))
}
