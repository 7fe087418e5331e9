//! The store of a cluster: a Postgres database that any number of replicas share.
//!
//! [`Postgres`] implements [`Store`], [`BlobStore`] (the bytes of blobs in the same database), and
//! [`Directory`] with [`DirectoryTables`] over one database:
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use argala_core::ports::{BlobStore, Directory, Store};
//! use argala_postgres::{Options, Postgres, migrate};
//!
//! # async fn open() -> Result<(), argala_postgres::OpenError> {
//! let options = Options::new("postgres://relay@database.internal/relay?sslmode=verify-full");
//! migrate(&options).await?;
//! let database = Arc::new(Postgres::open(&options).await?);
//! let store: Arc<dyn Store> = database.clone();
//! let blobs: Arc<dyn BlobStore> = database.clone();
//! let directory: Arc<dyn Directory> = database;
//! # Ok(())
//! # }
//! ```
//!
//! Every decision is a function of [`argala_core::rules`], called between reading and writing
//! inside a transaction: no rule is spelled in SQL here. The statements of one topic are in the
//! file of its name, and `argala-sqlite` has the same files.
//!
//! A transaction is few round trips. What can be asked for together is sent together (`session`):
//! the beginning, the locks and the reads that they protect in one, the writes and the commit in
//! another. Each is a statement of its own all the same, and takes a snapshot of its own: a
//! statement that both waits for a lock and reads would read what was true before it waited.
//!
//! Locks are taken in one order: device rows (by member and device id), then graph rows (by
//! storage key), byte order in both. Who meets a deadlock or a failed serialization nevertheless
//! is tried again (`run`), in that one place.
//!
//! A push is written in one round trip where what is remembered of its graph holds (`remembered`,
//! `versioned`). Pushes to one graph that come while another is being committed share the next
//! transaction (`gather`), and looks at devices that are asked for together share a statement (`looks`).
//!
//! What a sweep asks for (`sweep`) is for the one process that [`lead`] lets: a relay does not
//! use it.
//!
//! What it does not do: no rate limits, no pokes, no timers. It does not migrate when
//! it is opened: with several replicas that is a step of its own, [`migrate`].
//!
//! [`Store`]: argala_core::ports::Store
//! [`BlobStore`]: argala_core::ports::BlobStore
//! [`Directory`]: argala_core::ports::Directory
//! [`DirectoryTables`]: argala_core::ports::DirectoryTables

mod address;
mod batch;
mod blob_data;
mod blobs;
mod columns;
mod devices;
mod directory;
mod failure;
mod gather;
mod graphs;
mod keys;
mod lead;
mod looks;
mod migrate;
mod open;
mod options;
mod probe;
mod pull;
mod push;
mod remembered;
mod run;
mod session;
mod store;
mod sweep;
mod tls;
mod upkeep;
mod versioned;

use std::{fmt, sync::Arc};

pub use lead::{Leadership, lead};
pub use migrate::{Migrated, SCHEMA_VERSION, SchemaState, check, migrate};
pub use open::OpenError;
pub use options::{Options, Statements, Timeouts};
pub use probe::{Commit, CommitProbe, StatementProbe, Usage};

use gather::Gather;
use looks::Looks;
use run::Database;

/// An open database: a pool of connections and what waits for them.
///
/// Dropping it gives its connections up once what runs has ended. [`close`](Self::close) waits for
/// that.
pub struct Postgres {
    instance: Box<str>,
    // Shared with the streams of blobs and the pushes that run, which may outlive this value.
    database: Arc<Database>,
    pushes: Arc<Gather>,
    looks: Arc<Looks>,
}

impl Postgres {
    /// Closes the database: what runs is finished and answered, what comes later is told
    /// [`Unavailable`](argala_core::StoreErrorKind::Unavailable). Nothing that was acknowledged
    /// depends on this.
    pub async fn close(&self) {
        self.pushes.close().await;
        self.database.close();
    }

    /// What the database has been used for since it was opened, for metrics.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.database.usage()
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").finish_non_exhaustive()
    }
}
