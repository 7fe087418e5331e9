//! Route 10: records are pushed.

use std::sync::Arc;

use argala_core::{Access, IdempotencyKey, Relay};
use argala_wire::{
    Code,
    limits::Bucket,
    records::{PushRequest, PushResponse},
};
use axum::{extract::State, response::Response};
use sha2::{Digest, Sha256};

use super::{BODY, EVERY, Endpoint, IN_GRAPH, NEGOTIATED, REGISTERED};
use crate::{
    error::{ApiError, Refusal},
    extract::{Accept, Entity, Idempotency, InGraph, Query},
    openapi::{GraphIdParam, IdempotencyKeyParam, Problems},
};

pub(crate) struct Push;

impl Endpoint for Push {
    const BUCKET: Bucket = Bucket::Push;
    const PROBLEMS: &'static [&'static [Code]] = &[
        EVERY,
        REGISTERED,
        IN_GRAPH,
        NEGOTIATED,
        BODY,
        &[
            Code::GraphUnkeyed,
            Code::PushRejected,
            Code::IdempotencyConflict,
            Code::HeadMoved,
        ],
    ];
}

/// Push records to a graph
///
/// Each record is judged by itself, unless `atomic`. The same content again is accepted with the
/// seq it has; with an `Idempotency-Key`, the whole push answers as it did the first time.
#[utoipa::path(
    post,
    path = "/graphs/{graphId}/push",
    operation_id = "push",
    tag = "records",
    params(GraphIdParam, IdempotencyKeyParam),
    request_body(content(
        (PushRequest = "application/json"),
        (PushRequest = "application/cbor"),
    )),
    responses(
        (status = 200, description = "What became of each record", content(
            (PushResponse = "application/json"),
            (PushResponse = "application/cbor"),
        )),
        Problems<Push>,
    ),
)]
pub(crate) async fn push(
    State(relay): State<Arc<Relay>>,
    InGraph(access, ..): InGraph<Push>,
    Query(()): Query<()>,
    accept: Accept,
    Idempotency(key): Idempotency,
    entity: Entity,
) -> Result<Response, ApiError> {
    let (request, key) = read(&relay, &access, entity, key).await?;
    Ok(accept.ok(&relay.push(&access, request, key).await?))
}

/// The body, and the idempotency key together with the hash of the body's bytes as they came.
async fn read(
    relay: &Relay,
    access: &Access,
    entity: Entity,
    key: Option<String>,
) -> Result<(PushRequest, Option<IdempotencyKey>), ApiError> {
    let read = entity
        .read(relay.quotas().max_push_bytes)
        .await
        .inspect_err(|error| {
            if matches!(error, ApiError::Refused(Refusal::BodyTooLarge { .. })) {
                relay.reject_push_body(access);
            }
        })?;
    let request = read.decode()?;
    let body_sha256 = |key| IdempotencyKey {
        key,
        body_sha256: Sha256::digest(&read.bytes).into(),
    };
    Ok((request, key.map(body_sha256)))
}
