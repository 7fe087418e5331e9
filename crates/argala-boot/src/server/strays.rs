//! Requests that never reach the relay's routes.

use std::sync::Arc;

use argala_core::ports::Random;
use argala_http::RouteTemplate;
use argala_wire::{Code, Problem};
use axum::{
    extract::{Request, State},
    http::HeaderMap,
    middleware::Next,
    response::Response,
};

/// Writes the line of a request that was answered in front of the routes. Those that reach them
/// get theirs there.
///
/// Neither the path nor the method is repeated: nothing of ours has matched them.
pub(super) async fn log(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if response.extensions().get::<RouteTemplate>().is_none() {
        tracing::info!(
            route = argala_http::UNMATCHED,
            status = response.status().as_u16(),
            request_id = response
                .headers()
                .get("x-request-id")
                .and_then(|id| id.to_str().ok()),
            "answered in front of the routes"
        );
    }
    response
}

/// What is said outside the prefix.
pub(super) async fn not_found(
    State(random): State<Arc<dyn Random>>,
    headers: HeaderMap,
) -> Response {
    let problem = Problem::new(Code::NotFound, "the relay's routes begin elsewhere");
    argala_http::render_problem(&headers, &problem, random.as_ref())
}
