//! Route 6: the devices of a graph.

use std::sync::Arc;

use argala_core::{PageQuery, Relay};
use argala_wire::{Code, devices::DevicesResponse, limits::Bucket};
use axum::{extract::State, response::Response};
use utoipa::{IntoParams, ToSchema};

use super::{EVERY, Endpoint, IN_GRAPH, NEGOTIATED, PAGED, REGISTERED};
use crate::{
    error::ApiError,
    extract::{Accept, InGraph, Page, Query, QueryParams, Values},
    openapi::{GraphIdParam, Problems},
};

pub(crate) struct GraphDevices;

impl Endpoint for GraphDevices {
    const BUCKET: Bucket = Bucket::Keys;
    const PROBLEMS: &'static [&'static [Code]] = &[EVERY, REGISTERED, IN_GRAPH, NEGOTIATED, PAGED];
}

/// Which devices, and which page of them.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RosterQuery {
    /// Where the last page ended: its `cursor`.
    cursor: Option<String>,
    /// How many devices at the most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u64>,
    /// Adds the devices that are off the roster but ever held a wrap of this graph.
    #[param(inline)]
    revoked: Option<Revoked>,
}

/// The one thing that `revoked` can say.
#[derive(Debug, Clone, Copy, ToSchema)]
#[schema(rename_all = "lowercase")]
pub(crate) enum Revoked {
    /// Them too.
    Include,
}

impl QueryParams for RosterQuery {
    fn read(values: &mut Values) -> Result<Self, ApiError> {
        let Page { cursor, limit } = Page::read(values)?;
        let revoked = match values.take("revoked").as_deref() {
            None => None,
            Some("include") => Some(Revoked::Include),
            Some(_) => return Err(ApiError::invalid("revoked", "revoked is include or absent")),
        };
        Ok(Self {
            cursor,
            limit,
            revoked,
        })
    }
}

/// List the devices of a graph
///
/// The roster: every active device of every active member. With `revoked=include` also those that
/// are off it but ever held the graph's key, since their signing keys verify old records.
#[utoipa::path(
    get,
    path = "/graphs/{graphId}/devices",
    operation_id = "listGraphDevices",
    tag = "graphs",
    params(GraphIdParam, RosterQuery),
    responses(
        (status = 200, description = "One page of devices", content(
            (DevicesResponse = "application/json"),
            (DevicesResponse = "application/cbor"),
        )),
        Problems<GraphDevices>,
    ),
)]
pub(crate) async fn graph_devices(
    State(relay): State<Arc<Relay>>,
    InGraph(access, ..): InGraph<GraphDevices>,
    Query(RosterQuery {
        cursor,
        limit,
        revoked,
    }): Query<RosterQuery>,
    accept: Accept,
) -> Result<Response, ApiError> {
    let former = matches!(revoked, Some(Revoked::Include));
    Ok(accept.ok(&relay
        .graph_devices(&access, former, PageQuery { cursor, limit })
        .await?))
}
