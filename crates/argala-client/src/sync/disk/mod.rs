//! A folder on a real disk.

mod beneath;
mod own;
mod scan;

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::OwnedFd,
    path::Path,
    rc::Rc,
};

use rustix::{
    fs::{self, AtFlags, FileType, Mode},
    io::Errno,
};

pub(crate) use self::own::Own;
use self::{
    beneath::{UNFINISHED, fatal, filling, reading, writing},
    own::{Nature, open_root},
    scan::Pass,
};
use super::{
    Blocked, Content, FileTree, LocalFile, RelPath, Scan, SyncError, TreeFault, Unread,
    journal::Journal, names,
};

/// A folder on a real disk, and the lock on it.
///
/// A file is written beside the folder's state first, made durable, and then takes its name in one
/// step. Between the moment that its content is compared and that step lies a gap of microseconds
/// in which somebody else's write would go unseen; systems offer no way to close it.
pub struct DiskTree {
    root: OwnedFd,
    /// `None` in a dry run over a folder that was never synced.
    own: Option<Rc<Own>>,
    nature: Nature,
    dry_run: bool,
    staged: u64,
}

/// A file that is being written; removed if it never gets its name.
pub struct DiskStaged {
    file: File,
    name: String,
    own: Rc<Own>,
}

impl Drop for DiskStaged {
    fn drop(&mut self) {
        // Where it has got its name there is nothing left here, and what cannot be removed now
        // the next run removes.
        let _ = fs::unlinkat(&self.own.staging, &*self.name, AtFlags::empty());
    }
}

/// A staged file on another file system than the engine's own folder; removed if it never gets its
/// name.
struct Carried {
    folder: OwnedFd,
    name: String,
}

impl Drop for Carried {
    fn drop(&mut self) {
        // As above.
        let _ = fs::unlinkat(&self.folder, &*self.name, AtFlags::empty());
    }
}

impl DiskTree {
    /// Opens the folder at `path`, and what is remembered of it. With `dry_run` nothing is written.
    ///
    /// # Errors
    /// [`SyncError::Locked`] where another process syncs it, [`SyncError::Disk`] where it cannot be
    /// read or written.
    pub fn open(path: &Path, dry_run: bool) -> Result<(Self, Journal), SyncError> {
        let root = open_root(path)?;
        let untouched = dry_run
            && beneath::stat(&root, own::OWN)
                .map_err(|errno| SyncError::disk("opening the folder")(errno.into()))?
                .is_none();
        let own = if untouched {
            None
        } else {
            Some(Rc::new(Own::open(&root)?))
        };
        let nature = match &own {
            Some(own) => own.nature()?,
            None => Nature::USUAL,
        };
        let journal = Journal::new(own.clone(), path.join(own::OWN), dry_run);
        let tree = Self {
            root,
            own,
            nature,
            dry_run,
            staged: 0,
        };
        Ok((tree, journal))
    }

    fn own(&self) -> Result<&Rc<Own>, TreeFault> {
        let missing = || fatal(io::Error::other("a dry run writes nothing"));
        self.own.as_ref().ok_or_else(missing)
    }

    fn parent(&self, at: &RelPath, make: bool) -> Result<OwnedFd, Errno> {
        beneath::folder_at(&self.root, at.parent().as_ref(), make)
    }

    /// Reads the file at `at`, which must hold `over`.
    fn expect(
        &self,
        folder: &OwnedFd,
        at: &RelPath,
        over: &Content,
    ) -> Result<beneath::Seen, TreeFault> {
        let seen = beneath::see(folder, at.leaf())?;
        let bit = !self.nature.keeps_executable || seen.content.executable == over.executable;
        if seen.content.same_bytes(over) && bit {
            Ok(seen)
        } else {
            Err(TreeFault::Changed)
        }
    }

    /// Makes sure that nothing is at `at`; folders without any file do not count.
    fn expect_nothing(folder: &OwnedFd, at: &RelPath) -> Result<(), TreeFault> {
        match beneath::stat(folder, at.leaf()).map_err(writing)? {
            None => Ok(()),
            Some(stat) if beneath::kind(&stat) == FileType::Directory => {
                if beneath::clear_folder(folder, at.leaf()).map_err(writing)? {
                    Ok(())
                } else {
                    Err(TreeFault::Blocked(Blocked::InTheWay))
                }
            }
            Some(stat) if beneath::kind(&stat) == FileType::RegularFile => Err(TreeFault::Changed),
            Some(_) => Err(TreeFault::Blocked(Blocked::InTheWay)),
        }
    }

    /// The path as it is spelled on disk: a folder that was there before us keeps its spelling.
    fn spelled(&self, at: &RelPath) -> Result<RelPath, TreeFault> {
        if !self.nature.folds {
            return Ok(at.clone());
        }
        let mut folder = beneath::folder_at(&self.root, None, false).map_err(reading)?;
        let mut spelled: Option<RelPath> = None;
        let mut components = at.components().peekable();
        while let Some(name) = components.next() {
            let actual = spelling(&folder, name).map_err(reading)?;
            if components.peek().is_some() {
                folder = beneath::open_folder(&folder, &actual).map_err(reading)?;
            }
            let path = RelPath::within(spelled.as_ref(), &actual);
            spelled = Some(path.map_err(|_| TreeFault::Blocked(Blocked::Name))?);
        }
        Ok(spelled.unwrap_or_else(|| at.clone()))
    }

    /// Copies a staged file to the file system that its folder lies on.
    fn carry_over(
        &mut self,
        staged: &DiskStaged,
        folder: &OwnedFd,
        mode: Mode,
    ) -> Result<Carried, TreeFault> {
        let name = format!("{UNFINISHED}{}", self.next());
        let mut from = beneath::open_file(&staged.own.staging, &staged.name).map_err(reading)?;
        let mut to = beneath::create_file(folder, &name, mode).map_err(writing)?;
        let folder = folder.try_clone().map_err(fatal)?;
        let carried = Carried { folder, name };
        io::copy(&mut from, &mut to).map_err(filling)?;
        fs::fchmod(&to, mode).map_err(writing)?;
        to.sync_all().map_err(filling)?;
        Ok(carried)
    }

    /// A number that no other staged file of this run has.
    fn next(&mut self) -> u64 {
        self.staged += 1;
        self.staged
    }
}

/// How `name` is spelled in `folder`.
fn spelling(folder: &OwnedFd, name: &str) -> Result<String, Errno> {
    let folded = names::fold(name);
    let mut found = None;
    for entry in fs::Dir::read_from(folder)? {
        let entry = entry?;
        match entry.file_name().to_str() {
            Ok(exact) if exact == name => return Ok(name.to_owned()),
            Ok(other) if names::fold(other) == folded => found = Some(other.to_owned()),
            _ => {}
        }
    }
    found.ok_or(Errno::NOENT)
}

impl FileTree for DiskTree {
    type Staged = DiskStaged;
    type Reader = File;

    fn folds(&self) -> bool {
        self.nature.folds
    }

    fn keeps_executable(&self) -> bool {
        self.nature.keeps_executable
    }

    async fn scan(&mut self, unread: &Unread) -> Result<Scan, SyncError> {
        let pass = Pass {
            root: &self.root,
            unread,
            now: match &self.own {
                Some(own) => own.file_time()?,
                None => i64::MIN,
            },
            tidy: !self.dry_run,
            broken: None,
            scan: Scan::default(),
        };
        pass.run()
    }

    async fn open(&mut self, at: &RelPath) -> Result<File, TreeFault> {
        let folder = self.parent(at, false).map_err(reading)?;
        let file = beneath::open_file(&folder, at.leaf()).map_err(reading)?;
        let stat = fs::fstat(&file).map_err(reading)?;
        if beneath::kind(&stat) == FileType::RegularFile {
            Ok(file)
        } else {
            Err(TreeFault::Changed)
        }
    }

    async fn read(&mut self, reader: &mut File, limit: usize) -> Result<Vec<u8>, TreeFault> {
        let mut bytes = Vec::new();
        match Read::take(&mut *reader, limit as u64).read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(_) => Err(TreeFault::Blocked(Blocked::Unreadable)),
        }
    }

    async fn stage(&mut self) -> Result<DiskStaged, TreeFault> {
        let name = self.next().to_string();
        let own = self.own()?.clone();
        // As the person's own programs would make it; the folder around it is private.
        let mode = Mode::from_raw_mode(0o666);
        let file = beneath::create_file(&own.staging, &name, mode).map_err(writing)?;
        Ok(DiskStaged { file, name, own })
    }

    async fn append(&mut self, staged: &mut DiskStaged, bytes: &[u8]) -> Result<(), TreeFault> {
        staged.file.write_all(bytes).map_err(filling)
    }

    async fn finish(
        &mut self,
        staged: DiskStaged,
        at: &RelPath,
        over: Option<&Content>,
        content: Content,
    ) -> Result<(RelPath, LocalFile), TreeFault> {
        let folder = self.parent(at, over.is_none()).map_err(writing)?;
        let like = match over {
            Some(over) => self.expect(&folder, at, over)?.stat,
            None => fs::fstat(&staged.file).map_err(writing)?,
        };
        let mode = Mode::from_raw_mode(like.st_mode);
        let mode = beneath::mode_with(mode, content.executable);
        fs::fchmod(&staged.file, mode).map_err(writing)?;
        staged.file.sync_all().map_err(filling)?;
        let device = |of: &OwnedFd| fs::fstat(of).map(|stat| stat.st_dev).map_err(writing);
        let carried = if device(&staged.own.staging)? == device(&folder)? {
            None
        } else {
            Some(self.carry_over(&staged, &folder, mode)?)
        };
        let (from, name) = match &carried {
            Some(carried) => (&carried.folder, &*carried.name),
            None => (&staged.own.staging, &*staged.name),
        };
        let placed = match over {
            Some(over) => {
                // Once more, after all that may have taken long.
                self.expect(&folder, at, over)?;
                fs::renameat(from, name, &folder, at.leaf())
            }
            None => {
                Self::expect_nothing(&folder, at)?;
                beneath::move_to_free((from, name), (&folder, at.leaf()))
            }
        };
        placed.map_err(writing)?;
        fs::fsync(&folder).map_err(writing)?;
        let file = LocalFile {
            content,
            // Written this very moment: a change in the next one might not show.
            stamp: None,
        };
        Ok((self.spelled(at)?, file))
    }

    async fn rename(
        &mut self,
        from: &RelPath,
        over: &Content,
        to: &RelPath,
    ) -> Result<RelPath, TreeFault> {
        let folder = self.parent(from, false).map_err(writing)?;
        self.expect(&folder, from, over)?;
        let target = self.parent(to, true).map_err(writing)?;
        beneath::move_to_free((&folder, from.leaf()), (&target, to.leaf())).map_err(writing)?;
        fs::fsync(&target).map_err(writing)?;
        fs::fsync(&folder).map_err(writing)?;
        self.spelled(to)
    }

    async fn remove(&mut self, at: &RelPath, over: &Content) -> Result<(), TreeFault> {
        let folder = self.parent(at, false).map_err(writing)?;
        self.expect(&folder, at, over)?;
        fs::unlinkat(&folder, at.leaf(), AtFlags::empty()).map_err(writing)?;
        fs::fsync(&folder).map_err(writing)?;
        drop(folder);
        // Folders exist for their files; one that is not empty stays.
        let mut empty = at.parent();
        while let Some(path) = empty {
            let Ok(above) = self.parent(&path, false) else {
                break;
            };
            if fs::unlinkat(&above, path.leaf(), AtFlags::REMOVEDIR).is_err() {
                break;
            }
            empty = path.parent();
        }
        Ok(())
    }

    async fn set_executable(
        &mut self,
        at: &RelPath,
        over: &Content,
        executable: bool,
    ) -> Result<LocalFile, TreeFault> {
        let folder = self.parent(at, false).map_err(writing)?;
        let seen = self.expect(&folder, at, over)?;
        if self.nature.keeps_executable {
            let mode = Mode::from_raw_mode(seen.stat.st_mode);
            let mode = beneath::mode_with(mode, executable);
            fs::fchmod(&seen.file, mode).map_err(writing)?;
            fs::fsync(&seen.file).map_err(writing)?;
        }
        Ok(LocalFile {
            content: over.with_executable(executable),
            stamp: None,
        })
    }
}

#[cfg(test)]
mod tests;
