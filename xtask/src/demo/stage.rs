//! Where the story plays: a fresh folder, a relay on a free port, a home for each device.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use argala_servers::{PrivatePostgres, PrivateRedis};
use serde_json::Value;
use tempfile::TempDir;

use super::actor::Actor;
use super::binaries::Binaries;
use super::folders::{noise, write};
use super::process::Running;
use super::relays::Relays;
use crate::cargo::quoted;

/// How long anything that should take a moment may take on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// The group that the story is about.
pub(crate) const GROUP: &str = "acme";

const LISTENERS: &str = "\
[http]
listen = \"127.0.0.1:0\"

[admin]
listen = \"127.0.0.1:0\"

";

const SQLITE: &str = "\
[store]
path = \"relay/relay.db\"

[blobs]
kind = \"filesystem\"
path = \"relay/blobs\"

";

const POSTGRES: &str = "\
[store]
kind = \"postgres\"
url_file = \"store.url\"

";

/// The bucket that the relays share.
const BUCKET: &str = "argala-blobs";

const SHARED: &str = "\
[redis]
url_file = \"redis.url\"

[limiter]
kind = \"redis\"

[pokes]
kind = \"redis\"

";

const TOKENS: &str = "\
[auth.jwt]
secret_file = \"jwt.secret\"
";

/// What the relay is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One process, a file, and blobs in a folder.
    Sqlite,
    /// One process, and a Postgres of its own.
    Postgres,
    /// So many processes behind a load balancer, which share a Postgres, a Redis and a bucket.
    Cluster(usize),
}

/// The servers that the relay is put on; they end with this.
#[derive(Default)]
struct Servers {
    postgres: Option<PrivatePostgres>,
    redis: Option<PrivateRedis>,
    s3: Option<Bucket>,
}

/// An S3 of the demo's own, which keeps objects as files.
struct Bucket {
    _server: Running,
    endpoint: String,
    folder: PathBuf,
}

/// The folder of the demo, and what it was made from.
pub(crate) struct Stage {
    folder: TempDir,
    binaries: Binaries,
    layout: Layout,
    servers: Servers,
    /// What only the relay and the issuer of tokens know.
    pub(crate) token_secret: Vec<u8>,
    /// The tokens that were made, to be looked for where none should be.
    pub(crate) tokens: Vec<String>,
}

impl Stage {
    /// A fresh folder with the configuration of a small production relay.
    pub(crate) fn set(binaries: Binaries, layout: Layout) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("argala-demo-")
            .tempdir()
            .context("no temporary folder can be made")?;
        // A text, as an operator would write it; the same in every run is good enough here.
        let secret: String = noise(24, 41)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        write(folder.path(), "jwt.secret", secret.as_bytes())?;
        let mut servers = Servers::default();
        let mut parts = String::new();
        if layout == Layout::Sqlite {
            parts.push_str(SQLITE);
        } else {
            let server = PrivatePostgres::start_with(&[])?;
            write(folder.path(), "store.url", server.url().as_bytes())?;
            servers.postgres = Some(server);
            parts.push_str(POSTGRES);
        }
        if let Layout::Cluster(_) = layout {
            let server = PrivateRedis::start()?;
            write(folder.path(), "redis.url", server.url().as_bytes())?;
            servers.redis = Some(server);
            parts.push_str(SHARED);
            let (bucket, blobs) = Bucket::start(folder.path(), &binaries.s3)?;
            servers.s3 = Some(bucket);
            parts.push_str(&blobs);
        }
        let configuration = format!("{LISTENERS}{parts}{TOKENS}");
        write(folder.path(), "relay.toml", configuration.as_bytes())?;
        for line in configuration.lines() {
            println!("    {line}");
        }
        Ok(Self {
            folder,
            binaries,
            layout,
            servers,
            token_secret: secret.into_bytes(),
            tokens: Vec::new(),
        })
    }

    /// The folder everything lies in.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Prepares the relay's store, where it is a server, and the group with its members.
    pub(crate) fn prepare(&self) -> Result<()> {
        if self.servers.postgres.is_some() {
            self.relay(&["migrate"])?;
            self.relay(&["migrate", "--check"])?;
        }
        self.relay(&["admin", "group", "create", GROUP])?;
        for member in ["sam", "alex"] {
            self.relay(&["admin", "member", "add", member])?;
            self.relay(&["admin", "group", "join", GROUP, member])?;
        }
        Ok(())
    }

    /// Where the relay keeps everything but, maybe, objects. A server's whole folder: its log of
    /// changes still has what its tables have no more.
    pub(crate) fn relay_data(&self) -> PathBuf {
        match &self.servers.postgres {
            None => self.folder().join("relay"),
            Some(server) => server.data(),
        }
    }

    /// All that the relay keeps, each part with what it is called.
    pub(crate) fn relay_folders(&self) -> Vec<(&'static str, PathBuf)> {
        let bucket = self.servers.s3.as_ref();
        let bucket = bucket.map(|bucket| ("the relay's bucket", bucket.folder.clone()));
        [("the relay's folder", self.relay_data())]
            .into_iter()
            .chain(bucket)
            .collect()
    }

    /// The servers that the relay is on, by name, with their addresses.
    pub(crate) fn servers(&self) -> Vec<(&'static str, String)> {
        let Servers {
            postgres,
            redis,
            s3,
        } = &self.servers;
        let postgres = postgres.as_ref().map(|it| ("Postgres", it.url()));
        let redis = redis.as_ref().map(|it| ("Redis", it.url().to_owned()));
        let s3 = s3.as_ref().map(|it| ("S3", it.endpoint.clone()));
        postgres.into_iter().chain(redis).chain(s3).collect()
    }

    /// Leaves the folder behind for somebody to look at.
    pub(crate) fn keep(self) -> PathBuf {
        self.folder.keep()
    }

    /// Runs a `relay` command to its end and gives back what it printed.
    pub(crate) fn relay(&self, arguments: &[&str]) -> Result<String> {
        println!("\noperator$ relay {}", spelled(arguments));
        let (status, lines) = Running::start(self.relay_command(arguments))?.finish(SOON)?;
        for line in &lines {
            // A token is a credential, here as everywhere.
            match arguments {
                ["admin", "token", ..] if status.success() => println!("    (a token)"),
                _ => println!("    {}", line.text),
            }
        }
        if !status.success() {
            bail!("`relay {}` failed ({status})", spelled(arguments));
        }
        Ok(lines
            .into_iter()
            .map(|line| line.text)
            .collect::<Vec<_>>()
            .join("\n"))
    }

    /// Starts the relay and waits until it says where it listens.
    pub(crate) fn start(&self) -> Result<Relays> {
        let count = match self.layout {
            Layout::Sqlite | Layout::Postgres => 1,
            Layout::Cluster(replicas) => replicas,
        };
        for _ in 0..count {
            println!("\noperator$ relay serve");
        }
        let relays = Relays::start(count, || self.relay_command(&["serve"]))?;
        if count == 1 {
            return Ok(relays);
        }
        println!("\noperator$ sweeper run");
        relays.with_sweeper(self.command(&self.binaries.sweeper, &["run"]))
    }

    /// A line that tells what a sweeper would forget now.
    pub(crate) fn dry_run(&self) -> String {
        format!(
            "(cd {} && {} once --dry-run --config relay.toml)",
            quoted(&self.folder().to_string_lossy()),
            quoted(&self.binaries.sweeper.to_string_lossy()),
        )
    }

    fn relay_command(&self, arguments: &[&str]) -> Command {
        self.command(&self.binaries.relay, arguments)
    }

    /// A program that reads the relay's configuration.
    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.folder())
            .env("ARGALA_CONFIG", "relay.toml");
        // What the developer has set for another relay is not for this one.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ARGALA_") && name != "ARGALA_CONFIG" {
                command.env_remove(name);
            }
        }
        command
    }

    /// A home and a token for one device of a member.
    pub(crate) fn device(&mut self, member: &str, device: &str, url: &str) -> Result<Actor> {
        let token = self.relay(&[
            "admin", "token", "mint", "--member", member, "--device", device,
        ])?;
        let home = self.folder().join(format!("{member}-{device}"));
        write(&home, "token", token.as_bytes())?;
        self.tokens.push(token);
        Ok(Actor::new(member, device, home, &self.binaries.argala, url))
    }
}

impl Bucket {
    /// Starts the server and tells how the relay is configured for it.
    fn start(folder: &Path, program: &Path) -> Result<(Self, String)> {
        let objects = folder.join("s3");
        std::fs::create_dir(&objects).context("no folder for objects")?;
        let mut command = Command::new(program);
        command.arg(&objects).arg(BUCKET);
        let mut server = Running::start_tied(command)?;
        let line = server.wait_for("S3's address", SOON, |line| line.text.starts_with('{'))?;
        let told: Value = serde_json::from_str(&line.text).context("S3 said something else")?;
        let told = |name: &str| told[name].as_str().context("S3 said too little");
        write(folder, "s3.secret", told("secret")?.as_bytes())?;
        let endpoint = told("endpoint")?.to_owned();
        let blobs = format!(
            "\
[blobs]
kind = \"s3\"
bucket = \"{BUCKET}\"
endpoint = \"{endpoint}\"
force_path_style = true
access_key_id = \"{}\"
secret_access_key_file = \"s3.secret\"
spool_path = \"spool\"

",
            told("id")?
        );
        let bucket = Self {
            _server: server,
            endpoint,
            folder: objects.join(BUCKET),
        };
        Ok((bucket, blobs))
    }
}

/// Arguments as they could be typed.
pub(crate) fn spelled(arguments: &[&str]) -> String {
    arguments
        .iter()
        .map(|word| quoted(word))
        .collect::<Vec<_>>()
        .join(" ")
}
