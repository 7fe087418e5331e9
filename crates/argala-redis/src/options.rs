//! Where Redis is and how long it may take.

use std::{fmt, time::Duration};

use fred::types::{
    RespVersion,
    config::{Config, ServerConfig},
};

/// The forms of a URL, without and with TLS.
const SCHEMES: [&str; 6] = [
    "redis",
    "rediss",
    "redis-cluster",
    "rediss-cluster",
    "redis-sentinel",
    "rediss-sentinel",
];

/// How Redis is to be used.
#[derive(Clone)]
pub struct Options {
    /// One server (`redis://user:password@host:6379/0`), a cluster
    /// (`redis-cluster://host:6379?node=other:6379`), or servers that Sentinels watch
    /// (`redis-sentinel://host:26379?sentinelServiceName=name&node=other:26379`); each also with an
    /// `s` for TLS (`rediss-cluster://…`).
    pub url: String,
    /// What every key and channel begins with, a colon after it. Relays that do not share limits
    /// must not share this.
    pub prefix: String,
    /// How long a step of making a connection may take.
    pub connect_timeout: Duration,
    /// How long a command may take that nobody waits for: pokes, subscriptions, counters.
    pub timeout: Duration,
    /// How long a request waits for its limit before this replica decides by itself.
    pub limiter_timeout: Duration,
}

/// Its URL may hold a password.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("prefix", &self.prefix)
            .field("connect_timeout", &self.connect_timeout)
            .field("timeout", &self.timeout)
            .field("limiter_timeout", &self.limiter_timeout)
            .finish_non_exhaustive()
    }
}

/// What is wrong with options. Holds nothing of the URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// Not one of the forms that a URL may have.
    #[error("must begin with redis://, redis-cluster:// or redis-sentinel:// (rediss… for TLS)")]
    Scheme,
    /// A Sentinel's URL that does not say what is watched.
    #[error("needs ?sentinelServiceName=… : what the Sentinels call the servers they watch")]
    Service,
    /// A cluster has one database.
    #[error("names a database; a cluster has only one, and no number")]
    Database,
    /// Anything else.
    #[error("is no URL of a Redis")]
    Url,
    /// The system's certificates cannot be read.
    #[error("asks for TLS, and the system's certificates cannot be read")]
    Certificates,
    /// The prefix.
    #[error("must be 1 to 64 letters, digits, or any of . : _ -")]
    Prefix,
}

impl Options {
    /// The usual ones for a URL.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            prefix: "argala".to_owned(),
            connect_timeout: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            limiter_timeout: Duration::from_millis(50),
        }
    }

    /// Whether the URL can be used.
    ///
    /// # Errors
    /// [`OptionsError`], whose text says what is wrong and repeats nothing of it.
    pub fn check_url(&self) -> Result<(), OptionsError> {
        self.config().map(drop)
    }

    /// Whether the prefix can be used.
    ///
    /// # Errors
    /// [`OptionsError::Prefix`].
    pub fn check_prefix(&self) -> Result<(), OptionsError> {
        let legal = |c: char| c.is_ascii_alphanumeric() || ".:_-".contains(c);
        ((1..=64).contains(&self.prefix.len()) && self.prefix.chars().all(legal))
            .then_some(())
            .ok_or(OptionsError::Prefix)
    }

    pub(crate) fn config(&self) -> Result<Config, OptionsError> {
        let (scheme, rest) = self.url.split_once("://").ok_or(OptionsError::Scheme)?;
        if !SCHEMES.contains(&scheme) {
            return Err(OptionsError::Scheme);
        }
        let query = rest.split_once('?').map_or("", |(_, query)| query);
        let is_given = |name: &str| {
            query.split('&').any(|pair| {
                pair.split_once('=')
                    .is_some_and(|(key, value)| key == name && !value.is_empty())
            })
        };
        if scheme.ends_with("-sentinel") && !is_given("sentinelServiceName") {
            return Err(OptionsError::Service);
        }
        let place = rest.split('?').next().unwrap_or_default();
        if scheme.ends_with("-cluster")
            && place
                .split_once('/')
                .is_some_and(|(_, path)| !path.is_empty())
        {
            return Err(OptionsError::Database);
        }
        let mut config = Config::from_url(&self.url).map_err(|error| match error.kind() {
            fred::error::ErrorKind::Tls => OptionsError::Certificates,
            _ => OptionsError::Url,
        })?;
        // Subscriptions share a connection with what asks whether it lives.
        config.version = RespVersion::RESP3;
        Ok(config)
    }
}

/// Another order of the same hosts: the library asks the first Sentinel that takes a connection,
/// and takes no other when that one says nothing.
pub(crate) fn rotate(config: &mut Config, by: usize) {
    if let ServerConfig::Sentinel { hosts, .. } | ServerConfig::Clustered { hosts, .. } =
        &mut config.server
    {
        let count = hosts.len().max(1);
        hosts.rotate_left(by % count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_six_forms() {
        for url in [
            "redis://127.0.0.1:6379",
            "redis://user:pa%2Fss@cache.internal/3",
            "rediss://cache.internal",
            "redis-cluster://a:1?node=b:2&node=c:3",
            "rediss-cluster://:password@a:1",
            "redis-sentinel://a:1/0?sentinelServiceName=main&node=b:2",
        ] {
            assert_eq!(Options::new(url).check_url(), Ok(()), "{url}");
        }
        for (url, fault) in [
            ("", OptionsError::Scheme),
            ("cache.internal:6379", OptionsError::Scheme),
            ("http://a", OptionsError::Scheme),
            ("redis+unix:///run/redis.sock", OptionsError::Scheme),
            ("redis://", OptionsError::Url),
            ("redis://a:port", OptionsError::Url),
            ("redis-sentinel://a:1", OptionsError::Service),
            (
                "redis-sentinel://a:1?sentinelServiceName=",
                OptionsError::Service,
            ),
            ("redis-cluster://a:1/2", OptionsError::Database),
        ] {
            assert_eq!(Options::new(url).check_url(), Err(fault), "{url}");
        }
    }

    #[test]
    fn nothing_of_a_url_is_shown() {
        let options = Options::new("redis://:secret@host.internal:port");
        let fault = options.check_url().expect_err("no port");
        let shown = format!("{options:?} {fault:?} {fault}");
        assert!(!shown.contains("secret") && !shown.contains("host.internal"));
    }

    #[test]
    fn prefixes_are_short_and_plain() {
        let with = |prefix: &str| Options {
            prefix: prefix.to_owned(),
            ..Options::new("redis://a")
        };
        assert_eq!(with("eu-1:argala").check_prefix(), Ok(()));
        for prefix in ["", "a b", "{a}", "é", &"x".repeat(65)] {
            assert_eq!(with(prefix).check_prefix(), Err(OptionsError::Prefix));
        }
    }
}
