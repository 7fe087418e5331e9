//! The engine's way down, first half: pulling page by page, and what a walk over the whole graph
//! does not show.

use std::collections::BTreeSet;

use argala_wire::RecordId;

use super::{
    engine::Run,
    error::SyncError,
    incoming::Incoming,
    path::RelPath,
    payload::{self, Bytes},
    plan::Change,
    remote::{Page, Remote, Start},
    report::Event,
    state::{Folder, RefusedRecord, StateOp, StateStore},
    tree::FileTree,
};
use crate::Refusal;

/// A walk over the whole graph, at whose end it is known what the graph no longer has.
struct Walk {
    /// Whether it is the first of all: there is nothing yet that the graph could have lost.
    first: bool,
    /// Whether the relay may have fallen back to an earlier time.
    unsure: bool,
    /// Whether the same goes for what is *not* there: also where no cursor proves the contrary.
    doubtful: bool,
    seen: BTreeSet<RelPath>,
    /// Records that are there but say nothing.
    mute: BTreeSet<RecordId>,
    folder: bool,
    held_back: u64,
}

impl<T: FileTree, R: Remote, S: StateStore> Run<'_, T, R, S> {
    /// Pulls to the end of the graph, one page in memory at a time.
    pub(super) async fn pull_all(&mut self) -> Result<(), SyncError> {
        let mut position = self.view.state.position.clone();
        let mut walk: Option<Walk> = None;
        let mut settled = true;
        self.report.held_back = 0;
        self.report.other_records = 0;
        loop {
            let page = self.remote.pull(&position).await?;
            let from_start = position.is_start();
            position = page.pulled.position.clone();
            self.behind = page.pulled.behind;
            self.report.held_back += page.pulled.filtered;
            if page.start != Start::No {
                walk = Some(self.begin_walk(page.start, from_start));
            }
            if let Some(walk) = &mut walk {
                walk.held_back += page.pulled.filtered;
            }
            let more = page.pulled.more;
            for incoming in self.read_page(page, walk.as_mut())? {
                settled &= self.take(incoming).await?;
            }
            // A change that could not be carried out must come again, and a walk that is to show
            // what is gone is of use only whole.
            if settled && walk.as_ref().is_none_or(|walk| walk.first) {
                self.view.record(StateOp::Position(position.clone()));
            }
            self.flush(false)?;
            if !more {
                break;
            }
        }
        if let Some(walk) = walk {
            settled &= self.end_walk(walk).await?;
            if settled {
                self.view.record(StateOp::Position(position));
            }
        }
        self.flush(true)
    }

    fn begin_walk(&self, start: Start, from_start: bool) -> Walk {
        let state = &self.view.state;
        Walk {
            first: state.position.is_start() && state.base.is_empty() && state.graves.is_empty(),
            unsure: start == Start::Unsure,
            doubtful: start == Start::Unsure || from_start,
            seen: BTreeSet::new(),
            mute: BTreeSet::new(),
            folder: false,
            held_back: 0,
        }
    }

    /// Reads the records of a page. Deletions first: they make room.
    fn read_page(
        &mut self,
        page: Page,
        mut walk: Option<&mut Walk>,
    ) -> Result<Vec<Incoming>, SyncError> {
        let pulled = page.pulled;
        let mut changes = Vec::new();
        let seq = pulled.items.last().map_or(pulled.head, |item| item.seq);
        for item in pulled.items {
            if item.kind == payload::folder_kind() {
                if item.id == payload::folder_id() {
                    let doubtful = walk.as_ref().is_some_and(|walk| walk.doubtful);
                    let body = (!item.deleted).then_some(item.body.as_slice());
                    self.check_folder(item.seq, body, doubtful)?;
                    if let Some(walk) = walk.as_deref_mut() {
                        walk.folder = true;
                    }
                }
                continue;
            }
            if item.kind != payload::file_kind() {
                // The session may have declared more kinds than a folder's.
                if let Some(walk) = walk.as_deref_mut() {
                    walk.mute.insert(item.id.clone());
                }
                self.report.other_records += 1;
                continue;
            }
            match payload::decode_file(&self.secret, &item.id, item.deleted, &item.body) {
                Err(fault) => {
                    if let Some(walk) = walk.as_deref_mut() {
                        walk.mute.insert(item.id.clone());
                    }
                    self.refuse(
                        item.id,
                        item.seq,
                        item.by.device_id.as_str(),
                        fault.as_str(),
                    );
                }
                Ok(record) => {
                    if let Some(walk) = walk.as_deref_mut() {
                        walk.seen.insert(record.path.clone());
                    }
                    if self.view.state.refused.contains_key(&item.id) {
                        self.view.record(StateOp::Unrefused(item.id.clone()));
                    }
                    let (content, bytes) = match record.file {
                        Some((content, bytes)) => (Some(content), bytes),
                        None => (None, Bytes::Parts(Vec::new())),
                    };
                    changes.push(Incoming {
                        change: Change {
                            path: record.path,
                            seq: item.seq,
                            by: item.by.device_id.as_str().into(),
                            content,
                            unsure: walk.as_ref().is_some_and(|walk| walk.unsure),
                        },
                        own: self.remote.is_own(&item.by),
                        bytes,
                    });
                }
            }
        }
        for refused in pulled.refused {
            if let Some(walk) = walk.as_deref_mut() {
                walk.mute.insert(refused.id.clone());
            }
            if refused.why == Refusal::UndeclaredKind {
                // Another application's, which may well share the graph.
                self.report.other_records += 1;
            } else {
                let by = refused.by.device_id.as_str();
                self.refuse(refused.id, refused.seq, by, refused.why.as_str());
            }
        }
        self.observer.see(Event::Pulled {
            changes: changes.len(),
            seq,
            head: pulled.head,
        });
        changes.sort_by(|one, other| {
            let key = |incoming: &Incoming| incoming.change.content.is_some();
            key(one)
                .cmp(&key(other))
                .then_with(|| one.change.path.cmp(&other.change.path))
        });
        Ok(changes)
    }

    /// Compares the folder's record with what is known; `None` is its tombstone.
    fn check_folder(
        &mut self,
        seq: u64,
        body: Option<&[u8]>,
        doubtful: bool,
    ) -> Result<(), SyncError> {
        let Some(body) = body else {
            self.folder_is_lost(Some(seq));
            return Ok(());
        };
        let secret = payload::decode_folder(body).ok_or(SyncError::Newer)?;
        if secret == self.secret {
            self.folder_is_lost(None);
            return Ok(());
        }
        let lost = (self.view.state.folder.as_ref()).is_some_and(|folder| folder.lost.is_some());
        if doubtful || lost {
            // The relay fell back to before our record was made, and somebody made another.
            self.replaced_by = Some(secret);
        }
        Err(SyncError::FolderReplaced)
    }

    pub(super) fn folder_is_lost(&mut self, lost: Option<u64>) {
        if let Some(folder) = self.view.state.folder.clone()
            && folder.lost != lost
        {
            self.view.record(StateOp::Folder(Folder { lost, ..folder }));
        }
    }

    pub(super) fn refuse(&mut self, id: RecordId, seq: u64, by: &str, why: &str) {
        let refused = RefusedRecord {
            seq,
            by: by.into(),
            why: why.into(),
        };
        if self.view.state.refused.get(&id) != Some(&refused) {
            self.view.record(StateOp::Refused(id, refused));
        }
    }

    /// The graph was walked from its start to its end: what it did not show, it does not have.
    async fn end_walk(&mut self, walk: Walk) -> Result<bool, SyncError> {
        if walk.held_back > 0 {
            // Anything may be among what was held back.
            return Ok(true);
        }
        if !walk.folder {
            self.folder_is_lost(Some(0));
        }
        if walk.first {
            return Ok(true);
        }
        let state = &self.view.state;
        let unseen = |path: &&RelPath| {
            !walk.seen.contains(*path) && !walk.mute.contains(&self.secret.record_id(path))
        };
        let graves: Vec<RelPath> = state.graves.keys().filter(unseen).cloned().collect();
        let bases: Vec<RelPath> = state.base.keys().filter(unseen).cloned().collect();
        for path in graves {
            self.view.set_grave(&path, 0);
        }
        let mut settled = true;
        for path in bases {
            if walk.doubtful {
                self.disagree(&path);
                continue;
            }
            let incoming = Incoming {
                change: Change {
                    path,
                    seq: 0,
                    by: "".into(),
                    content: None,
                    unsure: false,
                },
                bytes: Bytes::Parts(Vec::new()),
                own: false,
            };
            settled &= self.take(incoming).await?;
        }
        Ok(settled)
    }
}
