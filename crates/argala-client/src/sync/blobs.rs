//! Large files: putting their parts, and deleting the parts that no record names any longer.
//!
//! A blob must never be deleted while a record names it. Only the device that put a blob deletes
//! it, and only once the record has moved on from the version that named it, or from the one that
//! a push naming it would have had to find.

use std::collections::HashSet;

use argala_wire::{BlobId, Code};

use super::{
    content::{Content, ContentHash, Hashing, Part},
    engine::Run,
    error::SyncError,
    outbound::Unready,
    outgoing::Outgoing,
    path::RelPath,
    remote::Remote,
    report::Event,
    state::{StateOp, StateStore, Upload},
    tree::{FileTree, TreeFault},
    view::Here,
};
use crate::Error;

impl<T: FileTree, R: Remote, S: StateStore> Run<'_, T, R, S> {
    /// Puts the file at `name` part by part, and goes on where an earlier run was interrupted.
    pub(super) async fn upload(
        &mut self,
        out: &Outgoing,
        name: &RelPath,
        content: Content,
    ) -> Result<Result<Vec<Part>, Unready>, SyncError> {
        let mut reader = match self.tree.open(name).await {
            Ok(reader) => reader,
            Err(fault) => return Ok(Err(Unready::Tree(fault))),
        };
        let mut upload = self.begin_upload(out, content);
        let mut hashing = Hashing::default();
        let mut index = 0;
        loop {
            let limit = match upload.parts.get(index) {
                Some(part) => usize::try_from(part.size).unwrap_or(usize::MAX),
                None => self.remote.part_bytes(),
            };
            let bytes = match self.tree.read(&mut reader, limit).await {
                Ok(bytes) => bytes,
                Err(fault) => return Ok(Err(Unready::Tree(fault))),
            };
            if bytes.is_empty() {
                break;
            }
            hashing.update(&bytes);
            let part = match upload.parts.get(index) {
                Some(part) if part.hash == ContentHash::of(&bytes) => None,
                Some(_) => return Ok(Err(Unready::Tree(TreeFault::Changed))),
                None => match self.put(out, &mut upload, &bytes).await? {
                    Ok(part) => Some(part),
                    Err(unready) => return Ok(Err(unready)),
                },
            };
            if let Some(part) = part {
                upload.parts.push(part);
                upload.next = None;
                let op = StateOp::Upload(out.path.clone(), upload.clone());
                self.view.record(op);
                self.flush(false)?;
            }
            index += 1;
            self.observer.see(Event::Sent {
                bytes: bytes.len() as u64,
            });
        }
        if hashing.finish() != (content.hash, content.size) || index != upload.parts.len() {
            return Ok(Err(Unready::Tree(TreeFault::Changed)));
        }
        Ok(Ok(upload.parts))
    }

    fn begin_upload(&mut self, out: &Outgoing, content: Content) -> Upload {
        let fresh = Upload {
            hash: content.hash,
            expect: out.expect,
            parts: Vec::new(),
            next: None,
            stale: false,
        };
        match self.view.state.uploads.get(&out.path) {
            Some(old) if old.hash == content.hash && old.expect == out.expect => Upload {
                stale: false,
                ..old.clone()
            },
            _ => {
                // Of another version. If it was pushed after all, and the push is still on its
                // way, ours comes before it or we hear of a conflict.
                self.end_upload(&out.path, &[]);
                fresh
            }
        }
    }

    async fn put(
        &mut self,
        out: &Outgoing,
        upload: &mut Upload,
        bytes: &[u8],
    ) -> Result<Result<Part, Unready>, SyncError> {
        loop {
            let blob = match &upload.next {
                Some(blob) => blob.clone(),
                None => {
                    let blob = self.remote.new_blob_id();
                    upload.next = Some(blob.clone());
                    // Before it exists, so that it is never there unknown to anybody.
                    let op = StateOp::Upload(out.path.clone(), upload.clone());
                    self.view.record(op);
                    self.flush(true)?;
                    blob
                }
            };
            match self.remote.put_part(&blob, bytes).await {
                Ok(()) => {
                    return Ok(Ok(Part {
                        blob,
                        size: bytes.len() as u64,
                        hash: ContentHash::of(bytes),
                    }));
                }
                // What an interrupted run put was other bytes, or sealed with a key since passed.
                Err(Error::Relay(problem)) if problem.code == Code::BlobExists => {
                    self.view.record(StateOp::Garbage(blob));
                    upload.next = None;
                }
                Err(Error::Relay(problem))
                    if matches!(problem.code, Code::QuotaExceeded | Code::BlobTooLarge) =>
                {
                    return Ok(Err(Unready::Refused(problem.code.as_str())));
                }
                Err(Error::KeysBehind { .. } | Error::Unkeyed { .. }) => {
                    return Ok(Err(Unready::Behind));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Gives up the blobs that have become useless, and deletes them.
    pub(super) async fn clean_up(&mut self) -> Result<(), SyncError> {
        if self.options.dry_run {
            return Ok(());
        }
        self.review_uploads();
        self.flush(true)?;
        let named: HashSet<BlobId> = (self.view.state.base.values())
            .flat_map(|base| base.parts.iter().map(|part| part.blob.clone()))
            .collect();
        let garbage: Vec<BlobId> = self.view.state.garbage.iter().cloned().collect();
        for blob in garbage {
            // A record that came to name it since is worth more than the room.
            if !named.contains(&blob) {
                match self.remote.forget_blob(&blob).await {
                    Ok(()) => {}
                    // Later is soon enough, and no reason to call the sync a failure.
                    Err(_) => break,
                }
            }
            self.view.record(StateOp::Collected(blob));
        }
        self.flush(false)
    }

    fn review_uploads(&mut self) {
        let uploads: Vec<(RelPath, Upload)> = (self.view.state.uploads.iter())
            .map(|(path, upload)| (path.clone(), upload.clone()))
            .collect();
        for (path, mut upload) in uploads {
            let moved_on = self.view.state.expect(&path) != upload.expect;
            let wanted = match self.view.here(&path) {
                Here::File(_, file) => file.content.hash == upload.hash,
                Here::Hidden(_) => true,
                Here::Absent => false,
            };
            if !moved_on && wanted {
                continue;
            }
            if !moved_on && !upload.stale {
                // A push that names it may still be on its way. Not for long, though.
                upload.stale = true;
                self.view.record(StateOp::Upload(path, upload));
                continue;
            }
            let base = self.view.state.base.get(&path);
            let parts = base.map_or_else(Vec::new, |base| base.parts.clone());
            self.end_upload(&path, &parts);
        }
    }

    /// The blobs put for `path` are of no more use, those of `parts` excepted.
    pub(super) fn end_upload(&mut self, path: &RelPath, parts: &[Part]) {
        let Some(upload) = self.view.state.uploads.get(path) else {
            return;
        };
        let blobs: Vec<BlobId> = (upload.blobs())
            .filter(|blob| !parts.iter().any(|part| part.blob == **blob))
            .cloned()
            .collect();
        for blob in blobs {
            self.view.record(StateOp::Garbage(blob));
        }
        self.view.record(StateOp::NoUpload(path.clone()));
    }
}
