//! What the rules cost by themselves: no store, no codec.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hint::black_box,
};

use argala_core::{
    ports::{
        ObjectKey,
        store::{
            Blob, Counters, Grant, Graph, Holder, Pull, Push, PushedRecord, ReserveBlob, Rotate,
            SignatureVerdict, Standing,
        },
    },
    rules::{
        self, GrantView, PushView,
        pull::{Offer, Plan, plan},
        push::{self, Existing},
        rate::{Level, TokenBucket},
        roster::{Members, directory_owes, owed_grants, owed_rotations},
        rotate::{RotateView, fingerprint, rotate},
        sweep::is_delivered,
    },
};
use argala_testkit::{EPOCH, TestDevice, record_id};
use argala_wire::{
    Sealed, StorageKey,
    blobs::BlobPolicy,
    devices::DeviceRef,
    limits::{Pages, Quotas, Rate, Signatures},
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
        // As if all of them were there.
        let graph = Graph {
            counters: Counters {
                records: 2_000,
                ciphertext_bytes: 2_000 * CIPHERTEXT as u64,
                ..Counters::default()
            },
            ..graph(2_000)
        };
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
                    rules::push(black_box(&request), view).expect("decides")
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

/// Devices of a group in which each member has three.
fn devices(n: u64) -> Vec<TestDevice> {
    (0..n)
        .map(|at| TestDevice::new(&format!("member-{:05}", at / 3), &format!("d{}", at % 3)))
        .collect()
}

fn refs(devices: &[TestDevice]) -> Vec<DeviceRef> {
    let mut refs: Vec<_> = devices.iter().map(TestDevice::to_ref).collect();
    refs.sort();
    refs
}

/// How many devices a group is measured with.
const GROUPS: [u64; 3] = [2, 100, 10_000];

fn rotations(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rotate");
    for n in GROUPS {
        let devices = devices(n);
        let wraps: Vec<_> = devices
            .iter()
            .map(|device| device.rotate_wrap("wrap"))
            .collect();
        let roster = refs(&devices);
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

fn grants(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("grant");
    for n in GROUPS {
        let devices = devices(n);
        let caller = devices[0].registered(EPOCH);
        let roster: BTreeSet<_> = refs(&devices).into_iter().collect();
        let wraps: Vec<_> = devices
            .iter()
            .map(|device| device.grant_wrap(1, "wrap"))
            .collect();
        let there = |device: &DeviceRef| ((1, device.clone()), Some(Sealed(b"wrap".to_vec())));
        let all: BTreeMap<_, _> = roster.iter().map(there).collect();
        let members: BTreeSet<_> = roster.iter().map(|it| it.member_id.clone()).collect();
        let request = Grant {
            key: key(),
            by: devices[0].to_ref(),
            members: members.into_iter().collect(),
            wraps,
            now: EPOCH,
        };
        let graph = graph(10);
        let held = BTreeSet::from([1]);
        group.throughput(Throughput::Elements(n));
        for (name, existing) in [("decide_new", BTreeMap::new()), ("decide_repeated", all)] {
            group.bench_function(BenchmarkId::new(name, n), |bencher| {
                bencher.iter(|| {
                    let view = GrantView {
                        caller: Some(&caller),
                        graph: Some(&graph),
                        roster: &roster,
                        held: &held,
                        existing: &existing,
                    };
                    rules::grant(black_box(&request), view).expect("decides")
                });
            });
        }
    }
    group.finish();
}

/// Who should hold the key, who does, and who has fetched what.
fn rosters(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("roster");
    for n in GROUPS {
        let roster = refs(&devices(n));
        // One device in two holds the key, and three members of four are active.
        let holder = |device: &DeviceRef| Holder {
            device: device.clone(),
            revoked: false,
        };
        let members = |step| -> BTreeSet<_> {
            let some = roster.iter().step_by(step);
            some.map(|device| device.member_id.clone()).collect()
        };
        let members = Members {
            all: members(1),
            active: members(4),
        };
        let standing = Standing {
            graph: graph(10),
            holders: roster.iter().step_by(2).map(holder).collect(),
            roster: roster.clone(),
        };
        group.throughput(Throughput::Elements(n));
        group.bench_function(BenchmarkId::new("owed_rotations", n), |bencher| {
            bencher.iter(|| owed_rotations(black_box(&standing), &members).count());
        });
        group.bench_function(BenchmarkId::new("directory_owes", n), |bencher| {
            bencher.iter(|| directory_owes(black_box(&standing), &members));
        });
        group.bench_function(BenchmarkId::new("owed_grants", n), |bencher| {
            bencher.iter(|| owed_grants(black_box(&standing)).count());
        });
        // All but the last have it: every one is looked for.
        let fetched = &roster[..roster.len() - 1];
        group.bench_function(BenchmarkId::new("is_delivered", n), |bencher| {
            bencher.iter(|| is_delivered(black_box(&roster), &roster[0], fetched));
        });
    }
    group.finish();
}

fn of_one_row(criterion: &mut Criterion) {
    let laptop = TestDevice::new("sam", "laptop");
    let (row, register) = (laptop.registered(EPOCH), laptop.register(EPOCH));
    let mut group = criterion.benchmark_group("device");
    group.bench_function("register_new", |bencher| {
        bencher.iter(|| rules::register(black_box(&register), None, 3).expect("decides"));
    });
    group.bench_function("register_again", |bencher| {
        bencher.iter(|| rules::register(black_box(&register), Some(&row), 3).expect("decides"));
    });
    group.bench_function("revoke", |bencher| {
        bencher.iter(|| rules::revoke(black_box(Some(&row)), Some(&row)).expect("decides"));
    });
    group.finish();

    let reserve = ReserveBlob {
        key: key(),
        id: "photo-0123456789".parse().expect("legal"),
        by: laptop.to_ref(),
        object: ObjectKey::new("a1", [7; 16]),
        size: 1_000,
        policy: BlobPolicy::Keep,
        expires_at: None,
        now: EPOCH,
        max_bytes_per_graph: 1_000_000,
    };
    let live = Blob {
        graph: key(),
        id: reserve.id.clone(),
        object: reserve.object.clone(),
        size: 1_000,
        sha256: [7; 32],
        policy: BlobPolicy::Keep,
        expires_at: None,
        by: laptop.to_ref(),
    };
    let graph = graph(10);
    let mut group = criterion.benchmark_group("blob");
    for (name, live) in [("reserve_new", None), ("reserve_again", Some(&live))] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                rules::blob::reserve(black_box(&reserve), Some(&row), Some(&graph), live)
                    .expect("decides")
            });
        });
    }
    group.bench_function("commit", |bencher| {
        bencher.iter(|| rules::blob::commit(Some(&row), black_box(&[7; 32]), Some(&live)));
    });
    group.finish();

    let bucket = TokenBucket::new(Rate {
        per_minute: 600,
        burst: 60,
    });
    let level = Level { at: 0, owed: 1_000 };
    criterion.bench_function("rate/take", |bencher| {
        bencher.iter(|| bucket.take(black_box(Some(level)), 1_000));
    });
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    pushes(&mut criterion);
    pulls(&mut criterion);
    rotations(&mut criterion);
    grants(&mut criterion);
    rosters(&mut criterion);
    of_one_row(&mut criterion);
    criterion.final_summary();
}
