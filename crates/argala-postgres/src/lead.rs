//! Being the one that sweeps: a database's lock, and the connection that has it.
//!
//! The lock is the server's, and it belongs to a session. All that a leader reads and writes goes
//! through that one session and no other: so whatever it writes, it writes while it has the lock,
//! and a leader that has lost it without knowing has nothing left to write with. No number is
//! compared and no clock is trusted.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use argala_core::ports::{Store, SweepStore};
use deadpool_postgres::{
    Connect, Hook, HookError, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime,
};
use tokio::{sync::Notify, task::JoinHandle};
use tokio_postgres::{Client, Config, Error, types::Type};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{
    OpenError, Options, Postgres, Statements, Timeouts, address::Address, failure::Told, tls,
};

/// Held by the sweeper that works: 'Arga' and a number of its own.
const LOCK: i64 = 0x4172_6761_0000_0002;

/// The one sweeper's hold on a database. It ends with its connection.
pub struct Leadership {
    postgres: Arc<Postgres>,
    state: Arc<State>,
    lease: Duration,
}

/// What is known of the one connection.
#[derive(Default)]
struct State {
    /// It has been made: another would not have the lock.
    made: AtomicBool,
    /// Another sweeper had the lock when it was made.
    taken: AtomicBool,
    lost: AtomicBool,
    losing: Notify,
}

impl State {
    fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
        self.losing.notify_waiters();
    }
}

/// Tries to become the one that sweeps the database that `options` name, by the direct URL where
/// there is one; `None` where another is.
///
/// The server ends the session of a leader that says nothing for `lease`, stopped or cut off as it
/// may be, and gives the lock to whoever asks next.
///
/// # Errors
/// As of [`Postgres::open`].
pub async fn lead(options: &Options, lease: Duration) -> Result<Option<Leadership>, OpenError> {
    let options = Options {
        url: options
            .direct_url
            .clone()
            .unwrap_or_else(|| options.url.clone()),
        connections: 1,
        // Whoever waits waits for what the leader itself is doing.
        wait: options.operation_timeout,
        idle_in_transaction_timeout: options.idle_in_transaction_timeout.min(lease),
        timeouts: Timeouts::Connection,
        statements: Statements::Prepared,
        ..options.clone()
    };
    let state = Arc::new(State::default());
    let pool = pool(&options, lease, &state)?;
    match Postgres::leading(pool, &options).await {
        Ok(postgres) => Ok(Some(Leadership {
            postgres: Arc::new(postgres),
            state,
            lease,
        })),
        Err(_) if state.taken.load(Ordering::SeqCst) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Leadership {
    /// The store, for the sweep. Once the connection is lost, all that is asked of it fails.
    #[must_use]
    pub fn store(&self) -> Arc<dyn SweepStore> {
        Arc::<Postgres>::clone(&self.postgres)
    }

    /// Keeps the session alive, and returns once it is lost: what it was used for is to be dropped
    /// then.
    pub async fn lost(&self) {
        let beats = async {
            loop {
                tokio::time::sleep(self.lease / 3).await;
                // It waits for a transaction that is under way, which is a sign of life itself.
                if self.postgres.ping().await.is_err() {
                    return;
                }
            }
        };
        let losing = self.state.losing.notified();
        tokio::pin!(losing);
        losing.as_mut().enable();
        if !self.state.lost.load(Ordering::SeqCst) {
            tokio::select! {
                () = losing => {}
                () = beats => {}
            }
        }
        self.state.lose();
    }

    /// Gives the lock up.
    pub async fn close(self) {
        self.postgres.close().await;
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// Makes the connection, and tells when it ends.
struct Watched {
    connector: MakeRustlsConnect,
    state: Arc<State>,
}

type Connecting<'a> =
    Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + 'a>>;

impl Connect for Watched {
    fn connect(&self, config: &Config) -> Connecting<'_> {
        let config = config.clone();
        Box::pin(async move {
            let (client, connection) = config.connect(self.connector.clone()).await?;
            let state = Arc::clone(&self.state);
            let first = !state.made.swap(true, Ordering::SeqCst);
            let task = tokio::spawn(async move {
                let ended = connection.await;
                if first {
                    state.lose();
                }
                if let Err(error) = ended {
                    tracing::debug!(
                        error = %Told::of(&error),
                        "the connection of a sweeper's lock broke"
                    );
                }
            });
            // The second of its kind has no lock, and is not used.
            if !first {
                self.state.lose();
            }
            Ok((client, task))
        })
    }
}

/// A pool of one connection, which has the lock, and never of another.
fn pool(options: &Options, lease: Duration, state: &Arc<State>) -> Result<Pool, OpenError> {
    let address = Address::parse(&options.url, options)?;
    let connector = tls::connector(&address)?;
    let connect = Watched {
        connector,
        state: Arc::clone(state),
    };
    let config = ManagerConfig {
        recycling_method: RecyclingMethod::Fast,
    };
    let lease = lease.as_millis().clamp(1, i32::MAX as u128);
    // The sweep asks for a few rows at a time, and how few is a parameter: a plan that is made without
    // it reads whole tables for the tenth of them that it expects. Planning anew costs it little.
    let settings = format!(
        "{}; SET SESSION idle_session_timeout = {lease}; \
         SET SESSION plan_cache_mode = force_custom_plan; SET SESSION jit = off",
        options.timeouts_sql("SESSION")
    );
    let state = Arc::clone(state);
    let hook = Hook::async_fn(move |client, _| {
        let (settings, state) = (settings.clone(), Arc::clone(&state));
        Box::pin(async move {
            if state.lost.load(Ordering::SeqCst) {
                return Err(HookError::message("the connection with the lock is lost"));
            }
            client
                .batch_execute(&settings)
                .await
                .map_err(HookError::Backend)?;
            let row = client
                .query_typed_one("SELECT pg_try_advisory_lock($1)", &[(&LOCK, Type::INT8)])
                .await
                .map_err(HookError::Backend)?;
            if row.try_get::<_, bool>(0).map_err(HookError::Backend)? {
                Ok(())
            } else {
                state.taken.store(true, Ordering::SeqCst);
                Err(HookError::message("another sweeper has the lock"))
            }
        })
    });
    Pool::builder(Manager::from_connect(address.config, connect, config))
        .max_size(1)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(options.wait))
        .create_timeout(Some(options.connect_timeout))
        .recycle_timeout(Some(options.connect_timeout))
        .post_create(hook)
        .build()
        .map_err(|error| OpenError::Database(error.to_string()))
}
