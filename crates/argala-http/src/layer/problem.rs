//! Problem documents in the form that the caller accepts.

use argala_core::ports::Random;
use argala_wire::{PROBLEM_JSON, Problem, codec::Format};
use axum::{body::Body, response::Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::request_id::RequestId;
use crate::extract::Accepts;

/// `problem` as an answer to a request with these headers: what the router itself would say.
///
/// For what stands in front of the router and refuses requests before they reach it (too many
/// connections, say), so that callers read one kind of error.
pub fn render_problem(
    request_headers: &HeaderMap,
    problem: &Problem,
    random: &dyn Random,
) -> Response {
    let mut response = Response::default();
    *response.status_mut() =
        StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let id = RequestId::of(request_headers, random);
    response.headers_mut().insert("x-request-id", id.header());
    render(response, problem, Accepts::of(request_headers))
}

/// Puts `problem` into `response`, which has its status and the headers that go with it.
pub(super) fn render(mut response: Response, problem: &Problem, accepts: Accepts) -> Response {
    let format = accepts.problem();
    let media_type = match format {
        Format::Json => PROBLEM_JSON,
        Format::Cbor => format.media_type(),
    };
    let body = format.encode(problem);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CONTENT_LENGTH, body.len().into());
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    *response.body_mut() = Body::from(body);
    response
}
