//! Fresh databases, and handles to them.

use std::sync::Arc;

use argala_postgres::{Options, Postgres, migrate};
use argala_testkit::servers::{Database, postgres_from};

/// A migrated database that nothing was stored in yet.
pub(crate) async fn migrated() -> Database {
    postgres_from("migrated", |url| async move {
        migrate(&Options::new(url)).await.unwrap();
    })
    .await
}

/// How a test uses a database: with few connections, since there are many tests.
pub(crate) fn options(url: String) -> Options {
    Options {
        connections: 8,
        ..Options::new(url)
    }
}

/// So many replicas' handles to one database.
pub(crate) async fn handles(count: usize, options: &Options) -> Vec<Arc<Postgres>> {
    let mut handles = Vec::with_capacity(count);
    for _ in 0..count {
        handles.push(Arc::new(Postgres::open(options).await.unwrap()));
    }
    handles
}
