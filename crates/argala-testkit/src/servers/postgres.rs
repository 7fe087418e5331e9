//! A database of one's own on a Postgres that all tests share.

use std::{
    env, fs,
    future::Future,
    process,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use argala_servers::{Contained, Fault, POSTGRES_SETTINGS, Shared, shared};
use sha2::{Digest as _, Sha256};
use tokio_postgres::{Client, NoTls, error::SqlState};

use super::PostgresContainer;

/// A database that one test has for itself; dropped with this.
#[derive(Debug)]
pub struct Database {
    name: String,
}

impl Database {
    /// `postgres://…`, straight to Postgres, of a role that may do everything.
    #[must_use]
    pub fn url(&self) -> String {
        with_database(server().postgres_url(), &self.name)
    }

    /// The same through PgBouncer in transaction mode.
    ///
    /// # Panics
    /// Where the environment names a Postgres and no PgBouncer.
    #[must_use]
    pub fn bouncer_url(&self) -> String {
        let url = server().bouncer_url().unwrap_or_else(|| {
            panic!(
                "{} names a server and {} none",
                argala_servers::POSTGRES_VARIABLE,
                argala_servers::BOUNCER_VARIABLE
            )
        });
        with_database(url, &self.name)
    }

    /// Its name on the server.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let statement = format!("drop database if exists {} with (force)", self.name);
        // A runtime of its own: the test's may be the one that runs this, and cannot wait here.
        let dropped = thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime")
                .block_on(async { connect().await.batch_execute(&statement).await })
        })
        .join();
        if !thread::panicking() {
            dropped
                .expect("the server is there")
                .expect("the database can be dropped");
        }
    }
}

/// A new, empty database.
///
/// # Panics
/// Where there is no Postgres to be had; the message says what to do.
pub async fn postgres() -> Database {
    found().await;
    create("template0").await
}

/// A new database with what `fill` put into one like it.
///
/// `fill` is given the URL of an empty database and runs once for all tests of this executable that
/// name the same `template`; each of them gets a copy. It must have closed its connections when it
/// returns, or soon after.
///
/// # Panics
/// Where there is no Postgres to be had; the message says what to do.
pub async fn postgres_from<F>(template: &str, fill: impl FnOnce(String) -> F) -> Database
where
    F: Future<Output = ()>,
{
    found().await;
    let template = format!("argala_template_{template}_{}", executable());
    let client = connect().await;
    if !is_template(&client, &template).await {
        let lock = i64::from_be_bytes(
            Sha256::digest(&template)[..8]
                .try_into()
                .expect("eight bytes"),
        );
        // Held until the connection closes.
        client
            .execute("select pg_advisory_lock($1)", &[&lock])
            .await
            .expect("a lock");
        if !is_template(&client, &template).await {
            make_template(&client, &template, fill).await;
        }
    }
    create(&template).await
}

async fn make_template<F>(client: &Client, template: &str, fill: impl FnOnce(String) -> F)
where
    F: Future<Output = ()>,
{
    // What somebody began who was stopped half-way.
    let unfinished = format!("drop database if exists {template} with (force)");
    client.batch_execute(&unfinished).await.expect("dropped");
    let begun = format!("create database {template} template template0");
    client.batch_execute(&begun).await.expect("created");
    fill(with_database(server().postgres_url(), template)).await;
    // A database that somebody is connected to cannot be copied.
    for statement in [
        format!("alter database {template} allow_connections false"),
        format!(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = '{template}'"
        ),
        format!("alter database {template} is_template true"),
    ] {
        client.batch_execute(&statement).await.expect("closed");
    }
}

/// Whether a template is there and complete.
async fn is_template(client: &Client, name: &str) -> bool {
    client
        .query_opt(
            "select 1 from pg_database where datname = $1 and datistemplate",
            &[&name],
        )
        .await
        .expect("an answer")
        .is_some()
}

async fn create(template: &str) -> Database {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let client = connect().await;
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("argala_test_{}_{number}", process::id());
        let statement = format!("create database {name} template {template}");
        match client.batch_execute(&statement).await {
            Ok(()) => return Database { name },
            // Left by a process that had our id and was killed.
            Err(error) if error.code() == Some(&SqlState::DUPLICATE_DATABASE) => {}
            Err(error) => panic!("no database from {template}: {error:?}"),
        }
    }
}

/// A connection to the server's own database.
async fn connect() -> Client {
    let (client, connection) = tokio_postgres::connect(server().postgres_url(), NoTls)
        .await
        .expect("the test server takes connections");
    // Ends when the client is dropped.
    tokio::spawn(connection);
    client
}

/// Finds or starts the server without holding up the runtime.
async fn found() {
    tokio::task::spawn_blocking(server)
        .await
        .expect("a test server");
}

/// The server. Being one of its users ends with this process.
fn server() -> &'static Shared {
    static SERVER: OnceLock<Shared> = OnceLock::new();
    SERVER
        .get_or_init(|| shared(contained).unwrap_or_else(|fault| panic!("no test server: {fault}")))
}

/// A Postgres in a container, where there can be one.
fn contained() -> Result<Option<Contained>, Fault> {
    // A runtime of its own: a test's may be the one that waits here.
    let started = thread::spawn(|| {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on(async {
                let image = argala_servers::postgres_image();
                PostgresContainer::start(&image, POSTGRES_SETTINGS)
                    .await
                    .map(|started| started.map(PostgresContainer::leave))
                    .map_err(|failure| Fault::Program {
                        program: image,
                        report: failure.to_string(),
                    })
            })
    });
    started.join().expect("no panic")
}

/// The URL of another database of the same server.
fn with_database(url: &str, name: &str) -> String {
    let (before, parameters) = match url.split_once('?') {
        Some((before, parameters)) => (before, format!("?{parameters}")),
        None => (url, String::new()),
    };
    let after_scheme = before.find("://").map_or(0, |at| at + 3);
    let host = match before[after_scheme..].find('/') {
        Some(at) => &before[..after_scheme + at],
        None => before,
    };
    format!("{host}/{name}{parameters}")
}

/// What tells this build of this executable from others: a server may outlive a change of code,
/// and what `fill` does may be what changed.
fn executable() -> String {
    let path = env::current_exe().expect("this program's path");
    let found = fs::metadata(&path).expect("this program's file");
    let told = format!("{path:?} {} {:?}", found.len(), found.modified());
    hex(&Sha256::digest(told)[..6])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::with_database;

    #[test]
    fn a_database_takes_the_place_of_the_one_in_the_url() {
        for (url, other) in [
            ("postgres://u:p@h:1/a", "postgres://u:p@h:1/b"),
            ("postgres://u:p@h:1", "postgres://u:p@h:1/b"),
            (
                "postgres://h/a?sslmode=require",
                "postgres://h/b?sslmode=require",
            ),
        ] {
            assert_eq!(with_database(url, "b"), other);
        }
    }
}
