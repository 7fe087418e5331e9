//! The engine's own folder within the synced one: the lock, the state, files being written, and
//! what the file system is like.

use std::{
    fs::{File, TryLockError},
    os::fd::OwnedFd,
    path::Path,
};

use rustix::{
    fs::{self, AtFlags, Mode, OFlags},
    io::Errno,
};

use super::beneath;
use crate::sync::SyncError;

/// Its name.
pub(crate) const OWN: &str = ".argala-sync";
const STAGING: &str = "tmp";
const PROBE: &str = "probe-É";

/// What the file system is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Nature {
    pub(super) folds: bool,
    pub(super) keeps_executable: bool,
}

impl Nature {
    /// What is supposed where nothing may be tried.
    pub(super) const USUAL: Self = Self {
        folds: false,
        keeps_executable: true,
    };
}

/// The engine's own folder.
pub(crate) struct Own {
    pub(super) staging: OwnedFd,
    pub(crate) folder: OwnedFd,
    /// Held as long as the folder is worked on; released with the process, however it ends.
    _lock: File,
}

impl Own {
    /// Opens the folder, makes it where it is missing, and takes its lock.
    pub(super) fn open(root: &OwnedFd) -> Result<Self, SyncError> {
        let folder = private_folder(root, OWN).map_err(opening)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = fs::openat(&folder, "lock", flags, Mode::from_raw_mode(0o600));
        let lock = File::from(lock.map_err(opening)?);
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(SyncError::Locked),
            Err(TryLockError::Error(error)) => {
                return Err(SyncError::disk("locking the folder")(error));
            }
        }
        let staging = private_folder(&folder, STAGING).map_err(opening)?;
        empty(&staging).map_err(opening)?;
        Ok(Self {
            staging,
            folder,
            _lock: lock,
        })
    }

    /// Tries out what the file system is like.
    pub(super) fn nature(&self) -> Result<Nature, SyncError> {
        let probing = |errno: Errno| SyncError::disk("trying out the file system")(errno.into());
        remove(&self.folder, PROBE).map_err(probing)?;
        let private = Mode::from_raw_mode(0o600);
        let file = beneath::create_file(&self.folder, PROBE, private).map_err(probing)?;
        let mut folds = false;
        // Another case; another normalisation.
        for name in ["PROBE-É", "probe-é", "probe-E\u{301}"] {
            folds |= beneath::stat(&self.folder, name)
                .map_err(probing)?
                .is_some();
        }
        let executable = |mode| -> Result<bool, Errno> {
            // Refused, or ignored: it is not kept either way.
            let _ = fs::fchmod(&file, Mode::from_raw_mode(mode));
            Ok(beneath::is_executable(&fs::fstat(&file)?))
        };
        let keeps = executable(0o700).map_err(probing)? && !executable(0o600).map_err(probing)?;
        remove(&self.folder, PROBE).map_err(probing)?;
        Ok(Nature {
            folds,
            keeps_executable: keeps,
        })
    }

    /// The time by the clock that stamps files, in nanoseconds since 1970: over a network that is
    /// not this machine's.
    pub(super) fn file_time(&self) -> Result<i64, SyncError> {
        let asking = |errno: Errno| SyncError::disk("asking the file system's time")(errno.into());
        remove(&self.staging, "clock").map_err(asking)?;
        let private = Mode::from_raw_mode(0o600);
        let file = beneath::create_file(&self.staging, "clock", private).map_err(asking)?;
        let stat = fs::fstat(&file).map_err(asking)?;
        remove(&self.staging, "clock").map_err(asking)?;
        Ok(beneath::stamp(&stat).ctime)
    }
}

fn opening(errno: Errno) -> SyncError {
    SyncError::disk("opening the folder's .argala-sync")(errno.into())
}

fn private_folder(parent: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    match fs::mkdirat(parent, name, Mode::from_raw_mode(0o700)) {
        Ok(()) => fs::fsync(parent)?,
        Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    beneath::open_folder(parent, name)
}

fn remove(folder: &OwnedFd, name: &str) -> Result<(), Errno> {
    match fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Removes what an interrupted run was writing.
fn empty(folder: &OwnedFd) -> Result<(), Errno> {
    for entry in fs::Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            fs::unlinkat(folder, name, AtFlags::empty())?;
        }
    }
    Ok(())
}

/// Opens the synced folder itself, which may be given by way of a link.
pub(super) fn open_root(path: &Path) -> Result<OwnedFd, SyncError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::openat(fs::CWD, path, flags, Mode::empty())
        .map_err(|errno| SyncError::disk("opening the folder")(errno.into()))
}
