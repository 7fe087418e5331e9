//! What an operator does to whole graphs and members.

use std::collections::BTreeSet;

use argala_core::{
    StoreResult,
    ports::{
        ForgetReason, ObjectKey, UpkeepStore,
        store::{Doomed, Erased, Erasure, Recount},
    },
};
use argala_wire::{MemberId, Owners, StorageKey, Timestamp, devices::DeviceRef};
use async_trait::async_trait;

use super::{ReferenceStore, State};

impl State {
    /// Blobs of a graph that wait for their objects to be removed.
    fn waiting(&self, graph: &StorageKey, limit: usize) -> Vec<Doomed> {
        let of_graph = self
            .blobs
            .iter()
            .filter(|(_, row)| row.blob.graph == *graph);
        of_graph
            .filter_map(|(object, row)| {
                Some(Doomed {
                    graph: graph.clone(),
                    object: object.clone(),
                    reason: row.forgotten()?,
                })
            })
            .take(limit)
            .collect()
    }

    fn doom(&mut self, objects: &[ObjectKey], now: Timestamp, reason: ForgetReason) {
        for object in objects {
            if self.blobs[object].forgotten().is_none() {
                self.forget(object, now, reason);
            }
        }
    }
}

#[async_trait]
impl UpkeepStore for ReferenceStore {
    async fn graph_keys(
        &self,
        after: Option<&StorageKey>,
        limit: usize,
    ) -> StoreResult<Vec<StorageKey>> {
        let state = self.state();
        let keys = state.graphs.keys();
        let keys = keys.filter(|key| after.is_none_or(|after| *key > after));
        Ok(keys.take(limit).cloned().collect())
    }

    async fn mend(&self, key: &StorageKey) -> StoreResult<Option<Recount>> {
        let mut state = self.state();
        let recount = state.recount(key);
        if let (Some(recount), Some(shelf)) = (recount, state.graphs.get_mut(key)) {
            shelf.graph.counters = recount.counted;
        }
        Ok(recount)
    }

    async fn renew(&self, renewed: &[(StorageKey, u64)], epochs: u64) -> StoreResult<u64> {
        let mut state = self.state();
        let mut count = 0;
        for (key, incarnation) in renewed {
            if let Some(shelf) = state.graphs.get_mut(key) {
                count += 1;
                shelf.graph.incarnation = *incarnation;
                if shelf.graph.epoch > 0 {
                    shelf.graph.epoch += epochs;
                    shelf.graph.revocation_owed = true;
                }
            }
        }
        Ok(count)
    }

    async fn begin_erasure(
        &self,
        key: &StorageKey,
        reason: ForgetReason,
        now: Timestamp,
    ) -> StoreResult<bool> {
        let mut state = self.state();
        if !state.graphs.contains_key(key) {
            return Ok(false);
        }
        let of_graph = state.blobs.iter().filter(|(_, row)| row.blob.graph == *key);
        let objects: Vec<_> = of_graph.map(|(object, _)| object.clone()).collect();
        state.doom(&objects, now, reason);
        state.graphs.remove(key);
        state.groups.remove(key);
        state.erased += 1;
        let id = state.erased;
        state.erasures.push(Erasure {
            id,
            graph: key.clone(),
            reason,
        });
        Ok(true)
    }

    async fn erasures(&self, limit: usize) -> StoreResult<Vec<Erasure>> {
        let state = self.state();
        Ok(state.erasures.iter().take(limit).cloned().collect())
    }

    async fn erase_some(
        &self,
        erasure: &Erasure,
        _now: Timestamp,
        limit: usize,
    ) -> StoreResult<Erased> {
        let mut state = self.state();
        let doomed = state.waiting(&erasure.graph, limit);
        let more = !doomed.is_empty();
        if !more {
            state.erasures.retain(|it| it.id != erasure.id);
        }
        Ok(Erased {
            doomed,
            more,
            ..Erased::default()
        })
    }

    async fn graphs_with(
        &self,
        member: &MemberId,
        after: Option<&StorageKey>,
        limit: usize,
    ) -> StoreResult<Vec<StorageKey>> {
        let state = self.state();
        let with = state.graphs.iter().filter(|(key, shelf)| {
            let is_owner = match key.owners() {
                Owners::Pair(low, high) => low == *member || high == *member,
                Owners::Group(_) => false,
            };
            let mut holders = shelf.wraps.keys();
            let mut blobs = state.blobs.values();
            let is_theirs = |device: &DeviceRef| device.member_id == *member;
            is_owner
                || holders.any(|(_, device)| is_theirs(device))
                || blobs.any(|row| {
                    let has_fetched = row.fetched.iter().any(is_theirs);
                    row.blob.graph == **key && (is_theirs(&row.blob.by) || has_fetched)
                })
        });
        let with = with.filter(|(key, _)| after.is_none_or(|after| *key > after));
        Ok(with.take(limit).map(|(key, _)| key.clone()).collect())
    }

    async fn erase_from(
        &self,
        key: &StorageKey,
        member: &MemberId,
        incarnation: u64,
        now: Timestamp,
        limit: usize,
    ) -> StoreResult<Erased> {
        let mut state = self.state();
        let why = ForgetReason::Requested;
        let theirs = state
            .blobs
            .iter()
            .filter(|(_, row)| row.counts_for(key) && row.blob.by.member_id == *member);
        let objects: Vec<_> = theirs
            .map(|(object, _)| object.clone())
            .take(limit)
            .collect();
        state.doom(&objects, now, why);
        let mut doomed: Vec<_> = objects.into_iter().map(|object| (object, why)).collect();
        let marked = state.blobs.iter().filter_map(|(object, row)| {
            let is_theirs = row.blob.graph == *key && row.blob.by.member_id == *member;
            let reason = row.forgotten_before(now).filter(|_| is_theirs)?;
            Some((object.clone(), reason))
        });
        let rest = limit - doomed.len();
        doomed.extend(marked.take(rest).collect::<Vec<_>>());
        for row in state.blobs.values_mut() {
            if row.blob.graph == *key {
                row.fetched.retain(|device| device.member_id != *member);
            }
        }
        let Some(shelf) = state.graphs.get_mut(key) else {
            return Ok(Erased::default());
        };
        let records = shelf
            .records
            .values()
            .filter(|it| it.by.member_id == *member);
        let records: Vec<_> = records.map(|it| it.id.clone()).take(limit).collect();
        for id in &records {
            let record = shelf.records.remove(id).expect("it was just there");
            let counters = &mut shelf.graph.counters;
            if record.deleted {
                counters.tombstones -= 1;
            } else {
                counters.records -= 1;
            }
            counters.ciphertext_bytes -= record.ciphertext.len() as u64;
        }
        if !records.is_empty() {
            shelf.graph.incarnation = incarnation;
        }
        let kept = shelf
            .kept
            .keys()
            .filter(|(device, _)| device.member_id == *member);
        let kept: Vec<_> = kept.take(limit).cloned().collect();
        for key in &kept {
            shelf.kept.remove(key);
        }
        let full = |count: usize| count >= limit && limit > 0;
        let more = full(doomed.len()) || full(records.len()) || full(kept.len());
        let before = shelf.wraps.len();
        let epoch = shelf.graph.epoch;
        if !more {
            shelf
                .wraps
                .retain(|(of, device), _| *of == epoch || device.member_id != *member);
        }
        let wraps = before - shelf.wraps.len();
        for ((_, device), row) in &mut shelf.wraps {
            if device.member_id == *member {
                row.wrap = None;
            }
        }
        Ok(Erased {
            more,
            records: records.len() as u64,
            wraps: wraps as u64,
            idempotency_keys: kept.len() as u64,
            doomed: doomed
                .into_iter()
                .map(|(object, reason)| Doomed {
                    graph: key.clone(),
                    object,
                    reason,
                })
                .collect(),
        })
    }

    async fn put_off(
        &self,
        key: &StorageKey,
        object: &ObjectKey,
        now: Timestamp,
    ) -> StoreResult<()> {
        let mut state = self.state();
        if let Some(row) = state.blobs.get_mut(object)
            && row.blob.graph == *key
        {
            row.put_off(now);
        }
        Ok(())
    }

    async fn erase_member(&self, member: &MemberId) -> StoreResult<(u64, Vec<StorageKey>)> {
        let mut state = self.state();
        let mut named = BTreeSet::new();
        let mut held = BTreeSet::new();
        for (key, shelf) in &state.graphs {
            for (_, device) in shelf.wraps.keys() {
                if device.member_id == *member {
                    named.insert(key.clone());
                    held.insert(device.clone());
                }
            }
        }
        let before = state.devices.len();
        state
            .devices
            .retain(|device, _| device.member_id != *member || held.contains(device));
        state.seen.retain(|device, _| device.member_id != *member);
        let gone = before - state.devices.len();
        Ok((gone as u64, named.into_iter().collect()))
    }
}
