//! Two relays on one database and one Redis.

use std::time::Duration;

use argala_testkit::servers;
use serde_json::json;

use super::{redis, runtime, shared};
use crate::{
    device::TestDevice,
    http::Events,
    process::{Served, now, relay},
};

struct Replicas {
    one: Served,
    other: Served,
    sam: TestDevice,
    phone: TestDevice,
    // Ended in this order: relays, servers, what carries them.
    _folder: tempfile::TempDir,
    _redis: servers::PrivateRedis,
    _database: servers::Database,
    _runtime: tokio::runtime::Runtime,
}

impl Replicas {
    fn start(args: &[&str]) -> Self {
        let runtime = runtime();
        let redis = redis(&runtime);
        let database = runtime.block_on(servers::postgres());
        let url = database.url();
        let store = [
            ("ARGALA__STORE__KIND", "postgres"),
            ("ARGALA__STORE__URL", url.as_str()),
        ];
        let migrated = relay().arg("migrate").envs(store).output().unwrap();
        assert!(migrated.status.success());
        let folder = tempfile::tempdir().unwrap();
        let start = || {
            let variables = shared(redis.url(), &store);
            let mut served = Served::dev_with(folder.path(), &variables, args);
            // In any order: three connections are made at once.
            served.wait_for_log("told of changes");
            served
        };
        let (one, other) = (start(), start());
        let sam = TestDevice::dev("sam", "laptop");
        let phone = TestDevice::dev("sam", "phone");
        sam.register(&one.public).ok();
        phone.register(&other.public).ok();
        sam.rotate(&one.public, "d:sam", &[&sam, &phone]).ok();
        Self {
            one,
            other,
            sam,
            phone,
            _folder: folder,
            _redis: redis,
            _database: database,
            _runtime: runtime,
        }
    }
}

#[test]
fn a_push_at_one_relay_pokes_streams_of_the_other() {
    let replicas = Replicas::start(&[]);
    let mut stream = Events::open(&replicas.other.public, &replicas.phone.headers());
    // The connections of a relay that has just started may still be made.
    let until = now() + Duration::from_secs(20);
    let graph = argala_wire::StorageKey::own(&replicas.sam.of.member_id);
    let (sender, told) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let found = stream.wait_for("argala.poke");
        let _ = sender.send(found);
    });
    for at in 0.. {
        let record = replicas.sam.record(&graph, &format!("r{at}"), b"sealed");
        replicas
            .sam
            .push(&replicas.one.public, "d:sam", &[record])
            .ok();
        if let Ok(found) = told.recv_timeout(Duration::from_millis(500)) {
            assert!(found, "the stream ended");
            break;
        }
        assert!(now() < until, "no poke came");
    }
    reader.join().unwrap();
}

#[test]
fn a_device_revoked_at_one_relay_loses_its_stream_at_the_other_within_five_seconds() {
    let replicas = Replicas::start(&[]);
    let stream = Events::open(&replicas.other.public, &replicas.phone.headers());
    let revoked = replicas.one.public.send(
        "DELETE",
        "/devices/phone",
        &replicas.sam.headers(),
        json!({}).to_string().as_bytes(),
    );
    assert!((200..300).contains(&revoked.status), "{revoked:?}");
    let begun = now();
    let _ = stream.rest();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn two_relays_allow_what_one_would() {
    let replicas = Replicas::start(&["--set", "rate_limits.blobs={ per_minute = 6, burst = 20 }"]);
    let begun = now();
    let mut allowed = 0;
    for at in 0..60 {
        let target = [&replicas.one, &replicas.other][at % 2];
        let answer = target.public.get(
            "/graphs/d:sam/blobs/a-blob-that-is-not-there",
            &replicas.sam.headers(),
        );
        match answer.status {
            404 => allowed += 1,
            429 => {}
            other => panic!("{other}"),
        }
    }
    let worth = 20 + begun.elapsed().as_secs() / 10 + 1;
    // A busy machine may make one of them decide by itself for a moment, to its half of the burst.
    assert!((20..=worth + 10).contains(&allowed), "{allowed} of {worth}");
}
