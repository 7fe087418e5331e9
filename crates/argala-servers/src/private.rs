//! A server for one owner.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::process::Pid;

use crate::{
    Fault, bouncer,
    disk::{self, Small},
    ground::{is_alive, run_folder},
    postgres::{self, Postgres},
    redis,
    watch::{self, After, Use},
};

/// A Postgres that nobody else uses, and that its owner may stop, kill and start again. Its data
/// and the process are gone when this is dropped, or soon after its owner's process ended.
#[derive(Debug)]
pub struct PrivatePostgres {
    postgres: Postgres,
    folder: PathBuf,
    _use: Use,
}

impl PrivatePostgres {
    /// Starts a new one, with these settings over our own: `("max_connections", "20")`.
    ///
    /// # Errors
    /// Where there is no Postgres, or it does not start.
    pub fn start_with(settings: &[(&str, &str)]) -> Result<Self, Fault> {
        Self::create(settings, None)
    }

    /// Starts a new one that has a disk of some MiB at [`small_disk`](Self::small_disk), for a
    /// tablespace that can be filled. Where the server is in a container, that disk is empty after
    /// each start.
    ///
    /// # Errors
    /// Where there is no Postgres, it does not start, or this machine lets nobody mount.
    pub fn start_with_small_disk(mebibytes: u32) -> Result<Self, Fault> {
        let log = false;
        Self::create(&[], Some(Small { mebibytes, log }))
    }

    /// Starts a new one whose log of changes, `pg_wal`, has a disk of some MiB for itself. It fills by
    /// being written to: nothing is taken away from it before there is a GiB. The log is there still
    /// after the next start.
    ///
    /// # Errors
    /// Where no Postgres is installed, it does not start, or this machine lets nobody mount.
    pub fn start_with_small_log_disk(mebibytes: u32) -> Result<Self, Fault> {
        let log = true;
        Self::create(&[], Some(Small { mebibytes, log }))
    }

    fn create(settings: &[(&str, &str)], small_disk: Option<Small>) -> Result<Self, Fault> {
        let (folder, held) = folder_of_ones_own(&run_folder()?)?;
        match Postgres::create(&folder.join("server/postgres"), settings, small_disk) {
            Ok(postgres) => Ok(Self {
                postgres,
                folder,
                _use: held,
            }),
            Err(fault) => {
                let _ = fs::remove_dir_all(&folder);
                Err(fault)
            }
        }
    }

    /// `postgres://…` of the database that it starts with, `postgres`; the same after each start.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// `postgres://…` of another database of it.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        self.postgres.url(database)
    }

    /// Where its small disk is, if it was started with one. Only the server sees what is there.
    #[must_use]
    pub fn small_disk(&self) -> PathBuf {
        self.postgres.small_disk()
    }

    /// Makes its small disk one of this many MiB, whether it runs or not. What is on it stays.
    ///
    /// # Errors
    /// Where the disk is a container's, or does not become larger.
    pub fn grow_small_disk(&self, mebibytes: u32) -> Result<(), Fault> {
        self.postgres.grow_small_disk(mebibytes)
    }

    /// The port of `127.0.0.1` on which it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.postgres.port()
    }

    /// Its data folder.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.postgres.data()
    }

    /// Starts a PgBouncer before it, in transaction mode, and tells its `postgres://…`.
    ///
    /// # Errors
    /// Where there is no PgBouncer, there is one already, or it does not start.
    pub fn start_bouncer(&self) -> Result<String, Fault> {
        let port = bouncer::start(&self.folder.join("server/bouncer"), self.port())?;
        Ok(postgres::url(port, "postgres"))
    }

    /// Stops it in order: sessions are ended, everything is written.
    ///
    /// # Errors
    /// Where it does not end.
    pub fn stop(&self) -> Result<(), Fault> {
        self.postgres.stop()
    }

    /// Kills all its processes with SIGKILL.
    ///
    /// # Errors
    /// Where they do not end.
    pub fn kill(&self) -> Result<(), Fault> {
        self.postgres.kill()
    }

    /// Starts it again after [`PrivatePostgres::stop`] or [`PrivatePostgres::kill`]; the port stays.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn start_again(&self) -> Result<(), Fault> {
        self.postgres.start()
    }

    /// Stops it in order and starts it again.
    ///
    /// # Errors
    /// Where it does not.
    pub fn restart(&self) -> Result<(), Fault> {
        self.stop()?;
        self.start_again()
    }

    /// Changes a setting; in force after the next start.
    ///
    /// # Errors
    /// Where the settings cannot be written.
    pub fn configure(&self, name: &str, value: &str) -> Result<(), Fault> {
        self.postgres.configure(name, value)
    }

    /// Writes a file that the server may read and nobody else, a TLS key for one; tells its path.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn file(&self, name: &str, text: &str) -> Result<PathBuf, Fault> {
        self.postgres.file(name, text)
    }
}

/// A new folder with a folder `server` in it, in use by this process and watched: once that has
/// ended, what runs below `server` is stopped, and the folder removed.
pub(crate) fn folder_of_ones_own(ours: &Path) -> Result<(PathBuf, Use), Fault> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    remove_abandoned(ours);
    let folder = ours.join(format!("{PREFIX}{}-{number}", process::id()));
    if folder.exists() {
        // Of a process that had the id that is ours now.
        fs::remove_dir_all(&folder).map_err(Fault::at(&folder))?;
    }
    let servers = folder.join("server");
    fs::create_dir_all(&servers).map_err(Fault::at(&servers))?;
    let held = Use::of(&folder)?;
    watch::start(&folder, 1, After::Remove)?;
    Ok((folder, held))
}

/// What the folder of a private server is called, before its owner's process id and a number.
const PREFIX: &str = "private-";

/// Removes what owners left who were killed before their watchdog ran, or together with it. What
/// fails here is tried again the next time.
fn remove_abandoned(ours: &Path) {
    let Ok(entries) = ours.read_dir() else {
        return;
    };
    for folder in entries.flatten().map(|entry| entry.path()) {
        let name = folder
            .file_name()
            .and_then(OsStr::to_str)
            .unwrap_or_default();
        let owner = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split('-').next()?.parse().ok())
            .and_then(Pid::from_raw);
        // Who is alive may be about to take its lock.
        if owner.is_some_and(|owner| !is_alive(owner)) && !watch::is_used(&folder) {
            bouncer::kill(&folder.join("server/bouncer"));
            let _ = postgres::kill(&folder.join("server/postgres"));
            disk::kill(&folder.join("server/postgres"));
            redis::kill_all(&folder.join("server"));
            let _ = fs::remove_dir_all(&folder);
        }
    }
}

impl Drop for PrivatePostgres {
    fn drop(&mut self) {
        // What fails here is the watchdog's.
        bouncer::kill(&self.folder.join("server/bouncer"));
        let _ = self.postgres.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
