//! Devices (protocol, routes 1 to 3).

use std::{collections::BTreeSet, sync::Arc};

use argala_wire::{
    DeviceId, StorageKey,
    devices::{
        DevicesResponse, MAX_LABEL_BYTES, RegisterRequest, RegisterResponse, RevokeResponse,
    },
    limits::MAX_OWED,
    signing,
};

use super::{Caller, PageQuery, Relay, page, pokes::Whom};
use crate::{
    Fault, Outcome, Rejection,
    cursor::{self, List},
    ports::{
        Event,
        store::{DeviceMark, Register, Revoke},
    },
    rules,
};

/// What the body of a registration alone tells.
fn check(caller: &Caller, request: &RegisterRequest) -> Result<(), Rejection> {
    let wanted = request.suite.key_bytes();
    for (field, key) in [
        ("encryptionKey", &request.encryption_key),
        ("signingKey", &request.signing_key),
    ] {
        if key.len() != wanted {
            return Err(Rejection::invalid(
                field,
                format!("a key of this suite has {wanted} bytes"),
            ));
        }
    }
    if request
        .label
        .as_ref()
        .is_some_and(|label| label.len() > MAX_LABEL_BYTES)
    {
        return Err(Rejection::invalid(
            "label",
            "a label has at most 1,024 bytes",
        ));
    }
    let message = signing::device_proof(
        caller.device(),
        request.kind,
        request.suite,
        &request.encryption_key.0,
        &request.signing_key.0,
    );
    if rules::push::is_signed(&request.signing_key.0, &message, &request.proof.0) {
        Ok(())
    } else {
        Err(Rejection::invalid(
            "proof",
            "not the signing key's signature over this device",
        ))
    }
}

impl Relay {
    /// `POST /devices`: the calling device publishes its keys.
    ///
    /// # Errors
    /// [`Rejection::InvalidRequest`], [`Rejection::DeviceRevoked`],
    /// [`Rejection::DeviceKeyMismatch`], [`Rejection::QuotaExceeded`].
    pub async fn register(
        self: &Arc<Self>,
        caller: &Caller,
        request: RegisterRequest,
    ) -> Outcome<RegisterResponse> {
        check(caller, &request)?;
        let device = caller.device().clone();
        let request = Register {
            device: device.clone(),
            suite: request.suite,
            kind: request.kind,
            encryption_key: request.encryption_key,
            signing_key: request.signing_key,
            label: request.label,
            now: self.clock.now(),
            max_devices: self.quotas.max_devices_per_member,
        };
        let relay = Arc::clone(self);
        let caller = caller.clone();
        self.detached(async move {
            let own = StorageKey::own(&device.member_id);
            let outcome = relay.store.register(request).await;
            if let Err(Fault::Rejected(Rejection::QuotaExceeded { what, .. })) = &outcome {
                relay.quota_exceeded(&caller, own.clone(), *what);
            }
            let registered = relay.settle(&caller, outcome)?;
            relay.note_presence(&device);
            relay.emit(&Event::DeviceRegister {
                member_id: device.member_id.clone(),
                device_id: device.device_id.clone(),
                fresh: registered.fresh,
            });
            if registered.fresh {
                relay.changed(own, &device, Whom::All);
            }
            Ok(RegisterResponse {
                device: registered.device,
                fresh: registered.fresh,
            })
        })
        .await
    }

    /// `GET /devices`: the member's whole roster, revoked devices too, oldest first.
    ///
    /// # Errors
    /// [`Rejection::InvalidRequest`] of the limit, [`Rejection::CursorInvalid`].
    pub async fn devices(&self, caller: &Caller, query: PageQuery) -> Outcome<DevicesResponse> {
        let limit = page::limit(query.limit, self.pages.default_list_limit, &self.pages)?;
        let mut mark = match &query.cursor {
            None => None,
            Some(text) => {
                let [at, device] = cursor::read(List::Devices, text)?;
                read_mark(&at, &device)?
            }
        };
        let member = &caller.device().member_id;
        let mut devices = self
            .store
            .devices_of_member(member, mark.as_ref(), limit.saturating_add(1))
            .await?;
        let more = page::cut(&mut devices, limit);
        for device in &mut devices {
            device.last_seen_at = device.last_seen_at.max(self.presence.of(&device.to_ref()));
        }
        if let Some(last) = devices.last() {
            mark = Some(DeviceMark {
                registered_at: last.registered_at,
                device_id: last.device_id.clone(),
            });
        }
        let cursor = match &mark {
            None => cursor::write(List::Devices, &[b"", b""]),
            Some(mark) => cursor::write(
                List::Devices,
                &[
                    &mark.registered_at.as_millis().to_be_bytes(),
                    mark.device_id.as_str().as_bytes(),
                ],
            ),
        };
        Ok(DevicesResponse {
            devices,
            cursor,
            more,
        })
    }

    /// `DELETE /devices/{deviceId}`: revokes one of the caller's own devices.
    ///
    /// # Errors
    /// [`Rejection::DeviceNotFound`]; [`Rejection::DeviceRevoked`] where the calling device was
    /// revoked meanwhile.
    pub async fn revoke(
        self: &Arc<Self>,
        caller: &Caller,
        device_id: DeviceId,
    ) -> Outcome<RevokeResponse> {
        let by = caller.device().clone();
        let mut target = by.clone();
        target.device_id = device_id.clone();
        let request = Revoke {
            by: by.clone(),
            device_id,
            now: self.clock.now(),
        };
        let relay = Arc::clone(self);
        let caller = caller.clone();
        self.detached(async move {
            let outcome = relay.store.revoke(request).await;
            let revoked = relay.settle(&caller, outcome)?;
            relay.revoked.insert(target.clone(), ());
            relay.streams.end(&target);
            relay.emit(&Event::DeviceRevoke {
                member_id: target.member_id.clone(),
                device_id: target.device_id.clone(),
                graphs_flagged: revoked.flagged.len() as u64,
            });
            if revoked.fresh {
                // The member's own graph is told of the device, and may owe a rotation as well.
                let mut told: BTreeSet<_> = revoked.flagged.iter().cloned().collect();
                told.insert(StorageKey::own(&by.member_id));
                for graph in told {
                    relay.changed(graph, &by, Whom::All);
                }
            }
            Ok(RevokeResponse {
                graphs_flagged: revoked.flagged.len() as u64,
                graphs: revoked
                    .flagged
                    .iter()
                    .filter_map(|graph| graph.graph_id_for(&by.member_id))
                    .take(MAX_OWED)
                    .collect(),
            })
        })
        .await
    }
}

/// The place that a cursor's parts name; `None` for the cursor of an empty list.
fn read_mark(at: &[u8], device: &[u8]) -> Result<Option<DeviceMark>, Rejection> {
    if at.is_empty() && device.is_empty() {
        return Ok(None);
    }
    let millis = i64::from_be_bytes(cursor::number(at)?.to_be_bytes());
    Ok(Some(DeviceMark {
        registered_at: argala_wire::Timestamp::from_millis(millis),
        device_id: cursor::text(device)?,
    }))
}
