//! The contract of the port.

use std::sync::{Arc, LazyLock};

use argala_blob::{S3Blobs, S3Options};
use argala_core::ports::BlobStore;
use argala_testkit::{
    conformance::Fresh,
    servers::{MotoServer, S3Place, S3Server},
};
use tempfile::TempDir;

use super::{by_host, make_bucket, options};

const BUCKET: &str = "argala-blobs";

async fn opened(count: usize, in_host: bool) -> Fresh<dyn BlobStore> {
    let server = S3Server::start().await;
    server.make_bucket(BUCKET);
    let spool = tempfile::tempdir().unwrap();
    let mut replicas: Vec<Arc<dyn BlobStore>> = Vec::new();
    for _ in 0..count {
        let options = if in_host {
            by_host(options(&server.virtual_place(), BUCKET, spool.path()))
        } else {
            options(&server.place(), BUCKET, spool.path())
        };
        replicas.push(Arc::new(S3Blobs::open(options).await.unwrap()));
    }
    Fresh::of(replicas, (server, spool))
}

async fn in_path() -> Fresh<dyn BlobStore> {
    opened(1, false).await
}

async fn in_host() -> Fresh<dyn BlobStore> {
    opened(1, true).await
}

/// Two replicas of a relay on one bucket.
async fn two() -> Fresh<dyn BlobStore> {
    opened(2, false).await
}

mod path_style {
    argala_testkit::blob_conformance!(super::in_path);
}

mod virtual_host {
    argala_testkit::blob_conformance!(super::in_host);
}

mod shared {
    argala_testkit::blob_conformance!(super::two);
}

/// One for all cases: it takes seconds to start.
static MOTO: LazyLock<MotoServer> = LazyLock::new(MotoServer::start);

/// A bucket of its own on the S3 that the environment names, else on moto.
async fn elsewhere(in_host: bool) -> Fresh<dyn BlobStore> {
    let (place, by_name) = match S3Place::named() {
        Some(place) => (place, None),
        None => (MOTO.place(), Some(MOTO.virtual_place())),
    };
    let spool = tempfile::tempdir().unwrap();
    let bucket = make_bucket(&place).await;
    let options = match by_name {
        Some(by_name) if in_host => by_host(options(&by_name, &bucket, spool.path())),
        // A real one's names are known to a resolver.
        None if in_host => S3Options {
            force_path_style: false,
            ..options(&place, &bucket, spool.path())
        },
        _ => options(&place, &bucket, spool.path()),
    };
    one(options, spool).await
}

async fn one(options: S3Options, spool: TempDir) -> Fresh<dyn BlobStore> {
    Fresh::new(Arc::new(S3Blobs::open(options).await.unwrap()), spool)
}

async fn moto_in_path() -> Fresh<dyn BlobStore> {
    elsewhere(false).await
}

async fn moto_in_host() -> Fresh<dyn BlobStore> {
    elsewhere(true).await
}

mod moto {
    mod path_style {
        argala_testkit::blob_conformance!(super::super::moto_in_path, in one);
    }

    mod virtual_host {
        argala_testkit::blob_conformance!(super::super::moto_in_host, in one);
    }
}
