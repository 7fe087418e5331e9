//! What every body costs: both codecs, the bytes that are signed, and names.

use std::hint::black_box;

use argala_wire::{
    RecordId, Sealed, StorageKey, Timestamp,
    codec::Format,
    devices::{DeviceKind, DeviceRef, Suite},
    records::{PullResponse, PulledRecord, PushRecord, PushRequest},
    signing,
};
use criterion::{BenchmarkId, Criterion, Throughput};

/// What a note of some lines comes to, sealed.
const CIPHERTEXT: usize = 256;

fn ciphertext() -> Sealed {
    Sealed((0..CIPHERTEXT).map(|at| (at * 151 % 256) as u8).collect())
}

fn id(at: usize) -> RecordId {
    format!("note-{at:08}").parse().expect("legal")
}

fn push(n: usize) -> PushRequest {
    let record = |at| PushRecord {
        id: id(at),
        epoch: 1,
        ciphertext: ciphertext(),
        sig: Some(Sealed(vec![7; 64])),
        deleted: false,
        expect: None,
    };
    PushRequest {
        records: (0..n).map(record).collect(),
        ..PushRequest::default()
    }
}

fn page(n: usize) -> PullResponse {
    let by = DeviceRef {
        member_id: "sam".parse().expect("legal"),
        device_id: "sams-laptop".parse().expect("legal"),
    };
    let record = |at| PulledRecord {
        id: id(at),
        seq: at as u64 + 1,
        epoch: 1,
        by: by.clone(),
        at: Timestamp::from_millis(1_767_225_600_000),
        ciphertext: ciphertext(),
        sig: Some(Sealed(vec![7; 64])),
        deleted: false,
    };
    PullResponse {
        records: (0..n).map(record).collect(),
        cursor: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".to_owned(),
        more: true,
        head: n as u64,
        epoch: 1,
        filtered: 0,
        rotation_owed: false,
    }
}

fn codecs(criterion: &mut Criterion) {
    for format in [Format::Json, Format::Cbor] {
        let form = match format {
            Format::Json => "json",
            Format::Cbor => "cbor",
        };
        let mut group = criterion.benchmark_group(format!("push/decode/{form}"));
        for n in [1, 10, 100, 1_000] {
            let body = format.encode(&push(n));
            group.throughput(Throughput::Elements(n as u64));
            group.bench_with_input(BenchmarkId::from_parameter(n), &body, |bencher, body| {
                bencher.iter(|| {
                    format
                        .decode::<PushRequest>(black_box(body))
                        .expect("reads")
                });
            });
        }
        group.finish();
        let mut group = criterion.benchmark_group(format!("pull/encode/{form}"));
        for n in [1, 100, 1_000] {
            let page = page(n);
            group.throughput(Throughput::Elements(n as u64));
            group.bench_with_input(BenchmarkId::from_parameter(n), &page, |bencher, page| {
                bencher.iter(|| format.encode(black_box(page)));
            });
        }
        group.finish();
    }
}

fn signed_bytes(criterion: &mut Criterion) {
    let graph: StorageKey = "d:alex:sam".parse().expect("legal");
    let id = id(1);
    let mut group = criterion.benchmark_group("signing/record");
    for size in [CIPHERTEXT, 64 * 1024] {
        let sealed = vec![7; size];
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_with_input(
            BenchmarkId::from_parameter(size),
            &sealed,
            |bencher, sealed| {
                bencher.iter(|| signing::record(&graph, 1, &id, false, black_box(sealed)));
            },
        );
    }
    group.finish();
    let device = DeviceRef {
        member_id: "sam".parse().expect("legal"),
        device_id: "sams-laptop".parse().expect("legal"),
    };
    criterion.bench_function("signing/device_proof", |bencher| {
        bencher.iter(|| {
            let (kind, suite) = (DeviceKind::default(), Suite::default());
            signing::device_proof(black_box(&device), kind, suite, &[7; 32], &[8; 32])
        });
    });
}

fn names(criterion: &mut Criterion) {
    criterion.bench_function("storage_key/parse", |bencher| {
        bencher.iter(|| {
            black_box("d:auth0|42:user%3A7")
                .parse::<StorageKey>()
                .expect("legal")
        });
    });
    let key: StorageKey = "d:auth0|42:user%3A7".parse().expect("legal");
    let member = "user:7".parse().expect("legal");
    criterion.bench_function("storage_key/graph_id_for", |bencher| {
        bencher.iter(|| black_box(&key).graph_id_for(&member));
    });
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    codecs(&mut criterion);
    signed_bytes(&mut criterion);
    names(&mut criterion);
    criterion.final_summary();
}
