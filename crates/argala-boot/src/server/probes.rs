//! What an orchestrator asks, on a listener of its own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use argala_core::ports::Store;
use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    routing::{MethodRouter, get},
};
use serde_json::{Value, json};

use crate::ports::Ports;

/// How long a backend may take to say that it is there.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// What readiness rests on.
#[derive(Clone)]
pub(crate) struct Health {
    store: Arc<dyn Store>,
    schema: u32,
    name: &'static str,
    stopping: Arc<AtomicBool>,
    /// Whether this process leads, where only one of several does.
    leads: Option<Arc<AtomicBool>>,
}

impl Health {
    pub(crate) fn new(ports: &Ports) -> Self {
        Self {
            store: Arc::clone(&ports.store),
            schema: ports.schema,
            name: "relay",
            stopping: Arc::default(),
            leads: None,
        }
    }

    /// The same for a sweeper, which is ready whether it leads or waits, and says which.
    pub(crate) fn of_sweeper(ports: &Ports) -> Self {
        Self {
            name: "sweeper",
            leads: Some(Arc::default()),
            ..Self::new(ports)
        }
    }

    /// Notes whether this process leads.
    pub(crate) fn lead(&self, leads: bool) {
        if let Some(state) = &self.leads {
            state.store(leads, Ordering::Relaxed);
        }
    }

    /// From now on the process is not ready: balancers should send requests elsewhere.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

/// Every route of this listener: there is no other list, so that whoever goes through all of them
/// misses none.
fn routes() -> [(&'static str, MethodRouter<Health>); 3] {
    [
        ("/healthz", get(|| async { Json(json!({"status": "ok"})) })),
        ("/readyz", get(ready)),
        ("/version", get(version)),
    ]
}

/// The paths at which this listener answers `GET`.
#[must_use]
pub fn admin_paths() -> Vec<&'static str> {
    routes().into_iter().map(|(path, _)| path).collect()
}

pub(crate) fn router(health: Health) -> Router {
    let add = |router: Router<Health>, (path, route)| router.route(path, route);
    let router = routes().into_iter().fold(Router::new(), add);
    router.with_state(health)
}

/// Ready while every backend answers that the relay cannot serve without, and it is not stopping.
async fn ready(State(health): State<Health>) -> (StatusCode, Json<Value>) {
    let store = match tokio::time::timeout(PING_TIMEOUT, health.store.ping()).await {
        Ok(Ok(())) => "ok",
        Ok(Err(_)) => "failing",
        Err(_) => "slow",
    };
    let stopping = health.stopping.load(Ordering::Relaxed);
    let ready = store == "ok" && !stopping;
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let mut body = json!({"ready": ready, "stopping": stopping, "checks": {"store": store}});
    if let Some(leads) = &health.leads {
        body["leader"] = leads.load(Ordering::Relaxed).into();
    }
    (status, Json(body))
}

/// What this build is.
async fn version(State(health): State<Health>) -> Json<Value> {
    Json(json!({
        "name": health.name,
        "version": env!("CARGO_PKG_VERSION"),
        "schema": health.schema,
    }))
}
