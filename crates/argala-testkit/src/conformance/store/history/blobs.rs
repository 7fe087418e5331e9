//! Uploads and sweeps.

use argala_core::{
    Fault,
    ports::{
        Store, SweepStore,
        store::{CommitBlob, Committed, Doomed, ForgetBlob, ReserveBlob},
    },
};
use argala_wire::{BlobId, blobs::BlobPolicy};

use super::History;
use crate::{blob_id, conformance::store::at};

impl History {
    pub(super) fn blob_id(&self) -> BlobId {
        blob_id(&format!("blob{}", self.random.below(3)))
    }

    pub(super) async fn reserve(&mut self) {
        let expires = self.random.one_in(2);
        let request = ReserveBlob {
            key: self.graph(),
            id: self.blob_id(),
            by: self.device().to_ref(),
            object: self.scene.object(),
            size: self.random.below(30),
            policy: if expires {
                BlobPolicy::Expire
            } else {
                BlobPolicy::Keep
            },
            expires_at: expires.then(|| at(self.now + 1 + self.random.below(200))),
            now: self.at(),
            max_bytes_per_graph: 60,
        };
        self.objects
            .push((request.key.clone(), request.object.clone()));
        self.uploads.push(CommitBlob {
            key: request.key.clone(),
            object: request.object.clone(),
            by: request.by.clone(),
            sha256: [self.random.below(2) as u8; 32],
            now: self.at(),
        });
        let got = self.scene.store().reserve_blob(request.clone()).await;
        let wanted = self.reference.reserve_blob(request).await;
        let _ = self.same("reserve", got, wanted);
    }

    pub(super) async fn commit(&mut self) {
        if self.uploads.is_empty() {
            return;
        }
        let at = self.random.below(self.uploads.len() as u64) as usize;
        let mut request = self.uploads[at].clone();
        request.now = self.at();
        let got = self.scene.store().commit_blob(request.clone()).await;
        let wanted = self.reference.commit_blob(request.clone()).await;
        if let Ok(Committed::Live(blob)) = self.same("commit", got, wanted) {
            self.live.push(blob.object);
        }
    }

    pub(super) async fn abandon(&mut self) {
        let Some((key, object)) = self.objects.last().cloned() else {
            return;
        };
        let got = self.scene.store().abandon_blob(&key, &object).await;
        let wanted = self.reference.abandon_blob(&key, &object).await;
        let _ = self.same(
            "abandon",
            got.map_err(Fault::from),
            wanted.map_err(Fault::from),
        );
    }

    pub(super) async fn fetch(&mut self) {
        if self.objects.is_empty() {
            return;
        }
        let (key, object) = self.random.pick(&self.objects).clone();
        let device = self.device().to_ref();
        // Only a blob that is live is ever fetched.
        if !self.live.contains(&object) {
            return;
        }
        let got = self
            .scene
            .store()
            .note_fetched(&key, &object, &device)
            .await;
        let wanted = self.reference.note_fetched(&key, &object, &device).await;
        let _ = self.same(
            "fetch",
            got.map_err(Fault::from),
            wanted.map_err(Fault::from),
        );
        let got = self.scene.store().fetched_by(&key, &object).await;
        let wanted = self.reference.fetched_by(&key, &object).await;
        let _ = self.same(
            "fetched",
            got.map_err(Fault::from),
            wanted.map_err(Fault::from),
        );
    }

    pub(super) async fn forget(&mut self) {
        let request = ForgetBlob {
            key: self.graph(),
            id: self.blob_id(),
            by: self.device().to_ref(),
            now: self.at(),
        };
        let got = self.scene.store().forget_blob(request.clone()).await;
        let wanted = self.reference.forget_blob(request).await;
        let _ = self.same("forget", got, wanted);
    }

    pub(super) async fn sweep(&mut self) {
        let pending_before = at(self.now.saturating_sub(100));
        let later = at(self.now + 1);
        let got = self
            .scene
            .store()
            .doom_blobs(self.at(), pending_before, later, 999)
            .await;
        let wanted = self
            .reference
            .doom_blobs(self.at(), pending_before, later, 999)
            .await;
        let objects = |doomed: Vec<Doomed>| {
            let mut objects: Vec<_> = doomed
                .into_iter()
                .map(|doomed| (doomed.graph, doomed.object))
                .collect();
            objects.sort();
            objects
        };
        let (got, wanted) = (got.map(objects), wanted.map(objects));
        let doomed = self.same(
            "doom",
            got.map_err(Fault::from),
            wanted.map_err(Fault::from),
        );
        for (key, object) in doomed.expect("nothing refuses a sweep") {
            self.live.retain(|live| *live != object);
            if self.random.one_in(3) {
                continue;
            }
            for _ in 0..2 {
                let got = self.scene.store().drop_blob(&key, &object).await;
                let wanted = self.reference.drop_blob(&key, &object).await;
                let _ = self.same(
                    "drop",
                    got.map_err(Fault::from),
                    wanted.map_err(Fault::from),
                );
            }
        }
        let before = at(self.now.saturating_sub(250));
        let got = self.scene.store().drop_idempotency(before, 999).await;
        let wanted = self.reference.drop_idempotency(before, 999).await;
        let _ = self.same(
            "drop keys",
            got.map_err(Fault::from),
            wanted.map_err(Fault::from),
        );
    }
}
