//! A newer build migrates while older ones serve.

use std::thread;

use super::{Beside, keyed, migrated, on, runtime, succeed};
use crate::{
    load::{GENEROUS, Load},
    process::Served,
};

const ENOUGH: usize = 100;

/// What the first half of an expand-and-contract migration may do: nothing that an older build
/// would miss or stumble over.
const EXPANSION: &[&str] = &[
    "alter table records add column of_the_future bigint",
    "alter table graphs add column of_the_future bigint not null default 7",
    "alter table devices add column of_the_future text",
    "create table of_the_future (graph bigint primary key)",
    // Cannot run inside a transaction, as a large table needs it.
    "create index concurrently records_of_the_future on records (graph, of_the_future)",
    "update relay_schema set version = version + 1",
];

#[test]
fn older_relays_serve_on_while_a_newer_schema_is_made() {
    let runtime = runtime();
    let database = migrated(&runtime);
    let url = database.url();
    let folder = tempfile::tempdir().unwrap();
    let (mut first, sam) = keyed(folder.path(), &url, &GENEROUS);
    let mut second = Served::dev_with(folder.path(), &on(&url), &GENEROUS);
    let load = Load::by(&sam);
    thread::scope(|scope| {
        load.start(scope, &first.public);
        load.wait_for_more(ENOUGH);
        let beside = Beside::open(&runtime, &url);
        for step in EXPANSION {
            beside.run(step);
            // Both with statements that were prepared before.
            load.wait_for_more(ENOUGH / 4);
            sam.pull_all(&second.public, "d:sam");
        }
        load.wait_for_more(ENOUGH);
        load.stop();
    });
    assert_eq!(load.unavailable(), 0, "nobody noticed");
    load.reconcile(&second.public);
    // One more of the same build may still be started, or started again.
    let mut third = Served::dev_with(folder.path(), &on(&url), &[]);
    load.reconcile(&third.public);
    succeed(&url, &["migrate", "--check"]);
    for served in [&mut first, &mut second, &mut third] {
        assert!(served.stop().0.success());
    }
}
