//! Being told to stop.

use std::{
    io::{Read, Write},
    time::Duration,
};

use argala_wire::StorageKey;

use crate::{
    device::TestDevice,
    http::{Events, answer},
    process::{SOON, Served},
};

/// The default grace is 25 s; what is over well before it did not wait for it.
const WELL_WITHIN_THE_GRACE: Duration = Duration::from_secs(15);

/// A relay with sam's laptop registered and the graph of its own keyed.
fn keyed(folder: &std::path::Path, args: &[&str]) -> (Served, TestDevice) {
    let served = Served::dev(folder, args);
    let sam = TestDevice::dev("sam", "laptop");
    sam.register(&served.public).ok();
    sam.rotate(&served.public, "d:sam", &[&sam]).ok();
    (served, sam)
}

#[test]
fn every_stream_is_told_to_resync_and_the_process_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let (mut served, sam) = keyed(folder.path(), &[]);
    let streams: Vec<_> = (0..200)
        .map(|_| Events::open(&served.public, &sam.headers()))
        .collect();
    served.signal("TERM");
    for mut stream in streams {
        assert!(
            stream.wait_for("argala.resync"),
            "a stream ended without a word"
        );
        assert!(
            !stream.rest().contains("argala."),
            "something followed the resync"
        );
    }
    let (status, log) = served.wait(WELL_WITHIN_THE_GRACE);
    assert_eq!(status.code(), Some(0), "{log}");
}

#[test]
fn a_websocket_is_told_to_resync_too() {
    let folder = tempfile::tempdir().unwrap();
    let (mut served, sam) = keyed(folder.path(), &[]);
    let mut headers = sam.headers().to_vec();
    headers.extend([
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ]);
    let mut stream = served.public.begin("GET", "/pokes", &headers);
    let mut said = Vec::new();
    let mut byte = [0];
    // The server's frames are not masked: its text can be read as it is.
    while !String::from_utf8_lossy(&said).contains("argala.hello") {
        assert_eq!(
            stream.read(&mut byte).unwrap(),
            1,
            "{}",
            String::from_utf8_lossy(&said)
        );
        said.push(byte[0]);
    }
    served.signal("TERM");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(String::from_utf8_lossy(&rest).contains("argala.resync"));
    let (status, log) = served.wait(WELL_WITHIN_THE_GRACE);
    assert_eq!(status.code(), Some(0), "{log}");
}

#[test]
fn a_request_in_flight_finishes_and_nothing_new_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let (mut served, sam) = keyed(folder.path(), &[]);
    let graph: StorageKey = "d:sam:sam".parse().unwrap();
    let record = sam.record(&graph, "r", b"sealed");
    let body = serde_json::json!({"records": [record]}).to_string();
    let length = body.len().to_string();
    let mut headers = sam.headers().to_vec();
    headers.extend([
        ("content-type", "application/json"),
        ("content-length", length.as_str()),
    ]);
    let mut stream = served.public.begin("POST", "/graphs/d:sam/push", &headers);
    let (first, second) = body.as_bytes().split_at(10);
    stream.write_all(first).unwrap();
    // Its head must have been taken before the signal; another answer on a later connection says
    // that it has.
    sam.pull_all(&served.public, "d:sam");
    served.signal("TERM");
    served.wait_until_stopping();
    // Within a moment, nobody else is let in.
    while std::net::TcpStream::connect(&served.public.address).is_ok() {}
    stream.write_all(second).unwrap();
    let answered = answer(stream).expect("an answer");
    assert_eq!(answered.ok()["accepted"], 1);
    let (status, log) = served.wait(WELL_WITHIN_THE_GRACE);
    assert_eq!(status.code(), Some(0), "{log}");
}

/// A request that never comes to its end.
fn stuck(served: &Served, sam: &TestDevice) -> std::net::TcpStream {
    let mut headers = sam.headers().to_vec();
    headers.extend([
        ("content-type", "application/json"),
        ("content-length", "1000"),
    ]);
    let mut stream = served.public.begin("POST", "/graphs/d:sam/push", &headers);
    stream.write_all(b"{").unwrap();
    sam.pull_all(&served.public, "d:sam");
    stream
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (mut served, sam) = keyed(folder.path(), &["--set", "shutdown.grace=1h"]);
    let _stuck = stuck(&served, &sam);
    served.signal("TERM");
    served.wait_until_stopping();
    served.signal("TERM");
    let (status, log) = served.wait(SOON);
    assert_eq!(status.code(), Some(143), "{log}");
}

#[test]
fn the_grace_ends_what_does_not_end_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (mut served, sam) = keyed(folder.path(), &["--set", "shutdown.grace=500ms"]);
    let _stuck = stuck(&served, &sam);
    served.signal("INT");
    let (status, log) = served.wait(SOON);
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("the grace ended"), "{log}");
}
