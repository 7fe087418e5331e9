//! What every [`BlobStore`] does.

use std::{io, ops::Range, sync::Arc};

use argala_core::ports::{BlobStore, ByteStream, Clock, ListedObject, ObjectKey, SystemClock};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use sha2::{Digest, Sha256};

use super::Fresh;
use crate::{TestRandom, eventually};

/// Stamps the suite; `$fresh` is an `async fn() -> Fresh<dyn BlobStore>`. With `in one` all of it
/// is one test, for a store that takes long to start.
#[macro_export]
macro_rules! blob_conformance {
    ($fresh:path) => {
        $crate::blob_conformance! { stamp_cases, $fresh }
    };
    ($fresh:path, in one) => {
        $crate::blob_conformance! { run_cases, $fresh }
    };
    ($what:ident, $fresh:path) => {
        $crate::$what! { $fresh, blob:
            what_is_put_is_got,
            an_empty_object_is_an_object,
            what_was_not_put_is_not_there,
            every_range_is_cut_exactly,
            deleting_twice_is_deleting,
            a_body_that_fails_leaves_nothing_readable,
            a_put_that_is_dropped_leaves_nothing_readable,
            a_delete_clears_what_a_failed_put_left,
            objects_do_not_touch_each_other,
            a_large_object_comes_back_as_it_went,
            many_small_ones_at_once,
            a_reader_of_a_deleted_object_gets_all_of_it_or_an_error,
            a_reader_may_stop_early,
            a_list_has_one_database_s_objects_in_order,
            a_list_tells_when_an_object_was_put,
        }
    };
}

fn key(number: u64) -> ObjectKey {
    let mut random = [0; 16];
    random[8..].copy_from_slice(&number.to_be_bytes());
    ObjectKey::new("0123456789abcdef", random)
}

/// `size` bytes that differ from those of any other seed.
fn content(seed: u64, size: usize) -> Vec<u8> {
    use argala_core::ports::Random;
    let mut bytes = vec![0; size];
    TestRandom::new(seed).fill(&mut bytes);
    bytes
}

fn body(bytes: &[u8], piece: usize) -> ByteStream {
    let pieces: Vec<io::Result<Bytes>> = bytes
        .chunks(piece)
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect();
    Box::pin(stream::iter(pieces))
}

async fn read(mut stream: ByteStream) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(piece) = stream.next().await {
        bytes.extend_from_slice(&piece?);
    }
    Ok(bytes)
}

/// The store, by way of every replica in turn.
struct Shelf {
    fresh: Fresh<dyn BlobStore>,
    turn: std::sync::atomic::AtomicUsize,
}

impl Shelf {
    fn new(fresh: Fresh<dyn BlobStore>) -> Self {
        let turn = std::sync::atomic::AtomicUsize::new(0);
        Self { fresh, turn }
    }

    fn store(&self) -> Arc<dyn BlobStore> {
        let turn = self.turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Arc::clone(self.fresh.replica(turn))
    }

    async fn put(&self, key: &ObjectKey, bytes: &[u8]) {
        self.store()
            .put(key, bytes.len() as u64, body(bytes, 1_000))
            .await
            .expect("stored");
    }

    async fn get(&self, key: &ObjectKey, range: Option<Range<u64>>) -> Option<Vec<u8>> {
        let stream = self
            .store()
            .get(key, range)
            .await
            .expect("the store answers")?;
        Some(read(stream).await.expect("the object is readable"))
    }

    async fn is_there(&self, key: &ObjectKey) -> bool {
        let whole = self.get(key, None).await.is_some();
        let part = self.get(key, Some(0..1)).await.is_some();
        assert_eq!(whole, part, "whole and in part it is equally there");
        whole
    }

    /// All of one database, `limit` at a time.
    async fn list(&self, instance: &str, limit: usize) -> Vec<ListedObject> {
        let mut all: Vec<ListedObject> = Vec::new();
        loop {
            let after = all.last().map(|last| last.key.clone());
            let page = self.store().list(instance, after.as_ref(), limit).await;
            let page = page.expect("the store answers");
            assert!(page.len() <= limit, "{} of {limit}", page.len());
            let last = page.len() < limit;
            all.extend(page);
            if last {
                return all;
            }
        }
    }

    async fn delete(&self, key: &ObjectKey) {
        self.store().delete(key).await.expect("deleted");
    }
}

/// Whatever the pieces it came in.
pub async fn what_is_put_is_got(fresh: Fresh<dyn BlobStore>) {
    let shelf = Shelf::new(fresh);
    let bytes = content(1, 70_001);
    for (number, piece) in [1, 7, 4_096, 65_536, 100_000].into_iter().enumerate() {
        let key = key(number as u64);
        let bytes = &bytes[..if piece == 1 { 300 } else { bytes.len() }];
        shelf
            .store()
            .put(&key, bytes.len() as u64, body(bytes, piece))
            .await
            .expect("stored");
        assert_eq!(
            shelf.get(&key, None).await.as_deref(),
            Some(bytes),
            "pieces of {piece}"
        );
    }
    // Pieces may be empty, too.
    let pieces = [&b"ab"[..], b"", b"c"].map(|piece| Ok(Bytes::from_static(piece)));
    shelf
        .store()
        .put(&key(99), 3, Box::pin(stream::iter(pieces)))
        .await
        .expect("stored");
    assert_eq!(
        shelf.get(&key(99), None).await.as_deref(),
        Some(&b"abc"[..])
    );
}

/// Nothing is something.
pub async fn an_empty_object_is_an_object(fresh: Fresh<dyn BlobStore>) {
    let shelf = Shelf::new(fresh);
    shelf.put(&key(1), b"").await;
    assert_eq!(shelf.get(&key(1), None).await, Some(Vec::new()));
    shelf.delete(&key(1)).await;
    assert_eq!(shelf.get(&key(1), None).await, None);
}

/// It is no error either.
pub async fn what_was_not_put_is_not_there(fresh: Fresh<dyn BlobStore>) {
    let shelf = Shelf::new(fresh);
    assert!(!shelf.is_there(&key(1)).await);
    shelf.put(&key(1), b"one").await;
    assert!(!shelf.is_there(&key(2)).await);
}

/// First and last bytes, single ones, and random ones across whatever pieces the store keeps.
pub async fn every_range_is_cut_exactly(fresh: Fresh<dyn BlobStore>) {
    let shelf = Shelf::new(fresh);
    let size = 300_007;
    let bytes = content(3, size);
    shelf.put(&key(1), &bytes).await;
    let random = TestRandom::new(4);
    let mut ranges = vec![
        0..1,
        0..size,
        size - 1..size,
        1..size,
        0..size - 1,
        65_535..65_537,
    ];
    for _ in 0..80 {
        let start = usize::try_from(random.below(size as u64 - 1)).expect("small");
        let length = 1 + usize::try_from(random.below((size - start) as u64)).expect("small");
        ranges.push(start..start + length);
    }
    for range in ranges {
        let asked = range.start as u64..range.end as u64;
        let got = shelf.get(&key(1), Some(asked)).await.expect("it is there");
        assert!(got == bytes[range.clone()], "{range:?}");
    }
}

/// Again, or where there is none: nothing to do.
pub async fn deleting_twice_is_deleting(fresh: Fresh<dyn BlobStore>) {
    let shelf = Shelf::new(fresh);
    shelf.delete(&key(1)).await;
    shelf.put(&key(1), b"one").await;
    shelf.delete(&key(1)).await;
    assert!(!shelf.is_there(&key(1)).await);
    shelf.delete(&key(1)).await;
    assert!(!shelf.is_there(&key(1)).await);
}

/// However much of it had come.
pub async fn a_body_that_fails_leaves_nothing_readable(fresh: Fresh<dyn BlobStore>) {
    let shelf = Shelf::new(fresh);
    let bytes = content(5, 200_000);
    for (number, whole_pieces) in [0, 1, 19, 20].into_iter().enumerate() {
        let key = key(number as u64);
        let good = body(&bytes, 10_000).take(whole_pieces);
        let bad = stream::iter([Err(io::Error::other("the client went away"))]);
        let put = shelf
            .store()
            .put(&key, bytes.len() as u64, Box::pin(good.chain(bad)))
            .await;
        assert!(put.is_err(), "after {whole_pieces} pieces");
        assert!(!shelf.is_there(&key).await, "after {whole_pieces} pieces");
    }
}

/// A caller that goes away in the middle is no different.
pub async fn a_put_that_is_dropped_leaves_nothing_readable(fresh: Fresh<dyn BlobStore>) {
    let shelf = Shelf::new(fresh);
    let bytes = content(6, 100_000);
    let (seen, mut reached) = tokio::sync::mpsc::channel::<()>(1);
    let end = stream::once(async move {
        seen.send(()).await.expect("somebody waits");
        std::future::pending::<io::Result<Bytes>>().await
    });
    let stuck = body(&bytes, 10_000).chain(end);
    let store = shelf.store();
    let put = tokio::spawn(async move { store.put(&key(1), 200_000, Box::pin(stuck)).await });
    reached.recv().await.expect("the store asks for more");
    assert!(!shelf.is_there(&key(1)).await, "it is not whole yet");
    put.abort();
    assert!(put.await.expect_err("aborted").is_cancelled());
    assert!(!shelf.is_there(&key(1)).await);
    shelf.delete(&key(1)).await;
    assert!(!shelf.is_there(&key(1)).await);
}

/// Whatever is left of a failed one goes, and the key may even be used again.
pub async fn a_delete_clears_what_a_failed_put_left(fresh: Fresh<dyn BlobStore>) {
    let shelf = Shelf::new(fresh);
    let bytes = content(7, 50_000);
    let bad = stream::iter([Err(io::Error::other("the client went away"))]);
    let failing = body(&bytes, 9_000).chain(bad);
    let put = shelf.store().put(&key(1), 60_000, Box::pin(failing)).await;
    assert!(put.is_err());
    shelf.delete(&key(1)).await;
    shelf.put(&key(1), &bytes).await;
    assert!(shelf.get(&key(1), None).await == Some(bytes));
}

/// Nor do keys of other databases, or keys that begin alike.
pub async fn objects_do_not_touch_each_other(fresh: Fresh<dyn BlobStore>) {
    let shelf = Shelf::new(fresh);
    let (one, other) = ("0".repeat(31), "0".repeat(30));
    let keys: Vec<ObjectKey> = ["ab", "abab", "cd"]
        .iter()
        .flat_map(|instance| {
            [
                format!("{instance}/{one}1"),
                format!("{instance}/{one}2"),
                format!("{instance}/1{other}1"),
            ]
        })
        .map(|text| ObjectKey::parse(&text).expect("a key"))
        .collect();
    for (number, key) in keys.iter().enumerate() {
        shelf.put(key, &content(number as u64, 100)).await;
    }
    for deleted in 0..keys.len() {
        shelf.delete(&keys[deleted]).await;
        for (number, key) in keys.iter().enumerate() {
            let wanted = (number > deleted).then(|| content(number as u64, 100));
            assert_eq!(shelf.get(key, None).await, wanted, "{key}");
        }
    }
}

/// As large as a blob may be, in pieces as they come from a network.
pub async fn a_large_object_comes_back_as_it_went(fresh: Fresh<dyn BlobStore>) {
    const PIECE: usize = 16 * 1024;
    const PIECES: usize = 25 * 64;
    let shelf = Shelf::new(fresh);
    let piece = Bytes::from(content(8, PIECE));
    let mut sent = Sha256::new();
    for _ in 0..PIECES {
        sent.update(&piece);
    }
    let pieces = stream::iter((0..PIECES).map(move |_| Ok(piece.clone())));
    shelf
        .store()
        .put(&key(1), (PIECE * PIECES) as u64, Box::pin(pieces))
        .await
        .expect("stored");
    let got = shelf
        .store()
        .get(&key(1), None)
        .await
        .expect("the store answers");
    let mut got = got.expect("it is there");
    let (mut hash, mut size) = (Sha256::new(), 0);
    while let Some(piece) = got.next().await {
        let piece = piece.expect("readable");
        assert!(piece.len() <= 4 * 1024 * 1024, "it is not held whole");
        size += piece.len();
        hash.update(&piece);
    }
    assert_eq!(size, PIECE * PIECES);
    assert!(hash.finalize() == sent.finalize());
}

/// Puts, gets and deletes of many, all at the same time.
pub async fn many_small_ones_at_once(fresh: Fresh<dyn BlobStore>) {
    let shelf = Arc::new(Shelf::new(fresh));
    let tasks: Vec<_> = (0..120_u64)
        .map(|number| {
            let shelf = Arc::clone(&shelf);
            tokio::spawn(async move {
                let bytes = content(number, 1 + usize::try_from(number * 37).expect("small"));
                shelf.put(&key(number), &bytes).await;
                assert!(shelf.get(&key(number), None).await == Some(bytes));
                if number % 3 == 0 {
                    shelf.delete(&key(number)).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    for number in 0..120 {
        assert_eq!(
            shelf.is_there(&key(number)).await,
            number % 3 != 0,
            "{number}"
        );
    }
}

/// Never a part of it that looks like the whole.
pub async fn a_reader_of_a_deleted_object_gets_all_of_it_or_an_error(fresh: Fresh<dyn BlobStore>) {
    let shelf = Shelf::new(fresh);
    let bytes = content(9, 3_000_000);
    for number in 0..5 {
        shelf.put(&key(number), &bytes).await;
        let stream = shelf.store().get(&key(number), None).await;
        let mut stream = stream.expect("the store answers").expect("it is there");
        let mut got = Vec::new();
        // At once, and after some of it has come.
        for _ in 0..number {
            match stream.next().await {
                Some(piece) => got.extend_from_slice(&piece.expect("readable so far")),
                None => break,
            }
        }
        shelf.delete(&key(number)).await;
        if let Ok(rest) = read(stream).await {
            got.extend_from_slice(&rest);
            assert!(got == bytes, "{} of {} bytes", got.len(), bytes.len());
        }
        assert!(!shelf.is_there(&key(number)).await);
    }
}

/// A dropped reader holds nothing up.
pub async fn a_reader_may_stop_early(fresh: Fresh<dyn BlobStore>) {
    let shelf = Shelf::new(fresh);
    let bytes = content(10, 2_000_000);
    shelf.put(&key(1), &bytes).await;
    for _ in 0..60 {
        let stream = shelf.store().get(&key(1), None).await;
        let mut stream = stream.expect("the store answers").expect("it is there");
        let first = stream.next().await.expect("not empty").expect("readable");
        assert!(bytes.starts_with(&first));
    }
    assert!(shelf.get(&key(1), None).await == Some(bytes));
    shelf.delete(&key(1)).await;
}

/// Page by page, with their sizes; nothing of another database, and nothing that is gone.
pub async fn a_list_has_one_database_s_objects_in_order(fresh: Fresh<dyn BlobStore>) {
    let shelf = Shelf::new(fresh);
    let (ours, others) = ("abcd", ["abc", "abcd0", "abce", "bcd"]);
    assert_eq!(shelf.list(ours, 2).await, []);
    let random = |seed| content(seed, 16).try_into().expect("sixteen bytes");
    let mut keys: Vec<ObjectKey> = (0..23)
        .map(|seed| ObjectKey::new(ours, random(seed)))
        .collect();
    // Two whose names are long alike.
    keys.push(ObjectKey::new(ours, [0x7f; 16]));
    keys.push(ObjectKey::parse(&format!("{}0", keys[23])).expect("a key"));
    for (size, key) in keys.iter().enumerate() {
        shelf.put(key, &content(11, size)).await;
    }
    for other in others {
        for byte in [0, 0x7f, 0xff] {
            shelf
                .put(&ObjectKey::new(other, [byte; 16]), b"other")
                .await;
        }
    }
    for gone in keys.drain(..3) {
        shelf.delete(&gone).await;
    }
    let mut wanted: Vec<(ObjectKey, u64)> = keys.into_iter().zip(3..).collect();
    wanted.sort();
    for limit in [1, 2, 5, wanted.len(), 1_000] {
        let listed = shelf.list(ours, limit).await;
        let listed: Vec<_> = listed.into_iter().map(|it| (it.key, it.size)).collect();
        assert_eq!(listed, wanted, "pages of {limit}");
    }
    // After one that is not there, too.
    let after = ObjectKey::new(ours, [0x7f; 16]);
    shelf.delete(&after).await;
    let rest = shelf.store().list(ours, Some(&after), 1_000).await;
    let rest: Vec<_> = rest.expect("the store answers");
    let behind = wanted.iter().filter(|(key, _)| *key > after);
    assert!(rest.iter().map(|it| &it.key).eq(behind.map(|(key, _)| key)));
    assert_eq!(shelf.list("abc", 1_000).await.len(), 3);
    assert_eq!(shelf.list("ab", 1_000).await, []);
}

/// So that what is young can be told from what was left behind.
pub async fn a_list_tells_when_an_object_was_put(fresh: Fresh<dyn BlobStore>) {
    let shelf = &Shelf::new(fresh);
    let first = ObjectKey::new("abcd", [0; 16]);
    shelf.put(&first, b"first").await;
    let times = || async {
        let listed = shelf.list("abcd", 10).await;
        listed
            .into_iter()
            .map(|it| it.modified_at)
            .collect::<Vec<_>>()
    };
    let before = times().await;
    let now = SystemClock.now();
    let off = now.since(before[0]).max(before[0].since(now));
    assert!(off.as_secs() < 3_600, "it is a time of today: {off:?} off");
    // A store may tell no more than the second.
    let second = ObjectKey::new("abcd", [1; 16]);
    eventually("a later object has a later time", || async {
        shelf.delete(&second).await;
        shelf.put(&second, b"second").await;
        let times = times().await;
        assert_eq!(times[0], before[0], "it was not written again");
        (times[1] > times[0]).then_some(())
    })
    .await;
}
