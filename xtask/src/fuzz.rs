//! libFuzzer on the targets of `crates/argala-fuzz`, by cargo-fuzz.
//!
//! The same targets run on stable Rust in every test run; this goes on for as long as it is told.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
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

/// The most inputs of libFuzzer's that are kept for a target, and the most bytes of each: every test
/// run has all of them. A test of `argala-fuzz` holds the corpus to somewhat more.
const MOST_KEPT: usize = 200;
const MOST_BYTES: usize = 2_048;

/// What to run.
#[derive(Args)]
pub(crate) struct Options {
    /// One target; all of them, one after the other, where none is named.
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(TARGETS))]
    target: Option<String>,
    /// How long each runs.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    seconds: u64,
    /// Copy what reached code that no seed had reached into fuzz/corpus, to be committed.
    #[arg(long)]
    keep: bool,
}

/// Runs them; the first that finds something ends the run and says where its input lies.
pub(crate) fn run_targets(options: &Options) -> Result<()> {
    for target in TARGETS {
        if options.target.as_deref().is_none_or(|only| only == *target) {
            one(target, options.seconds)?;
            if options.keep {
                keep(target)?;
            }
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
    // New inputs go into the first folder, which is not tracked.
    let mut command = program(target, &[found(target)?, kept(target)?])?;
    command
        .args(["-timeout=20", "-print_final_stats=1"])
        .arg(format!("-max_total_time={seconds}"));
    Ok(command)
}

/// Where new inputs of a target gather, from run to run.
fn found(target: &str) -> Result<PathBuf> {
    let folder = target_directory()?.join("fuzz-corpus").join(target);
    std::fs::create_dir_all(&folder).context("no folder for what is found")?;
    Ok(folder)
}

/// Where a target's seeds are, and what is kept beside them.
fn kept(target: &str) -> Result<PathBuf> {
    Ok(root()?.join("fuzz").join("corpus").join(target))
}

/// The target's program, built, with the two folders of its inputs.
fn program(target: &str, folders: &[PathBuf; 2]) -> Result<Command> {
    let tool = cargo_fuzz()?;
    let mut command = compiler(Command::new(tool))?;
    command
        .current_dir(root()?)
        .args(["run", "--fuzz-dir", "fuzz", "--target-dir"])
        .arg(target_directory()?.join("fuzz"))
        .arg(target)
        .args(folders)
        .args(["--", "-rss_limit_mb=2048"])
        // Links everything once for each target; two at once is what a small machine bears.
        .env("CARGO_BUILD_JOBS", "2")
        .env_remove("CARGO_TARGET_DIR");
    Ok(command)
}

/// Copies, of what was found, the least that reaches all that it reached and the seeds do not; of
/// too many, the smallest.
fn keep(target: &str) -> Result<()> {
    let (found, kept) = (found(target)?, kept(target)?);
    let before = names_in(&kept)?;
    let mut command = program(target, &[kept.clone(), found])?;
    command
        .arg("-set_cover_merge=1")
        .arg(format!("-max_len={MOST_BYTES}"));
    run(command).with_context(|| format!("what {target} found could not be kept"))?;
    let of_before = before.iter().filter(|name| is_find(name)).count();
    let after = names_in(&kept)?;
    let mut new = Vec::new();
    for name in after.difference(&before) {
        let path = kept.join(name);
        let size = path.metadata().context("a new input")?.len();
        new.push((size, path));
    }
    new.sort();
    let room = MOST_KEPT.saturating_sub(of_before);
    let too_many = new.split_off(room.min(new.len()));
    for (_, path) in &too_many {
        std::fs::remove_file(path).context("there is no room for all that was found")?;
    }
    println!(
        "{target}: {} kept in {}, {} left out",
        new.len(),
        kept.display(),
        too_many.len()
    );
    Ok(())
}

fn names_in(folder: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(folder).context("a target has a folder of seeds")? {
        names.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}

/// Whether libFuzzer named the input: by the SHA-1 of its bytes.
fn is_find(name: &str) -> bool {
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
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
fn cargo_fuzz() -> Result<PathBuf> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_is_run_here() {
        let mut command = cargo(&["metadata", "--no-deps", "--format-version", "1"]).unwrap();
        command.args(["--offline", "--manifest-path", "fuzz/Cargo.toml"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let targets = metadata["packages"][0]["targets"].as_array().unwrap();
        let names: BTreeSet<_> = targets
            .iter()
            .map(|target| target["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, TARGETS.iter().copied().collect());
    }
}
