//! What `test` says where servers cannot be had.

use std::process::Command;

use crate::repository::root;

/// On a path with nothing on it there is neither Python nor anybody who could install or contain it,
/// whatever else this machine has in the places where programs are looked for.
#[test]
fn without_servers_the_line_to_type_is_said_and_the_status_is_2() {
    let nothing = root().join("xtask/tests/it");
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("test")
        .env("PATH", &nothing)
        // What would build and run the tests, had it not stopped before.
        .env("CARGO", nothing.join("no-cargo"))
        .env("CARGO_MANIFEST_DIR", root().join("xtask"))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    let line = said
        .lines()
        .map(str::trim)
        .find_map(|line| line.strip_prefix("sudo apt-get install --no-install-recommends "));
    let packages: Vec<_> = line.expect(&said).split(' ').collect();
    assert!(packages.contains(&"python3-venv"), "{said}");
    assert_eq!(said.matches("apt-get").count(), 1, "one line: {said}");
    assert!(output.stdout.is_empty(), "nothing was begun");
}
