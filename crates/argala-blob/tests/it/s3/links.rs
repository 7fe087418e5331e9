//! Links by which an object is read without us.

use std::time::Duration;

use argala_blob::{S3Blobs, S3Options};
use argala_core::ports::{BlobStore, ObjectLink};
use argala_testkit::servers::S3Server;

use super::{body, key, noise, options};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_link_is_good_for_anybody_and_for_a_minute() {
    let server = S3Server::start().await;
    server.make_bucket("bucket");
    let spool = tempfile::tempdir().unwrap();
    let silent = options(&server.place(), "bucket", spool.path());
    let open = S3Options {
        links: true,
        ..silent.clone()
    };
    let store = S3Blobs::open(open).await.unwrap();
    let bytes = noise(1_000);
    store.put(&key(1), 1_000, body(&bytes)).await.unwrap();

    let ObjectLink::At(url) = store.link(&key(1), MINUTE).await.unwrap() else {
        panic!("links were asked for");
    };
    assert!(url.contains("X-Amz-Expires=60"), "{url}");
    let client = reqwest::Client::new();
    let read = client.get(&url).send().await.unwrap();
    assert_eq!(read.status().as_u16(), 200);
    assert!(read.bytes().await.unwrap() == bytes);
    let part = client.get(&url).header("range", "bytes=10-19");
    let part = part.send().await.unwrap();
    assert_eq!(part.status().as_u16(), 206);
    assert!(part.bytes().await.unwrap() == bytes[10..20]);
    // It is for this object alone, and for reading.
    let other = url.replacen(&"01".repeat(16), &"02".repeat(16), 1);
    assert_ne!(other, url);
    assert_eq!(
        client.get(other).send().await.unwrap().status().as_u16(),
        403
    );
    let put = client.put(&url).body("x").send().await.unwrap();
    assert!(!put.status().is_success());

    assert!(server.lose("bucket", key(1).as_str()));
    assert_eq!(
        store.link(&key(1), MINUTE).await.unwrap(),
        ObjectLink::Missing
    );
    let store = S3Blobs::open(silent).await.unwrap();
    assert_eq!(store.link(&key(1), MINUTE).await.unwrap(), ObjectLink::None);
}
