//! The command line.

use std::process::Command;

use crate::process::{Served, ok, relay, run, text};

#[test]
fn dev_asks_to_be_asked_plainly() {
    let folder = tempfile::tempdir().unwrap();
    for value in [None, Some("0"), Some("true")] {
        let mut command = relay();
        command
            .args(["dev", "--listen", "127.0.0.1:0"])
            .current_dir(folder.path());
        if let Some(value) = value {
            command.env("ARGALA_DEV_AUTH", value);
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("ARGALA_DEV_AUTH=1"), "{said}");
        assert!(output.stdout.is_empty());
    }
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "nothing was created"
    );
}

#[test]
fn the_printed_lines_work_when_pasted_twice() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::dev(folder.path(), &[]);
    let said = served.printed("/pokes");
    assert!(
        said.iter()
            .any(|line| line.contains("Authorization: Dev sam/sam-laptop"))
    );
    assert!(
        said.iter()
            .any(|line| line.contains("Authorization: Dev alex/alex-phone"))
    );
    let lines: Vec<_> = said
        .iter()
        .filter(|line| line.starts_with("curl "))
        .collect();
    assert_eq!(lines.len(), 6, "{said:?}");
    let mut answers = Vec::new();
    for _ in 0..2 {
        for line in &lines {
            let script = format!("set -e\n{line}\n");
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            let said = text(&output.stdout) + &text(&output.stderr);
            assert!(output.status.success(), "{line}: {said}");
            assert!(!said.contains("urn:argala:problem"), "{line}: {said}");
            answers.push(said);
        }
    }
    let (first, second) = answers.split_at(6);
    assert!(first[0].contains(r#""fresh":true"#) && second[0].contains(r#""fresh":false"#));
    assert!(
        first[4].contains(r#""id":"hello""#),
        "alex pulls what sam pushed: {}",
        first[4]
    );
    assert!(first[5].contains("argala.hello"), "{}", first[5]);
    // What was done the second time was nothing.
    assert_eq!(first[2..5], second[2..5]);
    assert!(served.stop().0.success());
}

#[test]
fn a_folder_that_has_data_is_not_filled_again() {
    let folder = tempfile::tempdir().unwrap();
    Served::dev(folder.path(), &[]).stop();
    ok(
        &["admin", "member", "remove", "alex", "--data", "kept"],
        folder.path(),
    );
    Served::dev(folder.path(), &[]).stop();
    let listed = ok(
        &["admin", "member", "list", "--data", "kept"],
        folder.path(),
    );
    assert_eq!(listed, "MEMBER  STATE\nalex    removed\nsam     active\n");
}

#[test]
fn a_port_that_is_taken_is_said_in_one_sentence_and_nothing_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = relay()
        .env("ARGALA_DEV_AUTH", "1")
        .args(["dev", "--listen", &address])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr),
        format!(
            "relay: cannot listen on {address} (http.listen): another process listens there already\n"
        )
    );
    assert!(!folder.path().join("data").exists());
}

#[test]
fn every_fault_of_a_configuration_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[http]\nlisten = 5\n[store]\nkind = \"mysql\"\ncolour = 1\n";
    std::fs::write(folder.path().join("relay.toml"), config).unwrap();
    for command in [&["config", "check"][..], &["serve"], &["config", "print"]] {
        let output = run(
            &[command, &["--config", "relay.toml"]].concat(),
            folder.path(),
        );
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        for place in [
            "relay.toml:2: http.listen",
            "relay.toml:4: store.kind",
            "relay.toml:5: store.colour",
        ] {
            assert!(said.contains(place), "{said}");
        }
    }
    let output = run(
        &[
            "config",
            "check",
            "--config",
            "relay.toml",
            "--output",
            "json",
        ],
        folder.path(),
    );
    assert_eq!(output.status.code(), Some(2));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["ok"], false);
    let lines: Vec<_> = told["faults"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| &fault["line"])
        .collect();
    assert_eq!(lines[..3], [2, 4, 5]);
}

#[test]
fn the_defaults_that_are_printed_are_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let defaults = ok(&["config", "print", "--defaults"], folder.path());
    std::fs::write(folder.path().join("relay.toml"), defaults).unwrap();
    let output = relay()
        .env(
            "ARGALA__AUTH__JWT__SECRET",
            "a-secret-of-at-least-thirty-two-bytes",
        )
        .args(["config", "check", "--config", "relay.toml"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn the_openapi_document_has_the_routes() {
    let folder = tempfile::tempdir().unwrap();
    let document: serde_json::Value =
        serde_json::from_str(&ok(&["openapi"], folder.path())).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    assert!(document["paths"]["/graphs/{graphId}/push"]["post"].is_object());
}

#[test]
fn the_prefix_and_probes_are_where_they_are_said_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let mut served = Served::dev(folder.path(), &["--set", "http.prefix=/"]);
    let credential = [("authorization", "Dev sam/sam-laptop")];
    assert_eq!(served.public.prefix, "");
    assert_eq!(served.public.get("/limits", &credential).status, 200);
    let ready = served.admin.get("/readyz", &[]);
    assert_eq!(
        (ready.status, &ready.json()["checks"]["store"]),
        (200, &"ok".into())
    );
    assert_eq!(served.admin.get("/healthz", &[]).status, 200);
    assert_eq!(
        served.admin.get("/version", &[]).json()["version"],
        env!("CARGO_PKG_VERSION")
    );
    assert!(served.stop().0.success());

    let mut served = Served::dev(folder.path(), &["--set", "http.prefix=/sync/v1"]);
    assert!(served.public.prefix.ends_with("/sync/v1"));
    assert_eq!(served.public.get("/limits", &credential).status, 200);
    let elsewhere = crate::http::Target {
        prefix: String::new(),
        ..served.public.clone()
    };
    let answer = elsewhere.get("/limits", &credential);
    assert_eq!(
        (answer.status, &answer.json()["code"]),
        (404, &"not_found".into())
    );
    assert!(crate::http::header(&answer.head, "x-request-id").is_some());
    assert!(served.stop().0.success());
}
