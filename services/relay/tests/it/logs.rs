//! What is written down, and what is not.

use argala_wire::StorageKey;
use serde_json::Value;

use crate::{
    device::TestDevice,
    process::{Served, ok},
};

const SECRET: &str = "a-secret-of-at-least-thirty-two-bytes";

#[test]
fn one_line_a_request_and_one_an_event_as_json_and_nothing_that_is_sealed() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("[auth.jwt]\nsecret = \"{SECRET}\"\n");
    let mut served = Served::with_config(folder.path(), &config);
    ok(
        &["admin", "member", "add", "sam", "--config", "relay.toml"],
        folder.path(),
    );
    let args = [
        "admin",
        "token",
        "mint",
        "--config",
        "relay.toml",
        "--member",
        "sam",
        "--device",
        "laptop",
    ];
    let token = ok(&args, folder.path()).trim().to_owned();
    let sam = TestDevice::with_credential("sam", "laptop", &format!("Bearer {token}"));
    sam.register(&served.public).ok();
    sam.rotate(&served.public, "d:sam", &[&sam]).ok();
    let graph: StorageKey = "d:sam:sam".parse().unwrap();
    let record = sam.record(
        &graph,
        "an-id-for-nobodys-eyes",
        b"content-for-nobodys-eyes",
    );
    let sealed = record["ciphertext"].as_str().unwrap().to_owned();
    sam.push(&served.public, "d%3Asam", &[record]).ok();
    sam.pull_all(&served.public, "d:sam");
    served.public.get("/graphs/g:at-all/pull?cursor=hush", &[]);
    let (_, log) = served.stop();

    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
        .collect();
    let requests = lines
        .iter()
        .filter(|line| line["message"] == "answered")
        .count();
    assert_eq!(requests, 5, "{log}");
    let events: Vec<_> = lines
        .iter()
        .filter(|line| line["target"] == "argala::event")
        .map(|line| line["type"].as_str().unwrap())
        .collect();
    let all = [
        "device.register",
        "graph.rotate",
        "graph.push",
        "graph.pull",
        "auth.rejected",
    ];
    assert_eq!(events, all, "{log}");
    let push = lines
        .iter()
        .find(|line| line["type"] == "graph.push")
        .unwrap();
    assert_eq!(
        (&push["memberId"], &push["storageKey"]),
        (&"sam".into(), &"d:sam:sam".into())
    );
    assert_eq!((&push["accepted"], &push["bytes"]), (&1.into(), &24.into()));
    for hidden in [
        "nobodys-eyes",
        &sealed,
        &token,
        SECRET,
        "d%3Asam",
        "/graphs/d:sam",
        "at-all",
        "hush",
    ] {
        assert!(!log.contains(hidden), "{hidden} stands in the log: {log}");
    }
}
