//! A blob passes through in constant memory. A program of its own: it measures the whole process.
#![cfg(all(test, target_os = "linux"))]

use std::sync::Arc;

use argala_blob::FilesystemBlobs;
use argala_core::{Relay, ports::BlobStore};
use argala_http::DevAuth;
use argala_sqlite::{Options, Sqlite};
use argala_testkit::{MemoryDirectory, TestDevice};
use argala_wire::{codec::Format, keys::RotateRequest};
use bytes::Bytes;
use futures_util::stream;
use http::{Method, StatusCode};

const MIB: usize = 1024 * 1024;
const BLOB: usize = 25 * MIB;
const PIECE: usize = 64 * 1024;

/// The most memory that this process has had, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .expect("a peak");
    let kib: usize = line
        .trim()
        .trim_end_matches("kB")
        .trim()
        .parse()
        .expect("a number");
    kib * 1024
}

struct Bench {
    url: String,
    client: reqwest::Client,
}

impl Bench {
    fn ask(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let ask = self.client.request(method, format!("{}{path}", self.url));
        ask.header("authorization", "Dev sam/laptop")
    }

    /// Uploads a blob and reads it again, piece by piece.
    async fn through(&self, n: usize) {
        let path = format!("/graphs/d%3Asam/blobs/blob-number-{n:0>10}");
        let piece = Bytes::from(vec![7; PIECE]);
        let pieces = (0..BLOB / PIECE).map(move |_| Ok::<_, std::io::Error>(piece.clone()));
        let ask = self.ask(Method::PUT, &path).header("content-length", BLOB);
        let ask = ask.body(reqwest::Body::wrap_stream(stream::iter(pieces)));
        assert_eq!(
            ask.send().await.expect("an answer").status(),
            StatusCode::CREATED
        );
        let mut answer = self
            .ask(Method::GET, &path)
            .send()
            .await
            .expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
        let mut length = 0;
        while let Some(piece) = answer.chunk().await.expect("whole") {
            length += piece.len();
        }
        assert_eq!(length, BLOB);
    }
}

async fn bench(blobs: Arc<dyn BlobStore>, store: Arc<Sqlite>) -> Bench {
    let directory = Arc::new(MemoryDirectory::of(&["sam"], &[]));
    let relay = Relay::builder(store, blobs, directory).build();
    let app = argala_http::router(relay, Arc::new(DevAuth));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let client = reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client");
    let bench = Bench { url, client };
    let laptop = TestDevice::new("sam", "laptop");
    let register = Format::Json.encode(&laptop.register_request());
    let answer = bench
        .ask(Method::POST, "/devices")
        .body(register)
        .send()
        .await
        .expect("answers");
    assert_eq!(answer.status(), StatusCode::CREATED);
    let rotate = RotateRequest {
        epoch: 1,
        wraps: vec![laptop.rotate_wrap("wrap")],
    };
    let ask = bench
        .ask(Method::POST, "/graphs/d%3Asam/rotate")
        .body(Format::Json.encode(&rotate));
    assert_eq!(ask.send().await.expect("answers").status(), StatusCode::OK);
    bench
}

/// Four at once cost far less than one blob, once one has shown what the parts themselves need
/// (buffers, caches of pages, threads).
#[tokio::test]
async fn a_blob_is_never_held_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = |name: &str| {
        let path = folder.path().join(name);
        Arc::new(Sqlite::open(path, &Options::default()).expect("a database"))
    };
    let files = FilesystemBlobs::open(folder.path().join("blobs")).expect("a folder");
    let on_disk = bench(Arc::new(files), store("one.db")).await;
    let database = store("two.db");
    let in_database = bench(database.clone(), database).await;

    let before = peak();
    on_disk.through(0).await;
    let first = peak() - before;
    assert!(
        first < BLOB / 2,
        "one blob on disk took {} MiB",
        first / MIB
    );

    for (bench, name) in [(&on_disk, "on disk"), (&in_database, "in the database")] {
        bench.through(1).await;
        let before = peak();
        tokio::join!(
            bench.through(2),
            bench.through(3),
            bench.through(4),
            bench.through(5)
        );
        let grown = peak() - before;
        assert!(
            grown < BLOB,
            "four blobs {name} took {} MiB more than one",
            grown / MIB
        );
    }
}
