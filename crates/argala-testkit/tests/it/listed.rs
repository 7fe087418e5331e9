//! A case that no macro names would never run.

use std::{fs, path::Path};

/// The sources of the suites.
fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else {
            found.push(fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_case_is_stamped() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/conformance");
    let mut found = Vec::new();
    sources(&folder, &mut found);
    let all = found.concat();
    let mut cases = 0;
    for line in all.lines() {
        let Some(rest) = line.strip_prefix("pub async fn ") else {
            continue;
        };
        let name = rest.split(['(', '<']).next().unwrap();
        let stamped = all
            .lines()
            .any(|line| line.trim_start() == format!("{name},"));
        assert!(stamped, "{name} is a case that no macro names");
        cases += 1;
    }
    assert!(cases > 150, "{cases} cases were found");
}
