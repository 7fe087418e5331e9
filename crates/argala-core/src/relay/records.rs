//! Records (protocol, routes 10 and 11).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use argala_wire::{
    StorageKey,
    records::{PushReason, PushRequest, PushResponse, PushResult},
};

use super::{Access, Relay, page, pokes::Whom};
use crate::{
    Fault, Outcome, Quota, Rejection,
    ports::{
        Event,
        store::{Idempotency, Pull, Pulled, Push, PushedRecord},
    },
    rules,
};

/// How long an idempotency key is good (protocol, section 6).
pub(crate) const IDEMPOTENCY_WINDOW: Duration = Duration::from_secs(24 * 60 * 60);
/// From this many signatures on, they are verified off the threads that serve requests.
const MANY_SIGNATURES: usize = 8;
/// How old the directory's part of the rotation flag may be. The protocol allows 60 s, of which
/// the directory's own cache may take a few.
const ROSTER_CHECK_EVERY: Duration = Duration::from_secs(45);

/// The idempotency key of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The key: 1 to 128 visible ASCII characters.
    pub key: String,
    /// SHA-256 of the body's bytes.
    pub body_sha256: [u8; 32],
}

/// Which page of records is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PullQuery {
    /// Where the last page ended; an empty one is malformed.
    pub cursor: Option<String>,
    /// How many records at the most; 1 to 1,000.
    pub limit: Option<u64>,
    /// One epoch alone; at least 1.
    pub epoch: Option<u64>,
    /// What else the answer's form depends on: its media type.
    pub variant: &'static str,
    /// The tags of `If-None-Match`, without quotes and `W/`.
    pub if_none_match: Vec<String>,
    /// Whether `If-None-Match` is `*`: whatever page there is, the caller has it.
    pub has_any: bool,
}

impl Relay {
    /// `POST /graphs/{graphId}/push`: takes records.
    ///
    /// # Errors
    /// `InvalidRequest`, `GraphUnkeyed`, `IdempotencyConflict`, `HeadMoved`, `PushRejected`.
    pub async fn push(
        self: &Arc<Self>,
        access: &Access,
        request: PushRequest,
        idempotency: Option<IdempotencyKey>,
    ) -> Outcome<PushResponse> {
        rules::push::check(&request, &self.quotas)?;
        let now = self.clock.now();
        let sizes: Vec<_> = request
            .records
            .iter()
            .map(|record| record.ciphertext.len() as u64)
            .collect();
        let PushRequest {
            records,
            if_head,
            atomic,
        } = request;
        let push = Push {
            key: access.key().clone(),
            by: access.device().clone(),
            records: self.verify(access, records).await?,
            if_head,
            atomic,
            idempotency: idempotency.map(|idempotency| Idempotency {
                key: idempotency.key,
                body: idempotency.body_sha256,
                since: now.saturating_sub(IDEMPOTENCY_WINDOW),
            }),
            now,
            quotas: self.quotas,
        };
        let relay = Arc::clone(self);
        let access = access.clone();
        self.detached(async move {
            let outcome = relay.store.push(push).await;
            match &outcome {
                Ok(outcome) => relay.report_quotas(&access, &outcome.answer.results),
                Err(Fault::Rejected(Rejection::PushRejected { results })) => {
                    relay.report_quotas(&access, results);
                }
                Err(_) => {}
            }
            let outcome = relay.settle(access.caller(), outcome)?;
            let answer = outcome.answer;
            relay.emit(&Event::GraphPush {
                member_id: access.device().member_id.clone(),
                storage_key: access.key().clone(),
                accepted: answer.accepted,
                rejected: answer.rejected,
                bytes: accepted_bytes(&answer.results, &sizes),
            });
            if outcome.changed {
                relay.changed(access.key().clone(), access.device(), Whom::All);
            }
            Ok(answer)
        })
        .await
    }

    /// Verifies signatures before any lock is taken: they rest on nothing that can change.
    async fn verify(
        &self,
        access: &Access,
        records: Vec<argala_wire::records::PushRecord>,
    ) -> Outcome<Vec<PushedRecord>> {
        let key = access.key().clone();
        let policy = self.signatures;
        let signing_key = access
            .caller()
            .record()
            .map(|device| device.signing_key.clone())
            .ok_or(Rejection::DeviceUnregistered)?;
        let signed = records.iter().filter(|record| record.sig.is_some()).count();
        let verify = move || {
            let verifier = rules::push::Verifier::new(&signing_key.0);
            records
                .into_iter()
                .map(|record| {
                    let signature = verifier.verify(&key, &record, policy);
                    PushedRecord { record, signature }
                })
                .collect()
        };
        if signed < MANY_SIGNATURES {
            return Ok(verify());
        }
        tokio::task::spawn_blocking(verify)
            .await
            .map_err(|died| crate::StoreError::internal("verifying signatures died", died).into())
    }

    fn report_quotas(&self, access: &Access, results: &[PushResult]) {
        let exceeded: BTreeSet<_> = results
            .iter()
            .filter_map(|result| match result {
                PushResult::Rejected {
                    reason: PushReason::QuotaRecords { .. },
                    ..
                } => Some(Quota::Records),
                PushResult::Rejected {
                    reason: PushReason::QuotaBytes { .. },
                    ..
                } => Some(Quota::CiphertextBytes),
                _ => None,
            })
            .collect();
        for what in exceeded {
            self.quota_exceeded(access.caller(), access.key().clone(), what);
        }
    }

    /// `GET /graphs/{graphId}/pull`: one page of records.
    ///
    /// # Errors
    /// `InvalidRequest` of the limit or the epoch, `CursorInvalid`.
    pub async fn pull(&self, access: &Access, query: PullQuery) -> Outcome<Pulled> {
        let limit = page::limit(query.limit, self.pages.default_pull_limit, &self.pages)?;
        if query.epoch == Some(0) {
            return Err(Rejection::invalid("epoch", "epochs begin with 1").into());
        }
        self.refresh_directory_flag(access.key()).await?;
        let pulled = self
            .store
            .pull(Pull {
                key: access.key().clone(),
                device: access.device().clone(),
                cursor: query.cursor,
                limit,
                epoch: query.epoch,
                variant: query.variant,
                known: query.if_none_match,
                pages: self.pages,
            })
            .await?;
        let pulled = match pulled {
            Pulled::Page(page) if query.has_any => Pulled::Unchanged { tag: page.tag },
            pulled => pulled,
        };
        let (returned, filtered) = match &pulled {
            Pulled::Unchanged { .. } => (0, 0),
            Pulled::Page(page) => (page.page.records.len() as u64, page.page.filtered),
        };
        self.emit(&Event::GraphPull {
            member_id: access.device().member_id.clone(),
            storage_key: access.key().clone(),
            returned,
            filtered,
        });
        Ok(pulled)
    }

    /// Whether the directory's part of a graph's rotation flag is due for another look.
    pub(super) fn is_roster_check_due(&self, key: &StorageKey) -> bool {
        let now = self.clock.now();
        self.roster_checks
            .get(key)
            .is_none_or(|at| at > now || now.since(at) >= ROSTER_CHECK_EVERY)
    }

    /// Looks, where it is due, whether the directory has put a holder off the roster, and stores
    /// what it says: routes 4 and 11 tell the stored flag.
    pub(super) async fn refresh_directory_flag(&self, key: &StorageKey) -> Outcome<()> {
        if !self.is_roster_check_due(key) {
            return Ok(());
        }
        // Before the look, so that a crowd looks once; a look that fails is due again.
        self.roster_checks.insert(key.clone(), self.clock.now());
        let looked = self.look_at_roster(key).await;
        if looked.is_err() {
            self.roster_checks.invalidate(key);
        }
        looked
    }

    async fn look_at_roster(&self, key: &StorageKey) -> Outcome<()> {
        let members = self.directory.members(key, false).await?;
        let Some(standing) = self.store.standing(key, &[]).await? else {
            return Ok(());
        };
        let owed = rules::roster::directory_owes(&standing, &members);
        if owed != standing.graph.directory_owed {
            self.store
                .flag_directory(key, standing.graph.epoch, owed)
                .await?;
        }
        Ok(())
    }
}

fn accepted_bytes(results: &[PushResult], sizes: &[u64]) -> u64 {
    results
        .iter()
        .zip(sizes)
        .filter(|(result, _)| matches!(result, PushResult::Accepted { .. }))
        .map(|(_, size)| size)
        .sum()
}
