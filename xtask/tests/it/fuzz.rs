//! The lock file of `fuzz/`, a workspace of its own that nothing here builds: what is in it is what
//! ships. `cargo xtask ci` has cargo itself look at it, which needs the registry; this does not.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::repository::root;

/// How to put right what these tests find.
const REMEDY: &str = "`cargo fetch --manifest-path fuzz/Cargo.toml` brings what is missing; \
                      `cargo update --manifest-path fuzz/Cargo.toml PACKAGE --precise VERSION` \
                      brings a version";

/// One entry of a lock file.
#[derive(Default)]
struct Locked {
    version: String,
    /// Whether it comes from a registry, and not from this repository.
    is_fetched: bool,
    dependencies: BTreeSet<String>,
}

/// The entries of a lock file, by their names.
fn locked(path: &str) -> BTreeMap<String, Vec<Locked>> {
    let text = std::fs::read_to_string(root().join(path)).unwrap();
    let mut all: BTreeMap<String, Vec<Locked>> = BTreeMap::new();
    for table in text.split("[[package]]").skip(1) {
        let mut name = String::new();
        let mut entry = Locked::default();
        for line in table.lines() {
            let quoted = line.split('"').nth(1).unwrap_or_default();
            match line.split(' ').next() {
                Some("name") => quoted.clone_into(&mut name),
                Some("version") => quoted.clone_into(&mut entry.version),
                Some("source") => entry.is_fetched = true,
                // ` "name",`, or with a version where there are several.
                Some("") if !quoted.is_empty() => {
                    let name = quoted.split(' ').next().unwrap_or_default();
                    entry.dependencies.insert(name.to_owned());
                }
                _ => {}
            }
        }
        all.entry(name).or_default().push(entry);
    }
    assert!(all.len() > 50, "{path} has {} entries", all.len());
    all
}

/// What the manifests of the workspace ask for, by the crates' names: what each needs, and what it
/// may need besides.
fn asked() -> BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .arg("--offline")
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut all = BTreeMap::new();
    for package in metadata["packages"].as_array().unwrap() {
        let (mut needs, mut may) = (BTreeSet::new(), BTreeSet::new());
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap().to_owned();
            // A lock file has no dependencies of tests of what is outside its workspace.
            if dependency["kind"] == "dev" {
                continue;
            }
            if dependency["optional"] == false {
                needs.insert(name.clone());
            }
            may.insert(name);
        }
        all.insert(package["name"].as_str().unwrap().to_owned(), (needs, may));
    }
    all
}

#[test]
fn the_fuzz_targets_lock_file_follows_the_manifests() {
    let asked = asked();
    let mut faults = Vec::new();
    let mut ours = 0;
    for (name, entries) in locked("fuzz/Cargo.lock") {
        let Some((needs, may)) = asked.get(&name) else {
            continue;
        };
        for entry in entries.iter().filter(|entry| !entry.is_fetched) {
            ours += 1;
            for missing in needs.difference(&entry.dependencies) {
                faults.push(format!("{name} needs {missing}, which is not locked"));
            }
            for stale in entry.dependencies.difference(may) {
                faults.push(format!("{name} does not ask for {stale} any more"));
            }
        }
    }
    assert!(ours >= 5, "{ours} crates of the workspace are locked");
    assert!(faults.is_empty(), "{}\n{REMEDY}", faults.join("\n"));
}

#[test]
fn what_is_fuzzed_is_what_ships() {
    let shipped = locked("Cargo.lock");
    let mut faults = Vec::new();
    for (name, entries) in locked("fuzz/Cargo.lock") {
        let Some(versions) = shipped.get(&name) else {
            continue;
        };
        for entry in entries {
            if !versions.iter().any(|known| known.version == entry.version) {
                faults.push(format!("{name} {} is not in Cargo.lock", entry.version));
            }
        }
    }
    assert!(faults.is_empty(), "{}\n{REMEDY}", faults.join("\n"));
}
