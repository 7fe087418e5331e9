//! Writes that have no other home: held on disk until the relay has taken them.

use std::collections::HashSet;

use argala_wire::{
    Code, GraphId, RecordId, Sealed, StorageKey,
    codec::Format,
    records::{PushReason, PushResult},
};
use zeroize::Zeroizing;

use super::{
    PushOptions, Session,
    push::{Draft, SealedPush, fit, is_about_keys, too_large},
};
use crate::{
    access::Write,
    crypto::local,
    error::{Error, Refusal},
    state::{Direction, Held, Outbox, Rejected, Sending},
};

/// What came of sending the writes that waited.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Those that the relay took, and the seq that each was given.
    pub accepted: Vec<(RecordId, u64)>,
    /// Those that were refused. They are kept ([`Session::rejected`]).
    pub rejected: Vec<(RecordId, Refusal)>,
    /// How many wait still, the device's keys being behind.
    pub held: usize,
}

impl Session {
    /// Writes records, holding on disk what cannot be sent now: nothing is dropped, whatever
    /// happens. What was held before is sent first.
    ///
    /// # Errors
    /// [`Error::Offline`] and [`Error::Relay`] where the relay did not take the writes now; they
    /// are held, and the next call sends them.
    pub async fn write(&mut self, graph: &GraphId, writes: &[Write]) -> Result<Flushed, Error> {
        self.hold(graph, writes)?;
        self.flush(graph).await
    }

    fn hold(&mut self, graph: &GraphId, writes: &[Write]) -> Result<(), Error> {
        let key = self.storage_key(graph);
        let mut outbox = self.outbox(&key)?;
        for write in writes {
            let number = outbox.take_number();
            let secret = self.file.contents().held_secret();
            outbox.held.push(Held {
                number,
                id: write.id.clone(),
                kind: write.kind.clone(),
                body: Sealed(local::seal(secret, &key, number, &write.body)),
                deleted: write.deleted,
                expect: write.expect,
            });
        }
        outbox.save()?;
        if self.file.contents_mut().touch(&key) {
            self.file.save()?;
        }
        Ok(())
    }

    /// Sends the writes that wait.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn flush(&mut self, graph: &GraphId) -> Result<Flushed, Error> {
        let key = self.storage_key(graph);
        let mut outbox = self.outbox(&key)?;
        let mut report = Flushed::default();
        self.refuse_too_large(&mut outbox, &mut report).await?;
        let mut fresh = false;
        loop {
            if outbox.sending.is_none() && !self.prepare(graph, &mut outbox, fresh).await? {
                break;
            }
            let about_keys = self.send(graph, &key, &mut outbox, &mut report).await?;
            if about_keys && fresh {
                self.tell_behind(graph, &key);
                break;
            }
            fresh = about_keys;
        }
        report.held = outbox.held.len();
        for (_, why) in &report.rejected {
            self.tell_rejected(graph, *why);
        }
        Ok(report)
    }

    /// Seals as many held writes as fit one request, and puts it on disk before it is sent;
    /// `false` where there is nothing to send, or nothing to seal it under.
    async fn prepare(
        &mut self,
        graph: &GraphId,
        outbox: &mut Outbox,
        fresh: bool,
    ) -> Result<bool, Error> {
        let key = self.storage_key(graph);
        if outbox.held.is_empty() {
            return Ok(false);
        }
        let Some(epoch) = self.writable_epoch(graph, fresh).await? else {
            return Ok(false);
        };
        let quotas = self.limits().await?.quotas;
        let mut ids = HashSet::new();
        let mut batch: Vec<(&Held, Zeroizing<Vec<u8>>)> = Vec::new();
        for held in &outbox.held {
            // A second write to an item goes with the next request, so that each finds its turn.
            if !ids.insert(&held.id) {
                break;
            }
            let secret = self.file.contents().held_secret();
            let body = local::open(secret, &key, held.number, held.body.as_slice())
                .map_err(|_| Error::Unreadable("a held write"))?;
            batch.push((held, body));
        }
        let count = fit(&quotas, batch.iter().map(|(held, body)| draft(held, body)));
        batch.truncate(count);
        let drafts: Vec<Draft<'_>> = batch.iter().map(|(held, body)| draft(held, body)).collect();
        let push = self.seal_push(&key, epoch, &drafts, PushOptions::default())?;
        let numbers = batch.iter().map(|(held, _)| held.number).collect();
        outbox.sending = Some(Sending {
            key: push.key,
            cbor: push.format == Format::Cbor,
            body: Sealed(push.body),
            numbers,
            counter: push.counter,
        });
        outbox.save()?;
        Ok(true)
    }

    /// Sends the prepared request and files each verdict; `true` where some write must be sealed
    /// anew under other keys.
    async fn send(
        &mut self,
        graph: &GraphId,
        key: &StorageKey,
        outbox: &mut Outbox,
        report: &mut Flushed,
    ) -> Result<bool, Error> {
        let sending = outbox.sending.clone().expect("prepared");
        let push = SealedPush {
            key: sending.key,
            format: if sending.cbor {
                Format::Cbor
            } else {
                Format::Json
            },
            body: sending.body.0,
            counter: sending.counter,
            count: sending.numbers.len(),
        };
        let answer = match self.send_push(graph, &push).await {
            Ok(Some(answer)) => answer,
            Ok(None) => {
                outbox.sending = None;
                outbox.save()?;
                return Ok(true);
            }
            Err(error) => {
                // A request that will never be taken as it is gets a new one the next time.
                let for_good = [
                    Code::InvalidRequest,
                    Code::IdempotencyConflict,
                    Code::BodyTooLarge,
                ];
                if error.code().is_some_and(|code| for_good.contains(&code)) {
                    outbox.sending = None;
                    outbox.save()?;
                }
                return Err(error);
            }
        };
        let mut about_keys = false;
        let mut written = Vec::new();
        let numbers = sending.numbers.into_iter().zip(push.counter..);
        for ((number, counter), result) in numbers.zip(answer.results) {
            let Some(at) = outbox.held.iter().position(|held| held.number == number) else {
                continue;
            };
            match result {
                PushResult::Accepted { id, seq } => {
                    outbox.held.remove(at);
                    written.push((id.clone(), counter));
                    report.accepted.push((id, seq));
                }
                PushResult::Rejected { reason, .. } if is_about_keys(reason) => about_keys = true,
                PushResult::Rejected { reason, .. } => {
                    file_away(outbox, at, Refusal::Relay(reason), report);
                }
                // Turned away by `send_push`.
                PushResult::Acceptable { .. } => {}
            }
        }
        outbox.sending = None;
        outbox.save()?;
        self.note_own(key, written.iter().map(|(id, counter)| (id, *counter)))?;
        Ok(about_keys)
    }

    async fn refuse_too_large(
        &mut self,
        outbox: &mut Outbox,
        report: &mut Flushed,
    ) -> Result<(), Error> {
        if outbox.held.is_empty() {
            return Ok(());
        }
        let quotas = self.limits().await?.quotas;
        let (mut at, before) = (0, report.rejected.len());
        while let Some(held) = outbox.held.get(at) {
            let body = held.body.len().saturating_sub(local::OVERHEAD);
            match too_large(&quotas, &held.kind, body) {
                Some(why) => file_away(outbox, at, why, report),
                None => at += 1,
            }
        }
        if report.rejected.len() > before {
            outbox.save()?;
        }
        Ok(())
    }

    /// The writes of a graph that wait, and its records that were refused.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn waiting(&self, graph: &GraphId) -> Result<Outbox, Error> {
        self.outbox(&self.storage_key(graph))
    }

    /// The records of a graph that were refused, as they were pushed or as they were pulled.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn rejected(&self, graph: &GraphId) -> Result<Vec<Rejected>, Error> {
        Ok(self.waiting(graph)?.rejected().to_vec())
    }

    /// Puts refused writes back among those that wait; the next flush sends them. Answers with
    /// how many there were.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn try_rejected_again(&mut self, graph: &GraphId) -> Result<usize, Error> {
        let mut outbox = self.waiting(graph)?;
        let count = outbox.try_rejected_again();
        outbox.save()?;
        Ok(count)
    }

    /// Gives up refused writes, and stops showing refused records. Answers with how many.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn forget_rejected(&mut self, graph: &GraphId) -> Result<u64, Error> {
        let mut outbox = self.waiting(graph)?;
        let count = outbox.forget_rejected();
        outbox.save()?;
        Ok(count)
    }
}

fn draft<'a>(held: &'a Held, body: &'a [u8]) -> Draft<'a> {
    Draft {
        id: &held.id,
        kind: &held.kind,
        body,
        deleted: held.deleted,
        expect: held.expect,
    }
}

/// Moves a held write to those that were refused.
fn file_away(outbox: &mut Outbox, at: usize, why: Refusal, report: &mut Flushed) {
    let held = outbox.held.remove(at);
    report.rejected.push((held.id.clone(), why));
    outbox.reject(Rejected {
        direction: Direction::Push,
        id: held.id.clone(),
        reason: why.as_str().to_owned(),
        detail: detail(why),
        seq: None,
        by: None,
        write: Some(held),
    });
}

fn detail(why: Refusal) -> Option<u64> {
    match why {
        Refusal::TooLarge { limit } => Some(limit),
        Refusal::Relay(reason) => match reason {
            PushReason::RecordTooLarge { limit }
            | PushReason::QuotaRecords { limit }
            | PushReason::QuotaBytes { limit } => Some(limit),
            PushReason::StaleEpoch { epoch } | PushReason::UnknownEpoch { epoch } => Some(epoch),
            PushReason::Conflict { seq } => Some(seq),
            PushReason::NotHolder | PushReason::SignatureMissing | PushReason::SignatureInvalid => {
                None
            }
        },
        _ => None,
    }
}
