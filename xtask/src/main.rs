//! `cargo xtask …`: the one entry for every chore of this repository.
//!
//! Each chore is a module; [`ci`] strings them together in the order in which they fail
//! cheapest. Nothing here is needed to run a relay.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool speaks on its standard streams"
)]

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

mod bench;
mod cargo;
mod ci;
mod cluster;
mod demo;
mod deny;
mod fuzz;
mod lints;
mod servers;
mod soak;
mod stopwatch;
mod suite;
mod vectors;

/// The chores of this repository.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    disable_help_subcommand = true,
    after_help = "Examples:
  cargo xtask test                    run every test, doc tests included
  cargo xtask test rotate             run the tests whose name contains `rotate`
  cargo xtask ci                      all that must hold before a change lands
  cargo xtask lint                    format, clippy and rustdoc alone
  cargo xtask demo                    a relay and three devices at work, start to end
  cargo xtask cluster                 three relays behind a load balancer, to try out
  cargo xtask deny                    licences, banned crates and sources"
)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Run all that must hold before a change lands; stops at the first failure.
    #[command(after_help = "Example:
  CARGO_TARGET_DIR=$HOME/.cache/argala-target cargo xtask ci")]
    Ci,
    /// Run the whole workspace's tests, doc tests included.
    #[command(after_help = "Examples:
  cargo xtask test
  cargo xtask test push_is_idempotent
  cargo xtask test --embedded

Uses cargo-nextest where it is installed, `cargo test` where it is not. Tests that need a
Postgres and a PgBouncer get those that ARGALA_TEST_POSTGRES_URL and ARGALA_TEST_PGBOUNCER_URL
name, or ones of their own from the programs on this machine, which are stopped at the end. As
root on Debian missing programs are installed; otherwise the line to type is printed, and the exit
status is 2.")]
    Test(suite::Options),
    /// Check format, clippy and rustdoc, warnings denied.
    Lint,
    /// Check licences, banned crates and the sources of dependencies with cargo-deny.
    #[command(after_help = "Example:
  cargo xtask deny

The first run builds cargo-deny into the `tools` folder of the target folder.")]
    Deny,
    /// Hold the test vectors against a second implementation, in Python.
    #[command(after_help = "Example:
  cargo xtask vectors

Needs python3 with its venv; the first run fetches two libraries.")]
    Vectors,
    /// Give the targets of `crates/argala-fuzz` to libFuzzer.
    #[command(after_help = "Examples:
  cargo xtask fuzz                       every target, a minute each
  cargo xtask fuzz requests --seconds 600
  cargo xtask fuzz --keep                and keep what reached code that no seed reaches

The first run builds cargo-fuzz into the `tools` folder of the target folder. What breaks a target
lies in fuzz/artifacts; a copy of it in fuzz/corpus/TARGET runs in every test run from then on. What
reaches new code gathers in the `fuzz-corpus` folder of the target folder, from run to run; --keep
copies the least of it that reaches as much, small inputs alone, into fuzz/corpus, to be committed.")]
    Fuzz(fuzz::Options),
    /// Look for what a short run does not find: model, folder sync, fuzzing, kills, benchmarks.
    #[command(after_help = "Examples:
  cargo xtask soak --embedded
  cargo xtask soak --embedded --minutes 10 --only fuzz,kill

Prints a table of figures at the end.")]
    Soak(soak::Options),
    /// Play the whole story on real documents, with a relay and three devices as processes.
    #[command(after_help = "Examples:
  cargo xtask demo
  cargo xtask demo --store postgres
  cargo xtask demo --keep        leave the relay's data and the devices' folders behind")]
    Demo(demo::Options),
    /// Run relays behind a load balancer with all that they share, on loopback, until Ctrl-C.
    #[command(after_help = "Examples:
  cargo xtask cluster
  cargo xtask cluster --replicas 5
  cargo xtask cluster --check    play the demo through the load balancer, and end")]
    Cluster(cluster::Options),
    /// Compare the relay's router with bare Postgres, interleaved in one run.
    #[command(after_help = "Examples:
  cargo xtask bench --quick
  cargo xtask bench --report docs/benchmarks-postgres.md

Needs a Postgres on this machine; builds for release first.")]
    Bench(bench::Options),
    /// Check the dependencies against the published security advisories.
    ///
    /// Not a part of `ci`: it fetches the advisory database from the open internet, and a
    /// new advisory must not turn an unchanged tree red.
    Advisories,
}

/// Something must be installed first; the message says what, and how.
const EXIT_MISSING: u8 = 2;

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo xtask: {error:#}");
            if servers::is_missing(&error) {
                ExitCode::from(EXIT_MISSING)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    match &cli.chore {
        Chore::Ci => ci::run(),
        Chore::Test(options) => suite::run_suite(options),
        Chore::Lint => lints::run_all(),
        Chore::Deny => deny::check(),
        Chore::Vectors => vectors::check(),
        Chore::Fuzz(options) => fuzz::run_targets(options),
        Chore::Soak(options) => soak::run(options),
        Chore::Demo(options) => demo::run(options),
        Chore::Cluster(options) => cluster::run(options),
        Chore::Bench(options) => bench::run(options),
        Chore::Advisories => deny::advisories(),
    }
}
