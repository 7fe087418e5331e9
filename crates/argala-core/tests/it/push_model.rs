//! Random sequences of pushes against a model of a graph that is written the other way round: it
//! holds whole records and adds them up anew each time, where the rule charges differences.

use std::collections::{BTreeMap, HashMap};

use argala_core::{
    Rejection,
    ports::store::{Counters, Graph, Push, PushedRecord, SignatureVerdict},
    rules::{PushDecision, PushView, push, push::Existing},
};
use argala_testkit::{EPOCH, TestDevice, record_id};
use argala_wire::{
    RecordId, Sealed,
    devices::DeviceRef,
    limits::Quotas,
    records::{PushReason, PushRecord, PushResult},
};
use proptest::prelude::*;

use crate::given::{graph, key};

#[derive(Debug, Clone)]
struct Row {
    seq: u64,
    epoch: u64,
    by: DeviceRef,
    deleted: bool,
    ciphertext: Vec<u8>,
}

#[derive(Debug, Clone, Default)]
struct Model {
    head: u64,
    rows: BTreeMap<String, Row>,
}

impl Model {
    fn sums(&self) -> Counters {
        let tombstones = self.rows.values().filter(|row| row.deleted).count() as u64;
        Counters {
            records: self.rows.len() as u64 - tombstones,
            tombstones,
            ciphertext_bytes: self
                .rows
                .values()
                .map(|row| row.ciphertext.len() as u64)
                .sum(),
            blob_bytes: 0,
        }
    }

    fn seq(&self, id: &str) -> u64 {
        self.rows.get(id).map_or(0, |row| row.seq)
    }

    fn is_same(&self, record: &PushRecord, by: &DeviceRef) -> bool {
        self.rows.get(record.id.as_str()).is_some_and(|row| {
            row.epoch == record.epoch
                && row.by == *by
                && row.deleted == record.deleted
                && row.ciphertext == record.ciphertext.0
        })
    }

    fn with(&self, record: &PushRecord, by: &DeviceRef) -> Self {
        let mut after = self.clone();
        after.head += 1;
        let row = Row {
            seq: after.head,
            epoch: record.epoch,
            by: by.clone(),
            deleted: record.deleted,
            ciphertext: record.ciphertext.0.clone(),
        };
        after.rows.insert(record.id.as_str().to_owned(), row);
        after
    }

    fn quota_fault(&self, after: &Self, quotas: &Quotas) -> Option<PushReason> {
        let (was, is) = (self.sums(), after.sums());
        let limit = quotas.max_records_per_graph;
        let is_new = after.rows.len() > self.rows.len();
        if (is.records > was.records && is.records > limit)
            || (is_new && after.rows.len() as u64 > 2 * limit)
        {
            return Some(PushReason::QuotaRecords { limit });
        }
        let limit = quotas.max_ciphertext_bytes_per_graph;
        (is.ciphertext_bytes > was.ciphertext_bytes && is.ciphertext_bytes > limit)
            .then_some(PushReason::QuotaBytes { limit })
    }

    /// The verdict on one record, and the graph after it.
    fn take(&self, request: &Push, pushed: &PushedRecord, current: u64) -> (PushResult, Self) {
        let record = &pushed.record;
        let id = record.id.clone();
        if self.is_same(record, &request.by) {
            let seq = self.seq(id.as_str());
            return (PushResult::Accepted { id, seq }, self.clone());
        }
        let after = self.with(record, &request.by);
        let seq = self.seq(id.as_str());
        let reason = if record.epoch < current {
            Some(PushReason::StaleEpoch { epoch: current })
        } else if record.epoch > current {
            Some(PushReason::UnknownEpoch { epoch: current })
        } else if pushed.signature == SignatureVerdict::Invalid {
            Some(PushReason::SignatureInvalid)
        } else if record.expect.is_some_and(|expect| expect != seq) {
            Some(PushReason::Conflict { seq })
        } else {
            self.quota_fault(&after, &request.quotas)
        };
        match reason {
            Some(reason) => (PushResult::Rejected { id, reason }, self.clone()),
            None => {
                let seq = after.head;
                (PushResult::Accepted { id, seq }, after)
            }
        }
    }

    fn push(&self, request: &Push, current: u64) -> Result<(Vec<PushResult>, Self), Rejection> {
        let all_same = request
            .records
            .iter()
            .all(|pushed| self.is_same(&pushed.record, &request.by));
        if request.if_head.is_some_and(|head| head != self.head) && !all_same {
            return Err(Rejection::HeadMoved { head: self.head });
        }
        let mut after = self.clone();
        let mut results = Vec::new();
        for pushed in &request.records {
            let (result, next) = after.take(request, pushed, current);
            results.push(result);
            after = next;
        }
        let is_bad = |result: &PushResult| matches!(result, PushResult::Rejected { .. });
        if request.atomic && results.iter().any(is_bad) {
            let acceptable = |result| match result {
                PushResult::Accepted { id, .. } => PushResult::Acceptable { id },
                other => other,
            };
            return Err(Rejection::PushRejected {
                results: results.into_iter().map(acceptable).collect(),
            });
        }
        Ok((results, after))
    }
}

#[derive(Debug, Clone)]
struct Sent {
    id: u8,
    stale: bool,
    signed: bool,
    deleted: bool,
    bytes: usize,
    /// 0: nothing is expected; 1: what is there; 2: something else.
    expect: u8,
}

#[derive(Debug, Clone)]
enum Step {
    Push {
        phone: bool,
        records: Vec<Sent>,
        if_head: Option<bool>,
        atomic: bool,
    },
    Rotate,
    Quotas {
        records: u64,
        bytes: u64,
    },
}

fn sent() -> impl Strategy<Value = Sent> {
    let rarely = || prop::bool::weighted(0.05);
    (
        0..9_u8,
        rarely(),
        rarely(),
        any::<bool>(),
        0..5_usize,
        0..12_u8,
    )
        .prop_map(|(id, stale, unsigned, deleted, bytes, expect)| Sent {
            id,
            stale,
            signed: !unsigned,
            deleted,
            // Only a tombstone's ciphertext may be empty.
            bytes: if deleted { bytes } else { bytes + 1 },
            expect,
        })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let push = (
        any::<bool>(),
        prop::collection::vec(sent(), 0..8),
        prop::option::weighted(0.2, any::<bool>()),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(phone, records, if_head, atomic)| Step::Push {
            phone,
            records,
            if_head,
            atomic,
        });
    let quotas = (0..6_u64, 0..25_u64).prop_map(|(records, bytes)| Step::Quotas { records, bytes });
    prop::collection::vec(
        prop_oneof![12 => push, 1 => Just(Step::Rotate), 2 => quotas],
        1..30,
    )
}

/// What a store would read: each pushed id that is there.
fn existing(model: &Model, request: &Push) -> HashMap<RecordId, Existing> {
    let read = |pushed: &PushedRecord| {
        let record = &pushed.record;
        let row = model.rows.get(record.id.as_str())?;
        let there = Existing {
            seq: row.seq,
            epoch: row.epoch,
            by: row.by.clone(),
            deleted: row.deleted,
            bytes: row.ciphertext.len() as u64,
            same_ciphertext: row.ciphertext == record.ciphertext.0,
        };
        Some((record.id.clone(), there))
    };
    request.records.iter().filter_map(read).collect()
}

struct Run {
    devices: [TestDevice; 2],
    graph: Graph,
    model: Model,
    quotas: Quotas,
}

impl Run {
    fn request(&self, step: &Step) -> Option<Push> {
        let Step::Push {
            phone,
            records,
            if_head,
            atomic,
        } = step
        else {
            return None;
        };
        let mut ids = std::collections::BTreeSet::new();
        let records = records
            .iter()
            .filter(|sent| ids.insert(sent.id))
            .map(|sent| {
                let seq = self.model.seq(&sent.id.to_string());
                PushedRecord {
                    record: PushRecord {
                        id: record_id(&sent.id.to_string()),
                        epoch: self.graph.epoch - u64::from(sent.stale),
                        ciphertext: Sealed(vec![7; sent.bytes]),
                        sig: None,
                        deleted: sent.deleted,
                        expect: match sent.expect {
                            1 => Some(seq),
                            2 => Some(seq + 1),
                            _ => None,
                        },
                    },
                    signature: if sent.signed {
                        SignatureVerdict::Good
                    } else {
                        SignatureVerdict::Invalid
                    },
                }
            })
            .collect();
        Some(Push {
            key: key(),
            by: self.devices[usize::from(*phone)].to_ref(),
            records,
            if_head: if_head.map(|right| self.model.head + u64::from(!right)),
            atomic: *atomic,
            idempotency: None,
            now: EPOCH,
            quotas: self.quotas,
        })
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Rotate => self.graph.epoch += 1,
            Step::Quotas { records, bytes } => {
                self.quotas.max_records_per_graph = *records;
                self.quotas.max_ciphertext_bytes_per_graph = *bytes;
            }
            Step::Push { .. } => {}
        }
        let Some(request) = self.request(step) else {
            return Ok(());
        };
        let row =
            self.devices[usize::from(request.by == self.devices[1].to_ref())].registered(EPOCH);
        let decision = push(
            &request,
            PushView {
                caller: Some(&row),
                graph: Some(&self.graph),
                holds_current: true,
                existing: &existing(&self.model, &request),
                replay: None,
            },
        );
        let (decision, (results, after)) =
            match (decision, self.model.push(&request, self.graph.epoch)) {
                (Err(got), wanted) => {
                    prop_assert_eq!(Some(got), wanted.err());
                    return Ok(());
                }
                (Ok(decision), wanted) => (
                    decision,
                    wanted.map_err(|r| TestCaseError::fail(format!("the model refuses: {r:?}")))?,
                ),
            };
        let PushDecision::Write {
            writes,
            graph,
            outcome,
        } = decision
        else {
            return Err(TestCaseError::fail("nothing was pushed before"));
        };
        prop_assert_eq!(&outcome.answer.results, &results);
        prop_assert_eq!(outcome.answer.head, after.head);
        prop_assert_eq!(
            outcome.answer.accepted + outcome.answer.rejected,
            results.len() as u64
        );
        prop_assert_eq!(outcome.changed, after.head > self.model.head);

        // Seqs follow the head without a gap, in the order sent, and say what they replace.
        let seqs: Vec<u64> = writes.iter().map(|write| write.seq).collect();
        let wanted: Vec<u64> = (self.model.head + 1..=after.head).collect();
        prop_assert_eq!(seqs, wanted);
        prop_assert!(writes.is_sorted_by_key(|write| write.at));
        for write in &writes {
            let id = request.records[write.at].record.id.as_str();
            prop_assert_eq!(after.seq(id), write.seq);
            prop_assert_eq!(write.replaces, self.model.rows.contains_key(id));
        }

        // The counters are the sums; nothing but head and counters changes.
        let sums = after.sums();
        let wanted = Graph {
            head: after.head,
            counters: sums,
            ..self.graph.clone()
        };
        prop_assert_eq!(&graph, &wanted);

        // No quota is passed by a push; where it was lowered beneath what is there, nothing grows.
        let was = self.model.sums();
        let quotas = &self.quotas;
        prop_assert!(sums.records <= quotas.max_records_per_graph.max(was.records));
        prop_assert!(
            sums.ciphertext_bytes
                <= quotas
                    .max_ciphertext_bytes_per_graph
                    .max(was.ciphertext_bytes)
        );
        let all = |counters: Counters| counters.records + counters.tombstones;
        prop_assert!(all(sums) <= (2 * quotas.max_records_per_graph).max(all(was)));

        self.graph = graph;
        self.model = after;
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn a_graph_is_what_its_pushes_make_it(steps in steps()) {
        let mut run = Run {
            devices: [TestDevice::new("sam", "laptop"), TestDevice::new("sam", "phone")],
            graph: graph(3, 0),
            model: Model::default(),
            quotas: Quotas {
                max_records_per_graph: 4,
                max_ciphertext_bytes_per_graph: 16,
                ..Quotas::default()
            },
        };
        for step in &steps {
            run.step(step)?;
        }
    }

    /// A graph that is full, or fuller than a lowered quota allows, can always be tidied.
    #[test]
    fn what_shrinks_fits(
        was in 0..9_usize,
        deletes: bool,
        records in 1..9_u64,
        tombstones in 0..9_u64,
        bytes in 9..99_u64,
        limits in (0..9_u64, 0..99_u64),
    ) {
        let device = TestDevice::new("sam", "laptop");
        let graph = Graph {
            counters: Counters { records, tombstones, ciphertext_bytes: bytes, blob_bytes: 0 },
            ..graph(1, 30)
        };
        for length in 0..=was {
            if length == 0 && !deletes {
                continue;
            }
            let request = Push {
                key: key(),
                by: device.to_ref(),
                records: vec![PushedRecord {
                    record: PushRecord {
                        id: record_id("r"),
                        epoch: 1,
                        ciphertext: Sealed(vec![1; length]),
                        sig: None,
                        deleted: deletes,
                        expect: None,
                    },
                    signature: SignatureVerdict::Good,
                }],
                if_head: None,
                atomic: true,
                idempotency: None,
                now: EPOCH,
                quotas: Quotas {
                    max_records_per_graph: limits.0,
                    max_ciphertext_bytes_per_graph: limits.1,
                    ..Quotas::default()
                },
            };
            let there = Existing {
                seq: 5,
                epoch: 1,
                by: device.to_ref(),
                deleted: false,
                bytes: was as u64,
                same_ciphertext: false,
            };
            let row = device.registered(EPOCH);
            let decision = push(&request, PushView {
                caller: Some(&row),
                graph: Some(&graph),
                holds_current: true,
                existing: &HashMap::from([(record_id("r"), there)]),
                replay: None,
            });
            prop_assert!(decision.is_ok(), "{:?}", decision);
        }
    }
}

/// Live records and tombstones together reach twice the quota, and stop there.
#[test]
fn tombstones_are_bounded_too() {
    let quotas = Quotas {
        max_records_per_graph: 3,
        ..Quotas::default()
    };
    let mut run = Run {
        devices: [
            TestDevice::new("sam", "laptop"),
            TestDevice::new("sam", "phone"),
        ],
        graph: graph(1, 0),
        model: Model::default(),
        quotas,
    };
    let tombstone = |id: u8| Step::Push {
        phone: false,
        records: vec![Sent {
            id,
            stale: false,
            signed: true,
            deleted: true,
            bytes: 0,
            expect: 0,
        }],
        if_head: None,
        atomic: false,
    };
    for id in 0..9 {
        run.step(&tombstone(id)).unwrap();
    }
    assert_eq!(run.graph.counters.tombstones, 6);
    assert_eq!(run.graph.head, 6);
}
