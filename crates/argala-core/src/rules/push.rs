//! Taking records (protocol, route 10).

use std::collections::{HashMap, HashSet};

use argala_wire::{
    RecordId, StorageKey,
    devices::{Device, DeviceRef},
    limits::{Quotas, Signatures},
    records::{PushReason, PushRecord, PushRequest, PushResponse, PushResult},
    signing,
};
use ed25519_dalek::{Signature, VerifyingKey};

use super::active;
use crate::{
    Rejection,
    ports::store::{Graph, Push, PushOutcome, PushedRecord, SignatureVerdict},
};

/// Holds what the body alone tells: not too many records, no id twice, no empty ciphertext but a
/// tombstone's.
///
/// # Errors
/// [`Rejection::InvalidRequest`] with the path of what is at fault.
pub fn check(request: &PushRequest, quotas: &Quotas) -> Result<(), Rejection> {
    if request.records.len() as u64 > quotas.max_records_per_push {
        return Err(Rejection::invalid(
            "records",
            "there are more than maxRecordsPerPush",
        ));
    }
    let mut ids = HashSet::with_capacity(request.records.len());
    for (at, record) in request.records.iter().enumerate() {
        if !ids.insert(&record.id) {
            let detail = "an earlier record has the same id";
            return Err(Rejection::invalid(format!("records[{at}].id"), detail));
        }
        if record.ciphertext.is_empty() && !record.deleted {
            let detail = "only a tombstone's ciphertext may be empty";
            return Err(Rejection::invalid(
                format!("records[{at}].ciphertext"),
                detail,
            ));
        }
    }
    Ok(())
}

/// A device's public signing key, read once for all that it has signed: reading it costs a tenth
/// of a verification.
#[derive(Debug, Clone)]
pub struct Verifier(Option<VerifyingKey>);

impl Verifier {
    /// The verifier of `signing_key`; of bytes that are no key, one that finds no signature good.
    #[must_use]
    pub fn new(signing_key: &[u8]) -> Self {
        let key = VerifyingKey::try_from(signing_key);
        Self(key.ok())
    }

    /// Whether `signature` is the key's over `message`, verified strictly: no small-order keys, no
    /// malleable signatures.
    #[must_use]
    pub fn is_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let (Some(key), Ok(signature)) = (&self.0, Signature::from_slice(signature)) else {
            return false;
        };
        key.verify_strict(message, &signature).is_ok()
    }

    /// What comes of the signature of `record`, pushed to `graph` by the key's device.
    #[must_use]
    pub fn verify(
        &self,
        graph: &StorageKey,
        record: &PushRecord,
        policy: Signatures,
    ) -> SignatureVerdict {
        let Some(sig) = &record.sig else {
            return match policy {
                Signatures::Required => SignatureVerdict::Missing,
                Signatures::Optional => SignatureVerdict::Good,
            };
        };
        let message = signing::record(
            graph,
            record.epoch,
            &record.id,
            record.deleted,
            &record.ciphertext.0,
        );
        if self.is_signed(&message, &sig.0) {
            SignatureVerdict::Good
        } else {
            SignatureVerdict::Invalid
        }
    }
}

/// Whether `signature` is the key's over `message`, verified strictly.
#[must_use]
pub fn is_signed(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    Verifier::new(key).is_signed(message, signature)
}

/// What there is under a record's id already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Existing {
    /// Its seq.
    pub seq: u64,
    /// The epoch that sealed it.
    pub epoch: u64,
    /// Who pushed it.
    pub by: DeviceRef,
    /// Whether it is a tombstone.
    pub deleted: bool,
    /// Bytes of its ciphertext.
    pub bytes: u64,
    /// Whether its ciphertext is the one that is being pushed.
    pub same_ciphertext: bool,
}

/// What a push is decided on, read under the graph's lock.
#[derive(Debug, Clone, Copy)]
pub struct PushView<'a> {
    /// The calling device.
    pub caller: Option<&'a Device>,
    /// The graph.
    pub graph: Option<&'a Graph>,
    /// Whether the calling device has a wrap, not blanked, of the current epoch.
    pub holds_current: bool,
    /// What there is under the pushed ids. Need not be read where `replay` is there.
    pub existing: &'a HashMap<RecordId, Existing>,
    /// What is stored under the request's idempotency key: the hash of the first body, and its
    /// answer.
    pub replay: Option<(&'a [u8; 32], &'a PushResponse)>,
}

/// One record to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// Its place in the request.
    pub at: usize,
    /// The seq that it is given.
    pub seq: u64,
    /// Whether it replaces what is there.
    pub replaces: bool,
}

/// What a push writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushDecision {
    /// Nothing: this was answered before.
    Replay(PushOutcome),
    /// These records, this graph row where there are any, and the answer under the request's
    /// idempotency key where it has one.
    Write {
        /// Records, seqs ascending.
        writes: Vec<Write>,
        /// The graph with its new head and counters.
        graph: Graph,
        /// What came of it.
        outcome: PushOutcome,
    },
}

/// Decides a push.
///
/// # Errors
/// Those of [`active`]; [`Rejection::GraphUnkeyed`]; [`Rejection::IdempotencyConflict`];
/// [`Rejection::HeadMoved`], unless every record is the same content; for an atomic push,
/// [`Rejection::PushRejected`].
pub fn push(request: &Push, view: PushView<'_>) -> Result<PushDecision, Rejection> {
    active(view.caller)?;
    let graph = view
        .graph
        .filter(|graph| graph.epoch > 0)
        .ok_or(Rejection::GraphUnkeyed)?;
    if let (Some(idempotency), Some((body, answer))) = (&request.idempotency, view.replay) {
        return if idempotency.body == *body {
            Ok(PushDecision::Replay(PushOutcome {
                answer: answer.clone(),
                changed: false,
            }))
        } else {
            Err(Rejection::IdempotencyConflict)
        };
    }
    let existing = |record: &PushRecord| view.existing.get(&record.id);
    let same = |record: &PushRecord| {
        existing(record).filter(|there| is_same_content(record, there, &request.by))
    };
    if let Some(if_head) = request.if_head
        && if_head != graph.head
        && !request
            .records
            .iter()
            .all(|pushed| same(&pushed.record).is_some())
    {
        return Err(Rejection::HeadMoved { head: graph.head });
    }

    let mut after = graph.clone();
    let mut writes = Vec::with_capacity(request.records.len());
    let mut results = Vec::with_capacity(request.records.len());
    let mut rejected = 0;
    for (at, pushed) in request.records.iter().enumerate() {
        let record = &pushed.record;
        let id = record.id.clone();
        let there = existing(record);
        if let Some(there) = same(record) {
            results.push(PushResult::Accepted { id, seq: there.seq });
            continue;
        }
        let verdict = check_record(pushed, &after, there, view.holds_current, &request.quotas)
            .and_then(|()| charge(&mut after, record, there, &request.quotas));
        match verdict {
            Ok(()) => {
                after.head += 1;
                writes.push(Write {
                    at,
                    seq: after.head,
                    replaces: there.is_some(),
                });
                results.push(PushResult::Accepted {
                    id,
                    seq: after.head,
                });
            }
            Err(reason) => {
                rejected += 1;
                results.push(PushResult::Rejected { id, reason });
            }
        }
    }
    if request.atomic && rejected > 0 {
        let results = results.into_iter().map(as_acceptable).collect();
        return Err(Rejection::PushRejected { results });
    }
    let accepted = results.len() as u64 - rejected;
    let answer = PushResponse {
        head: after.head,
        accepted,
        rejected,
        results,
    };
    let outcome = PushOutcome {
        answer,
        changed: !writes.is_empty(),
    };
    Ok(PushDecision::Write {
        writes,
        graph: after,
        outcome,
    })
}

fn is_same_content(record: &PushRecord, there: &Existing, by: &DeviceRef) -> bool {
    there.same_ciphertext
        && there.epoch == record.epoch
        && there.deleted == record.deleted
        && there.by == *by
}

/// The faults of one record, in the order in which they are told; quotas come after.
fn check_record(
    pushed: &PushedRecord,
    graph: &Graph,
    there: Option<&Existing>,
    holds_current: bool,
    quotas: &Quotas,
) -> Result<(), PushReason> {
    let record = &pushed.record;
    if record.ciphertext.len() as u64 > quotas.max_record_bytes {
        return Err(PushReason::RecordTooLarge {
            limit: quotas.max_record_bytes,
        });
    }
    if record.epoch < graph.epoch {
        return Err(PushReason::StaleEpoch { epoch: graph.epoch });
    }
    if record.epoch > graph.epoch {
        return Err(PushReason::UnknownEpoch { epoch: graph.epoch });
    }
    if !holds_current {
        return Err(PushReason::NotHolder);
    }
    match pushed.signature {
        SignatureVerdict::Good => {}
        SignatureVerdict::Missing => return Err(PushReason::SignatureMissing),
        SignatureVerdict::Invalid => return Err(PushReason::SignatureInvalid),
    }
    let seq = there.map_or(0, |there| there.seq);
    match record.expect {
        Some(expect) if expect != seq => Err(PushReason::Conflict { seq }),
        _ => Ok(()),
    }
}

/// Charges one record to the graph's counters, or says which quota refuses it. What does not grow
/// a counter is never refused by its quota, so that a full graph can be tidied.
fn charge(
    graph: &mut Graph,
    record: &PushRecord,
    there: Option<&Existing>,
    quotas: &Quotas,
) -> Result<(), PushReason> {
    let now = &graph.counters;
    let was_live = there.is_some_and(|there| !there.deleted);
    let was_tombstone = there.is_some_and(|there| there.deleted);
    let records = now.records - u64::from(was_live) + u64::from(!record.deleted);
    let tombstones = now.tombstones - u64::from(was_tombstone) + u64::from(record.deleted);
    let was = there.map_or(0, |there| there.bytes);
    let bytes = now.ciphertext_bytes - was + record.ciphertext.len() as u64;

    let limit = quotas.max_records_per_graph;
    let too_many = records > now.records && records > limit;
    let too_many_with_tombstones =
        there.is_none() && records.saturating_add(tombstones) > limit.saturating_mul(2);
    if too_many || too_many_with_tombstones {
        return Err(PushReason::QuotaRecords { limit });
    }
    let limit = quotas.max_ciphertext_bytes_per_graph;
    if bytes > now.ciphertext_bytes && bytes > limit {
        return Err(PushReason::QuotaBytes { limit });
    }
    graph.counters.records = records;
    graph.counters.tombstones = tombstones;
    graph.counters.ciphertext_bytes = bytes;
    Ok(())
}

fn as_acceptable(result: PushResult) -> PushResult {
    match result {
        PushResult::Accepted { id, .. } => PushResult::Acceptable { id },
        other => other,
    }
}
