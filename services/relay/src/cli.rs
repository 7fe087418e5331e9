//! The command line: what can be asked, and how `--help` explains it.

use std::{path::PathBuf, time::Duration};

use argala_boot::{DeviceId, GroupId, MemberId, StorageKey, config::Span};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Something failed, or was cut off.
pub(crate) const EXIT_FAILED: u8 = 1;
/// The command line or the configuration is wrong. clap exits with it, too.
pub(crate) const EXIT_WRONG: u8 = 2;
/// The store's schema is none that this build may serve.
pub(crate) const EXIT_SCHEMA: u8 = 3;

const EXIT_HELP: &str = "\
Exit status:
  0    done; of a relay: stopped as it was told to, with nothing left in flight
  1    something failed; of a relay: it stopped with requests still in flight
  2    the command line or the configuration is wrong
  3    the database's schema is none that this build may serve
  130  a second SIGINT ended the relay at once (143: a second SIGTERM)";

/// Syncs encrypted records between devices, without being able to read them.
#[derive(Debug, Parser)]
#[command(name = "relay", version, after_help = EXIT_HELP, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a relay to try things out with; believes whatever callers say of themselves.
    #[command(after_help = "\
Examples:
  ARGALA_DEV_AUTH=1 relay dev
  ARGALA_DEV_AUTH=1 relay dev --data /tmp/argala --listen 127.0.0.1:0")]
    Dev(DevArgs),
    /// Run a relay as its configuration says.
    #[command(after_help = "\
Examples:
  relay serve --config relay.toml
  ARGALA__AUTH__JWT__SECRET_FILE=/run/secrets/jwt relay serve --listen 0.0.0.0:8787")]
    Serve(ServeArgs),
    /// Make the tables of a Postgres store, or bring them to what this build knows.
    #[command(after_help = "\
Examples:
  relay migrate --config relay.toml
  relay migrate --check --output json

Goes past a connection pooler where store.direct_url says how. Several may run at once: one works,
the others find nothing to do. A SQLite store is migrated by whoever opens it.")]
    Migrate(MigrateArgs),
    /// Check or show the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the OpenAPI document of the routes.
    #[command(after_help = "Example:\n  relay openapi > openapi.json")]
    Openapi,
    /// Keep members and groups, devices and tokens; beside a running relay or without one.
    Admin(AdminArgs),
}

/// Where settings come from. Later beats earlier: the defaults, the file, the environment
/// (`ARGALA__SECTION__KEY`), these flags.
#[derive(Debug, Default, Args)]
pub(crate) struct Settings {
    /// A file of settings; `relay config print --defaults` shows what may stand in one.
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

#[derive(Debug, Args)]
pub(crate) struct Listen {
    /// Where clients connect; port 0 takes any that is free.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<String>,
    /// Where an orchestrator asks.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) admin_listen: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// The folder for everything the relay keeps.
    #[arg(long, value_name = "DIR", default_value = "data")]
    pub(crate) data: PathBuf,
    #[command(flatten)]
    pub(crate) listen: Listen,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) listen: Listen,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Change nothing; exit with 0 where a relay of this build would serve the database, and with
    /// 3 where it would not.
    #[arg(long)]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// The form of the answer.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) output: Output,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Tell everything that is wrong with the configuration, with file and line.
    #[command(after_help = "Example:\n  relay config check --config relay.toml")]
    Check {
        #[command(flatten)]
        settings: Settings,
        /// The form of the answer.
        #[arg(long, value_enum, default_value_t)]
        output: Output,
    },
    /// Show the configuration in force, secrets redacted, with where each value was given.
    #[command(after_help = "\
Examples:
  relay config print --config relay.toml
  relay config print --defaults > relay.toml")]
    Print {
        #[command(flatten)]
        settings: Settings,
        /// The documented defaults instead: every key, and what it means.
        #[arg(long, conflicts_with = "output")]
        defaults: bool,
        /// The form of the answer.
        #[arg(long, value_enum, default_value_t)]
        output: Output,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  relay admin member add sam --config relay.toml
  relay admin group create acme && relay admin group join acme sam
  relay admin token mint --member sam --device sam-laptop --ttl 1h --config relay.toml
  relay admin device revoke --member sam --device sam-phone --output json
  relay admin graph usage g:acme --data ./data
  relay admin recount --fix
  relay admin erase member sam --dry-run")]
pub(crate) struct AdminArgs {
    #[command(subcommand)]
    pub(crate) command: AdminCommand,
    /// The folder of a `relay dev`, in place of the paths of the configuration.
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) data: Option<PathBuf>,
    /// A file of settings.
    #[arg(long, value_name = "FILE", env = "ARGALA_CONFIG", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// One setting; may be given several times.
    #[arg(long, value_name = "SECTION.KEY=VALUE", value_parser = pair, global = true)]
    pub(crate) set: Vec<(String, String)>,
    /// The form of the answer.
    #[arg(long, value_enum, default_value_t, global = true)]
    pub(crate) output: Output,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdminCommand {
    /// Members of the table directory.
    #[command(subcommand)]
    Member(MemberCommand),
    /// Groups of the table directory.
    #[command(subcommand)]
    Group(GroupCommand),
    /// Devices of a member.
    #[command(subcommand)]
    Device(DeviceCommand),
    /// Graphs, by storage key: `g:<group>` or `d:<member>:<member>`.
    #[command(subcommand)]
    Graph(GraphCommand),
    /// Credentials.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Compare the graphs' counters with what there is; exits with 1 where they are wrong.
    #[command(after_help = "\
Examples:
  relay admin recount --config relay.toml
  relay admin recount g:acme --fix --output json")]
    Recount(RecountArgs),
    /// Make a database fit to serve that was restored from a backup, or failed over to without its
    /// last changes. Run it before any relay or sweeper starts.
    #[command(after_help = "\
Example:
  relay admin restored --config relay.toml

Every cursor becomes invalid, so that devices start over; every graph's epoch rises by 1,000 and owes
a rotation, so that no epoch number is ever used for two keys. Revocations of the lost time are lost,
too: repeat them with `relay admin device revoke` before anybody is served.")]
    Restored,
    /// Erase a member or a graph for good. May be cut off and run again.
    #[command(subcommand)]
    Erase(EraseCommand),
}

#[derive(Debug, Args)]
pub(crate) struct RecountArgs {
    /// One graph, by storage key; all of them otherwise.
    pub(crate) graph: Option<StorageKey>,
    /// Make the counters what there is.
    #[arg(long)]
    pub(crate) fix: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EraseCommand {
    /// Erase a member: their devices, their own graph and those of their pairs, and their records,
    /// blobs, wraps and idempotency keys in graphs that others share.
    #[command(after_help = "\
Examples:
  relay admin erase member sam --dry-run
  relay admin erase member sam --config relay.toml

What is left is told. Devices of the others start over in graphs that lost records by it.")]
    Member {
        member: MemberId,
        /// Erase nothing: tell what would be erased.
        #[arg(long)]
        dry_run: bool,
    },
    /// Erase a graph and all it holds. For its members it is gone at once.
    #[command(after_help = "\
Examples:
  relay admin erase graph g:acme --dry-run
  relay admin erase graph g:acme --config relay.toml")]
    Graph {
        graph: StorageKey,
        /// Erase nothing: tell what would be erased.
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// Add a member, or make a removed one active again.
    Add { member: MemberId },
    /// Make a member inactive: nothing of theirs is served, nothing is deleted.
    Remove { member: MemberId },
    /// List members.
    List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// Create a group without members.
    Create { group: GroupId },
    /// Put a member into a group.
    Join { group: GroupId, member: MemberId },
    /// Take a member out of a group.
    Leave { group: GroupId, member: MemberId },
    /// List groups and their members.
    List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeviceCommand {
    /// List a member's devices, revoked ones too.
    List {
        #[arg(long)]
        member: MemberId,
    },
    /// Revoke a device, for good.
    Revoke {
        #[arg(long)]
        member: MemberId,
        #[arg(long)]
        device: DeviceId,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum GraphCommand {
    /// Show a graph's epoch, head and counters.
    Show { graph: StorageKey },
    /// Show how much of each quota a graph uses.
    Usage { graph: StorageKey },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Print a token for one device, signed with the secret of `auth.jwt`.
    Mint {
        #[arg(long)]
        member: MemberId,
        #[arg(long)]
        device: DeviceId,
        /// How long it is good.
        #[arg(long, default_value = "1h", value_parser = ttl)]
        ttl: Duration,
    },
}

fn ttl(text: &str) -> Result<Duration, &'static str> {
    let ttl = text.parse::<Span>()?.0;
    if ttl.as_secs() == 0 {
        return Err("a token is good for a second at least");
    }
    Ok(ttl)
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
