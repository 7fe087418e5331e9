//! Route 7: the calling device's own wraps.

use std::sync::Arc;

use argala_core::{PageQuery, Relay};
use argala_wire::{Code, keys::WrapsResponse, limits::Bucket};
use axum::{extract::State, response::Response};
use utoipa::IntoParams;

use super::{EVERY, Endpoint, IN_GRAPH, NEGOTIATED, PAGED, REGISTERED};
use crate::{
    error::ApiError,
    extract::{Accept, InGraph, Page, Query, QueryParams, Values},
    openapi::{GraphIdParam, Problems},
};

pub(crate) struct Wraps;

impl Endpoint for Wraps {
    const BUCKET: Bucket = Bucket::Keys;
    const PROBLEMS: &'static [&'static [Code]] = &[EVERY, REGISTERED, IN_GRAPH, NEGOTIATED, PAGED];
}

/// Which wraps.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WrapsQuery {
    /// Those of later epochs alone; all of them by default.
    after: Option<u64>,
    /// Where the last page ended: its `cursor`.
    cursor: Option<String>,
    /// How many wraps at the most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u64>,
}

impl QueryParams for WrapsQuery {
    fn read(values: &mut Values) -> Result<Self, ApiError> {
        let Page { cursor, limit } = Page::read(values)?;
        Ok(Self {
            after: values.number("after")?,
            cursor,
            limit,
        })
    }
}

/// List the calling device's wraps of a graph
///
/// Its own and no other device's, epochs ascending.
#[utoipa::path(
    get,
    path = "/graphs/{graphId}/wraps",
    operation_id = "listWraps",
    tag = "keys",
    params(GraphIdParam, WrapsQuery),
    responses(
        (status = 200, description = "One page of wraps", content(
            (WrapsResponse = "application/json"),
            (WrapsResponse = "application/cbor"),
        )),
        Problems<Wraps>,
    ),
)]
pub(crate) async fn wraps(
    State(relay): State<Arc<Relay>>,
    InGraph(access, ..): InGraph<Wraps>,
    Query(WrapsQuery {
        after,
        cursor,
        limit,
    }): Query<WrapsQuery>,
    accept: Accept,
) -> Result<Response, ApiError> {
    let page = PageQuery { cursor, limit };
    Ok(accept.ok(&relay.wraps(&access, after.unwrap_or(0), page).await?))
}
