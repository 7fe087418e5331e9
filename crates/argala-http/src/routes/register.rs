//! Route 1: the calling device publishes its keys.

use std::sync::Arc;

use argala_core::{Gate, Relay};
use argala_wire::{
    Code,
    devices::{RegisterRequest, RegisterResponse},
    limits::Bucket,
};
use axum::{extract::State, response::Response};
use http::StatusCode;

use super::{BODY, EVERY, Endpoint, NEGOTIATED};
use crate::{
    error::ApiError,
    extract::{Accept, Admitted, Payload, Query, SmallBody},
    openapi::Problems,
};

pub(crate) struct Register;

impl Endpoint for Register {
    const BUCKET: Bucket = Bucket::Keys;
    const GATE: Gate = Gate::Anyone;
    const PROBLEMS: &'static [&'static [Code]] = &[
        EVERY,
        NEGOTIATED,
        BODY,
        &[Code::QuotaExceeded, Code::DeviceKeyMismatch],
    ];
}

/// Publish the calling device's keys
///
/// Served to devices that are not registered yet. The same keys again change nothing but the
/// label; other keys, another kind or another suite are refused.
#[utoipa::path(
    post,
    path = "/devices",
    operation_id = "registerDevice",
    tag = "devices",
    request_body(content(
        (RegisterRequest = "application/json"),
        (RegisterRequest = "application/cbor"),
    )),
    responses(
        (status = 201, description = "The device is registered", content(
            (RegisterResponse = "application/json"),
            (RegisterResponse = "application/cbor"),
        )),
        (status = 200, description = "It was, with the same keys", content(
            (RegisterResponse = "application/json"),
            (RegisterResponse = "application/cbor"),
        )),
        Problems<Register>,
    ),
)]
pub(crate) async fn register(
    State(relay): State<Arc<Relay>>,
    Admitted(caller, ..): Admitted<Register>,
    Query(()): Query<()>,
    accept: Accept,
    Payload(request, ..): Payload<RegisterRequest, SmallBody>,
) -> Result<Response, ApiError> {
    let answer = relay.register(&caller, request).await?;
    let status = if answer.fresh {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok(accept.answer(status, &answer))
}
