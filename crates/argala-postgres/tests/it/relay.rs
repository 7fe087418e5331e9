//! A relay over this store: what no single port shows.

use std::{
    mem,
    sync::{Arc, Mutex},
};

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

/// What a statement is to whoever meets it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Begin,
    Lock,
    Read,
    Write,
    Commit,
}

impl Kind {
    fn of(sql: &str) -> Self {
        if sql.starts_with("BEGIN") {
            Self::Begin
        } else if sql == "COMMIT" {
            Self::Commit
        } else if ["INSERT", "UPDATE", "DELETE", "WITH"]
            .iter()
            .any(|it| sql.starts_with(it))
        {
            Self::Write
        } else if sql.contains("FOR NO KEY UPDATE") || sql.contains("FOR SHARE") {
            Self::Lock
        } else {
            Self::Read
        }
    }

    /// Several statements are told of before they leave together: what is sent with the beginning,
    /// or with another write, needs no stop of its own.
    fn is_worth_a_stop(self, last: Self) -> bool {
        match self {
            Self::Begin | Self::Commit => true,
            Self::Lock => last != Self::Begin,
            Self::Write => !matches!(last, Self::Begin | Self::Write),
            Self::Read => false,
        }
    }
}

/// The same, where a test can hold up each one's statements.
async fn two_replicas() -> Fresh<Replica> {
    let database = migrated().await;
    let mut replicas = Vec::new();
    for _ in 0..2 {
        let statements = Statements::default();
        let (told, last) = (statements.clone(), Mutex::new(Kind::Read));
        let options = Options {
            probe: Some(Arc::new(move |sql| {
                let kind = Kind::of(sql);
                let last = mem::replace(&mut *last.lock().unwrap(), kind);
                if kind.is_worth_a_stop(last) {
                    told.begin();
                }
            })),
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
