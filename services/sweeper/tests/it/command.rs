//! The command line, and what the binary is made of.

use crate::process::sweeper;

#[test]
fn a_store_in_a_file_is_its_relays_to_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let output = sweeper()
        .arg("run")
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("the relay that serves the file sweeps it"),
        "{told}"
    );
    let output = sweeper()
        .args(["once", "--output", "json"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["swept"], true);
}

/// What no relay has in it: see `services/relay/tests`, where the same text is not found.
#[test]
fn the_statements_of_a_sweep_on_a_server_are_in_here() {
    let binary = std::fs::read(env!("CARGO_BIN_EXE_sweeper")).unwrap();
    let has = |text: &str| {
        binary
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    assert!(has("UPDATE blobs b SET look_at = $2"));
    assert!(has("pg_try_advisory_lock"));
}
