//! Somebody holds a lock: who waits, who does not, and for how long.

use std::{net::TcpStream, thread};

use argala_wire::StorageKey;
use serde_json::json;

use super::{Beside, keyed, migrated, runtime};
use crate::{
    device::TestDevice,
    http::{Answer, Target, answer, header},
    load::GENEROUS,
    process::SOON,
};

/// Waits that no test reaches.
const PATIENT: [&str; 6] = [
    "--set",
    "store.lock_timeout=1h",
    "--set",
    "store.statement_timeout=1h",
    "--set",
    "store.operation_timeout=1h",
];

fn record(device: &TestDevice, graph: &str, id: &str) -> serde_json::Value {
    let graph: StorageKey = graph.parse().unwrap();
    device.record(&graph, id, id.as_bytes())
}

/// Sends a push and does not wait for the answer.
fn begin_push(
    target: &Target,
    device: &TestDevice,
    graph: &str,
    records: &[serde_json::Value],
) -> TcpStream {
    use std::io::Write as _;
    let body = json!({"records": records}).to_string();
    let length = body.len().to_string();
    let headers = [
        ("authorization", device.credential.as_str()),
        ("content-type", "application/json"),
        ("content-length", &length),
        ("connection", "close"),
    ];
    let mut stream = target.begin("POST", &format!("/graphs/{graph}/push"), &headers);
    stream.write_all(body.as_bytes()).unwrap();
    stream
}

fn unavailable(answer: &Answer) {
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.json()["code"], "unavailable");
    let seconds: u64 = header(&answer.head, "retry-after")
        .unwrap()
        .parse()
        .unwrap();
    assert!(seconds >= 1);
}

#[test]
fn a_lock_on_one_graph_is_nothing_to_the_others() {
    let runtime = runtime();
    let database = migrated(&runtime);
    let folder = tempfile::tempdir().unwrap();
    // Fewer connections than pushes that wait.
    let few = ["--set", "store.connections=4"];
    let args = [&GENEROUS[..], &PATIENT, &few].concat();
    let (mut served, sam) = keyed(folder.path(), &database.url(), &args);
    let alex = TestDevice::dev("alex", "phone");
    alex.register(&served.public).ok();
    alex.rotate(&served.public, "d:alex", &[&alex]).ok();

    let beside = Beside::open(&runtime, &database.url());
    beside.hold("d:sam:sam");
    let held: Vec<_> = (0..16)
        .map(|number| {
            let record = record(&sam, "d:sam:sam", &format!("held-{number}"));
            begin_push(&served.public, &sam, "d:sam", &[record])
        })
        .collect();
    beside.wait_for_waiting(1);
    for number in 0..200 {
        let record = record(&alex, "d:alex:alex", &format!("free-{number}"));
        alex.push(&served.public, "d:alex", &[record]).ok();
    }
    // Nor to those who only read it.
    assert!(sam.pull_all(&served.public, "d:sam").is_empty());
    assert_eq!(beside.text("select count(*) from records"), "200");
    beside.let_go();
    for stream in held {
        assert_eq!(answer(stream).expect("an answer").ok()["accepted"], 1);
    }
    assert_eq!(sam.pull_all(&served.public, "d:sam").len(), 16);
    assert!(served.stop().0.success());
}

#[test]
fn who_waits_too_long_for_a_lock_or_a_statement_is_told_to_come_again() {
    for short in ["lock_timeout", "statement_timeout"] {
        let runtime = runtime();
        let database = migrated(&runtime);
        let folder = tempfile::tempdir().unwrap();
        let short = format!("store.{short}=200ms");
        let args = [&PATIENT[..], &["--set", &short]].concat();
        let (mut served, sam) = keyed(folder.path(), &database.url(), &args);
        let beside = Beside::open(&runtime, &database.url());
        beside.hold("d:sam:sam");
        let record = record(&sam, "d:sam:sam", "r");
        unavailable(&sam.push(&served.public, "d:sam", std::slice::from_ref(&record)));
        beside.let_go();
        let pushed = sam.push(&served.public, "d:sam", &[record]).ok();
        assert_eq!(
            (&pushed["accepted"], &pushed["head"]),
            (&json!(1), &json!(1))
        );
        assert!(served.stop().0.success());
    }
}

#[test]
fn a_pool_that_is_exhausted_is_told_at_once_and_serves_again() {
    let runtime = runtime();
    let database = migrated(&runtime);
    let folder = tempfile::tempdir().unwrap();
    let few = [
        "--set",
        "store.connections=2",
        "--set",
        "store.connection_wait=200ms",
    ];
    let args = [&PATIENT[..], &few].concat();
    let (mut served, sam) = keyed(folder.path(), &database.url(), &args);
    let alex = TestDevice::dev("alex", "phone");
    alex.register(&served.public).ok();
    alex.rotate(&served.public, "d:alex", &[&alex]).ok();
    let holders = ["d:sam:sam", "d:alex:alex"].map(|graph| {
        let beside = Beside::open(&runtime, &database.url());
        beside.hold(graph);
        beside
    });
    let waiting = [
        begin_push(
            &served.public,
            &sam,
            "d:sam",
            &[record(&sam, "d:sam:sam", "r")],
        ),
        begin_push(
            &served.public,
            &alex,
            "d:alex",
            &[record(&alex, "d:alex:alex", "r")],
        ),
    ];
    holders[0].wait_for_waiting(2);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| unavailable(&served.public.get("/graphs/d:sam", &sam.headers())));
        }
    });
    // It lives, and says that nothing should be sent to it.
    assert_eq!(served.admin.get("/healthz", &[]).status, 200);
    assert_eq!(served.admin.get("/readyz", &[]).status, 503);
    for holder in &holders {
        holder.let_go();
    }
    for stream in waiting {
        assert_eq!(answer(stream).expect("an answer").ok()["accepted"], 1);
    }
    served.public.get("/graphs/d:sam", &sam.headers()).ok();
    assert_eq!(served.admin.get("/readyz", &[]).status, 200);
    served.signal("TERM");
    assert_eq!(served.wait(SOON).0.code(), Some(0));
}
