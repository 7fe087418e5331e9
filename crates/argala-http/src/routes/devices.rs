//! Route 2: the calling member's devices.

use std::sync::Arc;

use argala_core::Relay;
use argala_wire::{Code, devices::DevicesResponse, limits::Bucket};
use axum::{extract::State, response::Response};

use super::{EVERY, Endpoint, NEGOTIATED, PAGED, REGISTERED};
use crate::{
    error::ApiError,
    extract::{Accept, Admitted, Page, Query},
    openapi::Problems,
};

pub(crate) struct Devices;

impl Endpoint for Devices {
    const BUCKET: Bucket = Bucket::Keys;
    const PROBLEMS: &'static [&'static [Code]] = &[EVERY, REGISTERED, NEGOTIATED, PAGED];
}

/// List the calling member's devices
///
/// Revoked ones too, oldest first, and when each was last seen: a device that nobody remembers
/// adding shows only where somebody can see it.
#[utoipa::path(
    get,
    path = "/devices",
    operation_id = "listDevices",
    tag = "devices",
    params(Page),
    responses(
        (status = 200, description = "One page of devices", content(
            (DevicesResponse = "application/json"),
            (DevicesResponse = "application/cbor"),
        )),
        Problems<Devices>,
    ),
)]
pub(crate) async fn devices(
    State(relay): State<Arc<Relay>>,
    Admitted(caller, ..): Admitted<Devices>,
    Query(page): Query<Page>,
    accept: Accept,
) -> Result<Response, ApiError> {
    Ok(accept.ok(&relay.devices(&caller, page.into()).await?))
}
