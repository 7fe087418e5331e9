//! The contracts of the ports, by the suites that every adapter passes.

use std::sync::Arc;

use argala_core::ports::{BlobStore, DirectoryTables, SweepStore};
use argala_postgres::Postgres;
use argala_testkit::{conformance::Fresh, servers::Database};

use crate::database::{handles, migrated, options};

/// So many replicas' handles to one fresh database.
async fn replicas(count: usize) -> (Vec<Arc<Postgres>>, Database) {
    let database = migrated().await;
    let handles = handles(count, &options(database.url())).await;
    (handles, database)
}

macro_rules! fresh {
    ($name:ident, $port:ident, $count:expr) => {
        async fn $name() -> Fresh<dyn $port> {
            let (handles, database) = replicas($count).await;
            let handles = handles.into_iter().map(|it| it as Arc<dyn $port>);
            Fresh::of(handles.collect(), database)
        }
    };
}

fresh!(one_store, SweepStore, 1);
fresh!(two_stores, SweepStore, 2);
fresh!(eight_stores, SweepStore, 8);
fresh!(one_blob_store, BlobStore, 1);
fresh!(two_blob_stores, BlobStore, 2);
fresh!(one_directory, DirectoryTables, 1);
fresh!(two_directories, DirectoryTables, 2);

mod store {
    argala_testkit::store_conformance!(super::one_store);
}

mod race {
    argala_testkit::race_conformance!(super::one_store);
}

mod blobs {
    argala_testkit::blob_conformance!(super::one_blob_store);
}

mod directory {
    argala_testkit::directory_conformance!(super::one_directory);
}

/// ente, and others: a quota that is looked at before the transaction, or kept in a process, is
/// exceeded by as many as look at once.
#[test]
fn ente_a_quota_at_its_edge_holds_for_eight_replicas() {
    use argala_testkit::conformance::{race::pushes, run};
    run(
        eight_stores,
        pushes::records_stop_at_their_quota_under_many_pushers,
    );
    run(
        eight_stores,
        pushes::bytes_stop_at_their_quota_under_many_pushers,
    );
}

/// All of it again with two replicas on the same database, each case turning from one to the other.
mod shared {
    mod store {
        argala_testkit::store_conformance!(super::super::two_stores);
    }

    mod race {
        argala_testkit::race_conformance!(super::super::two_stores);
    }

    mod blobs {
        argala_testkit::blob_conformance!(super::super::two_blob_stores);
    }

    mod directory {
        argala_testkit::directory_conformance!(super::super::two_directories);
    }
}
