//! The engine's way up: pushing what the graph does not know yet.

use argala_wire::records::PushReason;

use super::{
    content::{Content, ContentHash, Part},
    engine::{Run, folder_write},
    error::{Blocked, SyncError},
    outgoing::{self, Outgoing},
    path::RelPath,
    payload::{self, Bytes},
    remote::Remote,
    report::{Event, RefusedFile},
    state::{Base, StateOp, StateStore},
    tree::{FileTree, TreeFault},
};
use crate::{Outcome, Refusal, Write};

/// When a batch is sent: at this many records, or this many bytes. Small enough that little is
/// told again after a crash, large enough that a request is worth it.
const BATCH_RECORDS: usize = 250;
const BATCH_BYTES: usize = 2 * 1024 * 1024;

/// Records that are ready to go.
#[derive(Default)]
struct Batch {
    records: Vec<(Outgoing, Vec<Part>)>,
    writes: Vec<Write>,
    bytes: usize,
}

/// Why a file is not ready to be pushed.
pub(super) enum Unready {
    Tree(TreeFault),
    /// The relay does not take its blobs.
    Refused(&'static str),
    /// The device lacks the key to seal them.
    Behind,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.writes.len() >= BATCH_RECORDS || self.bytes >= BATCH_BYTES
    }
}

impl<T: FileTree, R: Remote, S: StateStore> Run<'_, T, R, S> {
    /// Pushes everything, in the planner's order.
    pub(super) async fn push_all(&mut self) -> Result<(), SyncError> {
        if !self.restore_folder().await? {
            return Ok(());
        }
        let out = outgoing::files(&self.view, &self.left_out());
        if !out.files.is_empty() {
            let sizes = out.files.iter().filter_map(|out| out.file.as_ref());
            self.observer.see(Event::Pushing {
                files: out.files.len(),
                bytes: sizes.map(|(_, content)| content.size).sum(),
            });
        }
        self.push(out.clearing).await?;
        self.push(out.files).await?;
        let deletions = outgoing::deletions_after(&self.view, &self.left_out());
        self.push(deletions).await
    }

    /// Writes the folder's record again where the graph has lost it. Whether it is there now.
    async fn restore_folder(&mut self) -> Result<bool, SyncError> {
        let lost = (self.view.state.folder.as_ref()).and_then(|folder| folder.lost);
        let Some(seq) = lost.filter(|_| !self.options.dry_run && !self.behind) else {
            return Ok(true);
        };
        let write = folder_write(&self.secret, seq);
        match self.remote.push(&[write]).await?.first() {
            Some(Outcome::Accepted { .. }) => {
                self.folder_is_lost(None);
                Ok(true)
            }
            // Another device was quicker. With which secret, the next round learns; until then no
            // record has a name.
            Some(Outcome::Refused(Refusal::Relay(PushReason::Conflict { .. }))) => {
                self.again = true;
                Ok(false)
            }
            Some(Outcome::Refused(refusal)) => Err(SyncError::FolderRefused(refusal.as_str())),
            Some(Outcome::KeysBehind) | None => {
                self.behind = true;
                Ok(true)
            }
        }
    }

    async fn push(&mut self, all: Vec<Outgoing>) -> Result<(), SyncError> {
        if self.behind {
            self.report.held += all.len() as u64;
            return Ok(());
        }
        if self.options.dry_run {
            all.into_iter().for_each(|out| self.suppose(out));
            return Ok(());
        }
        let mut batch = Batch::default();
        for out in all {
            if self.behind {
                self.report.held += 1;
                continue;
            }
            let prepared = match &out.file {
                None => Ok((payload::encode_tombstone(&out.path), Vec::new())),
                Some((name, content)) => {
                    let (name, content) = (name.clone(), *content);
                    self.prepare(&out, &name, content).await?
                }
            };
            match prepared {
                Err(Unready::Tree(fault)) => self.fault(&out.path, fault)?,
                Err(Unready::Refused(why)) => self.decline(out.path, why),
                Err(Unready::Behind) => {
                    self.behind = true;
                    self.report.held += 1;
                    self.waiting.insert(out.path, None);
                }
                Ok((body, parts)) => {
                    batch.bytes += body.len();
                    batch.writes.push(Write {
                        id: self.secret.record_id(&out.path),
                        kind: payload::file_kind(),
                        body,
                        deleted: out.file.is_none(),
                        expect: Some(out.expect),
                    });
                    batch.records.push((out, parts));
                }
            }
            if batch.is_full() {
                self.send(std::mem::take(&mut batch)).await?;
            }
        }
        self.send(batch).await
    }

    /// Reads a file and makes the body of its record; what does not fit goes ahead as blobs.
    async fn prepare(
        &mut self,
        out: &Outgoing,
        name: &RelPath,
        content: Content,
    ) -> Result<Result<(Vec<u8>, Vec<Part>), Unready>, SyncError> {
        let old = self.view.state.base.get(&out.path);
        if let Some(old) = old
            && !old.parts.is_empty()
            && (old.content).is_some_and(|there| there.same_bytes(&content))
        {
            // Only the executable bit changed.
            let parts = old.parts.clone();
            let body = payload::encode_file(&out.path, &content, Bytes::Parts(parts.clone()));
            return Ok(Ok((body, parts)));
        }
        if content.size > self.remote.inline_bytes() as u64 {
            let parts = match self.upload(out, name, content).await? {
                Ok(parts) => parts,
                Err(unready) => return Ok(Err(unready)),
            };
            let body = payload::encode_file(&out.path, &content, Bytes::Parts(parts.clone()));
            return Ok(Ok((body, parts)));
        }
        let bytes = match self.read_whole(name, content).await {
            Ok(bytes) => bytes,
            Err(fault) => return Ok(Err(Unready::Tree(fault))),
        };
        self.observer.see(Event::Sent {
            bytes: content.size,
        });
        let body = payload::encode_file(&out.path, &content, Bytes::Inline(bytes));
        Ok(Ok((body, Vec::new())))
    }

    async fn read_whole(&mut self, name: &RelPath, content: Content) -> Result<Vec<u8>, TreeFault> {
        let mut reader = self.tree.open(name).await?;
        // One byte more than there should be, so that a file that grew is noticed.
        let limit = usize::try_from(content.size).map_or(usize::MAX, |size| size + 1);
        let bytes = self.tree.read(&mut reader, limit).await?;
        let same = bytes.len() as u64 == content.size && ContentHash::of(&bytes) == content.hash;
        same.then_some(bytes).ok_or(TreeFault::Changed)
    }

    async fn send(&mut self, batch: Batch) -> Result<(), SyncError> {
        if batch.writes.is_empty() {
            return Ok(());
        }
        if self.behind {
            self.report.held += batch.writes.len() as u64;
            return Ok(());
        }
        for (out, _) in &batch.records {
            let content = out.file.as_ref().map(|(_, content)| *content);
            self.view.record(StateOp::Sent(out.path.clone(), content));
        }
        // Should this process die before it hears the answer, the next one must know what it was
        // that came through.
        self.flush(true)?;
        let outcomes = self.remote.push(&batch.writes).await?;
        for ((out, parts), outcome) in batch.records.into_iter().zip(outcomes) {
            let path = out.path.clone();
            self.learn(out, parts, outcome);
            // Last: of these changes a part from the front may survive.
            self.view.record(StateOp::Unsent(path));
        }
        self.flush(false)
    }

    fn learn(&mut self, out: Outgoing, parts: Vec<Part>, outcome: Outcome) {
        match outcome {
            Outcome::Accepted { seq } => self.accepted(out, parts, seq),
            Outcome::KeysBehind => {
                self.report.held += 1;
                self.behind = true;
                self.waiting.insert(out.path, None);
            }
            Outcome::Refused(Refusal::Relay(PushReason::Conflict { seq })) => {
                self.conflict(&out, seq);
            }
            Outcome::Refused(refusal) => self.decline(out.path, refusal.as_str()),
        }
    }

    /// The relay does not take the file. It stays where it is, and the next run tries again.
    fn decline(&mut self, path: RelPath, why: &str) {
        self.report.refused.push(RefusedFile {
            path: Some(path.clone()),
            by: None,
            reason: why.to_owned(),
        });
        self.declined.insert(path);
    }

    fn accepted(&mut self, out: Outgoing, parts: Vec<Part>, seq: u64) {
        self.discard_parts(&out.path, &parts);
        self.end_upload(&out.path, &parts);
        let id = self.secret.record_id(&out.path);
        if self.view.state.refused.contains_key(&id) {
            self.view.record(StateOp::Unrefused(id));
        }
        match out.file {
            Some((name, content)) => {
                self.observer.see(Event::Pushed(&out.path));
                self.report.pushed.push(out.path.clone());
                self.agree_on(out.path, name, content, parts, seq);
            }
            None => {
                self.observer.see(Event::Deleted(&out.path));
                self.report.deleted.push(out.path.clone());
                self.view.set_grave(&out.path, seq);
            }
        }
    }

    fn agree_on(
        &mut self,
        path: RelPath,
        name: RelPath,
        content: Content,
        parts: Vec<Part>,
        seq: u64,
    ) {
        let file = self.view.local.get(&name);
        let base = Base {
            seq,
            content: Some(content),
            stamp: (file.filter(|file| file.content == content)).and_then(|file| file.stamp),
            local: Some(name).filter(|name| *name != path),
            parts,
            by: Some(self.device.as_str().into()),
        };
        self.view.set_base(path, base);
    }

    /// Supposes that the push was accepted.
    fn suppose(&mut self, out: Outgoing) {
        match out.file {
            Some((name, content)) => {
                self.report.pushed.push(out.path.clone());
                self.agree_on(out.path, name, content, Vec::new(), out.expect);
            }
            None => {
                self.report.deleted.push(out.path.clone());
                self.view.set_grave(&out.path, out.expect);
            }
        }
    }

    /// Another device was quicker: the next round pulls its version and keeps both.
    fn conflict(&mut self, out: &Outgoing, seq: u64) {
        let path = &out.path;
        if seq == 0 {
            // There is none, though we remember one: the relay has lost it.
            self.disagree(path);
            if self.view.state.graves.contains_key(path) {
                self.view.set_grave(path, 0);
            }
            self.again = true;
            return;
        }
        let met = (out.expect, seq);
        if self.conflicts.insert(path.clone(), met) == Some(met) {
            // It was pulled since and did not show: held back, or refused.
            self.given_up.insert(path.clone(), Blocked::Unseen);
        } else {
            self.again = true;
        }
    }
}
