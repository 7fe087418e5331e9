//! What lies where, whose it is, and what is cleared away.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use argala_blob::FilesystemBlobs;
use argala_core::{
    StoreErrorKind,
    ports::{BlobStore, ByteStream, ObjectKey},
};
use bytes::Bytes;
use futures_util::{FutureExt, stream};

fn key(number: u8) -> ObjectKey {
    ObjectKey::new("0123456789abcdef", [number; 16])
}

fn body(bytes: &'static [u8]) -> ByteStream {
    Box::pin(stream::iter([Ok(Bytes::from_static(bytes))]))
}

/// A body that begins and does not go on.
fn stuck() -> ByteStream {
    let begun = stream::iter([io::Result::Ok(Bytes::from_static(b"some"))]);
    Box::pin(futures_util::StreamExt::chain(begun, stream::pending()))
}

/// Every file below `folder`, by its path from there.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(folder).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn an_object_is_a_file_two_levels_down() {
    let folder = tempfile::tempdir().unwrap();
    let store = FilesystemBlobs::open(folder.path()).unwrap();
    store.put(&key(0xab), 5, body(b"bytes")).await.unwrap();
    let path = Path::new("0123456789abcdef/ab").join("ab".repeat(16));
    assert_eq!(files(folder.path()), std::slice::from_ref(&path));
    assert_eq!(fs::read(folder.path().join(path)).unwrap(), b"bytes");
    store.delete(&key(0xab)).await.unwrap();
    assert_eq!(files(folder.path()), [] as [PathBuf; 0]);
}

#[cfg(unix)]
#[tokio::test]
async fn folders_and_files_are_their_owners() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("data/blobs");
    let store = FilesystemBlobs::open(&root).unwrap();
    store.put(&key(1), 5, body(b"bytes")).await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for path in files(&root) {
        assert_eq!(mode(&root.join(&path)), 0o600);
        for above in path.ancestors().skip(1) {
            assert_eq!(mode(&root.join(above)), 0o700, "{above:?}");
        }
    }
    assert_eq!(mode(&root.join("incoming")), 0o700);
}

#[tokio::test]
async fn what_a_dead_process_left_is_cleared_and_what_a_live_one_writes_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let store = FilesystemBlobs::open(folder.path()).unwrap();
    let incoming = folder.path().join("incoming");
    fs::write(incoming.join("0123456789abcdef-77.part"), "half").unwrap();
    fs::write(incoming.join("notes.txt"), "somebody's").unwrap();

    let (send, receive) = tokio::sync::mpsc::channel::<io::Result<Bytes>>(1);
    let slow = stream::unfold(receive, |mut receive| async {
        receive.recv().await.map(|piece| (piece, receive))
    });
    let putting = tokio::spawn(async move { store.put(&key(1), 8, Box::pin(slow)).await });
    // The second is taken when the first has been written.
    for _ in 0..2 {
        send.send(Ok(Bytes::from_static(b"1234"))).await.unwrap();
    }

    // Another process starts, and finds both.
    let other = FilesystemBlobs::open(folder.path()).unwrap();
    let name = format!("incoming/0123456789abcdef-{}.part", "01".repeat(16));
    let left = [PathBuf::from(name), PathBuf::from("incoming/notes.txt")];
    assert_eq!(files(folder.path()), left);
    drop(send);
    putting.await.unwrap().unwrap();
    assert!(other.get(&key(1), None).await.unwrap().is_some());
}

#[tokio::test]
async fn a_put_that_is_dropped_or_fails_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = FilesystemBlobs::open(folder.path()).unwrap();
    let key = key(1);
    let mut putting = Box::pin(store.put(&key, 100, stuck()));
    // Until its file is there.
    while files(folder.path()).is_empty() {
        assert!(putting.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    drop(putting);
    // Seen in the moment when it was made, it goes when the thread that made it has ended.
    for _ in 0..5_000 {
        if files(folder.path()).is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(files(folder.path()), [] as [PathBuf; 0]);
    for announced in [4, 6] {
        let put = store.put(&key, announced, body(b"bytes")).await;
        assert_eq!(put.unwrap_err().kind, StoreErrorKind::Unavailable);
        assert_eq!(files(folder.path()), [] as [PathBuf; 0]);
    }
}

#[tokio::test]
async fn a_disk_that_refuses_is_unavailable() {
    let folder = tempfile::tempdir().unwrap();
    let store = FilesystemBlobs::open(folder.path().join("blobs")).unwrap();
    store.put(&key(1), 5, body(b"bytes")).await.unwrap();
    // Whoever runs the tests may write anywhere; a file in a folder's place stops even them.
    fs::remove_dir_all(folder.path().join("blobs")).unwrap();
    fs::write(folder.path().join("blobs"), "").unwrap();
    let put = store.put(&key(2), 5, body(b"bytes")).await;
    assert_eq!(put.unwrap_err().kind, StoreErrorKind::Unavailable);
    match store.get(&key(1), None).await {
        Err(error) => assert_eq!(error.kind, StoreErrorKind::Unavailable),
        Ok(_) => panic!("nothing can be told of it"),
    }
    let deleted = store.delete(&key(1)).await;
    assert_eq!(deleted.unwrap_err().kind, StoreErrorKind::Unavailable);
    assert!(FilesystemBlobs::open(folder.path().join("blobs")).is_err());
}
