//! The test vectors, held against a second implementation in Python.
//!
//! What the documentation says and what the code does may drift apart together with the vectors
//! that the code writes; a program that was written from the documentation alone notices.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo::{root, run, target_directory, works};

/// Runs `check.py` on every vector, in an environment of its own.
pub(crate) fn check() -> Result<()> {
    let folder = root()?.join("docs").join("test-vectors");
    let python = environment(&folder.join("requirements.txt"))?;
    let mut command = Command::new(python);
    // No `__pycache__` beside the vectors.
    command.args(["-B"]).arg(folder.join("check.py"));
    run(command).context("a vector is not what the documentation says")
}

/// The Python of an environment that holds exactly what `requirements` asks for.
///
/// It is made once; a copy of the requirements, written last, says that it is whole and for which
/// requirements it was made.
fn environment(requirements: &Path) -> Result<PathBuf> {
    let home = target_directory()?.join("tools").join("vectors-python");
    let python = home.join("bin").join("python");
    let wanted = fs::read(requirements).context("the requirements cannot be read")?;
    let made_for = home.join("made-for.txt");
    let mut probe = Command::new(&python);
    probe.args(["-c", "import cryptography, nacl"]);
    if fs::read(&made_for).is_ok_and(|made| made == wanted) && works(probe) {
        return Ok(python);
    }
    let mut command = Command::new("python3");
    command.args(["-m", "venv", "--clear"]).arg(&home);
    run(command).context(
        "Python 3.9 or newer with its `venv` is needed (Debian: apt install python3-venv)",
    )?;
    let mut command = Command::new(&python);
    command
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ])
        .args(["--require-hashes", "--requirement"])
        .arg(requirements);
    run(command).context("the libraries of the check could not be installed")?;
    fs::write(made_for, wanted).context("the environment cannot be marked as made")?;
    Ok(python)
}
