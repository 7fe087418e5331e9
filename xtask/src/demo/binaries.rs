//! The programs that the demo runs, as the tests have built them.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cargo::cargo;

/// Where the programs lie.
pub(crate) struct Binaries {
    pub(crate) relay: PathBuf,
    pub(crate) argala: PathBuf,
    pub(crate) sweeper: PathBuf,
    /// An S3 to try out.
    pub(crate) s3: PathBuf,
}

/// Builds the workspace just as the tests do, so that nothing is built twice, and finds the
/// programs in what cargo says it has made.
pub(crate) fn build() -> Result<Binaries> {
    let mut command = cargo(&[
        "build",
        "--workspace",
        "--all-targets",
        "--message-format",
        "json-render-diagnostics",
    ])?;
    println!("$ cargo build --workspace --all-targets");
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("`cargo build` could not be started")?;
    let messages = child.stdout.take().context("`cargo build` has no output")?;
    let (mut relay, mut argala, mut sweeper, mut s3) = (None, None, None, None);
    for message in BufReader::new(messages).lines() {
        let message = message.context("`cargo build` cannot be read")?;
        // A line that is no message comes from a build script or a macro.
        let Ok(message) = serde_json::from_str::<Value>(&message) else {
            continue;
        };
        match program(&message) {
            Some(("relay", path)) => relay = Some(path),
            Some(("argala", path)) => argala = Some(path),
            Some(("sweeper", path)) => sweeper = Some(path),
            Some(("argala-test-s3", path)) => s3 = Some(path),
            _ => {}
        }
    }
    let status = child
        .wait()
        .context("`cargo build` could not be waited for")?;
    if !status.success() {
        bail!("`cargo build` failed ({status})");
    }
    Ok(Binaries {
        relay: relay.context("cargo built no program named relay")?,
        argala: argala.context("cargo built no program named argala")?,
        sweeper: sweeper.context("cargo built no program named sweeper")?,
        s3: s3.context("cargo built no program named argala-test-s3")?,
    })
}

/// The name and the place of a program, where a message tells of one; not of its unit tests,
/// which have the same name.
fn program(message: &Value) -> Option<(&str, PathBuf)> {
    let is_program = message["reason"] == "compiler-artifact"
        && message["target"]["kind"]
            .as_array()?
            .iter()
            .any(|kind| kind == "bin")
        && message["profile"]["test"] == false;
    let executable = message["executable"].as_str()?;
    is_program.then_some((message["target"]["name"].as_str()?, executable.into()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_program_is_told_from_its_tests() {
        let message = |test: bool, kind: &str| {
            json!({
                "reason": "compiler-artifact",
                "target": {"name": "relay", "kind": [kind]},
                "profile": {"test": test},
                "executable": "/t/debug/relay",
            })
        };
        let (name, path) = program(&message(false, "bin"))
            .map(|(n, p)| (n.to_owned(), p))
            .unwrap();
        assert_eq!(
            (name.as_str(), path),
            ("relay", PathBuf::from("/t/debug/relay"))
        );
        assert!(program(&message(true, "bin")).is_none());
        assert!(program(&message(false, "example")).is_none());
        assert!(program(&json!({"reason": "build-finished"})).is_none());
    }
}
