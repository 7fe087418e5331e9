//! Format, clippy and rustdoc, warnings denied.

use anyhow::Result;

use crate::cargo::{cargo, run};

/// All three, the quickest first.
pub(crate) fn run_all() -> Result<()> {
    format()?;
    clippy()?;
    rustdoc()
}

/// Every file is as rustfmt writes it.
pub(crate) fn format() -> Result<()> {
    run(cargo(&["fmt", "--all", "--check"])?)
}

/// No lint in any library, binary, test or example.
pub(crate) fn clippy() -> Result<()> {
    run(cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ])?)
}

/// Every public item is documented, and every link in the documentation leads somewhere.
pub(crate) fn rustdoc() -> Result<()> {
    // Naming `--examples` makes cargo choose the features that clippy's `--all-targets` has
    // just checked the dependencies with; without it, half of them are checked once more.
    let mut command = cargo(&[
        "doc",
        "--workspace",
        "--no-deps",
        "--lib",
        "--bins",
        "--examples",
    ])?;
    command.env("RUSTDOCFLAGS", "-D warnings");
    run(command)
}
