//! The adapters in memory keep the contracts that they are the yardstick of.

use std::sync::Arc;

use argala_core::ports::{BlobStore, DirectoryTables, SweepStore};
use argala_testkit::{MemoryBlobs, MemoryDirectory, ReferenceStore, conformance::Fresh};

async fn store() -> Fresh<dyn SweepStore> {
    Fresh::new(Arc::new(ReferenceStore::new()), ())
}

async fn blobs() -> Fresh<dyn BlobStore> {
    Fresh::new(Arc::new(MemoryBlobs::new()), ())
}

async fn directory() -> Fresh<dyn DirectoryTables> {
    Fresh::new(Arc::new(MemoryDirectory::new()), ())
}

async fn listing_directory() -> Fresh<dyn DirectoryTables> {
    let directory = MemoryDirectory::new();
    directory.set_lists_groups(true);
    Fresh::new(Arc::new(directory), ())
}

mod of_the_store {
    argala_testkit::store_conformance!(super::store);
}

mod of_races {
    argala_testkit::race_conformance!(super::store);
}

mod of_blobs {
    argala_testkit::blob_conformance!(super::blobs);
}

mod of_directories {
    argala_testkit::directory_conformance!(super::directory);
}

mod of_directories_that_list_groups {
    argala_testkit::directory_conformance!(super::listing_directory);
}
