//! Recounting, restoring and erasing; and what the binary has no statements for.

use std::path::Path;

use serde_json::{Value, json};

use crate::{
    device::TestDevice,
    process::{Served, ok, run, text},
};

/// What an admin command prints for programs, on the data of a development relay.
fn admin(folder: &Path, args: &[&str]) -> Value {
    let args = [&["admin"], args, &["--data", "kept", "--output", "json"]].concat();
    serde_json::from_str(&ok(&args, folder)).unwrap()
}

/// A relay with sam's and alex's devices, sam's own graph and the group's, each with records.
fn filled(folder: &Path) -> (Served, TestDevice, TestDevice) {
    let served = Served::dev(folder, &["--set", "directory.cache_ttl=0s"]);
    let sam = TestDevice::dev("sam", "laptop");
    let alex = TestDevice::dev("alex", "tablet");
    for device in [&sam, &alex] {
        device.register(&served.public).ok();
    }
    sam.rotate(&served.public, "d:sam", &[&sam]).ok();
    sam.rotate(&served.public, "g:acme", &[&sam, &alex]).ok();
    for (device, graph, id) in [
        (&sam, "d:sam:sam", "own"),
        (&sam, "g:acme", "of sam"),
        (&alex, "g:acme", "of alex"),
    ] {
        let record = device.record(&graph.parse().unwrap(), id, b"sealed");
        let graph = if graph == "g:acme" { graph } else { "d:sam" };
        assert_eq!(
            device.push(&served.public, graph, &[record]).ok()["accepted"],
            1
        );
    }
    (served, sam, alex)
}

#[test]
fn counters_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let (mut served, _, _) = filled(folder.path());
    let told = admin(folder.path(), &["recount"]);
    assert_eq!(told, json!({"graphs": 2, "wrong": [], "fixed": false}));
    let told = admin(folder.path(), &["recount", "g:acme", "--fix"]);
    assert_eq!(told, json!({"graphs": 1, "wrong": [], "fixed": true}));
    let output = run(
        &["admin", "recount", "g:none", "--data", "kept"],
        folder.path(),
    );
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("no such graph"));
    assert!(served.stop().0.success());
}

#[test]
fn a_member_is_erased() {
    let folder = tempfile::tempdir().unwrap();
    let (mut served, sam, alex) = filled(folder.path());
    let would = admin(folder.path(), &["erase", "member", "sam", "--dry-run"]);
    assert_eq!(would["graphs"], json!(["d:sam:sam"]));
    assert_eq!(
        (&would["shared"], &would["devices"]),
        (&json!(["g:acme"]), &json!(1))
    );
    assert_eq!(
        sam.pull_all(&served.public, "d:sam").len(),
        1,
        "nothing has changed"
    );

    let told = admin(folder.path(), &["erase", "member", "sam"]);
    assert_eq!(told["graphs"], json!(["d:sam:sam"]));
    assert_eq!(told["records"], 2);
    let left = told["left"].as_array().unwrap();
    assert!(
        left[0]
            .as_str()
            .unwrap()
            .starts_with("g:acme: its current epoch"),
        "{left:?}"
    );
    let refused = served.public.get("/graphs", &sam.headers());
    assert_eq!(refused.status, 403);
    let pulled = alex.pull_all(&served.public, "g:acme");
    assert_eq!(pulled.len(), 1);
    assert_eq!(pulled[0]["id"], "of alex");
    // Once the others have rotated, what was left goes too.
    let wraps = json!([{"memberId": "alex", "deviceId": "tablet", "wrap": "AAAA"}]);
    let body = json!({"epoch": 2, "wraps": wraps});
    let rotated = served
        .public
        .post("/graphs/g:acme/rotate", &alex.headers(), &body);
    assert_eq!(rotated.status, 200);
    let told = admin(folder.path(), &["erase", "member", "sam"]);
    assert_eq!((&told["devices"], &told["wraps"]), (&json!(1), &json!(1)));
    assert!(!told["left"].to_string().contains("current epoch"));
    let members = admin(folder.path(), &["member", "list"]);
    assert!(!members.to_string().contains("sam"));
    assert_eq!(admin(folder.path(), &["recount"])["wrong"], json!([]));
    assert!(served.stop().0.success());
}

#[test]
fn a_graph_is_erased() {
    let folder = tempfile::tempdir().unwrap();
    let (mut served, sam, alex) = filled(folder.path());
    let would = admin(folder.path(), &["erase", "graph", "g:acme", "--dry-run"]);
    assert_eq!(
        (&would["dryRun"], &would["records"]),
        (&json!(true), &json!(2))
    );
    assert_eq!(sam.pull_all(&served.public, "g:acme").len(), 2);
    let told = admin(folder.path(), &["erase", "graph", "g:acme"]);
    assert_eq!(told["records"], 2);
    let shown = served.public.get("/graphs/g:acme", &alex.headers()).ok();
    assert_eq!((&shown["epoch"], &shown["head"]), (&json!(0), &json!(0)));
    sam.rotate(&served.public, "g:acme", &[&sam, &alex]).ok();
    let output = run(
        &["admin", "erase", "graph", "g:none", "--data", "kept"],
        folder.path(),
    );
    assert!(!output.status.success());
    assert!(served.stop().0.success());
}

#[test]
fn a_restored_database_owes_rotations() {
    let folder = tempfile::tempdir().unwrap();
    let (mut served, sam, alex) = filled(folder.path());
    let before = served
        .public
        .get("/graphs/g:acme/pull", &alex.headers())
        .ok();
    assert!(served.stop().0.success());
    let told = admin(folder.path(), &["restored"]);
    assert_eq!(
        (&told["graphs"], &told["epochs"]),
        (&json!(2), &json!(1_000))
    );
    assert!(told["toDo"].as_str().unwrap().contains("revoke"));
    let mut served = Served::dev(folder.path(), &[]);
    let path = format!(
        "/graphs/g:acme/pull?cursor={}",
        before["cursor"].as_str().unwrap()
    );
    let answer = served.public.get(&path, &alex.headers());
    assert_eq!(answer.status, 410);
    assert_eq!(answer.json()["reason"], "ahead");
    let graphs = served.public.get("/graphs", &sam.headers()).ok();
    for graph in graphs["graphs"].as_array().unwrap() {
        assert_eq!(
            (&graph["epoch"], &graph["rotationOwed"]),
            (&json!(1_001), &json!(true))
        );
    }
    assert!(served.stop().0.success());
}

/// What the sweep asks a Postgres for, and nothing else does: see `services/sweeper/tests`, where the
/// same text is found.
#[test]
fn the_relay_has_no_statement_of_a_sweep_on_a_server() {
    let binary = std::fs::read(env!("CARGO_BIN_EXE_relay")).unwrap();
    let has = |text: &str| {
        binary
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    // So that it would be found: the text of a push, and of the sweep on a file.
    assert!(has("FOR NO KEY UPDATE"));
    assert!(has("UPDATE blobs SET look_at = ?2"));
    assert!(!has("UPDATE blobs b SET look_at = $2"));
    assert!(!has("pg_try_advisory_lock"));
}
