//! Reading a whole folder.

use std::os::fd::OwnedFd;

use rustix::{
    fs::{self, AtFlags, Dir, FileType},
    io::Errno,
};

use super::beneath::{self, UNFINISHED};
use crate::sync::{
    Blocked, LocalFile, PathFault, RelPath, Scan, SyncError, TreeFault, Unread, names,
    path::RESERVED,
};

/// How often a file is read that changes while it is read.
const TRIES: u32 = 3;
/// A file must have been left alone for so long, in nanoseconds, that a later change is certain to
/// show in its stamp. The coarsest file systems in use count whole seconds, in twos.
const SETTLED: i64 = 2_000_000_000;

/// One pass over the folder.
pub(super) struct Pass<'a> {
    pub(super) root: &'a OwnedFd,
    pub(super) unread: &'a Unread,
    /// The file system's time as the pass began.
    pub(super) now: i64,
    /// Whether what was left behind may be removed.
    pub(super) tidy: bool,
    pub(super) scan: Scan,
    /// Why the folder itself could not be read to its end.
    pub(super) broken: Option<Errno>,
}

impl Pass<'_> {
    /// Reads everything. No recursion: a folder may be as deep as a path is long.
    pub(super) fn run(mut self) -> Result<Scan, SyncError> {
        let mut folders = vec![None];
        while let Some(path) = folders.pop() {
            let opened = beneath::folder_at(self.root, path.as_ref(), false)
                .and_then(|folder| Ok((Dir::read_from(&folder)?, folder)));
            match (opened, path) {
                (Ok((entries, folder)), path) => {
                    self.folder(&folder, entries, path.as_ref(), &mut folders);
                }
                // Without the folder itself nothing can be said of anything.
                (Err(errno), None) => {
                    return Err(SyncError::disk("reading the folder")(errno.into()));
                }
                // Gone since it was listed.
                (Err(Errno::NOENT), Some(_)) => {}
                (Err(errno), Some(path)) => self.skip(path, why(errno)),
            }
        }
        match self.broken {
            Some(errno) => Err(SyncError::disk("reading the folder")(errno.into())),
            None => Ok(self.scan),
        }
    }

    fn skip(&mut self, path: RelPath, why: Blocked) {
        self.scan.skipped.insert(path, why);
    }

    fn folder(
        &mut self,
        folder: &OwnedFd,
        entries: Dir,
        path: Option<&RelPath>,
        folders: &mut Vec<Option<RelPath>>,
    ) {
        for entry in entries {
            let name = match &entry {
                Ok(entry) => entry.file_name(),
                Err(errno) => {
                    // The rest of the folder is unknown, which must not pass for deleted.
                    match path {
                        Some(path) => self.skip(path.clone(), why(*errno)),
                        None => self.broken = Some(*errno),
                    }
                    return;
                }
            };
            if name == c"." || name == c".." {
                continue;
            }
            let Ok(name) = name.to_str() else {
                self.scan.unnameable += 1;
                continue;
            };
            match RelPath::within(path, name) {
                Ok(path) => self.entry(folder, name, path, folders),
                Err(PathFault::Reserved) => {
                    if self.tidy && names::fold(name).starts_with(UNFINISHED) {
                        // Of no use to anybody, and if it cannot be removed, of no harm.
                        let _ = fs::unlinkat(folder, name, AtFlags::empty());
                    }
                }
                Err(_) => self.scan.unnameable += 1,
            }
        }
    }

    fn entry(
        &mut self,
        folder: &OwnedFd,
        name: &str,
        path: RelPath,
        folders: &mut Vec<Option<RelPath>>,
    ) {
        let stat = match beneath::stat(folder, name) {
            Ok(Some(stat)) => stat,
            Ok(None) => return,
            Err(errno) => return self.skip(path, why(errno)),
        };
        match beneath::kind(&stat) {
            FileType::Directory => {
                self.scan.folders.insert(path.clone());
                folders.push(Some(path));
            }
            FileType::RegularFile => self.file(folder, name, path, &stat),
            FileType::Symlink => self.skip(path, Blocked::Symlink),
            _ => self.skip(path, Blocked::Special),
        }
    }

    fn file(&mut self, folder: &OwnedFd, name: &str, path: RelPath, stat: &fs::Stat) {
        if let Some((stamp, content)) = self.unread.get(&path)
            && *stamp == beneath::stamp(stat)
        {
            let file = LocalFile {
                content: content.with_executable(beneath::is_executable(stat)),
                stamp: Some(*stamp),
            };
            self.scan.files.insert(path, file);
            return;
        }
        for _ in 0..TRIES {
            match beneath::see(folder, name) {
                Ok(seen) => {
                    let stamp = beneath::stamp(&seen.stat);
                    let settled = stamp.ctime.saturating_add(SETTLED) <= self.now;
                    let file = LocalFile {
                        content: seen.content,
                        stamp: Some(stamp).filter(|_| settled),
                    };
                    self.scan.files.insert(path, file);
                    return;
                }
                Err(TreeFault::Changed) => {}
                Err(TreeFault::Blocked(why)) => return self.skip(path, why),
                Err(TreeFault::Fatal(_)) => return self.skip(path, Blocked::Unreadable),
            }
        }
        // Removed since it was listed, or written to all the time.
        if !matches!(beneath::stat(folder, name), Ok(None)) {
            self.skip(path, Blocked::Changing);
        }
    }
}

fn why(errno: Errno) -> Blocked {
    match errno {
        Errno::LOOP | Errno::NOTDIR => Blocked::Symlink,
        Errno::NAMETOOLONG => Blocked::Name,
        _ => Blocked::Unreadable,
    }
}

const _: () = assert!(UNFINISHED.len() > RESERVED.len());
