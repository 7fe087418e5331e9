//! The process that sweeps a cluster: one of several leads, the others wait.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use argala_core::{
    StoreError,
    ports::SystemRandom,
    sweep::{Preview, SweepReport},
};
use argala_postgres::{Leadership, lead};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{passes_from_now, sweep};
use crate::{
    config::{Config, StoreKind},
    ports::{OpenError, Ports, server_options},
    server::{
        MAX_PROBES, ServeError, Stopped, bind,
        connections::{self, Limits},
        probes::{self, Health},
        signals::Signals,
    },
};

/// The longest pause before another look whether the lock is free.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Why a sweeper did not run.
#[derive(Debug, thiserror::Error)]
pub enum SweeperError {
    /// There is nothing for it to do: the store is a file, and the relay that serves it sweeps it.
    #[error(
        "store.kind = \"sqlite\": the relay that serves the file sweeps it, every sweep.interval; \
         `sweeper once` works on it, `sweeper run` is for a cluster"
    )]
    Embedded,
    /// `sweep.interval` is zero.
    #[error("sweep.interval = \"0s\" means never; `sweeper once` sweeps all the same")]
    Never,
    /// It could not begin.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A port did not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store failed in the middle of the pass. What was done stays done.
    #[error("the store failed: {0}")]
    Store(#[from] StoreError),
    /// The connection with the lock broke in the middle of the pass.
    #[error("the connection with the sweeper's lock was lost; what was done stays done")]
    Lost,
}

/// What became of `sweeper once`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Once {
    /// Whether it swept; it did not where another sweeper was at work.
    pub swept: bool,
    /// Blobs forgotten, by why.
    pub forgotten: std::collections::BTreeMap<&'static str, u64>,
    /// Objects removed that no row named.
    pub leaked_objects: u64,
    /// Tombstones removed.
    pub tombstones: u64,
    /// Idempotency keys removed.
    pub idempotency_keys: u64,
    /// Graphs of abandoned groups that have begun to go.
    pub abandoned_graphs: u64,
    /// Rows removed of graphs that are going.
    pub erased_rows: u64,
    /// Objects that could not be removed or listed.
    pub failed: u64,
    /// Questions that the directory did not answer.
    pub doubts: u64,
    /// Whether more is due than there was time for.
    pub more: bool,
}

impl From<SweepReport> for Once {
    fn from(report: SweepReport) -> Self {
        Self {
            swept: true,
            forgotten: report.forgotten,
            leaked_objects: report.leaked,
            tombstones: report.tombstones,
            idempotency_keys: report.idempotency_keys,
            abandoned_graphs: report.abandoned,
            erased_rows: report.erased,
            failed: report.failed,
            doubts: report.doubts,
            more: report.cut_short,
        }
    }
}

async fn try_to_lead(config: &Config) -> Result<Option<Leadership>, OpenError> {
    lead(&server_options(&config.store), config.sweep.lease.0)
        .await
        .map_err(OpenError::Postgres)
}

/// Runs one pass, unless another sweeper leads.
///
/// # Errors
/// Where the store cannot be opened, or fails.
pub async fn once(config: &Config) -> Result<Once, SweeperError> {
    let ports = Ports::open_for_upkeep(config).await?;
    if let Some(store) = &ports.sweep {
        let report = sweep(config, &ports, Arc::clone(store)).pass().await?;
        return Ok(report.into());
    }
    let Some(leadership) = try_to_lead(config).await? else {
        return Ok(Once {
            swept: false,
            ..SweepReport::default().into()
        });
    };
    let sweep = sweep(config, &ports, leadership.store());
    let report = tokio::select! {
        biased;
        () = leadership.lost() => return Err(SweeperError::Lost),
        report = sweep.pass() => report?,
    };
    leadership.close().await;
    ports.close().await;
    Ok(report.into())
}

/// Tells what a pass would forget now, at most `limit` of each kind. Changes nothing and needs no
/// lead.
///
/// # Errors
/// Where the store cannot be opened, or fails.
pub async fn preview(config: &Config, limit: usize) -> Result<Preview, SweeperError> {
    let ports = Ports::open_for_upkeep(config).await?;
    let store = ports.sweep.clone().or_else(|| ports.server_sweep());
    let store = store.ok_or(SweeperError::Embedded)?;
    let preview = sweep(config, &ports, store).preview(limit).await?;
    ports.close().await;
    Ok(preview)
}

/// A sweeper that is ready to run, with its listener bound.
pub struct Sweeper {
    config: Config,
    ports: Arc<Ports>,
    health: Health,
    admin: (TcpListener, SocketAddr),
    signals: Signals,
}

impl Sweeper {
    /// Binds the listener, then opens the ports. Signals are waited for from here on.
    ///
    /// # Errors
    /// [`SweeperError`], in one sentence.
    pub async fn open(config: Config) -> Result<Self, SweeperError> {
        if config.store.kind == StoreKind::Sqlite {
            return Err(SweeperError::Embedded);
        }
        if config.sweep.interval.0.is_zero() {
            return Err(SweeperError::Never);
        }
        let signals = Signals::listen().map_err(ServeError::Signals)?;
        let admin = bind("admin.listen", config.admin.listen).await?;
        let ports = Arc::new(Ports::open_for_upkeep(&config).await?);
        Ok(Self {
            health: Health::of_sweeper(&ports),
            config,
            ports,
            admin,
            signals,
        })
    }

    /// Where an orchestrator asks.
    #[must_use]
    pub fn admin_url(&self) -> String {
        format!("http://{}", self.admin.1)
    }

    /// Sweeps whenever it leads, until a signal says stop. A pass that is under way is dropped then:
    /// the next one, here or elsewhere, goes on.
    pub async fn run(mut self) -> Stopped {
        let stop = CancellationToken::new();
        let limits = Limits {
            header_timeout: self.config.http.header_timeout.0,
            write_timeout: self.config.http.write_timeout.0,
            max_connections: MAX_PROBES,
            random: Arc::new(SystemRandom),
        };
        let serving = tokio::spawn(connections::serve(
            self.admin.0,
            probes::router(self.health.clone()),
            limits,
            stop.clone(),
        ));
        let signal = tokio::select! {
            signal = self.signals.first() => signal,
            never = lead_and_wait(&self.config, &self.ports, &self.health) => match never {},
        };
        tracing::info!(signal = signal.name(), "stopping");
        self.health.stop();
        self.ports.close().await;
        stop.cancel();
        let grace = self.config.shutdown.grace.0;
        let stopped = tokio::select! {
            ended = tokio::time::timeout(grace, serving) => match ended {
                Ok(_) => Stopped::Finished,
                Err(_) => Stopped::Cut,
            },
            second = self.signals.second() => second.exit(),
        };
        tracing::info!("stopped");
        stopped
    }
}

/// Leads while it can, and waits while another does.
async fn lead_and_wait(
    config: &Config,
    ports: &Ports,
    health: &Health,
) -> std::convert::Infallible {
    let every = config.sweep.interval.0;
    let look_again = (config.sweep.lease.0 / 3).min(LONGEST_WAIT);
    let mut waits = false;
    loop {
        match try_to_lead(config).await {
            Ok(Some(leadership)) => {
                waits = false;
                health.lead(true);
                tracing::info!("this sweeper leads");
                let sweep = sweep(config, ports, leadership.store());
                tokio::select! {
                    biased;
                    () = leadership.lost() => {}
                    () = passes_from_now(&sweep, every) => {}
                }
                health.lead(false);
                tracing::warn!("this sweeper leads no longer: its connection was lost");
            }
            Ok(None) => {
                if !waits {
                    tracing::info!("another sweeper leads; this one waits");
                }
                waits = true;
            }
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the sweeper cannot reach its store; it tries again"
            ),
        }
        tokio::time::sleep(look_again).await;
    }
}
