//! The port: each of the sweep's operations.

use argala_core::{
    StoreResult,
    ports::{
        ObjectKey,
        store::{Delivery, Doomed, GroupWatch, SweepStore},
    },
};
use argala_wire::{StorageKey, Timestamp};
use async_trait::async_trait;

use super::{Sweep, watch};
use crate::Postgres;

#[async_trait]
impl SweepStore for Postgres {
    async fn doom_blobs(
        &self,
        now: Timestamp,
        pending_before: Timestamp,
        forgetting_before: Timestamp,
        limit: usize,
    ) -> StoreResult<Vec<Doomed>> {
        let sweep = Sweep {
            now,
            pending_before,
            forgetting_before,
            at_most: limit,
        };
        super::doom_blobs(&self.database, &sweep).await
    }

    async fn peek_blobs(
        &self,
        now: Timestamp,
        pending_before: Timestamp,
        forgetting_before: Timestamp,
        limit: usize,
    ) -> StoreResult<Vec<Doomed>> {
        let sweep = Sweep {
            now,
            pending_before,
            forgetting_before,
            at_most: limit,
        };
        super::peek_blobs(&self.database, &sweep).await
    }

    async fn deliveries(
        &self,
        now: Timestamp,
        again: Option<Timestamp>,
        limit: usize,
    ) -> StoreResult<Vec<Delivery>> {
        watch::deliveries(&self.database, now, again, limit).await
    }

    async fn doom_delivered(
        &self,
        delivered: &[(StorageKey, ObjectKey)],
        now: Timestamp,
    ) -> StoreResult<Vec<Doomed>> {
        watch::doom_delivered(&self.database, delivered, now).await
    }

    async fn drop_tombstones(&self, before: Timestamp, limit: usize) -> StoreResult<u64> {
        watch::drop_tombstones(&self.database, before, limit).await
    }

    async fn peek_tombstones(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> StoreResult<Vec<(StorageKey, u64)>> {
        watch::peek_tombstones(&self.database, before, limit).await
    }

    async fn drop_idempotency(&self, before: Timestamp, limit: usize) -> StoreResult<u64> {
        super::drop_idempotency(&self.database, before, limit).await
    }

    async fn peek_idempotency(&self, before: Timestamp, limit: usize) -> StoreResult<u64> {
        watch::peek_idempotency(&self.database, before, limit).await
    }

    async fn groups_to_ask(
        &self,
        now: Timestamp,
        again: Option<Timestamp>,
        limit: usize,
    ) -> StoreResult<Vec<GroupWatch>> {
        watch::groups_to_ask(&self.database, now, again, limit).await
    }

    async fn note_groups(&self, noted: &[GroupWatch]) -> StoreResult<()> {
        watch::note_groups(&self.database, noted).await
    }

    async fn unknown_objects(&self, objects: &[ObjectKey]) -> StoreResult<Vec<ObjectKey>> {
        watch::unknown_objects(&self.database, objects).await
    }
}
