//! The port: each of the operator's operations.

use argala_core::{
    StoreResult,
    ports::{
        ForgetReason, ObjectKey,
        store::{Erased, Erasure, Recount, UpkeepStore},
    },
};
use argala_wire::{MemberId, StorageKey, Timestamp};
use async_trait::async_trait;

use super::{
    BEGIN, ERASURES, From, HOLD_KEYS, KEYS, PUT_OFF, RENEW, WITH_MEMBER, erase, erase_from,
    erase_member, mend, reason,
};
use crate::{
    Postgres,
    columns::{all, int, limit, number, text},
};

#[async_trait]
impl UpkeepStore for Postgres {
    async fn graph_keys(
        &self,
        after: Option<&StorageKey>,
        at_most: usize,
    ) -> StoreResult<Vec<StorageKey>> {
        // No key is empty, so all come after that.
        let after = after.map_or("", StorageKey::as_str);
        self.database
            .find("list graphs", &KEYS, &[&after, &limit(at_most)], |rows| {
                all(rows, |row| text(row, 0))
            })
            .await
    }

    async fn mend(&self, key: &StorageKey) -> StoreResult<Option<Recount>> {
        self.database
            .update("mend a graph's counters", key, |tx, key| {
                Box::pin(mend(tx, key))
            })
            .await
    }

    async fn renew(&self, renewed: &[(StorageKey, u64)], epochs: u64) -> StoreResult<u64> {
        let keys: Vec<_> = renewed.iter().map(|(key, _)| key.as_str()).collect();
        let incarnations: Vec<_> = renewed.iter().map(|(_, number)| int(*number)).collect();
        self.database
            .update(
                "renew graphs",
                &(keys, incarnations, int(epochs)),
                |tx, (keys, incarnations, epochs)| {
                    Box::pin(async move {
                        let rows = tx
                            .send_and_commit(&[
                                (&HOLD_KEYS, &[keys]),
                                (&RENEW, &[keys, incarnations, epochs]),
                            ])
                            .await?;
                        Ok(rows[1].len() as u64)
                    })
                },
            )
            .await
    }

    async fn begin_erasure(
        &self,
        key: &StorageKey,
        reason: ForgetReason,
        now: Timestamp,
    ) -> StoreResult<bool> {
        self.database
            .change(
                "begin to erase a graph",
                &BEGIN,
                &[&key.as_str(), &reason.as_str(), &now.as_millis()],
                |rows| Ok(!rows.is_empty()),
            )
            .await
    }

    async fn erasures(&self, at_most: usize) -> StoreResult<Vec<Erasure>> {
        self.database
            .find("list erasures", &ERASURES, &[&limit(at_most)], |rows| {
                all(rows, |row| {
                    Ok(Erasure {
                        id: number(row, 0)?,
                        graph: text(row, 1)?,
                        reason: reason(row, 2)?,
                    })
                })
            })
            .await
    }

    async fn erase_some(
        &self,
        erasure: &Erasure,
        now: Timestamp,
        at_most: usize,
    ) -> StoreResult<Erased> {
        self.database
            .update(
                "erase a graph",
                &(erasure, now, at_most),
                |tx, (erasure, now, at_most)| Box::pin(erase(tx, erasure, *now, *at_most)),
            )
            .await
    }

    async fn graphs_with(
        &self,
        member: &MemberId,
        after: Option<&StorageKey>,
        at_most: usize,
    ) -> StoreResult<Vec<StorageKey>> {
        let after = after.map_or("", StorageKey::as_str);
        self.database
            .find(
                "list graphs with a member",
                &WITH_MEMBER,
                &[&member.as_str(), &after, &limit(at_most)],
                |rows| all(rows, |row| text(row, 0)),
            )
            .await
    }

    async fn erase_from(
        &self,
        key: &StorageKey,
        member: &MemberId,
        incarnation: u64,
        now: Timestamp,
        at_most: usize,
    ) -> StoreResult<Erased> {
        let request = From {
            key,
            member,
            incarnation,
            now,
            at_most,
        };
        self.database
            .update("erase a member from a graph", &request, |tx, request| {
                Box::pin(erase_from(tx, request))
            })
            .await
    }

    async fn put_off(
        &self,
        key: &StorageKey,
        object: &ObjectKey,
        now: Timestamp,
    ) -> StoreResult<()> {
        self.database
            .change(
                "put a removal off",
                &PUT_OFF,
                &[&key.as_str(), &object.as_str(), &now.as_millis()],
                |_| Ok(()),
            )
            .await
    }

    async fn erase_member(&self, member: &MemberId) -> StoreResult<(u64, Vec<StorageKey>)> {
        self.database
            .update("erase a member", member, |tx, member| {
                Box::pin(erase_member(tx, member))
            })
            .await
    }
}
