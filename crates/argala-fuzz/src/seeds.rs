//! The seeds that are good requests and good answers, written by this code and compared with it:
//! a fuzzer that begins with what is refused at the first byte finds nothing.
//!
//! `ARGALA_WRITE_SEEDS=1 cargo test -p argala-fuzz seeds` writes them anew.

use std::{fs, path::PathBuf};

use argala_testkit::TestDevice;
use argala_wire::{
    StorageKey,
    codec::Format::{self, Cbor, Json},
    keys::{GrantRequest, RotateRequest},
    records::PushRequest,
};
use http::Method;
use serde::Serialize;
use serde_json::Value;

use crate::relay::{BLOB_PATH, GRAPH, Small};

fn keep(target: &str, name: &str, bytes: &[u8]) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let path = folder.join(name);
    if std::env::var_os("ARGALA_WRITE_SEEDS").is_some() {
        fs::create_dir_all(&folder).unwrap();
        fs::write(&path, bytes).unwrap();
    }
    let there = fs::read(&path).unwrap_or_default();
    assert!(
        there == bytes,
        "{target}/{name} is not what this code writes"
    );
}

/// One byte that says what it is and in which form, and the body.
fn bytes<T: Serialize>(which: u8, format: Format, value: &T) -> Vec<u8> {
    let mark = if format == Cbor { 0x80 } else { 0 };
    let mut all = vec![which | mark];
    all.extend(format.encode(value));
    all
}

#[test]
fn bodies_and_requests() {
    let (laptop, phone) = (
        TestDevice::new("sam", "laptop"),
        TestDevice::new("sam", "phone"),
    );
    let key: StorageKey = "d:sam:sam".parse().unwrap();
    let mut register = laptop.register_request();
    register.label = Some(b"a sealed name".as_slice().into());
    let rotate = RotateRequest {
        epoch: 2,
        wraps: vec![laptop.rotate_wrap("second")],
    };
    let grant = GrantRequest {
        wraps: vec![laptop.grant_wrap(1, "wrap"), phone.grant_wrap(1, "x")],
    };
    let push = PushRequest {
        records: vec![
            laptop.record(&key, "c/d:é", 1, b"sealed too"),
            laptop.tombstone(&key, "a", 1),
        ],
        if_head: Some(2),
        atomic: true,
    };
    for format in [Json, Cbor] {
        let form = if format == Json { "json" } else { "cbor" };
        let all = [
            ("register", bytes(0, format, &register)),
            ("rotate", bytes(1, format, &rotate)),
            ("grant", bytes(2, format, &grant)),
            ("push", bytes(3, format, &push)),
        ];
        for (name, bytes) in all {
            for target in ["bodies", "requests"] {
                keep(target, &format!("{name}-{form}"), &bytes);
            }
            // A seed that is refused at once is none.
            let path = match name {
                "register" => "/devices".to_owned(),
                name => format!("{GRAPH}/{name}"),
            };
            let headers = [("content-type", format.media_type())];
            let answer = Small::new().send(Method::POST, &path, &headers, bytes[1..].to_vec());
            assert!(answer.status.is_success(), "{name}: {answer:?}");
        }
    }
}

#[test]
fn answers() {
    let relay = Small::new();
    let gets = [
        (1, "/devices".to_owned()),
        (3, "/graphs".to_owned()),
        (4, GRAPH.to_owned()),
        (5, format!("{GRAPH}/wraps")),
        (9, format!("{GRAPH}/pull")),
        (11, "/limits".to_owned()),
        (12, format!("{GRAPH}/blobs/a-blob-that-is-not")),
    ];
    for (which, path) in gets {
        for format in [Json, Cbor] {
            let headers = [("accept", format.media_type())];
            let answer = relay.send(Method::GET, &path, &headers, "");
            let mark = if format == Cbor { 0x80 } else { 0 };
            let name = format!("{which}-{}", if format == Json { "json" } else { "cbor" });
            keep(
                "answers",
                &name,
                &[&[which | mark], &answer.body[..]].concat(),
            );
        }
    }
}

#[test]
fn cursors() {
    let relay = Small::new();
    let lists = [
        (0, "/devices?limit=1".to_owned()),
        (1, "/graphs?limit=1".to_owned()),
        (2, format!("{GRAPH}/pull?limit=1")),
        (3, format!("{GRAPH}/pull?epoch=1&limit=1")),
        (4, format!("{GRAPH}/devices?limit=1")),
        (5, format!("{GRAPH}/wraps?limit=1")),
    ];
    for (which, path) in lists {
        let answer = relay.send(Method::GET, &path, &[], "");
        let answer: Value = serde_json::from_slice(&answer.body).unwrap();
        let cursor = answer["cursor"].as_str().unwrap();
        keep(
            "cursors",
            &format!("{which}"),
            &[&[which], cursor.as_bytes()].concat(),
        );
        // It is good in a relay that is made the same way.
        let mark = format!("{path}&cursor={cursor}");
        assert_eq!(Small::new().send(Method::GET, &mark, &[], "").status, 200);
    }
}

#[test]
fn headers() {
    let tag = Small::new().send(Method::GET, BLOB_PATH, &[], "").headers["etag"].clone();
    let tag = tag.to_str().unwrap();
    let part = format!("range: bytes=3-9\nif-range: {tag}\naccept: application/cbor");
    keep("headers", "part", part.as_bytes());
    keep(
        "headers",
        "same",
        format!("if-none-match: \"x\", W/{tag}").as_bytes(),
    );
    // The digest of the five bytes that the target puts.
    let digest = "content-digest: md5=:AAAA:;x=1, sha-256=:J3CJ2RwL308uaGK6fkoHYFEZQx9dE/cm3TUrBvGyBqk=:\ncontent-type: application/octet-stream";
    keep("headers", "digest", digest.as_bytes());
    let push = "content-type: application/json; charset=utf-8\nidempotency-key: a-key\naccept: text/html;q=0.5, application/*;q=0.9\nx-request-id: abc";
    keep("headers", "push", push.as_bytes());
    for (name, line) in [
        ("suffix", "range: bytes=-1"),
        ("open", "range: bytes=46-"),
        ("many", "range: bytes=0-1,3-4"),
    ] {
        keep("headers", name, line.as_bytes());
    }
}

#[test]
fn names() {
    for (name, text) in [
        ("plain", "sam"),
        ("host", "auth0|42"),
        ("blob", "0123456789abcdef_-XY"),
        ("wide", "é🦀 x"),
        ("dot", ".."),
    ] {
        keep("ids", name, text.as_bytes());
    }
    for (name, text) in [
        ("group", "sam\ng:a:b/c 100%"),
        ("pair", "sam\nd:alex"),
        ("own", "a:b%\nd:a:b%"),
        ("other", "x\nx:y"),
    ] {
        keep("graphs", name, text.as_bytes());
    }
    for (name, text) in [
        ("group", "g:a%3Ab/c 100%25"),
        ("pair", "d:auth0|42:user%3A7"),
        ("own", "d:50%25:50%25"),
        ("wrong", "d:b:a"),
    ] {
        keep("storage_keys", name, text.as_bytes());
    }
}

#[test]
fn credentials() {
    let claims = r#"{"sub":"sam","did":"laptop","iss":"https://host.test","aud":["argala","x"],"exp":1767229200,"nbf":1767225600}"#;
    let good = format!("\u{1}{{\"alg\":\"HS256\",\"typ\":\"JWT\"}}\n{claims}");
    keep("credentials", "token", good.as_bytes());
    let none = format!("\u{1}{{\"alg\":\"none\"}}\n{claims}");
    keep("credentials", "unsigned", none.as_bytes());
    keep(
        "credentials",
        "bearer",
        b"\0Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJzYW0ifQ.AAAA",
    );
    keep("credentials", "dev", b"\0Dev sam/laptop");
    keep("credentials", "encoded", b"\x02auth0%7C42/user%3A7%2F");
}
