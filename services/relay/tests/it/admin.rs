//! The operator's commands, beside a running relay.

use std::path::Path;

use serde_json::{Value, json};

use crate::{
    device::TestDevice,
    http::{Answer, Events},
    process::{Served, ok, run, text},
};

/// What an admin command prints for programs, on the data of a development relay.
fn admin(folder: &Path, args: &[&str]) -> Value {
    let args = [&["admin"], args, &["--data", "kept", "--output", "json"]].concat();
    serde_json::from_str(&ok(&args, folder)).unwrap()
}

/// Asks until the answer has this status; the directory's cache holds for five seconds.
fn wait_for(status: u16, ask: impl Fn() -> Answer) -> Answer {
    for _ in 0..100_000 {
        let answer = ask();
        if answer.status == status {
            return answer;
        }
    }
    panic!("never {status}")
}

/// Rate limits would end the waiting.
const GENEROUS: [&str; 4] = [
    "--set",
    "rate_limits.pull={ per_minute = 1000000000, burst = 1000000000 }",
    "--set",
    "directory.cache_ttl=2s",
];

#[test]
fn members_and_groups_take_effect_on_a_running_relay() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::dev(folder.path(), &GENEROUS);
    let robin = TestDevice::dev("robin", "tablet");
    let answer = robin.register(&served.public);
    assert_eq!(answer.json()["code"], "member_inactive");

    assert_eq!(
        admin(folder.path(), &["member", "add", "robin"]),
        json!({"changed": true})
    );
    assert_eq!(
        admin(folder.path(), &["member", "add", "robin"]),
        json!({"changed": false})
    );
    wait_for(201, || robin.register(&served.public));

    let ask = || served.public.get("/graphs/g:acme", &robin.headers());
    assert_eq!(ask().json()["code"], "graph_not_found");
    assert_eq!(
        admin(folder.path(), &["group", "join", "acme", "robin"]),
        json!({"changed": true})
    );
    wait_for(200, ask);
    let listed = admin(folder.path(), &["group", "list"]);
    assert_eq!(
        listed,
        json!([{"groupId": "acme", "members": ["alex", "robin", "sam"]}])
    );

    admin(folder.path(), &["group", "leave", "acme", "robin"]);
    wait_for(404, ask);
    admin(folder.path(), &["member", "remove", "robin"]);
    let answer = wait_for(403, || served.public.get("/graphs", &robin.headers()));
    assert_eq!(answer.json()["code"], "member_inactive");
    let listed = admin(folder.path(), &["member", "list"]);
    assert_eq!(listed[1], json!({"memberId": "robin", "active": false}));
    assert!(served.stop().0.success());
}

#[test]
fn a_device_is_revoked_while_its_stream_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::dev(folder.path(), &[]);
    let laptop = TestDevice::dev("sam", "laptop");
    let phone = TestDevice::dev("sam", "phone");
    laptop.register(&served.public).ok();
    phone.register(&served.public).ok();
    laptop
        .rotate(&served.public, "d:sam", &[&laptop, &phone])
        .ok();
    let stream = Events::open(&served.public, &phone.headers());

    let args = ["device", "revoke", "--member", "sam", "--device", "phone"];
    let revoked = admin(folder.path(), &args);
    assert_eq!(
        revoked,
        json!({"changed": true, "graphsFlagged": ["d:sam:sam"]})
    );
    let answer = served.public.get("/graphs", &phone.headers());
    assert_eq!(answer.json()["code"], "device_revoked");
    stream.rest();
    let again = admin(folder.path(), &args);
    assert_eq!(again, json!({"changed": false, "graphsFlagged": []}));

    let shown = admin(folder.path(), &["graph", "show", "d:sam:sam"]);
    assert_eq!(
        (&shown["epoch"], &shown["rotationOwed"]),
        (&json!(1), &json!(true))
    );
    let devices = admin(folder.path(), &["device", "list", "--member", "sam"]);
    assert_eq!(devices[0]["deviceId"], "laptop");
    assert!(devices[1]["revokedAt"].is_string());
    assert!(served.stop().0.success());
}

#[test]
fn usage_is_told_against_the_quotas() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::dev(folder.path(), &[]);
    let sam = TestDevice::dev("sam", "laptop");
    sam.register(&served.public).ok();
    sam.rotate(&served.public, "d:sam", &[&sam]).ok();
    let graph = "d:sam:sam".parse().unwrap();
    sam.push(
        &served.public,
        "d:sam",
        &[sam.record(&graph, "r", b"sealed")],
    )
    .ok();
    let usage = admin(folder.path(), &["graph", "usage", "d:sam:sam"]);
    assert_eq!(
        usage[0],
        json!({"what": "records", "used": 1, "limit": 250_000})
    );
    assert_eq!(
        usage[1],
        json!({"what": "ciphertextBytes", "used": 6, "limit": 512 << 20})
    );
    assert!(served.stop().0.success());
    // And for people, without a relay.
    let table = ok(
        &["admin", "graph", "usage", "d:sam:sam", "--data", "kept"],
        folder.path(),
    );
    assert!(table.contains("ciphertextBytes"), "{table}");
}

#[test]
fn what_is_not_there_is_said_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let data = ["--data", "kept"];
    for (args, sentence) in [
        (
            &["member", "list"][..],
            "there is no database at kept/relay.db",
        ),
        (
            &["graph", "show", "g:acme"],
            "there is no database at kept/relay.db",
        ),
    ] {
        let output = run(&[&["admin"], args, &data].concat(), folder.path());
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(text(&output.stderr), format!("relay: {sentence}\n"));
    }
    admin(folder.path(), &["member", "add", "sam"]);
    for (args, sentence) in [
        (
            &["group", "join", "acme", "sam"][..],
            "there is no such member, or no such group",
        ),
        (
            &["device", "revoke", "--member", "sam", "--device", "x"],
            "the member has no such device",
        ),
        (&["graph", "usage", "g:acme"], "there is no such graph"),
    ] {
        let output = run(&[&["admin"], args, &data].concat(), folder.path());
        assert_eq!(output.status.code(), Some(1));
        assert!(
            text(&output.stderr).contains(sentence),
            "{}",
            text(&output.stderr)
        );
    }
    let output = run(&["admin", "member", "add", " sam"], folder.path());
    assert_eq!(output.status.code(), Some(2), "no id begins with a space");
}
