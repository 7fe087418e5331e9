//! Route 3: a member revokes one of their devices.

use std::sync::Arc;

use argala_core::Relay;
use argala_wire::{Code, DeviceId, devices::RevokeResponse, limits::Bucket};
use axum::{extract::State, response::Response};

use super::{EVERY, Endpoint, NEGOTIATED, REGISTERED};
use crate::{
    error::ApiError,
    extract::{Accept, Admitted, InPath, Query},
    openapi::{DeviceIdParam, Problems},
};

pub(crate) struct Revoke;

impl Endpoint for Revoke {
    const BUCKET: Bucket = Bucket::Keys;
    const PROBLEMS: &'static [&'static [Code]] =
        &[EVERY, REGISTERED, NEGOTIATED, &[Code::DeviceNotFound]];
}

/// Revoke one of the calling member's devices
///
/// Once this answers, nothing more is accepted from the device. Every graph of whose current epoch
/// it holds a wrap owes a rotation.
#[utoipa::path(
    delete,
    path = "/devices/{deviceId}",
    operation_id = "revokeDevice",
    tag = "devices",
    params(DeviceIdParam),
    responses(
        (status = 200, description = "The device is revoked", content(
            (RevokeResponse = "application/json"),
            (RevokeResponse = "application/cbor"),
        )),
        Problems<Revoke>,
    ),
)]
pub(crate) async fn revoke(
    State(relay): State<Arc<Relay>>,
    Admitted(caller, ..): Admitted<Revoke>,
    InPath(device): InPath<DeviceId>,
    Query(()): Query<()>,
    accept: Accept,
) -> Result<Response, ApiError> {
    Ok(accept.ok(&relay.revoke(&caller, device).await?))
}
