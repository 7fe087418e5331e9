//! A folder in memory, on a file system that may fold names.

use std::{cell::RefCell, collections::BTreeMap, io, rc::Rc};

use super::fuel::{Cut, Fuel};
use crate::sync::{
    Blocked, Content, ContentHash, FileTree, LocalFile, RelPath, Scan, SyncError, TreeFault,
    Unread, names, state::Stamp,
};

#[derive(Clone)]
enum Node {
    Folder,
    File { bytes: Vec<u8>, executable: bool },
}

/// The file system. Both the person at the device and the engine work on it.
pub(super) struct Disk {
    folds: bool,
    /// By folded path: the path as it is spelled, and what is there.
    nodes: BTreeMap<String, (RelPath, Node)>,
    clock: i64,
    pub(super) staged: usize,
}

impl Disk {
    pub(super) fn new(folds: bool) -> Self {
        Self {
            folds,
            nodes: BTreeMap::new(),
            clock: 0,
            staged: 0,
        }
    }

    fn key(&self, path: &RelPath) -> String {
        if self.folds {
            names::fold(path.as_str()).into_owned()
        } else {
            path.to_string()
        }
    }

    fn node(&self, path: &RelPath) -> Option<&(RelPath, Node)> {
        self.nodes.get(&self.key(path))
    }

    /// Every file, as it is spelled.
    pub(super) fn files(&self) -> BTreeMap<RelPath, Vec<u8>> {
        (self.nodes.values())
            .filter_map(|(path, node)| match node {
                Node::Folder => None,
                Node::File { bytes, .. } => Some((path.clone(), bytes.clone())),
            })
            .collect()
    }

    pub(super) fn bytes(&self, path: &RelPath) -> Option<Vec<u8>> {
        match self.node(path) {
            Some((_, Node::File { bytes, .. })) => Some(bytes.clone()),
            _ => None,
        }
    }

    fn content(&self, path: &RelPath) -> Option<Content> {
        match self.node(path) {
            Some((_, Node::File { bytes, executable })) => Some(Content {
                hash: ContentHash::of(bytes),
                size: bytes.len() as u64,
                executable: *executable,
            }),
            _ => None,
        }
    }

    /// Writes a file, and makes its folders; `None` where something is in the way. Answers with the
    /// path as it is spelled.
    pub(super) fn write(
        &mut self,
        path: &RelPath,
        bytes: Vec<u8>,
        executable: bool,
    ) -> Option<RelPath> {
        let mut parent: Option<RelPath> = None;
        for ancestor in path.ancestors() {
            match self.node(&ancestor) {
                Some((actual, Node::Folder)) => parent = Some(actual.clone()),
                Some(_) => return None,
                None => {
                    let actual = RelPath::within(parent.as_ref(), ancestor.leaf()).ok()?;
                    let node = (actual.clone(), Node::Folder);
                    self.nodes.insert(self.key(&actual), node);
                    parent = Some(actual);
                }
            }
        }
        if matches!(self.node(path), Some((_, Node::Folder))) && !self.clear(path) {
            return None;
        }
        let actual = match self.node(path) {
            Some((actual, _)) => actual.clone(),
            None => RelPath::within(parent.as_ref(), path.leaf()).ok()?,
        };
        let node = (actual.clone(), Node::File { bytes, executable });
        self.nodes.insert(self.key(&actual), node);
        self.clock += 1;
        Some(actual)
    }

    /// Removes a folder that holds nothing but folders.
    fn clear(&mut self, folder: &RelPath) -> bool {
        let key = self.key(folder);
        let below = format!("{key}/");
        let inside: Vec<String> = (self.nodes.keys())
            .filter(|key| key.starts_with(&below))
            .cloned()
            .collect();
        let empty = (inside.iter()).all(|key| matches!(self.nodes[key].1, Node::Folder));
        if empty {
            inside.iter().chain([&key]).for_each(|key| {
                self.nodes.remove(key);
            });
        }
        empty
    }

    /// Removes a file and leaves its folders.
    pub(super) fn remove(&mut self, path: &RelPath) {
        self.nodes.remove(&self.key(path));
    }

    /// Moves a file as a person would: what is at the target is replaced.
    pub(super) fn rename(&mut self, from: &RelPath, to: &RelPath) -> bool {
        let Some((actual, Node::File { bytes, executable })) = self.node(from).cloned() else {
            return false;
        };
        self.remove(from);
        if self.write(to, bytes.clone(), executable).is_none() {
            self.write(&actual, bytes, executable);
            return false;
        }
        true
    }

    fn prune(&mut self, path: &RelPath) {
        let mut above = path.parent();
        while let Some(folder) = above {
            if !self.clear(&folder) {
                break;
            }
            above = folder.parent();
        }
    }

    fn set_executable(&mut self, path: &RelPath, to: bool) {
        let key = self.key(path);
        if let Some((_, Node::File { executable, .. })) = self.nodes.get_mut(&key) {
            *executable = to;
        }
    }

    pub(super) fn flip_executable(&mut self, path: &RelPath) {
        if let Some(content) = self.content(path) {
            self.set_executable(path, !content.executable);
        }
    }
}

/// The engine's way to the disk.
pub(super) struct SimTree {
    pub(super) disk: Rc<RefCell<Disk>>,
    pub(super) fuel: Fuel,
}

pub(super) struct Staged {
    bytes: Vec<u8>,
    disk: Rc<RefCell<Disk>>,
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.disk.borrow_mut().staged -= 1;
    }
}

pub(super) struct Reader {
    bytes: Vec<u8>,
    at: usize,
}

fn cut(_: Cut) -> SyncError {
    SyncError::Disk {
        what: "simulated",
        source: io::Error::other("cut"),
    }
}

impl SimTree {
    async fn step(&self) -> Result<(), TreeFault> {
        self.fuel.step().await.map_err(|c| TreeFault::Fatal(cut(c)))
    }

    fn expect(&self, at: &RelPath, over: &Content) -> Result<(), TreeFault> {
        let disk = self.disk.borrow();
        let spelled = disk.node(at).is_some_and(|(actual, _)| actual == at);
        if spelled && disk.content(at) == Some(*over) {
            Ok(())
        } else {
            Err(TreeFault::Changed)
        }
    }

    fn file(&self, at: &RelPath) -> Result<LocalFile, TreeFault> {
        let content = self.disk.borrow().content(at).ok_or(TreeFault::Changed)?;
        Ok(LocalFile {
            content,
            stamp: None,
        })
    }
}

impl FileTree for SimTree {
    type Staged = Staged;
    type Reader = Reader;

    fn folds(&self) -> bool {
        self.disk.borrow().folds
    }

    fn keeps_executable(&self) -> bool {
        true
    }

    async fn scan(&mut self, _: &Unread) -> Result<Scan, SyncError> {
        self.fuel.step().await.map_err(cut)?;
        let disk = self.disk.borrow();
        let files = (disk.files().into_keys())
            .filter_map(|path| {
                let content = disk.content(&path)?;
                let stamp = Some(Stamp {
                    size: content.size,
                    mtime: disk.clock,
                    ctime: disk.clock,
                    inode: 0,
                });
                Some((path, LocalFile { content, stamp }))
            })
            .collect();
        let folders = (disk.nodes.values())
            .filter(|(_, node)| matches!(node, Node::Folder))
            .map(|(path, _)| path.clone())
            .collect();
        Ok(Scan {
            files,
            folders,
            ..Scan::default()
        })
    }

    async fn open(&mut self, at: &RelPath) -> Result<Reader, TreeFault> {
        self.step().await?;
        let bytes = self.disk.borrow().bytes(at).ok_or(TreeFault::Changed)?;
        Ok(Reader { bytes, at: 0 })
    }

    async fn read(&mut self, reader: &mut Reader, limit: usize) -> Result<Vec<u8>, TreeFault> {
        let end = reader.bytes.len().min(reader.at.saturating_add(limit));
        let bytes = reader.bytes[reader.at..end].to_vec();
        reader.at = end;
        Ok(bytes)
    }

    async fn stage(&mut self) -> Result<Staged, TreeFault> {
        self.step().await?;
        self.disk.borrow_mut().staged += 1;
        Ok(Staged {
            bytes: Vec::new(),
            disk: self.disk.clone(),
        })
    }

    async fn append(&mut self, staged: &mut Staged, bytes: &[u8]) -> Result<(), TreeFault> {
        staged.bytes.extend_from_slice(bytes);
        Ok(())
    }

    async fn finish(
        &mut self,
        staged: Staged,
        at: &RelPath,
        over: Option<&Content>,
        content: Content,
    ) -> Result<(RelPath, LocalFile), TreeFault> {
        self.step().await?;
        match over {
            Some(over) => self.expect(at, over)?,
            None if self.disk.borrow().content(at).is_some() => return Err(TreeFault::Changed),
            None => {}
        }
        let bytes = staged.bytes.clone();
        let written = (self.disk.borrow_mut()).write(at, bytes, content.executable);
        let actual = written.ok_or(TreeFault::Blocked(Blocked::InTheWay))?;
        let file = self.file(&actual)?;
        self.step().await?;
        Ok((actual, file))
    }

    async fn rename(
        &mut self,
        from: &RelPath,
        over: &Content,
        to: &RelPath,
    ) -> Result<RelPath, TreeFault> {
        self.step().await?;
        self.expect(from, over)?;
        {
            let mut disk = self.disk.borrow_mut();
            let same = disk.key(from) == disk.key(to);
            if !same && disk.node(to).is_some() {
                return Err(TreeFault::Changed);
            }
            if !disk.rename(from, to) {
                return Err(TreeFault::Blocked(Blocked::InTheWay));
            }
            disk.prune(from);
        }
        let actual = self
            .disk
            .borrow()
            .node(to)
            .map(|(actual, _)| actual.clone());
        self.step().await?;
        actual.ok_or(TreeFault::Changed)
    }

    async fn remove(&mut self, at: &RelPath, over: &Content) -> Result<(), TreeFault> {
        self.step().await?;
        self.expect(at, over)?;
        {
            let mut disk = self.disk.borrow_mut();
            disk.remove(at);
            disk.prune(at);
        }
        self.step().await
    }

    async fn set_executable(
        &mut self,
        at: &RelPath,
        over: &Content,
        executable: bool,
    ) -> Result<LocalFile, TreeFault> {
        self.step().await?;
        self.expect(at, over)?;
        self.disk.borrow_mut().set_executable(at, executable);
        let file = self.file(at)?;
        self.step().await?;
        Ok(file)
    }
}
