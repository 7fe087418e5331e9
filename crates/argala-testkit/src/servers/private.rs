//! A Postgres of one's own, to be stopped and killed.

use std::{path::PathBuf, sync::Arc};

use argala_servers::Fault;

/// A Postgres that one test has for itself. Starting one takes a second or two: where a test does
/// nothing to the server, it wants [`postgres()`](crate::servers::postgres()).
///
/// Every method panics where it fails: the panic is the report.
#[derive(Debug, Clone)]
pub struct PrivatePostgres(Arc<argala_servers::PrivatePostgres>);

impl PrivatePostgres {
    /// Starts a new one.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a new one with some settings: `[("max_connections", "20")]`.
    pub async fn start_with(settings: &[(&str, &str)]) -> Self {
        let settings: Vec<_> = settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let started = tokio::task::spawn_blocking(move || {
            let settings: Vec<_> = settings
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
            argala_servers::PrivatePostgres::start_with(&settings)
        });
        Self(Arc::new(expect(started.await.expect("no panic"))))
    }

    /// Starts a new one that has a disk of some MiB at [`small_disk`](Self::small_disk), for a
    /// tablespace that can be filled. Where the server is in a container, that disk is empty after
    /// each start.
    pub async fn start_with_small_disk(mebibytes: u32) -> Self {
        let started = tokio::task::spawn_blocking(move || {
            argala_servers::PrivatePostgres::start_with_small_disk(mebibytes)
        });
        Self(Arc::new(expect(started.await.expect("no panic"))))
    }

    /// Starts a new one whose log of changes, `pg_wal`, has a disk of some MiB for itself, which
    /// fills by being written to and keeps what it has.
    pub async fn start_with_small_log_disk(mebibytes: u32) -> Self {
        let started = tokio::task::spawn_blocking(move || {
            argala_servers::PrivatePostgres::start_with_small_log_disk(mebibytes)
        });
        Self(Arc::new(expect(started.await.expect("no panic"))))
    }

    /// Makes its small disk one of this many MiB, whether it runs or not. What is on it stays.
    pub async fn grow_small_disk(&self, mebibytes: u32) {
        self.work(move |server| server.grow_small_disk(mebibytes))
            .await;
    }

    /// `postgres://…` of the database that it starts with; the same after each start.
    #[must_use]
    pub fn url(&self) -> String {
        self.0.url()
    }

    /// `postgres://…` of another database of it.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        self.0.url_of(database)
    }

    /// Where its small disk is, if it was started with one. Only the server sees what is there.
    #[must_use]
    pub fn small_disk(&self) -> PathBuf {
        self.0.small_disk()
    }

    /// Its data folder: to be touched while it is stopped.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.0.data()
    }

    /// The port of `127.0.0.1` on which it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// Starts a PgBouncer before it, in transaction mode, and tells its `postgres://…`.
    pub async fn start_bouncer(&self) -> String {
        self.work(argala_servers::PrivatePostgres::start_bouncer)
            .await
    }

    /// Stops it in order: sessions are ended, everything is written.
    pub async fn stop(&self) {
        self.work(argala_servers::PrivatePostgres::stop).await;
    }

    /// Kills all its processes with SIGKILL.
    pub async fn kill(&self) {
        self.work(argala_servers::PrivatePostgres::kill).await;
    }

    /// Starts it again where it was stopped or killed.
    pub async fn start_again(&self) {
        self.work(argala_servers::PrivatePostgres::start_again)
            .await;
    }

    /// Stops it in order and starts it again.
    pub async fn restart(&self) {
        self.work(argala_servers::PrivatePostgres::restart).await;
    }

    /// Changes a setting; in force after the next start.
    pub fn configure(&self, name: &str, value: &str) {
        expect(self.0.configure(name, value));
    }

    /// Writes a file that the server may read and nobody else, a TLS key for one; tells its path.
    #[must_use]
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        expect(self.0.file(name, text))
    }

    /// What takes a while must not hold up the runtime that puts the server under load.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&argala_servers::PrivatePostgres) -> Result<T, Fault> + Send + 'static,
    ) -> T {
        let server = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || work(&server));
        expect(done.await.expect("no panic"))
    }
}

fn expect<T>(outcome: Result<T, Fault>) -> T {
    outcome.unwrap_or_else(|fault| panic!("the test's own server: {fault}"))
}
