//! A connection that is watched over: whoever uses it knows at once whether there is one, and waits
//! for none.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fred::{
    clients::{Client, WithOptions},
    error::Error,
    interfaces::ClientLike as _,
    types::{
        ConnectHandle,
        config::{Config, ConnectionConfig, PerformanceConfig, TcpConfig},
    },
};
use futures_util::future::{BoxFuture, try_join_all};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::options::{Options, rotate};

/// How often a connection that is thought well is asked whether it is.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long it may then say nothing before it is given up for another.
const SILENCE: Duration = Duration::from_secs(1);
/// The pauses between attempts to connect, the first and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// Messages that may wait between the library and us. It keeps the newest and tells of a gap.
const MESSAGES: usize = 8_192;

/// What is asked to see whether a connection is well.
pub(crate) type Probe = Box<dyn Fn(Client) -> BoxFuture<'static, Result<(), Error>> + Send + Sync>;

/// What is said when a connection is lost and when it is back, once each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words {
    pub(crate) lost: &'static str,
    pub(crate) back: &'static str,
}

/// Whether there is a connection.
#[derive(Clone)]
pub(crate) enum State {
    /// None, or none that is known to be well.
    Down,
    /// This one.
    Up {
        client: Client,
        /// A new one for each connection: what was subscribed on another is gone.
        number: u64,
    },
}

/// One connection to Redis, made anew whenever it is lost.
///
/// The client library makes none anew by itself here: it takes a link that swallows packets for a
/// good one while something is written to it, and waits for a write as long as the system does.
pub(crate) struct Link {
    state: watch::Sender<State>,
    suspected: Notify,
    /// How long a command may take; one that takes longer is no use to whoever waits.
    patience: Duration,
    connect_timeout: Duration,
    config: Config,
    words: Words,
    attempts: AtomicU64,
    connections: AtomicU64,
}

/// What a probe found.
enum Found {
    Well,
    /// It answers, but not in time, or with an error.
    Poor,
    Dead,
}

impl Link {
    pub(crate) fn new(options: &Options, config: Config, patience: Duration, words: Words) -> Self {
        Self {
            state: watch::Sender::new(State::Down),
            suspected: Notify::new(),
            patience,
            connect_timeout: options.connect_timeout,
            config,
            words,
            attempts: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        }
    }

    /// The client, where there is a connection. Its commands are tried once and wait for no
    /// connection; how long they are waited for is up to [`ask`](Self::ask).
    pub(crate) fn client(&self) -> Option<WithOptions<Client>> {
        match &*self.state.borrow() {
            State::Up { client, .. } => Some(self.prompt(client)),
            State::Down => None,
        }
    }

    pub(crate) fn prompt(&self, client: &Client) -> WithOptions<Client> {
        client.with_options(&fred::types::config::Options {
            max_attempts: Some(1),
            timeout: Some(self.patience),
            fail_fast: true,
            ..Default::default()
        })
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up { .. })
    }

    pub(crate) fn is_clustered(&self) -> bool {
        self.config.server.is_clustered()
    }

    /// Tells of every change.
    pub(crate) fn watch(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Waits for what a command answers, as long as it may take; `None` where it fails or is late,
    /// and then nobody uses the connection until it is known to be well.
    pub(crate) async fn ask<T>(
        &self,
        command: impl Future<Output = Result<T, Error>>,
    ) -> Option<T> {
        let fault = match timeout(self.patience, command).await {
            Ok(Ok(answer)) => return Some(answer),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        self.suspect(&fault);
        None
    }

    /// Takes the connection out of use until it has proved to be well.
    fn suspect(&self, fault: &str) {
        self.down(fault);
        self.suspected.notify_one();
    }

    fn down(&self, fault: &str) {
        let changed = self.state.send_if_modified(|state| {
            let was_up = matches!(state, State::Up { .. });
            if was_up {
                *state = State::Down;
            }
            was_up
        });
        if changed {
            tracing::warn!(reason = fault, "{}", self.words.lost);
        }
    }

    fn up(&self, client: &Client, number: u64) {
        let changed = self.state.send_if_modified(|state| {
            let was_down = matches!(state, State::Down);
            if was_down {
                *state = State::Up {
                    client: client.clone(),
                    number,
                };
            }
            was_down
        });
        if changed {
            tracing::info!("{}", self.words.back);
        }
    }

    /// Makes connections and watches over them until `closing`.
    pub(crate) async fn supervise(self: Arc<Self>, probe: Probe, closing: CancellationToken) {
        let watched = async {
            let mut pause = PAUSES.0;
            let mut told = false;
            loop {
                match self.connect().await {
                    Ok((client, mut task)) => {
                        let number = self.connections.fetch_add(1, Ordering::Relaxed);
                        if self.watch_over(&client, number, &mut task, &probe).await {
                            pause = PAUSES.0;
                        }
                        task.abort();
                        told = true;
                    }
                    Err(fault) => {
                        // Nobody has heard yet that there was never one.
                        if !std::mem::replace(&mut told, true) {
                            tracing::warn!(reason = fault, "{}", self.words.lost);
                        }
                    }
                }
                sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
            }
        };
        tokio::select! {
            () = watched => {}
            () = closing.cancelled() => {}
        }
        self.state.send_replace(State::Down);
    }

    async fn connect(&self) -> Result<(Client, Guarded), String> {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        let mut config = self.config.clone();
        rotate(&mut config, usize::try_from(attempt).unwrap_or(0));
        let performance = PerformanceConfig {
            broadcast_channel_capacity: MESSAGES,
            ..PerformanceConfig::default()
        };
        let connection = ConnectionConfig {
            connection_timeout: self.connect_timeout,
            internal_command_timeout: self.connect_timeout,
            max_command_attempts: 1,
            tcp: TcpConfig {
                nodelay: Some(true),
                ..TcpConfig::default()
            },
            ..ConnectionConfig::default()
        };
        let client = Client::new(config, Some(performance), Some(connection), None);
        // A Sentinel and a cluster take several steps.
        match timeout(self.connect_timeout * 4, client.init()).await {
            Ok(Ok(task)) => Ok((client, Guarded(task))),
            // Its text names hosts, and no password.
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no connection in time".to_owned()),
        }
    }

    /// Watches over one connection until it is dead; whether it was ever well.
    async fn watch_over(
        &self,
        client: &Client,
        number: u64,
        task: &mut Guarded,
        probe: &Probe,
    ) -> bool {
        let mut was_well = false;
        loop {
            let pause = match self.examine(client, probe).await {
                Found::Well => {
                    was_well = true;
                    self.up(client, number);
                    HEARTBEAT
                }
                Found::Poor => {
                    self.down("slow, or refuses");
                    PAUSES.0
                }
                Found::Dead => {
                    self.down("silent");
                    return was_well;
                }
            };
            tokio::select! {
                _ = &mut task.0 => {
                    self.down("closed");
                    return was_well;
                }
                () = self.suspected.notified() => {}
                () = sleep(pause) => {}
            }
        }
    }

    async fn examine(&self, client: &Client, probe: &Probe) -> Found {
        let begun = Instant::now();
        match timeout(SILENCE, probe(client.clone())).await {
            Ok(Ok(())) if begun.elapsed() <= self.patience => Found::Well,
            Ok(Ok(())) => Found::Poor,
            // A server that has become a replica, or is full: another connection may find better.
            Ok(Err(_)) | Err(_) => Found::Dead,
        }
    }
}

/// The library's task, which ends with this.
struct Guarded(ConnectHandle);

impl Guarded {
    fn abort(&self) {
        self.0.abort();
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.abort();
    }
}

/// Asks every server that there is a connection to.
pub(crate) async fn ping(client: &Client) -> Result<(), Error> {
    let servers = client.active_connections();
    if !client.is_clustered() || servers.is_empty() {
        let _: String = client.ping(None).await?;
        return Ok(());
    }
    let pings = servers.into_iter().map(|server| async move {
        let options = fred::types::config::Options {
            cluster_node: Some(server),
            ..Default::default()
        };
        let pong: Result<String, Error> = client.with_options(&options).ping(None).await;
        pong.map(drop)
    });
    try_join_all(pings).await.map(drop)
}
