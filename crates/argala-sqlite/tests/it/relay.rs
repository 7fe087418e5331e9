//! A relay over this store: what no single port shows.

use std::sync::Arc;

use argala_core::ports::BlobStore;
use argala_sqlite::{Options, Sqlite};
use argala_testkit::conformance::{Fresh, relay::RelayPorts};

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

mod interleaving {
    use super::two_relays;

    argala_testkit::interleaving_conformance!(two_relays);
}

mod lifetime {
    use super::two_relays;

    argala_testkit::lifetime_conformance!(two_relays);
}
