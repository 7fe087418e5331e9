//! The rows of blobs.

use std::collections::BTreeSet;

use argala_core::{
    Rejection,
    ports::{
        ForgetReason, ObjectKey,
        store::{
            Abandoned, Blob, CommitBlob, Committed, Doomed, ForgetBlob, ReserveBlob, Reserved,
        },
    },
    rules::{
        self,
        blob::{Commitment, Reservation},
    },
};
use argala_wire::{BlobId, StorageKey, Timestamp, blobs::BlobPolicy, devices::DeviceRef};

use super::State;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Pending,
    Live,
    Forgetting { at: Timestamp, reason: ForgetReason },
}

/// A blob's row; its hash is not yet true while it is pending.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) blob: Blob,
    stage: Stage,
    reserved_at: Timestamp,
    pub(super) fetched: BTreeSet<DeviceRef>,
    /// When it is to be looked at again; `None` until somebody has fetched it.
    pub(super) look_at: Option<Timestamp>,
}

impl Row {
    pub(super) fn counts_for(&self, graph: &StorageKey) -> bool {
        self.blob.graph == *graph && !matches!(self.stage, Stage::Forgetting { .. })
    }

    pub(super) fn size(&self) -> u64 {
        self.blob.size
    }

    pub(super) fn is_live_somewhere(&self) -> bool {
        self.stage == Stage::Live
    }

    pub(super) const fn forgotten(&self) -> Option<ForgetReason> {
        match self.stage {
            Stage::Forgetting { reason, .. } => Some(reason),
            Stage::Pending | Stage::Live => None,
        }
    }

    pub(super) fn forgotten_before(&self, now: Timestamp) -> Option<ForgetReason> {
        match self.stage {
            Stage::Forgetting { at, reason } if at < now => Some(reason),
            _ => None,
        }
    }

    pub(super) fn put_off(&mut self, now: Timestamp) {
        if let Stage::Forgetting { at, .. } = &mut self.stage {
            *at = (*at).max(now);
        }
    }

    fn is_live(&self, graph: &StorageKey, id: &BlobId) -> bool {
        self.stage == Stage::Live && self.blob.graph == *graph && self.blob.id == *id
    }
}

impl State {
    pub(super) fn live_blob(&self, graph: &StorageKey, id: &BlobId) -> Option<Blob> {
        let row = self.blobs.values().find(|row| row.is_live(graph, id))?;
        Some(row.blob.clone())
    }

    fn row(&self, graph: &StorageKey, object: &ObjectKey) -> Option<&Row> {
        let row = self.blobs.get(object);
        row.filter(|row| row.blob.graph == *graph)
    }

    pub(super) fn forget(&mut self, object: &ObjectKey, at: Timestamp, reason: ForgetReason) {
        let row = self.blobs.get_mut(object).expect("it was just there");
        row.stage = Stage::Forgetting { at, reason };
        let shelf = self.graphs.get_mut(&row.blob.graph);
        let shelf = shelf.expect("a graph that goes takes its blobs along");
        shelf.graph.counters.blob_bytes -= row.blob.size;
    }

    pub(super) fn reserve_blob(&mut self, request: ReserveBlob) -> Result<Reserved, Rejection> {
        let live = self.live_blob(&request.key, &request.id);
        let shelf = self.graphs.get(&request.key);
        let decision = rules::blob::reserve(
            &request,
            self.devices.get(&request.by),
            shelf.map(|shelf| &shelf.graph),
            live.as_ref(),
        )?;
        if let Reservation::Exists(blob) = decision {
            return Ok(Reserved::Exists(blob));
        }
        if let Some(expired) = live {
            self.forget(&expired.object, request.now, ForgetReason::Expired);
        }
        let shelf = self.graphs.get_mut(&request.key).expect("the rule saw it");
        shelf.graph.counters.blob_bytes += request.size;
        let row = Row {
            blob: Blob {
                graph: request.key,
                id: request.id,
                object: request.object.clone(),
                size: request.size,
                sha256: [0; 32],
                policy: request.policy,
                expires_at: request.expires_at,
                by: request.by,
            },
            stage: Stage::Pending,
            reserved_at: request.now,
            fetched: BTreeSet::new(),
            look_at: None,
        };
        self.blobs.insert(request.object, row);
        Ok(Reserved::Pending)
    }

    pub(super) fn commit_blob(&mut self, request: &CommitBlob) -> Committed {
        let pending = match self.row(&request.key, &request.object) {
            Some(row) if row.stage == Stage::Pending => row,
            Some(row) if row.stage == Stage::Live => return Committed::Live(row.blob.clone()),
            _ => return Committed::Gone,
        };
        let live = self.live_blob(&pending.blob.graph, &pending.blob.id);
        let (expired, live) = match live {
            Some(blob) if blob.is_expired(request.now) => (Some(blob), None),
            live => (None, live),
        };
        let caller = self.devices.get(&request.by);
        let decision = rules::blob::commit(caller, &request.sha256, live.as_ref());
        if decision != Commitment::Live {
            self.forget(&request.object, request.now, ForgetReason::Orphaned);
        }
        match (decision, live) {
            (Commitment::Revoked, _) => Committed::Revoked,
            (Commitment::Same, Some(live)) => Committed::Same(live),
            (Commitment::Same | Commitment::Differs, _) => Committed::Differs,
            (Commitment::Live, _) => {
                if let Some(expired) = expired {
                    self.forget(&expired.object, request.now, ForgetReason::Expired);
                }
                let row = self.blobs.get_mut(&request.object);
                let row = row.expect("it was just there");
                row.stage = Stage::Live;
                row.blob.sha256 = request.sha256;
                Committed::Live(row.blob.clone())
            }
        }
    }

    pub(super) fn abandon_blob(&mut self, graph: &StorageKey, object: &ObjectKey) -> Abandoned {
        match self.row(graph, object) {
            Some(row) if row.stage == Stage::Live => return Abandoned::Live,
            Some(row) if row.stage == Stage::Pending => {
                let at = row.reserved_at;
                self.forget(object, at, ForgetReason::Orphaned);
            }
            Some(row)
                if !matches!(
                    row.stage,
                    Stage::Forgetting {
                        reason: ForgetReason::Orphaned,
                        ..
                    }
                ) =>
            {
                return Abandoned::Forgotten;
            }
            _ => {}
        }
        Abandoned::LetGo
    }

    pub(super) fn forget_blob(&mut self, request: &ForgetBlob) -> Result<Option<Blob>, Rejection> {
        rules::active(self.devices.get(&request.by))?;
        let live = self.live_blob(&request.key, &request.id);
        let live = live.filter(|blob| !blob.is_expired(request.now));
        if let Some(blob) = &live {
            self.forget(&blob.object, request.now, ForgetReason::Requested);
        }
        Ok(live)
    }

    pub(super) fn note_fetched(
        &mut self,
        graph: &StorageKey,
        object: &ObjectKey,
        device: &DeviceRef,
    ) {
        if let Some(row) = self.blobs.get_mut(object)
            && row.blob.graph == *graph
            && row.stage == Stage::Live
            && row.blob.policy == BlobPolicy::Deliver
            && row.fetched.insert(device.clone())
        {
            row.look_at = Some(Timestamp::from_millis(0));
        }
    }

    pub(super) fn fetched_by(&self, graph: &StorageKey, object: &ObjectKey) -> Vec<DeviceRef> {
        self.row(graph, object)
            .map_or_else(Vec::new, |row| row.fetched.iter().cloned().collect())
    }

    pub(super) fn drop_blob(&mut self, graph: &StorageKey, object: &ObjectKey) -> bool {
        let row = self.row(graph, object);
        let forgetting = row.is_some_and(|row| matches!(row.stage, Stage::Forgetting { .. }));
        forgetting && self.blobs.remove(object).is_some()
    }

    fn due(
        &self,
        now: Timestamp,
        pending_before: Timestamp,
        limit: usize,
    ) -> Vec<(ObjectKey, ForgetReason)> {
        let due = |row: &Row| match row.stage {
            Stage::Pending if row.reserved_at < pending_before => Some(ForgetReason::Orphaned),
            Stage::Live if row.blob.is_expired(now) => Some(ForgetReason::Expired),
            _ => None,
        };
        self.blobs
            .iter()
            .filter_map(|(object, row)| Some((object.clone(), due(row)?)))
            .take(limit)
            .collect()
    }

    pub(super) fn peek_blobs(
        &self,
        now: Timestamp,
        pending_before: Timestamp,
        forgetting_before: Timestamp,
        limit: usize,
    ) -> Vec<Doomed> {
        let doomed = |object: &ObjectKey, reason| Doomed {
            graph: self.blobs[object].blob.graph.clone(),
            object: object.clone(),
            reason,
        };
        let due = self.due(now, pending_before, limit);
        let due = due.iter().map(|(object, reason)| doomed(object, *reason));
        let left = self.blobs.iter().filter_map(|(object, row)| {
            let Stage::Forgetting { at, reason } = row.stage else {
                return None;
            };
            (at < forgetting_before).then(|| doomed(object, reason))
        });
        due.chain(left).take(limit).collect()
    }

    pub(super) fn doom_blobs(
        &mut self,
        now: Timestamp,
        pending_before: Timestamp,
        forgetting_before: Timestamp,
        limit: usize,
    ) -> Vec<Doomed> {
        let due = self.due(now, pending_before, limit);
        for (object, reason) in &due {
            self.forget(object, now, *reason);
        }
        let marked = |object: &ObjectKey| due.iter().any(|(marked, _)| marked == object);
        let told = self.blobs.iter().filter_map(|(object, row)| {
            let Stage::Forgetting { at, reason } = row.stage else {
                return None;
            };
            (at < forgetting_before || marked(object)).then(|| Doomed {
                graph: row.blob.graph.clone(),
                object: object.clone(),
                reason,
            })
        });
        told.take(limit).collect()
    }
}
