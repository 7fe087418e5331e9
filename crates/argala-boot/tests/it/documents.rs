//! What the documents say about the configuration.

use std::{fs, path::Path};

use argala_boot::config::{Config, DEFAULTS, Sources};
use argala_wire::limits::{Quotas, RateLimits, Signatures};

fn document(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(name)).unwrap()
}

/// The content of each block of `language` in a document.
fn blocks<'a>(document: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    let after = document.split(fence.as_str()).skip(1);
    after
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

#[test]
fn every_sample_is_a_configuration_that_serves() {
    let document = document("docs/configuration.md");
    let samples = blocks(&document, "toml");
    assert!(samples.len() >= 4, "samples were found");
    let folder = tempfile::tempdir().unwrap();
    for sample in samples {
        let file = folder.path().join("relay.toml");
        fs::write(&file, sample).unwrap();
        let sources = Sources {
            file: Some(file),
            dev_auth: true,
            ..Sources::default()
        };
        let Err(error) = sources.load() else { continue };
        // A sample may name a file that the reader's machine has and this one has not.
        let absent = error
            .faults
            .iter()
            .all(|fault| fault.key.ends_with("_file") && fault.message.contains("cannot be read"));
        assert!(absent, "{error}\n{sample}");
    }
}

#[test]
fn the_defaults_are_complete_and_those_of_the_protocol() {
    let config = Config::default();
    assert_eq!(config.quotas.quotas(), Quotas::default());
    assert_eq!(config.rate_limits.rate_limits(), RateLimits::default());
    assert_eq!(config.relay.signatures, Signatures::Required);
    assert_eq!(config.http.prefix, "/api/argala");
    assert!(config.http.listen.ip().is_loopback());
    assert!(config.admin.listen.ip().is_loopback());
    assert_eq!(config.http.listen.port(), 8787);
    assert_eq!(config.shutdown.grace.0.as_secs(), 25);
    assert_eq!(config.directory.cache_ttl.0.as_secs(), 5);
}

#[test]
fn the_keys_without_a_default_are_documented_beside_the_others() {
    for key in [
        "secret",
        "secret_file",
        "public_key",
        "public_key_file",
        "issuer",
        "audience",
        "url",
        "url_file",
        "direct_url",
        "direct_url_file",
        "bucket",
        "endpoint",
        "access_key_id",
        "access_key_id_file",
        "secret_access_key",
        "secret_access_key_file",
    ] {
        assert!(DEFAULTS.contains(&format!("\n# {key} = ")), "{key}");
    }
}

#[test]
fn the_exit_statuses_of_the_document_are_those_of_the_help() {
    let document = document("docs/configuration.md");
    for row in ["| 0 |", "| 1 |", "| 2 |", "| 3 |", "| 130, 143 |"] {
        assert!(document.contains(row), "{row}");
    }
}
