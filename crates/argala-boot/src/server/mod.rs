//! The running process: two listeners, the relay between them, and an orderly end.

mod bodies;
pub(crate) mod connections;
pub(crate) mod probes;
pub(crate) mod signals;
mod strays;
mod stream;

use std::{io, net::SocketAddr, sync::Arc};

use argala_core::Relay;
use argala_http::Authenticate;
use axum::{
    Router,
    middleware::{from_fn, from_fn_with_state},
};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::Config,
    ports::{OpenError, Ports},
    sweeping,
};

pub use probes::admin_paths;

use connections::Limits;
use probes::Health;
use signals::Signals;

/// How many connections an orchestrator may have at once.
pub(crate) const MAX_PROBES: u32 = 64;

/// Why a relay did not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A listener's address is not to be had.
    #[error("cannot listen on {address} ({key}): {}", reason(error))]
    Listen {
        /// The key of the configuration.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why. In the sentence already, in our words, so no source of it.
        error: io::Error,
    },
    /// A port did not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The system does not tell us when to stop.
    #[error("cannot wait for signals: {0}")]
    Signals(#[source] io::Error),
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => "another process listens there already".to_owned(),
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
        io::ErrorKind::PermissionDenied => "the system does not permit it".to_owned(),
        _ => error.to_string(),
    }
}

/// How a process that was told to stop has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Everything in flight was finished.
    Finished,
    /// The grace ended before everything in flight had.
    Cut,
}

/// A relay that is ready to serve, with its listeners bound.
pub struct Server {
    config: Config,
    ports: Arc<Ports>,
    relay: Arc<Relay>,
    authenticate: Arc<dyn Authenticate>,
    health: Health,
    public: (TcpListener, SocketAddr),
    admin: (TcpListener, SocketAddr),
    signals: Signals,
}

impl Server {
    /// Binds both listeners, then opens the ports. Signals are waited for from here on.
    ///
    /// `prepare` is given the ports before anything is served.
    ///
    /// # Errors
    /// [`ServeError`], in one sentence.
    pub async fn open<F>(
        config: Config,
        prepare: impl FnOnce(Arc<Ports>) -> F,
    ) -> Result<Self, ServeError>
    where
        F: Future<Output = Result<(), OpenError>>,
    {
        let signals = Signals::listen().map_err(ServeError::Signals)?;
        // First: a port that is taken often means that this very database is being served.
        let public = bind("http.listen", config.http.listen).await?;
        let admin = bind("admin.listen", config.admin.listen).await?;
        let ports = Arc::new(Ports::open(&config).await?);
        prepare(Arc::clone(&ports)).await?;
        let (relay, authenticate) = ports.relay(&config)?;
        Ok(Self {
            health: Health::new(&ports),
            config,
            ports,
            relay,
            authenticate,
            public,
            admin,
            signals,
        })
    }

    /// Where clients find the routes: scheme, address, real port, prefix.
    #[must_use]
    pub fn base_url(&self) -> String {
        let prefix = self.config.http.prefix.trim_end_matches('/');
        format!("http://{}{prefix}", self.public.1)
    }

    /// Where an orchestrator asks.
    #[must_use]
    pub fn admin_url(&self) -> String {
        format!("http://{}", self.admin.1)
    }

    /// Serves until a signal says stop; then ends in order, within the grace.
    pub async fn run(mut self) -> Stopped {
        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        let http = &self.config.http;
        let limits = Limits {
            header_timeout: http.header_timeout.0,
            write_timeout: http.write_timeout.0,
            max_connections: http.max_connections,
            random: Arc::clone(self.relay.random()),
        };
        let public = connections::serve(
            self.public.0,
            public_router(&self.config, &self.relay, &self.authenticate),
            limits.clone(),
            stop.clone(),
        );
        let public = tasks.spawn(public);
        // Until the very end: an orchestrator that is not answered takes the process for dead.
        let admin_stop = CancellationToken::new();
        let admin_limits = Limits {
            max_connections: MAX_PROBES,
            ..limits
        };
        tokio::spawn(connections::serve(
            self.admin.0,
            probes::router(self.health.clone()),
            admin_limits,
            admin_stop.clone(),
        ));
        // Only one process may: replicas that share a store have no such port.
        if let Some(store) = &self.ports.sweep {
            let sweep = sweeping::sweep(&self.config, &self.ports, Arc::clone(store));
            let every = self.config.sweep.interval.0;
            let stop = stop.clone();
            tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = sweeping::passes(&sweep, every) => {}
                }
            });
        }
        tasks.close();

        let signal = self.signals.first().await;
        let grace = self.config.shutdown.grace.0;
        tracing::info!(signal = signal.name(), ?grace, "stopping");
        self.health.stop();
        stop.cancel();
        let in_order = async {
            // Streams end only when the relay closes them, and connections with streams only
            // when those end: both at once.
            let _ = tokio::join!(public, self.relay.close());
            tasks.wait().await;
            // For what requests have left behind since.
            self.relay.close().await;
            self.ports.close().await;
        };
        let stopped = tokio::select! {
            ended = tokio::time::timeout(grace, in_order) => match ended {
                Ok(()) => Stopped::Finished,
                Err(_) => Stopped::Cut,
            },
            second = self.signals.second() => second.exit(),
        };
        admin_stop.cancel();
        match stopped {
            Stopped::Finished => tracing::info!("stopped"),
            Stopped::Cut => {
                tracing::warn!(?grace, "stopped with requests in flight: the grace ended");
            }
        }
        stopped
    }
}

pub(crate) async fn bind(
    key: &'static str,
    address: SocketAddr,
) -> Result<(TcpListener, SocketAddr), ServeError> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let real = listener.local_addr()?;
        Ok((listener, real))
    };
    bound.await.map_err(|error| ServeError::Listen {
        key,
        address,
        error,
    })
}

/// The routes below their prefix, with what surrounds every request of this process.
fn public_router(
    config: &Config,
    relay: &Arc<Relay>,
    authenticate: &Arc<dyn Authenticate>,
) -> Router {
    let routes = argala_http::router(Arc::clone(relay), Arc::clone(authenticate));
    let prefix = &config.http.prefix;
    let routes = if prefix == "/" {
        routes
    } else {
        Router::new()
            .nest(prefix, routes.with_state(()))
            .fallback(strays::not_found)
            .with_state(Arc::clone(relay.random()))
    };
    let bodies = bodies::Bodies::new(
        config.http.body_timeout.0,
        config.http.max_buffered_bytes.0,
        Arc::clone(relay.random()),
    );
    routes
        .layer(from_fn_with_state(bodies, bodies::watch))
        .layer(from_fn(strays::log))
}
