//! Which crate may know which (ARCHITECTURE.md), held against `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::repository::root;

/// Each crate with the crates of this workspace that its library or binary may depend on.
///
/// Tests may use more: a `dev-dependency` reaches no user. A crate that is not in this table
/// fails the test, so that a new one is placed on purpose.
const TABLE: &[(&str, &[&str])] = &[
    ("argala-wire", &[]),
    ("argala-core", &["argala-wire"]),
    ("argala-postgres", &["argala-core", "argala-wire"]),
    ("argala-redis", &["argala-core", "argala-wire"]),
    ("argala-sqlite", &["argala-core", "argala-wire"]),
    ("argala-blob", &["argala-core", "argala-wire"]),
    ("argala-http", &["argala-core", "argala-wire"]),
    (
        "argala-boot",
        &[
            "argala-blob",
            "argala-core",
            "argala-http",
            "argala-postgres",
            "argala-redis",
            "argala-sqlite",
            "argala-wire",
        ],
    ),
    ("argala-client", &["argala-wire"]),
    (
        "argala-fuzz",
        &[
            "argala-core",
            "argala-http",
            "argala-testkit",
            "argala-wire",
        ],
    ),
    ("argala-servers", &[]),
    (
        "argala-testkit",
        &["argala-core", "argala-servers", "argala-wire"],
    ),
    (
        "loadtest",
        &[
            "argala-core",
            "argala-http",
            "argala-postgres",
            "argala-wire",
        ],
    ),
    ("relay", &["argala-boot"]),
    ("sweeper", &["argala-boot"]),
    ("xtask", &["argala-servers"]),
];

/// Heavy dependencies, each with the crates that may name it outside their tests.
///
/// cargo-deny holds what a dependency drags in; this holds what a manifest says, and knows a
/// test's dependency from a library's.
const QUARANTINE: &[(&str, &[&str])] = &[
    ("aws-config", &["argala-blob"]),
    ("aws-sdk-s3", &["argala-blob"]),
    ("axum", &["argala-boot", "argala-http", "loadtest"]),
    ("fred", &["argala-redis"]),
    ("hpke", &["argala-client"]),
    ("jsonwebtoken", &["argala-boot", "argala-http"]),
    ("refinery", &["argala-postgres", "argala-sqlite"]),
    ("reqwest", &["argala-client"]),
    ("rusqlite", &["argala-sqlite"]),
    (
        "tokio-postgres",
        &["argala-postgres", "argala-testkit", "loadtest"],
    ),
    // Three error layers; the shapeless one belongs where errors are only printed.
    (
        "anyhow",
        &[
            "argala-boot",
            "argala-client",
            "loadtest",
            "relay",
            "sweeper",
            "xtask",
        ],
    ),
];

/// `(crate, dependency)` of every manifest, without the dependencies of tests.
fn edges() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|dependency| dependency["kind"] != "dev")
                .map(|dependency| dependency["name"].as_str().unwrap().to_owned())
                .collect();
            (package["name"].as_str().unwrap().to_owned(), dependencies)
        })
        .collect()
}

#[test]
fn crates_know_only_what_the_table_allows() {
    let edges = edges();
    let members: BTreeSet<&str> = edges.keys().map(String::as_str).collect();
    let table: BTreeMap<&str, &[&str]> = TABLE.iter().copied().collect();
    let mut faults = Vec::new();
    for (name, dependencies) in &edges {
        let Some(allowed) = table.get(name.as_str()) else {
            faults.push(format!("{name} is not in the table: say what it may know"));
            continue;
        };
        for dependency in dependencies
            .iter()
            .filter(|name| members.contains(name.as_str()))
        {
            if !allowed.contains(&dependency.as_str()) {
                faults.push(format!("{name} must not depend on {dependency}"));
            }
        }
    }
    for (name, _) in TABLE {
        if !members.contains(name) {
            faults.push(format!("{name} is in the table and not in the workspace"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn heavy_dependencies_stay_where_their_charter_puts_them() {
    let edges = edges();
    let mut faults = Vec::new();
    for (heavy, homes) in QUARANTINE {
        for (name, dependencies) in &edges {
            if dependencies.contains(*heavy) && !homes.contains(&name.as_str()) {
                faults.push(format!("{name} must not depend on {heavy}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_folder_of_a_crate_has_its_name() {
    for name in edges().keys() {
        let home = match name.as_str() {
            "loadtest" | "xtask" => name.clone(),
            "relay" | "sweeper" => format!("services/{name}"),
            _ => format!("crates/{name}"),
        };
        assert!(
            root().join(&home).join("Cargo.toml").is_file(),
            "{name} does not lie in {home}"
        );
    }
}
