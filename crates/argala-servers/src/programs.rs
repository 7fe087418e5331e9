//! Finding the servers' programs.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Fault,
    containers::{self, Image},
    ground::Account,
};

/// Older ones lack what the store asks of Postgres.
const OLDEST_POSTGRES: u32 = 15;

/// The folder with `initdb`, `pg_ctl` and `postgres` of the newest Postgres that is new enough.
///
/// # Errors
/// [`Fault::Missing`] where there is none.
pub fn postgres_programs() -> Result<PathBuf, Fault> {
    let mut folders = Vec::new();
    // Debian, Fedora, Homebrew: none of them puts `initdb` on the path.
    for (above, inside) in [
        ("/usr/lib/postgresql", "bin"),
        ("/usr", "bin"),
        ("/opt/homebrew/opt", "bin"),
        ("/usr/local/opt", "bin"),
    ] {
        let Ok(entries) = Path::new(above).read_dir() else {
            continue;
        };
        folders.extend(entries.flatten().map(|entry| entry.path().join(inside)));
    }
    folders.extend(path_folders());
    folders
        .into_iter()
        .filter(|folder| {
            ["initdb", "pg_ctl", "postgres"]
                .iter()
                .all(|name| folder.join(name).is_file())
        })
        .filter_map(|folder| Some((major_version(&folder.join("postgres"))?, folder)))
        .filter(|(version, _)| *version >= OLDEST_POSTGRES)
        .max_by_key(|(version, _)| *version)
        .map(|(_, folder)| folder)
        .ok_or(Fault::Missing {
            what: "Postgres 15 or newer",
            remedy: "install it (Debian: `apt-get install postgresql`), give Docker an image \
                     (`docker pull postgres:17`), or name one in ARGALA_TEST_POSTGRES_URL",
        })
}

/// PgBouncer's program.
///
/// # Errors
/// [`Fault::Missing`] where there is none.
pub fn bouncer_program() -> Result<PathBuf, Fault> {
    administrators_program("pgbouncer").ok_or(Fault::Missing {
        what: "PgBouncer",
        remedy: "install it (Debian: `apt-get install pgbouncer`), give Docker an image \
                 (`docker pull edoburu/pgbouncer`), or name one in ARGALA_TEST_PGBOUNCER_URL",
    })
}

/// Redis's program, which is its Sentinel's, too.
///
/// # Errors
/// [`Fault::Missing`] where there is none.
pub fn redis_program() -> Result<PathBuf, Fault> {
    path_folders()
        .chain(["/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"].map(PathBuf::from))
        .map(|folder| folder.join("redis-server"))
        .find(|program| program.is_file())
        .ok_or(Fault::Missing {
            what: "Redis",
            remedy: "install it (Debian: `apt-get install redis-server`), or give Docker an image \
                     (`docker pull redis:7`)",
        })
}

/// HAProxy's program.
///
/// # Errors
/// [`Fault::Missing`] where there is none.
pub fn balancer_program() -> Result<PathBuf, Fault> {
    administrators_program("haproxy").ok_or(Fault::Missing {
        what: "HAProxy",
        remedy: "install it (Debian: `apt-get install haproxy`)",
    })
}

/// nginx's program.
///
/// # Errors
/// [`Fault::Missing`] where there is none.
pub fn nginx_program() -> Result<PathBuf, Fault> {
    administrators_program("nginx").ok_or(Fault::Missing {
        what: "nginx",
        remedy: "install it (Debian: `apt-get install nginx-light`)",
    })
}

/// A program that Debian puts on nobody's path but root's.
fn administrators_program(name: &str) -> Option<PathBuf> {
    path_folders()
        .chain(["/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

/// Whether a Postgres can be had: installed, or out of an image.
///
/// # Errors
/// [`Fault::Missing`] where it cannot.
pub fn look_for_postgres() -> Result<(), Fault> {
    Programs::postgres().map(drop)
}

/// Whether a PgBouncer can be had: installed, or out of an image.
///
/// # Errors
/// [`Fault::Missing`] where it cannot.
pub fn look_for_bouncer() -> Result<(), Fault> {
    Programs::bouncer().map(drop)
}

/// Whether a Redis can be had: installed, or out of an image.
///
/// # Errors
/// [`Fault::Missing`] where it cannot.
pub fn look_for_redis() -> Result<(), Fault> {
    Programs::redis().map(drop)
}

/// Where a server's programs come from.
#[derive(Debug)]
pub(crate) enum Programs {
    /// A folder of this machine.
    Folder(PathBuf),
    /// An image of a Docker engine.
    Image(String),
}

impl Programs {
    /// Postgres's: what is installed, since that starts sooner and needs nobody; else an image.
    pub(crate) fn postgres() -> Result<Self, Fault> {
        postgres_programs()
            .map(Self::Folder)
            .or_image(containers::POSTGRES)
    }

    /// PgBouncer's, likewise.
    pub(crate) fn bouncer() -> Result<Self, Fault> {
        let folder = |program: PathBuf| program.parent().map(Path::to_path_buf).unwrap_or_default();
        bouncer_program()
            .map(|program| Self::Folder(folder(program)))
            .or_image(containers::BOUNCER)
    }

    /// Redis's, likewise.
    pub(crate) fn redis() -> Result<Self, Fault> {
        let folder = |program: PathBuf| program.parent().map(Path::to_path_buf).unwrap_or_default();
        redis_program()
            .map(|program| Self::Folder(folder(program)))
            .or_image(containers::REDIS)
    }

    /// A program of them that ends by itself, in the server's folder.
    pub(crate) fn command(&self, account: Account, name: &str, folder: &Path) -> Command {
        match self {
            Self::Folder(programs) => account.command(&programs.join(name), folder),
            Self::Image(image) => containers::command(image, account, name, folder, false, None),
        }
    }
}

trait OrImage {
    fn or_image(self, image: Image) -> Self;
}

impl OrImage for Result<Programs, Fault> {
    fn or_image(self, image: Image) -> Self {
        self.or_else(|missing| image.at_hand().map(Programs::Image).ok_or(missing))
    }
}

fn path_folders() -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).collect::<Vec<_>>().into_iter()
}

/// 15 of `postgres (PostgreSQL) 15.18 (Debian …)`.
fn major_version(program: &Path) -> Option<u32> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    let number = said.split_whitespace().nth(2)?;
    let digits = number
        .split(|c: char| !c.is_ascii_digit())
        .next()
        .unwrap_or_default();
    digits.parse().ok()
}
