//! Routes 12 to 14.

use argala_core::RelayBuilder;
use argala_testkit::TestDevice;
use argala_wire::{Code, Sealed, blobs::BlobResponse, limits::Quotas};
use http::{Method, StatusCode};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::world::{Ask, World, noise, of};

const BLOB: &str = "/blobs/a-blob-chosen-at-random";

async fn keyed(change: impl FnOnce(RelayBuilder) -> RelayBuilder) -> (World, TestDevice) {
    let world = World::with(change);
    let laptop = world.device("sam", "laptop").await;
    world.rotate("d:sam", 1, &[&laptop]).await;
    (world, laptop)
}

fn tag(bytes: &[u8]) -> String {
    format!(
        "\"{}\"",
        Sealed(Sha256::digest(bytes).to_vec()).to_base64url()
    )
}

fn digest(bytes: &[u8]) -> String {
    let base64 = base64_simd::STANDARD.encode_to_string(Sha256::digest(bytes));
    format!("sha-256=:{base64}:")
}

#[tokio::test]
async fn the_same_bytes_again_change_nothing_and_others_are_refused() {
    let (world, laptop) = keyed(|builder| builder).await;
    let bytes = noise(1_000);
    let path = of("d:sam", BLOB);
    let put = |bytes: Vec<u8>| world.put(&laptop, &path, bytes).send();
    let first = put(bytes.clone()).await.is(StatusCode::CREATED);
    assert_eq!(first.header("etag"), tag(&bytes));
    let blob: BlobResponse = first.read();
    assert_eq!(
        (blob.size, blob.sha256.0.as_slice()),
        (1_000, Sha256::digest(&bytes).as_slice())
    );
    assert_eq!(first.value()["policy"], "keep");
    assert!(first.value().get("expiresAt").is_none());
    let again = put(bytes).await.is(StatusCode::OK);
    assert_eq!(again.body, first.body);
    put(noise(999)).await.problem(Code::BlobExists);
}

#[tokio::test]
async fn a_blob_is_read_whole_in_part_or_not_at_all() {
    let (world, laptop) = keyed(|builder| builder).await;
    let bytes = noise(1_000);
    let path = of("d:sam", BLOB);
    world
        .put(&laptop, &path, bytes.clone())
        .send()
        .await
        .is(StatusCode::CREATED);
    let get = || world.get(&laptop, &path);
    let whole = get().send().await.is(StatusCode::OK);
    assert_eq!(whole.body, bytes);
    for (name, value) in [
        ("etag", tag(&bytes).as_str()),
        ("content-length", "1000"),
        ("accept-ranges", "bytes"),
        ("content-type", "application/octet-stream"),
        ("cache-control", "private, no-cache"),
    ] {
        assert_eq!(whole.header(name), value, "{name}");
    }
    for (range, status, place, want) in [
        ("bytes=0-9", 206, Some("bytes 0-9/1000"), &bytes[..10]),
        ("bytes=990-", 206, Some("bytes 990-999/1000"), &bytes[990..]),
        ("bytes=-10", 206, Some("bytes 990-999/1000"), &bytes[990..]),
        ("bytes=0-5000", 206, Some("bytes 0-999/1000"), &bytes[..]),
        ("bytes=0-1,4-5", 200, None, &bytes[..]),
        ("bytes=9-1", 200, None, &bytes[..]),
        ("lines=0-9", 200, None, &bytes[..]),
    ] {
        let part = get().header("range", range).send().await;
        assert_eq!(part.status.as_u16(), status, "{range}");
        assert_eq!(part.body, want, "{range}");
        assert_eq!(
            part.header("content-length"),
            want.len().to_string(),
            "{range}"
        );
        let told = part
            .headers
            .get("content-range")
            .map(|value| value.to_str().expect("text"));
        assert_eq!(told, place, "{range}");
    }
    for range in ["bytes=1000-", "bytes=-0"] {
        let outside = get().header("range", range).send().await;
        outside.problem(Code::RangeNotSatisfiable);
        assert_eq!(outside.header("content-range"), "bytes */1000");
    }
    let conditional = |if_range: &str| {
        get()
            .header("range", "bytes=0-9")
            .header("if-range", if_range)
    };
    conditional(&tag(&bytes))
        .send()
        .await
        .is(StatusCode::PARTIAL_CONTENT);
    conditional("\"other\"").send().await.is(StatusCode::OK);
    for known in [
        tag(&bytes),
        format!("\"x\", W/{}", tag(&bytes)),
        "*".to_owned(),
    ] {
        let answer = get()
            .header("if-none-match", &known)
            .header("range", "bytes=0-9");
        let answer = answer.send().await.is(StatusCode::NOT_MODIFIED);
        assert_eq!(answer.header("etag"), tag(&bytes));
        assert!(answer.body.is_empty());
    }
}

#[tokio::test]
async fn head_tells_the_same_and_sends_nothing() {
    let (world, laptop) = keyed(|builder| builder).await;
    let bytes = noise(1_000);
    let path = of("d:sam", BLOB);
    world
        .put(&laptop, &path, bytes.clone())
        .send()
        .await
        .is(StatusCode::CREATED);
    // The object itself is gone: whoever opened it would fail.
    std::fs::remove_dir_all(world.folder.path().join("blobs")).expect("removed");
    let head = || world.ask(Method::HEAD, &path).by(&laptop.to_ref());
    let answer = head()
        .header("range", "bytes=0-9")
        .send()
        .await
        .is(StatusCode::OK);
    assert_eq!(answer.header("content-length"), "1000");
    assert_eq!(
        (answer.header("etag"), answer.header("accept-ranges")),
        (&*tag(&bytes), "bytes")
    );
    assert!(answer.body.is_empty());
    head()
        .header("if-none-match", &tag(&bytes))
        .send()
        .await
        .is(StatusCode::NOT_MODIFIED);
    // A missing object is our fault, never an empty blob.
    world
        .get(&laptop, &path)
        .send()
        .await
        .problem(Code::Internal);
    let missing = of("d:sam", "/blobs/another-random-blob");
    let answer = world
        .ask(Method::HEAD, &missing)
        .by(&laptop.to_ref())
        .send()
        .await;
    answer.is(StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_deleted_blob_is_gone_and_its_bytes_with_it() {
    let (world, laptop) = keyed(|builder| builder).await;
    let path = of("d:sam", BLOB);
    world
        .put(&laptop, &path, noise(1_000))
        .send()
        .await
        .is(StatusCode::CREATED);
    let used =
        async || world.get(&laptop, &of("d:sam", "")).send().await.value()["blobBytes"].clone();
    assert_eq!(used().await, 1_000);
    let answer = world
        .delete(&laptop, &path)
        .send()
        .await
        .is(StatusCode::NO_CONTENT);
    assert!(answer.body.is_empty());
    assert_eq!(used().await, 0);
    world
        .delete(&laptop, &path)
        .send()
        .await
        .problem(Code::BlobNotFound);
    world
        .get(&laptop, &path)
        .send()
        .await
        .problem(Code::BlobNotFound);
}

#[tokio::test]
async fn the_announcement_is_checked() {
    let (world, laptop) = keyed(|builder| builder).await;
    let bytes = noise(100);
    let path = of("d:sam", BLOB);
    let put = || world.put(&laptop, &path, bytes.clone());
    let wrong = put()
        .header("content-digest", &digest(b"something else"))
        .send()
        .await;
    wrong.problem(Code::DigestMismatch);
    put()
        .header("content-digest", "sha-256=:AAAA:")
        .send()
        .await
        .blames("Content-Digest");
    put()
        .header("content-digest", "sha-256")
        .send()
        .await
        .blames("Content-Digest");
    let shorter = put().header("content-length", "99").send().await;
    shorter.problem(Code::DigestMismatch);
    put()
        .header("content-length", "101")
        .send()
        .await
        .problem(Code::DigestMismatch);
    put()
        .header("content-length", "x")
        .send()
        .await
        .blames("Content-Length");
    let unsized_put = world
        .ask(Method::PUT, &path)
        .by(&laptop.to_ref())
        .body(bytes.clone());
    unsized_put.send().await.problem(Code::LengthRequired);
    put()
        .header("content-type", "text/plain")
        .send()
        .await
        .problem(Code::UnsupportedMediaType);
    let right = put().header(
        "content-digest",
        &format!("sha-512=:AAAA:, {}", digest(&bytes)),
    );
    let right = right.header("content-type", "application/octet-stream");
    right.send().await.is(StatusCode::CREATED);
    let graph = world.get(&laptop, &of("d:sam", "")).send().await.value();
    assert_eq!(graph["blobBytes"], 100, "what was refused is not charged");
}

#[tokio::test]
async fn policies_and_times_to_live() {
    let (world, laptop) = keyed(|builder| builder).await;
    let put = |n: u8, query: &str| -> Ask {
        let path = of("d:sam", &format!("/blobs/blob-number-{n:0>10}{query}"));
        world.put(&laptop, &path, noise(10))
    };
    for (query, field) in [
        ("?policy=forever", "policy"),
        ("?policy=", "policy"),
        ("?policy=expire", "ttl"),
        ("?policy=expire&ttl=59", "ttl"),
        ("?policy=expire&ttl=31536001", "ttl"),
        ("?policy=expire&ttl=1e3", "ttl"),
        ("?ttl=60", "ttl"),
        ("?color=red", "color"),
        ("?policy=keep&policy=keep", "policy"),
    ] {
        put(0, query).send().await.blames(field);
    }
    for (n, query, policy, expires_at) in [
        (1, "?policy=keep", "keep", None),
        (
            2,
            "?policy=expire&ttl=60",
            "expire",
            Some("2026-01-01T00:01:00.000Z"),
        ),
        (
            3,
            "?policy=deliver",
            "deliver",
            Some("2026-01-31T00:00:00.000Z"),
        ),
        (
            4,
            "?policy=deliver&ttl=3600",
            "deliver",
            Some("2026-01-01T01:00:00.000Z"),
        ),
    ] {
        let blob = put(n, query).send().await.is(StatusCode::CREATED).value();
        assert_eq!(blob["policy"], policy);
        assert_eq!(
            blob.get("expiresAt").cloned(),
            expires_at.map(|at| json!(at)),
            "{query}"
        );
    }
    let repeat = put(2, "?policy=keep")
        .send()
        .await
        .is(StatusCode::OK)
        .value();
    assert_eq!(
        repeat["policy"], "expire",
        "the first upload's policy stays"
    );
}

#[tokio::test]
async fn ceilings_are_held_to() {
    let quotas = Quotas {
        max_blob_bytes: 100,
        max_blob_bytes_per_graph: 150,
        ..Quotas::default()
    };
    let (world, laptop) = keyed(|builder| builder.quotas(quotas)).await;
    let put = |name: &str, length| {
        world
            .put(
                &laptop,
                &of("d:sam", &format!("/blobs/{name:-<16}")),
                noise(length),
            )
            .send()
    };
    drop(world.events.take());
    assert_eq!(
        put("a", 101).await.problem(Code::BlobTooLarge).limit,
        Some(100)
    );
    put("b", 100).await.is(StatusCode::CREATED);
    let problem = put("c", 51).await.problem(Code::QuotaExceeded);
    assert_eq!(problem.what.as_deref(), Some("blobBytesPerGraph"));
    assert_eq!((problem.limit, problem.used), (Some(150), Some(100)));
    put("d", 50).await.is(StatusCode::CREATED);
    put("e", 0).await.is(StatusCode::CREATED);
    let events: Vec<_> = world
        .events
        .take()
        .iter()
        .map(|event| serde_json::to_value(event).expect("writes"))
        .filter(|event| event["type"] == "quota.exceeded")
        .map(|event| event["what"].clone())
        .collect();
    assert_eq!(events, ["blobBytes", "blobBytesPerGraph"]);
}

#[tokio::test]
async fn an_empty_blob_is_a_blob() {
    let (world, laptop) = keyed(|builder| builder).await;
    let path = of("d:sam", BLOB);
    world
        .put(&laptop, &path, vec![])
        .send()
        .await
        .is(StatusCode::CREATED);
    let answer = world.get(&laptop, &path).send().await.is(StatusCode::OK);
    assert_eq!(
        (answer.header("content-length"), answer.body.len()),
        ("0", 0)
    );
    let answer = world
        .get(&laptop, &path)
        .header("range", "bytes=0-")
        .send()
        .await;
    answer.problem(Code::RangeNotSatisfiable);
}
