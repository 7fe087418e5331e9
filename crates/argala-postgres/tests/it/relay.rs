//! A relay over this store: what no single port shows.

use std::sync::Arc;

use argala_core::ports::BlobStore;
use argala_postgres::{Options, Postgres};
use argala_testkit::conformance::{
    Fresh,
    interleaving::{Replica, Statements},
    relay::RelayPorts,
};

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

/// The same, where a test can hold up each one's statements.
async fn two_replicas() -> Fresh<Replica> {
    let database = migrated().await;
    let mut replicas = Vec::new();
    for _ in 0..2 {
        let statements = Statements::default();
        let told = statements.clone();
        let options = Options {
            probe: Some(Arc::new(move |_| told.begin())),
            ..options(database.url())
        };
        let store = Arc::new(Postgres::open(&options).await.unwrap());
        let blobs: Arc<dyn BlobStore> = Arc::<Postgres>::clone(&store);
        let ports = RelayPorts { store, blobs };
        replicas.push(Arc::new(Replica { ports, statements }));
    }
    Fresh::of(replicas, database)
}

argala_testkit::relay_conformance!(two_relays);

/// Held up at statements only: that is within each call of the store, and on the way there.
mod interleaving {
    use super::two_replicas;

    argala_testkit::statements_conformance!(two_replicas);
}

mod lifetime {
    use super::two_relays;

    argala_testkit::lifetime_conformance!(two_relays);
}
