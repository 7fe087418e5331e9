//! Registering and revoking devices (protocol, routes 1 and 3).

use argala_wire::devices::Device;

use crate::{
    Quota, Rejection,
    ports::store::{Register, Registered},
};

/// Holds that the calling device is registered and not revoked. Every write asks again under its
/// lock: what was true when the request was admitted may have passed.
///
/// # Errors
/// [`Rejection::DeviceUnregistered`], [`Rejection::DeviceRevoked`].
pub fn active(device: Option<&Device>) -> Result<(), Rejection> {
    match device {
        None => Err(Rejection::DeviceUnregistered),
        Some(device) if !device.is_active() => Err(Rejection::DeviceRevoked),
        Some(_) => Ok(()),
    }
}

/// What a registration writes.
#[derive(Debug, Clone)]
pub enum Registration {
    /// This device, which was not there.
    Insert(Device),
    /// This device's label alone.
    Relabel(Device),
    /// Nothing: it was there just so.
    Same(Device),
}

impl Registration {
    /// What the caller is told.
    #[must_use]
    pub fn into_answer(self) -> Registered {
        match self {
            Self::Insert(device) => Registered {
                device,
                fresh: true,
            },
            Self::Relabel(device) | Self::Same(device) => Registered {
                device,
                fresh: false,
            },
        }
    }
}

/// Decides a registration.
///
/// `existing` is the row of the device id, `active` the number of the member's active devices.
/// A repeat replaces the label where it brings one.
///
/// # Errors
/// [`Rejection::DeviceRevoked`]: revocation is final. [`Rejection::DeviceKeyMismatch`].
/// [`Rejection::QuotaExceeded`] of devices, for a new device only.
pub fn register(
    request: &Register,
    existing: Option<&Device>,
    active: u64,
) -> Result<Registration, Rejection> {
    if let Some(device) = existing {
        if !device.is_active() {
            return Err(Rejection::DeviceRevoked);
        }
        let same = device.suite == request.suite
            && device.kind == request.kind
            && device.encryption_key == request.encryption_key
            && device.signing_key == request.signing_key;
        if !same {
            return Err(Rejection::DeviceKeyMismatch);
        }
        return Ok(
            if request.label.is_some() && request.label != device.label {
                Registration::Relabel(Device {
                    label: request.label.clone(),
                    ..device.clone()
                })
            } else {
                Registration::Same(device.clone())
            },
        );
    }
    if active >= request.max_devices {
        return Err(Rejection::QuotaExceeded {
            what: Quota::Devices,
            limit: request.max_devices,
            used: active,
        });
    }
    Ok(Registration::Insert(Device {
        member_id: request.device.member_id.clone(),
        device_id: request.device.device_id.clone(),
        kind: request.kind,
        suite: request.suite,
        encryption_key: request.encryption_key.clone(),
        signing_key: request.signing_key.clone(),
        label: request.label.clone(),
        registered_at: request.now,
        revoked_at: None,
        last_seen_at: None,
    }))
}

/// Decides a revocation of `target` by the device `caller` of the same member: whether there is
/// anything to write.
///
/// # Errors
/// Those of [`active`] for the caller; [`Rejection::DeviceNotFound`].
pub fn revoke(caller: Option<&Device>, target: Option<&Device>) -> Result<bool, Rejection> {
    active(caller)?;
    target
        .map(Device::is_active)
        .ok_or(Rejection::DeviceNotFound)
}
