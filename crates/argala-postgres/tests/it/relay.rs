//! A relay over this store: what no single port shows.

use std::sync::Arc;

use argala_core::ports::BlobStore;
use argala_postgres::Postgres;
use argala_testkit::conformance::{Fresh, relay::RelayPorts};

use crate::database::{handles, migrated, options};

/// Two replicas' handles to one fresh database, which keeps the blobs too.
async fn two_relays() -> Fresh<RelayPorts> {
    let database = migrated().await;
    let replicas = handles(2, &options(database.url())).await;
    let replicas = replicas.into_iter().map(|replica| {
        let blobs: Arc<dyn BlobStore> = Arc::<Postgres>::clone(&replica);
        Arc::new(RelayPorts {
            store: replica,
            blobs,
        })
    });
    Fresh::of(replicas.collect(), database)
}

argala_testkit::relay_conformance!(two_relays);

mod lifetime {
    use super::two_relays;

    argala_testkit::lifetime_conformance!(two_relays);
}
