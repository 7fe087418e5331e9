//! Removing what is to be forgotten: objects, then their rows; graphs, stage by stage.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use argala_wire::Timestamp;
use futures_util::future::join_all;

use crate::{
    StoreError, StoreResult,
    ports::{
        BlobStore, Event, EventSink, ForgetReason,
        store::{Doomed, Erased, Erasure, UpkeepStore},
    },
};

/// Objects that are removed at a time: a store far away answers each after a while.
const AT_ONCE: usize = 8;

/// What came of removing objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    /// Why the blobs were forgotten whose rows were removed here.
    pub forgotten: Vec<ForgetReason>,
    /// Objects that could not be removed. Their rows stay for a later pass.
    pub failed: u64,
}

/// Removes blobs' objects and rows, and graphs that are being erased, over the ports.
pub struct Eraser {
    store: Arc<dyn UpkeepStore>,
    blobs: Arc<dyn BlobStore>,
    events: Arc<dyn EventSink>,
    patience: Duration,
}

impl Eraser {
    /// `patience` is how long removing one object may take.
    #[must_use]
    pub fn new(
        store: Arc<dyn UpkeepStore>,
        blobs: Arc<dyn BlobStore>,
        events: Arc<dyn EventSink>,
        patience: Duration,
    ) -> Self {
        Self {
            store,
            blobs,
            events,
            patience,
        }
    }

    /// Removes each object, then its row. Whoever removes the row tells the event, so that it is
    /// told once; an object may be removed as often as one likes.
    ///
    /// # Errors
    /// Where the store of rows fails.
    pub async fn remove(&self, doomed: &[Doomed], now: Timestamp) -> StoreResult<Removed> {
        let mut removed = Removed::default();
        for some in doomed.chunks(AT_ONCE) {
            let ended = join_all(some.iter().map(|blob| self.remove_one(blob))).await;
            for (blob, told) in some.iter().zip(ended) {
                match told {
                    Ok(true) => removed.forgotten.push(blob.reason),
                    Ok(false) => {}
                    Err(Unremoved::Row(error)) => return Err(error),
                    Err(Unremoved::Object(error)) => {
                        removed.failed += 1;
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "a blob's object could not be removed; a later pass tries again"
                        );
                        self.store.put_off(&blob.graph, &blob.object, now).await?;
                    }
                }
            }
        }
        Ok(removed)
    }

    async fn remove_one(&self, blob: &Doomed) -> Result<bool, Unremoved> {
        let deleting = self.blobs.delete(&blob.object);
        tokio::time::timeout(self.patience, deleting)
            .await
            .unwrap_or_else(|_| Err(slow("remove an object")))
            .map_err(Unremoved::Object)?;
        let dropping = self.store.drop_blob(&blob.graph, &blob.object);
        let dropped = dropping.await.map_err(Unremoved::Row)?;
        if dropped {
            // Here and now: whatever becomes of the others, this one is told of.
            self.emit(&Event::BlobForget {
                storage_key: blob.graph.clone(),
                reason: blob.reason,
            });
        }
        Ok(dropped)
    }

    /// Goes on with an erasure by one step of at most `limit` rows, and removes the objects of the
    /// blobs that it marked. What was done, and how many objects could not be removed.
    ///
    /// # Errors
    /// Where the store of rows fails.
    pub async fn step(
        &self,
        erasure: &Erasure,
        now: Timestamp,
        limit: usize,
    ) -> StoreResult<(Erased, Removed)> {
        let erased = self.store.erase_some(erasure, now, limit).await?;
        let removed = self.remove(&erased.doomed, now).await?;
        Ok((erased, removed))
    }

    fn emit(&self, event: &Event) {
        if catch_unwind(AssertUnwindSafe(|| self.events.emit(event))).is_err() {
            tracing::error!(event = event.name(), "the event sink panicked");
        }
    }
}

enum Unremoved {
    Object(StoreError),
    Row(StoreError),
}

/// What did not answer in time.
pub(crate) fn slow(doing: &'static str) -> StoreError {
    StoreError::unavailable(doing, "there was no answer in time")
}
