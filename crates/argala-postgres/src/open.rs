//! Opening a database: its address, its pool, and whether this build may serve it.

use std::sync::Arc;

use argala_core::StoreErrorKind;
use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime,
};
use tokio_postgres::Client;

use crate::{
    Options, Postgres, SCHEMA_VERSION, Timeouts,
    address::Address,
    failure::{Told, kind_of},
    gather::Gather,
    looks::Looks,
    migrate::{self, SchemaState},
    remembered::Remembered,
    run::Database,
    tls,
};

/// A connection that nobody has used for this long is asked for a sign of life before it is used.
const TRUSTED_FOR: std::time::Duration = std::time::Duration::from_secs(1);
/// How long that sign may take.
const SIGN_OF_LIFE: std::time::Duration = std::time::Duration::from_secs(1);

/// Why a database was not opened. Each says so in one sentence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL is none, or asks for what there is not.
    #[error("the database's URL cannot be used: {0}")]
    Address(&'static str),
    /// The certificates to trust cannot be read.
    #[error("connections to the database cannot be encrypted: {0}")]
    Tls(String),
    /// The database is older than this build.
    #[error(
        "this database has schema {found} and this build needs {needed}: migrate it first \
         (`relay migrate`)"
    )]
    Unmigrated {
        /// The schema that the database has; 0 where it is empty.
        found: u32,
        /// The schema that this build needs.
        needed: u32,
    },
    /// The database has been migrated beyond what this build may serve.
    #[error(
        "this database has schema {found}, which builds that know schema {oldest} or newer may \
         serve; this build knows schemas up to {known}"
    )]
    Outgrown {
        /// The schema that the database has.
        found: u32,
        /// The oldest that a build must know to serve it.
        oldest: u32,
        /// The newest schema that this build knows.
        known: u32,
    },
    /// The server acknowledges commits that a crash can take back.
    #[error(
        "this database's {0} is off, so that what is acknowledged may be lost in a crash; the \
         relay needs it on"
    )]
    NotDurable(&'static str),
    /// A migration failed; the database is as it was.
    #[error("the database's tables could not be migrated: {0}")]
    Migrate(String),
    /// The database cannot be reached.
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    /// The database failed.
    #[error("the database cannot be opened: {0}")]
    Database(String),
}

impl From<tokio_postgres::Error> for OpenError {
    fn from(error: tokio_postgres::Error) -> Self {
        let told = Told::of(&error).to_string();
        match kind_of(&error) {
            StoreErrorKind::Unavailable => Self::Unreachable(told),
            _ => Self::Database(told),
        }
    }
}

impl Postgres {
    /// Opens the database that `options` name, which must have been [migrated](crate::migrate).
    ///
    /// Needs a runtime: connections are tasks of it.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open(options: &Options) -> Result<Self, OpenError> {
        let remembered = Arc::new(Remembered::new(options.remember));
        let pool = pool(options, &remembered)?;
        Self::over(pool, remembered, options).await
    }

    /// Opens the database that `pool` connects to, by one connection that a sweeper has.
    pub(crate) async fn leading(pool: Pool, options: &Options) -> Result<Self, OpenError> {
        Self::over(pool, Arc::new(Remembered::new(options.remember)), options).await
    }

    /// Opens the database that `pool` connects to.
    async fn over(
        pool: Pool,
        remembered: Arc<Remembered>,
        options: &Options,
    ) -> Result<Self, OpenError> {
        let client = pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => error.into(),
            other => OpenError::Unreachable(other.to_string()),
        })?;
        let (state, instance) = migrate::state(&client).await?;
        match state {
            SchemaState::Empty => {
                return Err(OpenError::Unmigrated {
                    found: 0,
                    needed: SCHEMA_VERSION,
                });
            }
            SchemaState::Behind { found } => {
                return Err(OpenError::Unmigrated {
                    found,
                    needed: SCHEMA_VERSION,
                });
            }
            SchemaState::Outgrown { found, oldest } => {
                return Err(OpenError::Outgrown {
                    found,
                    oldest,
                    known: SCHEMA_VERSION,
                });
            }
            SchemaState::Ready { .. } => {}
        }
        keeps_what_it_acknowledges(&client).await?;
        drop(client);
        let database = Arc::new(Database::new(pool, options));
        Ok(Self {
            instance: instance.into(),
            pushes: Arc::new(Gather::new(Arc::clone(&database), remembered, options)),
            looks: Arc::new(Looks::new(Arc::clone(&database))),
            database,
        })
    }
}

fn pool(options: &Options, remembered: &Arc<Remembered>) -> Result<Pool, OpenError> {
    let address = Address::parse(&options.url, options)?;
    let connector = tls::connector(&address)?;
    let config = ManagerConfig {
        // Closed connections are not used again; the hook below looks at the others.
        recycling_method: RecyclingMethod::Fast,
    };
    let manager = Manager::from_config(address.config, connector, config);
    let mut builder = Pool::builder(manager)
        .max_size(options.connections.max(1))
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(options.wait))
        .create_timeout(Some(options.connect_timeout))
        .recycle_timeout(Some(SIGN_OF_LIFE))
        .pre_recycle(Hook::async_fn(|client, metrics| {
            // One that has just answered is as good as asked: a round trip for each operation
            // would buy a second's notice.
            let asked = metrics.last_used() >= TRUSTED_FOR;
            Box::pin(async move {
                if asked {
                    tokio::time::timeout(SIGN_OF_LIFE, client.simple_query(""))
                        .await
                        .map_err(|_| HookError::message("it gave no sign of life"))?
                        .map_err(HookError::Backend)?;
                }
                Ok(())
            })
        }));
    let remembered = Arc::clone(remembered);
    builder = builder.post_create(Hook::sync_fn(move |_, _| {
        remembered.connected();
        Ok(())
    }));
    if options.timeouts == Timeouts::Connection {
        let timeouts = options.timeouts_sql("SESSION");
        builder = builder.post_create(Hook::async_fn(move |client, _| {
            let timeouts = timeouts.clone();
            Box::pin(async move {
                client
                    .batch_execute(&timeouts)
                    .await
                    .map_err(HookError::Backend)
            })
        }));
    }
    builder
        .build()
        .map_err(|error| OpenError::Database(error.to_string()))
}

/// Holds that a commit which has been answered survives a crash of the server's.
async fn keeps_what_it_acknowledges(client: &Client) -> Result<(), OpenError> {
    let row = client
        .query_typed_one(
            "SELECT current_setting('synchronous_commit') <> 'off',
                    current_setting('fsync')::boolean",
            &[],
        )
        .await?;
    for (at, setting) in [(0, "synchronous_commit"), (1, "fsync")] {
        if !row.try_get::<_, bool>(at)? {
            return Err(OpenError::NotDurable(setting));
        }
    }
    Ok(())
}
