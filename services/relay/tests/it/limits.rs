//! What a connection may do.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    path::Path,
};

use serde_json::json;

use crate::{
    device::TestDevice,
    http::{answer, header},
    process::Served,
};

const SAM: [(&str, &str); 1] = [("authorization", "Dev sam/laptop")];

#[test]
fn one_connection_too_many_is_told_to_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(folder.path(), &["--set", "http.max_connections=2"]);
    let resting: Vec<_> = (0..2).map(|_| served.public.connect()).collect();
    let refused = served.public.get("/limits", &SAM);
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (503, &"unavailable".into())
    );
    assert!(header(&refused.head, "retry-after").is_some());
    assert!(header(&refused.head, "x-request-id").is_some());
    drop(resting);
    // Their places are free as soon as the relay has seen them go.
    while served.public.get("/limits", &SAM).status != 200 {}
}

#[test]
fn whoever_says_nothing_or_half_a_head_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(folder.path(), &["--set", "http.header_timeout=300ms"]);
    for said in [&b""[..], b"GET /api/argala/limits HTTP/1.1\r\nhost: x\r\n"] {
        let mut stream = served.public.connect();
        stream.write_all(said).unwrap();
        until_closed(stream);
    }
    // Answered, and then closed for resting.
    let rested = until_closed(served.public.begin("GET", "/limits", &SAM));
    assert!(rested.starts_with(b"HTTP/1.1 200"));
}

/// Reads until the relay closes the connection, which is long before this client gives up.
fn until_closed(mut stream: TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    if let Err(error) = stream.read_to_end(&mut said) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    said
}

#[test]
fn a_body_that_pauses_is_cut_and_a_stream_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(
        folder.path(),
        &[
            "--set",
            "http.body_timeout=300ms",
            "--set",
            "http.header_timeout=300ms",
            "--set",
            "http.write_timeout=300ms",
        ],
    );
    let sam = TestDevice::dev("sam", "laptop");
    sam.register(&served.public).ok();
    let mut stream = crate::http::Events::open(&served.public, &sam.headers());
    let mut headers = sam.headers().to_vec();
    headers.extend([
        ("content-type", "application/json"),
        ("content-length", "1000"),
    ]);
    let mut paused = served.public.begin("POST", "/devices", &headers);
    paused.write_all(b"{").unwrap();
    let cut = answer(paused).expect("an answer");
    assert_eq!(
        (cut.status, &cut.json()["code"]),
        (400, &"invalid_request".into())
    );
    // The stream has outlived every timeout by now, and still carries what happens.
    let phone = TestDevice::dev("sam", "phone");
    sam.rotate(&served.public, "d:sam", &[&sam]).ok();
    phone.register(&served.public).ok();
    assert!(stream.wait_for("argala.poke"), "the stream was cut");
}

#[test]
fn bodies_share_what_memory_there_is_and_blobs_are_not_counted() {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::dev(folder.path(), &["--set", "http.max_buffered_bytes=16 MiB"]);
    let sam = TestDevice::dev("sam", "laptop");
    sam.register(&served.public).ok();
    sam.rotate(&served.public, "d:sam", &[&sam]).ok();
    let largest = (16 << 20).to_string();
    let mut headers = sam.headers().to_vec();
    headers.extend([
        ("content-type", "application/json"),
        ("content-length", &largest),
    ]);
    let push = || {
        served.public.post(
            "/graphs/d:sam/push",
            &sam.headers(),
            &json!({"records": []}),
        )
    };
    let large = "A".repeat(2 << 20);
    let push_large = || {
        served.public.post(
            "/graphs/d:sam/push",
            &sam.headers(),
            &json!({"records": [{"id": "a", "epoch": 1, "ciphertext": large}]}),
        )
    };
    let mut greedy = served.public.begin("POST", "/graphs/d:sam/grant", &headers);
    greedy.write_all(b"{").unwrap();
    // Announcing much takes nothing from others; sending it does, once it has arrived.
    assert_eq!(push_large().status, 200);
    greedy.write_all(&vec![b' '; 15 << 20]).unwrap();
    let refused = loop {
        let answer = push_large();
        if answer.status != 200 {
            break answer;
        }
    };
    assert_eq!(push().status, 200, "there is room for a small one");
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (503, &"unavailable".into())
    );
    assert!(header(&refused.head, "retry-after").is_some());
    assert!(header(&refused.head, "x-request-id").is_some());
    put_blob(&served, &sam);
    sam.pull_all(&served.public, "d:sam");

    drop(greedy);
    while push_large().status != 200 {}
}

fn put_blob(served: &Served, sam: &TestDevice) {
    let mut headers = sam.headers().to_vec();
    headers.push(("content-type", "application/octet-stream"));
    let mut all = vec![("connection", "close"), ("content-length", "1048576")];
    all.extend(headers);
    let mut stream = served
        .public
        .begin("PUT", "/graphs/d:sam/blobs/blob-of-a-mebibyte", &all);
    stream.write_all(&vec![7; 1 << 20]).unwrap();
    assert_eq!(answer(stream).expect("an answer").status, 201);
}

#[test]
fn blobs_may_lie_in_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::dev(folder.path(), &["--set", "blobs.kind=filesystem"]);
    let sam = TestDevice::dev("sam", "laptop");
    sam.register(&served.public).ok();
    sam.rotate(&served.public, "d:sam", &[&sam]).ok();
    put_blob(&served, &sam);
    let blob = served
        .public
        .get("/graphs/d:sam/blobs/blob-of-a-mebibyte", &sam.headers());
    assert_eq!(blob.body, vec![7; 1 << 20]);
    assert!(holds_a_mebibyte(&folder.path().join("kept/blobs")));
    assert!(served.stop().0.success());
}

fn holds_a_mebibyte(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let entry = entry.unwrap();
        let about = entry.metadata().unwrap();
        if about.is_dir() {
            holds_a_mebibyte(&entry.path())
        } else {
            about.len() == 1 << 20
        }
    })
}
