//! Pushing: plaintext in, sealed, signed and numbered records out.

use argala_wire::{
    Code, GraphId, RecordId, Sealed, StorageKey,
    codec::Format,
    limits::Quotas,
    records::{PushReason, PushRecord, PushRequest, PushResponse, PushResult},
};

use super::Session;
use crate::{
    access::{Kind, Outcome, Write},
    crypto::{random, record},
    error::{Error, Refusal},
};

/// How a push is made.
#[derive(Debug, Clone, Copy, Default)]
pub struct PushOptions {
    /// The head that the graph must have now.
    pub if_head: Option<u64>,
    /// Whether all writes are to be taken, or none. They must fit one request then, as they must
    /// with `if_head`.
    pub atomic: bool,
}

/// A write as it is sealed, wherever it comes from.
pub(super) struct Draft<'a> {
    pub(super) id: &'a RecordId,
    pub(super) kind: &'a Kind,
    pub(super) body: &'a [u8],
    pub(super) deleted: bool,
    pub(super) expect: Option<u64>,
}

impl<'a> From<&'a Write> for Draft<'a> {
    fn from(write: &'a Write) -> Self {
        Self {
            id: &write.id,
            kind: &write.kind,
            body: &write.body,
            deleted: write.deleted,
            expect: write.expect,
        }
    }
}

impl Draft<'_> {
    /// The most bytes that the record takes up in a body, in either form: base64 and its braces,
    /// names and signature, and an id of which every byte might be escaped.
    fn encoded_len(&self) -> u64 {
        let sealed = sealed_len(self.kind, self.body.len());
        sealed.div_ceil(3) * 4 + 2 * self.id.as_str().len() as u64 + 300
    }
}

/// A request under an idempotency key of its own.
pub(super) struct SealedPush {
    pub(super) key: String,
    pub(super) format: Format,
    pub(super) body: Vec<u8>,
    pub(super) counter: u64,
    /// How many records it carries, and so how many verdicts there must be.
    pub(super) count: usize,
}

/// How many of the first `drafts` fit one request.
pub(super) fn fit<'a>(quotas: &Quotas, drafts: impl Iterator<Item = Draft<'a>>) -> usize {
    let (mut count, mut bytes) = (0, 100);
    for draft in drafts {
        bytes += draft.encoded_len();
        if count > 0 && (bytes > quotas.max_push_bytes || count >= quotas.max_records_per_push) {
            break;
        }
        count += 1;
    }
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Whether the relay would take a record of this size.
pub(super) fn too_large(quotas: &Quotas, kind: &Kind, body: usize) -> Option<Refusal> {
    let limit = quotas.max_record_bytes;
    (sealed_len(kind, body) > limit).then_some(Refusal::TooLarge { limit })
}

fn sealed_len(kind: &Kind, body: usize) -> u64 {
    (record::overhead(kind) + body) as u64
}

/// Whether a verdict says that the device's keys are not those of the moment.
pub(super) fn is_about_keys(reason: PushReason) -> bool {
    matches!(
        reason,
        PushReason::StaleEpoch { .. } | PushReason::UnknownEpoch { .. } | PushReason::NotHolder
    )
}

impl Session {
    /// Seals and signs one request's worth of records. Their counters are out of use, on disk,
    /// before this returns.
    pub(super) fn seal_push(
        &mut self,
        key: &StorageKey,
        epoch: u64,
        drafts: &[Draft<'_>],
        options: PushOptions,
    ) -> Result<SealedPush, Error> {
        let counter = self.file.contents_mut().take_counters(drafts.len() as u64);
        self.file.save()?;
        let contents = self.file.contents();
        let graph_key = contents.key(key, epoch).expect("the caller has looked");
        let cipher = record::RecordCipher::new(graph_key, key, epoch);
        let mut request = PushRequest {
            records: Vec::with_capacity(drafts.len()),
            if_head: options.if_head,
            atomic: options.atomic,
        };
        for (counter, draft) in (counter..).zip(drafts) {
            let ciphertext = cipher.seal(draft.id, draft.deleted, draft.kind, counter, draft.body);
            let keys = self.file.keys();
            request.records.push(PushRecord {
                id: draft.id.clone(),
                epoch,
                sig: Some(keys.sign_record(key, epoch, draft.id, draft.deleted, &ciphertext)),
                ciphertext: Sealed(ciphertext),
                deleted: draft.deleted,
                expect: draft.expect,
            });
        }
        let format = self.api.format();
        Ok(SealedPush {
            key: Sealed(random::<18>().to_vec()).to_base64url(),
            format,
            body: format.encode(&request),
            counter,
            count: drafts.len(),
        })
    }

    /// Sends a request. `None` where the graph has no key yet, which is a matter of keys.
    pub(super) async fn send_push(
        &mut self,
        graph: &GraphId,
        push: &SealedPush,
    ) -> Result<Option<PushResponse>, Error> {
        let body = push.body.clone().into();
        let sent = self
            .api
            .push_encoded(graph, push.format, body, Some(&push.key));
        match sent.await {
            // Guessing which verdict is missing could lose a write.
            Ok(answer) if answer.results.len() != push.count || has_none(&answer) => Err(
                Error::Answer("not every record was either taken or refused".to_owned()),
            ),
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.code() == Some(Code::GraphUnkeyed) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Remembers the versions that this device has written, so that a relay cannot replay them to
    /// it either.
    pub(super) fn note_own<'a>(
        &mut self,
        key: &StorageKey,
        written: impl IntoIterator<Item = (&'a RecordId, u64)>,
    ) -> Result<(), Error> {
        let me = self.file.device().clone();
        let seen = self.seen(key)?;
        for (id, counter) in written {
            seen.note(id, &me, counter);
        }
        seen.commit()
    }

    /// [`GraphAccess::push`](crate::GraphAccess::push), with a condition.
    ///
    /// # Errors
    /// As there; with options also [`Error::Relay`] with `head_moved` or `push_rejected`, whose
    /// verdicts are [`Error::push_results`], and [`Error::Usage`] where the writes do not fit one
    /// request.
    pub async fn push_with(
        &mut self,
        graph: &GraphId,
        writes: &[Write],
        options: PushOptions,
    ) -> Result<Vec<Outcome>, Error> {
        let key = self.storage_key(graph);
        let quotas = self.limits().await?.quotas;
        let mut outcomes = vec![Outcome::KeysBehind; writes.len()];
        let mut todo = Vec::with_capacity(writes.len());
        for (at, write) in writes.iter().enumerate() {
            match too_large(&quotas, &write.kind, write.body.len()) {
                Some(why) => outcomes[at] = Outcome::Refused(why),
                None => todo.push(at),
            }
        }
        let one = options.atomic || options.if_head.is_some();
        let drafts = todo.iter().map(|&at| Draft::from(&writes[at]));
        if one && (todo.len() < writes.len() || fit(&quotas, drafts) < todo.len()) {
            return Err(Error::Usage(
                "these writes do not fit one request, as their condition asks".to_owned(),
            ));
        }
        // Twice at the most: with the keys of the moment, and with newer ones.
        for round in 0..2 {
            if todo.is_empty() {
                break;
            }
            let Some(epoch) = self.writable_epoch(graph, round > 0).await? else {
                break;
            };
            let mut again = Vec::new();
            let mut rest = &todo[..];
            while !rest.is_empty() {
                let count = fit(&quotas, rest.iter().map(|&at| Draft::from(&writes[at])));
                let (batch, later) = rest.split_at(count);
                rest = later;
                let drafts: Vec<_> = batch.iter().map(|&at| Draft::from(&writes[at])).collect();
                let push = self.seal_push(&key, epoch, &drafts, options)?;
                match self.send_push(graph, &push).await {
                    Ok(Some(answer)) => {
                        let writes = batch.iter().zip(push.counter..);
                        let mut written = Vec::new();
                        for ((&at, counter), result) in writes.zip(answer.results) {
                            match result {
                                PushResult::Accepted { id, seq } => {
                                    outcomes[at] = Outcome::Accepted { seq };
                                    written.push((id, counter));
                                }
                                PushResult::Rejected { reason, .. } if is_about_keys(reason) => {
                                    again.push(at);
                                }
                                PushResult::Rejected { reason, .. } => {
                                    outcomes[at] = Outcome::Refused(Refusal::Relay(reason));
                                }
                                // Turned away by `send_push`.
                                PushResult::Acceptable { .. } => {}
                            }
                        }
                        let written = written.iter().map(|(id, counter)| (id, *counter));
                        self.note_own(&key, written)?;
                    }
                    Ok(None) => again.extend_from_slice(batch),
                    Err(error) if round == 0 && faults_are_about_keys(&error) => {
                        again.extend_from_slice(batch);
                    }
                    Err(error) => return Err(error),
                }
            }
            todo = again;
        }
        if !todo.is_empty() {
            // Told of once per session; `writable_epoch` has where it found nothing to seal under.
            self.tell_behind(graph, &key);
        }
        for outcome in &outcomes {
            if let Outcome::Refused(why) = outcome {
                self.tell_rejected(graph, *why);
            }
        }
        Ok(outcomes)
    }
}

fn has_none(answer: &PushResponse) -> bool {
    let none = |result: &PushResult| matches!(result, PushResult::Acceptable { .. });
    answer.results.iter().any(none)
}

/// Whether an atomic push failed for want of the right keys alone.
fn faults_are_about_keys(error: &Error) -> bool {
    let Some(results) = error.push_results() else {
        return false;
    };
    let mut faults = results.iter().filter_map(|result| match result {
        PushResult::Rejected { reason, .. } => Some(*reason),
        PushResult::Accepted { .. } | PushResult::Acceptable { .. } => None,
    });
    let first = faults.next();
    first.is_some_and(is_about_keys) && faults.all(is_about_keys)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is written, a request that is said to fit does.
        #[test]
        fn what_fits_fits(
            ids in prop::collection::vec("[a\"\\\\é]{1,40}", 1..20),
            body in prop::collection::vec(any::<u8>(), 0..2_000),
            max in 500_u64..20_000,
        ) {
            let quotas = Quotas { max_push_bytes: max, max_records_per_push: 7, ..Quotas::default() };
            let kind = Kind::new("note").expect("legal");
            let ids: Vec<RecordId> =
                ids.iter().map(|id| RecordId::new(id.as_str()).expect("legal")).collect();
            let draft = |id| Draft { id, kind: &kind, body: &body, deleted: true, expect: Some(u64::MAX) };
            let count = fit(&quotas, ids.iter().map(draft));
            prop_assert!((1..=7).contains(&count));
            let records = ids[..count].iter().map(|id| PushRecord {
                id: id.clone(),
                epoch: u64::MAX,
                ciphertext: Sealed(vec![255; record::overhead(&kind) + body.len()]),
                sig: Some(Sealed(vec![255; 64])),
                deleted: true,
                expect: Some(u64::MAX),
            });
            let request =
                PushRequest { records: records.collect(), if_head: Some(u64::MAX), atomic: true };
            for format in [Format::Json, Format::Cbor] {
                let len = format.encode(&request).len() as u64;
                prop_assert!(len <= max || count == 1, "{len} of {max}");
            }
        }
    }
}
