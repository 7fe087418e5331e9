//! Opening what the configuration names.

use std::{path::PathBuf, sync::Arc};

use argala_blob::{FilesystemBlobs, S3Blobs, S3Keys, S3Options};
use argala_core::{
    Relay, RelayBuilder, StoreError,
    ports::{
        BlobStore, Clock, DirectoryTables, Store, SweepStore, SystemClock, SystemRandom,
        UpkeepStore,
    },
};
use argala_http::{Authenticate, JwtConfigError};
use argala_postgres::{Postgres, Statements, Timeouts};
use argala_redis::Redis;
use argala_sqlite::{Options, Sqlite};

use secrecy::{ExposeSecret as _, SecretString};

use crate::{
    config::{
        self, BlobsKind, Config, DeliveryKind, DirectoryKind, LimiterKind, PokesKind,
        StatementsKind, StoreKind, TimeoutsKind,
    },
    identity,
    logs::EventLog,
};

/// Why a port was not opened. Each says so in one sentence.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store in a file.
    #[error("the store {} cannot be opened: {source}", path.display())]
    Sqlite {
        /// The database's file.
        path: PathBuf,
        /// Why.
        source: argala_sqlite::OpenError,
    },
    /// The store on a server, which is not named: its URL may hold a password.
    #[error("the store cannot be opened: {0}")]
    Postgres(#[source] argala_postgres::OpenError),
    /// The blob store.
    #[error("the blob folder {} cannot be opened: {source}", path.display())]
    Blobs {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The folder of uploads on their way to a bucket.
    #[error("the spool folder {} cannot be used: {source}", path.display())]
    Spool {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The first use of what was opened.
    #[error("the store failed: {0}")]
    Use(#[from] StoreError),
    /// Redis, whose URL is not shown.
    #[error("redis.url: {0}")]
    Redis(#[from] argala_redis::OptionsError),
    /// The keys that tokens are verified with.
    #[error("auth.jwt: {0}")]
    Keys(#[from] JwtConfigError),
}

/// What a relay runs over.
pub struct Ports {
    /// Everything but the bytes of blobs.
    pub store: Arc<dyn Store>,
    /// The same, for whoever erases and mends.
    pub upkeep: Arc<dyn UpkeepStore>,
    /// The same, for the sweep, where this process is the one to run it: a store in a file.
    pub sweep: Option<Arc<dyn SweepStore>>,
    /// The bytes of blobs.
    pub blobs: Arc<dyn BlobStore>,
    /// Who belongs where.
    pub directory: Arc<dyn DirectoryTables>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The schema that this build knows of this kind of store.
    pub schema: u32,
    /// What wants to be closed.
    server: Option<Arc<Postgres>>,
    /// What replicas share beside the store, where the configuration wants it.
    redis: Option<Arc<Redis>>,
}

impl Ports {
    /// Opens the ports. A store in a file is created and migrated where that is needed; one on a
    /// server must be [migrated](crate::schema::migrate) already.
    ///
    /// # Errors
    /// [`OpenError`] with what could not be opened, and why.
    pub async fn open(config: &Config) -> Result<Self, OpenError> {
        Self::open_for(config, Some(&config.blobs.spool_path)).await
    }

    /// The same for whoever uploads nothing: a sweeper, an operator.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_for_upkeep(config: &Config) -> Result<Self, OpenError> {
        Self::open_for(config, None).await
    }

    async fn open_for(config: &Config, spool: Option<&PathBuf>) -> Result<Self, OpenError> {
        let DirectoryKind::Table = config.directory.kind;
        let redis = redis(config)?;
        let ports = match config.store.kind {
            StoreKind::Sqlite => {
                let sqlite = Arc::new(sqlite(config.store.path.clone()).await?);
                let blobs = blobs(config, spool, &sqlite).await?;
                let sweep: Arc<dyn SweepStore> = Arc::<Sqlite>::clone(&sqlite);
                Self {
                    sweep: Some(sweep),
                    ..Self::over(sqlite, blobs, argala_sqlite::SCHEMA_VERSION)
                }
            }
            StoreKind::Postgres => {
                let postgres = Postgres::open(&server_options(&config.store))
                    .await
                    .map_err(OpenError::Postgres)?;
                let postgres = Arc::new(postgres);
                let blobs = blobs(config, spool, &postgres).await?;
                let server = Some(Arc::clone(&postgres));
                Self {
                    server,
                    ..Self::over(postgres, blobs, argala_postgres::SCHEMA_VERSION)
                }
            }
        };
        Ok(Self { redis, ..ports })
    }

    fn over<D>(database: Arc<D>, blobs: Arc<dyn BlobStore>, schema: u32) -> Self
    where
        D: UpkeepStore + DirectoryTables + 'static,
    {
        Self {
            store: Arc::<D>::clone(&database),
            upkeep: Arc::<D>::clone(&database),
            sweep: None,
            blobs,
            directory: database,
            clock: Arc::new(SystemClock),
            schema,
            server: None,
            redis: None,
        }
    }

    /// A server's store, for what a sweep would do; nothing that is served goes through it.
    pub(crate) fn server_sweep(&self) -> Option<Arc<dyn SweepStore>> {
        let server = Arc::clone(self.server.as_ref()?);
        Some(server)
    }

    /// How things stand with Redis, where the configuration wants one.
    #[must_use]
    pub fn redis_status(&self) -> Option<argala_redis::Status> {
        self.redis.as_ref().map(|redis| redis.status())
    }

    /// Gives servers' connections up in order, once what runs on them has ended.
    pub async fn close(&self) {
        if let Some(redis) = &self.redis {
            redis.close().await;
        }
        if let Some(server) = &self.server {
            server.close().await;
        }
    }

    /// A relay over these ports, and who may call it. To be asked for once, within a runtime of
    /// tokio: Redis is connected from here on, for as long as it takes; the relay waits for none of
    /// it.
    ///
    /// # Errors
    /// Where the keys that tokens are verified with do not fit their algorithms.
    pub fn relay(&self, config: &Config) -> Result<(Arc<Relay>, Arc<dyn Authenticate>), OpenError> {
        let authenticate = identity::authenticate(&config.auth, &self.clock)?;
        let directory = Arc::clone(&self.directory);
        let builder = Relay::builder(Arc::clone(&self.store), Arc::clone(&self.blobs), directory)
            .quotas(config.quotas.quotas())
            .rate_limits(config.rate_limits.rate_limits())
            .signatures(config.relay.signatures)
            .directory_cache_ttl(config.directory.cache_ttl.0)
            .clock(Arc::clone(&self.clock))
            // An upload is cut at half the grace, so that none is swept while it runs.
            .upload_timeout(config.sweep.grace.0 / 2)
            .events(EventLog);
        let relay = self.share(builder, config).build();
        Ok((relay, authenticate))
    }

    /// Brings what replicas share. Memory's limits and pokes are the builder's own.
    fn share(&self, mut builder: RelayBuilder, config: &Config) -> RelayBuilder {
        let replicated = config.store.kind == StoreKind::Postgres;
        match (config.limiter.kind, &self.redis) {
            (LimiterKind::Redis, Some(redis)) => {
                let rates = config.rate_limits.rate_limits();
                builder = builder.limiters(redis.limiters(&rates, &self.clock));
            }
            _ if replicated => tracing::warn!(
                "limiter.kind is \"memory\": each relay on this store allows the whole rate"
            ),
            _ => {}
        }
        match (config.pokes.kind, &self.redis) {
            (PokesKind::Redis, Some(redis)) => {
                let (sink, source) = redis.pokes();
                builder = builder.pokes(sink, source);
            }
            _ if replicated => tracing::warn!(
                "pokes.kind is \"memory\": changes at one relay reach streams of that relay only"
            ),
            _ => {}
        }
        builder
    }
}

/// Redis, where anything is to be shared by it. Nothing is connected yet.
fn redis(config: &Config) -> Result<Option<Arc<Redis>>, OpenError> {
    let wanted = config.limiter.kind == LimiterKind::Redis || config.pokes.kind == PokesKind::Redis;
    let Some(url) = config.redis.url.as_ref().filter(|_| wanted) else {
        return Ok(None);
    };
    let options = argala_redis::Options {
        prefix: config.redis.prefix.clone(),
        connect_timeout: config.redis.connect_timeout.0,
        timeout: config.redis.timeout.0,
        limiter_timeout: config.limiter.timeout.0,
        ..argala_redis::Options::new(url.expose_secret())
    };
    Ok(Some(Arc::new(Redis::new(options, &SystemRandom)?)))
}

/// Opens a file, which blocks.
async fn sqlite(path: PathBuf) -> Result<Sqlite, OpenError> {
    let opened = tokio::task::spawn_blocking(move || {
        Sqlite::open(&path, &Options::default())
            .map_err(|source| OpenError::Sqlite { path, source })
    });
    opened.await.expect("opening a file does not panic")
}

/// The bytes of blobs: in the same database, in a folder, or in a bucket.
async fn blobs<D>(
    config: &Config,
    spool: Option<&PathBuf>,
    database: &Arc<D>,
) -> Result<Arc<dyn BlobStore>, OpenError>
where
    D: BlobStore + 'static,
{
    match config.blobs.kind {
        BlobsKind::Database => Ok(Arc::<D>::clone(database)),
        BlobsKind::Filesystem => {
            let path = config.blobs.path.clone();
            let opened = tokio::task::spawn_blocking(move || {
                FilesystemBlobs::open(path.clone())
                    .map_err(|source| OpenError::Blobs { path, source })
            });
            let folder = opened.await.expect("opening a folder does not panic")?;
            Ok(Arc::new(folder))
        }
        BlobsKind::S3 => {
            let options = S3Options {
                spool: spool.cloned(),
                ..bucket_options(&config.blobs)
            };
            let bucket = S3Blobs::open(options).await;
            let bucket = bucket.map_err(|source| OpenError::Spool {
                path: config.blobs.spool_path.clone(),
                source,
            })?;
            Ok(Arc::new(bucket))
        }
    }
}

/// How the configuration wants a bucket to be used. Where it has no key, the SDK looks for one: in
/// the environment, too, since this is the service's own and nobody's host.
fn bucket_options(blobs: &config::Blobs) -> S3Options {
    let keys = match (&blobs.access_key_id, &blobs.secret_access_key) {
        (Some(id), Some(secret)) => S3Keys::Fixed {
            id: id.expose_secret().to_owned(),
            secret: secret.clone(),
        },
        _ => S3Keys::Chain,
    };
    let bucket = blobs.bucket.clone().unwrap_or_default();
    S3Options {
        endpoint: blobs.endpoint.clone(),
        region: blobs.region.clone(),
        force_path_style: blobs.force_path_style,
        keys,
        links: blobs.delivery == DeliveryKind::Redirect,
        connect_timeout: blobs.connect_timeout.0,
        answer_timeout: blobs.answer_timeout.0,
        stall_timeout: blobs.stall_timeout.0,
        ..S3Options::new(bucket, blobs.spool_path.clone())
    }
}

/// How the configuration wants a server to be used.
pub(crate) fn server_options(store: &config::Store) -> argala_postgres::Options {
    let text = |url: &Option<SecretString>| url.as_ref().map(|url| url.expose_secret().to_owned());
    let options = argala_postgres::Options::new(text(&store.url).unwrap_or_default());
    argala_postgres::Options {
        direct_url: text(&store.direct_url),
        connections: usize::try_from(store.connections).unwrap_or(usize::MAX),
        wait: store.connection_wait.0,
        connect_timeout: store.connect_timeout.0,
        statement_timeout: store.statement_timeout.0,
        lock_timeout: store.lock_timeout.0,
        idle_in_transaction_timeout: store.idle_in_transaction_timeout.0,
        operation_timeout: store.operation_timeout.0,
        timeouts: match store.timeouts {
            TimeoutsKind::Connection => Timeouts::Connection,
            TimeoutsKind::Transaction => Timeouts::Transaction,
            TimeoutsKind::Role => Timeouts::Role,
        },
        statements: match store.statements {
            StatementsKind::Prepared => Statements::Prepared,
            StatementsKind::Unnamed => Statements::Unnamed,
        },
        ..options
    }
}
