//! The command line: what can be asked, and how `--help` explains it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Something failed, or was cut off.
pub(crate) const EXIT_FAILED: u8 = 1;
/// The command line or the configuration is wrong. clap exits with it, too.
pub(crate) const EXIT_WRONG: u8 = 2;
/// The store's schema is none that this build may serve.
pub(crate) const EXIT_SCHEMA: u8 = 3;

const EXIT_HELP: &str = "\
Exit status:
  0    done; of `run`: stopped as it was told to; of `once`: also where another sweeper is at work
  1    something failed
  2    the command line or the configuration is wrong
  3    the database's schema is none that this build may serve
  130  a second SIGINT ended it at once (143: a second SIGTERM)";

/// Forgets what is due in a store that several relays share: expired and delivered blobs, unfinished
/// uploads, graphs of abandoned groups, old tombstones and idempotency keys.
///
/// It reads the relays' configuration. Of several that run, one works and the others wait.
#[derive(Debug, Parser)]
#[command(name = "sweeper", version, after_help = EXIT_HELP, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Sweep every `sweep.interval`, until told to stop.
    #[command(after_help = "\
Examples:
  sweeper run --config relay.toml
  sweeper run --config relay.toml --admin-listen 0.0.0.0:9464")]
    Run {
        #[command(flatten)]
        settings: Settings,
        /// Where an orchestrator asks.
        #[arg(long, value_name = "ADDRESS:PORT")]
        admin_listen: Option<String>,
    },
    /// Run one pass, for a job that a scheduler starts.
    #[command(after_help = "\
Examples:
  sweeper once --config relay.toml
  sweeper once --dry-run --output json --config relay.toml")]
    Once {
        /// Forget nothing: tell what would be forgotten, and why.
        #[arg(long)]
        dry_run: bool,
        /// How much of each kind a dry run tells at the most.
        #[arg(
            long,
            value_name = "COUNT",
            default_value_t = 1_000,
            requires = "dry_run"
        )]
        limit: usize,
        #[command(flatten)]
        settings: Settings,
        /// The form of the answer.
        #[arg(long, value_enum, default_value_t)]
        output: Output,
    },
}

/// Where settings come from. Later beats earlier: the defaults, the file, the environment
/// (`ARGALA__SECTION__KEY`), these flags.
#[derive(Debug, Default, Args)]
pub(crate) struct Settings {
    /// A file of settings, the relays' own.
    #[arg(long, value_name = "FILE", env = "ARGALA_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// One setting; may be given several times. Others on this machine may see it: no secrets.
    #[arg(long, value_name = "SECTION.KEY=VALUE", value_parser = pair)]
    pub(crate) set: Vec<(String, String)>,
}

fn pair(text: &str) -> Result<(String, String), &'static str> {
    let (key, value) = text.split_once('=').ok_or("write section.key=value")?;
    Ok((key.trim().to_owned(), value.to_owned()))
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
