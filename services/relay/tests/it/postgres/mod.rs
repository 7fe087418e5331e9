//! The binary over a real Postgres.

mod disk;
mod durability;
mod locks;
mod migrate;
mod stopping;
mod upgrade;

use std::path::Path;

use argala_testkit::servers::{self, Database, Session};
use tokio::runtime::Runtime;

use crate::{
    device::TestDevice,
    process::{SOON, Served, now, relay, text},
};

/// The variables that put a relay on the database at `url`.
pub(crate) fn on(url: &str) -> [(&str, &str); 2] {
    [
        ("ARGALA__STORE__KIND", "postgres"),
        ("ARGALA__STORE__URL", url),
    ]
}

/// Runs a command on the database at `url`: its status, its output and what it complained of.
fn command(url: &str, args: &[&str]) -> (Option<i32>, String, String) {
    let output = relay().args(args).envs(on(url)).output().unwrap();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Runs a command on the database at `url`, of which it is known that it succeeds.
fn succeed(url: &str, args: &[&str]) -> String {
    let (status, said, complained) = command(url, args);
    assert_eq!(status, Some(0), "{args:?}: {complained}");
    said
}

/// A database that has the relay's tables, on the server that all tests share.
pub(crate) fn migrated(runtime: &Runtime) -> Database {
    let database = runtime.block_on(servers::postgres());
    migrated_at(&database.url());
    database
}

/// Makes the relay's tables in the database at `url`.
pub(crate) fn migrated_at(url: &str) {
    succeed(url, &["migrate"]);
}

/// A development relay on the database at `url`, with sam's laptop registered and the graph of its
/// own keyed.
fn keyed(folder: &Path, url: &str, args: &[&str]) -> (Served, TestDevice) {
    let served = Served::dev_with(folder, &on(url), args);
    let sam = TestDevice::dev("sam", "laptop");
    sam.register(&served.public).ok();
    sam.rotate(&served.public, "d:sam", &[&sam]).ok();
    (served, sam)
}

/// What a test does beside the relay on its database.
struct Beside<'a> {
    runtime: &'a Runtime,
    session: Session,
}

impl<'a> Beside<'a> {
    fn open(runtime: &'a Runtime, url: &str) -> Self {
        let session = runtime.block_on(Session::open(url));
        Self { runtime, session }
    }

    fn run(&self, statements: &str) {
        self.runtime.block_on(self.session.run(statements));
    }

    fn text(&self, question: &str) -> String {
        self.runtime.block_on(self.session.text(question))
    }

    /// Takes the lock that a push to a graph takes, and keeps it until [`let_go`](Self::let_go).
    fn hold(&self, graph: &str) {
        self.run(&format!(
            "begin; select 1 from graphs where storage_key = '{graph}' for update"
        ));
    }

    fn let_go(&self) {
        self.run("rollback");
    }

    /// Waits until this many sessions of the database wait for a lock.
    fn wait_for_waiting(&self, sessions: usize) {
        let waiting = "select count(*) from pg_stat_activity
             where datname = current_database() and wait_event_type = 'Lock'";
        self.wait_for_text(waiting, &sessions.to_string());
    }

    /// Asks until the answer is `wanted`.
    fn wait_for_text(&self, question: &str, wanted: &str) {
        let until = now() + SOON;
        loop {
            // Within a transaction, and this session may hold a lock in one, the server's activity
            // is otherwise what it was at the first look: connections of later are not seen.
            self.run("select pg_stat_clear_snapshot()");
            let found = self.text(question);
            if found == wanted {
                return;
            }
            assert!(now() < until, "{question}: {found}, not {wanted}");
            crate::load::pause();
        }
    }
}

/// Runs tests' futures; its own thread carries the connections while the test blocks.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}
