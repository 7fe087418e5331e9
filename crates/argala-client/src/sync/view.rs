//! One device's picture of its folder: what it remembers, and what the scan found.
//!
//! Pure. The planner reads it, and whoever carries a plan out (or only pretends to) tells it step
//! by step what has become true.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::{
    content::Content,
    error::Blocked,
    index::{Names, Taken},
    names,
    path::RelPath,
    state::{Base, Stamp, State, StateOp},
};

/// A file as the scan found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalFile {
    /// What is in it.
    pub content: Content,
    /// Its stamp; `None` where it changed so lately that the stamp may not tell the next change.
    pub stamp: Option<Stamp>,
}

/// What a scan of the folder found.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    /// Every file that was read.
    pub files: BTreeMap<RelPath, LocalFile>,
    /// Every folder, the empty ones too.
    pub folders: BTreeSet<RelPath>,
    /// Everything that was not read, and why; of a folder, all that is in it.
    pub skipped: BTreeMap<RelPath, Blocked>,
    /// How many more were skipped whose names are no text that a path could be made of.
    pub unnameable: u64,
}

/// Where a record's file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Here {
    /// Nowhere.
    Absent,
    /// Under this name.
    File(RelPath, LocalFile),
    /// It may be there, but the scan could not tell: whatever is done must not need to know.
    Hidden(Blocked),
}

/// The picture.
pub(crate) struct View {
    pub(crate) state: State,
    /// Changes of `state` that are not stored yet.
    log: Vec<StateOp>,
    pub(crate) local: BTreeMap<RelPath, LocalFile>,
    pub(crate) skipped: BTreeMap<RelPath, Blocked>,
    /// Local files of which the graph knows nothing: the path a record would get, and the name.
    pub(crate) fresh: BTreeMap<RelPath, RelPath>,
    /// Names that are not their record's path, and the record's path.
    aliases: BTreeMap<RelPath, RelPath>,
    names: Names,
    folds: bool,
}

impl View {
    /// Lays `scan` beside `state`. `folds` says that the file system takes some names for one;
    /// `device` names this device.
    pub(crate) fn new(state: State, scan: Scan, folds: bool, device: &str) -> Self {
        let mut view = Self {
            state,
            log: Vec::new(),
            local: BTreeMap::new(),
            skipped: BTreeMap::new(),
            fresh: BTreeMap::new(),
            aliases: BTreeMap::new(),
            names: Names::default(),
            folds,
        };
        view.rescanned(scan, device);
        view
    }

    /// Takes the findings of another scan.
    pub(crate) fn rescanned(&mut self, scan: Scan, device: &str) {
        self.local = scan.files;
        self.skipped = scan.skipped;
        self.names = Names::default();
        for path in self.local.keys().chain(self.skipped.keys()) {
            self.names.insert(path);
        }
        for folder in &scan.folders {
            self.names.insert_folder(folder);
        }
        self.fresh.clear();
        self.aliases = (self.state.base.iter())
            .filter_map(|(path, base)| Some((base.local.clone()?, path.clone())))
            .collect();
        self.match_files(device);
        self.forget_lost();
        self.note_stamps();
    }

    /// Finds out which file belongs to which record.
    fn match_files(&mut self, device: &str) {
        let claimed: HashSet<RelPath> = (self.state.base.keys())
            .filter_map(|path| self.name_of(path).cloned())
            .filter(|name| self.local.contains_key(name))
            .collect();
        let mut missing = self.missing_by_composed_name();
        let free: Vec<RelPath> = (self.local.keys())
            .filter(|name| !claimed.contains(*name))
            .cloned()
            .collect();
        for name in free {
            if let Some(base) = self.state.base.get(&name) {
                // A record that has another name here, and now a file of its own name as well.
                if claimed.contains(base.name(&name)) {
                    let path = self.free_conflict_name(&name, device);
                    self.aliases.insert(name.clone(), path.clone());
                    self.fresh.insert(path, name);
                } else {
                    self.set_name(&name, None);
                }
            } else if let Some(path) = missing.remove(&*names::composed(name.as_str())) {
                // Not a rename: this file system spells names in a form of its own.
                self.set_name(&path, Some(name));
            } else {
                self.fresh.insert(name.clone(), name);
            }
        }
    }

    fn missing_by_composed_name(&self) -> HashMap<String, RelPath> {
        if !self.folds {
            return HashMap::new();
        }
        let missing = (self.state.base.iter()).filter(|(path, _)| self.here(path) == Here::Absent);
        missing
            .map(|(path, base)| {
                let name = base.name(path).as_str();
                (names::composed(name).into_owned(), path.clone())
            })
            .collect()
    }

    /// Forgets records that the graph has lost and whose files are gone as well.
    fn forget_lost(&mut self) {
        let lost = |base: &Base| base.content.is_none() && base.seq == 0;
        let paths: Vec<RelPath> = (self.state.base.iter())
            .filter(|(path, base)| lost(base) && self.here(path) == Here::Absent)
            .map(|(path, _)| path.clone())
            .collect();
        for path in paths {
            self.set_grave(&path, 0);
        }
    }

    /// Remembers the stamp of each file that is as it was agreed on, so that it need not be read
    /// again next time.
    fn note_stamps(&mut self) {
        let mut ops = Vec::new();
        for (path, base) in &self.state.base {
            let Here::File(_, file) = self.here(path) else {
                continue;
            };
            if base.content == Some(file.content) && base.stamp != file.stamp {
                let stamp = file.stamp;
                let base = Base {
                    stamp,
                    ..base.clone()
                };
                ops.push(StateOp::Base(path.clone(), Box::new(base)));
            }
        }
        for op in ops {
            self.record(op);
        }
    }

    /// Gives the record at `path` another name here.
    pub(crate) fn set_name(&mut self, path: &RelPath, name: Option<RelPath>) {
        let Some(base) = self.state.base.get(path) else {
            return;
        };
        let mut base = base.clone();
        base.local = name.filter(|name| name != path);
        self.set_base(path.clone(), base);
    }

    /// The name here of the record at `path`, if it has one. A path may well be the name of another
    /// record's file; then it is no name of the record whose path it is.
    fn name_of<'a>(&'a self, path: &'a RelPath) -> Option<&'a RelPath> {
        match self.state.base.get(path) {
            Some(base) => match &base.local {
                Some(name) => Some(name),
                None => Some(path).filter(|_| self.aliases.get(path).is_none_or(|of| of == path)),
            },
            None => self.fresh.get(path),
        }
    }

    /// Where the file of the record at `path` is.
    pub(crate) fn here(&self, path: &RelPath) -> Here {
        let Some(name) = self.name_of(path) else {
            return self.hidden(path).map_or(Here::Absent, Here::Hidden);
        };
        match self.local.get(name) {
            Some(file) => Here::File(name.clone(), *file),
            None => self.hidden(name).map_or(Here::Absent, Here::Hidden),
        }
    }

    fn hidden(&self, name: &RelPath) -> Option<Blocked> {
        if self.skipped.is_empty() {
            return None;
        }
        let above = name.ancestors().find_map(|above| self.skipped.get(&above));
        self.skipped.get(name).or(above).copied()
    }

    /// The file whose record stands where a folder on the way to `path` must be.
    pub(crate) fn file_above(&self, path: &RelPath) -> Option<(RelPath, RelPath, LocalFile)> {
        path.ancestors().find_map(|above| match self.here(&above) {
            Here::File(name, file) => Some((above, name, file)),
            Here::Absent | Here::Hidden(_) => None,
        })
    }

    /// Whether records below `path` have files, so that `path` is a folder.
    pub(crate) fn has_files_below(&self, path: &RelPath) -> bool {
        let below = path.below();
        RelPath::beginning_with(&self.fresh, &below)
            .next()
            .is_some()
            || RelPath::beginning_with(&self.state.base, &below)
                .any(|(path, _)| matches!(self.here(path), Here::File(..)))
    }

    /// The name that a new file gets whose record is at `path`: the path itself, or what this file
    /// system has room for. `moving` is a file that will be gone by then.
    pub(crate) fn place(
        &self,
        path: &RelPath,
        moving: Option<&RelPath>,
    ) -> Result<RelPath, Blocked> {
        self.walk(path, moving, false)
    }

    /// The name here of the folder `path`.
    pub(crate) fn place_folder(&self, path: &RelPath) -> Result<RelPath, Blocked> {
        self.walk(path, None, true)
    }

    fn walk(
        &self,
        path: &RelPath,
        moving: Option<&RelPath>,
        folder: bool,
    ) -> Result<RelPath, Blocked> {
        let mut at: Option<RelPath> = None;
        let mut components = path.components().peekable();
        while let Some(name) = components.next() {
            let last = components.peek().is_none() && !folder;
            let mut n = 0;
            at = Some(loop {
                let candidate = if n == 0 {
                    RelPath::within(at.as_ref(), name).map_err(|_| Blocked::Name)?
                } else {
                    names::other_spelling(at.as_ref(), name, n)
                };
                if self.skipped.contains_key(&candidate) {
                    return Err(Blocked::InTheWay);
                }
                match self.taken(&candidate, moving) {
                    Taken::Folder(actual) | Taken::Empty(actual) if !last => break actual,
                    Taken::Empty(_) if !self.is_promised(&candidate, path) => break candidate,
                    Taken::Free if !last => break candidate,
                    Taken::Free if !self.is_promised(&candidate, path) => break candidate,
                    _ => n += 1,
                }
            });
        }
        at.ok_or(Blocked::Name)
    }

    /// Whether the name belongs to another record than the one at `path`, though no file of that
    /// name is there.
    pub(crate) fn is_promised(&self, name: &RelPath, path: &RelPath) -> bool {
        let elsewhere = self.aliases.get(name).is_some_and(|of| of != path);
        elsewhere || (name != path && self.state.base.contains_key(name))
    }

    fn taken(&self, name: &RelPath, moving: Option<&RelPath>) -> Taken {
        if Some(name) == moving {
            return Taken::Free;
        }
        if self.folds {
            return match self.names.at(name) {
                Taken::File if moving.is_some_and(|m| same_to_some(m, name)) => Taken::Free,
                taken => taken,
            };
        }
        if self.local.contains_key(name) {
            return Taken::File;
        }
        let below = name.below();
        let file = RelPath::beginning_with(&self.local, &below).next();
        if file.is_some()
            || RelPath::beginning_with(&self.skipped, &below)
                .next()
                .is_some()
        {
            return Taken::Folder(name.clone());
        }
        Taken::Free
    }

    /// A name beside `name` for the version that `device` made and that lost. Free to every file
    /// system, so that it is the same everywhere.
    pub(crate) fn free_conflict_name(&self, name: &RelPath, device: &str) -> RelPath {
        (1..)
            .map(|n| names::conflict(name, device, n))
            .find(|name| self.is_free(name))
            .expect("some number is free")
    }

    pub(crate) fn is_free(&self, name: &RelPath) -> bool {
        self.names.at(name) == Taken::Free
            && !self.state.base.contains_key(name)
            && !self.fresh.contains_key(name)
            && !self.aliases.contains_key(name)
    }

    /// Records whose file has another name than their path.
    pub(crate) fn renamed(&self) -> Vec<(RelPath, RelPath)> {
        (self.aliases.iter())
            .map(|(name, path)| (path.clone(), name.clone()))
            .filter(|(path, _)| self.state.base.contains_key(path))
            .collect()
    }

    /// The file at `from` is at `to` now, as a file of its own: whatever record it had has none.
    pub(crate) fn moved(&mut self, from: &RelPath, to: &RelPath) {
        let Some(file) = self.local.get(from).copied() else {
            return;
        };
        self.removed(from);
        self.wrote(to, file);
        if !self.state.base.contains_key(to) {
            self.fresh.insert(to.clone(), to.clone());
        }
    }

    /// The file of the record at `path` is at `to` now.
    pub(crate) fn renamed_to(&mut self, path: &RelPath, from: &RelPath, to: &RelPath) {
        if let Some(file) = self.local.get(from).copied() {
            self.removed(from);
            self.wrote(to, file);
        }
        self.set_name(path, Some(to.clone()));
    }

    /// `file` is at `name` now.
    pub(crate) fn wrote(&mut self, name: &RelPath, file: LocalFile) {
        if self.local.insert(name.clone(), file).is_none() {
            self.names.insert(name);
        }
    }

    /// No file is at `name` any longer.
    pub(crate) fn removed(&mut self, name: &RelPath) {
        if self.local.remove(name).is_some() {
            self.names.remove(name);
        }
        if self.fresh.get(name) == Some(name) {
            self.fresh.remove(name);
        } else if let Some(path) = self.aliases.get(name)
            && !self.state.base.contains_key(path)
        {
            self.fresh.remove(path);
            self.aliases.remove(name);
        }
    }

    /// The record at `path` is live, and agreed on as `base`.
    pub(crate) fn set_base(&mut self, path: RelPath, base: Base) {
        self.fresh.remove(&path);
        let old = self.state.base.get(&path).and_then(|b| b.local.clone());
        if let Some(old) = old.filter(|old| Some(old) != base.local.as_ref()) {
            self.aliases.remove(&old);
        }
        if let Some(name) = &base.local {
            self.aliases.insert(name.clone(), path.clone());
        }
        self.record(StateOp::Base(path, Box::new(base)));
    }

    /// The record at `path` is dead; a file that it had is a new one now.
    pub(crate) fn set_grave(&mut self, path: &RelPath, seq: u64) {
        let here = self.here(path);
        if let Some(name) = (self.state.base.get(path)).and_then(|base| base.local.clone()) {
            self.aliases.remove(&name);
        }
        self.record(StateOp::Grave(path.clone(), seq));
        if let Here::File(name, _) = here {
            if name != *path {
                self.aliases.insert(name.clone(), path.clone());
            }
            self.fresh.insert(path.clone(), name);
        }
    }

    /// Changes what is remembered.
    pub(crate) fn record(&mut self, op: StateOp) {
        self.state.apply(op.clone());
        self.log.push(op);
    }

    /// Hands out what is not stored yet.
    pub(crate) fn take_log(&mut self) -> Vec<StateOp> {
        std::mem::take(&mut self.log)
    }
}

fn same_to_some(one: &RelPath, other: &RelPath) -> bool {
    names::fold(one.as_str()) == names::fold(other.as_str())
}
