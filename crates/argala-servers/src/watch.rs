//! Whoever uses the servers of a folder holds its lock; a watchdog stops them when nobody does.

use std::{
    fs::{self, File, TryLockError},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Stdio},
};

use crate::Fault;

const SCRIPT: &str = include_str!("watchdog.sh");

/// What becomes of a folder when its servers are stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// It stays, and its locks with it: the next user starts the servers anew.
    Keep,
    /// It goes.
    Remove,
}

/// Being a user of a folder's servers. The lock goes with the process that holds it, however that
/// ends.
#[derive(Debug)]
pub(crate) struct Use {
    _lock: File,
}

impl Use {
    /// Becomes a user; waits where the servers are being stopped this moment.
    pub(crate) fn of(folder: &Path) -> Result<Self, Fault> {
        let lock = open(&folder.join("users"))?;
        lock.lock_shared()
            .map_err(Fault::at(folder.join("users")))?;
        Ok(Self { _lock: lock })
    }

    /// Stops being a user. Where there is no other, keeps everybody out for as long as the answer
    /// is kept.
    pub(crate) fn only(self, folder: &Path) -> Result<Option<File>, Fault> {
        drop(self);
        let path = folder.join("users");
        let lock = open(&path)?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(Fault::at(path)(error)),
        }
    }
}

/// Whether anybody is a user of a folder's servers.
pub(crate) fn is_used(folder: &Path) -> bool {
    File::open(folder.join("users"))
        .is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Keeps all other processes out while a folder's servers are started.
pub(crate) fn alone(folder: &Path) -> Result<File, Fault> {
    let path = folder.join("starting");
    let lock = open(&path)?;
    lock.lock().map_err(Fault::at(&path))?;
    Ok(lock)
}

/// Starts a watchdog for a folder; where there is one already it ends by itself.
pub(crate) fn start(folder: &Path, idle_seconds: u32, after: After) -> Result<(), Fault> {
    let script = folder.join("watchdog.sh");
    // A new file each time: a watchdog that runs still reads the old one.
    let _ = fs::remove_file(&script);
    fs::write(&script, SCRIPT).map_err(Fault::at(&script))?;
    let mut command = Command::new("/bin/sh");
    command
        .arg(&script)
        .arg(folder)
        .arg(idle_seconds.to_string())
        .arg(if after == After::Keep {
            "keep"
        } else {
            "remove"
        })
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C at a terminal reaches the whole group of a run, and must not reach this.
        .process_group(0);
    if !lock_program_exists() {
        return Err(Fault::Missing {
            what: "flock",
            remedy: "install util-linux, or name servers in ARGALA_TEST_POSTGRES_URL and \
                     ARGALA_TEST_PGBOUNCER_URL",
        });
    }
    command.spawn().map(drop).map_err(Fault::at("/bin/sh"))
}

fn lock_program_exists() -> bool {
    Command::new("flock")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn open(path: &Path) -> Result<File, Fault> {
    fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(Fault::at(path))
}
