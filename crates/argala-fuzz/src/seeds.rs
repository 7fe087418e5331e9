//! The seeds, written by this code and compared with it: a fuzzer that begins with what is refused
//! at the first byte finds nothing. So a seed whose name begins with `no-` is refused by its target,
//! and every other is taken; a test holds that.
//!
//! `ARGALA_WRITE_SEEDS=1 cargo test -p argala-fuzz seeds` writes them anew.

use std::{fs, path::PathBuf};

use argala_testkit::TestDevice;
use argala_wire::{
    Sealed, StorageKey,
    blobs::BlobResponse,
    codec::Format::{self, Cbor, Json},
    keys::{GrantRequest, RotateRequest},
    pokes::PokeMessage,
    records::PushRequest,
};
use http::Method;
use serde::Serialize;
use serde_json::Value;

use crate::relay::{BLOB_PATH, GRAPH, LAPTOP, Small};

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
        }
    }
}

#[test]
fn answers() {
    let relay = Small::new();
    let [laptop, phone, tablet] =
        ["laptop", "phone", "tablet"].map(|device| TestDevice::new("sam", device));
    let key: StorageKey = "d:sam:sam".parse().unwrap();
    let keep_both = |which: u8, name: &str, method: &Method, path: &str, body: &[u8]| {
        for format in [Json, Cbor] {
            let headers = [
                ("accept", format.media_type()),
                ("content-type", argala_wire::JSON),
            ];
            let answer = relay.send(method.clone(), path, &headers, body.to_vec());
            keep_answer(which, name, format, &answer.body);
        }
    };

    let get = |which, name, path: &str| keep_both(which, name, &Method::GET, path, b"");
    get(1, "devices", "/devices");
    get(3, "graphs", "/graphs");
    get(4, "graph", GRAPH);
    get(5, "wraps", &format!("{GRAPH}/wraps"));
    get(9, "pull", &format!("{GRAPH}/pull"));
    get(11, "limits", "/limits");
    let there_is_none = format!("{GRAPH}/blobs/a-blob-that-is-not");
    get(12, "problem", &there_is_none);

    // Each of these answers the same when it is asked again, so that both forms have it.
    let post = |which, name, path: &str, body: Vec<u8>| {
        keep_both(which, name, &Method::POST, path, &body);
    };
    let mut register = laptop.register_request();
    register.label = Some(b"a sealed name".as_slice().into());
    post(0, "register", "/devices", Json.encode(&register));
    relay.0.register(&phone);
    let wraps = vec![
        laptop.grant_wrap(1, "wrap"),
        laptop.grant_wrap(7, "x"),
        tablet.grant_wrap(1, "x"),
    ];
    let grant = GrantRequest { wraps };
    post(7, "grant", &format!("{GRAPH}/grant"), Json.encode(&grant));
    let mut unsigned = laptop.record(&key, "x", 1, b"sealed");
    unsigned.sig = None;
    let mut conflict = laptop.record(&key, "b", 1, b"sealed anew");
    conflict.expect = Some(9);
    let push = PushRequest {
        records: vec![
            laptop.record(&key, "a", 1, b"sealed"),
            laptop.record(&key, "y", 3, b"sealed"),
            unsigned,
            conflict,
        ],
        ..PushRequest::default()
    };
    post(8, "push", &format!("{GRAPH}/push"), Json.encode(&push));
    let atomic = PushRequest {
        atomic: true,
        ..push
    };
    let atomic = Json.encode(&atomic);
    post(12, "problem-push", &format!("{GRAPH}/push"), atomic);
    let deletion = PushRequest {
        records: vec![laptop.tombstone(&key, "a", 1)],
        ..PushRequest::default()
    };
    post(
        8,
        "push-deleted",
        &format!("{GRAPH}/push"),
        Json.encode(&deletion),
    );
    get(9, "pull-deleted", &format!("{GRAPH}/pull"));
    let none = Json.encode(&RotateRequest {
        epoch: 2,
        wraps: vec![phone.rotate_wrap("x"), tablet.rotate_wrap("x")],
    });
    post(12, "problem-rotate", &format!("{GRAPH}/rotate"), none);
    let rotate = Json.encode(&RotateRequest {
        epoch: 2,
        wraps: vec![laptop.rotate_wrap("x"), phone.rotate_wrap("x")],
    });
    post(6, "rotate", &format!("{GRAPH}/rotate"), rotate);
    keep_both(2, "revoke", &Method::DELETE, "/devices/phone", b"");
    get(4, "graph-owed", GRAPH);
    get(1, "devices-revoked", "/devices");

    // A PUT of a blob answers in JSON, and a poke is JSON: in CBOR they are written here.
    let path = format!("{GRAPH}/blobs/a-blob-that-expires?policy=expire&ttl=60");
    let put = relay.send(Method::PUT, &path, &[("content-length", "5")], "bytes");
    let blob: BlobResponse = Json.decode_answer(&put.body).unwrap();
    let graph_id = "d:alex".parse().unwrap();
    let pokes = [
        ("hello", PokeMessage::Hello),
        ("resync", PokeMessage::Resync),
        ("poke", PokeMessage::Poke { graph_id }),
    ];
    for format in [Json, Cbor] {
        keep_answer(10, "blob", format, &format.encode(&blob));
        for (name, poke) in &pokes {
            keep_answer(13, name, format, &format.encode(poke));
        }
    }
    // Answers may gain fields, and have their bytes padded.
    let grown = br#"{"results":[{"new":[1],"id":"a","seq":3},{"id":"b","reason":"conflict","seq":0,"new":null}],"head":3,"new":{"a":1.5},"accepted":1,"rejected":1}"#;
    keep_answer(8, "push-grown", Json, grown);
    let padded = br#"{"blobId":"0123456789abcdef","size":1,"sha256":"Zg==","policy":"keep","expiresAt":null}"#;
    keep_answer(10, "blob-padded", Json, padded);
    let to_the_millisecond = br#"{"blobId":"0123456789abcdef","size":1,"sha256":"Zg","policy":"expire","expiresAt":"2026-01-01T00:00:59.999Z"}"#;
    keep_answer(10, "blob-millisecond", Json, to_the_millisecond);
    let tight = br#"{"blobId":"0123456789abcde","size":1,"sha256":"Zg","policy":"keep"}"#;
    keep("answers", "no-blob", &[b"\x0a", &tight[..]].concat());
}

fn keep_answer(which: u8, name: &str, format: Format, body: &[u8]) {
    let (mark, form) = match format {
        Json => (0, "json"),
        Cbor => (0x80, "cbor"),
    };
    let bytes = [&[which | mark], body].concat();
    keep("answers", &format!("{name}-{form}"), &bytes);
}

#[test]
fn cursors() {
    // Who asks where: `cursors` says which list is which. The last bit is for the other relay.
    let given = |relay: u64, path: &str| {
        let relay = crate::cursors::relay(relay);
        let path = format!("{path}limit=1");
        let answer = relay.send_as(LAPTOP, Method::GET, &path, &[], "");
        let answer: Value = serde_json::from_slice(&answer.body).unwrap();
        answer["cursor"].as_str().unwrap().to_owned()
    };
    let own = |walk: &str| format!("{GRAPH}{walk}");
    let lists = [
        ("devices", 0, "/devices?".to_owned()),
        ("graphs", 1, "/graphs?".to_owned()),
        ("pull", 2, own("/pull?")),
        ("pull-epoch", 3, own("/pull?epoch=1&")),
        ("graph-devices", 4, own("/devices?")),
        ("wraps", 5, own("/wraps?")),
        ("group", 6, "/graphs/g%3Aacme/pull?".to_owned()),
        ("unkeyed", 10 | 0x80, "/graphs/d%3Aalex/pull?".to_owned()),
        (
            "no-cursor-of-a-group",
            2,
            "/graphs/g%3Aacme/pull?".to_owned(),
        ),
        ("no-cursor-of-a-list", 5, own("/devices?")),
        ("no-cursor-of-an-epoch", 2, own("/pull?epoch=1&")),
        ("no-cursor-of-all-epochs", 3, own("/pull?")),
        ("no-cursor-of-the-past", 2 | 0x80, own("/pull?")),
    ];
    for (name, which, path) in lists {
        let cursor = given(0, &path);
        keep("cursors", name, &[&[which], cursor.as_bytes()].concat());
        if name == "devices" || name == "pull" {
            // What a forger may begin with: all but the check.
            let content = Sealed::from_base64url(&cursor).unwrap().0;
            let content = &content[..content.len() - 6];
            let forged = [&[which | 0x40], content].concat();
            keep("cursors", &format!("{name}-forged"), &forged);
        }
    }
    keep("cursors", "no-cursor", &[2]);
}

#[test]
fn headers() {
    let tag = Small::new().send(Method::GET, BLOB_PATH, &[], "").headers["etag"].clone();
    let tag = tag.to_str().unwrap();
    // The digest of the five bytes that the target puts, and of none.
    let right = "J3CJ2RwL308uaGK6fkoHYFEZQx9dE/cm3TUrBvGyBqk=";
    let wrong = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
    let octets =
        |digest: &str| format!("content-type: application/octet-stream\ncontent-digest: {digest}");
    let seeds = [
        (
            "part",
            format!("range: bytes=3-9\nif-range: {tag}\naccept: application/cbor"),
        ),
        (
            "part-of-another",
            "range: bytes=3-9\nif-range: \"x\"".to_owned(),
        ),
        ("same", format!("if-none-match: \"x\", W/{tag}")),
        (
            "same-in-part",
            "range: bytes=3-9\nif-none-match: *".to_owned(),
        ),
        ("first", "range: bytes=0-0".to_owned()),
        ("last", "range: bytes=46-46".to_owned()),
        ("beyond", "range: bytes=40-47".to_owned()),
        ("suffix", "range: bytes=-1".to_owned()),
        ("suffix-of-all", "range: bytes=-48".to_owned()),
        ("open", "range: bytes=46-".to_owned()),
        ("many", "range: bytes=0-1,3-4".to_owned()),
        ("backwards", "range: bytes=5-2".to_owned()),
        ("no-range", "range: bytes=47-".to_owned()),
        ("no-suffix", "range: bytes=-0".to_owned()),
        (
            "digest",
            octets(&format!("md5=:AAAA:;x=1, sha-256=:{right}:")),
        ),
        (
            "digest-unpadded",
            octets(&format!("sha-256=:{}:", right.trim_end_matches('='))),
        ),
        ("digest-of-others", octets("sha-512=:AAAA:, a=(1 \"b\");c")),
        (
            "digest-last",
            octets(&format!("sha-256=:{wrong}:, sha-256=:{right}:")),
        ),
        ("no-digest", octets(&format!("sha-256=:{wrong}:"))),
        (
            "no-digest-last",
            octets(&format!(
                "sha-256=:{right}:\ncontent-digest: sha-256=:{wrong}:"
            )),
        ),
        ("no-digest-short", octets("sha-256=:AAAA:")),
        ("no-digest-hidden", octets("md5=:AAAA, sha-256=:,x=:AAAA:")),
        (
            "push",
            "content-type: application/json; charset=utf-8\nidempotency-key: a-key\naccept: text/html;q=0.5, application/*;q=0.9\nx-request-id: abc"
                .to_owned(),
        ),
    ];
    for (name, lines) in seeds {
        keep("headers", name, lines.as_bytes());
    }
}

/// What may stand in a name and has a meaning elsewhere, but for `%` and `:`.
const PUNCTUATION: &str = "!\"#$&'()*+,-./;<=>?@[\\]^_`{|}~";

#[test]
fn names() {
    keep("ids", "punctuation", format!("{PUNCTUATION}%:").as_bytes());
    let group = format!("x\ng:{PUNCTUATION}%:");
    keep("graphs", "punctuation", group.as_bytes());
    let group = format!("g:{PUNCTUATION}%25%3A");
    keep("storage_keys", "punctuation", group.as_bytes());
    for (name, text) in [
        ("plain", "sam"),
        ("host", "auth0|42"),
        ("blob", "0123456789abcdef_-XY"),
        ("wide", "é🦀 x"),
        ("dots", ".."),
        ("no-space", " sam"),
        ("no-control", "sa\u{9f}m"),
    ] {
        keep("ids", name, text.as_bytes());
    }
    let longest = "0123456789abcde_".repeat(8);
    keep("ids", "longest", longest.as_bytes());
    keep("ids", "no-longer", format!("{longest}f").as_bytes());
    for (name, text) in [
        ("group", "sam\ng:a:b/c 100%"),
        ("pair", "sam\nd:alex"),
        ("own", "a:b%\nd:a:b%"),
        ("no-kind", "x\nx:y"),
        ("no-upper-case", "x\nD:y"),
        ("no-id", "x\nd:"),
    ] {
        keep("graphs", name, text.as_bytes());
    }
    for (name, text) in [
        ("group", "g:a%3Ab/c 100%25"),
        ("pair", "d:auth0|42:user%3A7"),
        ("own", "d:50%25:50%25"),
        ("no-order", "d:b:a"),
        ("no-lower-case", "g:a%3ab"),
        ("no-other-escape", "g:a%2Fb"),
        ("no-bare-percent", "g:50%"),
        ("no-third", "d:a:b:c"),
        ("no-colon", "g:a:b"),
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
    keep("credentials", "no-signature", none.as_bytes());
    keep(
        "credentials",
        "no-bearer",
        b"\0Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJzYW0ifQ.AAAA",
    );
    keep("credentials", "dev", b"\0Dev sam/laptop");
    keep("credentials", "encoded", b"\x02auth0%7C42/user%3A7%2F");
}
