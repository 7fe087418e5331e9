//! The relay over HTTP: [`router`] answers the fourteen routes, `GET /pokes` and `GET /limits`
//! (protocol, sections 3, 4 and 7).
//!
//! The router has no state of its own and nests under any prefix of any axum application.
//! `examples/embed.rs` shows a host that brings its own credentials, directory, events, pokes,
//! blobs, quotas and rate limits.
//!
//! - [`Authenticate`]: who calls. [`DevAuth`] and [`JwtAuth`] are ready-made; [`FirstOf`] tries
//!   several in order.
//! - `extract`: the checks before a handler, in the protocol's order: identity, revocation, rate
//!   limit, the device's and the member's state, the graph, and then the body.
//! - `routes`: one file for each route: what it takes, the one call on [`Relay`], what it answers.
//! - `layer`: what surrounds every answer: request id, span, problem documents.
//! - [`openapi`]: the same routes as an OpenAPI document.
//!
//! What it does not do: no rules (those are `argala-core`'s), no listener, no TLS, no timeouts on
//! connections, no environment, no global state. Apart from the task that axum starts for each
//! WebSocket, which ends with its stream, it starts none.

mod auth;
mod error;
mod extract;
mod layer;
mod openapi;
mod routes;

use std::sync::Arc;

use argala_core::Relay;
use axum::{Router, extract::FromRef, middleware::from_fn_with_state};

pub use auth::{
    AUTH_REASONS, AuthError, Authenticate, DevAuth, FirstOf, JwtAlgorithm, JwtAuth, JwtConfig,
    JwtConfigError, JwtKey, MintError, mint,
};
pub use layer::{RouteTemplate, UNMATCHED, render_problem};
pub use openapi::openapi;

/// What every handler and extractor has at hand.
#[derive(Clone)]
pub(crate) struct Api {
    relay: Arc<Relay>,
    auth: Arc<dyn Authenticate>,
    methods: Arc<routes::Methods>,
}

impl FromRef<Api> for Arc<Relay> {
    fn from_ref(api: &Api) -> Self {
        Arc::clone(&api.relay)
    }
}

impl FromRef<Api> for Arc<routes::Methods> {
    fn from_ref(api: &Api) -> Self {
        Arc::clone(&api.methods)
    }
}

/// The routes of `relay`, for callers that `auth` knows.
///
/// Serve it as it is, or nest it: `Router::new().nest("/api/argala", router(relay, auth))`. It needs
/// no state, so it fits an application with any (`S`). Every answer carries `X-Request-Id`; every error, an unknown path's included, is a problem document.
/// A layer around the router finds the [`RouteTemplate`] in the extensions of each answer.
///
/// Poke streams end when [`Relay::close`] is called: call it when the server shuts down, or open
/// streams hold the shutdown up.
pub fn router<S>(relay: Arc<Relay>, auth: Arc<dyn Authenticate>) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    let (routes, document) = routes::all().split_for_parts();
    let methods = Arc::new(routes::Methods::of(&document));
    let api = Api {
        relay,
        auth,
        methods,
    };
    routes
        .fallback(routes::not_found)
        .method_not_allowed_fallback(routes::method_not_allowed)
        .layer(from_fn_with_state(api.clone(), layer::surround))
        .with_state(api)
}
