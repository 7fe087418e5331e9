//! `GET /limits`: every ceiling in force.

use std::sync::Arc;

use argala_core::{Gate, Relay};
use argala_wire::{
    Code,
    limits::{Bucket, LimitsResponse},
};
use axum::{extract::State, response::Response};

use super::{EVERY, Endpoint, NEGOTIATED};
use crate::{
    error::ApiError,
    extract::{Accept, Admitted, Query},
    openapi::Problems,
};

pub(crate) struct Limits;

impl Endpoint for Limits {
    const BUCKET: Bucket = Bucket::Pull;
    const GATE: Gate = Gate::Anyone;
    const PROBLEMS: &'static [&'static [Code]] = &[EVERY, NEGOTIATED];
}

/// Tell every ceiling in force
///
/// Quotas, rates, page sizes and suites, so that no client guesses. Served to devices that are not
/// registered yet.
#[utoipa::path(
    get,
    path = "/limits",
    operation_id = "getLimits",
    tag = "limits",
    responses(
        (status = 200, description = "The ceilings", content(
            (LimitsResponse = "application/json"),
            (LimitsResponse = "application/cbor"),
        )),
        Problems<Limits>,
    ),
)]
pub(crate) async fn limits(
    State(relay): State<Arc<Relay>>,
    Admitted(..): Admitted<Limits>,
    Query(()): Query<()>,
    accept: Accept,
) -> Result<Response, ApiError> {
    Ok(accept.ok(&relay.limits()))
}
