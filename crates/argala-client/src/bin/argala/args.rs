//! What may be typed.

use std::{path::PathBuf, time::Duration};

use argala_client::{Kind, api::DEFAULT_URL, api::device_ref};
use argala_wire::{BlobId, DeviceId, GraphId, RecordId, blobs::BlobPolicy, devices::DeviceRef};
use clap::{Args, Parser, Subcommand, ValueEnum};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed on this machine (a file, the key file, sealed bytes that do not open)
  2  what was typed makes no sense
  3  the relay refused
  4  the relay cannot be reached; what was to be written is held
  5  done in part: something is held, was refused, has failed or is still owed
  6  nothing came before --timeout

Example, against `relay dev`:
  argala --dev sam/laptop --keyfile sam.keys register
  argala --dev sam/laptop --keyfile sam.keys rotate g:acme
  argala --dev sam/laptop --keyfile sam.keys push g:acme --id hello --text 'Hello, Alex'";

/// Read and write end-to-end encrypted graphs through an Argala relay.
///
/// A graph is named g:GROUP, d:MEMBER for the one shared with that member, or d: and your own id
/// for the one that only your devices read.
#[derive(Debug, Parser)]
#[command(name = "argala", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// One JSON document a command (`watch`: one a line); what went wrong goes to standard error,
    /// in JSON too.
    Json,
}

/// The form of bodies on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Encoding {
    Json,
    Cbor,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Globals {
    /// Where the relay's routes lie.
    #[arg(long, global = true, env = "ARGALA_URL", default_value = DEFAULT_URL)]
    pub(crate) url: String,
    /// The file with this device's keys; its lock is held while a command runs.
    /// [default: argala/device.keys in $XDG_CONFIG_HOME or ~/.config]
    #[arg(long, global = true, env = "ARGALA_KEYFILE", value_name = "FILE")]
    pub(crate) keyfile: Option<PathBuf>,
    /// Speak as MEMBER/DEVICE to a dev server, which believes everybody. Ids that hold a slash or
    /// a percent sign are percent-encoded.
    #[arg(long, global = true, env = "ARGALA_DEV", value_name = "MEMBER/DEVICE",
          conflicts_with_all = ["token", "token_file"])]
    pub(crate) dev: Option<String>,
    /// The bearer token of this device. Other users of the machine may see it here: prefer the
    /// environment or --token-file.
    #[arg(
        long,
        global = true,
        env = "ARGALA_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    pub(crate) token: Option<String>,
    /// A file that holds the bearer token.
    #[arg(
        long,
        global = true,
        env = "ARGALA_TOKEN_FILE",
        value_name = "FILE",
        conflicts_with = "token"
    )]
    pub(crate) token_file: Option<PathBuf>,
    /// Which device this is, for a token that does not say so in `sub` and `did`.
    #[arg(id = "as", long = "as", global = true, value_name = "MEMBER/DEVICE",
          value_parser = parse_device)]
    pub(crate) device: Option<DeviceRef>,
    /// How results are written.
    #[arg(long, global = true, value_enum, default_value = "text")]
    pub(crate) output: Format,
    /// The form of bodies on the wire.
    #[arg(long, global = true, value_enum, default_value = "json", hide = true)]
    pub(crate) encoding: Encoding,
    /// How often a request is made at the most where no answer comes.
    #[arg(long, global = true, default_value_t = 6, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) tries: u32,
    /// How long to wait for another argala that is using the key file.
    #[arg(long, global = true, default_value = "10", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) lock_timeout: Duration,
    /// Show no progress bar.
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

fn parse_device(text: &str) -> Result<DeviceRef, String> {
    device_ref(text).map_err(|why| why.to_string())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    Duration::try_from_secs_f64(seconds).map_err(|why| why.to_string())
}

fn interval(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        some if some >= Duration::from_millis(100) => Ok(some),
        _ => Err("at least a tenth of a second".to_owned()),
    }
}

fn policy(text: &str) -> Result<BlobPolicy, String> {
    text.parse()
        .map_err(|()| "keep, expire or deliver".to_owned())
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make this device's keys and publish them; again, to change its name.
    #[command(after_help = "Examples:
  argala --dev sam/laptop register --label \"Sam's laptop\"
  ARGALA_TOKEN_FILE=token argala register")]
    Register(Register),
    /// List your own devices, or those of a graph, with fingerprints to compare.
    ///
    /// Until a device has been listed, `rotate` and `grant` seal no key for it, and none that it
    /// gives is used, except for the first.
    #[command(after_help = "Examples:
  argala devices
  argala devices g:acme --former
  argala devices --verify alex/phone --fingerprint '1f0c 93ab 52d4 0d11 7a6e 0f3c 99aa 4e21'")]
    Devices(Devices),
    /// Revoke one of your own devices, for good.
    #[command(after_help = "Example:
  argala revoke old-phone && argala rotate --owed")]
    Revoke(Revoke),
    /// List the graphs that you may read.
    #[command(after_help = "Examples:
  argala graphs
  argala graphs --output json | jq -r '.graphs[] | select(.behind) | .graphId'")]
    Graphs,
    /// Begin a graph's next epoch under a new key, or that of every graph that owes it.
    #[command(after_help = "Examples:
  argala devices g:acme && argala rotate g:acme
  argala rotate --owed --output json")]
    Rotate(Rotate),
    /// Give a graph's keys to the devices that lack them.
    #[command(after_help = "Examples:
  argala devices g:acme && argala grant g:acme
  argala grant g:acme --to alex/phone")]
    Grant(Grant),
    /// Write records. What cannot be sent now is held and goes with the next push.
    #[command(after_help = "Examples:
  argala push g:acme --id note-1 --text 'Milk'
  argala push g:acme --id photo-note --kind json --file note.json --expect 0
  argala push g:acme --id note-1 --delete
  argala push g:acme --jsonl notes.jsonl
  argala push g:acme                      # send what is held
  argala push g:acme --retry-rejected     # and what was refused

A line of --jsonl: {\"id\": \"a\", \"text\": \"Milk\"} and, optional, kind, deleted, expect;
base64url in place of text for bytes.")]
    Push(Push),
    /// Read what is new in a graph.
    #[command(after_help = "Examples:
  argala pull g:acme
  argala pull g:acme --from-start --output json
  argala pull g:acme --kind calendar/event")]
    Pull(Pull),
    /// Store a file as a blob.
    #[command(after_help = "Examples:
  argala put g:acme film.mp4
  argala put d:alex scan.pdf --policy deliver
  argala put g:acme poster.png --policy expire --ttl 86400")]
    Put(Put),
    /// Fetch a blob into a file.
    #[command(after_help = "Example:
  argala get g:acme 9f86d081884c7d659a2feaa0c55ad015 film.mp4")]
    Get(Get),
    /// Delete a blob.
    #[command(after_help = "Example:
  argala forget g:acme 9f86d081884c7d659a2feaa0c55ad015")]
    Forget(Forget),
    /// Bring a folder and a graph in step: files become records, large ones blobs.
    ///
    /// Where two devices changed a file both versions are kept, the later one under a name that
    /// tells whose it is; a deletion never wins against an edit. It may be interrupted at any
    /// moment and run again. Not synced: empty folders, symbolic links, times and owners. What is
    /// remembered of the folder lies in DIR/.argala-sync.
    #[command(after_help = "Examples:
  argala sync g:acme notes
  argala sync g:acme notes --dry-run
  argala sync d:sam ~/desk --watch
  argala sync g:acme notes --output json | jq .conflicts")]
    Sync(Sync),
    /// Tell when graphs have news.
    #[command(after_help = "Examples:
  argala watch
  argala watch --once --timeout 60 && argala pull g:acme")]
    Watch(WatchArgs),
    /// Tell how this device stands: keys that are behind, writes held, records refused, what the
    /// relay told that was not believed, and devices that were never listed.
    #[command(after_help = "Examples:
  argala status
  argala status g:acme --rejected
  argala status --output json | jq .rejected")]
    Status(Status),
    /// Make a recovery code, or come back with one.
    #[command(subcommand)]
    Recovery(Recovery),
}

#[derive(Debug, Args)]
pub(crate) struct Register {
    /// The device's name, sealed for your other devices.
    #[arg(long, value_name = "NAME")]
    pub(crate) label: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Devices {
    /// The graph; your own devices where there is none.
    pub(crate) graph: Option<GraphId>,
    /// Also those that are not on the roster but ever held a key of the graph.
    #[arg(long, requires = "graph")]
    pub(crate) former: bool,
    /// Remember that you compared this device's fingerprint with its owner.
    #[arg(long, value_name = "MEMBER/DEVICE", value_parser = parse_device,
          requires = "fingerprint", conflicts_with = "graph")]
    pub(crate) verify: Option<DeviceRef>,
    /// The fingerprint that its owner told you.
    #[arg(long, requires = "verify", value_name = "HEX")]
    pub(crate) fingerprint: Option<String>,
    /// Forget a device's keys, so that those which the relay shows next are taken. Only after its
    /// owner has told you that they changed.
    #[arg(long, value_name = "MEMBER/DEVICE", value_parser = parse_device,
          conflicts_with_all = ["graph", "verify"])]
    pub(crate) forget: Option<DeviceRef>,
}

#[derive(Debug, Args)]
pub(crate) struct Revoke {
    /// The device's id.
    pub(crate) device: DeviceId,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Rotate {
    /// The graph. Its first rotation makes it.
    pub(crate) graph: Option<GraphId>,
    /// Every graph that owes a rotation.
    #[arg(long)]
    pub(crate) owed: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Grant {
    /// The graph.
    pub(crate) graph: GraphId,
    /// This device alone, whatever it lacks; may be given several times.
    #[arg(long, value_name = "MEMBER/DEVICE", value_parser = parse_device)]
    pub(crate) to: Vec<DeviceRef>,
}

#[derive(Debug, Args)]
pub(crate) struct Push {
    /// The graph.
    pub(crate) graph: GraphId,
    /// The item to write; without it, what is held is sent.
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) id: Option<RecordId>,
    /// What the item says; where neither this nor --file is given it is read from standard input.
    #[arg(long, requires = "id", conflicts_with = "file")]
    pub(crate) text: Option<String>,
    /// A file with what the item says.
    #[arg(long, requires = "id")]
    pub(crate) file: Option<PathBuf>,
    /// What the record is for.
    #[arg(long, default_value = "text")]
    pub(crate) kind: Kind,
    /// Delete the item.
    #[arg(long, requires = "id", conflicts_with_all = ["text", "file"])]
    pub(crate) delete: bool,
    /// The seq that the item must have now; 0: there must be none.
    #[arg(long, requires = "id", value_name = "SEQ")]
    pub(crate) expect: Option<u64>,
    /// Many items, one JSON object a line; - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "id")]
    pub(crate) jsonl: Option<PathBuf>,
    /// The head that the graph must have now. Nothing is held then.
    #[arg(long, value_name = "SEQ")]
    pub(crate) if_head: Option<u64>,
    /// Take all of --jsonl or nothing. Nothing is held then.
    #[arg(long, requires = "jsonl")]
    pub(crate) atomic: bool,
    /// Send again what was refused before.
    #[arg(long, conflicts_with_all = ["if_head", "atomic"])]
    pub(crate) retry_rejected: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Pull {
    /// The graph.
    pub(crate) graph: GraphId,
    /// Also read records of this kind, beside those that argala writes itself; may be given
    /// several times. A record of any other kind is refused.
    #[arg(long)]
    pub(crate) kind: Vec<Kind>,
    /// Read everything, and leave where the next pull begins as it is.
    #[arg(long)]
    pub(crate) from_start: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Put {
    /// The graph.
    pub(crate) graph: GraphId,
    /// The file.
    pub(crate) file: PathBuf,
    /// The blob's id; one at random where there is none.
    #[arg(long, value_name = "BLOB", allow_hyphen_values = true)]
    pub(crate) id: Option<BlobId>,
    /// How long it stays: keep, expire or deliver.
    #[arg(long, default_value = "keep", value_parser = policy)]
    pub(crate) policy: BlobPolicy,
    /// Its time to live, in seconds.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) ttl: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The graph.
    pub(crate) graph: GraphId,
    /// The blob.
    pub(crate) blob: BlobId,
    /// Where to write it; it appears whole or not at all.
    pub(crate) file: PathBuf,
    /// The SHA-256 that the file must have, in hexadecimal.
    #[arg(long, value_name = "HEX", value_parser = sha256)]
    pub(crate) sha256: Option<Sha256>,
}

/// A digest as it is typed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sha256(pub(crate) [u8; 32]);

fn sha256(text: &str) -> Result<Sha256, String> {
    let digit = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(digit).collect();
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes
        .map(Sha256)
        .ok_or_else(|| "64 hexadecimal digits".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct Forget {
    /// The graph.
    pub(crate) graph: GraphId,
    /// The blob.
    pub(crate) blob: BlobId,
}

#[derive(Debug, Args)]
pub(crate) struct Sync {
    /// The graph. One folder syncs with one graph, and is one device's.
    pub(crate) graph: GraphId,
    /// The folder; it is made where there is none.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Change nothing, and tell what would be changed.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Where parts of a file's newest version are not at the relay (`broken`), push the file that is
    /// here in its place. Whoever has that version whole takes it for an edit.
    #[arg(long, conflicts_with_all = ["dry_run", "watch"])]
    pub(crate) replace_broken: bool,
    /// Go on: sync again whenever the graph or the folder changes, until interrupted.
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) watch: bool,
    /// How often the folder is looked through for changes.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = interval,
          requires = "watch")]
    pub(crate) interval: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// End with the first news.
    #[arg(long)]
    pub(crate) once: bool,
    /// End after so many seconds; with exit code 6 where nothing came.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// One graph alone.
    pub(crate) graph: Option<GraphId>,
    /// List the records of the graph that were refused.
    #[arg(long, requires = "graph")]
    pub(crate) rejected: bool,
    /// Give up the graph's refused writes, and stop listing refused records.
    #[arg(long, requires = "graph")]
    pub(crate) forget_rejected: bool,
    /// Stop showing what the relay told and was not believed.
    #[arg(long, conflicts_with = "graph")]
    pub(crate) forget_doubts: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Recovery {
    /// Make a recovery code, print it once, and give every key to the device that comes from it.
    #[command(after_help = "Examples:
  argala --dev sam/laptop recovery create
  argala recovery create --device recovery-1 --recovery-token-file recovery.token")]
    Create(RecoveryDevice),
    /// Give every key to this device by a recovery code, which is read from standard input.
    #[command(after_help = "Examples:
  argala --dev sam/new-laptop recovery restore
  argala --dev sam/new-laptop recovery restore --code-file paper.txt")]
    Restore(Restore),
}

#[derive(Debug, Args)]
pub(crate) struct RecoveryDevice {
    /// The recovery device's id. [default: the first of recovery-1, recovery-2… that is free]
    #[arg(long, value_name = "ID")]
    pub(crate) device: Option<DeviceId>,
    #[command(flatten)]
    pub(crate) credential: RecoveryCredential,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// A file that holds the code.
    #[arg(long, value_name = "FILE")]
    pub(crate) code_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) credential: RecoveryCredential,
}

#[derive(Debug, Args)]
pub(crate) struct RecoveryCredential {
    /// A bearer token of the recovery device. With --dev none is needed.
    #[arg(
        long,
        env = "ARGALA_RECOVERY_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    pub(crate) recovery_token: Option<String>,
    /// A file that holds the recovery device's bearer token.
    #[arg(long, value_name = "FILE", conflicts_with = "recovery_token")]
    pub(crate) recovery_token_file: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_makes_sense() {
        Cli::command().debug_assert();
    }

    /// clap hands a global option's value to every command, and panics where a command has an
    /// argument of the same id and another type.
    #[test]
    fn no_command_takes_a_global_options_id() {
        for line in [
            &["argala", "revoke", "phone"][..],
            &["argala", "recovery", "create", "--device", "recovery-1"],
        ] {
            assert!(Cli::try_parse_from(line).is_ok(), "{line:?}");
        }
    }

    #[test]
    fn every_command_shows_an_example() {
        fn check(command: &clap::Command) {
            if command.has_subcommands() {
                command.get_subcommands().for_each(check);
            } else {
                let help = command.get_after_help().expect("examples").to_string();
                assert!(
                    help.contains("Example") && help.contains("argala"),
                    "{help}"
                );
            }
        }
        check(&Cli::command());
    }

    #[test]
    fn digests_are_64_digits() {
        assert!(sha256(&"0f".repeat(32)).is_ok());
        for text in ["", "0f", "é", &"0g".repeat(32), &"0f".repeat(33)] {
            assert!(sha256(text).is_err(), "{text}");
        }
    }
}
