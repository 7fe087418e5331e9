//! Reaching files beneath a folder without ever leaving it.
//!
//! Every step goes from an open folder to the next by one name, and no step follows a symbolic
//! link. So neither a record's path nor a link that somebody put there while we look can lead
//! anywhere else.

use std::{fs::File, io::Read, os::fd::OwnedFd};

use rustix::{
    fs::{self, AtFlags, FileType, Mode, OFlags, Stat},
    io::Errno,
};

use crate::sync::{
    Blocked, Content, RelPath, Stamp, SyncError, TreeFault, content::ContentHash, content::Hashing,
};

/// What names of files begin with that are being moved in from another file system.
pub(super) const UNFINISHED: &str = ".argala-tmp-";

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
// NONBLOCK: a pipe that takes the file's place must not keep us waiting for a writer.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);
const CREATE: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// What the system said about a file that was to be read.
pub(super) fn reading(errno: Errno) -> TreeFault {
    match errno {
        Errno::ACCESS | Errno::PERM => TreeFault::Blocked(Blocked::Unreadable),
        errno => writing(errno),
    }
}

/// What the system said about a file that was to be written.
pub(super) fn writing(errno: Errno) -> TreeFault {
    match errno {
        Errno::NOENT | Errno::EXIST => TreeFault::Changed,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => TreeFault::Blocked(Blocked::Unwritable),
        Errno::NAMETOOLONG | Errno::ILSEQ | Errno::INVAL => TreeFault::Blocked(Blocked::Name),
        Errno::LOOP | Errno::NOTDIR | Errno::ISDIR | Errno::NOTEMPTY => {
            TreeFault::Blocked(Blocked::InTheWay)
        }
        // A smaller file may well fit.
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => TreeFault::Blocked(Blocked::NoRoom),
        errno => fatal(errno.into()),
    }
}

/// What the system said about a file's bytes.
pub(super) fn filling(error: std::io::Error) -> TreeFault {
    match Errno::from_io_error(&error) {
        Some(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => writing(errno),
        _ => fatal(error),
    }
}

pub(super) fn fatal(source: std::io::Error) -> TreeFault {
    TreeFault::Fatal(SyncError::Disk {
        what: "working on a file of the folder",
        source,
    })
}

/// Opens the folder `name` of `parent`.
pub(super) fn open_folder(parent: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    fs::openat(parent, name, FOLDER, Mode::empty())
}

/// Opens the file `name` of `folder` to read it, whatever it is.
pub(super) fn open_file(folder: &OwnedFd, name: &str) -> Result<File, Errno> {
    fs::openat(folder, name, READ, Mode::empty()).map(File::from)
}

/// Makes the file `name` in `folder`, where there must be nothing.
pub(super) fn create_file(folder: &OwnedFd, name: &str, mode: Mode) -> Result<File, Errno> {
    fs::openat(folder, name, CREATE, mode).map(File::from)
}

/// Opens the folder at `path`; with `make`, it and those above it are made where they are missing.
pub(super) fn folder_at(
    root: &OwnedFd,
    path: Option<&RelPath>,
    make: bool,
) -> Result<OwnedFd, Errno> {
    let mut at = root.try_clone().map_err(|_| Errno::MFILE)?;
    let Some(path) = path else {
        return Ok(at);
    };
    for name in path.components() {
        at = match open_folder(&at, name) {
            Err(Errno::NOENT) if make => {
                match fs::mkdirat(&at, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) => fs::fsync(&at)?,
                    // Somebody was quicker.
                    Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                open_folder(&at, name)?
            }
            opened => opened?,
        };
    }
    Ok(at)
}

/// What is at `name`, a link itself and not what it leads to; `None` where nothing is.
pub(super) fn stat(folder: &OwnedFd, name: &str) -> Result<Option<Stat>, Errno> {
    match fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

pub(super) fn is_executable(stat: &Stat) -> bool {
    stat.st_mode & 0o100 != 0
}

/// `mode` with or without the executable bits that its readable ones suggest.
pub(super) fn mode_with(mode: Mode, executable: bool) -> Mode {
    let bits = mode.bits() & 0o777;
    Mode::from_bits_truncate(if executable {
        bits | 0o100 | ((bits & 0o444) >> 2)
    } else {
        bits & !0o111
    })
}

pub(super) fn stamp(stat: &Stat) -> Stamp {
    let nanoseconds = |seconds: i128, nanoseconds: i128| {
        let whole = seconds * 1_000_000_000 + nanoseconds;
        i64::try_from(whole).unwrap_or(i64::MAX)
    };
    Stamp {
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mtime: nanoseconds(stat.st_mtime.into(), stat.st_mtime_nsec.into()),
        ctime: nanoseconds(stat.st_ctime.into(), stat.st_ctime_nsec.into()),
        inode: stat.st_ino,
    }
}

/// A file that was read to its end and did not change meanwhile.
pub(super) struct Seen {
    pub(super) file: File,
    pub(super) stat: Stat,
    pub(super) content: Content,
}

/// Reads the file `name` of `folder`.
pub(super) fn see(folder: &OwnedFd, name: &str) -> Result<Seen, TreeFault> {
    let mut file = open_file(folder, name).map_err(reading)?;
    let before = fs::fstat(&file).map_err(reading)?;
    if kind(&before) != FileType::RegularFile {
        return Err(TreeFault::Blocked(Blocked::Special));
    }
    let (hash, size) = digest(&mut file)?;
    let stat = fs::fstat(&file).map_err(reading)?;
    if stamp(&before) != stamp(&stat) || size != stamp(&stat).size {
        return Err(TreeFault::Changed);
    }
    let content = Content {
        hash,
        size,
        executable: is_executable(&stat),
    };
    Ok(Seen {
        file,
        stat,
        content,
    })
}

fn digest(file: &mut File) -> Result<(ContentHash, u64), TreeFault> {
    let mut hashing = Hashing::default();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hashing.finish()),
            Ok(read) => hashing.update(&buffer[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // A bad sector is this file's trouble, and not that of the others.
            Err(_) => return Err(TreeFault::Blocked(Blocked::Unreadable)),
        }
    }
}

/// Moves `from` to `to`, where there must be nothing.
pub(super) fn move_to_free(from: (&OwnedFd, &str), to: (&OwnedFd, &str)) -> Result<(), Errno> {
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
    {
        let flags = fs::RenameFlags::NOREPLACE;
        match fs::renameat_with(from.0, from.1, to.0, to.1, flags) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            done => return done,
        }
    }
    match fs::linkat(from.0, from.1, to.0, to.1, AtFlags::empty()) {
        Ok(()) => return fs::unlinkat(from.0, from.1, AtFlags::empty()),
        Err(Errno::PERM | Errno::NOTSUP | Errno::NOSYS | Errno::MLINK) => {}
        Err(errno) => return Err(errno),
    }
    // No way to be sure on such a file system; the gap is as short as it can be.
    if stat(to.0, to.1)?.is_some() {
        return Err(Errno::EXIST);
    }
    fs::renameat(from.0, from.1, to.0, to.1)
}

/// Removes the folder `name` if it holds nothing but folders. Whether it is gone.
pub(super) fn clear_folder(parent: &OwnedFd, name: &str) -> Result<bool, Errno> {
    let folder = open_folder(parent, name)?;
    for entry in fs::Dir::read_from(&folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            return Ok(false);
        };
        if name == "." || name == ".." {
            continue;
        }
        let is_folder = (stat(&folder, name)?).is_some_and(|s| kind(&s) == FileType::Directory);
        if !is_folder || !clear_folder(&folder, name)? {
            return Ok(false);
        }
    }
    match fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(errno) => Err(errno),
    }
}
