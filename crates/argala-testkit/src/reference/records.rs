//! Records, and the answers that are kept under idempotency keys.

use std::collections::{BTreeSet, HashMap};

use argala_core::{
    Rejection,
    ports::store::{Pull, Pulled, Push, PushOutcome},
    rules::{
        self, PushDecision, PushView,
        pull::{EpochSpan, Offer, Plan},
        push::Existing,
    },
};
use argala_wire::{
    RecordId, Timestamp,
    devices::DeviceRef,
    records::{PulledRecord, PushResponse},
};

use super::{State, graphs::Shelf};

/// What a push with an idempotency key was answered.
#[derive(Debug)]
pub(super) struct Kept {
    at: Timestamp,
    body: [u8; 32],
    answer: PushResponse,
}

fn existing(shelf: &Shelf, request: &Push) -> HashMap<RecordId, Existing> {
    let pushed = request.records.iter().map(|pushed| &pushed.record);
    let read = |record: &argala_wire::records::PushRecord| {
        let there = shelf.records.get(&record.id)?;
        let existing = Existing {
            seq: there.seq,
            epoch: there.epoch,
            by: there.by.clone(),
            deleted: there.deleted,
            bytes: there.ciphertext.len() as u64,
            same_ciphertext: there.ciphertext == record.ciphertext,
        };
        Some((record.id.clone(), existing))
    };
    pushed.filter_map(read).collect()
}

impl State {
    pub(super) fn push(&mut self, request: &Push) -> Result<PushOutcome, Rejection> {
        let shelf = self.graphs.get_mut(&request.key);
        let caller = self.devices.get(&request.by);
        let Some(shelf) = shelf else {
            let view = PushView {
                caller,
                graph: None,
                holds_current: false,
                existing: &HashMap::new(),
                replay: None,
            };
            let refusal = rules::push(request, view).map(|_| ());
            return Err(refusal.expect_err("a graph without a key takes nothing"));
        };
        let replay = request.idempotency.as_ref().and_then(|idempotency| {
            let kept = (request.by.clone(), idempotency.key.clone());
            let kept = shelf.kept.get(&kept)?;
            (kept.at >= idempotency.since).then_some((&kept.body, &kept.answer))
        });
        let view = PushView {
            caller,
            graph: Some(&shelf.graph),
            holds_current: shelf.held_by(&request.by).contains(&shelf.graph.epoch),
            existing: &existing(shelf, request),
            replay,
        };
        let (writes, graph, outcome) = match rules::push(request, view)? {
            PushDecision::Replay(outcome) => return Ok(outcome),
            PushDecision::Write {
                writes,
                graph,
                outcome,
            } => (writes, graph, outcome),
        };
        shelf.graph = graph;
        for write in writes {
            let record = request.records[write.at].record.clone();
            let stored = PulledRecord {
                id: record.id.clone(),
                seq: write.seq,
                epoch: record.epoch,
                by: request.by.clone(),
                at: request.now,
                ciphertext: record.ciphertext,
                sig: record.sig,
                deleted: record.deleted,
            };
            let replaced = shelf.records.insert(record.id, stored).is_some();
            assert_eq!(replaced, write.replaces, "the rule saw what is there");
        }
        if let Some(idempotency) = &request.idempotency {
            let kept = Kept {
                at: request.now,
                body: idempotency.body,
                answer: outcome.answer.clone(),
            };
            let key = (request.by.clone(), idempotency.key.clone());
            shelf.kept.insert(key, kept);
        }
        Ok(outcome)
    }

    pub(super) fn pull(&self, request: &Pull) -> Result<Pulled, Rejection> {
        let shelf = self.graphs.get(&request.key);
        let held = shelf.map_or_else(BTreeSet::new, |shelf| shelf.held_by(&request.device));
        let span = shelf.zip(request.epoch).and_then(|(shelf, epoch)| {
            let first = shelf.epochs.get(&epoch)?.first_seq;
            let mut later = shelf.epochs.range(epoch + 1..);
            let next = later.next().map(|(_, next)| next.first_seq);
            Some(EpochSpan { first, next })
        });
        let graph = shelf.map(|shelf| &shelf.graph);
        let mut page = match rules::pull::plan(request, graph, &held, span)? {
            Plan::Unchanged { tag } => return Ok(Pulled::Unchanged { tag }),
            Plan::Read(page) => page,
        };
        let (after, until) = (page.after(), page.until());
        let mut records: Vec<&PulledRecord> = shelf
            .iter()
            .flat_map(|shelf| shelf.records.values())
            .filter(|record| after < record.seq && record.seq <= until)
            .collect();
        records.sort_by_key(|record| record.seq);
        for record in records {
            match page.offer(record.seq, record.epoch, record.ciphertext.len() as u64) {
                Offer::Take => page.add(record.clone()),
                Offer::Pass => {}
                Offer::Full => break,
            }
        }
        Ok(Pulled::Page(page.finish()))
    }

    pub(super) fn peek_idempotency(&self, before: Timestamp, limit: usize) -> u64 {
        let kept = self.graphs.values().flat_map(|shelf| shelf.kept.values());
        kept.filter(|kept| kept.at < before).take(limit).count() as u64
    }

    pub(super) fn drop_idempotency(&mut self, before: Timestamp, limit: usize) -> u64 {
        let mut old: Vec<_> = self
            .graphs
            .iter()
            .flat_map(|(graph, shelf)| shelf.kept.iter().map(move |(key, kept)| (graph, key, kept)))
            .filter(|(_, _, kept)| kept.at < before)
            .map(|(graph, key, kept)| (kept.at, graph.clone(), key.clone()))
            .collect();
        old.sort_by_key(|(at, _, _): &(_, _, (DeviceRef, String))| *at);
        old.truncate(limit);
        for (_, graph, key) in &old {
            let shelf = self.graphs.get_mut(graph).expect("it was just there");
            shelf.kept.remove(key);
        }
        old.len() as u64
    }
}
