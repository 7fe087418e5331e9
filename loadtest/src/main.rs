//! Load for the relay, and for what it is compared with.
//!
//! `loadtest compare` sets the relay's router beside bare Postgres: the same records, by one
//! statement a push, with no HTTP and no rules. Both run in turns within one process, so that
//! whatever else the machine does meets both, and what each arm acknowledged is counted in the
//! database afterwards.
//!
//! `loadtest cost` counts what one request costs the database: statements, round trips, bytes of
//! write-ahead log.
//!
//! `loadtest sweep` sets passes of the sweep beside each other that have as much to forget, on databases
//! that hold more and more.
//!
//! `cargo xtask bench` starts a Postgres for it, builds it for release and runs it.

#![expect(
    clippy::print_stdout,
    reason = "a command-line tool speaks on its standard streams"
)]

mod arms;
mod compare;
mod cost;
mod cpu;
mod measure;
mod report;
mod sweep;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "loadtest", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The relay's router beside bare Postgres.
    Compare(compare::Options),
    /// What one request costs in statements, round trips and write-ahead log.
    Cost(cost::Options),
    /// What a pass of the sweep costs by how much is stored.
    Sweep(sweep::Options),
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    match Cli::parse().what {
        What::Compare(options) => runtime.block_on(compare::run(options)),
        What::Cost(options) => runtime.block_on(cost::run(options)),
        What::Sweep(options) => runtime.block_on(sweep::run(options)),
    }
}
