//! The contract of the port, by the suite that every blob store passes.

use std::sync::Arc;

use argala_blob::FilesystemBlobs;
use argala_core::ports::BlobStore;
use argala_testkit::conformance::Fresh;

async fn one() -> Fresh<dyn BlobStore> {
    let folder = tempfile::tempdir().unwrap();
    let store = FilesystemBlobs::open(folder.path().join("blobs")).unwrap();
    Fresh::new(Arc::new(store), folder)
}

/// Two processes on one folder.
async fn two() -> Fresh<dyn BlobStore> {
    let folder = tempfile::tempdir().unwrap();
    let open = || -> Arc<dyn BlobStore> {
        Arc::new(FilesystemBlobs::open(folder.path().join("blobs")).unwrap())
    };
    Fresh::of(vec![open(), open()], folder)
}

mod filesystem {
    argala_testkit::blob_conformance!(super::one);
}

mod shared_filesystem {
    argala_testkit::blob_conformance!(super::two);
}
