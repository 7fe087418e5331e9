//! What single values cannot tell: whether they fit each other and the world.

use std::sync::Arc;

use argala_core::ports::SystemClock;
use argala_http::{JwtAlgorithm, JwtAuth};
use argala_wire::limits::MAX_KEYS_BYTES;
use secrecy::ExposeSecret;

use super::{
    AuthKind, Blobs, BlobsKind, Config, DEV_AUTH_VARIABLE, DeliveryKind, Jwt, LimiterKind,
    PokesKind, Size, Span, Store, StoreKind,
};
use crate::identity;

/// What a configuration is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Purpose {
    /// Whether a caller may be believed without proof.
    pub(super) dev_auth: bool,
    /// Whether nobody will call.
    pub(super) operating: bool,
}

/// Every fault of `config`: the key and what is wrong with it.
pub(super) fn faults(config: &Config, purpose: Purpose) -> Vec<(&'static str, String)> {
    let mut faults = Faults(Vec::new());
    http(config, &mut faults);
    store(&config.store, &mut faults);
    blobs(&config.blobs, &mut faults);
    redis(config, &mut faults);
    auth(config, purpose, &mut faults);
    limits(config, &mut faults);
    for (key, span) in [
        ("sweep.grace", config.sweep.grace),
        ("shutdown.grace", config.shutdown.grace),
    ] {
        faults.positive(key, span);
    }
    let interval = config.sweep.interval.0;
    if !interval.is_zero() && interval.as_secs() == 0 {
        faults.add(
            "sweep.interval",
            "must be at least \"1s\", or \"0s\" for never",
        );
    }
    if config.sweep.lease.0.as_secs() == 0 {
        faults.add("sweep.lease", "must be at least \"1s\"");
    }
    if config.directory.cache_ttl.0.as_secs_f64() > 60.0 {
        // What a graph's list tells of owed rotations may be a minute old, and no older.
        faults.add("directory.cache_ttl", "must be at most \"60s\"");
    }
    if let Err(error) = crate::logs::filter(&config.log.level) {
        faults.add("log.level", format!("is no level: {error}"));
    }
    for (key, path) in [
        ("store.path", &config.store.path),
        ("blobs.path", &config.blobs.path),
        ("blobs.spool_path", &config.blobs.spool_path),
    ] {
        if path.as_os_str().is_empty() {
            faults.add(key, "must not be empty");
        }
    }
    faults.0
}

struct Faults(Vec<(&'static str, String)>);

impl Faults {
    fn add(&mut self, key: &'static str, message: impl Into<String>) {
        self.0.push((key, message.into()));
    }

    fn positive(&mut self, key: &'static str, span: Span) {
        if span.0.is_zero() {
            self.add(key, "must be longer than nothing");
        }
    }

    fn at_least_one(&mut self, key: &'static str, number: u64) {
        if number == 0 {
            self.add(key, "must be at least 1");
        } else if i64::try_from(number).is_err() {
            self.add(key, "is more than any store can count");
        }
    }
}

fn http(config: &Config, faults: &mut Faults) {
    let http = &config.http;
    if let Some(message) = prefix_fault(&http.prefix) {
        faults.add("http.prefix", message);
    }
    faults.positive("http.header_timeout", http.header_timeout);
    faults.positive("http.body_timeout", http.body_timeout);
    faults.positive("http.write_timeout", http.write_timeout);
    faults.at_least_one("http.max_connections", http.max_connections.into());
    let largest = MAX_KEYS_BYTES.max(config.quotas.max_push_bytes.0);
    if http.max_buffered_bytes < Size(largest) {
        faults.add(
            "http.max_buffered_bytes",
            format!("must be at least {largest}: one body may be as large"),
        );
    }
    let public = http.listen;
    if public.port() != 0 && public == config.admin.listen {
        faults.add("admin.listen", "is where http.listen is, too");
    }
}

fn store(store: &Store, faults: &mut Faults) {
    let urls = [
        ("store.url", &store.url),
        ("store.direct_url", &store.direct_url),
    ];
    match store.kind {
        StoreKind::Sqlite => {
            for (key, url) in urls {
                if url.is_some() {
                    // Whoever names a server does not mean a file that is empty.
                    faults.add(key, "is for store.kind \"postgres\", which is not chosen");
                }
            }
        }
        StoreKind::Postgres => {
            if store.url.is_none() && store.url_file.is_none() {
                faults.add(
                    "store.kind",
                    "\"postgres\" needs store.url or store.url_file",
                );
            }
            for (key, url) in urls {
                let Some(url) = url else { continue };
                let url = url.expose_secret();
                if !["postgres://", "postgresql://"]
                    .iter()
                    .any(|scheme| url.starts_with(scheme))
                {
                    faults.add(key, "must begin with \"postgres://\"");
                }
            }
        }
    }
    faults.at_least_one("store.connections", store.connections.into());
    for (key, span) in [
        ("store.connection_wait", store.connection_wait),
        ("store.connect_timeout", store.connect_timeout),
        ("store.statement_timeout", store.statement_timeout),
        ("store.lock_timeout", store.lock_timeout),
        (
            "store.idle_in_transaction_timeout",
            store.idle_in_transaction_timeout,
        ),
        ("store.operation_timeout", store.operation_timeout),
    ] {
        faults.positive(key, span);
    }
}

fn blobs(blobs: &Blobs, faults: &mut Faults) {
    for (key, span) in [
        ("blobs.connect_timeout", blobs.connect_timeout),
        ("blobs.answer_timeout", blobs.answer_timeout),
        ("blobs.stall_timeout", blobs.stall_timeout),
    ] {
        faults.positive(key, span);
    }
    if blobs.kind != BlobsKind::S3 {
        for (key, given) in [
            ("blobs.bucket", blobs.bucket.is_some()),
            ("blobs.endpoint", blobs.endpoint.is_some()),
            ("blobs.access_key_id", blobs.access_key_id.is_some()),
            ("blobs.secret_access_key", blobs.secret_access_key.is_some()),
            ("blobs.delivery", blobs.delivery == DeliveryKind::Redirect),
        ] {
            if given {
                // Whoever names a bucket does not mean a folder that is empty.
                let value = if key == "blobs.delivery" {
                    "\"redirect\" "
                } else {
                    ""
                };
                let message = format!("{value}is for blobs.kind \"s3\", which is not chosen");
                faults.add(key, message);
            }
        }
        return;
    }
    match &blobs.bucket {
        None => faults.add("blobs.kind", "\"s3\" needs blobs.bucket"),
        Some(bucket) => {
            if let Some(message) = bucket_fault(bucket, blobs.force_path_style) {
                faults.add("blobs.bucket", message);
            }
        }
    }
    if let Some(endpoint) = &blobs.endpoint
        && !is_origin(endpoint)
    {
        faults.add(
            "blobs.endpoint",
            "must be a URL without path or user, like \"https://s3.example.org\"",
        );
    }
    if blobs.region.is_empty() {
        faults.add("blobs.region", "must not be empty");
    }
    match (&blobs.access_key_id, &blobs.secret_access_key) {
        (Some(_), None) => faults.add(
            "blobs.secret_access_key",
            "is missing beside blobs.access_key_id",
        ),
        (None, Some(_)) => faults.add(
            "blobs.access_key_id",
            "is missing beside blobs.secret_access_key",
        ),
        (None, None) | (Some(_), Some(_)) => {}
    }
    for (key, half) in [
        ("blobs.access_key_id", &blobs.access_key_id),
        ("blobs.secret_access_key", &blobs.secret_access_key),
    ] {
        if half
            .as_ref()
            .is_some_and(|half| half.expose_secret().is_empty())
        {
            faults.add(key, "must not be empty");
        }
    }
}

fn bucket_fault(bucket: &str, in_path: bool) -> Option<&'static str> {
    let common = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let in_host = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    if !(3..=63).contains(&bucket.len()) {
        Some("must have 3 to 63 characters")
    } else if !bucket.chars().all(common) {
        Some("may hold letters, digits, and - . _")
    } else if !in_path && !bucket.chars().all(in_host) {
        Some("is to be part of a host's name: it may hold a-z, 0-9, - and .")
    } else {
        None
    }
}

/// Whether a URL is one of a whole server.
fn is_origin(url: &str) -> bool {
    let rest = ["http://", "https://"]
        .iter()
        .find_map(|scheme| url.strip_prefix(scheme));
    let host = rest.map(|rest| rest.strip_suffix('/').unwrap_or(rest));
    let legal = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    host.is_some_and(|host| !host.is_empty() && host.chars().all(legal))
}

fn redis(config: &Config, faults: &mut Faults) {
    let redis = &config.redis;
    let users = [
        ("limiter.kind", config.limiter.kind == LimiterKind::Redis),
        ("pokes.kind", config.pokes.kind == PokesKind::Redis),
    ];
    let is_used = users.iter().any(|(_, uses)| *uses);
    let is_given = redis.url.is_some() || redis.url_file.is_some();
    for (key, uses) in users {
        if uses && !is_given {
            faults.add(key, "\"redis\" needs redis.url or redis.url_file");
        }
    }
    if redis.url.is_some() && !is_used {
        faults.add(
            "redis.url",
            "is for limiter.kind or pokes.kind \"redis\", and neither is chosen",
        );
    }
    if let Some(url) = &redis.url {
        let options = argala_redis::Options::new(url.expose_secret());
        if let Err(error) = options.check_url() {
            faults.add("redis.url", error.to_string());
        }
    }
    let options = argala_redis::Options {
        prefix: redis.prefix.clone(),
        ..argala_redis::Options::new("")
    };
    if let Err(error) = options.check_prefix() {
        faults.add("redis.prefix", error.to_string());
    }
    for (key, span) in [
        ("redis.connect_timeout", redis.connect_timeout),
        ("redis.timeout", redis.timeout),
        ("limiter.timeout", config.limiter.timeout),
    ] {
        faults.positive(key, span);
    }
    if config.limiter.timeout.0.as_secs_f64() > 1.0 {
        faults.add(
            "limiter.timeout",
            "must be at most \"1s\": a request waits for it",
        );
    }
}

fn prefix_fault(prefix: &str) -> Option<&'static str> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "/-._~".contains(c);
    if prefix == "/" {
        None
    } else if !prefix.starts_with('/') {
        Some("must begin with \"/\"")
    } else if prefix.ends_with('/') || prefix.contains("//") {
        Some("must not end with \"/\" nor hold \"//\"")
    } else if !prefix.chars().all(legal) {
        Some("may hold letters, digits, and / - . _ ~")
    } else {
        None
    }
}

fn auth(config: &Config, purpose: Purpose, faults: &mut Faults) {
    let kinds = &config.auth.kind.0;
    if kinds.is_empty() {
        faults.add("auth.kind", "must name at least one kind");
    }
    if (1..kinds.len()).any(|at| kinds[..at].contains(&kinds[at])) {
        faults.add("auth.kind", "names a kind twice");
    }
    if kinds.contains(&AuthKind::Dev) && !purpose.dev_auth && !purpose.operating {
        faults.add(
            "auth.kind",
            format!(
                "\"dev\" lets anybody be anybody; it needs {DEV_AUTH_VARIABLE}=1 in the environment"
            ),
        );
    }
    let keys = &config.auth.jwt;
    let has_key = keys.secret.is_some() || keys.public_key.is_some();
    if kinds.contains(&AuthKind::Jwt) && (has_key || !purpose.operating) {
        let mut own = Faults(Vec::new());
        jwt(keys, &mut own);
        faults.0.append(&mut own.0);
    }
}

fn jwt(jwt: &Jwt, faults: &mut Faults) {
    match (&jwt.secret, &jwt.public_key) {
        (None, None) => faults.add(
            "auth.jwt",
            "auth.kind \"jwt\" needs secret, secret_file, public_key or public_key_file",
        ),
        (Some(_), Some(_)) => {
            faults.add(
                "auth.jwt.public_key",
                "give a secret or a public key, not both",
            );
        }
        (Some(secret), None) => {
            let bytes = secret.expose_secret().len();
            if bytes < MIN_SECRET_BYTES {
                faults.add(
                    "auth.jwt.secret",
                    format!("has {bytes} bytes; at least {MIN_SECRET_BYTES} are needed"),
                );
            }
        }
        (None, Some(_)) => {}
    }
    if jwt.algorithms.is_empty() {
        faults.add("auth.jwt.algorithms", "must name at least one");
    }
    let shared = jwt.secret.is_some();
    let known = shared || jwt.public_key.is_some();
    for algorithm in &jwt.algorithms {
        let hmac = algorithm.family() == JwtAlgorithm::HS256.family();
        if known && hmac != shared {
            faults.add(
                "auth.jwt.algorithms",
                format!(
                    "{algorithm:?} needs a {}",
                    if hmac { "secret" } else { "public key" }
                ),
            );
        }
    }
    for (key, claim) in [
        ("auth.jwt.member_claim", &jwt.member_claim),
        ("auth.jwt.device_claim", &jwt.device_claim),
    ] {
        if claim.is_empty() {
            faults.add(key, "must not be empty");
        }
    }
    if jwt.member_claim == jwt.device_claim {
        faults.add("auth.jwt.device_claim", "is the member's claim, too");
    }
    for (key, names) in [
        ("auth.jwt.issuer", &jwt.issuer),
        ("auth.jwt.audience", &jwt.audience),
    ] {
        if names.as_ref().is_some_and(|names| names.0.is_empty()) {
            faults.add(key, "must name at least one, or be left out");
        }
    }
    // What is left to go wrong is a key that cannot be read.
    if faults.0.is_empty()
        && let Err(error) = JwtAuth::new(identity::jwt_config(jwt), Arc::new(SystemClock))
    {
        faults.add("auth.jwt.public_key", error.to_string());
    }
}

/// Below this a secret is a mistake. From here to [`secret_bytes`] it is accepted, since a host may
/// have had it for long, and a warning at every start says what it is worth.
const MIN_SECRET_BYTES: usize = 8;

/// How many bytes a shared secret ought to have (RFC 7518, section 3.2).
pub(crate) const fn secret_bytes(algorithm: JwtAlgorithm) -> usize {
    match algorithm {
        JwtAlgorithm::HS256 => 32,
        JwtAlgorithm::HS384 => 48,
        JwtAlgorithm::HS512 => 64,
        _ => 0,
    }
}

fn limits(config: &Config, faults: &mut Faults) {
    let quotas = config.quotas.quotas();
    for (key, number) in [
        ("quotas.max_records_per_graph", quotas.max_records_per_graph),
        (
            "quotas.max_ciphertext_bytes_per_graph",
            quotas.max_ciphertext_bytes_per_graph,
        ),
        ("quotas.max_blob_bytes", quotas.max_blob_bytes),
        (
            "quotas.max_blob_bytes_per_graph",
            quotas.max_blob_bytes_per_graph,
        ),
        (
            "quotas.max_devices_per_member",
            quotas.max_devices_per_member,
        ),
        ("quotas.max_push_bytes", quotas.max_push_bytes),
        ("quotas.max_record_bytes", quotas.max_record_bytes),
        ("quotas.max_records_per_push", quotas.max_records_per_push),
    ] {
        faults.at_least_one(key, number);
    }
    if quotas.max_record_bytes >= quotas.max_push_bytes {
        faults.add(
            "quotas.max_record_bytes",
            "must be less than quotas.max_push_bytes: a record travels in a push",
        );
    }
    if quotas.max_blob_bytes > quotas.max_blob_bytes_per_graph {
        faults.add(
            "quotas.max_blob_bytes",
            "must be at most quotas.max_blob_bytes_per_graph",
        );
    }
    let rates = config.rate_limits.rate_limits();
    for (per_minute, burst, rate) in [
        (
            "rate_limits.push.per_minute",
            "rate_limits.push.burst",
            rates.push,
        ),
        (
            "rate_limits.pull.per_minute",
            "rate_limits.pull.burst",
            rates.pull,
        ),
        (
            "rate_limits.blobs.per_minute",
            "rate_limits.blobs.burst",
            rates.blobs,
        ),
        (
            "rate_limits.keys.per_minute",
            "rate_limits.keys.burst",
            rates.keys,
        ),
    ] {
        faults.at_least_one(per_minute, rate.per_minute.into());
        faults.at_least_one(burst, rate.burst.into());
    }
}
