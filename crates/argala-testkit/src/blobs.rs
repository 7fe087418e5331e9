//! A blob store in memory.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use argala_core::{
    StoreError, StoreResult,
    ports::{BlobStore, ByteStream, Clock, ListedObject, ObjectKey, SystemClock},
};
use argala_wire::Timestamp;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};

/// Bytes that a reader gets at a time.
const PIECE: usize = 64 * 1024;

/// Objects in memory. Clones are the same store.
#[derive(Clone)]
pub struct MemoryBlobs {
    objects: Arc<Mutex<Objects>>,
    failing: Arc<AtomicBool>,
    clock: Arc<dyn Clock>,
}

/// Each with its bytes, and when they were put.
type Objects = BTreeMap<ObjectKey, (Bytes, Timestamp)>;

impl Default for MemoryBlobs {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryBlobs {
    /// A store with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// The same, where `clock` tells when an object is put.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self {
            objects: Arc::default(),
            failing: Arc::default(),
            clock,
        }
    }

    /// Whether every question from now on is answered with an error.
    pub fn set_failing(&self, failing: bool) {
        self.failing.store(failing, Ordering::SeqCst);
    }

    /// The names of the objects there are, sorted.
    #[must_use]
    pub fn objects(&self) -> Vec<ObjectKey> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self) -> StoreResult<MutexGuard<'_, Objects>> {
        if self.failing.load(Ordering::SeqCst) {
            return Err(StoreError::unavailable(
                "reaching the objects",
                "told to fail",
            ));
        }
        Ok(self.lock())
    }
}

#[async_trait]
impl BlobStore for MemoryBlobs {
    async fn put(&self, key: &ObjectKey, size: u64, mut body: ByteStream) -> StoreResult<()> {
        drop(self.ask()?);
        let size = usize::try_from(size)
            .map_err(|error| StoreError::internal("storing an object", error))?;
        let mut bytes = BytesMut::with_capacity(size.min(PIECE));
        while let Some(piece) = body.next().await {
            let piece =
                piece.map_err(|error| StoreError::unavailable("storing an object", error))?;
            bytes.extend_from_slice(&piece);
        }
        let put = (bytes.freeze(), self.clock.now());
        self.ask()?.insert(key.clone(), put);
        Ok(())
    }

    async fn get(
        &self,
        key: &ObjectKey,
        range: Option<Range<u64>>,
    ) -> StoreResult<Option<ByteStream>> {
        let Some((bytes, _)) = self.ask()?.get(key).cloned() else {
            return Ok(None);
        };
        let bytes = match range {
            None => bytes,
            Some(range) => {
                let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
                bytes.slice(place(range.start)..place(range.end))
            }
        };
        let pieces: Vec<_> = (0..bytes.len())
            .step_by(PIECE)
            .map(|at| Ok(bytes.slice(at..bytes.len().min(at + PIECE))))
            .collect();
        Ok(Some(Box::pin(stream::iter(pieces))))
    }

    async fn delete(&self, key: &ObjectKey) -> StoreResult<()> {
        self.ask()?.remove(key);
        Ok(())
    }
    async fn list(
        &self,
        instance: &str,
        after: Option<&ObjectKey>,
        limit: usize,
    ) -> StoreResult<Vec<ListedObject>> {
        let prefix = format!("{instance}/");
        Ok(self
            .ask()?
            .iter()
            .filter(|(key, _)| key.as_str().starts_with(&prefix) && Some(*key) > after)
            .take(limit)
            .map(|(key, (bytes, put))| ListedObject {
                key: key.clone(),
                size: bytes.len() as u64,
                modified_at: *put,
            })
            .collect())
    }
}
