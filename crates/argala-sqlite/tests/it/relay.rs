//! A relay over this store: what no single port shows.

use std::{path::Path, sync::Arc};

use argala_core::ports::BlobStore;
use argala_sqlite::{Options, Sqlite};
use argala_testkit::conformance::{
    Fresh,
    interleaving::{Replica, Statements},
    relay::RelayPorts,
};

/// Two processes' handles to one fresh database, which keeps the blobs too.
async fn two_relays() -> Fresh<RelayPorts> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("relay.db");
    let open = || {
        let database = Arc::new(Sqlite::open(&path, &Options::default()).unwrap());
        let blobs: Arc<dyn BlobStore> = Arc::<Sqlite>::clone(&database);
        Arc::new(RelayPorts {
            store: database,
            blobs,
        })
    };
    Fresh::of(vec![open(), open()], folder)
}

argala_testkit::relay_conformance!(two_relays);

/// The same, where a test can hold up the first's statements.
async fn two_replicas() -> Fresh<Replica> {
    // Thousands of small commits: in memory where there is a folder for that.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    };
    let path = folder.path().join("relay.db");
    let open = || {
        let statements = Statements::default();
        let told = statements.clone();
        let options = Options {
            // One writer at a time: what it does between these nobody can meet.
            statements: Some(Arc::new(move |sql| {
                if matches!(sql, "BEGIN IMMEDIATE" | "COMMIT") {
                    told.begin();
                }
            })),
            ..Options::default()
        };
        let database = Arc::new(Sqlite::open(&path, &options).unwrap());
        let blobs: Arc<dyn BlobStore> = Arc::<Sqlite>::clone(&database);
        let ports = RelayPorts {
            store: database,
            blobs,
        };
        Arc::new(Replica { ports, statements })
    };
    Fresh::of(vec![open(), open()], folder)
}

mod interleaving {
    use super::two_replicas;

    argala_testkit::interleaving_conformance!(two_replicas);

    mod statements {
        use super::two_replicas;

        argala_testkit::statements_conformance!(two_replicas);
    }
}

mod lifetime {
    use super::two_relays;

    argala_testkit::lifetime_conformance!(two_relays);
}
