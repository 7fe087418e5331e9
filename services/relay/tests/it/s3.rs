//! Blobs in a bucket: the relay as a process, and an S3 beside it.

use std::{fs, io::Write, path::Path};

use argala_testkit::servers::S3Server;
use argala_wire::{Sealed, StorageKey};
use sha2::{Digest as _, Sha256};
use tokio::runtime::Runtime;

use crate::{
    device::TestDevice,
    http::{Target, answer, header},
    process::{SOON, Served},
};

const BUCKET: &str = "argala-blobs";
const ONE: &str = "/graphs/d:sam/blobs/blob-number-one-of-sam";
const TWO: &str = "/graphs/d:sam/blobs/blob-number-two-of-sam";

/// An S3 that runs beside the test.
struct Beside {
    // Dropped in this order: the server's task ends before its runtime.
    server: S3Server,
    _runtime: Runtime,
}

impl Beside {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let server = runtime.block_on(S3Server::start());
        server.make_bucket(BUCKET);
        Self {
            server,
            _runtime: runtime,
        }
    }

    /// A development relay on it, with sam's laptop and a key for sam's own graph.
    fn relay(&self, folder: &Path, delivery: &str) -> (Served, TestDevice) {
        let place = self.server.place();
        let secret = folder.join("secret");
        fs::write(&secret, &place.secret).unwrap();
        let settings = [
            "blobs.kind=s3".to_owned(),
            format!("blobs.bucket={BUCKET}"),
            format!("blobs.endpoint={}", place.endpoint),
            "blobs.force_path_style=true".to_owned(),
            format!("blobs.access_key_id={}", place.id),
            format!("blobs.secret_access_key_file={}", secret.display()),
            format!("blobs.delivery={delivery}"),
        ];
        let args: Vec<&str> = settings.iter().flat_map(|it| ["--set", it]).collect();
        let served = Served::dev(folder, &args);
        let sam = TestDevice::dev("sam", "laptop");
        sam.register(&served.public).ok();
        let rotated = sam.rotate(&served.public, "d:sam", &[&sam]);
        assert!([200, 409].contains(&rotated.status), "{rotated:?}");
        (served, sam)
    }

    fn objects(&self) -> Vec<String> {
        self.server.objects(BUCKET)
    }
}

fn noise(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn put(target: &Target, sam: &TestDevice, path: &str, bytes: &[u8]) -> u16 {
    target.put(path, &sam.headers(), bytes).status
}

fn putting<'a>(sam: &'a TestDevice, length: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut headers = sam.headers().to_vec();
    headers.extend([
        ("connection", "close"),
        ("content-type", "application/octet-stream"),
        ("content-length", length),
    ]);
    headers
}

fn charged(target: &Target, sam: &TestDevice) -> u64 {
    let graph = target.get("/graphs/d:sam", &sam.headers()).ok();
    graph["blobBytes"].as_u64().unwrap()
}

#[test]
fn blobs_lie_in_a_bucket_and_go_through_the_relay() {
    let (folder, beside) = (tempfile::tempdir().unwrap(), Beside::start());
    let (mut served, sam) = beside.relay(folder.path(), "proxy");
    let public = served.public.clone();
    let bytes = noise(3_000_000);
    assert_eq!(put(&public, &sam, ONE, &bytes), 201);
    assert_eq!(put(&public, &sam, ONE, &bytes), 200);
    assert_eq!(beside.objects().len(), 1);
    let whole = public.get(ONE, &sam.headers());
    assert!(whole.status == 200 && whole.body == bytes);
    let mut part = sam.headers().to_vec();
    part.push(("range", "bytes=1000000-1999999"));
    let part = public.get(ONE, &part);
    assert!(part.status == 206 && part.body == bytes[1_000_000..2_000_000]);
    assert_eq!(charged(&public, &sam), 3_000_000);

    // What the bucket has lost is told, and is no empty answer.
    assert!(beside.server.lose(BUCKET, &beside.objects()[0]));
    let lost = public.get(ONE, &sam.headers());
    assert_eq!(
        (lost.status, &lost.json()["code"]),
        (500, &"internal".into())
    );
    let deleted = public.send("DELETE", ONE, &sam.headers(), b"");
    assert_eq!(deleted.status, 204);
    assert_eq!(public.get(ONE, &sam.headers()).status, 404);
    assert_eq!(charged(&public, &sam), 0);
    assert!(served.stop().0.success());
}

#[test]
fn a_blob_is_fetched_from_the_bucket_by_a_link() {
    let (folder, beside) = (tempfile::tempdir().unwrap(), Beside::start());
    let (mut served, sam) = beside.relay(folder.path(), "redirect");
    let public = served.public.clone();
    let bytes = noise(100_000);
    assert_eq!(put(&public, &sam, ONE, &bytes), 201);
    let told = public.get(ONE, &sam.headers());
    assert_eq!(told.status, 307);
    assert_eq!(header(&told.head, "cache-control"), Some("no-store"));
    let link = Target::parse(header(&told.head, "location").unwrap());
    // Without a credential, whole and in part.
    let whole = link.get("", &[]);
    assert!(whole.status == 200 && whole.body == bytes, "{}", whole.head);
    let part = link.get("", &[("range", "bytes=10-19")]);
    assert!(part.status == 206 && part.body == bytes[10..20]);

    // What the relay knows by itself it says by itself.
    let outside = [sam.headers()[0], ("range", "bytes=100000-")];
    assert_eq!(public.get(ONE, &outside).status, 416);
    let tag = format!("\"{}\"", sha256(&bytes));
    let known = [sam.headers()[0], ("if-none-match", tag.as_str())];
    assert_eq!(public.get(ONE, &known).status, 304);

    // One that is to be delivered goes through the relay, which counts it.
    let deliver = format!("{TWO}?policy=deliver");
    assert_eq!(put(&public, &sam, &deliver, &bytes), 201);
    let whole = public.get(TWO, &sam.headers());
    assert!(whole.status == 200 && whole.body == bytes);

    for object in beside.objects() {
        assert!(beside.server.lose(BUCKET, &object));
    }
    assert_eq!(public.get(ONE, &sam.headers()).status, 500);
    let (_, log) = served.stop();
    assert!(!log.contains("X-Amz-Signature"), "a link is a secret");
}

fn sha256(bytes: &[u8]) -> String {
    Sealed(Sha256::digest(bytes).to_vec()).to_base64url()
}

#[test]
fn a_relay_that_is_killed_in_an_upload_has_no_blob_without_its_object() {
    let (folder, beside) = (tempfile::tempdir().unwrap(), Beside::start());
    let bytes = noise(8_000_000);
    for round in 0..3_usize {
        let (mut served, sam) = beside.relay(folder.path(), "proxy");
        let public = served.public.clone();
        let length = bytes.len().to_string();
        let mut stream = public.begin("PUT", ONE, &putting(&sam, &length));
        // Some of it; all but a byte; all of it, and S3 may have it already.
        let sent = [2_000_000, bytes.len() - 1, bytes.len()][round];
        let _ = stream.write_all(&bytes[..sent]);
        served.signal("KILL");
        let told = answer(stream).map(|answer| answer.status);
        let _ = served.wait(SOON);

        let (mut served, sam) = beside.relay(folder.path(), "proxy");
        let public = served.public.clone();
        let found = public.get(ONE, &sam.headers());
        match found.status {
            200 => assert!(found.body == bytes, "it is whole"),
            404 => assert_ne!(told, Some(201), "what was acknowledged is there"),
            _ => panic!("round {round}: {found:?}"),
        }
        // And there is room for it, whatever was left.
        assert!([200, 201].contains(&put(&public, &sam, ONE, &bytes)));
        assert!(public.get(ONE, &sam.headers()).body == bytes);
        let deleted = public.send("DELETE", ONE, &sam.headers(), b"");
        assert_eq!(deleted.status, 204);
        assert!(served.stop().0.success());
        let spool = folder.path().join("kept/spool");
        assert_eq!(fs::read_dir(spool).unwrap().count(), 0, "no upload is left");
    }
}

#[test]
fn a_relay_without_its_bucket_still_serves_records() {
    let (folder, beside) = (tempfile::tempdir().unwrap(), Beside::start());
    let (mut served, sam) = beside.relay(folder.path(), "proxy");
    let public = served.public.clone();
    assert_eq!(put(&public, &sam, ONE, &noise(1_000)), 201);
    drop(beside);
    assert_eq!(served.admin.get("/readyz", &[]).status, 200);
    let graph: StorageKey = "d:sam:sam".parse().unwrap();
    let record = sam.record(&graph, "a-record", b"sealed");
    sam.push(&public, "d:sam", &[record]).ok();
    assert_eq!(sam.pull_all(&public, "d:sam").len(), 1);
    for (status, code) in [
        {
            let got = public.get(ONE, &sam.headers());
            (got.status, got.json()["code"].clone())
        },
        (put(&public, &sam, TWO, &noise(1_000)), "unavailable".into()),
    ] {
        assert_eq!((status, code), (503, "unavailable".into()));
    }
    assert_eq!(charged(&public, &sam), 1_000, "what failed is not charged");
    // A deletion is the database's to do; the object is left for a sweep.
    let deleted = public.send("DELETE", ONE, &sam.headers(), b"");
    assert_eq!(deleted.status, 204);
    assert!(served.stop().0.success());
}
