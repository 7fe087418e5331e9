//! What the rules cost by themselves: no store, no codec.

use std::{
    collections::{BTreeSet, HashMap},
    hint::black_box,
};

use argala_core::{
    ports::store::{Counters, Graph, Pull, Push, PushedRecord, Rotate, SignatureVerdict},
    rules::{
        PushView,
        pull::{Offer, Plan, plan},
        push::{self, Existing},
        rotate::{RotateView, fingerprint, rotate},
    },
};
use argala_testkit::{EPOCH, TestDevice, record_id};
use argala_wire::{
    Sealed, StorageKey,
    limits::{Pages, Quotas, Signatures},
    records::{PulledRecord, PushRecord, PushRequest},
};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};

const CIPHERTEXT: usize = 256;

fn key() -> StorageKey {
    "g:acme".parse().expect("legal")
}

fn graph(head: u64) -> Graph {
    Graph {
        key: key(),
        epoch: 1,
        head,
        counters: Counters::default(),
        incarnation: 7,
        floor: 0,
        revocation_owed: false,
        directory_owed: false,
    }
}

fn records(by: &TestDevice, n: usize) -> Vec<PushRecord> {
    let record = |at| by.record(&key(), &format!("note-{at:08}"), 1, &[7; CIPHERTEXT]);
    (0..n).map(record).collect()
}

fn pushes(criterion: &mut Criterion) {
    let laptop = TestDevice::new("sam", "laptop");
    let (device, signing_key) = (laptop.registered(EPOCH), laptop.public_signing_key());
    for n in [1, 10, 100, 1_000] {
        let records = records(&laptop, n);
        let request = PushRequest {
            records: records.clone(),
            ..PushRequest::default()
        };
        let mut group = criterion.benchmark_group("push");
        group.throughput(Throughput::Elements(n as u64));
        group.bench_function(BenchmarkId::new("check", n), |bencher| {
            bencher.iter(|| push::check(black_box(&request), &Quotas::default()).expect("good"));
        });
        group.bench_function(BenchmarkId::new("verify", n), |bencher| {
            bencher.iter(|| {
                // One for all of a push, as the relay has it.
                let verifier = push::Verifier::new(signing_key.as_slice());
                let verify = |record| verifier.verify(&key(), record, Signatures::Required);
                let good = |record| verify(record) == SignatureVerdict::Good;
                assert!(black_box(&records).iter().all(good));
            });
        });
        let verified = |record: &PushRecord| PushedRecord {
            record: record.clone(),
            signature: SignatureVerdict::Good,
        };
        let request = Push {
            key: key(),
            by: laptop.to_ref(),
            records: records.iter().map(verified).collect(),
            if_head: None,
            atomic: false,
            idempotency: None,
            now: EPOCH,
            quotas: Quotas::default(),
        };
        let there = |record: &PushRecord| {
            let existing = Existing {
                seq: 1,
                epoch: 1,
                by: laptop.to_ref(),
                deleted: false,
                bytes: CIPHERTEXT as u64,
                same_ciphertext: false,
            };
            (record.id.clone(), existing)
        };
        let graph = graph(2_000);
        let all: HashMap<_, _> = records.iter().map(there).collect();
        for (name, existing) in [("decide_new", HashMap::new()), ("decide_replacing", all)] {
            group.bench_function(BenchmarkId::new(name, n), |bencher| {
                bencher.iter(|| {
                    let view = PushView {
                        caller: Some(&device),
                        graph: Some(&graph),
                        holds_current: true,
                        existing: &existing,
                        replay: None,
                    };
                    argala_core::rules::push(black_box(&request), view).expect("decides")
                });
            });
        }
        group.finish();
    }
}

fn pulls(criterion: &mut Criterion) {
    let laptop = TestDevice::new("sam", "laptop");
    let mut group = criterion.benchmark_group("pull");
    for n in [100_u64, 1_000] {
        let graph = graph(n);
        let held = BTreeSet::from([1]);
        let request = Pull {
            key: key(),
            device: laptop.to_ref(),
            cursor: None,
            limit: usize::try_from(n).expect("small"),
            epoch: None,
            variant: "",
            known: Vec::new(),
            pages: Pages::default(),
        };
        let rows: Vec<PulledRecord> = (1..=n)
            .map(|seq| PulledRecord {
                id: record_id(&format!("note-{seq:08}")),
                seq,
                epoch: 1,
                by: laptop.to_ref(),
                at: EPOCH,
                ciphertext: Sealed(vec![7; CIPHERTEXT]),
                sig: None,
                deleted: false,
            })
            .collect();
        group.throughput(Throughput::Elements(n));
        group.bench_function(BenchmarkId::new("page", n), |bencher| {
            bencher.iter_batched(
                || rows.clone(),
                |rows| {
                    let planned = plan(black_box(&request), Some(&graph), &held, None);
                    let Plan::Read(mut page) = planned.expect("a good cursor") else {
                        unreachable!("nothing is known")
                    };
                    for row in rows {
                        if page.offer(row.seq, 1, CIPHERTEXT as u64) == Offer::Take {
                            page.add(row);
                        }
                    }
                    page.finish()
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn rotations(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rotate");
    for n in [2, 100, 10_000] {
        let devices: Vec<TestDevice> = (0..n)
            .map(|at| TestDevice::new(&format!("member-{:05}", at / 3), &format!("d{}", at % 3)))
            .collect();
        let wraps: Vec<_> = devices
            .iter()
            .map(|device| device.rotate_wrap("wrap"))
            .collect();
        let mut roster: Vec<_> = devices.iter().map(TestDevice::to_ref).collect();
        roster.sort();
        let row = devices[0].registered(EPOCH);
        let request = Rotate {
            key: key(),
            by: devices[0].to_ref(),
            epoch: 2,
            fingerprint: fingerprint(&wraps),
            wraps,
            members: roster
                .iter()
                .map(|device| device.member_id.clone())
                .collect(),
            now: EPOCH,
            incarnation: 7,
        };
        let graph = graph(10);
        group.throughput(Throughput::Elements(n));
        group.bench_function(BenchmarkId::new("fingerprint", n), |bencher| {
            bencher.iter(|| fingerprint(black_box(&request.wraps)));
        });
        group.bench_function(BenchmarkId::new("decide", n), |bencher| {
            bencher.iter(|| {
                let view = RotateView {
                    caller: Some(&row),
                    graph: Some(&graph),
                    roster: &roster,
                    past: None,
                };
                rotate(black_box(&request), view).expect("decides")
            });
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    pushes(&mut criterion);
    pulls(&mut criterion);
    rotations(&mut criterion);
    criterion.final_summary();
}
