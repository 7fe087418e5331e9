//! Records.

use std::collections::BTreeMap;

use argala_core::ports::{
    Store,
    store::{Idempotency, Pull, Pulled, Push, PushedRecord, SignatureVerdict},
};
use argala_wire::{
    Sealed,
    limits::{Pages, Quotas},
    records::PushRecord,
};

use super::History;
use crate::conformance::store::at;

impl History {
    pub(super) fn records(&self, epoch: u64) -> Vec<PushedRecord> {
        let mut records = BTreeMap::new();
        for _ in 0..self.random.below(7) {
            let id = format!("r{}", self.random.below(10));
            let size = self.random.below(6) as usize;
            let deleted = size == 0 || self.random.one_in(4);
            let record = PushRecord {
                id: crate::record_id(&id),
                epoch: if self.random.one_in(9) {
                    self.random.below(epoch + 2)
                } else {
                    epoch
                },
                ciphertext: Sealed(vec![self.random.below(2) as u8; size]),
                sig: self
                    .random
                    .one_in(2)
                    .then(|| Sealed(vec![self.random.below(9) as u8; 64])),
                deleted,
                expect: self.random.one_in(4).then(|| self.random.below(12)),
            };
            let signature = if self.random.one_in(12) {
                SignatureVerdict::Invalid
            } else {
                SignatureVerdict::Good
            };
            records.insert(id, PushedRecord { record, signature });
        }
        records.into_values().collect()
    }

    pub(super) async fn push(&mut self) {
        let repeated = self.keyed.clone().filter(|_| self.random.one_in(8));
        let request = match repeated {
            Some(mut request) => {
                if self.random.one_in(3)
                    && let Some(idempotency) = &mut request.idempotency
                {
                    idempotency.body = [99; 32];
                }
                request.now = self.at();
                request
            }
            None => self.new_push().await,
        };
        let got = self.scene.store().push(request.clone()).await;
        let wanted = self.reference.push(request.clone()).await;
        if self.same("push", got, wanted).is_ok() && request.idempotency.is_some() {
            self.keyed = Some(request);
        }
    }

    pub(super) async fn new_push(&self) -> Push {
        let key = self.graph();
        let graph = self.reference.graph(&key).await.expect("it does not fail");
        let (epoch, head) = graph.map_or((0, 0), |graph| (graph.epoch, graph.head));
        Push {
            key,
            by: self.device().to_ref(),
            records: self.records(epoch),
            if_head: self.random.one_in(5).then(|| head + self.random.below(2)),
            atomic: self.random.one_in(5),
            idempotency: self.random.one_in(4).then(|| Idempotency {
                key: format!("k{}", self.random.below(4)),
                body: [self.random.below(3) as u8; 32],
                since: at(self.now.saturating_sub(300)),
            }),
            now: self.at(),
            quotas: Quotas {
                max_records_per_graph: 5,
                max_ciphertext_bytes_per_graph: 20,
                max_record_bytes: 5,
                ..Quotas::default()
            },
        }
    }

    pub(super) async fn pull(&mut self) {
        let mut request = Pull {
            key: self.graph(),
            device: self.device().to_ref(),
            cursor: None,
            limit: 1 + self.random.below(4) as usize,
            epoch: self.random.one_in(3).then(|| 1 + self.random.below(5)),
            variant: "json",
            known: Vec::new(),
            pages: Pages {
                max_pull_bytes: 4 + self.random.below(10),
                max_filtered: 1 + self.random.below(4),
                ..Pages::default()
            },
        };
        for _ in 0..50 {
            let got = self.scene.store().pull(request.clone()).await;
            let wanted = self.reference.pull(request.clone()).await;
            let Ok(Pulled::Page(page)) = self.same("pull", got, wanted) else {
                return;
            };
            if self.random.one_in(9) {
                request.known = vec![page.tag.clone()];
            } else {
                request.cursor = Some(page.page.cursor);
                if !page.page.more {
                    return;
                }
            }
        }
        panic!("the walk does not end");
    }
}
