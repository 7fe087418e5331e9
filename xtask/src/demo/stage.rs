//! Where the story plays: a fresh folder, a relay on a free port, a home for each device.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use argala_servers::{PrivatePostgres, PrivateRedis};
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
    /// So many processes behind a load balancer, which share a Postgres and a Redis.
    Cluster(usize),
}

/// The servers that the relay is put on; they end with this.
#[derive(Default)]
struct Servers {
    postgres: Option<PrivatePostgres>,
    redis: Option<PrivateRedis>,
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

    /// Whether the relay's store is a server, which has to be prepared.
    pub(crate) fn has_server(&self) -> bool {
        self.servers.postgres.is_some()
    }

    /// All that the relay keeps. A server's whole folder: its log of changes still has what its
    /// tables have no more.
    pub(crate) fn relay_data(&self) -> PathBuf {
        match &self.servers.postgres {
            None => self.folder().join("relay"),
            Some(server) => server.data(),
        }
    }

    /// The servers that the relay is on, by name, with their addresses.
    pub(crate) fn servers(&self) -> Vec<(&'static str, String)> {
        let Servers { postgres, redis } = &self.servers;
        let postgres = postgres.as_ref().map(|it| ("Postgres", it.url()));
        let redis = redis.as_ref().map(|it| ("Redis", it.url().to_owned()));
        postgres.into_iter().chain(redis).collect()
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
        Relays::start(count, || self.relay_command(&["serve"]))
    }

    fn relay_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binaries.relay);
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

/// Arguments as they could be typed.
pub(crate) fn spelled(arguments: &[&str]) -> String {
    arguments
        .iter()
        .map(|word| quoted(word))
        .collect::<Vec<_>>()
        .join(" ")
}
