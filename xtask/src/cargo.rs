//! Running cargo and its tools, and finding the folders they use.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The repository's root, wherever `cargo xtask` was called from.
pub(crate) fn root() -> Result<PathBuf> {
    // Compiled in would be wrong: a checkout may move and keep its target folder.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .context("CARGO_MANIFEST_DIR is not set: run this as `cargo xtask …`")?;
    Path::new(&manifest)
        .parent()
        .map(Path::to_path_buf)
        .context("xtask must lie one folder below the repository's root")
}

/// A `cargo` command that runs in the repository's root.
pub(crate) fn cargo(arguments: &[&str]) -> Result<Command> {
    // The same cargo that started us, so that a toolchain chosen with `+name` stays chosen.
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root()?);
    Ok(command)
}

/// Prints a command as it could be typed, runs it, and fails unless it exits with zero.
pub(crate) fn run(mut command: Command) -> Result<()> {
    let line = spelled(&command);
    println!("$ {line}");
    let status = command
        .status()
        .with_context(|| format!("`{line}` could not be started"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Whether a command runs at all and succeeds; says nothing.
pub(crate) fn works(mut command: Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The folder that cargo builds into.
pub(crate) fn target_directory() -> Result<PathBuf> {
    let output = cargo(&["metadata", "--no-deps", "--format-version", "1"])?
        .stderr(Stdio::inherit())
        .output()
        .context("`cargo metadata` could not be started")?;
    if !output.status.success() {
        bail!("`cargo metadata` failed ({})", output.status);
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).context("`cargo metadata` printed no JSON")?;
    metadata["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .context("`cargo metadata` named no target directory")
}

/// The command line, with the program's name only and quotes where a shell needs them.
pub(crate) fn spelled(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| quoted(&word.to_string_lossy()))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Puts a word in single quotes unless a shell would read it whole as it is.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_printed_as_it_could_be_typed() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["test", "a b", "it's", ""]);
        assert_eq!(spelled(&command), r"cargo test 'a b' 'it'\''s' ''");
    }
}
