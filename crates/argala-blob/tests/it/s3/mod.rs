//! Objects in a bucket: on servers that are S3, and on some that behave badly.

mod contract;
mod faults;
mod links;
mod stub;

use std::{net::Ipv4Addr, path::Path};

use argala_blob::{S3Blobs, S3Keys, S3Options};
use argala_core::ports::{BlobStore, ByteStream, ObjectKey};
use argala_testkit::servers::S3Place;
use bytes::Bytes;
use futures_util::{TryStreamExt, stream};

fn key(number: u8) -> ObjectKey {
    ObjectKey::new("0123456789abcdef", [number; 16])
}

fn body(bytes: &[u8]) -> ByteStream {
    let pieces: Vec<_> = bytes.chunks(10_000).map(Bytes::copy_from_slice).collect();
    Box::pin(stream::iter(pieces.into_iter().map(Ok)))
}

/// Bytes that are not all alike.
fn noise(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Of a bucket in the path, on this machine.
fn options(place: &S3Place, bucket: &str, spool: &Path) -> S3Options {
    S3Options {
        endpoint: Some(place.endpoint.clone()),
        force_path_style: true,
        keys: S3Keys::Fixed {
            id: place.id.clone(),
            secret: place.secret.clone().into(),
        },
        ..S3Options::new(bucket, spool)
    }
}

/// The same with the bucket in the host's name, which stands for this machine.
fn by_host(options: S3Options) -> S3Options {
    S3Options {
        force_path_style: false,
        address: Some(Ipv4Addr::LOCALHOST.into()),
        ..options
    }
}

/// A new bucket, by a client of the test's own.
async fn make_bucket(place: &S3Place) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("argala-test-{}-{number}", std::process::id());
    let keys = aws_sdk_s3::config::Credentials::new(&place.id, &place.secret, None, None, "test");
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(aws_sdk_s3::config::BehaviorVersion::latest())
        .region(aws_sdk_s3::config::Region::new("us-east-1"))
        .endpoint_url(&place.endpoint)
        .force_path_style(true)
        .credentials_provider(keys)
        .build();
    let client = aws_sdk_s3::Client::from_conf(config);
    client.create_bucket().bucket(&name).send().await.unwrap();
    name
}

async fn all(store: &S3Blobs, key: &ObjectKey) -> Option<Vec<u8>> {
    let stream = store.get(key, None).await.unwrap()?;
    let pieces: Vec<Bytes> = stream.try_collect().await.unwrap();
    Some(pieces.concat())
}
