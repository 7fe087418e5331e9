//! Route 11: records are pulled.

use std::sync::Arc;

use argala_core::{PullQuery, Relay, ports::store::Pulled};
use argala_wire::{Code, limits::Bucket, records::PullResponse};
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use utoipa::IntoParams;

use super::{EVERY, Endpoint, IN_GRAPH, NEGOTIATED, PAGED, REGISTERED};
use crate::{
    error::ApiError,
    extract::{Accept, IfNoneMatch, InGraph, Page, Query, QueryParams, Values, entity_tag},
    openapi::{GraphIdParam, IfNoneMatchParam, Problems},
};

pub(crate) struct Pull;

impl Endpoint for Pull {
    const BUCKET: Bucket = Bucket::Pull;
    const PROBLEMS: &'static [&'static [Code]] = &[EVERY, REGISTERED, IN_GRAPH, NEGOTIATED, PAGED];
}

/// Which records.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RecordsQuery {
    /// Where the last page ended: its `cursor`.
    cursor: Option<String>,
    /// How many records at the most; 500 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u64>,
    /// This epoch alone, with cursors of its own.
    #[param(minimum = 1)]
    epoch: Option<u64>,
}

impl QueryParams for RecordsQuery {
    fn read(values: &mut Values) -> Result<Self, ApiError> {
        let Page { cursor, limit } = Page::read(values)?;
        Ok(Self {
            cursor,
            limit,
            epoch: values.number("epoch")?,
        })
    }
}

/// Pull a graph's records
///
/// The newest version of every record whose seq lies after the cursor, ascending. Records of
/// epochs of which the device holds no wrap are held back and counted.
#[utoipa::path(
    get,
    path = "/graphs/{graphId}/pull",
    operation_id = "pull",
    tag = "records",
    params(GraphIdParam, RecordsQuery, IfNoneMatchParam),
    responses(
        (status = 200, description = "One page of records", headers(
            ("ETag" = String, description = "Changes when this page would"),
        ), content(
            (PullResponse = "application/json"),
            (PullResponse = "application/cbor"),
        )),
        (status = 304, description = "The caller has this page already", headers(
            ("ETag" = String, description = "The page's tag"),
        )),
        Problems<Pull>,
    ),
)]
pub(crate) async fn pull(
    State(relay): State<Arc<Relay>>,
    InGraph(access, ..): InGraph<Pull>,
    Query(RecordsQuery {
        cursor,
        limit,
        epoch,
    }): Query<RecordsQuery>,
    accept: Accept,
    known: IfNoneMatch,
) -> Result<Response, ApiError> {
    let variant = accept.0.media_type();
    let query = PullQuery {
        cursor,
        limit,
        epoch,
        variant,
        if_none_match: known.tags,
        has_any: known.any,
    };
    let (mut response, tag) = match relay.pull(&access, query).await? {
        Pulled::Page(page) => (accept.ok(&page.page), page.tag),
        Pulled::Unchanged { tag } => (StatusCode::NOT_MODIFIED.into_response(), tag),
    };
    let headers = response.headers_mut();
    headers.insert(header::ETAG, entity_tag(&tag));
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("private, no-cache"),
    );
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    Ok(response)
}
