//! The bytes of blobs in the database: in chunks, and never held whole.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use argala_core::ports::{BlobStore, ByteStream};
use bytes::Bytes;
use futures_util::{StreamExt, stream};

use crate::scene::{Scene, object};

/// Bytes of which all that are alive are counted.
struct Counted {
    bytes: Vec<u8>,
    alive: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.fetch_sub(self.bytes.len(), Ordering::SeqCst);
    }
}

async fn count(scene: &Scene, table: &str) -> String {
    let sql = format!("SELECT count(*) FROM {table}");
    scene.beside().await.text(&sql).await
}

#[tokio::test]
async fn a_body_is_let_go_of_as_it_is_written() {
    const PIECE: usize = 100_000;
    const PIECES: usize = 250;
    let scene = Scene::new().await;
    let key = object(&scene.db, 1);
    let alive = Arc::new(AtomicUsize::new(0));
    let peak = Arc::new(AtomicUsize::new(0));
    let body = {
        let (alive, peak) = (Arc::clone(&alive), Arc::clone(&peak));
        stream::iter(0..PIECES).map(move |at| {
            let now = alive.fetch_add(PIECE, Ordering::SeqCst) + PIECE;
            peak.fetch_max(now, Ordering::SeqCst);
            let bytes = vec![u8::try_from(at).unwrap(); PIECE];
            let alive = Arc::clone(&alive);
            io::Result::Ok(Bytes::from_owner(Counted { bytes, alive }))
        })
    };
    let size = (PIECE * PIECES) as u64;
    scene.db.put(&key, size, Box::pin(body)).await.unwrap();
    assert_eq!(alive.load(Ordering::SeqCst), 0);
    assert!(
        peak.load(Ordering::SeqCst) <= 2 << 20,
        "{peak:?} bytes at once"
    );

    let mut read: ByteStream = scene.db.get(&key, None).await.unwrap().unwrap();
    let mut at = 0;
    while let Some(piece) = read.next().await {
        let piece = piece.unwrap();
        assert!(piece.len() <= 1 << 20, "{} bytes at once", piece.len());
        for byte in piece {
            assert_eq!(usize::from(byte), at / PIECE);
            at += 1;
        }
    }
    assert_eq!(at, PIECE * PIECES);
    scene.db.delete(&key).await.unwrap();
    assert_eq!(count(&scene, "chunks").await, "0");
    assert_eq!(count(&scene, "objects").await, "0");
}

#[tokio::test]
async fn an_object_is_seen_with_its_last_chunk() {
    let scene = Scene::new().await;
    let key = object(&scene.db, 1);
    let (send, receive) = tokio::sync::mpsc::channel::<io::Result<Bytes>>(1);
    let body = stream::unfold(receive, |mut receive| async {
        receive.recv().await.map(|piece| (piece, receive))
    });
    let db = Arc::clone(&scene.db);
    let putting = {
        let key = key.clone();
        tokio::spawn(async move { db.put(&key, 4 << 20, Box::pin(body)).await })
    };
    for _ in 0..4 {
        send.send(Ok(Bytes::from(vec![1; 1 << 20]))).await.unwrap();
        assert!(scene.db.get(&key, None).await.unwrap().is_none());
    }
    // All of it has been sent, but nobody has said that this is all.
    assert!(scene.db.get(&key, None).await.unwrap().is_none());
    drop(send);
    putting.await.unwrap().unwrap();
    assert!(scene.db.get(&key, None).await.unwrap().is_some());
}

#[tokio::test]
async fn other_than_announced_is_nothing() {
    let scene = Scene::new().await;
    for (number, announced) in [(1, 10), (2, 12)] {
        let key = object(&scene.db, number);
        let body = stream::iter([Ok(Bytes::from_static(b"eleven byte"))]);
        assert!(scene.db.put(&key, announced, Box::pin(body)).await.is_err());
        assert!(scene.db.get(&key, None).await.unwrap().is_none());
        scene.db.delete(&key).await.unwrap();
    }
    assert_eq!(count(&scene, "chunks").await, "0");
    assert_eq!(count(&scene, "objects").await, "0");
}

#[tokio::test]
async fn a_reader_outlives_the_handle() {
    let mut scene = Scene::new().await;
    let key = object(&scene.db, 1);
    let body = stream::iter([Ok(Bytes::from(vec![9; 3 << 20]))]);
    scene.db.put(&key, 3 << 20, Box::pin(body)).await.unwrap();
    let read = scene.db.get(&key, None).await.unwrap().unwrap();
    // The database's last handle goes; the stream keeps what it needs.
    let database = std::mem::replace(&mut scene.stock.db, Scene::new().await.stock.db);
    drop(database);
    let read: Vec<_> = read.map(|piece| piece.unwrap().len()).collect().await;
    assert_eq!(read.iter().sum::<usize>(), 3 << 20);
}
