//! The relay's store on one machine: a SQLite database, embedded.
//!
//! [`Sqlite`] implements [`Store`], [`BlobStore`] (the bytes of blobs in the same file), and
//! [`Directory`] with [`DirectoryTables`] over one database:
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use argala_core::ports::{BlobStore, Directory, Store};
//! use argala_sqlite::{Options, Sqlite};
//!
//! let database = Arc::new(Sqlite::open("data/relay.db", &Options::default())?);
//! let store: Arc<dyn Store> = database.clone();
//! let blobs: Arc<dyn BlobStore> = database.clone();
//! let directory: Arc<dyn Directory> = database;
//! # Ok::<(), argala_sqlite::OpenError>(())
//! ```
//!
//! One thread writes, and commits once for all that waits (`writer`); a few read (`readers`).
//! Commits are durable before they are answered. Every decision is a function of
//! [`argala_core::rules`], called between reading and writing inside a transaction: no rule is
//! spelled in SQL here. The statements of one topic are in the file of its name, and
//! `argala-postgres` has the same files.
//!
//! One relay serves a database. `relay admin` may work on it at the same time: its writes wait for
//! the relay's and the other way round, for at most [`Options::busy_timeout`]. Rate limits, pokes
//! and the sweep belong to the one relay process, so a second relay on the same file is a mistake,
//! though not one that could harm what is stored.
//!
//! What it does not do: no network file systems (WAL needs shared memory), no rate limits, no
//! pokes, no timers.
//!
//! [`Store`]: argala_core::ports::Store
//! [`BlobStore`]: argala_core::ports::BlobStore
//! [`Directory`]: argala_core::ports::Directory
//! [`DirectoryTables`]: argala_core::ports::DirectoryTables

mod blob_data;
mod blobs;
mod columns;
mod devices;
mod directory;
mod failure;
mod graphs;
mod keys;
mod migrate;
mod open;
mod probe;
mod pull;
mod push;
mod readers;
mod rows;
mod store;
mod sweep;
mod upkeep;
mod writer;

use std::{fmt, sync::Arc, time::Duration};

use argala_core::Outcome;
use rusqlite::Connection;

pub use migrate::SCHEMA_VERSION;
pub use open::OpenError;
pub use probe::{Commit, CommitProbe, StatementProbe};

use failure::Work;
use readers::Readers;
use writer::Writer;

/// How a database is used. The defaults suit a relay.
#[derive(Clone)]
pub struct Options {
    /// Threads that read, each with a connection; at least 1. Default 4.
    pub readers: usize,
    /// How many writes, and how many reads, may wait, at least 1; what comes beyond that is told
    /// [`Unavailable`](argala_core::StoreErrorKind::Unavailable) at once. Default 1,024.
    pub queue: usize,
    /// How long a write waits for another process that writes. Default 5 s.
    pub busy_timeout: Duration,
    /// Is told each statement that runs, for tests and for finding slow ones. Default none.
    pub statements: Option<StatementProbe>,
    /// Is told each commit, to count how many operations share one. Default none.
    pub commits: Option<CommitProbe>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            readers: 4,
            queue: 1_024,
            busy_timeout: Duration::from_secs(5),
            statements: None,
            commits: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("readers", &self.readers)
            .field("queue", &self.queue)
            .field("busy_timeout", &self.busy_timeout)
            .finish_non_exhaustive()
    }
}

/// An open database.
///
/// Dropping it closes it: what waits is finished and answered first, which blocks the thread that
/// drops it. [`close`](Self::close) does the same without blocking.
pub struct Sqlite {
    instance: Box<str>,
    // Shared with the streams of blobs, which may outlive this value.
    readers: Arc<Readers>,
    writer: Arc<Writer>,
}

impl Sqlite {
    /// Closes the database: what waits is finished and answered, what comes later is told
    /// [`Unavailable`](argala_core::StoreErrorKind::Unavailable). Returns once its threads have
    /// ended. Nothing that was acknowledged depends on this.
    pub async fn close(&self) {
        let (readers, writer) = (Arc::clone(&self.readers), Arc::clone(&self.writer));
        let closing = tokio::task::spawn_blocking(move || {
            // The writer's connection is then the last one, and folds the log into the database.
            readers.close();
            writer.close();
        });
        if closing.await.is_err() {
            tracing::error!("closing the database ended in a panic");
        }
    }

    /// Runs `work` in a transaction of the writer's; see [`Writer::run`].
    async fn write<T, F>(&self, operation: &'static str, work: F) -> Outcome<T>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> Work<T> + Send + 'static,
    {
        self.writer.run(operation, 0, work).await
    }

    /// Answers with what `work` reads; see [`Readers::run`].
    async fn read<T, F>(&self, operation: &'static str, work: F) -> Outcome<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Work<T> + Send + 'static,
    {
        self.readers.run(operation, work).await
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").finish_non_exhaustive()
    }
}
