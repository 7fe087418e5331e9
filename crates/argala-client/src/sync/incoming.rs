//! The engine's way down, second half: doing what the planner says about each change.

use super::{
    content::{Hashing, Part},
    engine::Run,
    error::{Blocked, SyncError},
    path::RelPath,
    payload::Bytes,
    plan::{Change, FileOp, Plan, Then, plan},
    remote::Remote,
    report::{Event, Kept},
    state::{Base, StateOp, StateStore},
    tree::{FileTree, TreeFault},
    view::{Here, LocalFile},
};
use crate::Error;

/// A change, and what it takes to carry it out.
pub(super) struct Incoming {
    pub(super) change: Change,
    pub(super) bytes: Bytes,
    /// Whether this very device pushed it.
    pub(super) own: bool,
}

impl<T: FileTree, R: Remote, S: StateStore> Run<'_, T, R, S> {
    /// Carries out one change. Whether it is dealt with for good.
    pub(super) async fn take(&mut self, incoming: Incoming) -> Result<bool, SyncError> {
        let path = incoming.change.path.clone();
        if let Some(why) = self.given_up.get(&path) {
            self.waiting.insert(path, Some(*why));
            return Ok(false);
        }
        let (ops, mut then) = match plan(&self.view, &incoming.change, &self.device) {
            Plan::Known => return Ok(true),
            Plan::Block(why) => {
                self.block(&path, why);
                return Ok(false);
            }
            Plan::Do { ops, then } => (ops, then),
        };
        let mut staged = None;
        for op in &ops {
            // The bytes first: until they are here, nothing is touched.
            if matches!(op, FileOp::Write { .. }) && !self.options.dry_run {
                match self.fetch(&incoming).await? {
                    Ok(file) => staged = Some(file),
                    Err(Fault::Tree(fault)) => {
                        self.fault(&path, fault)?;
                        return Ok(false);
                    }
                    Err(Fault::NoKey) => {
                        self.block(&path, Blocked::NoKey);
                        return Ok(false);
                    }
                    Err(Fault::Tripped) => {
                        self.block(&path, Blocked::Broken);
                        return Ok(false);
                    }
                    Err(Fault::Broken) => return Ok(self.broken(incoming)),
                }
            }
        }
        for op in ops {
            let done = if self.options.dry_run {
                self.pretend(&op, &incoming.change)
            } else {
                self.carry_out(&op, &incoming.change, &mut staged).await
            };
            let name = match done {
                Ok(name) => name,
                Err(fault) => {
                    self.fault(&path, fault)?;
                    return Ok(false);
                }
            };
            if let (FileOp::Write { .. }, Some(name), Then::Live(Some(expected))) =
                (&op, &name, &mut then)
            {
                if expected != name && self.view.is_promised(name, &path) {
                    // A folder was made meanwhile under whose spelling this is another's name.
                    self.race(&path);
                    return Ok(false);
                }
                expected.clone_from(name);
            }
            self.tell(&op, &incoming.change, &then, name);
        }
        self.agree(incoming, then);
        Ok(true)
    }

    /// Parts of the file are not there. Either the record was replaced while we looked, and the new
    /// version comes by itself; or nobody can read this one, or the relay only says so. Whether that
    /// is the end of it.
    ///
    /// What is here is older, or an edit of what is older, or comes later and knows nothing of it:
    /// whoever has the newer version whole would lose it to that. So it is pushed where that was
    /// asked for, and not else.
    fn broken(&mut self, incoming: Incoming) -> bool {
        let Change { path, seq, .. } = incoming.change;
        if self.missed.insert(path.clone()) {
            self.waiting.insert(path, None);
            self.again = true;
            return false;
        }
        if !self.options.replace_broken || self.view.here(&path) == Here::Absent {
            self.block(&path, Blocked::Broken);
            return false;
        }
        self.unknown(&path, seq, incoming.bytes.parts().to_vec());
        self.again = true;
        true
    }

    /// Does one step; answers with the new name of a file that got one, as it is spelled on disk.
    async fn carry_out(
        &mut self,
        op: &FileOp,
        change: &Change,
        staged: &mut Option<T::Staged>,
    ) -> Result<Option<RelPath>, TreeFault> {
        match op {
            FileOp::Move { from, over, to } => {
                let actual = self.tree.rename(from, over, to).await?;
                self.view.moved(from, &actual);
                Ok(Some(actual))
            }
            FileOp::Write {
                to,
                over,
                executable,
            } => {
                let (Some(staged), Some(content)) = (staged.take(), change.content) else {
                    return Err(TreeFault::Changed);
                };
                let content = content.with_executable(*executable);
                let finished = self.tree.finish(staged, to, over.as_ref(), content);
                let (name, file) = finished.await?;
                self.view.wrote(&name, file);
                Ok(Some(name))
            }
            FileOp::SetExecutable {
                at,
                over,
                executable,
            } => {
                let file = self.tree.set_executable(at, over, *executable).await?;
                self.view.wrote(at, file);
                Ok(None)
            }
            FileOp::Remove { at, over } => {
                self.tree.remove(at, over).await?;
                self.view.removed(at);
                Ok(None)
            }
        }
    }

    /// Supposes that one step was done.
    fn pretend(&mut self, op: &FileOp, change: &Change) -> Result<Option<RelPath>, TreeFault> {
        let file = |content| LocalFile {
            content,
            stamp: None,
        };
        match (op, change.content) {
            (FileOp::Move { from, to, .. }, _) => self.view.moved(from, to),
            (FileOp::Write { to, executable, .. }, Some(content)) => {
                self.view
                    .wrote(to, file(content.with_executable(*executable)));
            }
            (
                FileOp::SetExecutable {
                    at,
                    over,
                    executable,
                },
                _,
            ) => self.view.wrote(at, file(over.with_executable(*executable))),
            (FileOp::Remove { at, .. }, _) => self.view.removed(at),
            (FileOp::Write { .. }, None) => {}
        }
        Ok(None)
    }

    /// Gets the change's bytes into a file that has no name yet.
    async fn fetch(&mut self, incoming: &Incoming) -> Result<Result<T::Staged, Fault>, SyncError> {
        let mut staged = match self.tree.stage().await {
            Ok(staged) => staged,
            Err(fault) => return Ok(Err(Fault::Tree(fault))),
        };
        let mut hashing = Hashing::default();
        let parts = match &incoming.bytes {
            Bytes::Inline(bytes) => {
                hashing.update(bytes);
                if let Err(fault) = self.tree.append(&mut staged, bytes).await {
                    return Ok(Err(Fault::Tree(fault)));
                }
                &[]
            }
            Bytes::Parts(parts) => parts.as_slice(),
        };
        for part in parts {
            let bytes = match self.remote.get_part(part).await {
                Ok(bytes) => bytes,
                Err(error) => return part_fault(error).map(Err),
            };
            hashing.update(&bytes);
            self.observer.see(Event::Received {
                bytes: bytes.len() as u64,
            });
            if let Err(fault) = self.tree.append(&mut staged, &bytes).await {
                return Ok(Err(Fault::Tree(fault)));
            }
        }
        let whole = Some(hashing.finish());
        let content = incoming.change.content;
        if whole == content.map(|content| (content.hash, content.size)) {
            Ok(Ok(staged))
        } else {
            Ok(Err(Fault::Broken))
        }
    }

    fn tell(&mut self, op: &FileOp, change: &Change, then: &Then, name: Option<RelPath>) {
        match op {
            FileOp::Move { to, .. } => self.kept(&change.path, name.as_ref().unwrap_or(to)),
            FileOp::Write { to, .. } if *then == Then::Live(None) => {
                let name = name.unwrap_or_else(|| to.clone());
                self.kept(&change.path, &name);
                self.view.fresh.insert(name.clone(), name);
            }
            FileOp::Write { .. } | FileOp::SetExecutable { .. } => {
                self.observer.see(Event::Wrote(&change.path));
                self.report.written.push(change.path.clone());
            }
            FileOp::Remove { .. } => {
                self.observer.see(Event::Removed(&change.path));
                self.report.removed.push(change.path.clone());
            }
        }
    }

    fn kept(&mut self, path: &RelPath, kept: &RelPath) {
        let kept = Kept {
            path: path.clone(),
            kept: kept.clone(),
        };
        self.observer.see(Event::Kept(&kept));
        self.report.conflicts.push(kept);
    }

    /// The change is carried out: it is what this device and the graph agree on.
    fn agree(&mut self, incoming: Incoming, then: Then) {
        let Incoming {
            change, bytes, own, ..
        } = incoming;
        let parts = bytes.parts();
        if own || self.view.state.sent.contains_key(&change.path) {
            // A push of a run that was cut short came through, or may have before this one did. The
            // blobs of the version that it replaced are ours to delete; where another device
            // replaces a version, that device takes care.
            self.discard_parts(&change.path, parts);
        }
        match (then, change.content) {
            (Then::Live(name), Some(content)) => {
                let file = name.as_ref().and_then(|name| self.view.local.get(name));
                let stamp = (file.filter(|file| file.content == content)).and_then(|f| f.stamp);
                let base = Base {
                    seq: change.seq,
                    content: Some(content),
                    local: name.filter(|name| *name != change.path),
                    parts: parts.to_vec(),
                    by: Some(change.by),
                    stamp,
                };
                self.view.set_base(change.path, base);
            }
            _ => self.view.set_grave(&change.path, change.seq),
        }
    }

    /// Notes that the blobs of the record's present version are of no more use, `kept` excepted.
    pub(super) fn discard_parts(&mut self, path: &RelPath, kept: &[Part]) {
        let Some(base) = self.view.state.base.get(path) else {
            return;
        };
        let gone: Vec<_> = (base.parts.iter())
            .filter(|part| !kept.contains(part))
            .map(|part| StateOp::Garbage(part.blob.clone()))
            .collect();
        for op in gone {
            self.view.record(op);
        }
    }

    /// The graph has lost the record at `path`: the file here, if any, is all that is left of it.
    pub(super) fn disagree(&mut self, path: &RelPath) {
        if self.view.here(path) == Here::Absent {
            self.view.set_grave(path, 0);
        } else {
            self.unknown(path, 0, Vec::new());
        }
    }

    /// Whatever the record at `path` holds, this device knows nothing of it but its seq, and the blobs
    /// that it names.
    fn unknown(&mut self, path: &RelPath, seq: u64, parts: Vec<Part>) {
        let base = self.view.state.base.get(path);
        let fresh = self.view.fresh.get(path).filter(|name| *name != path);
        let base = Base {
            seq,
            content: None,
            local: base.map_or(fresh.cloned(), |base| base.local.clone()),
            parts,
            by: None,
            stamp: None,
        };
        self.view.set_base(path.clone(), base);
    }
}

enum Fault {
    Tree(TreeFault),
    /// The relay says that a part is gone.
    Broken,
    /// A part could not be got now.
    Tripped,
    NoKey,
}

/// What a part that could not be got says about its file; what it does not say ends the run.
fn part_fault(error: Error) -> Result<Fault, SyncError> {
    match error {
        Error::Relay(problem) if problem.code == argala_wire::Code::BlobNotFound => {
            Ok(Fault::Broken)
        }
        // The relay has other bytes than were put, or trips over them; other files may fare better.
        // What is here is not put in its place: that would undo what somebody else has whole, and a
        // relay that lies would choose when.
        Error::Unreadable(_) => Ok(Fault::Tripped),
        Error::Relay(problem) if problem.code == argala_wire::Code::Internal => Ok(Fault::Tripped),
        Error::KeysBehind { .. } => Ok(Fault::NoKey),
        error => Err(error.into()),
    }
}
