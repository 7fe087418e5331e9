//! What a sweep asks for.

use argala_core::{
    StoreResult,
    ports::{
        ForgetReason, ObjectKey, SweepStore,
        store::{Delivery, Doomed, Emptiness, GroupWatch},
    },
};
use argala_wire::{Owners, StorageKey, Timestamp};
use async_trait::async_trait;

use super::ReferenceStore;

/// What is known of a group.
#[derive(Debug, Default)]
pub(super) struct Watch {
    ask_at: Option<Timestamp>,
    empty: Option<Emptiness>,
}

#[async_trait]
impl SweepStore for ReferenceStore {
    async fn doom_blobs(
        &self,
        now: Timestamp,
        pending_before: Timestamp,
        forgetting_before: Timestamp,
        limit: usize,
    ) -> StoreResult<Vec<Doomed>> {
        let mut state = self.state();
        Ok(state.doom_blobs(now, pending_before, forgetting_before, limit))
    }

    async fn peek_blobs(
        &self,
        now: Timestamp,
        pending_before: Timestamp,
        forgetting_before: Timestamp,
        limit: usize,
    ) -> StoreResult<Vec<Doomed>> {
        let state = self.state();
        Ok(state.peek_blobs(now, pending_before, forgetting_before, limit))
    }

    async fn deliveries(
        &self,
        now: Timestamp,
        again: Option<Timestamp>,
        limit: usize,
    ) -> StoreResult<Vec<Delivery>> {
        let mut state = self.state();
        let mut deliveries = Vec::new();
        for (object, row) in &mut state.blobs {
            let due = row.look_at.is_some_and(|at| at <= now);
            if !due || !row.is_live_somewhere() || deliveries.len() == limit {
                continue;
            }
            row.look_at = again.or(row.look_at);
            deliveries.push(Delivery {
                graph: row.blob.graph.clone(),
                object: object.clone(),
                by: row.blob.by.clone(),
                fetched: row.fetched.iter().cloned().collect(),
            });
        }
        deliveries
            .sort_by(|one, other| (&one.graph, &one.object).cmp(&(&other.graph, &other.object)));
        Ok(deliveries)
    }

    async fn doom_delivered(
        &self,
        delivered: &[(StorageKey, ObjectKey)],
        now: Timestamp,
    ) -> StoreResult<Vec<Doomed>> {
        let mut state = self.state();
        let reason = ForgetReason::Delivered;
        let mut doomed = Vec::new();
        for (graph, object) in delivered {
            let there = state.blobs.get(object).is_some_and(|row| {
                row.blob.graph == *graph
                    && row.is_live_somewhere()
                    && row.blob.policy == argala_wire::blobs::BlobPolicy::Deliver
            });
            if there {
                state.forget(object, now, reason);
                doomed.push(Doomed {
                    graph: graph.clone(),
                    object: object.clone(),
                    reason,
                });
            }
        }
        Ok(doomed)
    }

    async fn drop_tombstones(&self, before: Timestamp, limit: usize) -> StoreResult<u64> {
        let mut state = self.state();
        let mut old: Vec<_> = state
            .graphs
            .iter()
            .flat_map(|(graph, shelf)| shelf.records.values().map(move |it| (graph, it)))
            .filter(|(_, record)| record.deleted && record.at < before)
            .map(|(graph, record)| (record.at, graph.clone(), record.id.clone()))
            .collect();
        old.sort();
        old.truncate(limit);
        for (_, graph, id) in &old {
            let shelf = state.graphs.get_mut(graph).expect("it was just there");
            let record = shelf.records.remove(id).expect("it was just there");
            shelf.graph.counters.tombstones -= 1;
            shelf.graph.counters.ciphertext_bytes -= record.ciphertext.len() as u64;
            shelf.graph.floor = shelf.graph.floor.max(record.seq);
        }
        Ok(old.len() as u64)
    }

    async fn peek_tombstones(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> StoreResult<Vec<(StorageKey, u64)>> {
        let state = self.state();
        let mut left = limit;
        let mut counts = Vec::new();
        for (graph, shelf) in &state.graphs {
            let old = shelf.records.values();
            let old = old
                .filter(|it| it.deleted && it.at < before)
                .count()
                .min(left);
            left -= old;
            if old > 0 {
                counts.push((graph.clone(), old as u64));
            }
        }
        Ok(counts)
    }

    async fn drop_idempotency(&self, before: Timestamp, limit: usize) -> StoreResult<u64> {
        Ok(self.state().drop_idempotency(before, limit))
    }

    async fn peek_idempotency(&self, before: Timestamp, limit: usize) -> StoreResult<u64> {
        Ok(self.state().peek_idempotency(before, limit))
    }

    async fn groups_to_ask(
        &self,
        now: Timestamp,
        again: Option<Timestamp>,
        limit: usize,
    ) -> StoreResult<Vec<GroupWatch>> {
        let mut state = self.state();
        let keys: Vec<_> = state.graphs.keys().cloned().collect();
        let mut found = Vec::new();
        for graph in keys {
            let Owners::Group(group) = graph.owners() else {
                continue;
            };
            let watch = state.groups.entry(graph.clone()).or_default();
            if watch.ask_at.is_none_or(|at| at <= now) && found.len() < limit {
                watch.ask_at = again.or(watch.ask_at);
                found.push(GroupWatch {
                    graph,
                    group,
                    empty: watch.empty,
                });
            }
        }
        Ok(found)
    }

    async fn note_groups(&self, noted: &[GroupWatch]) -> StoreResult<()> {
        let mut state = self.state();
        for watch in noted {
            if let Some(known) = state.groups.get_mut(&watch.graph) {
                known.empty = watch.empty;
            }
        }
        Ok(())
    }

    async fn unknown_objects(&self, objects: &[ObjectKey]) -> StoreResult<Vec<ObjectKey>> {
        let state = self.state();
        let unknown = objects.iter().filter(|it| !state.blobs.contains_key(it));
        let mut unknown: Vec<_> = unknown.cloned().collect();
        unknown.sort();
        Ok(unknown)
    }
}
