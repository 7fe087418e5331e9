//! Tables are made by a step of its own, and a relay serves none that it does not know.

use std::thread;

use argala_testkit::servers;
use serde_json::{Value, json};

use super::{Beside, command, migrated, on, runtime, succeed};
use crate::process::relay;

/// The commands that open a store.
const OPENING: [&[&str]; 2] = [
    &[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
    ],
    &["admin", "member", "list"],
];

/// Runs a command that opens the store, and holds that it refuses in one sentence.
fn refused(url: &str, args: &[&str], sentence: &str) {
    let output = relay()
        .args(args)
        .args([
            "--set",
            "auth.jwt.secret=at-least-thirty-two-bytes-of-secret",
        ])
        .envs(on(url))
        .output()
        .unwrap();
    let said = crate::process::text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{args:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    assert!(said.contains(sentence), "{args:?}: {said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn an_unmigrated_database_is_refused_until_it_is_migrated() {
    let runtime = runtime();
    let database = runtime.block_on(servers::postgres());
    let url = database.url();
    for args in OPENING {
        refused(&url, args, "relay migrate");
    }
    refused(&url, &["migrate", "--check"], "relay migrate");
    let (status, said, _) = command(&url, &["migrate", "--check", "--output", "json"]);
    assert_eq!(status, Some(3));
    let told: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(told["state"], "empty");
    let tables = "select count(*) from information_schema.tables where table_schema = 'public'";
    let beside = Beside::open(&runtime, &url);
    assert_eq!(beside.text(tables), "0", "looking changes nothing");

    let told: Value =
        serde_json::from_str(&succeed(&url, &["migrate", "--output", "json"])).unwrap();
    let newest = told["to"].as_u64().unwrap();
    assert_eq!(told, json!({"changed": true, "from": 0, "to": newest}));
    let again = succeed(&url, &["migrate"]);
    assert!(again.contains("nothing to do"), "{again}");
    let check = succeed(&url, &["migrate", "--check"]);
    assert!(check.contains(&format!("schema {newest}")), "{check}");
    succeed(&url, &["admin", "member", "add", "sam"]);
    assert!(succeed(&url, &["admin", "member", "list"]).contains("sam"));
}

#[test]
fn of_several_that_migrate_at_once_one_does() {
    let runtime = runtime();
    let database = runtime.block_on(servers::postgres());
    let url = database.url();
    let told: Vec<Value> = thread::scope(|scope| {
        let migrators: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| succeed(&url, &["migrate", "--output", "json"])))
            .collect();
        let told = migrators
            .into_iter()
            .map(|migrator| serde_json::from_str(&migrator.join().unwrap()).unwrap());
        told.collect()
    });
    let worked = told.iter().filter(|told| told["changed"] == true).count();
    assert_eq!(worked, 1, "{told:?}");
    succeed(&url, &["migrate", "--check"]);
}

#[test]
fn an_outgrown_database_is_refused_and_left_alone() {
    let runtime = runtime();
    let database = migrated(&runtime);
    let url = database.url();
    let beside = Beside::open(&runtime, &url);
    beside.run("update relay_schema set version = 99, oldest = 98");
    for args in OPENING.into_iter().chain([&["migrate"][..]]) {
        refused(&url, args, "schema 99");
    }
    refused(&url, &["migrate", "--check"], "schema 99");
    assert_eq!(beside.text("select version from relay_schema"), "99");
}

#[test]
fn a_newer_schema_that_older_builds_may_serve_is_served() {
    let runtime = runtime();
    let database = migrated(&runtime);
    let url = database.url();
    let beside = Beside::open(&runtime, &url);
    beside.run("update relay_schema set version = 99");
    succeed(&url, &["admin", "member", "add", "sam"]);
    let said = succeed(&url, &["migrate"]);
    assert!(said.contains("nothing to do"), "{said}");
    let told = succeed(&url, &["migrate", "--check", "--output", "json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(
        (&told["state"], &told["found"]),
        (&json!("ready"), &json!(99))
    );
}

#[test]
fn nothing_that_goes_wrong_tells_the_password() {
    // Port 9 is nobody's; the second is no server's at all.
    for url in [
        "postgres://relay:a-password@127.0.0.1:9/relay",
        "postgres://relay:a-password@127.0.0.1:9/relay?sslmode=perhaps",
        "postgres://relay:a-password@[::1/relay",
        "a-password",
    ] {
        for args in [
            &["migrate"][..],
            &["migrate", "--check"],
            &["admin", "member", "list"],
            &[
                "config",
                "print",
                "--set",
                "auth.jwt.secret=at-least-thirty-two-bytes-of-secret",
            ],
        ] {
            let (_, said, complained) = command(url, args);
            let all = format!("{said}{complained}");
            assert!(!all.is_empty(), "{args:?}");
            assert!(!all.contains("a-password"), "{args:?}: {all}");
        }
    }
}
