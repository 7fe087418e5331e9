//! Files as blobs.

use std::sync::{Arc, Mutex};

use argala_client::{
    Client, Error, GraphAccess, Session,
    session::{BlobOptions, BlobSource},
};
use argala_wire::{BlobId, Code, blobs::BlobPolicy, limits::Quotas};
use axum::{Router, body::Body, extract::Request, response::Response};
use http::{HeaderMap, Method, header};
use tokio::net::TcpListener;

use crate::world::{ByteChange, Meddle, World, acme};

const CHUNK: usize = 64 * 1024;

fn noise(len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

fn blob(n: u8) -> BlobId {
    BlobId::new(format!("blob-of-the-test-{n}")).expect("an id")
}

#[tokio::test]
async fn files_of_every_size_come_back_as_they_were() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    for len in [
        0,
        1,
        CHUNK - 1,
        CHUNK,
        CHUNK + 1,
        5 * CHUNK,
        3 * 1024 * 1024 + 7,
    ] {
        let (from, to) = (world.path("from"), world.path("to"));
        std::fs::write(&from, noise(len)).expect("writes");
        std::fs::write(&to, b"what was there").expect("writes");
        let id = Session::new_blob_id();
        let stored = sam
            .session
            .put_blob(&acme(), &id, &from)
            .await
            .expect("puts");
        assert_eq!(stored.size, len as u64);
        let size = alex
            .session
            .get_blob(&acme(), &id, &to, Some(&stored.sha256))
            .await;
        assert_eq!(size.expect("gets"), len as u64);
        assert!(std::fs::read(&to).expect("there") == noise(len), "{len}");
        let bytes = alex
            .session
            .get_blob_bytes(&acme(), &id, None)
            .await
            .expect("gets");
        assert!(bytes == noise(len));
        let error = alex
            .session
            .get_blob(&acme(), &id, &to, Some(&[0; 32]))
            .await;
        assert!(matches!(error, Err(Error::Unreadable(_))));
    }
    let left = std::fs::read_dir(world.key_file("sam", "laptop").with_extension("keys.state"));
    let left: Vec<_> = left
        .expect("lists")
        .map(|e| e.expect("an entry").file_name())
        .collect();
    assert!(
        left.iter()
            .all(|name| !name.to_string_lossy().starts_with(".argala-")),
        "{left:?}"
    );
}

#[tokio::test]
async fn the_same_file_again_is_the_same_blob_even_after_a_rotation() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    let (from, other) = (world.path("from"), world.path("other"));
    std::fs::write(&from, noise(100_000)).expect("writes");
    std::fs::write(&other, noise(100_001)).expect("writes");
    let first = sam
        .session
        .put_blob(&acme(), &blob(1), &from)
        .await
        .expect("puts");
    let again = sam
        .session
        .put_blob(&acme(), &blob(1), &from)
        .await
        .expect("puts");
    assert_eq!(first, again);
    sam.session.rotate(&acme()).await.expect("rotates");
    let again = sam
        .session
        .put_blob(&acme(), &blob(1), &from)
        .await
        .expect("puts");
    assert_eq!((first.epoch, again), (1, first.clone()));
    let error = sam
        .session
        .put_blob(&acme(), &blob(1), &other)
        .await
        .expect_err("another file");
    assert_eq!(error.code(), Some(Code::BlobExists));
    let new = sam
        .session
        .put_blob(&acme(), &blob(2), &from)
        .await
        .expect("puts");
    assert_eq!((new.epoch, new.sha256), (2, first.sha256));
    let to = world.path("to");
    for id in [blob(1), blob(2)] {
        alex.session
            .get_blob(&acme(), &id, &to, Some(&first.sha256))
            .await
            .expect("gets");
    }
    // Nothing of the file, nor of the key, is in the relay's store.
    let store = [
        std::fs::read(world.path("relay.db")),
        std::fs::read(world.path("relay.db-wal")),
    ];
    let store: Vec<u8> = store
        .into_iter()
        .flat_map(|bytes| bytes.unwrap_or_default())
        .collect();
    assert!(store.len() > 200_000);
    let plain = noise(100_000);
    assert!(!store.windows(64).any(|window| window == &plain[..64]));
}

/// The sealed bytes of a blob, as the relay has them.
pub(crate) async fn sealed(api: &Client, id: &BlobId) -> Vec<u8> {
    let mut body = api.get_blob(&acme(), id, None).await.expect("gets");
    let mut sealed = Vec::new();
    while let Some(bytes) = body.next().await.expect("reads") {
        sealed.extend_from_slice(&bytes);
    }
    sealed
}

#[tokio::test]
async fn a_blob_that_is_not_what_was_sealed_never_reaches_its_place() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    let (from, to) = (world.path("from"), world.path("to"));
    std::fs::write(&from, noise(200_000)).expect("writes");
    sam.session
        .put_blob(&acme(), &blob(1), &from)
        .await
        .expect("puts");
    // A second epoch, whose key is there but opens nothing of the first.
    sam.session.rotate(&acme()).await.expect("rotates");
    std::fs::write(&from, noise(10)).expect("writes");
    sam.session
        .put_blob(&acme(), &blob(2), &from)
        .await
        .expect("puts");
    let other = sealed(sam.session.api(), &blob(2)).await;
    let changes: [(&str, ByteChange); 11] = [
        ("a chunk", Box::new(|bytes| bytes[150_000] ^= 1)),
        ("the version", Box::new(|bytes| bytes[0] ^= 2)),
        ("an epoch to come", Box::new(|bytes| bytes[3] ^= 1)),
        ("the next epoch", Box::new(|bytes| bytes[8] = 3)),
        ("no epoch", Box::new(|bytes| bytes[8] = 0)),
        ("another epoch", Box::new(|bytes| bytes[8] = 2)),
        ("the nonces", Box::new(|bytes| bytes[9] ^= 1)),
        (
            "an end too early",
            Box::new(|bytes| bytes.truncate(28 + 2 * (CHUNK + 16))),
        ),
        ("half a header", Box::new(|bytes| bytes.truncate(10))),
        ("an end too late", Box::new(|bytes| bytes.push(0))),
        ("another blob", Box::new(move |bytes| *bytes = other)),
    ];
    for (what, change) in changes {
        world
            .meddler
            .once(Method::GET, "test-1", Meddle::ChangeBytes(change));
        let error = alex.session.get_blob(&acme(), &blob(1), &to, None).await;
        assert!(
            matches!(error, Err(Error::Unreadable("the blob"))),
            "{what}: {error:?}"
        );
        assert!(!to.exists(), "{what}");
    }
    let names = std::fs::read_dir(world.path("")).expect("lists");
    let left = names.filter(|entry| {
        let name = entry.as_ref().expect("an entry").file_name();
        name.to_string_lossy()
            .starts_with(argala_client::UNFINISHED)
    });
    assert_eq!(left.count(), 0);
    alex.session
        .get_blob(&acme(), &blob(1), &to, None)
        .await
        .expect("gets");
    assert!(std::fs::read(&to).expect("there") == noise(200_000));
}

#[tokio::test]
async fn a_transfer_that_was_cut_is_made_again() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    let (from, to) = (world.path("from"), world.path("to"));
    std::fs::write(&from, noise(300_000)).expect("writes");
    world.meddler.once(Method::PUT, "test-1", Meddle::Cut);
    let stored = sam
        .session
        .put_blob(&acme(), &blob(1), &from)
        .await
        .expect("puts");
    world.meddler.once(Method::GET, "test-1", Meddle::Cut);
    alex.session
        .get_blob(&acme(), &blob(1), &to, Some(&stored.sha256))
        .await
        .expect("gets");
    assert!(std::fs::read(&to).expect("there") == noise(300_000));
    let info = sam.session.api().graph(&acme()).await.expect("told");
    let head = sam
        .session
        .api()
        .head_blob(&acme(), &blob(1))
        .await
        .expect("told");
    assert_eq!(head.size(), Some(info.blob_bytes), "stored once");
    sam.session
        .api()
        .delete_blob(&acme(), &blob(1))
        .await
        .expect("deletes");
    let gone = sam
        .session
        .api()
        .delete_blob(&acme(), &blob(1))
        .await
        .expect_err("gone");
    assert_eq!(gone.code(), Some(Code::BlobNotFound));
}

#[tokio::test]
async fn ceilings_policies_and_missing_keys() {
    let quotas = Quotas {
        max_blob_bytes: 100_000,
        ..Quotas::default()
    };
    let world = World::with(|builder| builder.quotas(quotas)).await;
    let (mut sam, _) = world.pair().await;
    let from = world.path("from");
    let most = sam.session.largest_blob().await.expect("told");
    std::fs::write(&from, noise(usize::try_from(most).expect("fits") + 1)).expect("writes");
    world.meddler.take();
    let error = sam
        .session
        .put_blob(&acme(), &blob(1), &from)
        .await
        .expect_err("too large");
    assert_eq!(
        (error.code(), error.problem().and_then(|p| p.limit)),
        (Some(Code::BlobTooLarge), Some(100_000))
    );
    assert!(
        world
            .meddler
            .take()
            .iter()
            .all(|asked| asked.method != Method::PUT)
    );
    let bytes = BlobSource::Bytes(noise(usize::try_from(most).expect("fits")).into());
    let options = BlobOptions {
        policy: BlobPolicy::Expire,
        ttl: Some(3_600),
    };
    let (_, answer) = sam
        .session
        .put_blob_with(&acme(), &blob(1), &bytes, options)
        .await
        .expect("puts");
    assert_eq!((answer.size, answer.policy), (100_000, BlobPolicy::Expire));
    assert!(answer.expires_at.is_some());

    let mut seven = world.device("user:7", "late").await;
    let error = seven
        .session
        .put_blob(&acme(), &blob(2), &from)
        .await
        .expect_err("no key");
    assert!(matches!(error, Error::KeysBehind { .. }), "{error}");
    let to = world.path("to");
    let error = seven
        .session
        .get_blob(&acme(), &blob(1), &to, None)
        .await
        .expect_err("no key");
    assert!(matches!(error, Error::KeysBehind { .. }), "{error}");
    let unkeyed = crate::world::graph("d:sam");
    let error = sam
        .session
        .put_blob(&unkeyed, &blob(2), &from)
        .await
        .expect_err("no key");
    assert!(matches!(error, Error::Unkeyed { .. }), "{error}");
    let error = sam
        .session
        .get_blob(&acme(), &blob(9), &to, None)
        .await
        .expect_err("none");
    assert_eq!(error.code(), Some(Code::BlobNotFound));
}

/// Where the relay keeps its blobs in a bucket, it may say where instead of sending them.
#[tokio::test]
async fn a_blob_that_is_elsewhere_is_fetched_there_without_our_credential() {
    let world = World::new().await;
    let (mut sam, mut alex) = world.pair().await;
    let (from, to) = (world.path("from"), world.path("to"));
    std::fs::write(&from, noise(200_000)).expect("writes");
    let stored = sam.session.put_blob(&acme(), &blob(1), &from).await;
    let stored = stored.expect("puts");

    // A bucket that has the same sealed bytes, and a tag of its own for them.
    let body = sam.session.api().get_blob(&acme(), &blob(1), None).await;
    assert!(body.expect("gets").sha256().is_some());
    let sealed = sealed(sam.session.api(), &blob(1)).await;
    let asked: Arc<Mutex<Vec<HeaderMap>>> = Arc::default();
    let noted = Arc::clone(&asked);
    let bucket = Router::new().fallback(move |request: Request| {
        noted
            .lock()
            .expect("unpoisoned")
            .push(request.headers().clone());
        let tag = "\"0123456789abcdef0123456789abcdef\"";
        let answer = Response::builder().header(header::ETAG, tag);
        let answer = answer.body(Body::from(sealed.clone()));
        async move { answer.expect("an answer") }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move { axum::serve(listener, bucket).await });

    world.meddler.set(move |asked| {
        if !asked.is(Method::GET, "test-1") {
            return Meddle::Pass;
        }
        let link = format!("http://{address}/bucket/object?X-Amz-Signature=abc");
        let answer = Response::builder()
            .status(307)
            .header(header::LOCATION, link);
        Meddle::Answer(answer.body(Body::empty()).expect("an answer"))
    });
    let size = alex
        .session
        .get_blob(&acme(), &blob(1), &to, Some(&stored.sha256))
        .await;
    assert_eq!(size.expect("gets"), 200_000);
    assert!(std::fs::read(&to).expect("there") == noise(200_000));
    let body = sam.session.api().get_blob(&acme(), &blob(1), None).await;
    assert_eq!(
        body.expect("gets").sha256(),
        None,
        "the tag is not the relay's"
    );
    let asked = asked.lock().expect("unpoisoned");
    assert_eq!(asked.len(), 2);
    for headers in asked.iter() {
        assert!(!headers.contains_key(header::AUTHORIZATION));
        assert!(!headers.contains_key(header::COOKIE));
        assert!(!headers.contains_key(header::REFERER), "it names the graph");
    }
}
