//! The port: each of the sweep's operations, handed to the writer or to a reader.

use argala_core::{
    StoreResult,
    ports::{
        ObjectKey,
        store::{Delivery, Doomed, GroupWatch, SweepStore},
    },
};
use argala_wire::{StorageKey, Timestamp};
use async_trait::async_trait;

use super::watch;
use crate::{Sqlite, failure::unrefused};

#[async_trait]
impl SweepStore for Sqlite {
    async fn doom_blobs(
        &self,
        now: Timestamp,
        pending_before: Timestamp,
        forgetting_before: Timestamp,
        limit: usize,
    ) -> StoreResult<Vec<Doomed>> {
        let doom = self.write("find blobs to forget", move |tx| {
            super::doom_blobs(tx, now, pending_before, forgetting_before, limit)
        });
        unrefused(doom.await)
    }

    async fn peek_blobs(
        &self,
        now: Timestamp,
        pending_before: Timestamp,
        forgetting_before: Timestamp,
        limit: usize,
    ) -> StoreResult<Vec<Doomed>> {
        let peek = self.read("look for blobs to forget", move |connection| {
            super::peek_blobs(connection, now, pending_before, forgetting_before, limit)
        });
        unrefused(peek.await)
    }

    async fn deliveries(
        &self,
        now: Timestamp,
        again: Option<Timestamp>,
        limit: usize,
    ) -> StoreResult<Vec<Delivery>> {
        const OPERATION: &str = "find delivered blobs";
        unrefused(match again {
            Some(again) => {
                self.write(OPERATION, move |tx| {
                    let turns = watch::turns(tx, now, limit)?;
                    watch::set_turns(tx, &turns, again)?;
                    watch::fetches(tx, &turns)
                })
                .await
            }
            None => {
                self.read(OPERATION, move |connection| {
                    watch::fetches(connection, &watch::turns(connection, now, limit)?)
                })
                .await
            }
        })
    }

    async fn doom_delivered(
        &self,
        delivered: &[(StorageKey, ObjectKey)],
        now: Timestamp,
    ) -> StoreResult<Vec<Doomed>> {
        if delivered.is_empty() {
            return Ok(Vec::new());
        }
        let delivered = delivered.to_vec();
        let doom = self.write("forget delivered blobs", move |tx| {
            watch::doom_delivered(tx, &delivered, now)
        });
        unrefused(doom.await)
    }

    async fn drop_tombstones(&self, before: Timestamp, limit: usize) -> StoreResult<u64> {
        let remove = self.write("remove old tombstones", move |tx| {
            watch::drop_tombstones(tx, before, limit)
        });
        unrefused(remove.await)
    }

    async fn peek_tombstones(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> StoreResult<Vec<(StorageKey, u64)>> {
        let count = self.read("count old tombstones", move |connection| {
            watch::peek_tombstones(connection, before, limit)
        });
        unrefused(count.await)
    }

    async fn drop_idempotency(&self, before: Timestamp, limit: usize) -> StoreResult<u64> {
        let remove = self.write("remove idempotency keys", move |tx| {
            super::drop_idempotency(tx, before, limit)
        });
        unrefused(remove.await)
    }

    async fn peek_idempotency(&self, before: Timestamp, limit: usize) -> StoreResult<u64> {
        let count = self.read("count old idempotency keys", move |connection| {
            watch::peek_idempotency(connection, before, limit)
        });
        unrefused(count.await)
    }

    async fn groups_to_ask(
        &self,
        now: Timestamp,
        again: Option<Timestamp>,
        limit: usize,
    ) -> StoreResult<Vec<GroupWatch>> {
        const OPERATION: &str = "find groups to ask about";
        unrefused(match again {
            Some(again) => {
                self.write(OPERATION, move |tx| {
                    let due = watch::groups(tx, now, limit)?;
                    watch::ask_again(tx, &due, again)?;
                    Ok(due)
                })
                .await
            }
            None => {
                self.read(OPERATION, move |connection| {
                    watch::groups(connection, now, limit)
                })
                .await
            }
        })
    }

    async fn note_groups(&self, noted: &[GroupWatch]) -> StoreResult<()> {
        if noted.is_empty() {
            return Ok(());
        }
        let noted = noted.to_vec();
        let note = self.write("note which groups are empty", move |tx| {
            watch::note_groups(tx, &noted)
        });
        unrefused(note.await)
    }

    async fn unknown_objects(&self, objects: &[ObjectKey]) -> StoreResult<Vec<ObjectKey>> {
        let objects = objects.to_vec();
        let find = self.read("find leaked objects", move |connection| {
            watch::unknown_objects(connection, &objects)
        });
        unrefused(find.await)
    }
}
