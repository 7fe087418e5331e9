//! What becomes of an S3 that refuses, fails, is slow, or breaks off.

use std::{io, time::Duration};

use argala_blob::{S3Blobs, S3Options};
use argala_core::{
    StoreError, StoreErrorKind,
    ports::{BlobStore, ByteStream},
};
use bytes::Bytes;
use futures_util::{TryStreamExt, stream};
use tempfile::TempDir;

use super::{
    all, body, key, noise, options,
    stub::{Asked, Stub, Then, answer, refusal},
};

const HASTE: Duration = Duration::from_millis(300);

async fn store(stub: &Stub) -> (S3Blobs, TempDir) {
    let spool = tempfile::tempdir().unwrap();
    let options = S3Options {
        answer_timeout: HASTE,
        stall_timeout: HASTE,
        ..options(&stub.place(), "bucket", spool.path())
    };
    (S3Blobs::open(options).await.unwrap(), spool)
}

fn stored() -> Then {
    Then::Answer(answer(200, "etag: \"x\"\r\n", b""))
}

/// Why it is no object that can be read.
async fn refused(store: &S3Blobs) -> StoreError {
    match store.get(&key(1), None).await {
        Err(error) => error,
        Ok(Some(_)) => panic!("there is an object"),
        Ok(None) => panic!("it is said that there is none"),
    }
}

/// What comes of reading it to its end.
async fn broken(stream: ByteStream) -> io::Error {
    let read: Result<Vec<Bytes>, _> = stream.try_collect().await;
    read.expect_err("it is not whole")
}

/// What only AWS understands (aws-sdk-rust 1240).
fn is_exotic(asked: &Asked) -> bool {
    asked.headers.iter().any(|(name, value)| {
        name.starts_with("x-amz-checksum")
            || name == "x-amz-sdk-checksum-algorithm"
            || name == "x-amz-trailer"
            || name == "transfer-encoding"
            || name == "expect"
            || value.contains("aws-chunked")
            || value.starts_with("STREAMING-")
    })
}

#[tokio::test]
async fn aws_sdk_rust_1240_a_vendor_that_knows_no_checksums_is_served() {
    let small = noise(1_000);
    let large = noise(3_000_000);
    let kept = large.clone();
    let stub = Stub::start(move |_, asked| {
        if is_exotic(asked) {
            return refusal(501, "NotImplemented");
        }
        match asked.method.as_str() {
            "GET" => Then::Answer(answer(200, "", &kept)),
            _ => stored(),
        }
    })
    .await;
    let (store, _spool) = store(&stub).await;
    for bytes in [&small, &large] {
        store
            .put(&key(1), bytes.len() as u64, body(bytes))
            .await
            .unwrap();
        let sent = stub.asked().pop().unwrap();
        assert!(sent.body == *bytes, "as it is, in one piece");
        let length = sent.headers["content-length"].parse::<usize>().unwrap();
        assert_eq!(length, bytes.len());
    }
    assert!(all(&store, &key(1)).await.unwrap() == large);
    assert_eq!(stub.asked().len(), 3);
}

/// aws-sdk-rust 541.
#[tokio::test]
async fn aws_sdk_rust_541_a_put_that_is_interrupted_is_sent_again_whole() {
    let bytes = noise(5_000_000);
    let stub = Stub::reading(1_000_000, |number, _| match number {
        0 => refusal(503, "SlowDown"),
        _ => stored(),
    })
    .await;
    let (store, spool) = store(&stub).await;
    store
        .put(&key(1), bytes.len() as u64, body(&bytes))
        .await
        .unwrap();
    let asked = stub.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0].path, asked[1].path, "it is one object");
    assert!(asked[0].body.len() < bytes.len());
    assert!(asked[1].body == bytes);
    assert_eq!(std::fs::read_dir(spool.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn what_cannot_be_mended_by_asking_again_is_asked_twice_at_most() {
    for (status, code, times) in [
        (503, "SlowDown", 2),
        (500, "InternalError", 2),
        (429, "TooManyRequests", 2),
        (400, "RequestTimeout", 2),
        (403, "AccessDenied", 1),
        (404, "NoSuchBucket", 1),
    ] {
        let stub = Stub::start(move |_, _| refusal(status, code)).await;
        let (store, _spool) = store(&stub).await;
        let bytes = noise(100_000);
        let mut faults = vec![
            store.put(&key(1), 100_000, body(&bytes)).await.unwrap_err(),
            refused(&store).await,
            store.list("0123", None, 10).await.unwrap_err(),
        ];
        faults.push(store.delete(&key(1)).await.unwrap_err());
        for fault in faults {
            assert_eq!(fault.kind, StoreErrorKind::Unavailable, "{code}");
            let told = fault.source.unwrap().to_string();
            assert!(told.contains(code), "{told}");
        }
        assert_eq!(stub.asked().len(), 4 * times, "{code}");
    }
}

#[tokio::test]
async fn only_an_object_can_be_missing() {
    let stub = Stub::start(|_, _| refusal(404, "NoSuchKey")).await;
    let (store, _spool) = store(&stub).await;
    assert!(store.get(&key(1), None).await.unwrap().is_none());
    assert!(store.get(&key(1), Some(0..1)).await.unwrap().is_none());
    store.delete(&key(1)).await.unwrap();
}

#[tokio::test]
async fn silence_is_not_waited_out() {
    let stub = Stub::start(|_, _| Then::Silence(Vec::new())).await;
    let (store, _spool) = store(&stub).await;
    let bytes = noise(100_000);
    let faults = tokio::time::timeout(argala_testkit::PATIENCE, async {
        [
            store.put(&key(1), 100_000, body(&bytes)).await.unwrap_err(),
            refused(&store).await,
            store.delete(&key(1)).await.unwrap_err(),
            store.list("0123", None, 10).await.unwrap_err(),
        ]
    });
    for fault in faults.await.expect("it gives up") {
        assert_eq!(fault.kind, StoreErrorKind::Unavailable);
    }
    // Nobody at all.
    let place = stub.place();
    drop(stub);
    let spool = tempfile::tempdir().unwrap();
    let store = S3Blobs::open(options(&place, "bucket", spool.path())).await;
    let fault = store.unwrap().delete(&key(1)).await.unwrap_err();
    assert_eq!(fault.kind, StoreErrorKind::Unavailable);
}

#[tokio::test]
async fn a_slow_put_is_not_cut_while_it_moves() {
    // Longer in all than the patience for a pause.
    let stub = Stub::start(|_, _| stored()).await;
    let (store, _spool) = store(&stub).await;
    let slow = stream::unfold(0, |at: u8| async move {
        tokio::time::sleep(HASTE / 2).await;
        (at < 4).then(|| (io::Result::Ok(Bytes::from(vec![at; 50_000])), at + 1))
    });
    store.put(&key(1), 200_000, Box::pin(slow)).await.unwrap();
    assert_eq!(stub.asked()[0].body.len(), 200_000);
}

#[tokio::test]
async fn part_of_an_object_is_never_all_of_it() {
    let bytes = noise(200_000);
    let half = {
        let mut whole = answer(200, "", &bytes);
        whole.truncate(whole.len() - 100_000);
        whole
    };
    for case in ["ends early", "is reset", "goes silent"] {
        let half = half.clone();
        let stub = Stub::start(move |_, _| match case {
            "ends early" => Then::Answer(half.clone()),
            "is reset" => Then::Reset(half.clone()),
            _ => Then::Silence(half.clone()),
        })
        .await;
        let (store, _spool) = store(&stub).await;
        let stream = store.get(&key(1), None).await.unwrap().unwrap();
        broken(stream).await;
        assert_eq!(stub.asked().len(), 1, "{case}: what was begun is not mixed");
    }
}

#[tokio::test]
async fn other_bytes_than_those_of_the_range_are_no_answer() {
    let whole = noise(1_000);
    for (status, place, length) in [
        // It knows no ranges.
        (200, "", 1_000),
        (206, "content-range: bytes 0-99/1000\r\n", 100),
        (206, "content-range: bytes 100-149/1000\r\n", 50),
    ] {
        let bytes = whole[..length].to_vec();
        let stub = Stub::start(move |_, _| Then::Answer(answer(status, place, &bytes))).await;
        let (store, _spool) = store(&stub).await;
        let Err(fault) = store.get(&key(1), Some(100..200)).await else {
            panic!("{status} {place}");
        };
        assert_eq!(fault.kind, StoreErrorKind::Unavailable);
        assert_eq!(stub.asked()[0].headers["range"], "bytes=100-199");
    }
    // The object is shorter than its blob.
    let stub = Stub::start(|_, _| refusal(416, "InvalidRange")).await;
    let (store, _spool) = store(&stub).await;
    let Err(fault) = store.get(&key(1), Some(100..200)).await else {
        panic!("there are no such bytes");
    };
    assert_eq!(fault.kind, StoreErrorKind::Corrupt);
}

#[tokio::test]
async fn an_upload_that_breaks_off_never_reaches_s3() {
    let stub = Stub::start(|_, _| stored()).await;
    let (store, spool) = store(&stub).await;
    for (announced, size) in [(100_000, 99_999), (100_000, 100_001), (10, 9), (10, 11)] {
        let put = store.put(&key(1), announced, body(&noise(size))).await;
        assert_eq!(put.unwrap_err().kind, StoreErrorKind::Unavailable);
    }
    assert_eq!(stub.asked().len(), 0);
    assert_eq!(std::fs::read_dir(spool.path()).unwrap().count(), 0);
}

/// A server may not know where to begin, and may have other things.
#[tokio::test]
async fn a_list_has_nothing_but_what_was_asked_for() {
    let stub = Stub::start(|number, _| {
        let entry = |key: &str| {
            format!(
                "<Contents><Key>{key}</Key><Size>7</Size>\
                 <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            )
        };
        let (keys, next) = match number {
            0 => (
                ["0123/00", "0123/notes.txt"],
                "<IsTruncated>true</IsTruncated>\
                 <NextContinuationToken>more</NextContinuationToken>",
            ),
            _ => (["0123/01", "0123/02"], "<IsTruncated>false</IsTruncated>"),
        };
        let body = format!(
            "<?xml version=\"1.0\"?><ListBucketResult>{next}{}</ListBucketResult>",
            keys.map(entry).concat()
        );
        let head = "content-type: application/xml\r\n";
        Then::Answer(answer(200, head, body.as_bytes()))
    })
    .await;
    let (store, _spool) = store(&stub).await;
    let after = argala_core::ports::ObjectKey::parse("0123/01").unwrap();
    let listed = store.list("0123", Some(&after), 10).await.unwrap();
    let [only] = listed.as_slice() else {
        panic!("{listed:?}")
    };
    assert_eq!((only.key.as_str(), only.size), ("0123/02", 7));
    assert_eq!(only.modified_at, argala_testkit::EPOCH);
    let asked = stub.asked();
    assert!(asked[0].path.contains("start-after=0123%2F01"));
    assert!(asked[1].path.contains("continuation-token=more"));
}
