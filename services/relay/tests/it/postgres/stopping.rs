//! Being told to stop, over a Postgres; and what a relay does not do there.

use std::{io::Write as _, time::Duration};

use argala_wire::StorageKey;

use super::{Beside, keyed, migrated, on, runtime};
use crate::{
    http::{Events, answer},
    process::{SOON, Served},
};

/// The default grace is 25 s; what is over well before it did not wait for it.
const WELL_WITHIN_THE_GRACE: Duration = Duration::from_secs(15);

#[test]
fn a_push_in_flight_finishes_streams_are_told_and_no_session_is_left() {
    let runtime = runtime();
    let database = migrated(&runtime);
    let folder = tempfile::tempdir().unwrap();
    let (mut served, sam) = keyed(folder.path(), &database.url(), &[]);
    let streams: Vec<_> = (0..20)
        .map(|_| Events::open(&served.public, &sam.headers()))
        .collect();
    let graph: StorageKey = "d:sam:sam".parse().unwrap();
    let record = sam.record(&graph, "r", b"sealed");
    let body = serde_json::json!({"records": [record]}).to_string();
    let length = body.len().to_string();
    let mut headers = sam.headers().to_vec();
    headers.extend([
        ("content-type", "application/json"),
        ("content-length", length.as_str()),
    ]);
    // One that is in the middle of its transaction when the signal comes.
    let beside = Beside::open(&runtime, &database.url());
    beside.hold("d:sam:sam");
    let mut stream = served.public.begin("POST", "/graphs/d:sam/push", &headers);
    stream.write_all(body.as_bytes()).unwrap();
    beside.wait_for_waiting(1);

    served.signal("TERM");
    served.wait_until_stopping();
    beside.let_go();
    assert_eq!(answer(stream).expect("an answer").ok()["accepted"], 1);
    for mut stream in streams {
        assert!(stream.wait_for("argala.resync"));
    }
    let (status, log) = served.wait(WELL_WITHIN_THE_GRACE);
    assert_eq!(status.code(), Some(0), "{log}");
    let left = "select count(*) from pg_stat_activity
         where datname = current_database() and pid <> pg_backend_pid()";
    beside.wait_for_text(left, "0");
    assert_eq!(beside.text("select count(*) from records"), "1");
}

#[test]
fn a_relay_on_a_server_does_not_sweep_it() {
    let runtime = runtime();
    let database = migrated(&runtime);
    let folder = tempfile::tempdir().unwrap();
    let eager = [
        "--set",
        "sweep.interval=1s",
        "--set",
        "log.level=info,argala_boot=debug",
    ];
    let url = database.url();
    let mut on_server = Served::dev_with(folder.path(), &on(&url), &eager);
    // One in a file, started later, tells when the other one would have done it, too.
    let mut in_file = Served::dev(folder.path(), &eager);
    for _ in 0..2 {
        in_file.wait_for_log("swept");
    }
    let (_, log) = on_server.stop();
    assert!(!log.contains("swept"), "{log}");
    assert!(in_file.stop().0.success());
}

#[test]
fn behind_a_pooler_it_serves_and_stops() {
    let runtime = runtime();
    let database = migrated(&runtime);
    let folder = tempfile::tempdir().unwrap();
    let behind = [
        "--set",
        "store.timeouts=transaction",
        "--set",
        "store.statements=unnamed",
    ];
    let (mut served, sam) = keyed(folder.path(), &database.bouncer_url(), &behind);
    let graph: StorageKey = "d:sam:sam".parse().unwrap();
    for number in 0..20 {
        let id = format!("r{number}");
        let record = sam.record(&graph, &id, id.as_bytes());
        assert_eq!(
            sam.push(&served.public, "d:sam", &[record]).ok()["accepted"],
            1
        );
    }
    assert_eq!(sam.pull_all(&served.public, "d:sam").len(), 20);
    served.signal("TERM");
    assert_eq!(served.wait(SOON).0.code(), Some(0));
}
