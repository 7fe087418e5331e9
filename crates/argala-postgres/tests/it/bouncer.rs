//! The store by way of PgBouncer in transaction mode, where no connection is anybody's own.

use std::sync::Arc;

use argala_core::ports::SweepStore;
use argala_postgres::{Options, Statements, Timeouts};
use argala_testkit::{conformance::Fresh, device_ref, group};
use argala_wire::StorageKey;

use crate::database::{handles, migrated, options};

async fn through_bouncer(statements: Statements) -> Fresh<dyn SweepStore> {
    let database = migrated().await;
    let options = Options {
        statements,
        // What is said to a connection there is said to whoever gets it next.
        timeouts: Timeouts::Transaction,
        ..options(database.bouncer_url())
    };
    let handles = handles(2, &options).await;
    let handles = handles.into_iter().map(|it| it as Arc<dyn SweepStore>);
    Fresh::of(handles.collect(), database)
}

async fn unnamed() -> Fresh<dyn SweepStore> {
    through_bouncer(Statements::Unnamed).await
}

async fn prepared() -> Fresh<dyn SweepStore> {
    through_bouncer(Statements::Prepared).await
}

mod store {
    mod unnamed {
        argala_testkit::store_conformance!(super::super::unnamed);
    }
    mod prepared {
        argala_testkit::store_conformance!(super::super::prepared);
    }
}

/// rust-postgres 1054: through a PgBouncer that hands sessions on, a client finds that a statement
/// which it prepares is there already, or that one which it has prepared is not. Before 1.21 it passes
/// names on as they are, so that none are used.
#[test]
fn rust_postgres_1054_replicas_that_share_sessions_trip_over_no_statement() {
    argala_testkit::conformance::run(unnamed, |fresh| async move {
        let askers = (0..16).map(|number| {
            let store = Arc::clone(fresh.replica(number));
            tokio::spawn(async move {
                for _ in 0..25 {
                    let key = StorageKey::group(&group("acme"));
                    assert!(store.graph(&key).await.unwrap().is_none());
                    assert!(store.recount(&key).await.unwrap().is_none());
                    let device = device_ref("sam", "laptop");
                    assert!(store.device(&device).await.unwrap().is_none());
                }
            })
        });
        for asker in askers.collect::<Vec<_>>() {
            asker.await.unwrap();
        }
    });
}

mod race {
    argala_testkit::race_conformance!(super::unnamed);
}
