//! `cargo xtask bench`: the relay beside bare Postgres, on a Postgres of its own.

use std::path::PathBuf;

use anyhow::Result;
use argala_servers::PrivatePostgres;
use clap::Args;

use crate::{
    cargo::{cargo, run as run_command},
    servers,
};

/// What to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// Short turns: enough to compare, not to publish.
    #[arg(long)]
    quick: bool,
    /// A file for the table, in Markdown.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Builds the load generator for release and lets it compare.
pub(crate) fn run(options: &Options) -> Result<()> {
    servers::provide()?;
    let postgres = PrivatePostgres::start_with(&[("shared_buffers", "512MB")])?;
    let time = if options.quick { "2" } else { "10" };
    let mut command = cargo(&["run", "--release", "-p", "loadtest", "--", "compare"])?;
    command.args(["--server", &postgres.url(), "--time", time]);
    if let Some(report) = &options.report {
        command.arg("--report").arg(std::path::absolute(report)?);
    }
    run_command(command)
}
