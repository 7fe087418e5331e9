//! The store by way of PgBouncer in transaction mode, where no connection is anybody's own.

use std::sync::Arc;

use argala_core::ports::SweepStore;
use argala_postgres::{Options, Statements, Timeouts};
use argala_testkit::conformance::Fresh;

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

mod race {
    argala_testkit::race_conformance!(super::unnamed);
}
