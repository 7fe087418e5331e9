//! The model against the relay on Postgres. Fewer cases than on SQLite, since each has a database
//! of its own: the rules are the same functions, and it is their rows that differ.

use std::sync::Arc;

use argala_core::ports::BlobStore;
use argala_postgres::{Options, Postgres, migrate};
use argala_testkit::{
    conformance::{Fresh, relay::RelayPorts},
    servers::postgres_from,
};

use super::{FEW_REQUESTS, ROOMY, SMALL, Settings, cases, drive::Setting, model_tests};

/// A database of its own, which keeps the blobs too.
async fn fresh() -> Fresh<RelayPorts> {
    let database = postgres_from("migrated", |url| async move {
        migrate(&Options::new(url)).await.expect("migrates");
    })
    .await;
    let options = Options {
        connections: 4,
        ..Options::new(database.url())
    };
    let store = Arc::new(Postgres::open(&options).await.expect("opens"));
    let blobs: Arc<dyn BlobStore> = Arc::<Postgres>::clone(&store);
    Fresh::new(Arc::new(RelayPorts { store, blobs }), database)
}

model_tests! { fresh,
    small_ceilings: cases(60), 50, Setting { settings: SMALL, sizes: None };
    optional_signatures: cases(40), 50, Setting {
        settings: Settings { signatures_required: false, ..SMALL },
        sizes: None,
    };
    listed_groups: cases(40), 50, Setting {
        settings: Settings { lists_groups: true, ..SMALL },
        sizes: None,
    };
    roomy_ceilings: cases(40), 50, Setting { settings: ROOMY, sizes: None };
    small_allowances: cases(20), 50, Setting { settings: FEW_REQUESTS, sizes: None };
    pages_full_of_bytes: 4, 24, Setting {
        settings: Settings { signatures_required: true, ..ROOMY },
        sizes: Some(&[12, 1_000_000, 1_500_000, 2_500_000, 4 * 1024 * 1024, 1, 0, 64]),
    };
}
