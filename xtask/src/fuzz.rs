//! libFuzzer on the targets of `crates/argala-fuzz`, by cargo-fuzz.
//!
//! The same targets run on stable Rust in every test run; this goes on for as long as it is told.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::cargo::{cargo, root, run, target_directory, works};

/// Pinned, as every tool is.
const VERSION: &str = "0.13.2";

/// The targets, in the order of what they cost.
pub(crate) const TARGETS: &[&str] = &[
    "ids",
    "graphs",
    "storage_keys",
    "bodies",
    "answers",
    "credentials",
    "cursors",
    "headers",
    "requests",
];

/// What to run.
#[derive(Args)]
pub(crate) struct Options {
    /// One target; all of them, one after the other, where none is named.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(TARGETS))]
    target: Option<String>,
    /// How long each runs.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    seconds: u64,
}

/// Runs them; the first that finds something ends the run and says where its input lies.
pub(crate) fn run_targets(options: &Options) -> Result<()> {
    for target in TARGETS {
        if options.target.as_deref().is_none_or(|only| only == *target) {
            one(target, options.seconds)?;
        }
    }
    Ok(())
}

/// Runs one target for so many seconds.
fn one(target: &str, seconds: u64) -> Result<()> {
    run(command(target, seconds)?).with_context(|| format!("the target {target} found something"))
}

/// What runs one target for so many seconds.
pub(crate) fn command(target: &str, seconds: u64) -> Result<Command> {
    let tool = cargo_fuzz()?;
    let fuzz = root()?.join("fuzz");
    // New inputs go where they are not tracked; what is worth keeping is copied by hand.
    let found = target_directory()?.join("fuzz-corpus").join(target);
    std::fs::create_dir_all(&found).context("no folder for what is found")?;
    let mut command = compiler(Command::new(tool))?;
    command
        .current_dir(root()?)
        .args(["run", "--fuzz-dir", "fuzz", "--target-dir"])
        .arg(target_directory()?.join("fuzz"))
        .arg(target)
        .arg(found)
        .arg(fuzz.join("corpus").join(target))
        .args([
            "--",
            "-rss_limit_mb=2048",
            "-timeout=20",
            "-print_final_stats=1",
        ])
        .arg(format!("-max_total_time={seconds}"))
        // Links everything once for each target; two at once is what a small machine bears.
        .env("CARGO_BUILD_JOBS", "2")
        .env_remove("CARGO_TARGET_DIR");
    Ok(command)
}

/// libFuzzer needs unstable flags of the compiler: a nightly one where there is one, else this one,
/// told to take them.
fn compiler(mut command: Command) -> Result<Command> {
    let mut nightly = Command::new("rustc");
    nightly.args(["+nightly", "--version"]);
    if works(nightly) {
        // Inside `cargo xtask` this names the compiler of the caller.
        command.env("RUSTUP_TOOLCHAIN", "nightly");
        for inherited in ["CARGO", "RUSTC", "RUSTDOC"] {
            command.env_remove(inherited);
        }
    } else {
        command.env("RUSTC_BOOTSTRAP", "1");
    }
    Ok(command)
}

/// The tool itself, built on first use.
fn cargo_fuzz() -> Result<std::path::PathBuf> {
    let tools = target_directory()?
        .join("tools")
        .join(format!("cargo-fuzz-{VERSION}"));
    let binary = tools.join("bin").join("cargo-fuzz");
    let mut probe = Command::new(&binary);
    probe.arg("--version");
    if !works(probe) {
        install(&tools)?;
    }
    ensure!(binary.is_file(), "cargo-fuzz is not where it was installed");
    Ok(binary)
}

fn install(tools: &Path) -> Result<()> {
    println!(
        "cargo-fuzz {VERSION} is not in {}: building it once",
        tools.display()
    );
    let mut command = cargo(&["install", "cargo-fuzz", "--locked", "--debug", "--quiet"])?;
    command
        .args(["--version", VERSION, "--root"])
        .arg(tools)
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        // Its own folder, removed afterwards: none of it is of use to the workspace.
        .env("CARGO_TARGET_DIR", tools.join("build"));
    run(command).context("cargo-fuzz could not be installed")?;
    std::fs::remove_dir_all(tools.join("build")).context("the tool's build folder stays behind")
}
