//! A Redis of one's own, in every form that the relay takes one.

use std::sync::Arc;

use argala_servers::Fault;

/// Redis servers that one test has for itself: started in a moment, gone with it. Nothing that one
/// of them knew survives its end.
///
/// Every method panics where it fails: the panic is the report.
#[derive(Debug, Clone)]
pub struct PrivateRedis(Arc<argala_servers::PrivateRedis>);

/// A Redis for a test that does nothing to the server. Others may use it, too: what a test keeps
/// there goes by a prefix of its own.
#[derive(Debug)]
pub struct RedisServer {
    url: String,
    _own: Option<PrivateRedis>,
}

impl RedisServer {
    /// `redis://…`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// The Redis that the environment names, or else a new one.
///
/// # Panics
/// Where there is no Redis to be had; the message says what to do.
pub async fn redis() -> RedisServer {
    if let Ok(url) = std::env::var(argala_servers::REDIS_VARIABLE) {
        return RedisServer { url, _own: None };
    }
    let own = PrivateRedis::start().await;
    RedisServer {
        url: own.url().to_owned(),
        _own: Some(own),
    }
}

impl PrivateRedis {
    /// Starts one server.
    pub async fn start() -> Self {
        Self::begin(argala_servers::PrivateRedis::start).await
    }

    /// Starts a cluster of three.
    pub async fn start_cluster() -> Self {
        Self::begin(argala_servers::PrivateRedis::start_cluster).await
    }

    /// Starts a primary, two replicas, and three Sentinels that watch them.
    pub async fn start_sentinels() -> Self {
        Self::begin(argala_servers::PrivateRedis::start_sentinels).await
    }

    async fn begin(
        begin: impl FnOnce() -> Result<argala_servers::PrivateRedis, Fault> + Send + 'static,
    ) -> Self {
        let begun = tokio::task::spawn_blocking(begin).await;
        Self(Arc::new(expect(begun.expect("no panic"))))
    }

    /// `redis://…`, `redis-cluster://…` or `redis-sentinel://…`; the same after each start.
    #[must_use]
    pub fn url(&self) -> &str {
        self.0.url()
    }

    /// The ports of `127.0.0.1` on which they listen, those that hold data first.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.0.ports()
    }

    /// Which one the Sentinels call the primary.
    pub async fn primary(&self) -> usize {
        self.work(argala_servers::PrivateRedis::primary).await
    }

    /// Sends a command whose arguments hold no space to the server `at`; gives the answer as it
    /// came.
    pub async fn ask(&self, at: usize, command: &str) -> String {
        let command = command.to_owned();
        self.work(move |own| own.ask(at, &command)).await
    }

    /// Stops the server `at` in order.
    pub async fn stop(&self, at: usize) {
        self.work(move |own| own.stop(at)).await;
    }

    /// Kills the server `at` with SIGKILL.
    pub async fn kill(&self, at: usize) {
        self.work(move |own| own.kill(at)).await;
    }

    /// Stops the server `at` with SIGSTOP: connections are still taken, and nobody answers.
    pub fn pause(&self, at: usize) {
        self.0.pause(at);
    }

    /// Lets the server `at` go on.
    pub fn resume(&self, at: usize) {
        self.0.resume(at);
    }

    /// Starts the server `at` again, empty, on its port.
    pub async fn start_again(&self, at: usize) {
        self.work(move |own| own.start_again(at)).await;
    }

    /// What takes a while must not hold up the runtime that puts the server under load.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&argala_servers::PrivateRedis) -> Result<T, Fault> + Send + 'static,
    ) -> T {
        let own = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || work(&own));
        expect(done.await.expect("no panic"))
    }
}

fn expect<T>(outcome: Result<T, Fault>) -> T {
    outcome.unwrap_or_else(|fault| panic!("the test's own Redis: {fault}"))
}
