//! What surrounds every answer: its request id, its span and log line, the form of its problems,
//! the containment of panics, and what becomes of a body that nobody read.

mod linger;
mod problem;
mod request_id;
mod template;

use std::panic::AssertUnwindSafe;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;
use http::Method;
use tracing::{Instrument, field};

use crate::{
    Api,
    error::{ApiError, Refusal, Told},
    extract::Accepts,
};

pub use problem::render_problem;
pub use template::{RouteTemplate, UNMATCHED};

use linger::Shared;
use request_id::RequestId;

/// The layer around all routes, the fallbacks included.
pub(crate) async fn surround(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let id = RequestId::of(request.headers(), api.relay.random().as_ref());
    let template = RouteTemplate::of(request.extensions());
    request.extensions_mut().insert(template.clone());
    // Never the path or the query: they hold ids.
    let span = tracing::info_span!(
        "request",
        method = known(request.method()),
        route = template.as_str(),
        request_id = id.as_str(),
        status = field::Empty,
    );
    let answered = async {
        let began = tokio::time::Instant::now();
        let mut response = answer(request, next).await;
        let status = response.status().as_u16();
        tracing::Span::current().record("status", status);
        tracing::info!(
            status,
            elapsed_ms = began.elapsed().as_secs_f64() * 1e3,
            "answered"
        );
        response.headers_mut().insert("x-request-id", id.header());
        response.extensions_mut().insert(template);
        response
    };
    answered.instrument(span.clone()).await
}

async fn answer(request: Request, next: Next) -> Response {
    let accepts = Accepts::of(request.headers());
    let (parts, body) = request.into_parts();
    let linger = linger::is_due(&parts);
    let mut body = Shared::new(body);
    let request = Request::from_parts(parts, body.lend());
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let mut response =
        answered.unwrap_or_else(|_| ApiError::from(Refusal::Panicked).into_response());
    if linger {
        body.drain().await;
    }
    match response.extensions_mut().remove::<Told>() {
        Some(Told(problem)) => problem::render(response, &problem, accepts),
        None => response,
    }
}

/// The methods that a label may name. Any other is the caller's invention.
fn known(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        "PATCH" => "PATCH",
        _ => "_OTHER",
    }
}
