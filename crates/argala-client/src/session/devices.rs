//! The devices of others: who they are, and whether they are still who they were.
//!
//! The relay tells which keys belong to which device, and could lie. So every device is put on
//! record when it is first seen, its keys are never replaced after, and whoever uses this device
//! is told of each new one with a fingerprint to compare.

use std::collections::HashMap;

use argala_wire::{
    GraphId, StorageKey,
    devices::{Device, DeviceRef},
};

use super::Session;
use crate::{
    crypto::{Fingerprint, PublicKeys, record},
    error::Error,
    events::Event,
    keyfile::{KnownDevice, Seen},
};

/// A device as the relay tells it, beside what this device remembers of it.
#[derive(Debug, Clone)]
pub struct SeenDevice {
    /// What the relay tells.
    pub device: Device,
    /// What to compare with the device's owner; that of the keys which the relay tells now.
    pub fingerprint: Fingerprint,
    /// Whether it has never been listed to whoever uses this device before.
    pub new: bool,
    /// Whether the relay tells other keys than it did when the device was first seen.
    pub changed: bool,
    /// Whether somebody has compared the fingerprint and said so.
    pub verified: bool,
    /// Its name, where it is one of the member's own and the key is here.
    pub label: Option<String>,
}

impl Session {
    /// Puts devices on record, and tells of those that are new or changed.
    fn look_at(&mut self, devices: &[Device]) -> Result<Vec<Seen>, Error> {
        let mut all = Vec::with_capacity(devices.len());
        let mut events = Vec::new();
        for device in devices {
            let keys = PublicKeys::of(device)
                .ok_or_else(|| Error::Answer("a device's keys are not of its suite".to_owned()))?;
            let name = device.to_ref();
            let seen = if name == *self.file.device() {
                // Nobody has to tell this device its own keys.
                if keys == self.file.keys().public() {
                    Seen::Same
                } else {
                    Seen::Changed
                }
            } else {
                self.file.contents_mut().see(&name, device.kind, &keys)
            };
            match seen {
                Seen::Same => {}
                Seen::New => events.push(Event::DeviceNew {
                    fingerprint: keys.fingerprint(&name),
                    device: name,
                }),
                Seen::Changed => events.push(Event::DeviceChanged { device: name }),
            }
            all.push(seen);
        }
        if all.contains(&Seen::New) {
            self.file.save()?;
        }
        for event in &events {
            self.tell_doubt(event)?;
        }
        Ok(all)
    }

    /// The graph's roster, on record; fails where a device on it has other keys than before,
    /// since nothing may be sealed for it.
    pub(super) async fn trusted_roster(
        &mut self,
        graph: &GraphId,
    ) -> Result<Vec<(DeviceRef, PublicKeys)>, Error> {
        let devices = self.api.roster(graph, false).await?;
        let seen = self.look_at(&devices)?;
        let mut changed = Vec::new();
        let mut trusted = Vec::with_capacity(devices.len());
        for (device, seen) in devices.iter().zip(seen) {
            match (seen, PublicKeys::of(device)) {
                (Seen::Changed, _) | (_, None) => changed.push(device.to_ref()),
                (_, Some(keys)) => trusted.push((device.to_ref(), keys)),
            }
        }
        if changed.is_empty() {
            Ok(trusted)
        } else {
            Err(Error::KeysChanged(changed))
        }
    }

    /// The keys on record of a device; the graph's roster, its former holders included, is asked
    /// where there is none. `None` where the relay knows none either.
    pub(super) async fn keys_of(
        &mut self,
        graph: &GraphId,
        device: &DeviceRef,
    ) -> Result<Option<PublicKeys>, Error> {
        self.meet(graph, [device]).await?;
        if device == self.file.device() {
            return Ok(Some(self.file.keys().public()));
        }
        let known = self.file.contents().known_device(device);
        Ok(known.map(KnownDevice::keys))
    }

    /// Puts devices on record that are not there yet, by one look at the graph's roster, its
    /// former holders included.
    pub(super) async fn meet(
        &mut self,
        graph: &GraphId,
        devices: impl IntoIterator<Item = &DeviceRef>,
    ) -> Result<(), Error> {
        let contents = self.file.contents();
        let stranger = |device: &DeviceRef| {
            *device != contents.device && contents.known_device(device).is_none()
        };
        if devices.into_iter().any(stranger) {
            let devices = self.api.roster(graph, true).await?;
            self.look_at(&devices)?;
        }
        Ok(())
    }

    /// Every device on record that might have signed something, this one included.
    pub(super) fn every_known(&self) -> HashMap<DeviceRef, PublicKeys> {
        let known = self.file.contents().known();
        let mut all: HashMap<_, _> = known
            .map(|known| (known.device.clone(), known.keys()))
            .collect();
        all.insert(self.file.device().clone(), self.file.keys().public());
        all
    }

    fn describe(&mut self, devices: Vec<Device>) -> Result<Vec<SeenDevice>, Error> {
        let seen = self.look_at(&devices)?;
        let mut out = Vec::with_capacity(devices.len());
        for (device, seen) in devices.into_iter().zip(seen) {
            let name = device.to_ref();
            let keys = PublicKeys::of(&device).expect("looked at above");
            let label = self.open_label(&device);
            let own = name == *self.file.device();
            let known = self.file.contents_mut().known_device_mut(&name);
            let (new, verified) = match known {
                Some(known) => (
                    !std::mem::replace(&mut known.announced, true),
                    known.verified,
                ),
                None => (false, own),
            };
            out.push(SeenDevice {
                fingerprint: keys.fingerprint(&name),
                new,
                changed: seen == Seen::Changed,
                verified,
                label,
                device,
            });
        }
        if out.iter().any(|device| device.new) {
            self.file.save()?;
        }
        Ok(out)
    }

    fn open_label(&self, device: &Device) -> Option<String> {
        let member = &self.file.device().member_id;
        let label = device
            .label
            .as_ref()
            .filter(|_| device.member_id == *member)?;
        let own = StorageKey::own(member);
        let epoch = record::label_epoch(label.as_slice())?;
        let key = self.file.contents().key(&own, epoch)?;
        record::open_label(key, &own, label.as_slice()).ok()
    }

    /// The member's own devices, revoked ones too.
    ///
    /// # Errors
    /// [`Error::Relay`].
    pub async fn own_devices(&mut self) -> Result<Vec<SeenDevice>, Error> {
        let devices = self.api.devices().await?;
        self.describe(devices)
    }

    /// The devices of a graph: its roster, and with `former` every device that ever held a key.
    ///
    /// # Errors
    /// [`Error::Relay`].
    pub async fn graph_devices(
        &mut self,
        graph: &GraphId,
        former: bool,
    ) -> Result<Vec<SeenDevice>, Error> {
        let devices = self.api.roster(graph, former).await?;
        self.describe(devices)
    }

    /// Remembers that somebody has compared a device's fingerprint with its owner.
    ///
    /// # Errors
    /// [`Error::Usage`] where the device was never seen or has another fingerprint.
    pub fn verify(&mut self, device: &DeviceRef, fingerprint: &str) -> Result<(), Error> {
        let bare = |text: &str| -> String {
            let digits = text.chars().filter(|c| !c.is_whitespace());
            digits.collect::<String>().to_lowercase()
        };
        let known = self.file.contents_mut().known_device_mut(device);
        let known = known.ok_or_else(|| Error::Usage("that device was never seen".to_owned()))?;
        let expected = known.keys().fingerprint(device).to_string();
        if bare(&expected) != bare(fingerprint) {
            return Err(Error::Usage(
                "the device has another fingerprint; it is not the one you were told of".to_owned(),
            ));
        }
        known.verified = true;
        known.announced = true;
        self.file.save()
    }

    /// Forgets what is on record of a device, so that the keys which the relay tells next are
    /// taken for its own. For when its owner says that the change is theirs.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn forget_device(&mut self, device: &DeviceRef) -> Result<(), Error> {
        self.file.contents_mut().forget(device);
        self.file.save()
    }
}
