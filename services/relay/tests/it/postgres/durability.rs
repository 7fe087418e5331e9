//! Nothing that was acknowledged is lost, whoever is killed.

use std::{thread, time::Duration};

use argala_testkit::servers::PrivatePostgres;

use super::{keyed, migrated, on, runtime, succeed};
use crate::{
    load::{GENEROUS, Load},
    process::{SOON, Served},
};

const ENOUGH: usize = 200;
/// How long a push may still be refused once the server is back.
const SECONDS: Duration = Duration::from_secs(10);

#[test]
fn a_relay_that_is_killed_leaves_all_that_it_acknowledged() {
    let runtime = runtime();
    let database = migrated(&runtime);
    let folder = tempfile::tempdir().unwrap();
    let (mut served, sam) = keyed(folder.path(), &database.url(), &GENEROUS);
    let load = Load::by(&sam);
    thread::scope(|scope| {
        load.start(scope, &served.public);
        load.wait_for_more(ENOUGH);
        served.signal("KILL");
    });
    served.wait(SOON);
    assert_eq!(load.unavailable(), 0);
    let mut served = Served::dev_with(folder.path(), &on(&database.url()), &[]);
    load.reconcile(&served.public);
    assert!(served.stop().0.success());
}

/// Lets pushers push, does something to the server, and holds that they go on by themselves and
/// miss nothing.
fn survives(what: impl FnOnce(&PrivatePostgres, &tokio::runtime::Runtime, &Served, &Load<'_>)) {
    let runtime = runtime();
    let server = runtime.block_on(PrivatePostgres::start());
    let url = server.url();
    succeed(&url, &["migrate"]);
    let folder = tempfile::tempdir().unwrap();
    let (mut served, sam) = keyed(folder.path(), &url, &GENEROUS);
    let load = Load::by(&sam);
    thread::scope(|scope| {
        load.start(scope, &served.public);
        load.wait_for_more(ENOUGH);
        what(&server, &runtime, &served, &load);
        load.wait_for_all(SECONDS);
        let refused = load.unavailable();
        assert!(refused > 0, "nobody noticed");
        load.wait_for_more(ENOUGH);
        assert_eq!(load.unavailable(), refused, "errors stop with its return");
        load.stop();
    });
    assert_eq!(served.admin.get("/readyz", &[]).status, 200);
    load.reconcile(&served.public);
    assert!(served.stop().0.success());
}

#[test]
fn a_server_that_is_killed_in_mid_commit_loses_nothing_that_was_acknowledged() {
    survives(|server, runtime, served, load| {
        runtime.block_on(server.kill());
        load.wait_for_refusal();
        assert_eq!(served.admin.get("/healthz", &[]).status, 200);
        assert_eq!(served.admin.get("/readyz", &[]).status, 503);
        runtime.block_on(server.start_again());
    });
}

#[test]
fn deadpool_191_and_201_a_server_that_is_restarted_under_load_is_found_again() {
    survives(|server, runtime, _, load| {
        runtime.block_on(server.stop());
        load.wait_for_refusal();
        runtime.block_on(server.start_again());
    });
}

#[test]
fn a_server_that_ends_every_session_is_asked_again() {
    survives(|server, runtime, _, load| {
        let session = runtime.block_on(argala_testkit::servers::Session::open(&server.url()));
        // As a failover or a careless operator does it.
        while load.unavailable() == 0 {
            runtime.block_on(session.run(
                "select pg_terminate_backend(pid) from pg_stat_activity
                 where datname = current_database() and pid <> pg_backend_pid()",
            ));
        }
    });
}
