//! The routes, one file each, and what they have in common.

#![expect(
    unused_qualifications,
    reason = "utoipa's macros qualify what they are given"
)]

mod blob_delete;
mod blob_get;
mod blob_put;
mod devices;
mod grant;
mod graph;
mod graph_devices;
mod graphs;
mod limits;
mod pokes;
mod pull;
mod push;
mod register;
mod revoke;
mod rotate;
mod wraps;

use std::{collections::BTreeMap, sync::Arc};

use argala_core::Gate;
use argala_wire::{Code, limits::Bucket};
use axum::{
    Extension,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, header};
use utoipa::openapi::{OpenApi, path::PathItem};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Api, RouteTemplate,
    error::{ApiError, Refusal},
    openapi,
};

/// What the checks before a route's own work, and its documentation, need to know of it.
pub(crate) trait Endpoint: Send + Sync + 'static {
    /// The allowance that it draws from.
    const BUCKET: Bucket;
    /// Whom it serves.
    const GATE: Gate = Gate::Registered;
    /// The problems that it can answer with, in groups.
    const PROBLEMS: &'static [&'static [Code]];
}

/// The problems of every route.
pub(crate) const EVERY: &[Code] = &[
    Code::InvalidRequest,
    Code::Unauthenticated,
    Code::DeviceRevoked,
    Code::MemberInactive,
    Code::RateLimited,
    Code::Internal,
    Code::Unavailable,
];
/// The problem of every route that serves registered devices alone.
pub(crate) const REGISTERED: &[Code] = &[Code::DeviceUnregistered];
/// The problem of every route about one graph.
pub(crate) const IN_GRAPH: &[Code] = &[Code::GraphNotFound];
/// The problem of every route that answers in JSON or CBOR, as the caller likes.
pub(crate) const NEGOTIATED: &[Code] = &[Code::NotAcceptable];
/// The problem of every list that goes by pages.
pub(crate) const PAGED: &[Code] = &[Code::CursorInvalid];
/// The problems of every route that reads a body.
pub(crate) const BODY: &[Code] = &[Code::BodyTooLarge, Code::UnsupportedMediaType];

/// Every route, and its documentation.
pub(crate) fn all() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(openapi::frame())
        .routes(routes!(register::register, devices::devices))
        .routes(routes!(revoke::revoke))
        .routes(routes!(graphs::graphs))
        .routes(routes!(graph::graph))
        .routes(routes!(graph_devices::graph_devices))
        .routes(routes!(wraps::wraps))
        .routes(routes!(rotate::rotate))
        .routes(routes!(grant::grant))
        .routes(routes!(push::push))
        .routes(routes!(pull::pull))
        .routes(routes!(
            blob_put::put_blob,
            blob_get::get_blob,
            blob_delete::delete_blob
        ))
        .routes(routes!(pokes::pokes))
        .routes(routes!(limits::limits))
}

/// The methods that each route has, for `Allow`. The router's own list names HEAD twice where one
/// handler serves it beside GET.
pub(crate) struct Methods(BTreeMap<String, HeaderValue>);

impl Methods {
    /// The methods that `document` tells of, which is made of the same handlers as the routes.
    pub(crate) fn of(document: &OpenApi) -> Self {
        let allow = |item: &PathItem| {
            let methods = [
                ("DELETE", item.delete.is_some()),
                ("GET", item.get.is_some()),
                // What answers GET answers HEAD.
                ("HEAD", item.head.is_some() || item.get.is_some()),
                ("POST", item.post.is_some()),
                ("PUT", item.put.is_some()),
            ];
            let methods: Vec<_> = methods
                .into_iter()
                .filter_map(|(name, has)| has.then_some(name))
                .collect();
            HeaderValue::try_from(methods.join(", ")).expect("methods are legal in a header")
        };
        let paths = document.paths.paths.iter();
        Self(
            paths
                .map(|(path, item)| (path.clone(), allow(item)))
                .collect(),
        )
    }
}

/// The answer to a path that is no route.
pub(crate) async fn not_found() -> ApiError {
    Refusal::NotFound.into()
}

/// The answer to a method that a route does not have.
pub(crate) async fn method_not_allowed(
    State(methods): State<Arc<Methods>>,
    Extension(template): Extension<RouteTemplate>,
) -> Response {
    let mut response = ApiError::from(Refusal::MethodNotAllowed).into_response();
    if let Some(allow) = methods.0.get(template.as_str()) {
        response.headers_mut().insert(header::ALLOW, allow.clone());
    }
    response
}
