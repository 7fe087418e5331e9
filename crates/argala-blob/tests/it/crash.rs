//! A process that is killed in the middle of its puts loses no object that it acknowledged, and
//! leaves none that is not whole.
//!
//! The process is this test binary again, told by an environment variable to put until it dies.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
};

use argala_blob::FilesystemBlobs;
use argala_core::ports::{BlobStore, ObjectKey};
use bytes::Bytes;
use futures_util::{StreamExt, stream};

/// Names the folder and the round, for the process that is to die.
const CHILD: &str = "ARGALA_TEST_PUT_UNTIL_KILLED";
const PIECES: usize = 40;
const PIECE: usize = 10_000;

fn key(number: u64) -> ObjectKey {
    let mut random = [0; 16];
    random[..8].copy_from_slice(&number.to_be_bytes());
    ObjectKey::new("0123456789abcdef", random)
}

fn content(number: u64) -> u8 {
    u8::try_from(number % 251).unwrap()
}

/// Not a test by itself: what the killed process runs.
#[test]
fn put_until_killed() {
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
        let store = Arc::new(FilesystemBlobs::open(path).unwrap());
        let tasks: Vec<_> = (0..4)
            .map(|who| tokio::spawn(put_for_ever(Arc::clone(&store), round * 4 + who)))
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

async fn put_for_ever(store: Arc<FilesystemBlobs>, who: u64) {
    for at in 0.. {
        // Spread over the shelves.
        let number = (who << 16 | at).reverse_bits() | 1;
        let piece = Bytes::from(vec![content(number); PIECE]);
        let body = stream::iter((0..PIECES).map(move |_| Ok(piece.clone())));
        let key = key(number);
        let put = store.put(&key, (PIECES * PIECE) as u64, Box::pin(body));
        put.await.unwrap();
        let mut out = std::io::stdout().lock();
        out.write_all(format!("\nput {number}\n").as_bytes())
            .unwrap();
        out.flush().unwrap();
    }
}

fn start(path: &Path, round: u64) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["crash::put_until_killed", "--exact", "--nocapture"])
        .env(CHILD, format!("{round} {}", path.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    (child, out)
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_to_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let (mut child, out) = start(folder.path(), round);
        let before = acknowledged.len();
        let mut killed = false;
        for line in out.lines() {
            let Some(number) = line.unwrap().strip_prefix("put ").map(str::to_owned) else {
                continue;
            };
            acknowledged.push(number.parse::<u64>().unwrap());
            if !killed && acknowledged.len() >= before + 20 {
                child.kill().unwrap();
                killed = true;
            }
        }
        let status = child.wait().unwrap();
        assert!(killed && !status.success(), "it died by our hand: {status}");
    }

    let store = FilesystemBlobs::open(folder.path()).unwrap();
    for number in acknowledged {
        let read = store.get(&key(number), None).await.unwrap();
        let read: Vec<_> = read.expect("it was acknowledged").collect().await;
        let bytes = read.into_iter().flat_map(|piece| piece.unwrap());
        assert!(bytes.eq(std::iter::repeat_n(content(number), PIECES * PIECE)));
    }
    // Whatever else is readable is whole, and nothing half written is left.
    assert_eq!(
        std::fs::read_dir(folder.path().join("incoming"))
            .unwrap()
            .count(),
        0
    );
    for shelf in std::fs::read_dir(folder.path().join("0123456789abcdef")).unwrap() {
        for file in std::fs::read_dir(shelf.unwrap().path()).unwrap() {
            let size = file.unwrap().metadata().unwrap().len();
            assert_eq!(size, (PIECES * PIECE) as u64);
        }
    }
}
