//! Of several faults of one record the first is told (protocol, route 10).

use std::collections::HashMap;

use argala_core::{
    ports::store::{Counters, Graph, Push, PushedRecord, SignatureVerdict},
    rules::{PushDecision, PushView, push, push::Existing},
};
use argala_testkit::{EPOCH, device_ref, record_id};
use argala_wire::{
    Sealed,
    devices::DeviceRef,
    limits::Quotas,
    records::{PushReason, PushRecord, PushResult},
};
use proptest::prelude::*;

use crate::given::{Standing, caller, graph, key};

const EPOCH_NOW: u64 = 5;
const HEAD: u64 = 40;

/// Which faults a record has at once.
#[derive(Debug, Clone)]
struct Faults {
    too_large: bool,
    epoch: u64,
    not_holder: bool,
    signature: SignatureVerdict,
    conflict: bool,
    records: bool,
    bytes: bool,
}

fn faults() -> impl Strategy<Value = Faults> {
    let signature = prop::sample::select(vec![
        SignatureVerdict::Good,
        SignatureVerdict::Missing,
        SignatureVerdict::Invalid,
    ]);
    let epoch = prop::sample::select(vec![EPOCH_NOW - 1, EPOCH_NOW, EPOCH_NOW + 1]);
    (
        any::<bool>(),
        epoch,
        any::<bool>(),
        signature,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(too_large, epoch, not_holder, signature, conflict, records, bytes)| Faults {
                too_large,
                epoch,
                not_holder,
                signature,
                conflict,
                records,
                bytes,
            },
        )
}

/// What is there already under the record's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum There {
    Nothing,
    Tombstone,
    Same,
}

impl Faults {
    fn quotas(&self) -> Quotas {
        Quotas {
            max_record_bytes: if self.too_large { 9 } else { 10 },
            max_records_per_graph: 7,
            max_ciphertext_bytes_per_graph: 100,
            ..Quotas::default()
        }
    }

    fn graph(&self) -> Graph {
        Graph {
            counters: Counters {
                records: if self.records { 7 } else { 6 },
                tombstones: 1,
                ciphertext_bytes: if self.bytes { 91 } else { 90 },
                blob_bytes: 0,
            },
            ..graph(EPOCH_NOW, HEAD)
        }
    }

    fn record(&self, there: There) -> PushRecord {
        let seq = if there == There::Nothing { 0 } else { 12 };
        PushRecord {
            id: record_id("r"),
            epoch: self.epoch,
            ciphertext: Sealed(vec![1; 10]),
            sig: None,
            deleted: false,
            expect: Some(if self.conflict { 13 } else { seq }),
        }
    }

    fn existing(&self, there: There, by: &DeviceRef) -> Option<Existing> {
        let tombstone = Existing {
            seq: 12,
            epoch: 1,
            by: device_ref("alex", "phone"),
            deleted: true,
            bytes: 0,
            same_ciphertext: false,
        };
        match there {
            There::Nothing => None,
            There::Tombstone => Some(tombstone),
            There::Same => Some(Existing {
                epoch: self.epoch,
                by: by.clone(),
                deleted: false,
                bytes: 10,
                same_ciphertext: true,
                ..tombstone
            }),
        }
    }

    fn told(&self, there: There) -> PushResult {
        let id = record_id("r");
        if there == There::Same {
            return PushResult::Accepted { id, seq: 12 };
        }
        let seq = if there == There::Nothing { 0 } else { 12 };
        let order = [
            (self.too_large, PushReason::RecordTooLarge { limit: 9 }),
            (
                self.epoch < EPOCH_NOW,
                PushReason::StaleEpoch { epoch: EPOCH_NOW },
            ),
            (
                self.epoch > EPOCH_NOW,
                PushReason::UnknownEpoch { epoch: EPOCH_NOW },
            ),
            (self.not_holder, PushReason::NotHolder),
            (
                self.signature == SignatureVerdict::Missing,
                PushReason::SignatureMissing,
            ),
            (
                self.signature == SignatureVerdict::Invalid,
                PushReason::SignatureInvalid,
            ),
            (self.conflict, PushReason::Conflict { seq }),
            (self.records, PushReason::QuotaRecords { limit: 7 }),
            (self.bytes, PushReason::QuotaBytes { limit: 100 }),
        ];
        match order.into_iter().find(|(applies, _)| *applies) {
            Some((_, reason)) => PushResult::Rejected { id, reason },
            None => PushResult::Accepted { id, seq: HEAD + 1 },
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]
    #[test]
    fn the_first_in_order_is_told(
        faults in faults(),
        there in prop::sample::select(vec![There::Nothing, There::Tombstone, There::Same]),
    ) {
        let by = caller().to_ref();
        let request = Push {
            key: key(),
            by: by.clone(),
            records: vec![PushedRecord { record: faults.record(there), signature: faults.signature }],
            if_head: None,
            atomic: false,
            idempotency: None,
            now: EPOCH,
            quotas: faults.quotas(),
        };
        let existing: HashMap<_, _> = faults.existing(there, &by).into_iter()
            .map(|existing| (record_id("r"), existing))
            .collect();
        let (graph, row) = (faults.graph(), Standing::Active.row(&caller()));
        let decision = push(&request, PushView {
            caller: row.as_ref(),
            graph: Some(&graph),
            holds_current: !faults.not_holder,
            existing: &existing,
            replay: None,
        }).unwrap();
        let PushDecision::Write { writes, graph: after, outcome } = decision else {
            panic!("nothing was pushed before");
        };
        let told = faults.told(there);
        let accepted = u64::from(matches!(told, PushResult::Accepted { .. }));
        prop_assert_eq!(&outcome.answer.results, &[told]);
        prop_assert_eq!(outcome.answer.accepted, accepted);
        prop_assert_eq!(outcome.answer.rejected, 1 - accepted);
        // What is refused and what is the same leave no trace.
        let written = accepted == 1 && there != There::Same;
        prop_assert_eq!(writes.len(), usize::from(written));
        prop_assert_eq!(outcome.changed, written);
        prop_assert_eq!(after == graph, !written);
        prop_assert_eq!(outcome.answer.head, HEAD + u64::from(written));
    }
}

/// Each part of "the same content" alone makes it another.
#[test]
fn same_content_is_id_epoch_ciphertext_flag_and_device() {
    let by = caller().to_ref();
    let same = Existing {
        seq: 12,
        epoch: EPOCH_NOW,
        by: by.clone(),
        deleted: false,
        bytes: 3,
        same_ciphertext: true,
    };
    let others = [
        Existing {
            epoch: EPOCH_NOW - 1,
            ..same.clone()
        },
        Existing {
            by: device_ref("sam", "phone"),
            ..same.clone()
        },
        Existing {
            by: device_ref("alex", "laptop"),
            ..same.clone()
        },
        Existing {
            deleted: true,
            ..same.clone()
        },
        Existing {
            same_ciphertext: false,
            ..same.clone()
        },
    ];
    let pushed_onto = |there: &Existing| {
        let record = PushRecord {
            id: record_id("r"),
            epoch: EPOCH_NOW,
            ciphertext: Sealed(vec![1; 3]),
            sig: None,
            deleted: false,
            expect: None,
        };
        let request = Push {
            key: key(),
            by: by.clone(),
            records: vec![PushedRecord {
                record,
                signature: SignatureVerdict::Good,
            }],
            if_head: None,
            atomic: false,
            idempotency: None,
            now: EPOCH,
            quotas: Quotas::default(),
        };
        let (graph, row) = (
            Graph {
                counters: Counters {
                    records: 1,
                    tombstones: 1,
                    ciphertext_bytes: 3,
                    blob_bytes: 0,
                },
                ..graph(EPOCH_NOW, HEAD)
            },
            Standing::Active.row(&caller()),
        );
        let decision = push(
            &request,
            PushView {
                caller: row.as_ref(),
                graph: Some(&graph),
                holds_current: true,
                existing: &HashMap::from([(record_id("r"), there.clone())]),
                replay: None,
            },
        )
        .unwrap();
        match decision {
            PushDecision::Write { writes, .. } => writes.len(),
            PushDecision::Replay(_) => panic!("nothing was pushed before"),
        }
    };
    assert_eq!(pushed_onto(&same), 0);
    for other in others {
        assert_eq!(pushed_onto(&other), 1, "{other:?}");
    }
}
