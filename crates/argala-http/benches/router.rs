//! Whole requests through the router over a database on disk, without a socket: what a relay can
//! do at the most on this machine. One caller at a time; `loadtest` has the many.

use std::sync::Arc;

use argala_core::Relay;
use argala_http::DevAuth;
use argala_sqlite::{Options, Sqlite};
use argala_testkit::{MemoryDirectory, TestDevice};
use argala_wire::{
    StorageKey,
    codec::Format,
    keys::RotateRequest,
    limits::{Rate, RateLimits},
    records::{PushRecord, PushRequest},
};
use axum::{Router, body::Body};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tower::ServiceExt as _;

const CIPHERTEXT: usize = 256;

struct World {
    runtime: Runtime,
    router: Router,
    laptop: TestDevice,
    // Last: what is open in it goes first.
    _folder: TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("relay.db");
        let store = Arc::new(Sqlite::open(path, &Options::default()).expect("a database"));
        let rate = Rate {
            per_minute: u32::MAX,
            burst: u32::MAX,
        };
        let rates = RateLimits {
            push: rate,
            pull: rate,
            blobs: rate,
            keys: rate,
        };
        let directory = MemoryDirectory::of(&["sam", "alex"], &[("acme", &["sam", "alex"])]);
        let relay = Relay::builder(store.clone(), store, Arc::new(directory))
            .rate_limits(rates)
            .build();
        let runtime = Runtime::new().expect("a runtime");
        let world = Self {
            runtime,
            router: argala_http::router(relay, Arc::new(DevAuth)),
            laptop: TestDevice::new("sam", "laptop"),
            _folder: folder,
        };
        let json = Format::Json;
        let body = json.encode(&world.laptop.register_request());
        world.send(world.post("/devices", json, body), StatusCode::CREATED);
        for graph in ["g%3Aacme", "d%3Asam"] {
            let body = json.encode(&RotateRequest {
                epoch: 1,
                wraps: vec![world.laptop.rotate_wrap("wrap")],
            });
            let path = format!("/graphs/{graph}/rotate");
            world.send(world.post(&path, json, body), StatusCode::OK);
        }
        world
    }

    fn ask(&self, method: Method, path: &str, format: Format, body: Vec<u8>) -> Request<Body> {
        Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", "Dev sam/laptop")
            .header("content-type", format.media_type())
            .header("accept", format.media_type())
            .body(Body::from(body))
            .expect("a request")
    }

    fn post(&self, path: &str, format: Format, body: Vec<u8>) -> Request<Body> {
        self.ask(Method::POST, path, format, body)
    }

    /// The answer's bytes, to their end.
    fn send(&self, request: Request<Body>, status: StatusCode) -> usize {
        self.runtime.block_on(async {
            let answer = self.router.clone().oneshot(request).await;
            let answer = answer.expect("routers do not fail");
            assert_eq!(answer.status(), status);
            let body = answer.into_body().collect().await.expect("whole");
            body.to_bytes().len()
        })
    }

    /// A push of records that were never there.
    fn records(&self, graph: &str, from: u64, n: u64) -> PushRequest {
        let key: StorageKey = graph.parse().expect("a key");
        let record = |at| -> PushRecord {
            self.laptop
                .record(&key, &format!("note-{at:010}"), 1, &[7; CIPHERTEXT])
        };
        PushRequest {
            records: (from..from + n).map(record).collect(),
            ..PushRequest::default()
        }
    }
}

fn name(format: Format) -> &'static str {
    match format {
        Format::Json => "json",
        Format::Cbor => "cbor",
    }
}

fn pushes(criterion: &mut Criterion, world: &World) {
    // Items come back every so often: the graph is full at 250,000.
    let mut next = 0;
    for format in [Format::Json, Format::Cbor] {
        let mut group = criterion.benchmark_group(format!("router/push/{}", name(format)));
        for n in [1, 10, 100] {
            group.throughput(Throughput::Elements(n));
            group.bench_function(BenchmarkId::from_parameter(n), |bencher| {
                bencher.iter_batched(
                    || {
                        next = (next + n) % 100_000;
                        let body = format.encode(&world.records("d:sam:sam", next, n));
                        world.post("/graphs/d%3Asam/push", format, body)
                    },
                    |request| world.send(request, StatusCode::OK),
                    BatchSize::PerIteration,
                );
            });
        }
        group.finish();
    }
}

fn pulls(criterion: &mut Criterion, world: &World) {
    for from in [0, 1_000] {
        let body = Format::Cbor.encode(&world.records("g:acme", from, 1_000));
        world.send(
            world.post("/graphs/g%3Aacme/push", Format::Cbor, body),
            StatusCode::OK,
        );
    }
    for format in [Format::Json, Format::Cbor] {
        let mut group = criterion.benchmark_group(format!("router/pull/{}", name(format)));
        for n in [1, 100, 1_000] {
            let path = format!("/graphs/g%3Aacme/pull?limit={n}");
            group.throughput(Throughput::Elements(n));
            group.bench_function(BenchmarkId::from_parameter(n), |bencher| {
                bencher.iter(|| {
                    let request = world.ask(Method::GET, &path, format, Vec::new());
                    world.send(request, StatusCode::OK)
                });
            });
        }
        group.finish();
    }
    criterion.bench_function("router/limits", |bencher| {
        bencher.iter(|| {
            let request = world.ask(Method::GET, "/limits", Format::Json, Vec::new());
            world.send(request, StatusCode::OK)
        });
    });
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let world = World::new();
    pushes(&mut criterion, &world);
    pulls(&mut criterion, &world);
    criterion.final_summary();
}
