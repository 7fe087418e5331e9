//! What can be configured. `default.toml` beside this crate's root says what each key means; it
//! has a value for every key that is not an `Option` here.

use std::{net::SocketAddr, path::PathBuf};

use argala_http::JwtAlgorithm;
use argala_wire::limits::{Quotas, Rate, RateLimits, Signatures};
use secrecy::SecretString;
use serde::Deserialize;

use super::values::{Network, OneOrMany, Size, Span, choice};

/// A whole configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The public listener.
    pub http: Http,
    /// The listener for orchestrators.
    pub admin: Admin,
    /// Where everything but the bytes of blobs lies.
    pub store: Store,
    /// Where the bytes of blobs lie.
    pub blobs: Blobs,
    /// What replicas share that need not last.
    pub redis: Redis,
    /// Who counts requests.
    pub limiter: Limiter,
    /// Who carries pokes.
    pub pokes: Pokes,
    /// How a caller says who they are.
    pub auth: Auth,
    /// Who belongs where.
    pub directory: Directory,
    /// Ceilings on what is stored and sent.
    pub quotas: QuotaKeys,
    /// What each member may ask.
    pub rate_limits: RateLimitKeys,
    /// Rules that a host chooses.
    pub relay: Relay,
    /// The pass that forgets what is due.
    pub sweep: Sweep,
    /// How the process stops.
    pub shutdown: Shutdown,
    /// What is written down.
    pub log: Log,
}

/// `[http]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// Where clients connect.
    pub listen: SocketAddr,
    /// The path below which the routes lie.
    pub prefix: String,
    /// Proxies whose word on a client's address may be believed. Checked, and not used yet.
    pub trusted_proxies: Vec<Network>,
    /// For a request's head, the pause before it included.
    pub header_timeout: Span,
    /// The longest pause within a request's body.
    pub body_timeout: Span,
    /// The longest that a client may refuse to read.
    pub write_timeout: Span,
    /// Connections at once.
    pub max_connections: u32,
    /// Bytes of bodies held in memory at once.
    pub max_buffered_bytes: Size,
}

/// `[admin]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admin {
    /// Where an orchestrator asks.
    pub listen: SocketAddr,
}

choice! {
    /// Stores.
    StoreKind of "store" {
        /// A file on this machine.
        Sqlite = "sqlite",
        /// A database that replicas share.
        Postgres = "postgres",
    }
    elsewhere []
}

choice! {
    /// How statements are sent to a server.
    StatementsKind of "way of sending statements" {
        /// Prepared once a connection.
        Prepared = "prepared",
        /// Each with its text.
        Unnamed = "unnamed",
    }
    elsewhere []
}

choice! {
    /// Who keeps a server's timeouts.
    TimeoutsKind of "keeper of timeouts" {
        /// Each connection is told them.
        Connection = "connection",
        /// Each transaction is told them.
        Transaction = "transaction",
        /// The database's role has them.
        Role = "role",
    }
    elsewhere []
}

/// `[store]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// Which store.
    pub kind: StoreKind,
    /// The database's file, where it is one.
    pub path: PathBuf,
    /// Where the server is. Holds what `url_file` says, once loaded.
    pub url: Option<SecretString>,
    /// The file that holds it.
    pub url_file: Option<PathBuf>,
    /// The same without a connection pooler. Holds what `direct_url_file` says, once loaded.
    pub direct_url: Option<SecretString>,
    /// The file that holds it.
    pub direct_url_file: Option<PathBuf>,
    /// Connections at the most.
    pub connections: u32,
    /// How long an operation waits for one of them.
    pub connection_wait: Span,
    /// How long making one may take.
    pub connect_timeout: Span,
    /// How long a statement may run.
    pub statement_timeout: Span,
    /// How long a statement may wait for a lock.
    pub lock_timeout: Span,
    /// How long a transaction may wait for the relay.
    pub idle_in_transaction_timeout: Span,
    /// How long an operation may take in all.
    pub operation_timeout: Span,
    /// Who keeps the server's timeouts.
    pub timeouts: TimeoutsKind,
    /// How statements are sent.
    pub statements: StatementsKind,
}

choice! {
    /// Blob stores.
    BlobsKind of "blob store" {
        /// The store's own database.
        Database = "database",
        /// Files in a folder.
        Filesystem = "filesystem",
        /// Objects in a bucket.
        S3 = "s3",
    }
    elsewhere []
}

choice! {
    /// Ways of a blob's bytes to whoever asks for it.
    DeliveryKind of "delivery" {
        /// Through the relay.
        Proxy = "proxy",
        /// From the store, by a link.
        Redirect = "redirect",
    }
    elsewhere []
}

/// `[blobs]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blobs {
    /// Which blob store.
    pub kind: BlobsKind,
    /// The folder, where it is one.
    pub path: PathBuf,
    /// The bucket, where it is one.
    pub bucket: Option<String>,
    /// The URL of the service that has it; AWS's where none is given.
    pub endpoint: Option<String>,
    /// What requests are signed for.
    pub region: String,
    /// Whether the bucket stands in a URL's path.
    pub force_path_style: bool,
    /// The public half of a key. Holds what `access_key_id_file` says, once loaded.
    pub access_key_id: Option<SecretString>,
    /// The file that holds it.
    pub access_key_id_file: Option<PathBuf>,
    /// Its secret half. Holds what `secret_access_key_file` says, once loaded.
    pub secret_access_key: Option<SecretString>,
    /// The file that holds it.
    pub secret_access_key_file: Option<PathBuf>,
    /// How a blob's bytes reach whoever asks for it.
    pub delivery: DeliveryKind,
    /// The folder of uploads on their way to the bucket.
    pub spool_path: PathBuf,
    /// How long connecting may take.
    pub connect_timeout: Span,
    /// How long the head of an answer may take.
    pub answer_timeout: Span,
    /// The longest pause within an object's bytes.
    pub stall_timeout: Span,
}

/// `[redis]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redis {
    /// Where it is. Holds what `url_file` says, once loaded.
    pub url: Option<SecretString>,
    /// The file that holds it.
    pub url_file: Option<PathBuf>,
    /// What the names there begin with.
    pub prefix: String,
    /// How long a step of making a connection may take.
    pub connect_timeout: Span,
    /// How long a command may take that no request waits for.
    pub timeout: Span,
}

choice! {
    /// Rate limiters.
    LimiterKind of "limiter" {
        /// Within this process.
        Memory = "memory",
        /// For all replicas together.
        Redis = "redis",
    }
    elsewhere []
}

/// `[limiter]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limiter {
    /// Which limiter.
    pub kind: LimiterKind,
    /// How long a request waits for a server before this process decides by itself.
    pub timeout: Span,
}

choice! {
    /// Carriers of pokes.
    PokesKind of "poke carrier" {
        /// Within this process.
        Memory = "memory",
        /// To the streams of all replicas.
        Redis = "redis",
    }
    elsewhere []
}

/// `[pokes]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pokes {
    /// Which carrier.
    pub kind: PokesKind,
}

choice! {
    /// Credentials.
    AuthKind of "credential" {
        /// A signed token.
        Jwt = "jwt",
        /// The caller's bare word; for development.
        Dev = "dev",
    }
    elsewhere ["introspect", "mtls"]
}

/// `[auth]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// Kinds of credential, in the order in which they are tried.
    pub kind: OneOrMany<AuthKind>,
    /// Of signed tokens.
    pub jwt: Jwt,
}

/// `[auth.jwt]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jwt {
    /// Shared with whoever issues tokens. Holds what `secret_file` says, once loaded.
    pub secret: Option<SecretString>,
    /// The file that holds it.
    pub secret_file: Option<PathBuf>,
    /// The issuer's public key, PEM. Holds what `public_key_file` says, once loaded.
    pub public_key: Option<String>,
    /// The file that holds it.
    pub public_key_file: Option<PathBuf>,
    /// Signatures that are accepted.
    pub algorithms: Vec<JwtAlgorithm>,
    /// What `iss` may be.
    pub issuer: Option<OneOrMany<String>>,
    /// What `aud` may be.
    pub audience: Option<OneOrMany<String>>,
    /// How far the issuer's clock may be off.
    pub leeway: Span,
    /// The claim that names the member.
    pub member_claim: String,
    /// The claim that names the device.
    pub device_claim: String,
}

choice! {
    /// Directories.
    DirectoryKind of "directory" {
        /// The relay's own tables.
        Table = "table",
    }
    elsewhere ["sql", "http"]
}

/// `[directory]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Directory {
    /// Which directory.
    pub kind: DirectoryKind,
    /// How long an answer is believed.
    pub cache_ttl: Span,
}

/// `[quotas]`; see [`Quotas`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the keys are those of `Quotas`")]
pub struct QuotaKeys {
    pub max_records_per_graph: u64,
    pub max_ciphertext_bytes_per_graph: Size,
    pub max_blob_bytes: Size,
    pub max_blob_bytes_per_graph: Size,
    pub max_devices_per_member: u64,
    pub max_push_bytes: Size,
    pub max_record_bytes: Size,
    pub max_records_per_push: u64,
}

impl QuotaKeys {
    /// As the relay takes them.
    #[must_use]
    pub fn quotas(&self) -> Quotas {
        Quotas {
            max_records_per_graph: self.max_records_per_graph,
            max_ciphertext_bytes_per_graph: self.max_ciphertext_bytes_per_graph.0,
            max_blob_bytes: self.max_blob_bytes.0,
            max_blob_bytes_per_graph: self.max_blob_bytes_per_graph.0,
            max_devices_per_member: self.max_devices_per_member,
            max_push_bytes: self.max_push_bytes.0,
            max_record_bytes: self.max_record_bytes.0,
            max_records_per_push: self.max_records_per_push,
        }
    }
}

/// One bucket of `[rate_limits]`; see [`Rate`].
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the keys are those of `Rate`")]
pub struct RateKeys {
    pub per_minute: u32,
    pub burst: u32,
}

impl RateKeys {
    const fn rate(self) -> Rate {
        Rate {
            per_minute: self.per_minute,
            burst: self.burst,
        }
    }
}

/// `[rate_limits]`; see [`RateLimits`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the keys are those of `RateLimits`")]
pub struct RateLimitKeys {
    pub push: RateKeys,
    pub pull: RateKeys,
    pub blobs: RateKeys,
    pub keys: RateKeys,
}

impl RateLimitKeys {
    /// As the relay takes them.
    #[must_use]
    pub const fn rate_limits(&self) -> RateLimits {
        RateLimits {
            push: self.push.rate(),
            pull: self.pull.rate(),
            blobs: self.blobs.rate(),
            keys: self.keys.rate(),
        }
    }
}

/// `[relay]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relay {
    /// Whether records must be signed.
    pub signatures: Signatures,
}

/// `[sweep]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// How often; zero: never.
    pub interval: Span,
    /// How old an unfinished upload must be.
    pub grace: Span,
    /// For how long a sweeper that leads may say nothing before another may take over.
    pub lease: Span,
}

/// `[shutdown]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shutdown {
    /// How long requests in flight may take to finish.
    pub grace: Span,
}

choice! {
    /// Forms of the log.
    LogFormat of "log format" {
        /// One JSON object a line.
        Json = "json",
        /// For people.
        Text = "text",
    }
    elsewhere []
}

/// `[log]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// Its form.
    pub format: LogFormat,
    /// What is worth a line: a level, or one by module.
    pub level: String,
}
