//! Where a database is, and what is asked of its TLS.

use std::{path::PathBuf, time::Duration};

use percent_encoding::percent_decode_str;
use tokio_postgres::config::{Config, SslMode, TargetSessionAttrs};

use crate::{OpenError, Options};

/// What the driver takes where nobody says anything.
const UNTOLD_KEEPALIVES_IDLE: Duration = Duration::from_secs(2 * 60 * 60);

/// What is asked of the server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Certificate {
    /// Nothing: the connection is encrypted, whoever answers.
    Any,
    /// That somebody we trust has signed it.
    Signed,
    /// That, and that it names the server.
    Named,
}

/// Where a database is, and how it is reached.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) config: Config,
    pub(crate) certificate: Certificate,
    /// Certificates to trust in place of the system's.
    pub(crate) roots: Option<PathBuf>,
}

impl Address {
    /// Reads a URL, with what the options add to it.
    pub(crate) fn parse(url: &str, options: &Options) -> Result<Self, OpenError> {
        let (mode, roots, rest) = split(url)?;
        let (encrypted, mut certificate) = match mode.as_deref() {
            Some("disable") => (SslMode::Disable, Certificate::Any),
            None | Some("prefer" | "allow") => (SslMode::Prefer, Certificate::Any),
            Some("require") => (SslMode::Require, Certificate::Any),
            Some("verify-ca") => (SslMode::Require, Certificate::Signed),
            Some("verify-full") => (SslMode::Require, Certificate::Named),
            Some(_) => return Err(OpenError::Address("sslmode is none of libpq's")),
        };
        let roots = roots.or_else(|| options.root_certificates.clone());
        if encrypted == SslMode::Require && certificate == Certificate::Any && roots.is_some() {
            // As libpq does it: who names certificates wants them to count.
            certificate = Certificate::Signed;
        }
        let mut config: Config = rest
            .parse()
            // The parser's own words may repeat the URL, and with it the password.
            .map_err(|_| OpenError::Address("it is no postgres:// URL"))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(OpenError::Address("it names no host"));
        }
        config.ssl_mode(encrypted);
        // What the URL says of these counts.
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(options.connect_timeout);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(options.operation_timeout);
        }
        // A peer that is gone without a word is noticed, even in mid-statement.
        if config.get_keepalives_idle() == UNTOLD_KEEPALIVES_IDLE {
            config.keepalives_idle(Duration::from_secs(15));
        }
        if config.get_keepalives_interval().is_none() {
            config.keepalives_interval(Duration::from_secs(5));
        }
        if config.get_keepalives_retries().is_none() {
            config.keepalives_retries(3);
        }
        if config.get_application_name().is_none() {
            config.application_name("argala");
        }
        if config.get_hosts().len() > 1 {
            // One of them is the primary, today.
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        Ok(Self {
            config,
            certificate,
            roots,
        })
    }
}

/// Takes `sslmode` and `sslrootcert` out of a URL: the driver knows three of the modes, and no
/// files.
fn split(url: &str) -> Result<(Option<String>, Option<PathBuf>, String), OpenError> {
    let Some((before, query)) = url.split_once('?') else {
        return Ok((None, None, url.to_owned()));
    };
    let (mut mode, mut roots, mut others) = (None, None, Vec::new());
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decoded = || {
            percent_decode_str(value)
                .decode_utf8()
                .map(std::borrow::Cow::into_owned)
                .map_err(|_| OpenError::Address("a parameter is no UTF-8"))
        };
        match name {
            "sslmode" => mode = Some(decoded()?),
            "sslrootcert" => roots = Some(PathBuf::from(decoded()?)),
            _ => others.push(pair),
        }
    }
    let rest = if others.is_empty() {
        before.to_owned()
    } else {
        format!("{before}?{}", others.join("&"))
    };
    Ok((mode, roots, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, OpenError> {
        Address::parse(url, &Options::new(url))
    }

    #[test]
    fn the_modes_are_libpqs() {
        for (query, encrypted, certificate) in [
            ("", SslMode::Prefer, Certificate::Any),
            ("?sslmode=disable", SslMode::Disable, Certificate::Any),
            ("?sslmode=prefer", SslMode::Prefer, Certificate::Any),
            ("?sslmode=require", SslMode::Require, Certificate::Any),
            (
                "?sslmode=require&sslrootcert=%2Fa%20b.pem",
                SslMode::Require,
                Certificate::Signed,
            ),
            ("?sslmode=verify-ca", SslMode::Require, Certificate::Signed),
            ("?sslmode=verify-full", SslMode::Require, Certificate::Named),
        ] {
            let address = parse(&format!("postgres://u:p@h:1/d{query}")).unwrap();
            assert_eq!(address.config.get_ssl_mode(), encrypted, "{query}");
            assert_eq!(address.certificate, certificate, "{query}");
        }
        let address = parse("postgres://h/d?sslrootcert=%2Fa%20b.pem").unwrap();
        assert_eq!(address.roots, Some(PathBuf::from("/a b.pem")));
    }

    #[test]
    fn other_parameters_reach_the_driver() {
        let url = "postgres://u@a:7,b:8/d?application_name=x&sslmode=require&connect_timeout=9";
        let address = parse(url).unwrap();
        assert_eq!(address.config.get_application_name(), Some("x"));
        assert_eq!(address.config.get_ports(), [7, 8]);
        assert_eq!(
            address.config.get_connect_timeout(),
            Some(&Duration::from_secs(9))
        );
        // What nobody says is ours to say.
        assert_eq!(
            address.config.get_keepalives_idle(),
            Duration::from_secs(15)
        );
        let told = parse("postgres://u@a/d?keepalives_idle=60").unwrap();
        assert_eq!(told.config.get_keepalives_idle(), Duration::from_secs(60));
        assert_eq!(
            address.config.get_target_session_attrs(),
            TargetSessionAttrs::ReadWrite
        );
    }

    #[test]
    fn what_is_no_address_is_told_without_its_password() {
        for url in [
            "postgres://u:secret@h/d?sslmode=never",
            "postgres://u:secret@h/d?nonsense=1",
            "postgres:///d",
            "mysql://u:secret@h/d",
        ] {
            let refused = parse(url).unwrap_err();
            assert!(matches!(refused, OpenError::Address(_)), "{url}");
            assert!(!format!("{refused} {refused:?}").contains("secret"));
        }
    }
}
