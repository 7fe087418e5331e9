//! A small production: `relay serve` with tokens.

use std::{path::Path, time::Duration};

use argala_http::{JwtConfig, JwtKey, mint};
use argala_wire::{StorageKey, Timestamp, devices::DeviceRef};
use serde_json::json;

use crate::{
    device::TestDevice,
    http::{Answer, header},
    process::{Served, ok, run, text},
};

const SECRET: &str = "a-secret-of-at-least-thirty-two-bytes";

fn config() -> String {
    format!(
        "[auth.jwt]\nsecret = \"{SECRET}\"\nissuer = \"host\"\naudience = \"argala\"\nleeway = \"5s\"\n\
         [directory]\ncache_ttl = \"1s\"\n"
    )
}

/// A token of sam's laptop, made as `change` wants it, good for an hour from `at`.
fn token(at: Timestamp, change: impl FnOnce(&mut JwtConfig)) -> String {
    let mut config = JwtConfig {
        keys: vec![JwtKey::Secret(SECRET.as_bytes().to_vec())],
        issuers: vec!["host".to_owned()],
        audiences: vec!["argala".to_owned()],
        ..JwtConfig::default()
    };
    change(&mut config);
    let device = DeviceRef {
        member_id: "sam".parse().unwrap(),
        device_id: "laptop".parse().unwrap(),
    };
    mint(&config, &device, at, Duration::from_secs(3_600)).unwrap()
}

fn minted(folder: &Path, member: &str, device: &str) -> String {
    let args = ["admin", "token", "mint", "--config", "relay.toml"];
    let args = [&args[..], &["--member", member, "--device", device]].concat();
    ok(&args, folder).trim().to_owned()
}

fn limits(served: &Served, credential: &str) -> Answer {
    served
        .public
        .get("/limits", &[("authorization", credential)])
}

#[test]
fn a_minted_token_is_believed_and_records_must_be_signed() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::with_config(folder.path(), &config());
    ok(
        &["admin", "member", "add", "sam", "--config", "relay.toml"],
        folder.path(),
    );
    let credential = format!("Bearer {}", minted(folder.path(), "sam", "laptop"));
    let sam = TestDevice::with_credential("sam", "laptop", &credential);
    sam.register(&served.public).ok();
    sam.rotate(&served.public, "d:sam", &[&sam]).ok();
    let graph: StorageKey = "d:sam:sam".parse().unwrap();
    let signed = sam.record(&graph, "signed", b"sealed");
    let mut bare = sam.record(&graph, "bare", b"sealed");
    bare.as_object_mut().unwrap().remove("sig");
    let answer = sam.push(&served.public, "d:sam", &[signed, bare]).ok();
    assert_eq!(answer["accepted"], 1);
    assert_eq!(answer["results"][1]["reason"], "signature_missing");

    // The credential is the device's and no other's: the route tells it to register first.
    let other = format!("Bearer {}", minted(folder.path(), "sam", "phone"));
    let answer = served.public.get("/graphs", &[("authorization", &other)]);
    assert_eq!(answer.json()["code"], "device_unregistered");
    assert!(served.stop().0.success());
}

#[test]
fn other_tokens_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::with_config(folder.path(), &config());
    ok(
        &["admin", "member", "add", "sam", "--config", "relay.toml"],
        folder.path(),
    );
    let now: Timestamp = {
        let args = [
            "admin",
            "token",
            "mint",
            "--config",
            "relay.toml",
            "--ttl",
            "1s",
        ];
        let args = [
            &args[..],
            &["--member", "sam", "--device", "laptop", "--output", "json"],
        ]
        .concat();
        let minted: serde_json::Value = serde_json::from_str(&ok(&args, folder.path())).unwrap();
        minted["expiresAt"].as_str().unwrap().parse().unwrap()
    };
    let good = token(now, |_| {});
    assert_eq!(limits(&served, &format!("Bearer {good}")).status, 200);
    let day = Duration::from_secs(86_400);
    let refused = [
        ("expired", token(now.saturating_sub(day), |_| {})),
        (
            "another secret",
            token(now, |config| {
                config.keys = vec![JwtKey::Secret(vec![b'x'; 32])];
            }),
        ),
        (
            "another issuer",
            token(now, |config| config.issuers = vec!["guest".to_owned()]),
        ),
        (
            "another audience",
            token(now, |config| config.audiences = vec!["else".to_owned()]),
        ),
        (
            "no device",
            token(now, |config| config.device_claim = "laptop".to_owned()),
        ),
        ("mangled", good[..good.len() - 2].to_owned()),
    ];
    for (why, token) in refused {
        let answer = limits(&served, &format!("Bearer {token}"));
        assert_eq!(answer.status, 401, "{why}");
        assert_eq!(answer.json()["code"], "unauthenticated");
        assert_eq!(header(&answer.head, "www-authenticate"), Some("Bearer"));
    }
    assert_eq!(
        limits(&served, "Dev sam/laptop").status,
        401,
        "the dev server's credential"
    );
    let (_, log) = served.stop();
    for reason in [
        "expired",
        "bad_signature",
        "wrong_issuer",
        "wrong_audience",
        "no_device_claim",
    ] {
        assert!(log.contains(reason), "{reason}: {log}");
    }
    assert!(!log.contains(&good), "a token was logged");
}

#[test]
fn without_a_shared_secret_no_token_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(
        &[
            "admin", "token", "mint", "--member", "sam", "--device", "laptop",
        ],
        folder.path(),
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("auth.jwt"),
        "{}",
        text(&output.stderr)
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn the_answer_for_programs_tells_the_expiry() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("relay.toml"), config()).unwrap();
    let args = [
        "admin",
        "token",
        "mint",
        "--config",
        "relay.toml",
        "--output",
        "json",
    ];
    let args = [
        &args[..],
        &["--member", "sam", "--device", "laptop", "--ttl", "90s"],
    ]
    .concat();
    let answer: serde_json::Value = serde_json::from_str(&ok(&args, folder.path())).unwrap();
    assert!(answer["token"].as_str().unwrap().matches('.').count() == 2);
    assert!(answer["expiresAt"].as_str().unwrap().ends_with('Z'));
    assert_eq!(
        answer,
        json!({"token": answer["token"], "expiresAt": answer["expiresAt"]})
    );
}
