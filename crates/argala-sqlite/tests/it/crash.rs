//! A process that is killed in the middle of its pushes loses nothing that it acknowledged.
//!
//! The process is this test binary again, told by an environment variable to push until it dies.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
};

use argala_core::ports::{BlobStore, Store};
use argala_sqlite::{Options, Sqlite};
use argala_testkit::TestDevice;
use argala_wire::records::PushResult;
use bytes::Bytes;
use futures_util::{StreamExt, stream};

use crate::scene::{Scene, graph, object, push};

/// Names the database and the round, for the process that is to die.
const CHILD: &str = "ARGALA_TEST_PUSH_UNTIL_KILLED";
const PUSHERS: usize = 8;
/// Records of one push: all of them are there, or none.
const RECORDS: usize = 3;
const OBJECT: usize = 600_000;

/// Not a test by itself: what the killed process runs.
#[test]
fn push_until_killed() {
    let Ok(task) = std::env::var(CHILD) else {
        return;
    };
    let (round, path) = task.split_once(' ').unwrap();
    let round: u64 = round.parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    runtime.block_on(async {
        let db = Arc::new(Sqlite::open(path, &Options::default()).unwrap());
        let mut tasks = Vec::new();
        for who in 0..PUSHERS {
            let db = Arc::clone(&db);
            tasks.push(tokio::spawn(push_for_ever(db, round, who)));
        }
        tasks.push(tokio::spawn(put_for_ever(db, round)));
        for task in tasks {
            task.await.unwrap();
        }
    });
}

fn acknowledge(line: &str) {
    // In one piece, so that a line is there whole or is cut by the end of the pipe.
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

async fn push_for_ever(db: Arc<Sqlite>, round: u64, who: usize) {
    let (key, device) = (graph("acme"), TestDevice::new("sam", "d0"));
    for at in 0_u64.. {
        let records = (0..RECORDS)
            .map(|n| device.record(&key, &format!("{round}-{who}-{at}-{n}"), 1, b"content"))
            .collect();
        let answer = db.push(push(&key, &device, records)).await.unwrap().answer;
        for result in answer.results {
            match result {
                PushResult::Accepted { id, seq } => acknowledge(&format!("pushed {id} {seq}")),
                other => panic!("{other:?}"),
            }
        }
    }
}

async fn put_for_ever(db: Arc<Sqlite>, round: u64) {
    for at in 0.. {
        let number = round * 1_000_000 + at;
        let body = stream::iter([Ok(Bytes::from(vec![
            u8::try_from(at % 256).unwrap();
            OBJECT
        ]))]);
        let key = object(&db, number);
        db.put(&key, OBJECT as u64, Box::pin(body)).await.unwrap();
        acknowledge(&format!("put {number} {}", at % 256));
    }
}

fn start(path: &Path, round: u64) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["crash::push_until_killed", "--exact", "--nocapture"])
        .env(CHILD, format!("{round} {}", path.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    (child, out)
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_to_kill_9() {
    let scene = Scene::new();
    let key = graph("acme");
    let devices = scene.devices("sam", 1).await;
    scene.rotate(&key, 1, &devices).await;
    let path = scene.folder.path().join("relay.db");

    let mut pushed = BTreeMap::new();
    let mut put = BTreeMap::new();
    for round in 0..4 {
        let (mut child, out) = start(&path, round);
        let mut acknowledged = 0;
        let mut killed = false;
        for line in out.lines() {
            // Whatever was acknowledged before the end counts, what came after the kill was sent
            // included.
            let line = line.unwrap();
            let mut words = line.split_whitespace();
            match (words.next(), words.next(), words.next(), words.next()) {
                (Some("pushed"), Some(id), Some(seq), None) => {
                    pushed.insert(id.to_owned(), seq.parse::<u64>().unwrap());
                }
                (Some("put"), Some(number), Some(content), None) => {
                    put.insert(
                        number.parse::<u64>().unwrap(),
                        content.parse::<u8>().unwrap(),
                    );
                }
                _ => continue,
            }
            acknowledged += 1;
            if !killed && acknowledged >= 100 + round * 77 {
                child.kill().unwrap();
                killed = true;
            }
        }
        let status = child.wait().unwrap();
        assert!(killed && !status.success(), "it died by our hand: {status}");
    }
    println!(
        "{} records and {} objects acknowledged",
        pushed.len(),
        put.len()
    );

    let there: BTreeMap<String, u64> = scene
        .pull_all(&key, &devices[0])
        .await
        .into_iter()
        .map(|record| (record.id.to_string(), record.seq))
        .collect();
    for (id, seq) in &pushed {
        assert_eq!(there.get(id), Some(seq), "{id} was acknowledged");
    }
    // What was not acknowledged is whole or absent, and no seq was left out.
    let mut of_push: BTreeMap<&str, usize> = BTreeMap::new();
    for id in there.keys() {
        *of_push.entry(id.rsplit_once('-').unwrap().0).or_default() += 1;
    }
    assert!(of_push.values().all(|count| *count == RECORDS));
    let seqs: BTreeSet<_> = there.values().copied().collect();
    assert_eq!(seqs, (1..=there.len() as u64).collect());
    scene.counters_are_exact(&key).await;

    for (number, content) in put {
        let read = scene
            .db
            .get(&object(&scene.db, number), None)
            .await
            .unwrap();
        let read: Vec<_> = read.expect("it was acknowledged").collect().await;
        let bytes = read.into_iter().flat_map(|piece| piece.unwrap());
        assert!(bytes.eq(std::iter::repeat_n(content, OBJECT)));
    }
    let whole = "SELECT count(*) FROM objects o WHERE whole AND size <> \
                 (SELECT sum(length(bytes)) FROM chunks c WHERE c.object = o.id)";
    let broken: i64 = scene
        .beside()
        .query_row(whole, [], |row| row.get(0))
        .unwrap();
    assert_eq!(broken, 0);
    let check: String = scene
        .beside()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
}
