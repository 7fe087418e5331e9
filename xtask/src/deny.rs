//! cargo-deny: what dependencies may be, and where they may come from (`deny.toml`).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo::{cargo, run, target_directory, works};

/// Pinned, so that a new lint of the tool never turns an unchanged tree red.
const VERSION: &str = "0.20.2";

/// Licences, banned crates and sources; needs nothing but the crates themselves.
pub(crate) fn check() -> Result<()> {
    let mut command = cargo_deny()?;
    // The graph of who asks for it is a page for each duplicate; `cargo tree -i` shows it.
    // Wrappers of crates that are not in the tree yet are no mistake.
    command.args([
        "check",
        "--hide-inclusion-graph",
        "--allow",
        "unused-wrapper",
    ]);
    command.args(["bans", "licenses", "sources"]);
    run(command)
}

/// Known vulnerabilities and unmaintained crates.
pub(crate) fn advisories() -> Result<()> {
    println!("advisories: this fetches the RustSec database from the open internet");
    let mut command = cargo_deny()?;
    command.args(["check", "advisories"]);
    run(command).context("offline, this cannot pass; every other chore can")
}

/// The tool itself, built on first use.
fn cargo_deny() -> Result<Command> {
    let tools = target_directory()?
        .join("tools")
        .join(format!("cargo-deny-{VERSION}"));
    let binary = tools.join("bin").join("cargo-deny");
    let mut probe = Command::new(&binary);
    probe.arg("--version");
    if !works(probe) {
        install(&tools)?;
    }
    let mut command = Command::new(binary);
    command.current_dir(crate::cargo::root()?);
    Ok(command)
}

/// Builds the tool into a folder of its own.
///
/// A debug build with a little optimisation takes a third of the time of a release build,
/// and the check itself takes a second or two either way.
fn install(tools: &Path) -> Result<()> {
    println!(
        "cargo-deny {VERSION} is not in {}: building it once",
        tools.display()
    );
    let mut command = cargo(&["install", "cargo-deny", "--locked", "--debug", "--quiet"])?;
    command
        .args(["--version", VERSION, "--root"])
        .arg(tools)
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        // Its own folder, removed afterwards: none of it is of use to the workspace.
        .env("CARGO_TARGET_DIR", tools.join("build"));
    run(command).context("cargo-deny could not be installed")?;
    std::fs::remove_dir_all(tools.join("build")).context("the tool's build folder stays behind")
}
