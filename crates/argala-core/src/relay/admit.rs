//! Who calls, and which graph they may use: the checks that come before every rule.

use std::{sync::Arc, time::Duration};

use argala_wire::{
    GraphAddress, StorageKey, Timestamp,
    devices::{Device, DeviceRef},
    limits::Bucket,
};

use super::Relay;
use crate::{
    Fault, Outcome, Quota, Rejection,
    ports::{Event, Verdict},
    rules,
};

/// What a credential says: a member and a device, bound in one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Who calls.
    pub device: DeviceRef,
    /// When the credential expires, where it does; a poke stream ends then.
    pub expires_at: Option<Timestamp>,
}

/// Whom a route serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Registered devices.
    Registered,
    /// Devices that have not been registered too.
    Anyone,
}

/// A device that has been admitted.
#[derive(Debug, Clone)]
pub struct Caller {
    device: DeviceRef,
    expires_at: Option<Timestamp>,
    record: Option<Device>,
}

impl Caller {
    /// Who calls.
    #[must_use]
    pub const fn device(&self) -> &DeviceRef {
        &self.device
    }

    /// When the credential expires, where it does.
    #[must_use]
    pub const fn expires_at(&self) -> Option<Timestamp> {
        self.expires_at
    }

    /// The device's row, where it has been registered.
    pub(super) const fn record(&self) -> Option<&Device> {
        self.record.as_ref()
    }
}

/// A caller, and a graph that they may use.
#[derive(Debug, Clone)]
pub struct Access {
    caller: Arc<Caller>,
    key: StorageKey,
}

impl Access {
    /// Who calls.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The graph. It need not exist yet.
    #[must_use]
    pub const fn key(&self) -> &StorageKey {
        &self.key
    }

    pub(super) fn device(&self) -> &DeviceRef {
        self.caller.device()
    }
}

impl Relay {
    /// Says that a request came without a valid credential, for the event. `reason` is one of a
    /// few fixed names.
    pub fn reject_unauthenticated(&self, reason: &'static str) {
        self.emit(&Event::AuthRejected { reason });
    }

    /// Admits a caller, in this order: a revocation that is known here, the rate limit, the
    /// device's state, the member's (protocol, section 4).
    ///
    /// # Errors
    /// [`Rejection::DeviceRevoked`], [`Rejection::RateLimited`],
    /// [`Rejection::DeviceUnregistered`], [`Rejection::MemberInactive`], each with its event; a
    /// store's or the directory's failure.
    pub async fn admit(
        self: &Arc<Self>,
        identity: Identity,
        bucket: Bucket,
        gate: Gate,
    ) -> Outcome<Caller> {
        let Identity { device, expires_at } = identity;
        let refuse = |rejection: Rejection| Err(self.refuse(&device, rejection.into()));
        // Revocation is final, so it alone may be remembered: a flood from a revoked device ends
        // here.
        if self.revoked.contains_key(&device) {
            return refuse(Rejection::DeviceRevoked);
        }
        let verdict = self.limiters.of(bucket).check(&device.member_id).await;
        if let Verdict::Denied { retry_after } = verdict {
            self.emit(&Event::RateLimitHit {
                member_id: device.member_id.clone(),
                bucket,
            });
            let retry_after_ms = whole_millis(retry_after);
            return Err(Rejection::RateLimited {
                bucket,
                retry_after_ms,
            }
            .into());
        }
        let (record, active) = tokio::try_join!(
            self.store.device(&device),
            self.directory.is_active_member(&device.member_id)
        )?;
        match (rules::active(record.as_ref()), gate) {
            (Ok(()), _) => self.note_presence(&device),
            (Err(Rejection::DeviceUnregistered), Gate::Anyone) => {}
            (Err(rejection), _) => return refuse(rejection),
        }
        if !active {
            return refuse(Rejection::MemberInactive);
        }
        Ok(Caller {
            device,
            expires_at,
            record,
        })
    }

    /// Opens a graph to a caller.
    ///
    /// # Errors
    /// [`Rejection::GraphNotFound`], the same whether there is no such graph or the caller is not
    /// of it; the directory's failure.
    pub async fn open_graph(&self, caller: Caller, graph: &GraphAddress) -> Outcome<Access> {
        let member = &caller.device.member_id;
        let may = match graph {
            GraphAddress::Group(group) => self.directory.is_group_member(group, member).await?,
            GraphAddress::Member(other) if other == member => true,
            GraphAddress::Member(other) => self.directory.is_active_member(other).await?,
        };
        if !may {
            return Err(Rejection::GraphNotFound.into());
        }
        let key = graph.storage_key(member);
        Ok(Access {
            caller: Arc::new(caller),
            key,
        })
    }

    /// Says that the body of a push was larger than `maxPushBytes`, for the event.
    pub fn reject_push_body(&self, access: &Access) {
        self.quota_exceeded(access.caller(), access.key().clone(), Quota::PushBytes);
    }

    /// Passes on what a store answered, with the event for a refusal of the caller as such.
    pub(super) fn settle<T>(&self, caller: &Caller, outcome: Outcome<T>) -> Outcome<T> {
        outcome.map_err(|fault: Fault| self.refuse(caller.device(), fault))
    }
}

/// Rounded up: waiting this long is enough.
fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
