//! One server for all processes of a test run.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::{
    Fault, bouncer, containers,
    ground::{answers, memory_folder},
    postgres::{self, Postgres},
    watch::{self, After, Use},
};

/// Names a Postgres to use instead of one of our own: a URL whose role may create databases.
pub const POSTGRES_VARIABLE: &str = "ARGALA_TEST_POSTGRES_URL";
/// Names the PgBouncer before it, in transaction mode.
pub const BOUNCER_VARIABLE: &str = "ARGALA_TEST_PGBOUNCER_URL";

/// In memory, where the log of changes is not wanted for long.
const SETTINGS: &[(&str, &str)] = &[("max_wal_size", "256MB"), ("min_wal_size", "64MB")];

/// A run starts processes one after another; between two of them nobody uses the server.
const IDLE_SECONDS: u32 = 10;

/// A server that others use, too. It runs for as long as somebody holds one of these.
#[derive(Debug)]
pub struct Shared {
    postgres_url: String,
    bouncer_url: Option<String>,
    _use: Option<Use>,
}

impl Shared {
    /// `postgres://…/postgres`, of a role that may create databases.
    #[must_use]
    pub fn postgres_url(&self) -> &str {
        &self.postgres_url
    }

    /// The same through PgBouncer in transaction mode; `None` where only a Postgres was named.
    #[must_use]
    pub fn bouncer_url(&self) -> Option<&str> {
        self.bouncer_url.as_deref()
    }
}

/// A Postgres in a container, which whoever started it leaves to us: it is removed when nobody uses
/// it any more. Its role and password are [`ROLE`](crate::ROLE) and [`PASSWORD`](crate::PASSWORD).
#[derive(Debug)]
pub struct Contained {
    /// What the engine calls the container.
    pub id: String,
    /// The port of `127.0.0.1` on which it takes connections.
    pub port: u16,
}

/// Keeps a shared server from being stopped between two processes that use it, without starting
/// one. For whoever starts those processes.
#[derive(Debug)]
pub struct Hold(Option<Use>);

impl Hold {
    /// Holds the server of this machine, where the environment names none.
    ///
    /// # Errors
    /// Where the folder for it cannot be used.
    pub fn take() -> Result<Self, Fault> {
        if env::var_os(POSTGRES_VARIABLE).is_some() {
            return Ok(Self(None));
        }
        Use::of(&folder()?).map(Some).map(Self)
    }

    /// Lets go, and stops the server at once where nobody else uses it. Where this is not called
    /// the watchdog does the same some seconds later.
    ///
    /// # Errors
    /// Where the server does not end.
    pub fn end(self) -> Result<(), Fault> {
        let Some(held) = self.0 else {
            return Ok(());
        };
        let folder = folder()?;
        let Some(_alone) = held.only(&folder)? else {
            return Ok(());
        };
        let servers = folder.join("server");
        bouncer::kill(&servers.join("bouncer"));
        postgres::kill(&servers.join("postgres"))?;
        containers::remove(&servers.join(CONTAINER));
        for path in [&servers, &folder.join("addresses")] {
            let removed = if path.is_dir() {
                fs::remove_dir_all(path)
            } else if path.exists() {
                fs::remove_file(path)
            } else {
                Ok(())
            };
            removed.map_err(Fault::at(path))?;
        }
        Ok(())
    }
}

/// The file that names the container, where the server is in one.
const CONTAINER: &str = "container";

fn folder() -> Result<PathBuf, Fault> {
    let folder = memory_folder()?.join("shared");
    fs::create_dir_all(&folder).map_err(Fault::at(&folder))?;
    Ok(folder)
}

/// The server that the environment names; or the one that runs already; or a new one: what
/// `contained` starts, where it can, else one from the programs of this machine.
///
/// # Errors
/// Where there is none and none can be started; whatever `contained` fails with.
pub fn shared(
    contained: impl FnOnce() -> Result<Option<Contained>, Fault>,
) -> Result<Shared, Fault> {
    if let Ok(postgres_url) = env::var(POSTGRES_VARIABLE) {
        return Ok(Shared {
            postgres_url,
            bouncer_url: env::var(BOUNCER_VARIABLE).ok(),
            _use: None,
        });
    }
    let folder = folder()?;
    let held = Use::of(&folder)?;
    let starting = watch::alone(&folder)?;
    let (postgres, bouncer) = match running(&folder) {
        Some(ports) => ports,
        None => start(&folder, contained)?,
    };
    drop(starting);
    Ok(Shared {
        postgres_url: postgres::url(postgres, "postgres"),
        bouncer_url: Some(postgres::url(bouncer, "postgres")),
        _use: Some(held),
    })
}

/// The ports of the servers that run in `folder`.
fn running(folder: &Path) -> Option<(u16, u16)> {
    let text = fs::read_to_string(folder.join("addresses")).ok()?;
    let (postgres, bouncer) = text.trim().split_once(' ')?;
    let ports = (postgres.parse().ok()?, bouncer.parse().ok()?);
    (answers(ports.0) && answers(ports.1)).then_some(ports)
}

fn start(
    folder: &Path,
    contained: impl FnOnce() -> Result<Option<Contained>, Fault>,
) -> Result<(u16, u16), Fault> {
    // Found before anything is started, so that what is missing is said at once.
    crate::look_for_bouncer()?;
    let servers = folder.join("server");
    if servers.exists() {
        // A machine that was switched off, or a server that somebody killed.
        containers::remove(&servers.join(CONTAINER));
        fs::remove_dir_all(&servers).map_err(Fault::at(&servers))?;
    }
    watch::start(folder, IDLE_SECONDS, After::Keep)?;
    fs::create_dir(&servers).map_err(Fault::at(&servers))?;
    let postgres = match contained()? {
        Some(Contained { id, port }) => {
            let path = servers.join(CONTAINER);
            fs::write(&path, format!("{id}\n")).map_err(Fault::at(&path))?;
            port
        }
        None => Postgres::create(&servers.join("postgres"), SETTINGS, None)?.port(),
    };
    let bouncer = bouncer::start(&servers.join("bouncer"), postgres)?;
    let addresses = folder.join("addresses");
    fs::write(&addresses, format!("{postgres} {bouncer}\n")).map_err(Fault::at(&addresses))?;
    Ok((postgres, bouncer))
}
